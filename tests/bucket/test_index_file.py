"""The file of the index: the log, the process, and the positions at which files open again."""

import random
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from ares.bucket.bucket_state import BucketState, counted_digest, rows_between
from ares.bucket.port import RowTableFailed, Saved
from ares.bucket.row_keys import ROWS_END
from ares.platform.interpreter import python
from ares.store import sqlite_table
from ares.store.sqlite_table import (
    INDEX_FILES_MAX,
    IndexFileHeld,
    SqliteTable,
    open_index_table,
)

LOG = b"a log"
PAGE_BYTES = 4096


def _saved_file(path):
    table = SqliteTable(path, LOG)
    state = BucketState(table)
    state.put(b"k", b"1")
    table.save(Saved(5, state.digest))
    return table, state


def _another_run(monkeypatch, name="another run of the kernel"):
    monkeypatch.setattr(sqlite_table, "boot_id", lambda: name)


def test_a_file_is_opened_at_its_last_saved_point(tmp_path):
    table, state = _saved_file(tmp_path / "index")
    state.put(b"k", b"2")
    state.put(b"l", b"2")
    table.close()
    table.close()
    again = BucketState(SqliteTable(tmp_path / "index", LOG))
    assert (again.position, again.table.get(b"k"), again.table.get(b"l")) == (5, b"1", None)
    assert again.digest == counted_digest(again.table)


@pytest.mark.parametrize("damage", ["rows", "point", "garbage", "empty", "format", "lost", "log"])
def test_a_file_that_is_wrong_is_begun_again(tmp_path, monkeypatch, damage):
    path = tmp_path / "index"
    table, _ = _saved_file(path)
    if damage == "rows":
        table.put(b"k", b"other")
        table.save(table.saved())
    if damage == "point":
        table._execute("UPDATE point SET position = 6")
        table._execute("COMMIT")
    if damage == "format":
        table._execute("COMMIT")
        table._execute("PRAGMA user_version = 99")
    table.close()
    for rest in tmp_path.iterdir() if damage in ("garbage", "empty", "lost") else ():
        rest.unlink() if damage == "lost" else rest.write_bytes(b"no" * 3000 * (damage != "empty"))
    if damage == "rows":
        _another_run(monkeypatch)
    again = BucketState(SqliteTable(path, b"another log" if damage == "log" else LOG))
    assert (again.position, again.digest, again.table.get(b"k")) == (0, 0, None)
    again.put(b"k", b"1")
    again.table.save(Saved(1, again.digest))
    assert again.table.saved() == Saved(1, again.digest)


def test_rows_are_counted_once_in_a_run_of_the_kernel(tmp_path, monkeypatch):
    path, counts = tmp_path / "index", []
    has_digest = sqlite_table._has_digest
    monkeypatch.setattr(
        sqlite_table, "_has_digest", lambda *asked: counts.append(asked) or has_digest(*asked)
    )
    _saved_file(path)[0].close()
    for run, counted in [("one", 1), ("one", 1), ("two", 2), ("", 3), ("", 4)]:
        _another_run(monkeypatch, run)
        table = SqliteTable(path, LOG)
        assert table.saved().position == 5
        assert len(counts) == counted
        table.close()


def test_a_copy_of_a_file_is_counted(tmp_path, monkeypatch):
    path, copy = tmp_path / "index", tmp_path / "copy"
    table, _ = _saved_file(path)
    table.put(b"k", b"other")
    table.save(table.saved())
    table.close()
    copy.write_bytes(path.read_bytes())
    assert SqliteTable(path, LOG).saved().position == 5
    assert SqliteTable(copy, LOG).saved().position == 0


@pytest.mark.parametrize("seed", range(12))
def test_a_mixture_of_old_and_new_pages_is_noticed(tmp_path, monkeypatch, seed):
    """After a power cut some pages of a file without fsync are old."""
    rng = random.Random(seed)
    path = tmp_path / "index"
    pages: list[bytes] = []
    for run in range(3):
        state = BucketState(SqliteTable(path, LOG))
        for _ in range(400):
            state.put(b"%05d" % rng.randrange(3000), rng.randbytes(rng.randrange(200)))
            state.delete(b"%05d" % rng.randrange(3000))
        state.table.save(Saved(100 + run, state.digest))
        state.table.close()
        pages.append(path.read_bytes())
    old, new = pages[-2:]
    mixed = bytearray(new)
    for _ in range(rng.choice([1, 1, 3, 20])):
        at = rng.randrange(len(old) // PAGE_BYTES) * PAGE_BYTES
        mixed[at : at + PAGE_BYTES] = old[at : at + PAGE_BYTES]
    path.write_bytes(mixed[: rng.choice([len(new), len(new), len(new) - PAGE_BYTES])])
    _another_run(monkeypatch)
    table = SqliteTable(path, LOG)
    assert table.saved().position == (102 if mixed == new else 0)
    rows = dict(rows_between(table, b"", ROWS_END))
    assert counted_digest(table) == table.saved().digest
    assert all(table.get(key) == value for key, value in rows.items())


# -- one process -----------------------------------------------------------------------------------


def test_each_process_has_a_file_of_its_own(tmp_path):
    first = SqliteTable(tmp_path / "index", LOG)
    with pytest.raises(IndexFileHeld):
        SqliteTable(tmp_path / "index", LOG)
    first.close()
    tables = [open_index_table(tmp_path / "x" / "y", LOG) for _ in range(INDEX_FILES_MAX)]
    tables[3].put(b"k", b"1")
    tables[3].save(Saved(9, 1))
    with pytest.raises(RowTableFailed, match="end one of them"):
        open_index_table(tmp_path / "x" / "y", LOG)
    tables[3].close()
    assert open_index_table(tmp_path / "x" / "y", LOG).saved() == Saved(9, 1)
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "x" / "y").iterdir()}
    assert modes == {0o600}


_SAVING_PROCESS = """
import sys
from pathlib import Path
from ares.bucket.bucket_state import BucketState
from ares.bucket.port import Saved
from ares.store.sqlite_table import SqliteTable

state = BucketState(SqliteTable(Path(sys.argv[1]), b"a log"))
position = state.position
print("begun", flush=True)
while True:
    for number in range(700):
        key = b"%06d" % ((position * 7919 + number) % 5000)
        state.delete(key) if number % 5 == 0 else state.put(key, b"%d" % position * 20)
    position += 1
    state.table.save(Saved(position, state.digest))
    print(position, flush=True)
"""


def test_a_killed_process_leaves_a_whole_position(tmp_path, monkeypatch):
    path, before = tmp_path / "index", 0
    for life in range(5):
        process = subprocess.Popen(
            [*python("-c", _SAVING_PROCESS), path], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        saved = [int(process.stdout.readline()) for _ in range(1 + 3 * life)][-1]
        killer = threading.Timer(random.random() / 20, process.send_signal, [signal.SIGKILL])
        killer.start()
        killer.join()
        process.wait()
        process.stdout.close()
        assert process.returncode == -signal.SIGKILL
        table = SqliteTable(path, LOG)  # it has no reason to count
        assert table.saved().position >= saved > before
        before = table.saved().position
        assert counted_digest(table) == table.saved().digest
        table.close()
    _another_run(monkeypatch)
    assert SqliteTable(path, LOG).saved().position == before


# -- full disks ------------------------------------------------------------------------------------


def test_a_full_disk_leaves_the_last_saved_point(tmp_path):
    path = tmp_path / "index"
    table, state = _saved_file(path)
    (pages,) = table._execute("PRAGMA page_count")[0]
    table._execute(f"PRAGMA max_page_count = {pages + 20}")

    def fill():
        for number in range(5000):
            state.put(b"%d" % number, bytes(100))

    with pytest.raises(RowTableFailed, match=r"full.*Nothing is lost"):
        fill()
    for call in (
        lambda: table.get(b"k"),
        lambda: table.put(b"k", b"2"),
        lambda: table.delete(b"k"),
        lambda: table.scan(b"", ROWS_END, 1),
        table.clear,
        table.saved,
        table.frozen,
        lambda: table.save(Saved(6, 1)),
    ):
        with pytest.raises(RowTableFailed):
            call()
    again = BucketState(SqliteTable(path, LOG))
    assert (again.position, again.digest) == (5, counted_digest(again.table))
    assert list(rows_between(again.table, b"", ROWS_END)) == [(b"k", b"1")]


def test_a_disk_that_refuses_keeps_the_file(tmp_path, monkeypatch):
    """Keep the file after an error that is not about the file."""
    path = tmp_path / "index"
    _saved_file(path)[0].close()
    _another_run(monkeypatch)
    settings = sqlite_table._SETTINGS
    monkeypatch.setattr(sqlite_table, "_SETTINGS", (*settings, "PRAGMA query_only = ON"))
    with pytest.raises(RowTableFailed):
        SqliteTable(path, LOG)
    monkeypatch.setattr(sqlite_table, "_SETTINGS", settings)
    assert SqliteTable(path, LOG).saved().position == 5


def test_a_directory_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RowTableFailed, match="Nothing is lost"):
        open_index_table(tmp_path / "file" / "index", LOG)


def test_frozen_rows_end_with_the_table(tmp_path):
    table, _ = _saved_file(Path(tmp_path / "index"))
    frozen = table.frozen()
    table.close()
    with pytest.raises(RowTableFailed):
        frozen.scan(b"", ROWS_END, 1)


def test_a_doubted_file_is_counted_and_loses_only_unsaved_changes(tmp_path, monkeypatch):
    counts = []
    has_digest = sqlite_table._has_digest
    monkeypatch.setattr(
        sqlite_table, "_has_digest", lambda *asked: counts.append(asked) or has_digest(*asked)
    )
    table, state = _saved_file(tmp_path / "index")
    for number in range(2000):
        state.put(b"%d" % number, b"not saved")
    table.doubt()
    table = SqliteTable(tmp_path / "index", LOG)
    assert len(counts) == 1
    assert list(rows_between(table, b"", ROWS_END)) == [(b"k", b"1")]
    table.put(b"k", b"rotted")
    table.save(table.saved())
    table.doubt()
    assert SqliteTable(tmp_path / "index", LOG).saved() == Saved(0, 0)
