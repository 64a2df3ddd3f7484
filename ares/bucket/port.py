"""The index's requirements of its table of rows.

Both implementations, in memory and in SQLite, pass the same tests (tests/bucket/test_row_table.py).
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ares.model.errors import AresError


class RowTableFailed(AresError):
    """The table lost its changes since the last save. Nothing else is lost: the log has them."""


class Saved(NamedTuple):
    """The point of the log up to which a table has the rows, and the digest of all rows."""

    position: int
    digest: int


class FrozenRows(Protocol):
    """The rows of a saved point: they stay while the table goes on, until :meth:`close`.

    A call may raise :class:`RowTableFailed`.
    """

    point: Saved

    def scan(self, first: bytes, end: bytes, limit: int) -> Sequence[tuple[bytes, bytes]]:
        """Return at most ``limit`` rows with keys in [first, end), in order."""

    def close(self) -> None:
        """Free the memory or the file; idempotent."""


class RowTable(Protocol):
    """Rows of bytes in the order of their keys.

    Each call may raise :class:`RowTableFailed`; from then on every call does.
    """

    def get(self, key: bytes) -> bytes | None:
        """Return the value of the key, or None."""

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of the key."""

    def delete(self, key: bytes) -> None:
        """Remove the key; nothing happens if it is absent."""

    def scan(self, first: bytes, end: bytes, limit: int) -> Sequence[tuple[bytes, bytes]]:
        """Return at most ``limit`` rows with keys in [first, end), in order."""

    def clear(self) -> None:
        """Remove all rows."""

    def save(self, point: Saved) -> None:
        """Keep the rows as they are now, as those of ``point``."""

    def saved(self) -> Saved:
        """Return the point of the rows at the opening of the table; position 0 if new."""

    def doubt(self) -> None:
        """Close the table, and have all its rows counted when it is opened again."""

    def close(self) -> None:
        """Give up the changes since the last save, and free the file; idempotent."""

    def frozen(self) -> FrozenRows:
        """Return the rows of the last save. No row may have changed since."""
