"""Rows with changes laid over them: newer values over a file, or older values over a live table."""

from collections.abc import Callable, Sequence
from itertools import islice

from sortedcontainers import SortedDict

from ares.bucket.port import Saved

Row = tuple[bytes, bytes]
Changes = SortedDict[bytes, bytes | None]
"""The values of changed keys; None for an absent key."""


def changed_rows(
    scan: Callable[[bytes, bytes, int], Sequence[Row]],
    changes: Changes,
    first: bytes,
    end: bytes,
    limit: int,
) -> Sequence[Row]:
    """Return at most ``limit`` rows with keys in [first, end), in order: of ``scan``, changed."""
    if not changes or changes.bisect_left(first) == changes.bisect_left(end):
        return scan(first, end, limit)
    found: list[Row] = []
    while len(found) < limit:
        rows = scan(first, end, limit)
        is_last = len(rows) < limit
        stop = end if is_last else rows[-1][0] + b"\0"
        keys = list(changes.irange(first, stop, inclusive=(True, False)))
        if keys:
            merged = dict(rows)
            for key in keys:
                value = changes[key]
                if value is None:
                    merged.pop(key, None)
                else:
                    merged[key] = value
            rows = sorted(merged.items())
        found += rows
        if is_last:
            break
        first = stop
    return found[:limit]


def scanned_rows(
    rows: SortedDict[bytes, bytes], first: bytes, end: bytes, limit: int
) -> Sequence[Row]:
    """Return at most ``limit`` rows of a sorted dictionary with keys in [first, end)."""
    keys = rows.irange(first, end, inclusive=(True, False))
    return [(key, rows[key]) for key in islice(keys, limit)]


class FrozenMemory:
    """The rows of a table in memory at ``point``. ``changes``: old values of keys changed since."""

    def __init__(
        self, rows: SortedDict[bytes, bytes], point: Saved, forget: Callable[["FrozenMemory"], None]
    ) -> None:
        self.point = point
        self._rows = rows
        self._changes: Changes = SortedDict()
        self._forget = forget

    def keep(self, key: bytes) -> None:
        """Keep the value of a key that changes next."""
        if key not in self._changes:
            self._changes[key] = self._rows.get(key)

    def scan(self, first: bytes, end: bytes, limit: int) -> Sequence[Row]:
        def live(start: bytes, stop: bytes, most: int) -> Sequence[Row]:
            return scanned_rows(self._rows, start, stop, most)

        return changed_rows(live, self._changes, first, end, limit)

    def close(self) -> None:
        self._forget(self)
