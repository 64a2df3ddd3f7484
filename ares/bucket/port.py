"""The index's requirements of its table of rows.

Both implementations, in memory and in SQLite, pass the same tests (tests/bucket/test_row_table.py).
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Saved(NamedTuple):
    """The point of the log up to which a table has the rows, and the digest of all rows."""

    position: int
    digest: int


class RowTable(Protocol):
    """Rows of bytes in the order of their keys."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of the key, or None."""

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of the key."""

    def delete(self, key: bytes) -> None:
        """Remove the key; nothing happens if it is absent."""

    def scan(self, first: bytes, end: bytes, limit: int) -> Sequence[tuple[bytes, bytes]]:
        """Return at most ``limit`` rows with keys in [first, end), in order."""

    def save(self, point: Saved) -> None:
        """Keep the rows as they are now, as those of ``point``."""

    def saved(self) -> Saved:
        """Return the point of the rows at the opening of the table; position 0 if new."""
