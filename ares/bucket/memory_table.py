"""A table of rows in memory, for the simulator, for tests, and for processes without a file."""

from collections.abc import Sequence

from sortedcontainers import SortedDict

from ares.bucket.port import Saved
from ares.bucket.snapshots.frozen_rows import FrozenMemory, scanned_rows


class MemoryTable:
    """Rows in a sorted dictionary. A copy of the table is a process's whole knowledge."""

    def __init__(self) -> None:
        self._rows: SortedDict[bytes, bytes] = SortedDict()
        self._saved = Saved(0, 0)
        self._frozen: list[FrozenMemory] = []

    def get(self, key: bytes) -> bytes | None:
        return self._rows.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        for frozen in self._frozen:
            frozen.keep(key)
        self._rows[key] = value

    def delete(self, key: bytes) -> None:
        for frozen in self._frozen:
            frozen.keep(key)
        self._rows.pop(key, None)

    def scan(self, first: bytes, end: bytes, limit: int) -> Sequence[tuple[bytes, bytes]]:
        return scanned_rows(self._rows, first, end, limit)

    def clear(self) -> None:
        self._rows = SortedDict()
        self._frozen = []  # they have the former rows for themselves

    def save(self, point: Saved) -> None:
        self._saved = point

    def saved(self) -> Saved:
        return self._saved

    def doubt(self) -> None:
        """Do nothing: these rows are not opened again."""

    def close(self) -> None:
        """Do nothing: the memory is freed with the table."""

    def frozen(self) -> FrozenMemory:
        frozen = FrozenMemory(self._rows, self._saved, self._thaw)
        self._frozen.append(frozen)
        return frozen

    def _thaw(self, frozen: FrozenMemory) -> None:
        if frozen in self._frozen:
            self._frozen.remove(frozen)
