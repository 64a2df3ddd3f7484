"""QUERY-LIST as published (Alg. 4:8-15): the whole List, bounded, and refused to users."""

import pytest
from msgspec import structs

from ares.compiled import replica_parts
from ares.metrics import ListenerTraffic
from ares.model.codec import DETACHED_BYTES_MIN, decode, encode
from ares.model.configuration import Configuration, Status, Successor
from ares.model.element import hollow, sealed
from ares.model.identity import DEFAULT_DOMAIN
from ares.model.messages import (
    DELETED_LENGTH,
    ListEntry,
    ListReply,
    PutData,
    QueryList,
    Reason,
    Refused,
    WriteConfig,
)
from ares.model.tag import TAG_ZERO, Tag
from ares.model.work import CONFIGURATION_WORK, Meter
from ares.net.batching import data_bytes
from ares.replica.group_commit import ROWS_MAX, GroupCommit, served_of
from ares.replica.replica import Replica
from ares.server.storage_server import ServerParts, StorageServer
from ares.testing.published.ares_2022 import AresClient
from tests.protocol.protocol_world import ProtocolWorld, servers

EC = Configuration.ec(servers(0, 1, 2, 3), 2, 2).at(DEFAULT_DOMAIN, 0)
NEXT = Configuration.abd(servers(0, 1, 2)).at(DEFAULT_DOMAIN, 1, EC.id)
PENDING, FINAL = Successor(NEXT, Status.PENDING), Successor(NEXT, Status.FINALIZED)
NOTHING = ListEntry(TAG_ZERO, sealed(EC.id, "k", TAG_ZERO, 1, DELETED_LENGTH, ()))


def put(number, data=b"data"):
    tag = Tag(number, 1)
    element = sealed(EC.id, "k", tag, 1, len(data), (data,))
    return PutData(1, EC.id, "k", tag, element)


def entry(request):
    return ListEntry(request.tag, request.element)


def test_elements_are_withheld_once_the_successor_is_finalized_except_in_whole_lists(server):
    """Alg. 4:10-12; a reader of ARES of 2022 does not go on to the successor."""
    server.handle(put(1))
    whole = listed(server)
    server.handle(WriteConfig(1, EC.id, FINAL))
    assert [entry.element for entry in listed(server).entries] == [None, None]
    reply = server.handle(QueryList(7, EC.id, "k", whole=True))
    assert reply == structs.replace(whole, successor=FINAL)


@pytest.fixture
def server():
    return Replica("s1", servers(1)[0].identity, EC, parts=replica_parts())


def listed(server, successor=None):
    reply = server.handle(QueryList(7, EC.id, "k", successor))
    assert decode(encode([reply])) == [reply]
    return reply


def test_a_list_begins_with_t0_and_keeps_delta_and_one_more(server):
    """Alg. 4:2, 4:19-24: t0 counts among the delta + 1 pairs, and goes first."""
    assert listed(server) == ListReply(7, (NOTHING,), None)
    puts = [put(number, bytes(DETACHED_BYTES_MIN)) for number in (1, 2, 3, 4)]
    for request in puts[:2]:
        server.handle(request)
    assert listed(server).entries == (entry(puts[1]), entry(puts[0]), NOTHING)
    for request in puts[2:]:
        server.handle(request)
    assert listed(server).entries == tuple(entry(request) for request in puts[:0:-1])


def test_a_finalized_successor_makes_every_element_bottom(server):
    """Alg. 4:10-13; and rule R1: a carried successor is there before the answer."""
    server.handle(put(1))
    assert listed(server, PENDING) == ListReply(7, (entry(put(1)), NOTHING), PENDING)
    assert listed(server, FINAL).entries == (
        ListEntry(Tag(1, 1), None),
        ListEntry(TAG_ZERO, None),
    )
    assert listed(server).successor == FINAL


def test_a_version_that_the_client_holds_comes_without_its_element(server):
    """Section 3, Extension 1 of ARES II: only pairs with higher tags than the client's tag."""
    puts = [put(number) for number in (1, 2, 3)]
    for request in puts:
        server.handle(request)
    for held, known in ((Tag(1, 1), 1), (Tag(2, 7), 2), (Tag(9, 1), 3)):
        reply = server.handle(QueryList(7, EC.id, "k", held=held))
        assert reply.entries == (
            *(entry(request) for request in reversed(puts[known:])),
            *(ListEntry(request.tag, None) for request in reversed(puts[:known])),
        )


def test_a_list_beyond_the_largest_value_is_refused_unless_withheld():
    server = Replica("s1", servers(1)[0].identity, EC, parts=replica_parts(value_bytes=7))
    server.handle(put(1))
    assert isinstance(listed(server), ListReply)
    server.handle(put(2))
    refused = server.handle(QueryList(7, EC.id, "k"))
    assert (refused.reason, "smaller delta" in refused.detail) == (Reason.BAD_REQUEST, True)
    assert [entry.element for entry in listed(server, FINAL).entries] == [None, None, None]


def rotten(number):
    """Return a put whose data changed after the seal, as on a disk."""
    whole = put(number, bytes(DETACHED_BYTES_MIN))
    return structs.replace(
        whole, element=structs.replace(whole.element, parts=(b"x" * DETACHED_BYTES_MIN,))
    )


def test_a_list_with_a_damaged_element_is_refused_and_not_shortened():
    """A shorter List says that the server never had the version."""
    server = Replica("s1", servers(1)[0].identity, EC, True, replica_parts())
    server.handle(put(1))
    server.hosted[EC.id].put(rotten(2), checked=True)
    server.hosted[EC.id].put(rotten(3), checked=True)
    for _ in range(2):  # found damaged, and without data afterwards
        refused = server.handle(QueryList(7, EC.id, "k"))
        assert (refused.reason, "2 of the 3" in refused.detail) == (Reason.BAD_ELEMENT, True)
    assert len(listed(server, FINAL).entries) == 3


def test_clients_as_published_wait_for_other_lists_than_a_damaged_one():
    """A completed write reached s0, s1 and s2; with a shorter List of s0 a read goes back."""
    world, value = ProtocolWorld(EC, range(4)), b"v" * 3 * DETACHED_BYTES_MIN
    world.replicas["s0"] = Replica("s0", servers(0)[0].identity, EC, True, replica_parts())
    client = world.client()
    state = AresClient(client.id, EC)
    world.hold = lambda _, target, message: isinstance(message, PutData) and target == "s3"
    tag = client.run(state.write("k", value))
    while world.step():
        pass
    objects = world.replicas["s0"].hosted[EC.id].objects
    objects.replace("k", tag, hollow(objects.get("k").entries[0][1]))
    puts_to_s3 = world.hold
    world.hold = lambda source, target, message: (
        "s2" in (source, target) or puts_to_s3(source, target, message)
    )
    reading = client.start(state.dap(EC).get_data("k"))
    while world.step():
        pass
    assert not reading.ended
    world.hold = puts_to_s3
    world.until(lambda: reading.ended)
    assert reading.result()[0] == (tag, value)


def test_a_list_counts_as_a_read(server):
    server.handle(put(1))
    reply = listed(server)
    traffic = ListenerTraffic()
    traffic.count_batch([QueryList(7, EC.id, "k")], [b""])
    traffic.count_turn([reply], 0.003)
    work = traffic.work()
    assert (work.fetches, sum(work.reading.counts)) == (1, 1)
    commit = GroupCommit()
    commit.keep("client", reply, 0.0)
    assert commit.rows_left("client") == ROWS_MAX - 1 - len(reply.entries)
    assert commit.waited == [(0.0, True, False)]
    served = served_of(QueryList(7, EC.id, "k", trace=b"t"), 0.0)
    assert isinstance(served.answered(reply, 0.1), ListReply)
    assert served.bytes == reply.size == 4


async def test_only_a_server_of_experiments_answers_and_its_data_count_as_work(server):
    server.handle(put(1, bytes(10_000)))
    [refused] = StorageServer(server).handle("client", [QueryList(1, EC.id, "k")])
    assert isinstance(refused, Refused)
    assert (refused.reason, "not atomic" in refused.detail) == (Reason.BAD_REQUEST, True)
    meter = Meter()
    host = StorageServer(server, parts=ServerParts(published=True, meter=meter))
    [reply] = host.handle("client", [QueryList(1, EC.id, "k", PENDING)])
    assert isinstance(reply, ListReply)
    assert reply.successor == PENDING
    assert meter.spent >= data_bytes(reply) == 10_000
    assert QueryList(1, EC.id, "k", PENDING).bulk == CONFIGURATION_WORK
