"""A simulated file of rows: a full disk loses the changes since the last save."""

from ares.bucket.memory_table import MemoryTable
from ares.bucket.port import RowTableFailed, Saved
from ares.bucket.row_keys import ROWS_END


class SimTable(MemoryTable):
    """Rows that outlast their process, as they were at the last save.

    ``full``: the disk has no room. ``failed``: a call found it full, and every later call fails.
    """

    def __init__(self) -> None:
        super().__init__()
        self.full = self.failed = False
        self._kept: list[tuple[bytes, bytes]] = []

    def put(self, key: bytes, value: bytes) -> None:
        self._check()
        super().put(key, value)

    def get(self, key: bytes) -> bytes | None:
        if self.failed:
            self._check()
        return super().get(key)

    def save(self, point: Saved) -> None:
        self._check()
        super().save(point)
        self._kept = list(self.scan(b"", ROWS_END, 10**9))

    def _check(self) -> None:
        self.failed = self.failed or self.full
        if self.failed:
            raise RowTableFailed("the simulated disk is full")

    def reopened(self) -> "SimTable":
        """Return the rows of the last save, for a new process or after a failure."""
        table = SimTable()
        for key, value in self._kept:
            table.put(key, value)
        table.save(self.saved())
        return table
