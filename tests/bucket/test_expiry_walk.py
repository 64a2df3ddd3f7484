"""The walk that finds expired versions and uploads, beside changes of rivals."""

import pytest

from ares.bucket.command_results import CommandOutcome
from ares.bucket.commands import (
    AbortUpload,
    BeginUpload,
    CreateBucket,
    DeleteObject,
    PutObject,
    SetBucket,
    SetTags,
)
from ares.bucket.index_records import Version, Versioning
from ares.bucket.lifecycle import expiry_walk
from ares.bucket.lifecycle.expiry_walk import ExpiryWalk
from ares.bucket.lifecycle.lifecycle_rules import DAY_MS, LifecycleRule, encode_lifecycle
from ares.bucket.lifecycle.object_tags import encode_tags
from tests.bucket.index_driver import IndexDriver

LATE_MS = 100 * DAY_MS


@pytest.fixture
def index():
    return IndexDriver()


@pytest.fixture
def session(index):
    session = index.session()
    session.give(CreateBucket("photos"))
    session.give(SetBucket("photos", versioning=Versioning.ON))
    return session


def put(session, key, day, data=b"1"):
    return session.give(PutObject("photos", key, data, "e"), ms=day * DAY_MS).version


def delete(session, key, day):
    return session.give(DeleteObject("photos", key), ms=day * DAY_MS).version


def found(index, *rules, now_ms=LATE_MS):
    """Return the changes of a whole walk, by pages."""
    encode_lifecycle(rules)
    walk, changes = ExpiryWalk("photos", rules), []
    while not walk.has_ended:
        changes += walk.take(index.state, now_ms)
    assert walk.take(index.state, now_ms) == []
    return changes


def expire(index, session, *rules, now_ms=LATE_MS):
    return [session.give(change).outcome for change in found(index, *rules, now_ms=now_ms)]


def versions(index):
    walk = expiry_walk.list_versions(index.state, expiry_walk.ListRequest("photos"))
    return [(each.key, each.entry.version, each.entry.marker) for each in walk.results]


def test_a_newest_version_expires_and_stays_below_a_deletion(index, session):
    old, new = put(session, "a", 1), put(session, "b", 10)
    rule = LifecycleRule(expire_days=3)
    assert expire(index, session, rule, now_ms=4 * DAY_MS - 1) == []
    assert expire(index, session, rule, now_ms=4 * DAY_MS) == [CommandOutcome.DONE]
    assert [each[1:] for each in versions(index)[1:]] == [(old, False), (new, False)]
    assert index.entry("a").marker
    assert expire(index, session, rule, now_ms=4 * DAY_MS) == []


def test_a_version_of_a_rival_is_never_deleted(index, session):
    put(session, "a", 1)
    (change,) = found(index, LifecycleRule(expire_days=3))
    rival = put(session, "a", 1)
    assert session.give(change).outcome is CommandOutcome.CONDITION_FAILED
    assert index.entry("a").version == rival


def test_an_older_version_that_became_the_newest_is_not_removed(index, session):
    old = put(session, "a", 1)
    mark = delete(session, "a", 2)
    (change,) = found(index, LifecycleRule(noncurrent_days=1))
    assert change == DeleteObject("photos", "a", old, superseded=True)
    session.give(DeleteObject("photos", "a", mark))  # which brings the object back
    assert session.give(change).outcome is CommandOutcome.CONDITION_FAILED
    assert index.entry("a").version == old


@pytest.mark.parametrize("rows", [1, 2, 250])
def test_older_versions_go_except_for_the_kept_and_the_young(index, session, monkeypatch, rows):
    monkeypatch.setattr(expiry_walk, "EXPIRY_ROWS_MAX", rows)
    made = [put(session, "a", day) for day in range(1, 7)]
    newest = put(session, "b", 1)
    rule = LifecycleRule(noncurrent_days=2, noncurrent_kept=1)
    now_ms = 7 * DAY_MS
    assert set(expire(index, session, rule, now_ms=now_ms)) == {CommandOutcome.DONE}
    # version 4 is older since day 5, hence to day 7; version 5 since day 6, and kept
    assert [each[1] for each in versions(index)] == [made[5], made[4], newest]


@pytest.mark.parametrize("rows", [1, 250])
@pytest.mark.parametrize(
    ("rule", "gone"),
    [
        (LifecycleRule(expire_markers=True), True),
        (LifecycleRule(expire_days=3), True),
        (LifecycleRule(expire_days=99), False),
        (LifecycleRule(noncurrent_days=1), False),
        (LifecycleRule(prefix="other", expire_markers=True), False),
    ],
)
def test_a_deletion_goes_when_no_version_is_below(index, session, monkeypatch, rows, rule, gone):
    monkeypatch.setattr(expiry_walk, "EXPIRY_ROWS_MAX", rows)
    for key in ("a", "b"):
        version = put(session, key, 1)
        delete(session, key, 2)
    session.give(DeleteObject("photos", "b", version))
    kept = [each for each in versions(index) if each[0] == "a"]
    for change in found(index, rule):
        if change.key == "b":
            assert session.give(change).done
    left = [each for each in versions(index) if each[0] == "a"]
    assert left == kept
    assert (index.entry("b") is None) is gone


def test_uploads_end_after_their_days(index, session):
    uploads = [
        session.give(BeginUpload("photos", key), ms=day * DAY_MS).version
        for key, day in (("logs/a", 1), ("logs/b", 5), ("c", 1))
    ]
    rule = LifecycleRule(prefix="logs/", abort_days=2)
    assert found(index, rule, now_ms=6 * DAY_MS) == [AbortUpload("photos", "logs/a", uploads[0])]
    assert expire(index, session, rule) == [CommandOutcome.DONE] * 2
    assert index.state.bucket("photos").uploads == 1


def test_rules_out_of_force_find_nothing_and_many_rules_make_short_pages(index, session):
    for key in range(50):
        put(session, f"{key:02}", 1)
    assert found(index, LifecycleRule(enabled=False, expire_days=1)) == []
    assert found(index) == []
    rules = [LifecycleRule(prefix=f"{number}x", expire_days=1) for number in range(999)]
    walk = ExpiryWalk("photos", [*rules, LifecycleRule(expire_on_ms=LATE_MS)])
    assert len(walk.take(index.state, LATE_MS)) == expiry_walk.EXPIRY_JUDGEMENTS_MAX // 1000
    assert len(found(index, *rules, LifecycleRule(expire_on_ms=LATE_MS))) == 50


def test_a_version_with_a_newer_one_alone_is_superseded(index, session):
    first, second = put(session, "a", 1), put(session, "a", 2)
    for version, outcome in (
        (second, CommandOutcome.CONDITION_FAILED),
        (first, CommandOutcome.DONE),
        (Version(1), CommandOutcome.DONE),
    ):
        given = DeleteObject("photos", "a", version, superseded=True)
        assert session.give(given).outcome is outcome
    assert index.entry("a").version == second


def test_a_version_whose_tags_changed_meanwhile_stays(index, session):
    tags = encode_tags({"kept": "no"})
    older, newest = (
        session.give(PutObject("photos", "k", b"1", "e", tags=tags)).version for _ in range(2)
    )
    rule = LifecycleRule(tags=(("kept", "no"),), expire_days=1, noncurrent_days=1)
    changes = found(index, rule)
    for version in (older, newest):
        session.give(SetTags("photos", "k", b"", version))
    outcomes = [session.give(change).outcome for change in changes]
    assert outcomes == [CommandOutcome.CONDITION_FAILED] * 2
    assert found(index, rule) == []
    for version in (older, newest):
        session.give(SetTags("photos", "k", tags, version))
    assert expire(index, session, rule) == [CommandOutcome.DONE] * 2
