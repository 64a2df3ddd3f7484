"""Checks of numbers from users: a bool, NaN, an infinite or a huge number would fail later, and elsewhere."""

from typing import TypeGuard

SECONDS_MAX = 1e7
"""A longer time, about four months, is a mistake."""

SHOWN_CHARACTERS_MAX = 40


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether `value` is a whole number of at most 64 bits: a bool is none."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**64


def is_number(value: object, maximum: float) -> TypeGuard[float]:
    """Return whether `value` is a number from 0 to `maximum`: a bool is none, nor is NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= maximum


def shown_number(value: object) -> str:
    """Return `value` for an error message. Python does not print numbers of thousands of digits."""
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}..."
