"""The contract of every journal, in files or in memory (ares/store/port.py, Journal)."""

import pytest

from ares.model.tag import Tag
from ares.model.units import KIB
from ares.replica.facts import ConfigurationRecord, TagsTrimmed, fact_bytes_max
from ares.store.port import Use

from .journal_node import INITIAL, PHOTOS, Node, log_journal, plain, put, requests, state
from .memory_journal import Kept, MemoryJournal


@pytest.fixture(params=["log", "memory"])
def opened(request, tmp_path):
    """Return a function that opens the same journal repeatedly."""
    if request.param == "log":
        return lambda: log_journal(tmp_path / "j")
    kept = Kept()
    return lambda: MemoryJournal(kept, lambda step: step(), 64 * KIB)


def append(journal, *facts):
    places = []
    for fact in facts:
        places.append(journal.reserve(fact_bytes_max(fact), Use.DATA))
        journal.append(fact, fact_bytes_max(fact))
    return places


def commit(journal):
    told = []
    journal.commit(lambda error, moved: told.append((error, list(moved))))
    [(error, moved)] = told
    assert error is None
    return moved


def all_of(journal):
    return [fact for _, facts in journal.recover() for fact in facts]


FACTS = [
    ConfigurationRecord(PHOTOS, None, False),
    put("a", 1, b"x"),
    put("ä€" * 300, 2, b"y" * 30 * KIB, parts=4),
    TagsTrimmed(INITIAL.id, "ä€" * 300, Tag(2**63, 2**64 - 1)),
    put("b", 1),
]


def test_what_was_committed_is_there_in_order(opened):
    journal = opened()
    assert all_of(journal) == []
    append(journal, *FACTS[:3])
    commit(journal)
    append(journal, *FACTS[3:])
    commit(journal)
    journal.close()
    journal.close()
    assert all_of(opened()) == FACTS


def test_nothing_to_commit_is_committed(opened):
    journal = opened()
    assert all_of(journal) == []
    assert commit(journal) == []
    append(journal, *FACTS)
    commit(journal)
    commit(journal)
    assert all_of(opened()) == FACTS


def test_places_fill_and_can_be_read_and_given_back(opened):
    journal = opened()
    assert all_of(journal) == []
    facts = [put(f"{number}", 1, b"z" * 6 * KIB) for number in range(40)]
    places = [append(journal, fact)[0] for fact in facts]
    commit(journal)
    assert len(set(places)) > 3
    assert set(journal.places()) == set(places) - {places[-1]}
    assert all(size >= 5 * 6 * KIB for size in journal.places().values())
    first = [fact for fact, place in zip(facts, places, strict=True) if place == places[0]]
    assert list(journal.read(places[0])) == first
    before = journal.bytes_on_disk
    journal.discard(places[0])
    assert places[0] not in journal.places()
    commit(journal)
    assert journal.bytes_on_disk < before
    assert all_of(opened()) == facts[len(first) :]


def whole(journal, place):
    return journal.examination(place).run(lambda bytes: None).whole


def test_what_is_durable_can_be_examined_and_sealed(opened):
    journal = opened()
    assert all_of(journal) == []
    assert journal.durable() == {}
    [place] = set(append(journal, put("a", 1, b"x" * 9 * KIB)))
    commit(journal)
    assert list(journal.durable()) == [place]
    assert whole(journal, place)
    assert place not in journal.places()
    assert journal.seal(place)
    append(journal, put("b", 1, b"y"))
    commit(journal)
    assert journal.seal(place), "it is already"
    assert list(journal.places()) == [place]
    assert sorted(journal.durable()) == [place, place + 1]
    assert all(whole(journal, each) for each in journal.durable())
    journal.discard(place)
    assert journal.examination(place) is None
    commit(journal)
    assert list(journal.durable()) == [place + 1]
    assert all_of(opened()) == [put("b", 1, b"y")]


def test_an_examination_goes_no_faster_than_it_may(opened):
    journal, told = opened(), []
    assert all_of(journal) == []
    [place] = append(journal, put("a", 1, b"x" * 40 * KIB))
    commit(journal)
    journal.examination(place).run(told.append)
    assert sum(told) >= 40 * KIB

    def end(bytes):
        raise KeyError

    with pytest.raises(KeyError):
        journal.examination(place).run(end)


def test_a_fact_larger_than_a_place(opened):
    journal = opened()
    assert all_of(journal) == []
    facts = [put("a", 1, b"x"), put("b", 1, b"z" * 300 * KIB), put("c", 1, b"x")]
    append(journal, *facts)
    commit(journal)
    assert all_of(opened()) == facts


def test_a_server_restarts_again_and_again(opened):
    handled = []
    for seed in range(5):
        node = Node(opened())
        assert node.state == state(plain(handled))
        for request in requests(30, seed):
            node.handle(request)
            handled.append(request)
        node.commit()
        assert node.state == state(plain(handled))


def test_space_is_reused(opened):
    """Repeated writes of the same objects take bounded space, and the state stays the same."""
    node, handled, most = Node(opened()), [], 0
    for number in range(1, 400):
        request = put("abc"[number % 3], number, b"v" * 3 * KIB)
        node.handle(request)
        handled.append(request)
        node.commit()
        live = node.replica.account.live
        for place, size in list(node.journal.places().items()):
            if live.get(place, 0) * 2 <= size:
                assert node.compact(place)
        most = max(most, node.journal.bytes_on_disk)
    assert 400 * 3 * KIB > 4 * 64 * KIB
    assert most < 4 * 64 * KIB
    assert node.state == state(plain(handled))
    assert Node(opened()).state == state(plain(handled))
