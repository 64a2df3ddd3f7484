"""Moves whose large values travel between servers (ares/server/element_puller.py).

See docs/protocol.md, reconfig.
"""

import tracemalloc
from random import Random

import pytest

from ares.dap.coding import STRIPE_BYTES, coding_for
from ares.engine.effects import Gather
from ares.model.configuration import Configuration
from ares.model.element import sealed
from ares.model.errors import ObjectsStuck
from ares.model.identity import DEFAULT_DOMAIN, CallId, ObjectName
from ares.model.messages import Ack, DataReply, GetData, PullElement, PutData, Reason, Refused
from ares.model.tag import Tag
from ares.reconfig.mover import NOT_BROUGHT_MAX, MoveOptions
from ares.reconfig.reconfigure import reconfigure
from ares.registers.operations import read, write
from ares.registers.repair import _encoded, bring_element
from ares.replica.replica import Replica, ReplicaParts
from ares.server.element_puller import (
    PULL_SENDERS_MAX,
    PULLED_BYTES_AT_ONCE,
    PULLS_AT_ONCE,
    PULLS_WAITING_MAX,
    ElementPuller,
)
from tests.protocol.protocol_world import ProtocolWorld, servers

ABD = Configuration.abd(servers(0, 1, 2, 3, 4))
ABD_MOVED = Configuration.abd(servers(3, 4, 5, 6, 7))
EC = Configuration.ec(servers(0, 1, 2, 3, 4), 3, 2)
EC_MOVED = Configuration.ec(servers(3, 4, 5, 6, 7), 3, 2)
EC_WIDER = Configuration.ec(servers(1, 2, 3, 4, 5, 6, 7), 4, 2)
BY_SERVERS = MoveOptions(transfer="servers")
LARGE = Random(1).randbytes(60_000)
TAG = Tag(7, 1)


def moved(source, target, value=LARGE, watch=lambda *_: None):
    """Return a world after a move, the mover, and the configuration in force."""
    world = ProtocolWorld(source.at(DEFAULT_DOMAIN, 0), range(8), seed=3)
    writer, mover = world.client(), world.client()
    for name in ("a", "b"):
        writer.run(write(writer.view, ObjectName(name), value))
    world.watch = watch
    result = mover.run(reconfigure(mover.view, target, BY_SERVERS))
    assert (result.moved, result.bytes) == (2, 2 * len(value))
    return world, mover, result.configuration


@pytest.mark.parametrize("source", [ABD, EC])
@pytest.mark.parametrize("target", [ABD_MOVED, EC_MOVED, EC_WIDER])
def test_no_large_value_passes_the_mover(source, target):
    seen = []
    world, mover, configuration = moved(source, target, watch=lambda *flight: seen.append(flight))
    assert not [
        message for one, _, message in seen if one is mover and isinstance(message, PutData)
    ]
    assert not [
        message
        for _, other, message in seen
        if other is mover and isinstance(message, DataReply) and message.element is not None
    ]
    reader = world.client()
    assert reader.run(read(reader.view, ObjectName("a"))).value == LARGE
    coded = coding_for(configuration).encode(LARGE)
    held = {
        server: world.replicas[server].hosted[configuration.id].objects.get(ObjectName("b"))
        for server in configuration.server_ids
    }
    there = {
        server: versions.entries[0][1] for server, versions in held.items() if versions is not None
    }
    assert len(there) >= configuration.quorum_size
    for server, element in there.items():
        position = configuration.server_ids.index(server)
        assert element.parts == tuple(coded[position])
        assert element.index == (position if target.dap == "ec" else 0)


def test_values_of_several_stripes_are_cut_as_a_writer_cuts_them():
    value = Random(2).randbytes(2 * STRIPE_BYTES + 5)
    world, _, configuration = moved(ABD, EC_WIDER, value)
    coded = coding_for(configuration).encode(value)
    for position, server in enumerate(configuration.server_ids):
        versions = world.replicas[server].hosted[configuration.id].objects.get(ObjectName("a"))
        assert versions is None or versions.entries[0][1].parts == tuple(coded[position])


def test_a_received_whole_value_is_cut_into_elements_without_a_copy_of_it():
    value = Random(4).randbytes(16 * STRIPE_BYTES + 5)
    coded = coding_for(EC).encode(value)
    part, size, element = memoryview(value), len(value), []

    def cut():
        element.extend((yield from _encoded(ABD, EC, size, {0: (part,)}, 1)))

    tracemalloc.start()
    try:
        list(cut())
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert element == list(coded[1])
    assert peak_bytes < size * 3 / 4


def test_where_elements_are_the_same_each_server_asks_the_one_at_its_position():
    asked = []

    def watch(source, target, message):
        if isinstance(message, GetData) and message.element and message.wanted is not None:
            asked.append((source, target))

    world, _, configuration = moved(EC, EC_MOVED, watch=watch)
    of = {asker: server for server, asker in world.askers.items()}
    assert {(of[asker], target) for asker, target in asked} <= set(
        zip(configuration.server_ids, EC.server_ids, strict=True)
    )


def test_what_servers_cannot_get_the_mover_carries():
    world = ProtocolWorld(EC.at(DEFAULT_DOMAIN, 0), range(8))
    writer, mover = world.client(), world.client()
    writer.run(write(writer.view, ObjectName("a"), LARGE))
    askers = list(world.askers.values())
    world.hold = lambda source, target, message: source in askers
    assert mover.run(reconfigure(mover.view, EC_MOVED, BY_SERVERS), idle=True).moved == 1
    world.hold = lambda *_: False
    reader = world.client()
    assert reader.run(read(reader.view, ObjectName("a"))).value == LARGE


def test_values_beyond_a_lowered_limit_do_not_end_the_way_between_servers():
    """Check that the mover names these values, and that servers bring all further values."""
    world = ProtocolWorld(ABD.at(DEFAULT_DOMAIN, 0), range(8), seed=3)
    writer, mover, puts = world.client(), world.client(), []
    for number in range(NOT_BROUGHT_MAX + 1):
        writer.run(write(writer.view, ObjectName(f"beyond {number}"), LARGE))
    writer.run(write(writer.view, ObjectName("within"), LARGE[:-1]))
    for replica in world.replicas.values():
        replica._parts = ReplicaParts(value_bytes=len(LARGE) - 1)

    def watch(source, target, message):
        if source is mover and isinstance(message, PutData):
            puts.append(message.object)

    world.watch = watch
    with pytest.raises(ObjectsStuck) as stuck:
        mover.run(reconfigure(mover.view, ABD_MOVED, BY_SERVERS), idle=True)
    assert len(stuck.value.objects) == NOT_BROUGHT_MAX + 1
    assert ObjectName("within") not in puts


# -- a server's part -------------------------------------------------------------------------------


class PullingServer:
    """s5, with the received orders to fetch: ``fetches`` are (request, done)."""

    def __init__(self, **more) -> None:
        self.source, self.target = (
            ABD.at(DEFAULT_DOMAIN, 0),
            ABD_MOVED.at(DEFAULT_DOMAIN, 1, ABD.at(DEFAULT_DOMAIN, 0).id),
        )
        server = servers(5)[0]
        self.replica = Replica(server.id, server.identity, self.source, **more)
        assert self.replica.introduce(self.target) is None
        self.fetches, self.answers, self.fetch, self.crowded = [], [], None, False
        self.bringing = ElementPuller(
            self.replica, self._put, self._respond, self._fetch, lambda: self.crowded
        )

    def _respond(self, sender, replies):
        self.answers.extend((sender, reply) for reply in replies)

    def _put(self, sender, put):
        self.answers.append((sender, self.replica.handle(put)))

    def _fetch(self, request, target, done):
        assert target == self.target
        if self.fetch is not None:
            self.fetch(request, target, done)
        else:
            self.fetches.append((request, done))

    def ask(self, object="a", call=1, sender="mover", **other):
        request = {
            "configuration": self.target.id,
            "object": ObjectName(object),
            "tag": TAG,
            "length": 3,
            "source": self.source,
        }
        return self.bringing.answer(sender, PullElement(CallId(call), **(request | other)))

    def element(self, object="a", data=b"abc"):
        return sealed(self.target.id, ObjectName(object), TAG, 0, len(data), (data,))


def test_a_version_is_fetched_once_for_all_that_ask_and_stored_as_if_put():
    server = PullingServer()
    assert [server.ask(call=1), server.ask(call=1), server.ask(call=2, sender="another")] == [
        None
    ] * 3
    [(_, done)] = server.fetches
    done(server.element(), "")
    assert server.answers == [("mover", Ack(CallId(1), None)), ("another", Ack(CallId(2), None))]
    assert server.ask(call=3) == Ack(CallId(3), None), "it is here"
    assert len(server.fetches) == 1


def test_what_cannot_be_had_is_refused_and_asked_for_once_more_later():
    server = PullingServer()
    server.ask()
    server.fetches[0][1](None, "nobody has it")
    [(_, reply)] = server.answers
    assert isinstance(reply, Refused)
    assert reply.reason is Reason.NOT_BROUGHT
    assert reply.detail == "nobody has it"
    server.ask()
    assert len(server.fetches) == 2


def test_an_element_that_does_not_belong_here_is_refused_as_if_put():
    server = PullingServer()
    server.ask()
    server.fetches[0][1](server.element("another"), "")
    assert server.answers[0][1].reason is Reason.BAD_ELEMENT


def test_what_no_mover_asks_begins_nothing():
    server = PullingServer()
    assert server.ask(configuration=b"?" * 16).reason is Reason.UNKNOWN_CONFIGURATION
    for source in (
        server.target,
        ABD.at(DEFAULT_DOMAIN, -1, server.source.id),
        ABD.at(DEFAULT_DOMAIN, -1),
        ABD.at("elsewhere", 0),
        ABD.at(DEFAULT_DOMAIN, 0, b"another cluster!"),
        ABD_MOVED.at(DEFAULT_DOMAIN, 2, server.source.id),
    ):
        assert server.ask(source=source).reason is Reason.BAD_REQUEST
    assert server.ask(length=-1).reason is Reason.BAD_REQUEST
    assert server.fetches == []


def test_a_version_beyond_the_server_s_limit_is_refused_before_it_is_fetched(caplog):
    server = PullingServer(parts=ReplicaParts(value_bytes=10))
    assert server.ask("a", length=10) is None
    replies = [server.ask("b", length=11) for _ in range(3)]
    assert [reply.reason for reply in replies] == [Reason.BAD_ELEMENT] * 3
    assert "a value of 11 bytes" in replies[0].detail
    assert [request.object for request, _ in server.fetches] == ["a"]
    assert len(caplog.records) == 2, "the first and the second"


def test_what_is_fetched_at_once_and_what_waits_is_bounded():
    server = PullingServer()
    refused = [server.ask(f"o{number}") for number in range(PULLS_WAITING_MAX + 3)]
    assert len(server.fetches) == PULLS_AT_ONCE
    assert [reply.reason for reply in refused if reply is not None] == [Reason.NOT_BROUGHT] * 3
    movers = [server.ask("o0", sender=f"mover {number}") for number in range(PULL_SENDERS_MAX)]
    assert [reply.reason for reply in movers if reply is not None] == [Reason.NOT_BROUGHT]
    while server.fetches:
        server.fetches.pop()[1](None, "gone")
    assert len(server.answers) == PULLS_WAITING_MAX + PULL_SENDERS_MAX - 1, "each got its answer"


def test_fetches_that_are_refused_at_once_leave_no_slot_taken():
    server = PullingServer()
    for number in range(PULLS_AT_ONCE):
        server.ask(f"slow{number}")
    slow, server.fetches = server.fetches, []
    server.fetch = lambda request, target, done: done(None, "nobody there")
    for number in range(200):
        server.ask(f"o{number}")
    slow[0][1](None, "gone")
    assert len(server.answers) == 201
    server.fetch = None
    server.ask("another")
    assert len(server.fetches) == 1


def test_nothing_is_fetched_while_the_disk_has_too_much_to_do():
    server = PullingServer()
    server.crowded = True
    server.ask()
    assert server.fetches == []
    server.crowded = False
    server.bringing.begin()
    assert len(server.fetches) == 1


def test_what_the_mover_carried_meanwhile_is_not_fetched():
    server = PullingServer()
    for number in range(PULLS_AT_ONCE):
        server.ask(f"slow{number}")
    server.ask("a")
    assert isinstance(
        server.replica.handle(
            PutData(CallId(9), server.target.id, ObjectName("a"), TAG, server.element())
        ),
        Ack,
    )
    server.fetches[0][1](None, "gone")
    assert len(server.fetches) == PULLS_AT_ONCE


def test_a_length_that_no_element_can_have_is_not_worked_on():
    """Check the claims of a server about an element before memory is used."""
    huge = sealed(ABD.at(DEFAULT_DOMAIN, 0).id, ObjectName("a"), TAG, 0, 1 << 60, (b"x",))
    target = EC_MOVED.at(DEFAULT_DOMAIN, 1)
    request = PullElement(1, target.id, ObjectName("a"), TAG, 1 << 60, ABD.at(DEFAULT_DOMAIN, 0))
    bringing = bring_element(request, target, "s5")
    effect, found = next(bringing), "nothing yet"
    while isinstance(effect, Gather):
        try:
            effect = bringing.send(
                {
                    server: DataReply(CallId(1), (TAG,), 1 << 60, TAG, huge, None)
                    for server in effect.to
                }
            )
        except StopIteration as end:
            effect, found = None, end.value
    assert found is None


def test_large_values_are_fetched_one_after_the_other():
    server = PullingServer()
    for number in range(3):
        server.ask(f"o{number}", length=PULLED_BYTES_AT_ONCE - 1)
    assert len(server.fetches) == 1
    server.fetches[0][1](None, "gone")
    assert len(server.fetches) == 2
