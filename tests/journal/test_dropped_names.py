"""Dropped names in a journal (ares/replica/dropped_names.py; rule R25)."""

from random import Random

import pytest

from ares.model.configuration import Configuration, Status, Successor
from ares.model.messages import Ack, CollectConfig, Drop, GetData, Introduce, ListObjects
from ares.model.units import KIB
from ares.replica.compaction import choose
from ares.replica.facts import NamesDropped

from .journal_node import INITIAL, MEMBERS, Node, log_journal, put
from .test_durable_server import Waiting

BLOBS = Configuration.abd(MEMBERS[:3], write_once=True).at("blobs", 0, INITIAL.id)
NEXT_BLOBS = Configuration.abd(MEMBERS[1:4], write_once=True).at("blobs", 1, INITIAL.id)
SMALL, LARGE = b"d" * 300, b"D" * 9 * KIB


def create(name, data=SMALL):
    return put(name, 2, data, BLOBS, writer=0)


def drop(*names):
    return Drop(9, BLOBS.id, names)


def again(tmp_path):
    return Node(log_journal(tmp_path / "j"))


def node_with(tmp_path, *requests):
    node = again(tmp_path)
    for request in (Introduce(1, BLOBS), *requests):
        node.handle(request)
        node.commit()
    return node


def names(node):
    return list(node.replica.hosted[BLOBS.id].objects.names(None, 10_000))


def fill_place(node, name="filler"):
    """Write until the current place takes no more facts; return that place."""
    before = set(node.journal.places())
    number = 0
    while not set(node.journal.places()) - before:
        node.handle(create(f"{name} {number}", LARGE))
        node.commit()
        number += 1
    [place] = set(node.journal.places()) - before
    return place


def live(node):
    return {place: size for place, size in node.replica.account.live.items() if size}


def drops_of(node, place):
    facts = [
        node.replica.surviving(fact, place)
        for fact in node.journal.read(place)
        if isinstance(fact, NamesDropped)
    ]
    return [fact for fact in facts if fact is not None]


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["small", "large"])
def test_dropped_names_stay_dropped_after_a_start(tmp_path, data):
    node = node_with(tmp_path, create("a", data), create("b", data), create("c", data))
    node.handle(drop("a", "c", "never"))
    node.commit()
    assert names(node) == names(again(tmp_path)) == ["b"]
    assert node.handle(drop("a")) == Ack(9, None)
    assert node.replica.drop_room(drop("a", "never")) == 0, "a repeated drop leaves no fact"


def test_the_record_of_a_drop_is_needed_as_long_as_the_place_of_its_name(tmp_path):
    node = node_with(tmp_path, create("a"))
    first = fill_place(node, "first")
    node.handle(drop("a"))
    second = fill_place(node, "second")
    [fact] = drops_of(node, second)
    assert (fact.names, fact.places) == (("a",), (first,))
    assert node.compact(second), "the record is copied"
    assert "a" not in names(again(tmp_path))
    third = fill_place(node, "third")
    assert len(drops_of(node, third)) == 1
    assert node.compact(first)
    assert drops_of(node, third) == [], "the name's own record is gone"
    assert node.compact(third)
    assert "a" not in names(again(tmp_path))
    assert live(node) == live(again(tmp_path))


def test_the_record_of_a_drop_goes_with_the_record_of_its_name(tmp_path):
    node = node_with(tmp_path, create("a"), drop("a"))
    place = fill_place(node)
    before = live(node)[place]
    assert drops_of(node, place) == []
    assert node.compact(place)
    assert (names(again(tmp_path)), before) == (names(node), before)
    assert "a" not in names(node)


def test_a_late_put_after_a_drop_is_litter_that_stays_litter(tmp_path):
    """The name is listed until the next drop, also after a restart."""
    node = node_with(tmp_path, create("a"), drop("a"), create("a"))
    assert names(node) == names(again(tmp_path)) == ["a"]
    node.handle(drop("a"))
    node.commit()
    assert names(node) == names(again(tmp_path)) == []


def test_the_account_is_the_same_after_a_start(tmp_path):
    chance, node = Random(5), node_with(tmp_path)
    for number in range(400):
        node.handle(create(f"n{number}", b"d" * chance.randrange(3000)))
        node.handle(drop(*(f"n{chance.randrange(number + 1)}" for _ in range(3))))
        node.commit()
        if number % 80 == 79:
            for place in chance.sample(list(node.journal.places()), 2):
                assert node.compact(place)
    restarted = again(tmp_path)
    assert names(restarted) == names(node)
    assert live(restarted) == live(node)
    node.handle(CollectConfig(1, BLOBS.id, Successor(NEXT_BLOBS, Status.FINALIZED)))
    node.commit()
    assert sum(live(node).values()) == sum(live(again(tmp_path)).values()) < 2 * KIB


def test_churn_beside_names_that_stay_leaves_no_disk_behind(tmp_path):
    node = node_with(tmp_path, *(create(f"stays {number}") for number in range(20)))
    most = 0
    for number in range(3000):
        node.handle(create(f"goes {number}"))
        if number % 10 == 9:
            node.handle(drop(*(f"goes {number - less}" for less in range(10))))
            node.commit()
        while (place := choose(node.journal.places(), node.replica.account.live)) is not None:
            assert node.compact(place)
        most = max(most, len(node.journal.places()))
    assert len(names(node)) == 20
    assert most <= 3
    assert names(again(tmp_path)) == names(node)


async def test_answers_about_a_dropped_name_wait_for_the_commit(tmp_path):
    """A start before the commit would find the name."""
    waiting = Waiting(tmp_path / "j")
    waiting.calls(Introduce(1, BLOBS), create("a"), create("b"))
    await waiting.synced()
    shows = GetData(1, BLOBS.id, "a", True), ListObjects(2, BLOBS.id, "", 9)
    assert waiting.calls(drop("a"), *shows, drop("a"), GetData(3, BLOBS.id, "b", True)) == [3]
    assert await waiting.synced() == [9, 1, 2, 9]
    assert names(again(tmp_path)) == ["b"]
