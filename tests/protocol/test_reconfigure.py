"""Reconfiguration beside reads and writes, without I/O (ARES II Alg. 2 and 5; rules R1-R3)."""

import itertools

import pytest

from ares.model.configuration import Configuration, Server, Status, Successor
from ares.model.errors import ConfigurationRefused, Unavailable
from ares.model.identity import DEFAULT_DOMAIN, ServerId
from ares.model.messages import CollectConfig, GetData, ListObjects, PutData, WriteConfig
from ares.model.tag import TAG_ZERO
from ares.model.value import TOMBSTONE
from ares.reconfig.reconfigure import reconfigure
from ares.reconfig.traversal import find_next_config, put_config
from ares.reconfig.view import Switches
from ares.registers.operations import read, stat, write
from ares.registers.survey import list_objects
from ares.replica.replica import Replica
from tests.protocol.protocol_world import CARRIED, ProtocolWorld, servers

ABD = Configuration.abd(servers(0, 1, 2))
EC = Configuration.ec(servers(2, 3, 4, 5, 6), 3, 2)
EC4 = Configuration.ec(servers(3, 4, 5, 6), 2, 2)
C0 = ABD.at(DEFAULT_DOMAIN, 0)
ALL_SWITCHES = [Switches(*flags) for flags in itertools.product([True, False], repeat=4)]


@pytest.mark.parametrize("switches", ALL_SWITCHES)
def test_every_object_moves(switches):
    """Alg. 5:23-28, Alg. 5:33."""
    world = ProtocolWorld(C0, range(7))
    mover, old, new = (
        world.client(switches),
        world.client(Switches(piggyback=False)),
        world.client(),
    )
    values = {f"key{number:04d}": bytes([number]) * number * 50 for number in range(30)}
    for name, value in values.items():
        old.run(write(old.view, name, value))
    result = mover.run(reconfigure(mover.view, EC))
    assert result.ours
    assert result.moved == len(values)
    assert result.uncollected == []
    world.down = {ServerId("s0")}
    for name, value in values.items():
        assert old.run(read(old.view, name)).value == value
        assert new.run(read(new.view, name)).value == value
    names, cursor = new.run(list_objects(new.view, "", ""))
    assert (names, cursor) == (sorted(values), None)
    assert new.view.sequence.last_finalized.same_content(EC)


@pytest.mark.parametrize("gc", [True, False])
def test_a_collected_configuration_holds_no_data_and_points_forward(gc):
    world = ProtocolWorld(C0, range(7))
    client = world.client(Switches(gc=gc))
    client.run(write(client.view, "k", b"v"))
    for wished in (EC, EC4, ABD):
        client.run(reconfigure(client.view, wished))
    while world.step():
        pass
    hosting = world.replicas["s0"]._hosted[C0.id]
    assert hosting.collected is gc
    assert (hosting.bytes == 0) is gc
    assert hosting.successor.finalized
    rounds = []
    world.watch = lambda source, target, message: (
        rounds.append(type(message)) if isinstance(message, GetData) and target == "s1" else None
    )
    fresh = world.client()
    assert fresh.run(read(fresh.view, "k")).value == b"v"


def test_tags_and_tombstones_move():
    """Alg. 5:35-36."""
    world = ProtocolWorld(C0, range(7))
    client = world.client()
    tag = client.run(write(client.view, "k", b"v"))
    gone = client.run(write(client.view, "gone", TOMBSTONE))
    client.run(reconfigure(client.view, EC))
    assert client.run(stat(client.view, "k")).tag == tag
    assert client.run(stat(client.view, "gone")).tag == gone
    assert client.run(list_objects(client.view, "", ""))[0] == ["k"]


def test_an_object_already_in_the_new_configuration_is_skipped():
    world = ProtocolWorld(C0, range(7))
    first, second = world.client(), world.client()
    first.run(write(first.view, "k", b"v"))
    finalizing = lambda message: isinstance(message, WriteConfig) and message.successor.finalized  # noqa: E731
    world.hold = lambda source, target, message: source is first and finalizing(message)
    first.start(reconfigure(first.view, EC))
    while world.step():
        pass
    first.dead = True
    result = second.run(reconfigure(second.view, EC4))
    assert result.ours
    reader = world.client()
    assert reader.run(read(reader.view, "k")).value == b"v"
    again = world.client()
    assert again.run(reconfigure(again.view, EC)).moved == 1


def test_two_reconfigurers_make_one_sequence_and_the_loser_is_told():
    """Alg. 5:14-17, Alg. 5:21-22."""
    for seed in range(40):
        world = ProtocolWorld(C0, range(7), seed)
        clients = [world.client(), world.client()]
        clients[0].run(write(clients[0].view, "k", b"v"))
        pendings = [
            client.start(reconfigure(client.view, wished))
            for client, wished in zip(clients, (EC, EC4), strict=True)
        ]
        world.until(lambda pendings=pendings: all(pending.ended for pending in pendings))
        results = [pending.result() for pending in pendings]
        places = {result.configuration.index: result.configuration.id for result in results}
        assert all(
            places[result.configuration.index] == result.configuration.id for result in results
        )
        for result, wished in zip(results, (EC, EC4), strict=True):
            assert result.ours == result.configuration.same_content(wished)
        reader = world.client()
        assert reader.run(read(reader.view, "k")).value == b"v"


@pytest.mark.parametrize(
    "wishes", [(EC, EC4), (EC4, EC), (EC, EC)], ids=["EC first", "EC4 first", "the same"]
)
def test_two_reconfigurations_of_one_client_that_race_for_a_place(wishes):
    """Both proposals have the same client: only a decided wish is `ours`."""
    for seed in range(20):
        world = ProtocolWorld(C0, range(7), seed)
        client, reader = world.client(), world.client()
        client.run(write(client.view, "k", b"v"))
        world.hold = lambda source, target, message: isinstance(message, WriteConfig)
        pendings = [client.start(reconfigure(client.view, wished), idle=True) for wished in wishes]
        while world.step():
            pass
        assert world.decisions.count == 1, "both have proposed for place 1"
        world.hold = lambda *_: False
        world.until(lambda pendings=pendings: all(pending.ended for pending in pendings))
        results = [pending.result() for pending in pendings]
        decided = world.decisions.decisions[DEFAULT_DOMAIN][1].content
        assert [result.configuration for result in results] == [decided, decided]
        assert [result.ours for result in results] == [
            decided.same_content(wished) for wished in wishes
        ]
        assert reader.run(read(reader.view, "k")).value == b"v"


@pytest.mark.parametrize("ahead", [False, True])
def test_r1_the_published_counterexample_is_closed(ahead):
    """docs/protocol.md, Rules, R1: the writer's message reaches B after the mover looked at B.

    See Alg. 5:29-32.
    """
    world = ProtocolWorld(C0, range(7))
    writer, mover, reader = world.client(), world.client(Switches(ahead=ahead)), world.client()
    writer.run(write(writer.view, "k", b"old"))
    world.hold = lambda source, target, message: (
        source is writer and isinstance(message, PutData) and target != "s0"
    )
    pending = writer.start(write(writer.view, "k", b"new"))
    while world.step():
        pass

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
    assert not pending.ended
    world.hold = lambda *_: False
    world.until(lambda: pending.ended)
    tag = pending.result()
    found = reader.run(read(reader.view, "k"))
    assert (found.tag, found.value) == (tag, b"new")


def test_r2_a_second_successor_is_refused():
    world = ProtocolWorld(C0, range(7))
    client = world.client()
    client.run(put_config(C0, Successor(EC.at(DEFAULT_DOMAIN, 1, C0.id), Status.PENDING)))
    with pytest.raises(ConfigurationRefused, match="second decision"):
        client.run(put_config(C0, Successor(EC4.at(DEFAULT_DOMAIN, 1, C0.id), Status.PENDING)))


def test_r3_a_successor_seen_at_one_server_is_at_a_quorum_before_anyone_goes_there():
    """Alg. 2:13-15."""
    world = ProtocolWorld(C0, range(7))
    client = world.client()
    target = EC.at(DEFAULT_DOMAIN, 1, C0.id)
    world.replicas["s1"]._hosted[C0.id].install(Successor(target, Status.PENDING))
    early = []

    def watch(source, destination, message):
        known = sum(
            1
            for name in ("s0", "s1", "s2")
            if world.replicas[name]._hosted[C0.id].successor is not None
        )
        if source is client and getattr(message, "configuration", None) == target.id and known < 2:
            early.append(message)

    world.watch = watch
    world.down = {ServerId("s0")}
    client.run(write(client.view, "k", b"v"))
    assert early == []
    assert client.view.sequence.last_known.id == target.id


def test_a_dead_retired_configuration_does_not_block():
    world = ProtocolWorld(C0, range(7))
    mover, fresh = world.client(), world.client()
    mover.run(write(mover.view, "k", b"v"))
    world.hold = lambda source, target, message: isinstance(message, CollectConfig)
    result = mover.run(reconfigure(mover.view, EC4))
    assert [configuration.index for configuration in result.uncollected] == [0]
    world.down = {ServerId("s0"), ServerId("s1"), ServerId("s2")}
    assert mover.run(read(mover.view, "k")).value == b"v"
    assert fresh.run(read(fresh.view, "k")).value == b"v", "the consensus service's hint leads on"
    lost = world.client()
    world.consensus_up = False
    with pytest.raises(Unavailable):
        lost.run(read(lost.view, "k"), timeout_s=3)


def test_a_server_that_lost_its_memory_is_refused_and_comes_back_by_reconfiguration():
    world = ProtocolWorld(C0, range(7))
    client = world.client()
    client.run(write(client.view, "k", b"v"))
    reborn = Server(ServerId("s0"), "host0:1", "f" * 32)
    world.replicas["s0"] = Replica(reborn.id, reborn.identity, C0)
    world.down = {ServerId("s1")}
    with pytest.raises(Unavailable, match="lost its memory"):
        client.run(read(client.view, "k"), timeout_s=2)
    world.down = set()
    assert client.run(read(client.view, "k")).value == b"v"
    client.run(reconfigure(client.view, Configuration.abd([reborn, *servers(1, 2)])))
    world.down = {ServerId("s1")}
    assert client.run(read(client.view, "k")).value == b"v"


@pytest.mark.parametrize("status", [Status.FINALIZED, Status.PENDING])
def test_one_server_of_a_dead_configuration_leads_on_if_the_successor_is_finalized(status):
    """The consensus service is away, and the other servers lost their memory since the move."""
    world = ProtocolWorld(C0, range(7))
    mover, late = world.client(Switches(gc=False)), world.client()
    mover.run(write(mover.view, "k", b"v"))
    mover.run(reconfigure(mover.view, EC4))
    target = mover.view.sequence.last_finalized
    pointer = world.replicas["s2"]._hosted[C0.id]
    assert pointer.successor == Successor(target, Status.FINALIZED)
    pointer.successor = Successor(target, status)
    for number in (0, 1):
        reborn = Server(ServerId(f"s{number}"), f"host{number}:1", f"{number}" * 31 + "f")
        world.replicas[reborn.id] = Replica(reborn.id, reborn.identity, C0)
    world.consensus_up = False
    operation = find_next_config(late.view, C0, pointer.successor)
    if status is Status.PENDING:
        with pytest.raises(Unavailable, match="lost its memory"):
            late.run(operation, timeout_s=3)
    else:
        assert late.run(operation, timeout_s=3) == target
        assert late.run(read(late.view, "k")).value == b"v"


@pytest.mark.parametrize("seed", range(100))
def test_random_schedules_keep_tag_order(seed):
    """Check that an operation sees at least the tag of each operation that ended before it began.

    This holds in every order of messages. Every tag has a single value.
    """
    world = ProtocolWorld(C0, range(7), seed)
    rng = world.rng
    clients = [
        world.client(Switches(*(rng.random() < 0.7 for _ in range(4)), ahead=rng.random() < 0.5))
        for _ in range(5)
    ]
    plans = [
        EC,
        EC4,
        ABD,
        Configuration.ec(servers(0, 1, 2, 3), 2, 2),
        Configuration.abd(servers(4, 5, 6)),
    ]
    values: dict = {}
    completed = [TAG_ZERO]
    running: list = []
    left = dict.fromkeys(clients, 6)

    def begin(client):
        if client is clients[0]:
            operation, kind, value = (
                reconfigure(client.view, rng.choice(plans)),
                "reconfigure",
                None,
            )
        elif rng.random() < 0.5:
            value = f"{client.id}-{left[client]}".encode()
            operation, kind = write(client.view, "k", value), "write"
        else:
            operation, kind, value = read(client.view, "k"), "read", None
        running.append((client, kind, value, completed[0], client.start(operation, idle=True)))

    def reap():
        for entry in [entry for entry in running if entry[4].ended]:
            running.remove(entry)
            _, kind, value, floor, pending = entry
            result = pending.result()
            if kind == "write":
                assert result > floor
                assert values.setdefault(result, value) == value
            elif kind == "read":
                assert result.tag >= floor, "a read went back"
                assert values.setdefault(result.tag, result.value) == result.value
            if kind != "reconfigure":
                tag = result if kind == "write" else result.tag
                completed[0] = max(completed[0], tag)

    for _ in range(200_000):
        idle = [
            client
            for client in clients
            if left[client] and all(entry[0] is not client for entry in running)
        ]
        if idle and rng.random() < 0.05:
            client = rng.choice(idle)
            left[client] -= 1
            begin(client)
        if not world.step() or rng.random() < 0.01:
            world.tick()
        reap()
        if not running and not any(left.values()):
            break
    assert not running


def test_another_attempt_finishes_the_pending_configuration_and_adds_none():
    """Servers without room for the data take pointers (Alg. 5:6-7).

    Each attempt would leave a further configuration for all clients to visit.
    """
    world = ProtocolWorld(C0, range(7))
    first, again, other = (world.client(CARRIED) for _ in range(3))
    first.run(write(first.view, "k", b"v"))
    world.hold = lambda source, target, message: isinstance(message, PutData)
    for client in (first, again, again):
        with pytest.raises(Unavailable):
            client.run(reconfigure(client.view, EC), timeout_s=1)
    assert [configuration.index for configuration in again.view.sequence.active] == [0, 1]
    world.hold = lambda *_: False
    result = again.run(reconfigure(again.view, EC))
    assert (result.ours, result.configuration.index) == (True, 1)
    assert again.run(reconfigure(again.view, EC)).configuration.index == 2, (
        "what is finalized is no longer pending"
    )
    assert other.run(reconfigure(other.view, EC4)).configuration.index == 3
    assert other.run(read(other.view, "k")).value == b"v"


@pytest.mark.parametrize("ahead", [False, True])
def test_without_a_quorum_of_the_new_servers_an_empty_domain_is_not_finalized(ahead):
    """The new servers are cut off from the moment of the decision."""
    world = ProtocolWorld(C0, range(7))
    mover, client = world.client(Switches(ahead=ahead)), world.client()

    def cut(source: object, target: object, message: object) -> None:
        if world.decisions.count:
            world.down = {ServerId("s4"), ServerId("s5"), ServerId("s6")}

    world.watch = cut
    with pytest.raises(Unavailable) as raised:
        mover.run(reconfigure(mover.view, EC4), timeout_s=20)
    assert raised.value.may_have_taken_effect
    old = [world.replicas[name]._hosted[C0.id] for name in ("s0", "s1", "s2")]
    assert not any(hosting.collected or hosting.successor.finalized for hosting in old)
    world.watch, world.down = lambda *_: None, set()
    result = client.run(reconfigure(client.view, EC4))
    assert (result.configuration.index, result.moved) == (1, 0)
    client.run(write(client.view, "k", b"v"))
    assert client.run(read(client.view, "k")).value == b"v"
