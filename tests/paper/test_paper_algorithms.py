"""Lines of Algorithms 1 to 5 of ARES II (section 5), each in a world where it matters.

The module also shows the published piggyback, which loses a write.
"""

import pytest

from ares.dap.primitives import DataAccess
from ares.model.configuration import Configuration, Status, Successor
from ares.model.identity import DEFAULT_DOMAIN
from ares.model.messages import (
    CollectConfig,
    GetData,
    GetTag,
    ListObjects,
    PutData,
    ReadConfig,
    WriteConfig,
)
from ares.model.tag import Tag
from ares.reconfig import listing
from ares.reconfig.reconfigure import reconfigure
from ares.reconfig.traversal import get_next_config, put_config, read_config
from ares.reconfig.view import Switches
from ares.registers.operations import read, write
from tests.protocol.protocol_world import CARRIED, ProtocolWorld, servers

from .schedules import Done, broken_atomicity, cseq

ABD = Configuration.abd(servers(0, 1, 2))
C0 = ABD.at(DEFAULT_DOMAIN, 0)
EC = Configuration.ec(servers(2, 3, 4, 5, 6), 3, 2)
LATER = Configuration.abd(servers(4, 5, 6))


@pytest.fixture
def world():
    return ProtocolWorld(C0, range(7), switches=CARRIED)


def drain(world):
    while world.step():
        pass


def kinds(world, client, operation):
    """Return the kinds of requests of the operation, by configuration index.

    The order is the order of first arrivals.
    """
    seen = []

    def watch(source, target, message):
        if source is client and not isinstance(target, type(client)):
            kind = type(message).__name__
            if not seen or seen[-1] != kind:
                seen.append(kind)

    drain(world)
    world.watch = watch
    client.run(operation)
    world.watch = lambda *_: None
    return seen


def test_algorithm_1_a_write_is_one_query_and_one_put(world):
    """Alg. 1:8, Alg. 1:21: with the piggyback neither phase of a write needs a read-config round.

    Plain ARES makes a round before and a round after.
    """
    client, plain = world.client(), world.client(Switches(piggyback=False))
    assert kinds(world, client, write(client.view, "k", b"v")) == ["GetTag", "PutData"]
    assert set(kinds(world, plain, write(plain.view, "k", b"v"))) == {
        "ReadConfig",
        "GetTag",
        "PutData",
    }


def test_algorithm_1_a_read_is_one_query_and_one_put(world):
    """Alg. 1:32, Alg. 1:44: with the piggyback no phase of a read needs a read-config round."""
    client = world.client(Switches(fast_read=False))
    plain = world.client(Switches(fast_read=False, piggyback=False))
    client.run(write(client.view, "k", b"v"))
    assert kinds(world, client, read(client.view, "k")) == ["GetData", "PutData"]
    asked = kinds(world, plain, read(plain.view, "k"))
    assert asked == ["ReadConfig", "GetData", "PutData", "ReadConfig"]


@pytest.mark.parametrize("operation", ["read", "write"])
def test_algorithm_1_lines_17_to_20_the_value_goes_to_the_last_known_configuration_alone(
    world, operation
):
    """Alg. 1:17-20, Alg. 1:40-43."""
    mover, client = world.client(), world.client(Switches(fast_read=False))
    client.run(write(client.view, "k", b"v"))
    world.hold = lambda source, target, message: source is mover and isinstance(message, PutData)
    mover.start(reconfigure(mover.view, EC))
    drain(world)
    client.run(read(client.view, "k"))
    assert client.view.sequence.last_finalized == C0
    put = set()
    world.watch = lambda source, target, message: (
        put.add(message.configuration)
        if source is client and isinstance(message, PutData)
        else None
    )
    client.run(read(client.view, "k") if operation == "read" else write(client.view, "k", b"w"))
    assert put == {client.view.sequence.last_known.id} != {C0.id}


def test_algorithm_1_line_16_the_new_tag_is_above_the_highest_and_the_writers_own(world):
    """Alg. 1:13, Alg. 1:16."""
    first, second = world.client(), world.client()
    tags = [client.run(write(client.view, "k", b"v")) for client in (first, second, second, first)]
    assert tags == [Tag(1, first.id), Tag(2, second.id), Tag(3, second.id), Tag(4, first.id)]


def test_algorithm_1_lines_11_to_15_the_query_goes_on_until_no_server_knows_a_successor(world):
    """Alg. 1:9-10, Alg. 1:11-15: every configuration from the last finalized on is asked."""
    mover, client = world.client(), world.client()
    world.hold = lambda source, target, message: source is mover and isinstance(message, PutData)
    client.run(write(client.view, "k", b"v"))
    mover.start(reconfigure(mover.view, EC))
    drain(world)
    asked = set()
    world.watch = lambda source, target, message: (
        asked.add(message.configuration)
        if source is client and isinstance(message, GetTag)
        else None
    )
    tag = client.run(write(client.view, "k", b"w"))
    assert asked == {C0.id, client.view.sequence.last_known.id}
    assert client.view.sequence.last_known.index == 1
    assert tag.number == 2


def test_algorithm_2_lines_1_to_12_the_finalized_successor_with_the_highest_index_is_followed(
    world,
):
    """Alg. 2:4-7, Alg. 2:18-26: after gc-config, servers may point at different configurations."""
    targets = [
        Successor(content.at(DEFAULT_DOMAIN, index, C0.id), Status.FINALIZED)
        for index, content in ((1, EC), (3, LATER))
    ]
    for name, target in zip(("s0", "s1"), targets, strict=True):
        world.replicas[name].hosted[C0.id].install(target)
    world.down = {"s2"}
    client = world.client()
    assert client.run(get_next_config(C0)) == targets[1]
    client.run(read_config(client.view))
    assert client.view.sequence.last_finalized == targets[1].configuration


def test_algorithm_2_line_3_a_successor_is_put_to_the_configuration_that_named_it(world):
    """Alg. 2:1-3, Alg. 2:16-17: the printed lastC is the last known configuration.

    The configuration that was asked is another one as soon as the client knows a pending successor.
    """
    between = Successor(EC.at(DEFAULT_DOMAIN, 1, C0.id), Status.PENDING)
    later = Successor(LATER.at(DEFAULT_DOMAIN, 2, C0.id), Status.FINALIZED)
    client = world.client()
    client.view.sequence.add(C0, between)
    world.replicas["s1"].hosted[C0.id].install(later)
    world.down = {"s0"}
    told = set()
    world.watch = lambda source, target, message: (
        told.add((message.configuration, message.successor))
        if isinstance(message, WriteConfig)
        else None
    )
    client.run(read(client.view, "k"))
    assert told == {(C0.id, later)}
    assert client.view.sequence.last_finalized == later.configuration


def test_algorithm_2_line_15_what_was_found_is_put_to_a_quorum_before_it_is_followed(world):
    """Alg. 2:15."""
    found = Successor(LATER.at(DEFAULT_DOMAIN, 1, C0.id), Status.PENDING)
    world.replicas["s1"].hosted[C0.id].install(found)
    world.down = {"s0"}
    client = world.client()
    client.run(read(client.view, "k"))
    assert [world.replicas[name].hosted[C0.id].successor for name in ("s1", "s2")] == [found, found]


def test_algorithm_3_line_17_values_of_a_configuration_with_a_finalized_successor_are_not_used(
    world,
):
    """Alg. 3:17-20, Alg. 4:10-13: the reader gets bottom in this configuration.

    The reader does not use it, and reads on (Alg. 1:37).
    """
    client, mover, reader = world.client(), world.client(Switches(gc=False)), world.client()
    client.run(write(client.view, "k", b"v"))
    mover.run(reconfigure(mover.view, EC))
    while world.step():
        pass
    stale = world.replicas["s0"].handle(GetData(1, C0.id, "k", True))
    assert (stale.element, stale.successor.finalized) == (None, True)
    assert reader.run(read(reader.view, "k")).value == b"v"


def test_algorithm_4_line_18_a_collected_server_acknowledges_without_storing(world):
    """Alg. 4:16-18, Alg. 4:26-27: the answer names the successor.

    The writer goes to the successor (Alg. 1:19-20, Alg. 1:22-23).
    """
    late, mover, reader = world.client(), world.client(), world.client()
    world.hold = lambda source, target, message: (
        source is late and isinstance(message, PutData) and message.configuration == C0.id
    )
    pending = late.start(write(late.view, "k", b"late"))
    drain(world)
    mover.run(reconfigure(mover.view, EC))
    world.hold = lambda *_: False
    drain(world)
    world.until(lambda: pending.ended)
    assert all(world.replicas[name].hosted[C0.id].bytes == 0 for name in C0.server_ids)
    assert reader.run(read(reader.view, "k")).value == b"late"


def test_algorithm_5_reconfig_asks_moves_finalizes_and_collects_in_this_order(world):
    """Alg. 5:8-13, Alg. 5:37-42."""
    client = world.client()
    client.run(write(client.view, "k", b"v"))
    seen = kinds(world, client, reconfigure(client.view, EC))
    order = [
        seen.index(kind)
        for kind in ("ReadConfig", "WriteConfig", "ListObjects", "GetData", "PutData")
    ]
    assert order == sorted(order)
    assert seen.index("CollectConfig") > len(seen) - 1 - seen[::-1].index("PutData")
    pointers = [world.replicas[name].hosted[C0.id].successor for name in C0.server_ids]
    assert sum(pointer is not None and pointer.finalized for pointer in pointers) >= C0.quorum_size
    assert seen.index("Finalize") > len(seen) - 1 - seen[::-1].index("WriteConfig"), (
        "ours: the new servers may name it from then on (R21)"
    )
    assert {
        kind.__name__
        for kind in (ReadConfig, WriteConfig, ListObjects, GetData, PutData, CollectConfig)
    } >= set(seen) - {
        "Introduce",
        "Finalize",
    }


def test_algorithm_5_lines_23_to_36_the_maximum_over_all_configurations_moves(world):
    """Alg. 5:29-35: the next reconfiguration keeps a value written in a pending configuration."""
    dead, writer, mover, reader = (world.client() for _ in range(4))
    writer.run(write(writer.view, "k", b"old"))
    world.hold = lambda source, target, message: source is dead and isinstance(message, PutData)
    dead.start(reconfigure(dead.view, EC))
    drain(world)
    dead.dead = True
    tag = writer.run(write(writer.view, "k", b"new"))
    result = mover.run(reconfigure(mover.view, LATER))
    assert result.configuration.index == 2
    found = reader.run(read(reader.view, "k"))
    assert (found.tag, found.value) == (tag, b"new")


def test_algorithm_5_a_mover_overtaken_half_way_moves_everything_all_the_same(world):
    """Alg. 5:23-36: the mover stalls in a retired configuration.

    Another client finalizes the configuration between; the mover goes on from this configuration.
    """
    writer, first, second, reader = (world.client() for _ in range(4))
    tag = writer.run(write(writer.view, "k", b"v"))

    def first_waits(source, target, message):
        return source is first and isinstance(message, PutData)

    def second_stalls(source, target, message):
        return source is second and isinstance(message, GetData) and message.configuration == C0.id

    world.hold = first_waits
    between = first.start(reconfigure(first.view, EC), idle=True)
    drain(world)
    world.hold = lambda *flight: first_waits(*flight) or second_stalls(*flight)
    last = second.start(reconfigure(second.view, LATER), idle=True)
    drain(world)
    world.hold = second_stalls
    world.until(lambda: between.ended and last.ended)
    assert (between.result().configuration.index, last.result().configuration.index) == (1, 2)
    found = reader.run(read(reader.view, "k"))
    assert (found.tag, found.value) == (tag, b"v")


def finalizes(message):
    return isinstance(message, WriteConfig) and message.successor.finalized


@pytest.mark.parametrize(
    "switches", [Switches(), Switches(piggyback=False)], ids=["piggyback", "plain"]
)
@pytest.mark.parametrize("operation", ["read", "write"])
def test_algorithm_1_a_query_overtaken_half_way_asks_every_later_configuration(
    world, switches, operation
):
    """The reader stalls in a configuration that is retired at this time.

    See Alg. 1:9-10, Alg. 1:11-15, Alg. 1:33-34, Alg. 1:35-39.
    The value written in the last, still pending configuration counts.
    """
    late, first, second, writer = (
        world.client(switches),
        world.client(),
        world.client(),
        world.client(),
    )
    world.hold = lambda source, target, message: source in (first, second) and finalizes(message)
    between = first.start(reconfigure(first.view, EC), idle=True)
    drain(world)
    second.start(reconfigure(second.view, LATER), idle=True)
    drain(world)
    tag = writer.run(write(writer.view, "k", b"v"))
    assert writer.view.sequence.last_known.index == 2

    def stalls(source, target, message):
        return (
            source is late
            and isinstance(message, GetData | GetTag)
            and message.configuration == C0.id
        )

    world.hold = lambda *flight: stalls(*flight) or (flight[0] is second and finalizes(flight[2]))
    pending = late.start(
        read(late.view, "k") if operation == "read" else write(late.view, "k", b"w")
    )
    world.until(lambda: between.ended and pending.ended)
    assert between.result().configuration.index == 1
    if operation == "read":
        assert (pending.result().tag, pending.result().value) == (tag, b"v")
    else:
        assert pending.result() > tag


# -- negative control: the piggyback as published --------------------------------------------------


def as_published(monkeypatch):
    """Remove rule R1, as in section 5: requests that move data carry no successor.

    Only put-config tells of the successor.
    """
    true_page, true_version, true_data = (
        listing.list_page,
        DataAccess.get_version,
        DataAccess.get_data,
    )
    monkeypatch.setattr(
        "ares.reconfig.mover.list_page",
        lambda configuration, after, carry=None: true_page(configuration, after),
    )
    monkeypatch.setattr(
        DataAccess,
        "get_version",
        lambda self, object, carry=None, effort=None: true_version(self, object),
    )
    monkeypatch.setattr(
        DataAccess,
        "get_data",
        lambda self, object, carry=None, effort=None, needed=None: true_data(
            self, object, needed=needed
        ),
    )


def counterexample():
    """Return the history of the visible operations of the counterexample.

    A writer's message reaches s1 after the mover looked at s1 and before put-config does.
    """
    world = ProtocolWorld(C0, range(7), switches=CARRIED)
    writer, mover, reader = world.client(), world.client(), world.client()
    first = writer.run(write(writer.view, "k", b"old"))
    world.hold = lambda source, target, message: (
        source is writer and isinstance(message, PutData) and target != "s0"
    )
    pending = writer.start(write(writer.view, "k", b"new"))
    drain(world)

    def hold(source, target, message):
        if source is writer and isinstance(message, PutData) and message.configuration == C0.id:
            return target != "s0"
        if source is mover and isinstance(message, WriteConfig | CollectConfig):
            return target == "s1"
        return (
            source is mover
            and isinstance(message, GetData | ListObjects)
            and target == "s0"
            and message.configuration == C0.id
        )

    world.hold = hold
    mover.run(reconfigure(mover.view, EC))
    held = world.hold
    world.hold = lambda source, target, message: (
        held(source, target, message) and not (isinstance(message, PutData) and target == "s1")
    )
    drain(world)
    world.hold = lambda *_: False
    world.until(lambda: pending.ended)
    found = reader.run(read(reader.view, "k"))
    return [
        Done(writer.id, "write", "k", 0, 1, first, b"old", cseq(writer)),
        Done(writer.id, "write", "k", 2, 3, pending.result(), b"new", cseq(writer)),
        Done(reader.id, "read", "k", 4, 5, found.tag, found.value, cseq(reader)),
    ]


def test_the_published_piggyback_loses_a_completed_write_and_the_checker_says_so(monkeypatch):
    """Section 5.1: each server is checked only when it stores the value, which is not enough."""
    as_published(monkeypatch)
    history = counterexample()
    assert [done.value for done in history] == [b"old", b"new", b"old"]
    assert any("goes back behind" in sentence for sentence in broken_atomicity(history))


def test_with_rule_r1_the_same_schedule_is_atomic():
    """The messages and their order are the same, with the successor in messages that move data."""
    history = counterexample()
    assert history[-1].value == b"new"
    assert broken_atomicity(history) == []


def test_put_config_and_get_next_config_meet_in_a_quorum(world):
    """Alg. 2:27-36, Alg. 4:28-35."""
    first, second = world.client(), world.client()
    successor = Successor(LATER.at(DEFAULT_DOMAIN, 1, C0.id), Status.PENDING)
    for down, other in (("s0", "s1"), ("s1", "s2"), ("s2", "s0")):
        world.down = {down}
        first.run(put_config(C0, successor))
        world.down = {other}
        assert second.run(get_next_config(C0)) == successor
