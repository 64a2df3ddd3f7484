"""Listings: pages of any size are the whole, and the work follows the results."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ares.bucket.bucket_listing import (
    ListRequest,
    list_objects,
    list_parts,
    list_uploads,
    list_versions,
)
from ares.bucket.commands import (
    BeginUpload,
    CreateBucket,
    DeleteObject,
    ObjectBatch,
    PutObject,
    PutPart,
    SetBucket,
)
from ares.bucket.index_records import Versioning
from ares.bucket.memory_table import MemoryTable
from tests.bucket.index_driver import IndexDriver


def made(keys, versioning=Versioning.OFF, table=None):
    index = IndexDriver(table)
    session = index.session()
    for bucket in ("photos", "photos2"):
        session.give(CreateBucket(bucket))
    session.give(PutObject("photos2", "other", b"", "e"))
    session.give(SetBucket("photos", versioning=versioning))
    for begin in range(0, len(keys), 500):
        items = tuple(PutObject("photos", key, b"", "e") for key in keys[begin : begin + 500])
        session.give(ObjectBatch(items))
    return index, session


def pages(function, state, request):
    found = []
    for _ in range(10_000):
        page = function(state, request)
        found.append(page.results)
        assert len(page.results) <= request.limit
        if page.following is None:
            return found
        request = page.following
    raise AssertionError("no end")


def names(found):
    return [result.key for page in found for result in page]


_text = st.text(alphabet="a/\0ä\U0001f600b", min_size=1, max_size=6)


@given(
    st.lists(_text, max_size=30),
    st.text(alphabet="a/\0b", max_size=2),
    st.sampled_from(["", "/", "a", "/a", "\0"]),
    st.integers(1, 7),
)
def test_pages_have_every_key_once_in_the_order_of_bytes(keys, prefix, delimiter, limit):
    index, _ = made(keys)
    expected = set()
    for key in keys:
        if key.startswith(prefix):
            at = key.find(delimiter, len(prefix)) if delimiter else -1
            expected.add(key if at < 0 else key[: at + len(delimiter)])
    for function in (list_objects, list_versions):
        found = names(pages(function, index.state, ListRequest(
            "photos", prefix, delimiter, limit=limit
        )))  # fmt: skip
        assert found == sorted(expected, key=str.encode)


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_versions_come_newest_first_and_deletions_hide_objects(limit):
    index, session = made(["a", "b", "a", "c/d", "c/d"], Versioning.ON)
    session.give(DeleteObject("photos", "b"))
    session.give(DeleteObject("photos", "c/d"))
    request = ListRequest("photos", limit=limit)
    assert names(pages(list_objects, index.state, request)) == ["a"]
    assert names(pages(list_objects, index.state, request._replace(delimiter="/"))) == ["a"]
    found = [result for page in pages(list_versions, index.state, request) for result in page]
    assert [(each.key, each.latest, each.entry.marker) for each in found] == [
        ("a", True, False),
        ("a", False, False),
        ("b", True, True),
        ("b", False, False),
        ("c/d", True, True),
        ("c/d", False, False),
        ("c/d", False, False),
    ]
    versions = [each.entry.version for each in found if each.key == "a"]
    assert versions[0] > versions[1]


def test_a_page_goes_on_after_a_key_that_is_gone():
    index, session = made(["a", "b", "c"])
    page = list_objects(index.state, ListRequest("photos", limit=2))
    session.give(DeleteObject("photos", "b"))
    assert names([list_objects(index.state, page.following).results]) == ["c"]


@pytest.mark.parametrize("limit", [1, 2, 10])
def test_uploads_and_parts_are_listed(limit):
    index, session = made([])
    begun = [session.give(BeginUpload("photos", key)).version for key in ("b", "a", "b", "x/y")]
    for number in (3, 1, 2):
        session.give(PutPart("photos", "b", begun[0], number, session.blob(), f"p{number}"))
    request = ListRequest("photos", delimiter="/", limit=limit)
    found = [each for page in pages(list_uploads, index.state, request) for each in page]
    assert [(each.key, each.upload) for each in found] == [
        ("a", begun[1]), ("b", begun[0]), ("b", begun[2]), ("x/", None),
    ]  # fmt: skip
    assert [number for number, _ in list_parts(index.state, begun[0], 0, limit)] == (
        [1, 2, 3][:limit]
    )
    assert [number for number, _ in list_parts(index.state, begun[0], 2)] == [3]


class CountingTable(MemoryTable):
    """A table that counts its scans and their rows."""

    rows = scans = 0

    def scan(self, first, end, limit):
        found = super().scan(first, end, limit)
        self.rows += len(found)
        self.scans += 1
        return found


def test_the_work_follows_the_results():
    table = CountingTable()
    keys = [f"{folder:02}/{number:04}" for folder in range(10) for number in range(1000)]
    index, _ = made(keys, table=table)
    table.rows = 0
    page = list_objects(index.state, ListRequest("photos", delimiter="/"))
    assert (len(page.results), page.following) == (10, None)
    assert table.rows < 1000
    table.rows = 0
    list_objects(index.state, ListRequest("photos", after="05/0500", limit=100))
    assert table.rows < 1000


@pytest.mark.parametrize(
    ("keys_each", "versions", "delimiter", "scans", "rows"),
    [
        (9, 1, "/", 102, 250),  # a seek for each prefix
        (1, 1, "/", 10, 128),  # prefixes of a key each
        (9, 1, "", 12, 1024),
        (9, 2, "", 13, 2048),
    ],
    ids=["prefixes", "single keys", "keys", "versions"],
)
def test_a_page_takes_few_scans(keys_each, versions, delimiter, scans, rows):
    table = CountingTable()
    keys = [f"{folder:03}/{key}" for folder in range(100) for key in range(keys_each)]
    index, session = made(keys, Versioning.ON, table=table)
    for _ in range(1, versions):
        session.give(ObjectBatch(tuple(PutObject("photos", key, b"", "e") for key in keys)))
    table.rows = table.scans = 0
    page = list_objects(index.state, ListRequest("photos", delimiter=delimiter))
    assert len(page.results) == (100 if delimiter else len(keys))
    assert table.scans <= scans
    assert table.rows <= rows


def test_a_page_ends_among_very_many_deletions(monkeypatch):
    monkeypatch.setattr("ares.bucket.bucket_listing.PASSED_ROWS_MAX", 5)
    index, session = made([f"{number:03}" for number in range(50)], Versioning.ON)
    for number in range(49):
        session.give(DeleteObject("photos", f"{number:03}"))
    page = list_objects(index.state, ListRequest("photos"))
    assert (page.results, page.following.after) == ([], "004")
    assert names(pages(list_objects, index.state, ListRequest("photos"))) == ["049"]
