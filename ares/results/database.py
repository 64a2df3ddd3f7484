"""The database of results: a SQLite file, its tables, and the errors of its use.

Operations of a run are found by the run's files, `file_id IN (SELECT id FROM files WHERE run_id =
?)`: the table is in the order of `file_id, line`. The view `measured` has the operations from which
figures are taken: no preparations, no final read, and a single level of each operation.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from ares.model.errors import AresError, BadInput

DATABASE_VERSION = 1
APPLICATION = int.from_bytes(b"ares", "big")
BUSY_S = 10.0
"""Seconds of waiting for another program that holds the database."""

TABLES = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS runs (
    id INTEGER PRIMARY KEY, path TEXT UNIQUE NOT NULL, name TEXT,
    -- name: the path that people know, in the published collection from raw_data on
    scenario TEXT, algorithm TEXT, servers INT, writers INT, readers INT, reconfigurers INT,
    object_size INT, k INT, m INT, topology TEXT,
    iteration INT,
    level TEXT, -- 'client' or 'user': the level that figures are taken from
    parameters TEXT, provenance TEXT); -- JSON
CREATE TABLE IF NOT EXISTS files (
    id INTEGER PRIMARY KEY, run_id INT NOT NULL, path TEXT UNIQUE NOT NULL,
    kind TEXT NOT NULL, -- 'main', 'phase1', 'read_file', 'events', 'trace', 'load'
    client TEXT, shift_s INT,
    -- shift_s: time zones that the client's clock is ahead of the clock of the run's first client
    inode INT, modified_ns INT, -- of the file when it was read to its end
    read_bytes INT NOT NULL DEFAULT 0, digest TEXT NOT NULL DEFAULT '',
    -- read_bytes: the part that was read; digest: XXH3 (128 bits) of this part
    lines INT NOT NULL DEFAULT 0, malformed INT NOT NULL DEFAULT 0,
    -- passed_over: lines that are no operations; spans beyond the bound of a run
    passed_over INT NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS files_of_run ON files (run_id);
CREATE TABLE IF NOT EXISTS operations (
    file_id INT, line INT, run_id INT, level TEXT, -- 'client' or 'user'
    op TEXT, client TEXT, ok INT,
    began_s REAL, -- seconds since 1970 by the clock of the run, which is that of its first client
    clock_s REAL, -- the begin by the client's monotonic clock: comparable within one client
    latency_s REAL, size INT, read_config_s REAL, phase1_s REAL, phase2_s REAL,
    p2_read_config_s REAL, p2_put_data_s REAL,
    error TEXT, more TEXT, -- more: JSON of all else that the line says
    PRIMARY KEY (file_id, line)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS bad_lines ( -- the first of each file
    file_id INT, line INT, why TEXT, PRIMARY KEY (file_id, line)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events (
    file_id INT, line INT, run_id INT, at_s REAL, what TEXT, server TEXT, detail TEXT,
    PRIMARY KEY (file_id, line)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spans (
    file_id INT, line INT, run_id INT, trace BLOB, id BLOB, parent BLOB, name TEXT, began_ns INT,
    ended_ns INT, kind TEXT,
    attributes TEXT, error TEXT);
CREATE INDEX IF NOT EXISTS spans_of_file ON spans (file_id);
CREATE TABLE IF NOT EXISTS load_points (
    file_id INT, number INT, run_id INT,
    -- columns as in load_points.py; curve: JSON of a list, figures: JSON of an object
    peer TEXT, workload TEXT, fault TEXT, wrong INT, clients INT, mode TEXT, offered_per_s REAL,
    read_share REAL, seconds REAL, per_s REAL,
    read_count INT, read_p50_s REAL, read_p99_s REAL, read_mean_s REAL, write_count INT,
    write_p50_s REAL, write_p99_s REAL, write_mean_s REAL,
    wait_p50_s REAL, wait_p99_s REAL, service_p50_s REAL, service_p99_s REAL, failed INT,
    missed INT, longest_pause_s REAL, kept REAL,
    curve TEXT, figures TEXT, PRIMARY KEY (file_id, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sent ( -- the last line that InfluxDB has
    target TEXT, file_id INT, line INT, PRIMARY KEY (target, file_id)) WITHOUT ROWID;
CREATE VIEW IF NOT EXISTS measured AS SELECT o.* FROM runs r
    CROSS JOIN files f ON f.run_id = r.id CROSS JOIN operations o ON o.file_id = f.id
    WHERE f.kind = 'main' AND (o.level = r.level OR o.op IN ('put', 'get', 'list'));
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {DATABASE_VERSION};
COMMIT;
"""

OF_A_FILE = ("operations", "bad_lines", "events", "spans", "load_points", "sent")
"""Tables whose rows are removed before their file is read again."""


class ResultsFailed(AresError):
    """A failure to read or write the database of results. Committed rows are kept."""


@contextmanager
def opened(path: Path, *, create: bool = False) -> Iterator[sqlite3.Connection]:
    """Yield the database at ``path``; with ``create`` for writing, and made if absent.

    Raises :class:`BadInput` for a database of another program or version, and
    :class:`ResultsFailed`.
    """
    if not create and not path.is_file():
        raise BadInput(
            f"there is no file {path}; `ares-cli results import DIR --into {path}` makes it"
        )
    with _readable_errors(path):
        mode = "rwc" if create else "rw"
        where = f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}"
        database = sqlite3.connect(where, uri=True, timeout=BUSY_S, isolation_level=None)
        try:
            if _is_empty(database, path):
                if not create:
                    raise BadInput(f"{path} is empty: no results were imported into it yet")
                database.executescript(TABLES)
            if create:
                database.execute("PRAGMA journal_mode = WAL")
                database.execute("PRAGMA synchronous = NORMAL")
                # pages of 4 KiB: pages are written twice, and forced out this often
                database.execute("PRAGMA wal_autocheckpoint = 8000")
            yield database
        finally:
            if create:
                with suppress(sqlite3.Error):
                    # another program reads; the last program to close the database does this
                    database.execute("PRAGMA journal_mode = DELETE")
            database.close()


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Commit all changes of the block, or none."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _is_empty(database: sqlite3.Connection, path: Path) -> bool:
    [(application,)], [(version,)], [(things,)] = (
        database.execute(question).fetchall()
        for question in (
            "PRAGMA application_id",
            "PRAGMA user_version",
            "SELECT count(*) FROM sqlite_schema",
        )
    )
    if not (application or version or things):
        return True
    if application != APPLICATION:
        raise BadInput(
            f"{path} is a database of another program; it was not changed. Name another file"
        )
    if version != DATABASE_VERSION:
        raise BadInput(
            f"{path} holds results in format {version}, and this release of ares knows format "
            f"{DATABASE_VERSION}; it was not changed. Use the release that wrote it, or import "
            "the logs into a new file"
        )
    return False


@contextmanager
def _readable_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into errors for a person."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        kept = "the part imported before is kept; the same command continues after it"
        if code == sqlite3.SQLITE_NOTADB:
            raise BadInput(
                f"{path} is no database of results; it was not changed. Name another file"
            ) from error
        if code == sqlite3.SQLITE_CANTOPEN:
            raise BadInput(
                f"{path} cannot be opened, or made there; nothing was imported. Name a file in a "
                "directory that may be written"
            ) from error
        if code == sqlite3.SQLITE_CORRUPT:
            raise ResultsFailed(
                f"{path} is damaged: {error}. Import the logs into a new file; they are all that "
                "it was made of"
            ) from error
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CONSTRAINT):
            raise ResultsFailed(
                f"another program is using {path}, and was waited for {BUSY_S:g} s; {kept}"
            ) from error
        if code == sqlite3.SQLITE_FULL:
            raise ResultsFailed(f"{path}: the disk is full; {kept} when there is room") from error
        raise ResultsFailed(f"{path} cannot be used: {error}; {kept}") from error
