"""The list of changes of a server (ares/replica/recent_changes.py; rule R26)."""

from itertools import count

import pytest

from ares.model.identity import NO_CALL, ClientId, ConfigurationId, ObjectName
from ares.model.messages import DELETED_LENGTH, Element, PutData
from ares.model.tag import Tag
from ares.replica import recent_changes
from ares.replica.recent_changes import RecentChanges

HERE, THERE = ConfigurationId(b"h" * 16), ConfigurationId(b"t" * 16)


def put(name: str, number: int = 1, configuration=HERE, length: int = 1) -> PutData:
    element = Element(0, length, 0, (b"x",))
    return PutData(NO_CALL, configuration, ObjectName(name), Tag(number, ClientId(1)), element)


@pytest.fixture
def changes() -> RecentChanges:
    return RecentChanges(count(1).__next__, 3)


def test_nothing_is_kept_before_a_watch_asks(changes):
    changes.note(put("a"))
    assert (changes.newest, changes.recording) == (0, False)
    assert not changes.covers(0, 0)


def test_changes_have_positions_and_are_found_by_configuration_and_prefix(changes):
    changes.ask()
    for one in (put("a1"), put("b1"), put("a2", configuration=THERE)):
        changes.note(one)
    last, found = changes.since(0, HERE, "a")
    assert (last, [listed.name for listed in found]) == (3, ["a1"])
    assert changes.since(3, HERE, "") == (3, ())
    assert changes.covers(1, 3)
    assert not changes.covers(1, 4)
    assert not changes.covers(2, 3)


def test_a_delete_is_told_as_one(changes):
    changes.ask()
    changes.note(put("a", length=DELETED_LENGTH))
    assert changes.since(0, HERE, "")[1][0].deleted


def test_the_oldest_changes_go_and_their_watchers_are_told(changes):
    changes.ask()
    for number in range(5):
        changes.ask()
        changes.note(put(f"a{number}"))
    assert [changes.covers(1, position) for position in range(6)] == [False] * 2 + [True] * 4
    assert [listed.name for listed in changes.since(2, HERE, "")[1]] == ["a2", "a3", "a4"]


def test_long_names_take_the_room_of_many(changes, monkeypatch):
    monkeypatch.setattr(recent_changes, "CHANGE_CHARACTERS_MAX", 10)
    changes.ask()
    for name in ("aaaa", "bbbb", "cccc"):
        changes.note(put(name))
    assert not changes.covers(1, 0)
    assert changes.covers(1, 1)


def test_a_list_that_no_watch_asks_for_ends_and_the_next_is_another(changes):
    changes.ask()
    for number in range(4):
        changes.note(put(f"a{number}"))
    assert not changes.recording
    assert not changes.covers(1, 3)
    changes.ask()
    assert (changes.epoch, changes.newest) == (2, 0)
    assert not changes.covers(1, 0)


def test_a_list_does_not_keep_a_server_from_its_core_for_ever(changes, monkeypatch):
    monkeypatch.setattr(recent_changes, "TURNS_UNASKED_MAX", 2)
    assert not changes.keeps_from_core()
    changes.ask()
    changes.note(put("a"))
    assert [changes.keeps_from_core() for _ in range(2)] == [True, True]
    changes.ask()
    assert changes.covers(1, 0)
    assert [changes.keeps_from_core() for _ in range(4)] == [True, True, False, False]
    assert not changes.covers(1, 1)
    changes.ask()
    assert (changes.epoch, changes.newest) == (2, 0)
