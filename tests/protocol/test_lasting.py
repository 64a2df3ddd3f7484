"""Reads of versions that a quorum had before it heard of a successor.

While a domain moves, such a version is read and not written back (ares/registers/operations.py).
"""

from collections.abc import Callable
from contextlib import nullcontext
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from ares.model.configuration import Configuration, Status, Successor
from ares.model.element import sealed
from ares.model.identity import DEFAULT_DOMAIN, CallId, ClientId, ObjectName
from ares.model.messages import DataReply, GetData, PutData
from ares.model.tag import Tag
from ares.reconfig.reconfigure import reconfigure
from ares.reconfig.view import Switches
from ares.registers.operations import read, stat, write
from ares.replica.configuration_state import ConfigurationState
from ares.replica.facts import ConfigurationUsage, JournalUsage
from ares.replica.object_table import PythonObjectTable
from tests.protocol.protocol_world import CARRIED, ProtocolClient, ProtocolWorld, servers
from tests.protocol.test_side_by_side import C0, NEW, drain, pending_move

ABD0 = Configuration.abd(servers(0, 1, 2)).at(DEFAULT_DOMAIN, 0)
EC0 = Configuration.ec(servers(0, 1, 2, 3), 2, 3).at(DEFAULT_DOMAIN, 0)
TARGETS = [Configuration.abd(servers(3, 4, 5)), Configuration.ec(servers(4, 5, 6, 7), 2, 3)]
NEXT = Successor(TARGETS[0].at(DEFAULT_DOMAIN, 1, ABD0.cluster_id), Status.PENDING)
KEY = ObjectName("k")
STEPS_MAX = 1500

READERS_MAX = 5


def preceding_whatever_came_when() -> Any:
    """Make servers claim that every version is older than their knowledge of a successor."""
    get_data = ConfigurationState.get_data

    def careless(self: ConfigurationState, request: GetData) -> DataReply:
        return msgspec.structs.replace(get_data(self, request), preceding=True)

    return patch.object(ConfigurationState, "get_data", careless)


class Schedule:
    """A write whose messages come late or never, beside moves and sequential new readers."""

    def __init__(self, seed: int) -> None:
        initial = EC0 if seed % 3 == 0 else ABD0
        self.world = ProtocolWorld(initial, range(8), seed)
        self.rng = self.world.rng
        self.targets = TARGETS[: 1 + seed % 2]
        self.floor = self._client_run(lambda client: write(client.view, KEY, b"0"))
        self.writer, self.mover = self.world.client(), self.world.client(CARRIED)
        self.world.hold, self.world.watch = self._late(self.rng, initial)

    def _client_run(self, operation: Callable[[ProtocolClient], Any]) -> Tag:
        client = self.world.client()
        tag: Tag = client.run(operation(client))
        return tag

    def _late(
        self, rng: Random, initial: Configuration
    ) -> tuple[Callable[..., bool], Callable[..., None]]:
        fates = {
            server: rng.choice(["at once", "after the mover", "after the mover", "never"])
            for server in initial.server_ids
        }
        dies = rng.random() < 0.8
        looked = set()

        def hold(source: Any, target: Any, message: Any) -> bool:
            if source is not self.writer or not isinstance(message, PutData):
                return False
            if message.configuration != initial.id:
                return dies
            return fates[target] == "never" or (
                fates[target] == "after the mover" and target not in looked
            )

        def watch(source: Any, target: Any, message: Any) -> None:
            if source is self.mover and isinstance(message, GetData):
                looked.add(target)

        return hold, watch

    def went_back(self) -> bool:
        """Return whether a read found less than an earlier read or the write."""
        writing = self.writer.start(write(self.writer.view, KEY, b"1"))
        moving = reading = None
        moves_at, reads_at, readers = self.rng.randrange(20), self.rng.randrange(60), 0
        for step in range(STEPS_MAX):
            moved = moving is not None and moving.ended
            if self.targets and ((moving is None and step >= moves_at) or moved):
                moving = self.mover.start(
                    reconfigure(self.mover.view, self.targets.pop(0)), idle=True
                )
            if reading is None and step >= reads_at:
                if readers == READERS_MAX or (readers > 2 and moved and not self.targets):
                    return False
                reader, readers = self.world.client(), readers + 1
                reading, floor = (
                    reader.start(read(reader.view, KEY)),
                    max(self.floor, writing.result() if writing.ended else self.floor),
                )
            if reading is not None and reading.ended:
                tag = reading.result().tag
                if tag < floor:
                    return True
                self.floor, reading = tag, None
            if not self.world.step() or self.rng.random() < 0.005:
                self.world.tick()
        return False


def test_no_read_goes_back_whatever_comes_late():
    assert [seed for seed in range(120) if Schedule(seed).went_back()] == []


def test_reads_go_back_if_servers_say_so_of_what_came_later():
    with preceding_whatever_came_when():
        assert any(Schedule(seed).went_back() for seed in range(60))


@pytest.mark.parametrize("fast", [True, False])
def test_what_a_move_will_take_along_is_not_written_back(fast):
    world, client, _, _, tag = pending_move()
    client.view.switches = Switches(fast_read=fast)
    puts = []
    world.watch = lambda source, target, message: (
        puts.append(message) if source is client and isinstance(message, PutData) else None
    )
    assert client.run(read(client.view, "k")).tag == tag
    assert bool(puts) is not fast


def test_stat_of_it_needs_no_read():
    world, client, _, _, tag = pending_move(bytes(100_000))
    elements = []
    world.watch = lambda source, target, message: (
        elements.append(message)
        if target is client and isinstance(message, DataReply) and message.element is not None
        else None
    )
    assert client.run(stat(client.view, "k")).tag == tag
    assert elements == []


@pytest.mark.parametrize("careless", [False, True])
def test_what_came_to_a_server_after_the_successor_is_written_back(careless):
    """A server has the version before the news of the successor, another server afterwards.

    The writer stops after this.
    """
    with preceding_whatever_came_when() if careless else nullcontext():
        world = ProtocolWorld(C0, range(7))
    client, writer, mover = world.client(), world.client(), world.client(CARRIED)
    tag = client.run(write(client.view, "k", b"v"))
    late, dead = {"s1", "s2"}, {"s2"}
    world.hold = lambda source, target, message: (
        isinstance(message, PutData)
        and (
            (source is writer and (target in late or message.configuration != C0.id))
            or source is mover
        )
    )
    writer.start(write(writer.view, "k", b"late"))
    drain(world)
    mover.start(reconfigure(mover.view, NEW))
    drain(world)
    late = dead
    drain(world)
    world.down = dead
    puts = []
    world.watch = lambda source, target, message: (
        puts.append(message) if source is client and isinstance(message, PutData) else None
    )
    assert client.run(read(client.view, "k")).tag > tag
    assert bool(puts) is not careless


# -- a server's claims ----------------------------------------------------------------------------


def put(object: str, number: int) -> PutData:
    tag = Tag(number, ClientId(1))
    return PutData(
        CallId(1),
        ABD0.id,
        ObjectName(object),
        tag,
        sealed(ABD0.id, ObjectName(object), tag, 0, 1, (b"v",)),
    )


def is_preceding(hosting: ConfigurationState, object: str) -> bool:
    return hosting.get_data(GetData(CallId(2), ABD0.id, ObjectName(object), True)).preceding


def test_a_server_knows_what_it_had_when_it_heard_of_a_successor():
    hosting = ConfigurationState(ABD0, 0)
    hosting.put_data(put("a", 1))
    hosting.put_data(put("b", 1))
    assert is_preceding(hosting, "a"), "it has heard of none"
    hosting.install(NEXT)
    hosting.put_data(put("b", 2))
    hosting.put_data(put("c", 1))
    assert [is_preceding(hosting, object) for object in "abc"] == [True, False, False]


def test_the_request_that_brings_the_successor_finds_what_was_there():
    hosting = ConfigurationState(ABD0, 0)
    hosting.put_data(put("a", 1))
    assert (
        hosting.get_data(GetData(CallId(2), ABD0.id, KEY, True, successor=NEXT)).successor == NEXT
    )
    assert is_preceding(hosting, "a")


@pytest.mark.parametrize("heard", [False, True])
def test_a_restarted_server_says_nothing_of_the_order_that_it_does_not_know(heard):
    """Facts are joined in any order.

    A journal's facts about the successor may be older or newer than the facts about the object.
    """
    table = PythonObjectTable(1, ConfigurationUsage(JournalUsage()))
    hosting = ConfigurationState(ABD0, 0, objects=table)
    hosting.begin_restoring()
    hosting.restore(put("a", 1), 1)
    if heard:
        hosting.install(NEXT)
    hosting.restored()
    assert is_preceding(hosting, "a") is not heard
