"""Writes that servers refuse for want of room: the reported effect.

See ares/engine/session.py, operations.py.
"""

import itertools

import pytest

from ares.engine.jobs import ROUND_RESEND_S
from ares.model.configuration import Configuration
from ares.model.errors import Unavailable
from ares.model.identity import DEFAULT_DOMAIN
from ares.model.messages import PutData, ReadConfig, Reason, Refused
from ares.model.value import TOMBSTONE
from ares.reconfig.view import Switches
from ares.registers.coverable import write_versioned
from ares.registers.operations import delete, read, write
from ares.replica.replica import Replica
from tests.protocol.protocol_world import ProtocolWorld, servers

C0 = Configuration.abd(servers(0, 1, 2)).at(DEFAULT_DOMAIN, 0)
ADVICE = "may have taken effect"


class Full(Replica):
    """A replica that refuses the requests in ``refuses``."""

    refuses = PutData

    def handle(self, request):
        if isinstance(request, self.refuses):
            return Refused(request.call, Reason.STORAGE, "its disk is full")
        return super().handle(request)


def world_with(full, kind=Full, seed=0):
    world = ProtocolWorld(C0, range(3), seed)
    for server in servers(*full):
        world.replicas[server.id] = kind(server.id, server.identity, C0)
    return world


def failure_of(client, operation):
    with pytest.raises(Unavailable) as caught:
        client.run(operation, timeout_s=2)
    return caught.value


@pytest.mark.parametrize("seed", range(5))
def test_refused_by_all_changes_nothing(seed):
    world = world_with([0, 1, 2], seed=seed)
    client = world.client()
    for operation in (write(client.view, "k", b"v"), write_versioned(client.view, "k", b"v", None)):
        error = failure_of(client, operation)
        assert (error.may_have_taken_effect, error.missing) == (
            False,
            dict.fromkeys(("s0", "s1", "s2"), "its disk is full"),
        )
        assert "nothing was changed" in str(error)
    assert client.run(read(client.view, "k")).value is TOMBSTONE


@pytest.mark.parametrize("seed", range(5))
def test_one_that_stored_it_and_two_that_refuse(seed):
    world = world_with([0, 1], seed=seed)
    client = world.client()
    error = failure_of(client, write(client.view, "k", b"v"))
    assert ADVICE in str(error)
    assert error.may_have_taken_effect


def test_one_that_is_silent_may_have_stored_it():
    world = world_with([0, 1])
    client = world.client()
    world.down = {"s2"}
    assert failure_of(client, write(client.view, "k", b"v")).may_have_taken_effect
    assert world.now < ROUND_RESEND_S, "it is not waited for long"


def test_a_server_that_refuses_a_copy_may_have_stored_the_first():
    """The answer to the first copy was lost."""
    world = world_with([0, 1, 2])
    client = world.client()
    lost = itertools.count()
    real = {id: replica.handle for id, replica in world.replicas.items()}
    world.replicas["s0"].handle = lambda request: (
        None if isinstance(request, PutData) and not next(lost) else real["s0"](request)
    )
    assert failure_of(client, write(client.view, "k", b"v")).may_have_taken_effect


def test_it_may_have_taken_effect_when_a_later_round_is_refused():
    """Plain ARES reads the configuration once more after put-data."""

    class Late(Full):
        refuses = ()

        def handle(self, request):
            reply = super().handle(request)
            if isinstance(request, PutData):
                self.refuses = ReadConfig
            return reply

    world = world_with([0, 1, 2], Late)
    client = world.client(Switches(piggyback=False))
    assert failure_of(client, write(client.view, "k", b"v")).may_have_taken_effect


def test_a_delete_is_told_the_same():
    world = world_with([])
    client = world.client()
    client.run(write(client.view, "k", b"v"))
    for replica in world.replicas.values():
        replica.__class__ = Full
    assert not failure_of(client, delete(client.view, "k")).may_have_taken_effect
    assert client.run(read(client.view, "k")).value == b"v"
