"""QUERY-LIST as published (Alg. 4:8-15): the whole List, bounded, and refused to users."""

import pytest

from ares.model.codec import DETACHED_BYTES_MIN, decode, encode
from ares.model.configuration import Configuration, Status, Successor
from ares.model.element import sealed
from ares.model.identity import DEFAULT_DOMAIN
from ares.model.messages import (
    DELETED_LENGTH,
    ListEntry,
    ListReply,
    PutData,
    QueryList,
    Reason,
    Refused,
)
from ares.model.tag import TAG_ZERO, Tag
from ares.model.work import CONFIGURATION_WORK, Meter
from ares.net.batching import data_bytes
from ares.replica.replica import Replica
from ares.server.storage_server import ServerParts, StorageServer
from tests.protocol.protocol_world import servers

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


@pytest.fixture
def server():
    return Replica("s1", servers(1)[0].identity, EC)


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


def test_a_list_beyond_the_largest_value_is_refused(server, monkeypatch):
    monkeypatch.setattr("ares.replica.configuration_state.VALUE_BYTES_MAX", 7)
    server.handle(put(1))
    assert isinstance(listed(server), ListReply)
    server.handle(put(2))
    refused = server.handle(QueryList(7, EC.id, "k"))
    assert (refused.reason, "smaller delta" in refused.detail) == (Reason.BAD_REQUEST, True)


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
