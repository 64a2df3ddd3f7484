"""The tables of rows, in memory and in SQLite: the same tests for both."""

import pytest

from ares.bucket.bucket_state import BucketState, counted_digest, load_rows, row_hash
from ares.bucket.memory_table import MemoryTable
from ares.bucket.port import Saved
from ares.bucket.row_keys import ROWS_END
from ares.store.sqlite_table import SqliteTable


@pytest.fixture(params=["memory", "sqlite"])
def table(request, tmp_path):
    return MemoryTable() if request.param == "memory" else SqliteTable(tmp_path / "index")


def test_rows_are_set_replaced_and_removed(table):
    table.put(b"k", b"1")
    table.put(b"k", b"2")
    table.put(b"l", b"")
    assert (table.get(b"k"), table.get(b"l"), table.get(b"m")) == (b"2", b"", None)
    table.delete(b"k")
    table.delete(b"k")
    assert table.get(b"k") is None


def test_a_scan_is_in_the_order_of_bytes_and_bounded(table):
    keys = [b"a", b"a\0", b"a\0\xff", b"ab", b"\xc3\xa4", b"b"]
    for key in reversed(keys):
        table.put(key, key)
    assert [key for key, _ in table.scan(b"", ROWS_END, 10)] == sorted(keys)
    assert [key for key, _ in table.scan(b"a\0", b"ab", 10)] == [b"a\0", b"a\0\xff"]
    assert [key for key, _ in table.scan(b"a", ROWS_END, 2)] == [b"a", b"a\0"]
    assert list(table.scan(b"z", b"a", 10)) == []


def test_a_new_table_is_at_the_beginning_and_keeps_a_saved_point(table):
    assert table.saved() == Saved(0, 0)
    table.save(Saved(7, 2**128 - 1))
    table.save(Saved(8, 2**127 + 1))
    assert table.saved() == Saved(8, 2**127 + 1)


def test_the_digest_of_a_state_is_that_of_its_rows(table):
    state = BucketState(table)
    state.put(b"x", b"1")
    state.put(b"x", b"2")
    state.put(b"y", b"3")
    state.delete(b"y")
    state.delete(b"z")
    assert state.digest == row_hash(b"x", b"2") == counted_digest(state.table)


def test_rows_of_a_snapshot_are_loaded_and_judged_by_their_digest(table):
    rows = [(b"k", b"1"), (b"l", b"2")]
    digest = (row_hash(*rows[0]) + row_hash(*rows[1])) % 2**128
    assert load_rows(table, rows, Saved(9, digest))
    assert BucketState(table).position == 9
    assert not load_rows(MemoryTable(), rows[:1], Saved(9, digest))


# -- the file --------------------------------------------------------------------------------------


def _saved_file(path):
    table = SqliteTable(path)
    state = BucketState(table)
    state.put(b"k", b"1")
    state.save(5)
    return table, state


def test_a_file_is_opened_at_its_last_saved_point(tmp_path):
    path = tmp_path / "index"
    table, state = _saved_file(path)
    state.put(b"k", b"2")
    state.put(b"l", b"2")
    table.close()
    again = BucketState(SqliteTable(path))
    assert (again.position, again.table.get(b"k"), again.table.get(b"l")) == (5, b"1", None)
    assert again.digest == counted_digest(again.table)


@pytest.mark.parametrize("damage", ["rows", "garbage", "empty", "format", "lost"])
def test_a_file_that_is_wrong_is_begun_again(tmp_path, damage):
    path = tmp_path / "index"
    table, _ = _saved_file(path)
    if damage == "rows":
        table.put(b"k", b"other")
        table.save(table.saved())
    if damage == "format":
        table.save(table.saved())
        table._database.execute("PRAGMA user_version = 99")
        table._database.execute("COMMIT")
        table._database.execute("BEGIN")
    table.close()
    for rest in tmp_path.iterdir() if damage in ("garbage", "empty", "lost") else ():
        rest.unlink() if damage == "lost" else rest.write_bytes(b"no" * 3000 * (damage != "empty"))
    again = BucketState(SqliteTable(path))
    assert (again.position, again.digest, again.table.get(b"k")) == (0, 0, None)
    again.put(b"k", b"1")
    again.save(1)
    assert BucketState(SqliteTable(path)).position == 1
