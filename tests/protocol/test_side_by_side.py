"""Operations while a successor is known and not finalized (ares/registers/operations.py).

An operation asks all configurations that it knows at the same time.
"""

from unittest.mock import patch

import pytest

from ares.engine.effects import Together
from ares.model.configuration import Configuration
from ares.model.identity import DEFAULT_DOMAIN
from ares.model.messages import (
    CollectConfig,
    DataReply,
    GetData,
    GetTag,
    ListObjects,
    PutData,
    TagReply,
    WriteConfig,
)
from ares.reconfig.reconfigure import reconfigure
from ares.reconfig.traversal import read_config
from ares.reconfig.view import Switches
from ares.registers.operations import delete, read, write
from ares.registers.survey import list_objects
from tests.protocol.protocol_world import CARRIED, ProtocolWorld, servers
from tests.simulation.controls import early_answers_that_count

OLD, NEW = Configuration.abd(servers(0, 1, 2)), Configuration.ec(servers(2, 3, 4, 5, 6), 3, 2)
LAST = Configuration.abd(servers(0, 1, 2), allow_no_faults=True)
C0 = OLD.at(DEFAULT_DOMAIN, 0)


def drain(world):
    while world.step():
        pass


def pending_move(value=b"v"):
    """Make a world with an object whose mover has told a quorum of the successor.

    A client knows both configurations.
    """
    world = ProtocolWorld(C0, range(7))
    client, mover = world.client(), world.client(CARRIED)
    tag = client.run(write(client.view, "k", value))

    def stalls(source, target, message):
        return source is mover and (
            isinstance(message, PutData)
            or (isinstance(message, WriteConfig) and message.successor.finalized)
        )

    world.hold = stalls
    moving = mover.start(reconfigure(mover.view, NEW))
    drain(world)
    client.run(read_config(client.view))
    assert len(client.view.sequence.active) == 2
    return world, client, mover, moving, tag


@pytest.mark.parametrize("operation", ["read", "write"])
def test_both_are_asked_before_either_has_answered(operation):
    """Alg. 1:11-15, Alg. 1:35-39."""
    world, client, _, _, _ = pending_move()
    stalls = world.hold
    world.hold = lambda *flight: stalls(*flight) or flight[1] is client
    asked = set()
    world.watch = lambda source, target, message: (
        asked.add(message.configuration) if isinstance(message, GetData | GetTag) else None
    )
    client.start(read(client.view, "k") if operation == "read" else write(client.view, "k", b"w"))
    drain(world)
    assert asked == {configuration.id for configuration in client.view.sequence.active}


def test_one_configuration_is_asked_without_a_fan():
    world = ProtocolWorld(C0, range(7))
    client = world.client()
    effects = read(client.view, "k")
    assert not isinstance(next(effects), Together)


@pytest.mark.parametrize("operation", ["read", "write"])
@pytest.mark.parametrize("broken", [False, True])
def test_an_answer_from_before_the_data_came_is_asked_for_again_when_they_have_moved(
    operation, broken
):
    """The new configuration answers at once, and has no value (Alg. 1:11-15, Alg. 1:35-39).

    The old configuration is asked after all objects were moved, finalized and collected.
    """
    world, client, _, moving, tag = pending_move()
    stalls = world.hold

    def old_is_late(source, target, message):
        return (
            source is client
            and isinstance(message, GetData | GetTag)
            and message.configuration == C0.id
        )

    world.hold = lambda *flight: stalls(*flight) or old_is_late(*flight)
    early = []
    world.watch = lambda source, target, message: (
        early.append(message)
        if isinstance(message, DataReply | TagReply) and target is client
        else None
    )
    with early_answers_that_count() if broken else patch.dict({}):
        pending = client.start(
            read(client.view, "k") if operation == "read" else write(client.view, "k", b"w")
        )
        drain(world)
        assert early, "the new one has answered"
        world.hold = old_is_late
        world.until(lambda: moving.ended)
        drain(world)
        world.hold = lambda *_: False
        world.until(lambda: pending.ended)
    result = pending.result()
    if operation == "read":
        assert (result.tag == tag) is not broken
    else:
        assert (result > tag) is not broken


def test_an_old_one_that_is_gone_is_no_obstacle():
    """The old servers die while they are asked.

    The consensus service names the new configuration, which is asked again.
    """
    world, client, _, moving, tag = pending_move()
    stalls = world.hold

    def old_is_late(source, target, message):
        return source is client and getattr(message, "configuration", None) == C0.id

    world.hold = lambda *flight: stalls(*flight) or old_is_late(*flight)
    pending = client.start(read(client.view, "k"))
    drain(world)
    world.hold = old_is_late
    world.until(lambda: moving.ended)
    drain(world)
    world.down = {"s0", "s1"}
    world.hold = lambda *_: False
    world.until(lambda: pending.ended)
    assert (pending.result().tag, pending.result().value) == (tag, b"v")


def passed_over():
    """Make a world with a client that knows c1, which was only ever pending.

    c2 is finalized. The servers of c1 and the consensus service are gone.
    """
    world, client, mover, _, tag = pending_move()
    mover.dead = True
    world.flights.clear()
    world.hold = lambda *_: False
    second = world.client()
    second.run(reconfigure(second.view, LAST))
    drain(world)
    assert [configuration.index for configuration in client.view.sequence.active] == [0, 1]
    world.down, world.consensus_up = {"s3", "s4", "s5", "s6"}, False
    return world, client, tag


@pytest.mark.parametrize("switches", [Switches(), Switches(piggyback=False)])
@pytest.mark.parametrize("operation", ["read", "write", "delete", "list"])
def test_a_configuration_that_was_passed_over_and_is_gone_is_no_obstacle(operation, switches):
    _, client, tag = passed_over()
    client.view.switches = switches
    make = {
        "read": lambda: read(client.view, "k"),
        "write": lambda: write(client.view, "k", b"w"),
        "delete": lambda: delete(client.view, "k"),
        "list": lambda: list_objects(client.view, "", ""),
    }[operation]
    result = client.run(make(), timeout_s=5.0)
    assert {"read": lambda: result.tag == tag, "list": lambda: result == (["k"], None)}.get(
        operation, lambda: result > tag
    )()


def test_a_mover_that_was_overtaken_does_not_wait_for_what_is_gone():
    """The mover stops when the target is decided, and another mover moves all objects there.

    The servers of an earlier source are gone afterwards.
    """
    world, client, first, _, tag = pending_move()
    first.dead = True
    world.flights.clear()
    world.hold = lambda source, target, message: source is slow and isinstance(message, ListObjects)
    slow, quick = world.client(), world.client()
    moving = slow.start(reconfigure(slow.view, LAST))
    drain(world)
    quick.run(reconfigure(quick.view, LAST))
    drain(world)
    world.down, world.hold = {"s3", "s4", "s5", "s6"}, lambda *_: False
    world.until(lambda: moving.ended)
    assert moving.result().configuration.index == 2
    assert client.run(read(client.view, "k")).tag == tag


@pytest.mark.parametrize(("value", "fetched"), [(b"small", False), (bytes(100_000), True)])
def test_a_small_object_moves_in_one_look_and_one_put(value, fetched):
    """A mover does not ask the new configuration for objects that it does not list.

    A small value comes with the first look.
    """
    world = ProtocolWorld(C0, range(7))
    client, mover = world.client(), world.client(CARRIED)
    client.run(write(client.view, "k", value))
    looks = []
    world.watch = lambda source, target, message: (
        looks.append(message) if source is mover and isinstance(message, GetData) else None
    )
    assert mover.run(reconfigure(mover.view, NEW)).moved == 1
    assert {look.configuration for look in looks} == {C0.id}
    assert any(look.element for look in looks) is fetched
    assert client.run(read(client.view, "k")).value == value


@pytest.mark.parametrize("ahead", [False, True])
def test_what_the_new_one_lists_already_is_looked_at_there_and_skipped(ahead):
    world, client, mover, _, tag = pending_move()
    client.run(read(client.view, "k"))
    mover.dead = True
    world.hold = lambda source, target, message: isinstance(message, CollectConfig)
    second = world.client(Switches(gc=False, ahead=ahead))
    result = second.run(reconfigure(second.view, NEW))
    assert (result.moved, result.skipped) == (0, 1)
    fresh = world.client()
    assert fresh.run(read(fresh.view, "k")).tag == tag
