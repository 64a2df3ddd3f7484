"""A server on the event loop, over the in-process transport (ares/server/storage_server.py)."""

import asyncio

import pytest

from ares.compiled import replica_parts
from ares.metrics import ListenerTraffic
from ares.model.configuration import Configuration, Server, Status, Successor
from ares.model.errors import BadInput
from ares.model.identity import DEFAULT_DOMAIN
from ares.model.messages import (
    REQUEST_KINDS,
    Ack,
    CollectConfig,
    Describe,
    Description,
    Element,
    GetData,
    GetHint,
    GetTag,
    HandledBy,
    Introduce,
    ListObjects,
    PutData,
    QueryList,
    ReadConfig,
    Reason,
    Refused,
)
from ares.model.tag import Tag
from ares.replica.configuration_state import ConfigurationState
from ares.replica.facts import ConfigurationRecord
from ares.replica.replica import RELEASE_STEPS, RELEASED_AT_ONCE, Replica
from ares.server import storage_server
from ares.server.storage_process import ServingParts, run_server
from ares.server.storage_server import TRIM_PORTIONS, ServerParts, StorageServer, memory_bytes
from tests.inproc.network import InprocConnections, InprocListener, InprocNetwork
from tests.journal.memory_journal import Kept, MemoryJournal
from tests.transport.samples import SAMPLES

MEMBERS = [Server(f"s{number}", f"host:{number}", f"{number:032x}") for number in range(3)]
INITIAL = Configuration.abd(MEMBERS).at(DEFAULT_DOMAIN, 0)


def host() -> StorageServer:
    return StorageServer(Replica("s0", MEMBERS[0].identity, INITIAL, parts=replica_parts()))


async def test_a_batch_is_answered_in_order_and_introductions_are_not():
    other = INITIAL.at("photos", 0, INITIAL.id)
    replies = host().handle(
        "a client",
        [
            ReadConfig(3, INITIAL.id),
            Introduce(4, other),
            ReadConfig(5, other.id),
            ReadConfig(1, INITIAL.id),
        ],
    )
    assert replies == [Ack(3, None), Ack(5, None), Ack(1, None)]
    assert host().handle("a client", []) == []


async def test_what_is_no_request_to_a_storage_server_is_refused_alone():
    replies = host().handle("a client", [GetHint(1, "d"), ReadConfig(2, INITIAL.id), Ack(3, None)])
    assert [type(reply) for reply in replies] == [Refused, Ack, Refused]
    assert {reply.reason for reply in replies if isinstance(reply, Refused)} == {Reason.BAD_REQUEST}
    assert "GetHint is no request" in replies[0].detail
    assert [reply.call for reply in replies] == [1, 2, 3]


@pytest.mark.parametrize("journaled", [False, True])
async def test_every_request_of_the_table_is_answered_by_its_part(journaled):
    journal = MemoryJournal(Kept(), asyncio.get_running_loop().call_soon)
    there = StorageServer(
        Replica("s0", MEMBERS[0].identity, INITIAL, journaled, replica_parts()), journal
    )
    for sample in SAMPLES:
        row = REQUEST_KINDS.get(type(sample))
        why = [reply.detail for reply in there.handle("c", [sample]) if isinstance(reply, Refused)]
        is_foreign = row is None or row.handled_by is HandledBy.MEMBER
        assert any("is no request" in one for one in why) == is_foreign, sample
        is_of_logs = row is not None and row.handled_by is HandledBy.LOGS
        assert any("keeps no logs" in one for one in why) == is_of_logs, sample


async def test_a_listing_tells_what_users_asked_for_and_not_what_movers_do():
    traffic = ListenerTraffic()
    there = StorageServer(
        Replica("s0", MEMBERS[0].identity, INITIAL, parts=replica_parts()),
        parts=ServerParts(traffic=traffic, published=True),
    )
    carried = Successor(INITIAL.at(DEFAULT_DOMAIN, 1, INITIAL.id), Status.PENDING)
    asked = [
        GetTag(1, INITIAL.id, "k"),
        GetData(2, INITIAL.id, "k", True),
        GetData(3, INITIAL.id, "k", True, None, carried),
        QueryList(4, INITIAL.id, "k"),
        QueryList(5, INITIAL.id, "k", carried),
    ]
    traffic.count_batch(asked, [b""])
    there.handle("a client", asked)
    [listed] = there.handle("a client", [ListObjects(6, INITIAL.id, "", 10)])
    assert listed.asked == 3


async def test_a_description_has_uptime_and_memory():
    [described] = host().handle("a client", [Describe(1)])
    assert described.uptime_s >= 0
    assert described.memory_bytes > 10**6
    assert memory_bytes() > 10**6


async def turns_until_freed(replica: Replica) -> int:
    turns = 0
    while replica.has_dropped:
        await asyncio.sleep(0)
        turns += 1
    return turns


@pytest.mark.parametrize("journaled", [False, True])
async def test_the_memory_of_a_collected_configuration_is_freed_in_portions(journaled):
    loop = asyncio.get_running_loop()
    replica = Replica("s0", MEMBERS[0].identity, INITIAL, journaled, replica_parts())
    there = StorageServer(replica, MemoryJournal(Kept(), loop.call_soon) if journaled else None)
    objects, tag = replica.hosted[INITIAL.id].objects, Tag(1, 1)
    for number in range(2 * RELEASED_AT_ONCE + 1):
        objects.put(f"{number}", tag, Element(0, 1, 0, (b"x",)))
    after = Successor(INITIAL.at(DEFAULT_DOMAIN, 1, INITIAL.id), Status.FINALIZED)
    there.handle("a client", [CollectConfig(1, INITIAL.id, after)])
    assert (len(objects), replica.has_dropped) == (0, True)
    turns = await turns_until_freed(replica)
    assert turns >= 3
    assert not objects.release(1)


async def test_freed_memory_is_given_back_between_portions(monkeypatch):
    """Without the trims a server keeps the memory of a collected configuration."""
    trims = []
    monkeypatch.setattr(storage_server, "give_back_freed_memory", lambda: trims.append(1))
    replica = Replica("s0", MEMBERS[0].identity, INITIAL, False, replica_parts())
    there, objects = StorageServer(replica), replica.hosted[INITIAL.id].objects
    for number in range(TRIM_PORTIONS * RELEASED_AT_ONCE + RELEASED_AT_ONCE + 1):
        objects.put(f"{number}", Tag(1, 1), Element(0, 1, 0, (b"x",)))
    after = Successor(INITIAL.at(DEFAULT_DOMAIN, 1, INITIAL.id), Status.FINALIZED)
    for count in (2, 2):  # the repetition frees nothing
        there.handle("a client", [CollectConfig(1, INITIAL.id, after)])
        await turns_until_freed(replica)
        assert len(trims) == count
    monkeypatch.undo()
    storage_server.give_back_freed_memory()


async def test_a_turn_frees_few_of_many_small_collected_configurations():
    """Each of them has fewer Lists than a turn frees."""
    loop = asyncio.get_running_loop()
    replica = Replica("s0", MEMBERS[0].identity, INITIAL, True, replica_parts())
    there = StorageServer(replica, MemoryJournal(Kept(), loop.call_soon))
    small = [INITIAL.at(f"domain {number}", 1, INITIAL.id) for number in range(500)]
    for configuration in small:
        there.handle("a client", [Introduce(1, configuration)])
        objects = replica.hosted[configuration.id].objects
        for name in ("a", "b"):
            objects.put(name, Tag(1, 1), Element(0, 1, 0, (b"x",)))
    tables = [replica.hosted[each.id].objects for each in small]
    for configuration in small:
        after = Successor(configuration.at(configuration.domain, 2, INITIAL.id), Status.FINALIZED)
        there.handle("a client", [CollectConfig(1, configuration.id, after)])
    turns = await turns_until_freed(replica)
    assert turns >= len(small) / RELEASE_STEPS
    assert not any(table.release(1) for table in tables)


async def test_the_names_left_behind_are_freed_in_portions():
    state = ConfigurationState(INITIAL, 0)
    for number in range(25):
        state._left[f"{number}"] = None
    after = Successor(INITIAL.at(DEFAULT_DOMAIN, 1, INITIAL.id), Status.FINALIZED)
    for _ in range(2):  # a repetition changes nothing
        state.collect(CollectConfig(1, INITIAL.id, after))
        assert not state._left
    assert [state.release(10) for _ in range(4)] == [True, True, False, False]


async def test_the_memory_of_an_earlier_collection_is_freed_without_a_request():
    loop = asyncio.get_running_loop()
    replica = Replica("s0", MEMBERS[0].identity, INITIAL, True, replica_parts())
    replica.begin_restoring()
    after = Successor(INITIAL.at(DEFAULT_DOMAIN, 1, INITIAL.id), Status.FINALIZED)
    put = PutData(1, INITIAL.id, "a", Tag(1, 1), Element(0, 1, 0, (b"x",)))
    for fact in (put, ConfigurationRecord(INITIAL, after, True)):
        replica.restore(fact, 1)
    replica.restored()
    assert replica.has_dropped
    StorageServer(replica, MemoryJournal(Kept(), loop.call_soon))
    await asyncio.sleep(0)
    assert not replica.has_dropped


async def test_it_serves_until_it_is_stopped():
    network, stop = InprocNetwork(), asyncio.Event()
    running = asyncio.create_task(
        run_server(
            ServingParts("s0", MEMBERS[0].identity, INITIAL, InprocListener(network, "here"), stop)
        )
    )
    heard: asyncio.Queue = asyncio.Queue()
    connections = InprocConnections(network)
    connections.open(lambda server, messages: heard.put_nowait((server, messages)))
    connections.learn("s0", "here")
    await asyncio.sleep(0)
    connections.post("s0", [Describe(1)])
    async with asyncio.timeout(60):
        server, [described] = await heard.get()
    assert server == "s0"
    assert isinstance(described, Description)
    stop.set()
    async with asyncio.timeout(60):
        await running
    await InprocListener(network, "here").serve(lambda sender, messages: [])


@pytest.mark.parametrize("fails", ["journal", "serving"])
async def test_a_failed_start_closes_its_connections_and_its_listener(fails):
    network, closed = InprocNetwork(), []

    class ClosingLinks(InprocConnections):
        async def close(self):
            closed.append(self)
            await super().close()

    def failing(*_):
        raise BadInput("made up")

    journal = MemoryJournal(Kept(), asyncio.get_running_loop().call_soon)
    if fails == "journal":
        journal.recover = failing
    parts = ServingParts(
        "s0",
        MEMBERS[0].identity,
        INITIAL,
        InprocListener(network, "here"),
        asyncio.Event(),
        journal,
        serving=failing,
        links=ClosingLinks(network),
    )
    with pytest.raises(BadInput, match="made up"):
        await run_server(parts)
    assert len(closed) == 1
    await InprocListener(network, "here").serve(lambda sender, messages: [])


async def test_an_address_that_is_taken():
    network = InprocNetwork()
    await InprocListener(network, "here").serve(lambda sender, messages: [])
    with pytest.raises(BadInput, match="another listener"):
        await run_server(
            ServingParts(
                "s0", MEMBERS[0].identity, INITIAL, InprocListener(network, "here"), asyncio.Event()
            )
        )
