"""The work of requests in a common unit, which bounds a turn (ares/net/batching.py).

The unit is a byte looked at, about a nanosecond. Other work counts as many bytes as can be looked
at in the same time.
"""

from collections.abc import Sequence

TURN_WORK = 4 * 1024 * 1024
"""Work after which a client's turn ends; its replies are sent afterwards."""

REQUEST_WORK = 8 * 1024
"""Work of a small request and its reply, and of an unreadable batch."""

ENTRY_BYTES_MIN = 64
"""Least work of an entry of a log, and least bytes in bounds on memory."""

LISTED_WORK = 1024
"""Work of an object in a listing, or of a tag, part or place in an answer with many."""

CONFIGURATION_WORK = 64 * 1024
"""Work of a configuration in a message, or in a description."""


def entries_bulk(entries: Sequence[bytes]) -> int:
    """Return the count of ``entries`` of a log: their bytes, and ENTRY_BYTES_MIN for each."""
    if len(entries) == 1:
        return ENTRY_BYTES_MIN + len(entries[0])
    return ENTRY_BYTES_MIN * len(entries) + sum(map(len, entries))


class Meter:
    """Account of the work of a process.

    Each worker adds its work to ``spent``; a listener sets ``spent`` to 0 for each round of turns.
    """

    __slots__ = ("spent",)

    def __init__(self) -> None:
        self.spent = 0
