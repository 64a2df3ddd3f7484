"""A table of rows in SQLite: a cache of the index of buckets in a file.

The file is written without fsync and is never the only copy: the log and its snapshots have the
index. Rows, position and digest change in one transaction, so a killed process leaves the rows of a
whole position. A file that is lost, of another log or of another format is begun again.

After a power cut a file without fsync may be a mixture of old and new pages. The file names the
kernel's run and the inode with which the file was written. In another run, and in a copy, all rows
are counted before use: the search tree must be sound, the keys must ascend, and the rows must have
the digest. A tree with these properties finds each row.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

from blake3 import blake3
from sortedcontainers import SortedDict

from ares.bucket.bucket_state import row_hash
from ares.bucket.port import RowTableFailed, Saved
from ares.bucket.snapshots.frozen_rows import Changes, Row, changed_rows
from ares.platform.boot import boot_id
from ares.platform.file_lock import take_lock

ROW_TABLE_FORMAT = 4
"""The number of the format of keys and records, as ``user_version`` of the file."""

INDEX_FILES_MAX = 8
"""Files of an index in a directory: processes that have one each."""

_BUFFERED_ROWS = 512
"""Changed rows in memory before they are written into the transaction."""

_SEEN_MAX = 1024
"""Remembered answers of the file, of one row or none: they save a seventh of a fold."""

_SCAN = "SELECT key, value FROM rows WHERE key >= ? AND key < ? ORDER BY key LIMIT ?"
_WRONG_FILE = (
    *(sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB),
    *(sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_CORRUPTFS),
)
"""Errors of a file that is begun again. A full disk, for example, says nothing about the file."""

_SETTINGS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = OFF",
    "PRAGMA cell_size_check = ON",
    "PRAGMA cache_size = -32768",  # KiB
    "PRAGMA wal_autocheckpoint = 4096",  # pages
    "PRAGMA journal_size_limit = 67108864",
)
_SCHEMA = (
    "CREATE TABLE point (place TEXT, position INTEGER, digest BLOB, seal BLOB)",
    "CREATE TABLE rows (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    f"PRAGMA user_version = {ROW_TABLE_FORMAT}",
)


class IndexFileHeld(RowTableFailed):
    """Another process has the file of the index."""


def open_index_table(directory: Path, log: bytes) -> "SqliteTable":
    """Return a table in the first file of a directory that no other process has.

    ``log``: the identity of the log. Raises :class:`RowTableFailed`.
    """
    for number in range(INDEX_FILES_MAX):
        with suppress(IndexFileHeld):
            return SqliteTable(directory / f"index-{number}.sqlite", log)
    raise RowTableFailed(
        f"{INDEX_FILES_MAX} processes have the files of the buckets' index in {directory}; "
        "nothing is lost: end one of them, or name another directory by $ARES_CACHE"
    )


class SqliteTable:
    """Rows in a file, which this object alone has, in one thread at a time.

    Changes are written by :meth:`save` at the latest. The changes since the last save are gone
    after a crash, and after :class:`RowTableFailed`, which gives the file back.
    """

    def __init__(self, path: Path, log: bytes) -> None:
        """Open the file, or begin again. Raises :class:`RowTableFailed`."""
        self._path = path
        self._log = log
        self._changes: Changes = SortedDict()
        self._seen: dict[tuple[bytes | int, ...], list[Any]] = {}
        self._frozen: WeakSet[FrozenFile] = WeakSet()
        self._is_closed = False
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = take_lock(Path(f"{path}.lock"), make=True)
        except OSError as error:
            raise _failure(path, error) from error
        if lock is None:
            raise IndexFileHeld(f"another process has the file {path} of the buckets' index")
        self._lock = lock
        try:
            self._database = self._opened()
            self._database.execute("BEGIN")
        except BaseException as error:
            os.close(lock)
            if isinstance(error, OSError | sqlite3.Error):
                raise _failure(path, error) from error
            raise

    def _opened(self) -> sqlite3.Connection:
        """Return a connection with rows that are those of their point."""
        _make_file(self._path)
        try:
            with _closed_on_failure(_connect(self._path)) as database:
                self._check(database)
                return database
        except (sqlite3.Error, AttributeError, OverflowError, TypeError, ValueError) as error:
            if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) not in _WRONG_FILE:
                raise
        for end in ("", "-wal", "-shm"):  # the changes in a -wal without its file are nothing
            Path(f"{self._path}{end}").unlink(missing_ok=True)
        _make_file(self._path)
        with _closed_on_failure(_connect(self._path)) as database:
            for statement in ("BEGIN", *_SCHEMA):
                database.execute(statement)
            point = (_place(self._path), *self._sealed(Saved(0, 0)))
            database.execute("INSERT INTO point VALUES (?, ?, ?, ?)", point)
            database.execute("COMMIT")
            return database

    def _check(self, database: sqlite3.Connection) -> None:
        """Raise ValueError for a file of another format or log, or with rows of no position."""
        if database.execute("PRAGMA user_version").fetchone() != (ROW_TABLE_FORMAT,):
            raise ValueError("another format, or a new file")
        place, position, digest, seal = database.execute("SELECT * FROM point").fetchone()
        point = Saved(position, int.from_bytes(digest))
        if (position, digest, seal) != self._sealed(point):
            raise ValueError("another log, or a torn point")
        here = _place(self._path)
        if not here or place != here:
            if not _has_digest(database, point.digest):
                raise ValueError("not the rows of the point")
            database.execute("UPDATE point SET place = ?", (here,))

    def _sealed(self, point: Saved) -> tuple[int, bytes, bytes]:
        """Return a point as columns, the last of which binds the others to the log."""
        position, digest = point.position, point.digest.to_bytes(16)
        return position, digest, blake3(self._log + position.to_bytes(8) + digest).digest(16)

    # -- rows --------------------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        if key in self._changes:
            return self._changes[key]
        rows = self._read("SELECT value FROM rows WHERE key = ?", (key,))
        return rows[0][0] if rows else None

    def put(self, key: bytes, value: bytes) -> None:
        self._change(key, value)

    def delete(self, key: bytes) -> None:
        self._change(key, None)

    def scan(self, first: bytes, end: bytes, limit: int) -> Sequence[Row]:
        if not self._changes:
            return self._read(_SCAN, (first, end, limit))
        return changed_rows(self._scan_file, self._changes, first, end, limit)

    def _scan_file(self, first: bytes, end: bytes, limit: int) -> Sequence[Row]:
        return self._read(_SCAN, (first, end, limit))

    def _read(self, query: str, asked: tuple[bytes | int, ...]) -> list[Any]:
        """Return rows of the file; commands look at the same few rows several times."""
        rows = self._seen.get(asked)
        if rows is None:
            rows = self._execute(query, asked)
            if len(rows) <= 1:
                if len(self._seen) == _SEEN_MAX:
                    self._seen.clear()
                self._seen[asked] = rows
        return rows

    def clear(self) -> None:
        self._changes.clear()
        self._seen.clear()
        self._execute("DELETE FROM rows")

    def _change(self, key: bytes, value: bytes | None) -> None:
        self._check_open()
        self._changes[key] = value
        if len(self._changes) >= _BUFFERED_ROWS:
            self._write_changes()

    def _write_changes(self) -> None:
        """Write the changed rows into the transaction."""
        changes = self._changes.items()
        put = [(key, value) for key, value in changes if value is not None]
        deleted = [(key,) for key, value in changes if value is None]
        try:
            self._database.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?)", put)
            self._database.executemany("DELETE FROM rows WHERE key = ?", deleted)
        except sqlite3.Error as error:
            raise self._failed(error) from error
        self._changes.clear()
        self._seen.clear()

    # -- points ------------------------------------------------------------------------------------

    def save(self, point: Saved) -> None:
        self._write_changes()
        sealed = self._sealed(point)
        self._execute("UPDATE point SET position = ?, digest = ?, seal = ?", sealed)
        self._execute("COMMIT")
        self._execute("BEGIN")

    def saved(self) -> Saved:
        ((position, digest),) = self._execute("SELECT position, digest FROM point")
        return Saved(position, int.from_bytes(digest))

    def doubt(self) -> None:
        self._changes.clear()
        self._execute("ROLLBACK")
        self._execute("UPDATE point SET place = ''")
        self.close()

    def frozen(self) -> "FrozenFile":
        self._check_open()
        frozen = FrozenFile(self._path)
        self._frozen.add(frozen)
        return frozen

    # -- failures ----------------------------------------------------------------------------------

    def _execute(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        try:
            return self._database.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _check_open(self) -> None:
        if self._is_closed:
            raise _failure(self._path, "it is closed")

    def _failed(self, error: sqlite3.Error) -> RowTableFailed:
        """Give the file back at its last save: the rows of half an entry are of no use."""
        self.close()
        return _failure(self._path, error)

    def close(self) -> None:
        """Give the file back without the changes since the last save; idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._changes.clear()
        self._seen.clear()
        for frozen in self._frozen:  # a connection that outlives the lock could end another file
            frozen.close()
        with suppress(sqlite3.Error):
            self._database.rollback()
        with suppress(sqlite3.Error):
            self._database.close()
        os.close(self._lock)


class FrozenFile:
    """The rows of the last save of a file, by a connection of its own, which reads alone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._database = _connect(path)
            self._database.execute("BEGIN")
            query = "SELECT position, digest FROM point"
            position, digest = self._database.execute(query).fetchone()
        except sqlite3.Error as error:
            raise _failure(path, error) from error
        self.point = Saved(position, int.from_bytes(digest))

    def scan(self, first: bytes, end: bytes, limit: int) -> Sequence[Row]:
        try:
            return self._database.execute(_SCAN, (first, end, limit)).fetchall()
        except sqlite3.Error as error:
            raise _failure(self._path, error) from error

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self._database.close()


@contextmanager
def _closed_on_failure(database: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    try:
        yield database
    except BaseException:
        database.close()
        raise


def _make_file(path: Path) -> None:
    """Make an absent file, for its owner alone."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    for setting in _SETTINGS:
        database.execute(setting)
    return database


def _place(path: Path) -> str:
    """Name the kernel's run and the inode; empty if the run has no name."""
    found, run = path.stat(), boot_id()
    return f"{run} {found.st_dev} {found.st_ino}" if run else ""


def _has_digest(database: sqlite3.Connection, digest: int) -> bool:
    """Return whether the search tree is sound, its keys ascend, and the rows have the digest."""
    if database.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
        return False
    total, last = 0, b""
    for key, value in database.execute("SELECT key, value FROM rows ORDER BY key"):
        if key <= last:
            return False
        total += row_hash(key, value)
        last = key
    return total % 2**128 == digest


def _failure(path: Path, why: object) -> RowTableFailed:
    return RowTableFailed(
        f"the file {path} of the buckets' index failed: {why}. Nothing is lost, for the log has "
        "the index: make room if the disk is full, and try again"
    )
