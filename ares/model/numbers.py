"""Numbers from users and from peers, and their bounds.

A bool, NaN, an infinite or a huge number would fail later, in another place. A message with a
number out of bounds is refused while decoding. MessagePack has no integer below -2^63, or from 2^64
on; a number of 64 bits therefore has a lower bound only.
"""

from typing import Annotated, TypeGuard

from msgspec import Meta, Struct

SECONDS_MAX = 1e7
"""Seconds that no setting may exceed: a longer time, about four months, is a mistake."""

SHOWN_CHARACTERS_MAX = 40

PORT_MAX = 65_535
"""The highest port of TCP."""


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether `value` is a whole number of at most 64 bits and no bool."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**64


def is_number(value: object, maximum: float) -> TypeGuard[float]:
    """Return whether `value` is a number from 0 to `maximum`, no bool and no NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= maximum


def shown_number(value: object) -> str:
    """Return `value` for an error message.

    Python does not print numbers of thousands of digits.
    """
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}..."


def plural(number: int, noun: str, ending: str = "s") -> str:
    """Return the number and the noun, with the ``ending`` of a plural unless the number is 1."""
    return f"{number} {noun}{'' if number == 1 else ending}"


# -- from peers ------------------------------------------------------------------------------------

POSITION_MAX = 2**63 - 1
"""The highest position of an entry in a log, and the highest count."""

INSTANT_MAX = 253_402_300_799
"""The last second of the year 9999, where calendars end."""

PAST_SECONDS_MAX = 1e10
"""Three centuries, in seconds."""

RATE_MAX = 1e12

Word = Annotated[int, Meta(ge=0)]
"""A number of 64 bits: a checksum, an id, the number of a tag."""

Count = Annotated[int, Meta(ge=0, le=POSITION_MAX)]
"""A number of things, of bytes, of terms."""

Position = Annotated[int, Meta(ge=0, le=POSITION_MAX)]
"""The position of an entry in a log."""

Number = Annotated[int, Meta(ge=1, le=POSITION_MAX)]
"""The number of an append among the appends of its client."""

Instant = Annotated[int, Meta(ge=0, le=INSTANT_MAX)]
"""A time of a clock, in seconds since 1970."""

Seconds = Annotated[float, Meta(ge=0, le=PAST_SECONDS_MAX)]
Rate = Annotated[float, Meta(ge=0, le=RATE_MAX)]
"""A number a second."""

BOUNDS_MAX = 64
"""Bounds of a histogram in a description."""


class Durations(Struct, frozen=True, array_like=True):
    """A histogram: ``counts[i]`` were at most ``bounds_s[i]`` and more than the bound before.

    The last count is of values beyond all bounds.
    """

    bounds_s: Annotated[tuple[Seconds, ...], Meta(max_length=BOUNDS_MAX)]
    counts: Annotated[tuple[Count, ...], Meta(max_length=BOUNDS_MAX + 1)]
