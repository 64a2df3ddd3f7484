"""The tables of rows, in memory and in SQLite: the same tests for both."""

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ares.bucket.bucket_state import (
    BucketState,
    counted_digest,
    load_rows,
    row_hash,
    rows_between,
)
from ares.bucket.memory_table import MemoryTable
from ares.bucket.port import Saved
from ares.bucket.row_keys import ROWS_END
from ares.store import sqlite_table
from ares.store.sqlite_table import SqliteTable


@pytest.fixture(params=["memory", "sqlite"])
def table(request, tmp_path):
    return MemoryTable() if request.param == "memory" else SqliteTable(tmp_path / "index", b"log")


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
    assert not load_rows(table, rows[:1], Saved(10, digest))
    assert (table.saved().position, table.get(b"k")) == (9, None)


# -- rows that are frozen --------------------------------------------------------------------------


def _all(rows):
    return rows_between(rows, b"", ROWS_END)


def test_frozen_rows_stay_while_the_table_goes_on(table):
    for number in range(3000):
        table.put(b"%05d" % (2 * number), b"old")
    table.save(Saved(7, 5))
    before = list(_all(table))
    frozen = table.frozen()
    assert frozen.point == Saved(7, 5)
    seen = _all(frozen)
    first = [next(seen) for _ in range(10)]
    for number in range(3000):
        table.put(b"%05d" % (2 * number + 1), b"new")
        if number % 3 == 0:
            table.delete(b"%05d" % (2 * number))
        if number % 3 == 1:
            table.put(b"%05d" % (2 * number), b"other")
        if number % 700 == 0:
            table.save(Saved(8 + number, 6))
    assert first + list(seen) == before
    assert table.saved().position > 7
    assert list(_all(table)) != before
    frozen.close()
    frozen.close()
    table.put(b"00000", b"later")
    assert table.get(b"00000") == b"later"


def test_frozen_rows_stay_when_the_table_is_cleared(table):
    table.put(b"k", b"1")
    table.save(Saved(1, 1))
    frozen = table.frozen()
    table.clear()
    table.put(b"l", b"2")
    table.save(Saved(2, 2))
    assert list(_all(frozen)) == [(b"k", b"1")]
    assert list(_all(table)) == [(b"l", b"2")]


_changes = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "delete", "scan", "save", "freeze", "clear"]),
        st.integers(0, 40),
        st.integers(0, 40),
    ),
    max_size=60,
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(_changes, st.integers(1, 7))
def test_a_table_and_its_frozen_rows_are_those_of_a_dictionary(tmp_path_factory, changes, buffered):
    path = tmp_path_factory.mktemp("index") / "index"
    with patch.object(sqlite_table, "_BUFFERED_ROWS", buffered):
        for table in (MemoryTable(), SqliteTable(path, b"log")):
            rows: dict[bytes, bytes] = {}
            frozen: list[tuple[Any, list[tuple[bytes, bytes]]]] = []
            for kind, one, other in changes:
                key = b"%02d" % one
                if kind == "put":
                    table.put(key, b"%d" % other)
                    rows[key] = b"%d" % other
                elif kind == "delete":
                    table.delete(key)
                    rows.pop(key, None)
                elif kind == "clear" and one == other:
                    table.clear()
                    rows = {}
                elif kind == "scan":
                    end = b"%02d" % (one + other)
                    there = sorted(row for row in rows.items() if key <= row[0] < end)
                    assert list(table.scan(key, end, other)) == there[:other]
                elif kind in ("save", "freeze"):
                    table.save(Saved(one, other))
                    if kind == "freeze" and len(frozen) < 3:
                        frozen.append((table.frozen(), sorted(rows.items())))
                assert table.get(key) == rows.get(key)
                for view, kept in frozen:
                    assert list(view.scan(b"", ROWS_END, 100)) == kept
                    assert list(view.scan(key, ROWS_END, 2)) == [r for r in kept if r[0] >= key][:2]
        table.close()
