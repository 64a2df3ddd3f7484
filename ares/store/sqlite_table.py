"""A table of rows in SQLite: a cache of the index of buckets in a file.

The file is written without fsync and is never the only copy: the log and its snapshots have the
index. A file that is lost, damaged, or has other rows than its digest says is begun again.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ares.bucket.bucket_state import counted_digest
from ares.bucket.port import Saved

ROW_TABLE_FORMAT = 1
"""The number of the format of keys and records, as ``user_version`` of the file."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS point (position INTEGER NOT NULL, digest BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS rows (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""


class SqliteTable:
    """Rows in a file. The changes since the last :meth:`save` are gone after a crash."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._open()
            whole = counted_digest(self) == self.saved().digest
        except (sqlite3.DatabaseError, ValueError):
            whole = False
        if not whole:
            self._begin_again()

    def _open(self) -> None:
        self._database = sqlite3.connect(self._path, isolation_level=None)
        database = self._database
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = OFF")
        (found,) = database.execute("PRAGMA user_version").fetchone()
        if found not in (0, ROW_TABLE_FORMAT):
            raise ValueError(f"rows of format {found}")
        database.executescript(_SCHEMA)
        database.execute(f"PRAGMA user_version = {ROW_TABLE_FORMAT}")
        database.execute("BEGIN")

    def _begin_again(self) -> None:
        with suppress(AttributeError, sqlite3.DatabaseError):
            self._database.close()
        for end in ("", "-wal", "-shm"):
            Path(f"{self._path}{end}").unlink(missing_ok=True)
        self._open()

    def get(self, key: bytes) -> bytes | None:
        row = self._database.execute("SELECT value FROM rows WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def put(self, key: bytes, value: bytes) -> None:
        self._database.execute("INSERT OR REPLACE INTO rows VALUES (?, ?)", (key, value))

    def delete(self, key: bytes) -> None:
        self._database.execute("DELETE FROM rows WHERE key = ?", (key,))

    def scan(self, first: bytes, end: bytes, limit: int) -> Sequence[tuple[bytes, bytes]]:
        asked = "SELECT key, value FROM rows WHERE key >= ? AND key < ? ORDER BY key LIMIT ?"
        return self._database.execute(asked, (first, end, limit)).fetchall()

    def save(self, point: Saved) -> None:
        self._database.execute("DELETE FROM point")
        values = (point.position, point.digest.to_bytes(16))
        self._database.execute("INSERT INTO point VALUES (?, ?)", values)
        self._database.execute("COMMIT")
        self._database.execute("BEGIN")

    def saved(self) -> Saved:
        row = self._database.execute("SELECT position, digest FROM point").fetchone()
        return Saved(0, 0) if row is None else Saved(row[0], int.from_bytes(row[1]))

    def close(self) -> None:
        """Close the file without the changes since the last save."""
        self._database.execute("ROLLBACK")
        self._database.close()
