"""The changes of a bucket, told by a later state; test_index_properties.py compares with rows."""

import pytest

from ares.bucket.commands import (
    Beat,
    Conditions,
    CopyObject,
    CopySource,
    CreateBucket,
    DeleteBucket,
    DeleteObject,
    EndSession,
    ObjectBatch,
    PutObject,
    SetTags,
)
from ares.bucket.index_records import Version
from ares.bucket.watching.changes_at import WatchGap, changes_at
from tests.bucket.index_driver import IndexDriver


@pytest.fixture
def index():
    return IndexDriver(kept=10)


@pytest.fixture
def session(index):
    session = index.session()
    session.give(CreateBucket("photos"), invocation=b"create")
    return session


def told(index, position, bucket="photos"):
    return [
        (type(change.operation).__name__, change.operation.key, change.result.version)
        for change in changes_at(index.state, position, index.log[position], bucket)
    ]


def put(key="cat", bucket="photos", **fields):
    return PutObject(bucket, key, b"data", "etag", **fields)


def test_each_change_is_told_after_it_was_overwritten(index, session):
    session.give(put(), invocation=b"1")
    session.give(SetTags("photos", "cat", b"t"), invocation=b"2")
    session.give(put(), invocation=b"3")
    session.give(DeleteObject("photos", "cat"), invocation=b"4")
    session.give(DeleteObject("photos", "cat"), invocation=b"5")
    first, second = Version(2), Version(4)
    assert [told(index, position) for position in range(7)] == [
        [], [], [("PutObject", "cat", first)], [("SetTags", "cat", first)],
        [("PutObject", "cat", second)], [("DeleteObject", "cat", second)], [],
    ]  # fmt: skip
    assert told(index, 2, bucket="other") == []


def test_a_failed_condition_and_a_repeat_in_any_session_tell_nothing(index, session):
    session.give(put(), invocation=b"1")
    index.apply(index.log[-1])
    index.session().give(put(), invocation=b"1")
    session.give(put(conditions=Conditions(absent=True)), invocation=b"2")
    ended = index.session()
    ended.give(EndSession(ended.number, 0))
    ended.give(put(), invocation=b"3")
    assert [told(index, at) for at in range(2, len(index.log))] == [
        [("PutObject", "cat", Version(2))], *[[]] * (len(index.log) - 3),
    ]  # fmt: skip


def test_a_batch_is_told_as_a_whole_or_not_at_all(index, session):
    session.give(CreateBucket("other"), invocation=b"0")
    session.give(put(), invocation=b"1")
    copy = CopyObject("other", "dog", CopySource("photos", "cat"), Conditions(absent=True))
    move = ObjectBatch((copy, DeleteObject("photos", "cat")), atomic=True)
    session.give(move, invocation=b"2")
    session.give(put(), invocation=b"3")
    session.give(move, invocation=b"4")  # which fails: "dog" is there, "cat" could be deleted
    at = len(index.log) - 3
    assert told(index, at) == [("DeleteObject", "cat", Version(at - 1))]
    assert told(index, at, bucket="other") == [("CopyObject", "dog", Version(at))]
    assert told(index, at + 2) == told(index, at + 2, bucket="other") == []


def test_a_deleted_bucket_is_told(index, session):
    session.give(put(), invocation=b"1")
    session.give(DeleteBucket("photos"), invocation=b"2")  # refused
    session.give(DeleteObject("photos", "cat"), invocation=b"3")
    session.give(DeleteBucket("photos"), invocation=b"4")
    found = [changes_at(index.state, at, index.log[at], "photos") for at in (3, 5)]
    assert [[type(change.operation) for change in changes] for changes in found] == [
        [],
        [DeleteBucket],
    ]


def test_a_forgotten_result_is_a_gap(index, session):
    for number in range(30):
        session.give(put(), invocation=b"%d" % number)
        session.give(Beat(at := len(index.log), bytes(16), at, 1))
    with pytest.raises(WatchGap) as gap:
        told(index, 2)
    first = gap.value.first
    assert 2 < first < len(index.log)
    assert all(len(told(index, position)) == 1 for position in range(first, len(index.log), 2))
    with pytest.raises(WatchGap):
        told(index, first - 2)


def test_a_command_without_an_invocation_is_a_gap(index, session):
    session.give(put())
    with pytest.raises(WatchGap) as gap:
        told(index, 2)
    assert gap.value.first == 3
