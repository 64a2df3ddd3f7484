"""Copies for configurations which are not decided yet, at a server (rule R24)."""

import asyncio

import pytest
from msgspec import structs

from ares.dap.coding import coding_for
from ares.model.configuration import Configuration, Server, Status, Successor
from ares.model.element import Element, sealed
from ares.model.identity import DEFAULT_DOMAIN, ClientId
from ares.model.messages import (
    Adopt,
    AheadReply,
    CopyOutcome,
    DataReply,
    Describe,
    Finalize,
    GetAhead,
    GetData,
    GetTag,
    Introduce,
    ListObjects,
    ObjectVersion,
    PutAhead,
    PutData,
    Reason,
    Refused,
    WriteConfig,
)
from ares.model.tag import TAG_ZERO, Tag
from ares.replica import ahead_copies
from ares.replica import replica as replica_module
from ares.replica.ahead_copies import AHEAD_CONFIGURATIONS_MAX, AHEAD_HELD_S, AHEAD_IDLE_S
from ares.replica.replica import Replica, ReplicaParts
from ares.server.storage_server import ServerParts, StorageServer
from tests.journal.memory_journal import Kept, MemoryJournal

MEMBERS = [Server(f"s{number}", f"host:{number}", f"{number:032x}") for number in range(5)]
INITIAL = Configuration.abd(MEMBERS).at(DEFAULT_DOMAIN, 0)
TARGET = Configuration.abd(MEMBERS[:3]).at(DEFAULT_DOMAIN, 1, INITIAL.cluster_id)
LOSER = Configuration.abd(MEMBERS[2:]).at(DEFAULT_DOMAIN, 1, INITIAL.cluster_id)
CODED = Configuration.ec(MEMBERS, 3).at(DEFAULT_DOMAIN, 1, INITIAL.cluster_id)
OLD, NEW = Tag(1, ClientId(1)), Tag(2, ClientId(1))
MISSING, DONE, KNOWN = CopyOutcome


def server(number: int = 2, clock=lambda: 0.0) -> Replica:
    return Replica(
        MEMBERS[number].id, MEMBERS[number].identity, INITIAL, parts=ReplicaParts(clock=clock)
    )


def copy(
    object: str = "k",
    tag: Tag = NEW,
    value: bytes = b"value",
    target: Configuration = TARGET,
    call: int = 1,
    number: int = 2,
) -> PutAhead:
    index, parts = 0, (value,)
    if target.dap == "ec":
        index, parts = number, coding_for(target).encode(value)[number]
    element = sealed(target.id, object, tag, index, len(value), parts)
    return PutAhead(call, target.id, object, tag, element, target.domain, target.index)


def adopt(*versions: tuple[str, Tag], target: Configuration = TARGET) -> Adopt:
    return Adopt(2, target.id, tuple(ObjectVersion(*version) for version in versions))


def outcomes(reply: object) -> list[int]:
    assert isinstance(reply, AheadReply), reply
    return list(reply.outcomes)


def shown(replica: Replica, target: Configuration = TARGET) -> list[object]:
    """Return the replies of every reading request about ``k``, and the bytes held."""
    tag = replica.handle(GetTag(5, target.id, "k"))
    data = replica.handle(GetData(5, target.id, "k", True))
    listed = replica.handle(ListObjects(5, target.id, "", 10))
    hosted = replica.handle(Describe(5)).hosted
    return [tag.tag, data.tags, data.element, listed.objects, hosted[-1].objects, hosted[-1].bytes]


NOTHING = [TAG_ZERO, (), None, (), 0, 0]


@pytest.mark.parametrize("target", [TARGET, CODED])
def test_a_copy_is_shown_to_nobody_until_it_is_adopted(target):
    replica = server()
    assert outcomes(replica.handle(copy(target=target))) == [DONE]
    assert replica.handle(GetData(3, target.id, "k", True)).reason is Reason.UNKNOWN_CONFIGURATION
    assert replica.handle(adopt(("k", NEW), target=target)).reason is Reason.UNKNOWN_CONFIGURATION
    replica.handle(Introduce(3, target))
    assert shown(replica, target) == NOTHING
    assert outcomes(replica.handle(adopt(("k", NEW), target=target))) == [DONE]
    data = replica.handle(GetData(3, target.id, "k", True))
    assert (data.tags, data.length) == ((NEW,), 5)
    assert data.element == copy(target=target).element
    assert replica.ahead.bytes == 0


def test_only_a_copy_of_exactly_this_version_is_adopted():
    replica = server()
    replica.handle(copy(tag=OLD))
    replica.handle(Introduce(3, TARGET))
    assert outcomes(replica.handle(adopt(("k", NEW), ("other", OLD)))) == [MISSING, MISSING]
    assert shown(replica) == NOTHING
    assert outcomes(replica.handle(adopt(("k", OLD)))) == [DONE]
    assert outcomes(replica.handle(adopt(("k", OLD), ("k", NEW)))) == [KNOWN, MISSING]


@pytest.mark.parametrize("tags", [(OLD, NEW), (NEW, OLD)])
def test_the_copy_of_the_highest_version_counts(tags):
    replica = server()
    for tag in tags:
        assert outcomes(replica.handle(copy(tag=tag))) == [DONE]
    replica.handle(Introduce(3, TARGET))
    assert outcomes(replica.handle(adopt(("k", OLD)))) == [MISSING]
    assert outcomes(replica.handle(adopt(("k", NEW)))) == [DONE]


def test_a_copy_that_does_not_belong_here_is_not_adopted():
    replica = server()
    wrong_seal = copy()
    element = wrong_seal.element
    broken = Element(element.index, element.length, element.checksum + 1, element.parts)
    replica.handle(PutAhead(1, TARGET.id, "k", NEW, broken, DEFAULT_DOMAIN, 1))
    replica.handle(copy("l", target=CODED, number=1))  # the element of another server
    replica.handle(copy("m", tag=Tag(2**60, ClientId(1))))  # beyond all numbers (R9)
    replica.handle(Introduce(3, TARGET))
    assert outcomes(replica.handle(adopt(("k", NEW), ("m", Tag(2**60, ClientId(1)))))) == [0, 0]
    other = server()
    other.handle(copy("l", target=CODED, number=1))
    other.handle(Introduce(3, CODED))
    assert outcomes(other.handle(adopt(("l", NEW), target=CODED))) == [MISSING]


def test_names_that_no_object_has_and_elements_in_crumbs_are_not_held():
    replica = server()
    crumbs = sealed(TARGET.id, "k", NEW, 0, 5, (b"v", b"a", b"lue"))
    puts = [
        copy(""),
        copy("x" * 1025),
        PutAhead(1, TARGET.id, "k", NEW, crumbs, DEFAULT_DOMAIN, 1),
    ]
    assert [outcomes(replica.handle(put)) for put in puts] == [[MISSING]] * 3
    assert replica.ahead.bytes == 0


def test_an_older_adoption_never_replaces_a_newer_version():
    replica = server()
    replica.handle(copy(tag=OLD))
    replica.handle(Introduce(3, TARGET))
    newer = copy(tag=NEW, value=b"new").element
    replica.handle(PutData(4, TARGET.id, "k", NEW, newer))
    assert outcomes(replica.handle(adopt(("k", OLD)))) == [DONE]
    assert replica.handle(GetData(5, TARGET.id, "k", True)).tags == (NEW,)


def test_copies_of_a_configuration_that_lost_are_dropped_and_taken_no_more():
    replica = server()
    replica.handle(copy(target=LOSER))
    replica.handle(copy())
    replica.handle(Introduce(3, TARGET))
    assert replica.ahead.take(LOSER.id, "k", NEW) is None
    assert outcomes(replica.handle(copy(target=LOSER))) == [MISSING]
    assert outcomes(replica.handle(adopt(("k", NEW)))) == [DONE]


@pytest.mark.parametrize("told", ["finalize", "successor"])
def test_copies_are_dropped_when_their_configuration_is_final(told):
    replica = server()
    replica.handle(copy())
    if told == "finalize":
        replica.handle(Introduce(3, TARGET))
        replica.handle(Finalize(3, TARGET.id))
    else:
        replica.handle(WriteConfig(3, INITIAL.id, Successor(TARGET, Status.FINALIZED)))
    assert replica.ahead.bytes == 0
    assert outcomes(replica.handle(copy())) == [MISSING]


def test_copies_are_bounded_in_bytes(monkeypatch):
    replica = server()
    replica.handle(copy("a", value=b"x" * 1000))
    one = replica.ahead.bytes
    monkeypatch.setattr(ahead_copies, "AHEAD_BYTES_MAX", 3 * one)
    for name in "bcd":
        held = outcomes(replica.handle(copy(name, value=b"x" * 1000)))
        assert held == [DONE if name in "bc" else MISSING]
    newer = copy("a", tag=Tag(3, ClientId(1)), value=b"y" * 1000)
    assert outcomes(replica.handle(newer)) == [DONE]
    assert replica.ahead.bytes == 3 * one
    assert one > 1000


def at_domain(number: int) -> Configuration:
    return TARGET.at(f"domain{number}", 1, INITIAL.cluster_id)


def test_copies_for_idle_configurations_give_way_and_those_of_live_movers_do_not():
    now = 1000.0
    replica = server(clock=lambda: now)
    places = [at_domain(number) for number in range(AHEAD_CONFIGURATIONS_MAX + 4)]
    first, more = places[:AHEAD_CONFIGURATIONS_MAX], places[AHEAD_CONFIGURATIONS_MAX:]
    for place in first:
        assert outcomes(replica.handle(copy(target=place))) == [DONE]
    now += AHEAD_IDLE_S - 0.1
    assert [outcomes(replica.handle(copy(target=place))) for place in more] == [[MISSING]] * 4
    for place in first[3:]:
        assert outcomes(replica.handle(copy("other", target=place))) == [DONE]
    now += 0.2
    held = [outcomes(replica.handle(copy(target=place))) for place in more]
    assert held == [[DONE]] * 3 + [[MISSING]]
    taken = [replica.ahead.take(place.id, "k", NEW) is not None for place in places]
    assert taken == [False] * 3 + [True] * AHEAD_CONFIGURATIONS_MAX + [False]


def test_bytes_of_copies_for_idle_configurations_give_way(monkeypatch):
    now = 1000.0
    replica = server(clock=lambda: now)
    replica.handle(copy(target=at_domain(0), value=b"x" * 1000))
    monkeypatch.setattr(ahead_copies, "AHEAD_BYTES_MAX", replica.ahead.bytes + 100)
    thief = copy(target=at_domain(1), value=b"x" * 1000)
    assert outcomes(replica.handle(thief)) == [MISSING]
    now += AHEAD_IDLE_S
    assert outcomes(replica.handle(thief)) == [DONE]
    assert replica.ahead.take(at_domain(0).id, "k", NEW) is None
    too_large = copy("other", target=at_domain(1), value=b"x" * 1000)
    now += AHEAD_IDLE_S
    assert outcomes(replica.handle(too_large)) == [MISSING]
    assert replica.ahead.take(at_domain(1).id, "k", NEW) is not None, "its own copies stay"


def test_a_server_tells_for_how_long_it_has_had_copies():
    now = 1000.0
    replica = server(clock=lambda: now)

    def told(target: Configuration | None) -> float:
        asked = None if target is None else target.id
        return replica.handle(Describe(5, True, copies_of=asked)).copying_s

    assert told(TARGET) == 0
    replica.handle(copy())
    now += 40
    replica.handle(copy("other"))
    now += 2
    assert [told(TARGET), told(LOSER), told(None)] == [42, 0, 0]
    now -= 100  # a step of the clock
    assert told(TARGET) == 0


def test_ids_of_no_configuration_and_a_second_place_of_an_id_are_not_held():
    replica = server()
    put = copy()
    for id in (b"", b"x" * 15, b"x" * 5_000_000):
        assert outcomes(replica.handle(structs.replace(put, configuration=id))) == [MISSING]
    assert outcomes(replica.handle(put)) == [DONE]
    for other in (structs.replace(put, index=2), structs.replace(put, domain="photos")):
        assert outcomes(replica.handle(other)) == [MISSING]


def test_copies_are_dropped_after_some_time_without_a_request_about_them():
    now = 1000.0
    replica = server(clock=lambda: now)
    replica.handle(copy())
    replica.handle(Introduce(3, TARGET))
    now += AHEAD_HELD_S
    replica.ahead.expire()
    replica.handle(adopt(("other", NEW)))
    now += AHEAD_HELD_S
    replica.ahead.expire()
    assert replica.ahead.bytes > 0
    now += 1
    replica.ahead.expire()
    assert replica.ahead.bytes == 0


def test_a_get_ahead_is_answered_as_a_get_data_without_a_successor():
    replica = server()
    element = sealed(INITIAL.id, "k", NEW, 0, 10_000, (b"x" * 10_000,))
    replica.handle(PutData(1, INITIAL.id, "k", NEW, element))
    for wants, tag in [(True, None), (False, None), (True, NEW), (True, OLD)]:
        plain = replica.handle(GetData(7, INITIAL.id, "k", wants, tag))
        assert isinstance(plain, DataReply)
        assert replica.handle(GetAhead(7, INITIAL.id, "k", wants, tag)) == plain
    assert replica.hosted[INITIAL.id].carried == 0
    assert replica.hosted[INITIAL.id].successor is None


def durable(kept: Kept) -> tuple[StorageServer, list]:
    """Return a server with a journal, and the replies that waited for a commit."""
    sent: list = []
    replica = Replica("s2", MEMBERS[2].identity, INITIAL, journaled=True)
    journal = MemoryJournal(kept, asyncio.get_running_loop().call_soon)
    parts = ServerParts(lambda sender, replies: sent.extend(replies))
    return StorageServer(replica, journal, parts), sent


def puts_in(kept: Kept) -> list[str]:
    return [fact.object for facts in kept.facts.values() for fact in facts if hasattr(fact, "tag")]


async def test_an_adoption_is_durable_before_its_reply_and_a_copy_alone_is_in_no_journal():
    """Rule R18."""
    kept = Kept()
    host, sent = durable(kept)
    assert outcomes(host.handle("m", [copy(), copy("l")])[0]) == [DONE]
    await host.settle()
    assert puts_in(kept) == []
    assert host.handle("m", [Introduce(3, TARGET), adopt(("k", NEW), ("gone", NEW))]) == []
    assert sent == []
    await host.settle()
    assert [outcomes(reply) for reply in sent] == [[DONE, MISSING]]
    assert puts_in(kept) == ["k"]
    assert outcomes(host.handle("m", [adopt(("k", NEW))])[0]) == [KNOWN]


async def test_a_version_in_the_commit_under_way_is_acknowledged_after_the_commit():
    host, sent = durable(Kept())
    host.handle("m", [copy(), Introduce(3, TARGET)])
    await host.settle()
    host.handle("m", [adopt(("k", NEW))])
    assert host.handle("other", [adopt(("k", NEW))]) == []
    await host.settle()
    assert [outcomes(reply) for reply in sent] == [[DONE], [KNOWN]]


async def test_a_full_disk_adopts_nothing():
    kept = Kept()
    host, _ = durable(kept)
    host.handle("m", [copy(), Introduce(3, TARGET)])
    await host.settle()
    kept.room = 0
    assert outcomes(host.handle("m", [adopt(("k", NEW))])[0]) == [MISSING]
    assert puts_in(kept) == []


async def test_a_request_of_many_bytes_is_answered_for_its_first_versions(monkeypatch):
    monkeypatch.setattr(replica_module, "ADOPTED_BYTES_MAX", 1500)
    replica = server()
    for name in "abcd":
        replica.handle(copy(name, value=b"x" * 1000))
    replica.handle(Introduce(3, TARGET))
    assert outcomes(replica.handle(adopt(*((name, NEW) for name in "abcd")))) == [DONE] * 2
    assert outcomes(replica.handle(adopt(*((name, NEW) for name in "cd")))) == [DONE] * 2


def test_refusals_of_requests_about_unknown_configurations_ask_for_an_introduction():
    reply = server().handle(adopt(("k", NEW)))
    assert isinstance(reply, Refused)
    assert reply.reason is Reason.UNKNOWN_CONFIGURATION
