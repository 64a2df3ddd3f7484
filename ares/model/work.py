"""The work that requests make, in one unit for all of it, so that a turn can be bounded (ares/net/batching.py).

The unit is one byte that is looked at, which takes about a nanosecond. Other work counts as many bytes as can be looked at in the same time.
"""

from collections.abc import Sequence

REQUEST_WORK = 8 * 1024
"""Work of a small request and its reply, and of a batch that cannot be read."""

ENTRY_BYTES_MIN = 64
"""Least that an entry of a log counts, in work and in bounds on memory."""

LISTED_WORK = 1024
"""Work of one object in a listing, or of one tag, part or place in an answer that has many."""

CONFIGURATION_WORK = 64 * 1024
"""Work of a configuration that a message brings, or that a description tells of."""


def entries_bulk(entries: Sequence[bytes]) -> int:
    """Return what ``entries`` of a log count: their bytes, and ENTRY_BYTES_MIN for each."""
    if len(entries) == 1:
        return ENTRY_BYTES_MIN + len(entries[0])
    return ENTRY_BYTES_MIN * len(entries) + sum(map(len, entries))


class Meter:
    """Account of the work that a process does. Whoever does some adds it to ``spent``; a listener begins it anew for each round of turns."""

    __slots__ = ("spent",)

    def __init__(self) -> None:
        self.spent = 0
