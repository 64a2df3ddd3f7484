"""A table of rows in memory, for the simulator and for tests."""

from collections.abc import Sequence
from itertools import islice

from sortedcontainers import SortedDict

from ares.bucket.port import Saved


class MemoryTable:
    """Rows in a sorted dictionary. A copy of the table is a process's whole knowledge."""

    def __init__(self) -> None:
        self._rows: SortedDict[bytes, bytes] = SortedDict()
        self._saved = Saved(0, 0)

    def get(self, key: bytes) -> bytes | None:
        return self._rows.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self._rows[key] = value

    def delete(self, key: bytes) -> None:
        self._rows.pop(key, None)

    def scan(self, first: bytes, end: bytes, limit: int) -> Sequence[tuple[bytes, bytes]]:
        keys = self._rows.irange(first, end, inclusive=(True, False))
        return [(key, self._rows[key]) for key in islice(keys, limit)]

    def save(self, point: Saved) -> None:
        self._saved = point

    def saved(self) -> Saved:
        return self._saved
