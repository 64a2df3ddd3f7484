"""Effects of a single undecodable object on a listing and a reconfiguration.

A listing has the object. A reconfiguration names the object, and moves all others.
"""

import pytest

from ares.model.configuration import Configuration
from ares.model.errors import ConnectionClosed, ObjectsStuck
from ares.model.identity import DEFAULT_DOMAIN
from ares.model.messages import PutData
from ares.reconfig.mover import MoveOptions
from ares.reconfig.reconfigure import reconfigure
from ares.reconfig.view import Switches
from ares.registers.operations import read, write
from ares.registers.survey import list_objects
from tests.protocol.protocol_world import CARRIED, ProtocolWorld, servers

EC = Configuration.ec(servers(0, 1, 2, 3, 4), 3, 1)
LATER = Configuration.abd(servers(4, 5, 6))
C0 = EC.at(DEFAULT_DOMAIN, 0)
TIMEOUT_S = 5.0
GOOD = [f"good{number}" for number in range(10)]


def drain(world):
    while world.step():
        pass


def partial(world, reach):
    """Start a write of `bad` to the servers of ``reach`` only, and kill the client."""
    writer = world.client()
    world.hold = lambda source, target, message: (
        isinstance(message, PutData) and target not in reach
    )
    writer.start(write(writer.view, "bad", b"partial"))
    drain(world)
    writer.dead, world.hold = True, lambda *_: False
    world.flights.clear()


@pytest.fixture
def world():
    """Make ten good objects, and `bad`.

    s4 lacks the last version of `bad`, s0 dropped this version for the versions of two dead
    writers, s3 is down.
    """
    world = ProtocolWorld(C0, range(7), switches=CARRIED)
    client = world.client()
    for name in [*GOOD, "bad"]:
        client.run(write(client.view, name, b"value"))
    drain(world)
    world.down = {"s4"}
    client.run(write(client.view, "bad", b"newest"))
    drain(world)
    world.down = set()
    world.flights.clear()
    partial(world, {"s0"})
    partial(world, {"s0"})
    world.down = {"s3"}
    return world


@pytest.mark.parametrize(
    "switches", [Switches(), Switches(False, False, False, False)], ids=["all", "none"]
)
def test_a_listing_has_it_and_is_not_held_up(world, switches):
    client = world.client(switches)
    began = world.now
    assert client.run(list_objects(client.view, "", ""), timeout_s=TIMEOUT_S, idle=True) == (
        ["bad", *GOOD],
        None,
    )
    assert world.now - began < 1.0
    world.down = set()
    assert client.run(list_objects(client.view, "", "")) == (["bad", *GOOD], None)


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("batch", [True, False])
def test_a_reconfiguration_moves_the_others_and_names_it(world, batch, skip):
    """A skip is refused, too: the silent server has the missing element."""
    client = world.client(Switches(batch=batch))
    told = []
    moving = reconfigure(client.view, LATER, MoveOptions(skip_undecodable=skip))
    with pytest.raises(
        ObjectsStuck, match=r"1 objects of domain 'default' cannot be moved.*nothing was lost"
    ) as caught:
        client.run(moving, timeout_s=TIMEOUT_S, idle=True, progress=told.append)
    assert caught.value.objects.keys() == {"bad"}
    assert "s3 did not answer, and may have the missing elements" in caught.value.objects["bad"]
    assert "--skip-undecodable" in str(caught.value)
    assert caught.value.may_have_taken_effect
    assert "the next reconfig finishes it" in caught.value.advice
    assert told[-1].moved == len(GOOD)
    assert not client.session.busy
    assert client.view.sequence.last_finalized == C0
    world.down = set()
    result = client.run(reconfigure(client.view, LATER), timeout_s=TIMEOUT_S, idle=True)
    assert (result.moved, result.skipped, result.left) == (1, len(GOOD), ())
    world.down = {"s0", "s1", "s2", "s3"}
    assert {client.run(read(client.view, name)).value for name in GOOD} == {b"value"}
    assert client.run(read(client.view, "bad")).value in (b"newest", b"partial")


def test_closing_during_update_config_says_that_it_may_have_taken_effect(world):
    client = world.client()
    world.down = set()
    world.hold = lambda source, target, message: isinstance(message, PutData)
    pending = client.start(reconfigure(client.view, LATER), idle=True)
    drain(world)
    client.session.close(ConnectionClosed)
    with pytest.raises(ConnectionClosed, match="configuration 1 is decided and pending") as caught:
        pending.result()
    assert caught.value.may_have_taken_effect
    assert not client.session.busy


def test_closing_before_anything_was_proposed_says_that_nothing_was_changed(world):
    client = world.client()
    pending = client.start(reconfigure(client.view, LATER), idle=True)
    client.session.close(ConnectionClosed)
    with pytest.raises(ConnectionClosed, match="nothing was changed") as caught:
        pending.result()
    assert not caught.value.may_have_taken_effect
    assert world.decisions.count == 0
