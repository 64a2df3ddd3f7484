"""Edge cases: no answers, refusals everywhere, timeouts, and the wrong cluster file."""

import itertools

import pytest

from ares.engine.effects import Pause
from ares.engine.session import Session
from ares.model.configuration import Configuration
from ares.model.element import sealed
from ares.model.errors import ConfigurationRefused, Unavailable
from ares.model.identity import DEFAULT_DOMAIN
from ares.model.messages import Ack, GetData, GetTag, Introduce, PutData, Reason, Refused
from ares.model.tag import Tag
from ares.model.value import TOMBSTONE
from ares.reconfig.reconfigure import reconfigure
from ares.reconfig.view import Switches
from ares.registers.operations import read, write
from ares.registers.survey import describe_servers
from ares.replica.replica import Replica
from tests.protocol.protocol_world import CARRIED, ProtocolWorld, servers

ABD = Configuration.abd(servers(0, 1, 2))
EC = Configuration.ec(servers(2, 3, 4, 5, 6), 3, 2)
C0 = ABD.at(DEFAULT_DOMAIN, 0)


@pytest.fixture
def world():
    return ProtocolWorld(C0, range(7))


def drain(world):
    while world.step():
        pass


# -- no useful answers ----------------------------------------------------------------------------


def test_silence_ends_at_the_deadline_and_names_the_missing_servers(world):
    client = world.client()
    world.down = {"s0", "s1", "s2"}
    with pytest.raises(Unavailable) as caught:
        client.run(read(client.view, "k"), timeout_s=2)
    assert (caught.value.needed, caught.value.heard) == (2, 0)
    assert caught.value.missing == dict.fromkeys(("s0", "s1", "s2"), "no answer")
    assert "while an operation: get-data in configuration 0 of domain 'default'" in str(
        caught.value
    )
    assert 2 <= world.now < 2.1
    assert not client.session.busy


def test_refusals_of_too_many_end_it_at_once(world):
    for name in ("s0", "s1"):
        world.replicas[name] = Replica(name, "f" * 32, C0)
    client = world.client()
    with pytest.raises(Unavailable, match=r"s0 .*lost its memory.*s1 .*lost its memory") as caught:
        client.run(write(client.view, "k", b"v"))
    assert world.now == 0
    assert not caught.value.may_have_taken_effect


def test_replies_of_the_wrong_type_are_ignored(world):
    client = world.client()
    pending = client.start(write(client.view, "k", b"v"))
    for server in ("s0", "s1", "s2"):
        client.session.receive(server, [Ack(1, None), GetTag(1, C0.id, "k")], 0.0)
    assert not pending.ended
    world.until(lambda: pending.ended)
    assert pending.result().number == 1


def test_a_server_that_cannot_read_a_batch_counts_as_refusing_what_waits_for_it(world):
    client = world.client()
    pending = client.start(write(client.view, "k", b"v"))
    for server in ("s0", "s1"):
        client.session.receive(
            server,
            [Refused(0, Reason.BAD_REQUEST, "message format 1, and this program speaks 2")],
            0.0,
        )
        world.collect(client)
    assert pending.ended
    assert set(pending.error.missing) == {"s0", "s1", "s2"}
    assert "this program speaks 2" in str(pending.error)


def test_one_such_server_is_survived_and_heard_again_later(world):
    client = world.client()
    pending = client.start(write(client.view, "k", b"v"))
    client.session.receive("s0", [Refused(0, Reason.BAD_REQUEST, "garbage")], 0.0)
    world.until(lambda: pending.ended)
    assert pending.result().number == 1
    world.down = {"s1"}
    assert client.run(read(client.view, "k")).value == b"v"


def test_replies_after_a_cancel_disturb_no_operation(world):
    client = world.client()
    pending = client.start(write(client.view, "k", b"v"))
    client.session.cancel(pending.job)
    assert not client.session.busy
    drain(world)
    assert not pending.ended
    assert client.run(read(client.view, "k")).value is TOMBSTONE


def test_an_interrupted_reconfiguration_is_finished_by_the_next(world):
    mover, other = world.client(), world.client()
    mover.run(write(mover.view, "k", b"v"))
    pending = mover.start(reconfigure(mover.view, EC), idle=True)
    for _ in range(12):
        world.step()
    mover.session.cancel(pending.job)
    drain(world)
    result = other.run(reconfigure(other.view, ABD))
    assert result.configuration.same_content(ABD)
    assert [other.run(read(other.view, "k")).value, mover.run(read(mover.view, "k")).value] == [
        b"v",
        b"v",
    ]


# -- time ------------------------------------------------------------------------------------------


def slow(world, seconds):
    """Make every message take time: the world's clock moves before each delivery."""
    before = world.step

    def step():
        if world.flights:
            world.now += seconds
        return before()

    world.step = step


def test_a_reconfiguration_may_take_longer_than_its_timeout_as_long_as_it_moves_on(world):
    client = world.client()
    for number in range(20):
        client.run(write(client.view, f"k{number}", b"v"))
    slow(world, 0.1)
    assert client.run(reconfigure(client.view, EC), timeout_s=3, idle=True).moved == 20
    assert world.now > 1.5 * 3


def test_a_reconfiguration_that_stands_still_fails(world):
    client = world.client(CARRIED)
    client.run(write(client.view, "k", b"v"))
    world.hold = lambda source, target, message: isinstance(message, PutData)
    with pytest.raises(Unavailable, match="put-data in configuration 1"):
        client.run(reconfigure(client.view, EC), timeout_s=2, idle=True)
    world.hold = lambda *_: False
    assert client.run(read(client.view, "k")).value == b"v"
    assert client.run(
        reconfigure(client.view, EC), timeout_s=2, idle=True
    ).configuration.same_content(EC)


def test_a_move_that_fails_fails_the_reconfiguration_with_its_reason(world):
    client = world.client(CARRIED)
    for number in range(10):
        client.run(write(client.view, f"k{number}", b"v"))
    world.hold = lambda source, target, message: (
        isinstance(message, PutData) and message.object == "k7"
    )
    with pytest.raises(Unavailable, match="put-data"):
        client.run(reconfigure(client.view, EC), timeout_s=2, idle=True)
    assert not client.session.busy


def test_the_next_write_of_a_key_goes_on_after_one_that_failed(world):
    client = world.client()
    key = (DEFAULT_DOMAIN, "k")
    world.down = {"s0", "s1"}
    first = client.start(write(client.view, "k", b"1"), timeout_s=1, key=key)
    second = client.start(write(client.view, "k", b"2"), timeout_s=60, key=key)
    third = client.start(write(client.view, "k", b"3"), timeout_s=60, key=key)
    world.until(lambda: first.ended)
    world.down = set()
    world.until(lambda: third.ended)
    with pytest.raises(Unavailable):
        first.result()
    assert second.result() < third.result()
    assert client.run(read(client.view, "k")).value == b"3"


# -- knowledge of processes -----------------------------------------------------------------------


def test_servers_are_introduced_to_a_configuration_that_they_do_not_know(world):
    client = world.client()
    client.run(write(client.view, "k", b"v"))
    seen = []
    world.watch = lambda source, target, message: (
        seen.append((target, message)) if isinstance(message, Introduce) else None
    )
    client.run(reconfigure(client.view, EC))
    drain(world)
    target = client.view.sequence.last_finalized
    assert {server for server, _ in seen} == set(target.server_ids)
    assert {message.configuration for _, message in seen} == {target}
    seen.clear()
    client.run(write(client.view, "k", b"v"))
    drain(world)
    assert seen == [], "once is enough"


@pytest.mark.parametrize(
    "other", [Configuration.abd(servers(0, 1, 3)), Configuration.ec(servers(0, 1, 2, 3, 4), 3)]
)
def test_a_client_with_another_c0_is_told_to_look_at_its_cluster_file(world, other):
    client = world.client(initial=other.at(DEFAULT_DOMAIN, 0))
    with pytest.raises(ConfigurationRefused, match=r"is this the right cluster file"):
        client.run(write(client.view, "k", b"v"))
    assert world.now == 0
    assert not client.session.busy
    assert all(list(replica.hosted) in ([C0.id], []) for replica in world.replicas.values())


@pytest.mark.parametrize(
    ("writer", "mover", "reader"),
    list(itertools.product([Switches(), Switches(False, False, False, False)], repeat=3)),
)
def test_clients_of_different_switches_share_one_register(world, writer, mover, reader):
    writer, mover, reader = (world.client(switches) for switches in (writer, mover, reader))
    for number, wished in enumerate([EC, ABD, EC]):
        tag = writer.run(write(writer.view, "k", bytes([number])))
        mover.run(reconfigure(mover.view, wished))
        found = reader.run(read(reader.view, "k"))
        assert (found.tag, found.value) == (tag, bytes([number]))
        assert writer.run(read(writer.view, "k")).tag == tag


def test_describing_reports_the_silent_as_missing(world):
    client = world.client()
    world.down = {"s1"}
    described = client.run(describe_servers(servers(0, 1, 2, 6), 1.0))
    assert sorted(described) == ["s0", "s2", "s6"]
    world.down = set(world.replicas)
    assert client.run(describe_servers(servers(0, 1), 1.0)) == {}


def test_describing_is_not_disturbed_by_a_hint(world):
    client = world.client()
    world.hold = lambda source, target, message: True
    pending = client.start(describe_servers(servers(0, 1, 2), 1.0))
    client.session.hinted(DEFAULT_DOMAIN, EC.at(DEFAULT_DOMAIN, 1, C0.id), world.now)
    world.hold = lambda *_: False
    world.until(lambda: pending.ended)
    assert sorted(pending.result()) == ["s0", "s1", "s2"]


# -- erasure coding --------------------------------------------------------------------------------


def partial(world, reach):
    """Start a write, let it reach the servers of ``reach`` only, and kill the client."""
    writer = world.client()
    world.hold = lambda source, target, message: (
        isinstance(message, PutData) and target not in reach
    )
    writer.start(write(writer.view, "k", b"partial"))
    drain(world)
    writer.dead, world.hold = True, lambda *_: False
    world.flights.clear()


@pytest.mark.parametrize("size", [100, 100_000])
def test_the_version_alone_needs_no_k_elements(size):
    c0 = Configuration.ec(servers(0, 1, 2, 3, 4), 3, 1).at(DEFAULT_DOMAIN, 0)
    world = ProtocolWorld(c0, range(5))
    client = world.client()
    tag = client.run(write(client.view, "k", b"v" * size))
    partial(world, {"s0", "s1"})
    partial(world, {"s2", "s3"})
    world.down = {"s4"}

    def drop_the_version(source, target, message):
        """Make two servers trim a version just before a client asks for the version by name."""
        if isinstance(message, GetData) and message.wanted is not None and target in ("s0", "s1"):
            element = sealed(c0.id, "k", Tag(9, 9), int(target[1]), 1, (b"x",))
            world.replicas[target].handle(PutData(1, c0.id, "k", Tag(9, 9), element))

    world.watch = drop_the_version
    found = client.run(client.view.dap(c0).get_version("k"), timeout_s=5)
    assert (found.tag, found.length) == (tag, size)


def test_an_operation_that_pauses_for_no_time_lets_others_have_their_turn():
    """A long operation is done in steps: a step for each call."""
    steps = []

    def long():
        for number in range(5):
            steps.append(number)
            yield Pause(0.0)

    session = Session()
    session.start(long(), "long", 0.0, 10.0, lambda value, error: steps.append("done"))
    for done in range(1, 6):
        assert len(steps) == done
        session.wake(0.0)
    assert steps[-1] == "done"
