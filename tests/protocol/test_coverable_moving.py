"""Versioned objects while their domain is reconfigured (CoARES over ARES II).

The tests use knowledge from a configuration in another configuration.
"""

import itertools

import pytest

from ares.model.configuration import Configuration
from ares.model.identity import DEFAULT_DOMAIN, ServerId
from ares.model.messages import GetData, PutData, WriteConfig
from ares.model.tag import TAG_ZERO
from ares.model.value import TOMBSTONE, WITHHELD
from ares.reconfig.reconfigure import reconfigure
from ares.reconfig.view import Switches
from ares.registers.coverable import create, cvr_read, read_versioned, write_versioned
from ares.registers.operations import read
from tests.protocol.protocol_world import ProtocolWorld, servers
from tests.protocol.test_coverable import LARGE
from tests.protocol.test_held import Traffic

ABD = Configuration.abd(servers(0, 1, 2))
EC = Configuration.ec(servers(2, 3, 4, 5, 6), 3, 4)
EC2 = Configuration.ec(servers(3, 4, 5, 6), 2, 4)
C0 = ABD.at(DEFAULT_DOMAIN, 0)
ALL_SWITCHES = [
    Switches(*flags, ahead=False) for flags in itertools.product([True, False], repeat=5)
]
every = pytest.mark.parametrize("switches", ALL_SWITCHES, ids=str)


@every
def test_a_version_outlives_its_configuration(switches):
    """Reconfiguration between remembering and reading, to other servers and another DAP.

    The old servers are gone afterwards.
    """
    world = ProtocolWorld(C0, range(7))
    client, mover, other = world.client(switches), world.client(switches), world.client(switches)
    traffic = Traffic(world)
    made = client.run(write_versioned(client.view, "k", LARGE, None))
    gone = client.run(write_versioned(client.view, "gone", b"x", None))
    client.run(write_versioned(client.view, "gone", TOMBSTONE, gone.tag))
    for wished in (EC, EC2):
        mover.run(reconfigure(mover.view, wished))
        while world.step():
            pass
        traffic.sent = 0
        found = client.run(read_versioned(client.view, "k"))
        assert (found.tag, found.value) == (made.tag, LARGE), "a move makes no version"
        if switches.optimised and switches.fast_read:
            assert traffic.sent == 0, "a version has one value, wherever it is"
        assert not client.run(write_versioned(client.view, "k", b"x", TAG_ZERO)).changed
    if switches.gc:
        world.down = {ServerId(f"s{number}") for number in range(3)}
    covered = client.run(write_versioned(client.view, "k", LARGE[1:], made.tag))
    assert covered.changed
    assert other.run(read_versioned(other.view, "k")).value == LARGE[1:]
    assert other.run(write_versioned(other.view, "k", b"x", made.tag)).tag == covered.tag
    assert other.run(write_versioned(other.view, "gone", b"again", None)).changed


def pending(world, mover, wished):
    """Kill a reconfiguration after the announcement of its successor.

    The sequence has two configurations, and no object was moved.
    """
    world.hold = lambda source, target, message: (
        isinstance(message, PutData) or (isinstance(message, GetData) and source is mover)
    )
    mover.start(reconfigure(mover.view, wished))
    while world.step():
        pass
    mover.dead, world.hold = True, lambda *_: False
    world.flights[:] = [
        flight for flight in world.flights if flight[0] is not mover and flight[1] is not mover
    ]


@every
@pytest.mark.parametrize("wished", [EC, EC2], ids=["ec", "ec2"])
def test_beside_a_pending_reconfiguration(switches, wished):
    world = ProtocolWorld(C0, range(7))
    client, mover, next_mover, other = (world.client(switches) for _ in range(4))
    traffic = Traffic(world)
    made = client.run(write_versioned(client.view, "k", LARGE, None))
    pending(world, mover, wished)
    before = client.run(read_versioned(client.view, "k"))
    assert (before.tag, before.value) == (made.tag, LARGE)
    covered = client.run(write_versioned(client.view, "k", LARGE[1:], made.tag))
    assert covered.changed
    spent, same = traffic.of(client, read_versioned(client.view, "k"))
    assert (same.tag, same.value) == (covered.tag, LARGE[1:])
    if switches.optimised and switches.piggyback:
        assert spent == (0, 0), (
            "neither the older version of the first configuration nor the one held of the second"
        )
    assert other.run(read_versioned(other.view, "k")).value == LARGE[1:]
    next_mover.run(reconfigure(next_mover.view, ABD))
    for reader in (client, other):
        found = reader.run(read_versioned(reader.view, "k"))
        assert (found.tag, found.value) == (covered.tag, LARGE[1:])


@pytest.mark.parametrize("fast", [True, False])
def test_what_is_remembered_of_one_configuration_is_not_known_of_the_next(fast):
    """The version is at a quorum of c0, and at no server of c1 yet.

    The reader writes the version to c1, since a later client may not ask c0. With fast reads the
    mover does this.
    """
    world = ProtocolWorld(C0, range(7))
    client, mover = world.client(Switches(fast_read=fast)), world.client()
    traffic = Traffic(world)
    made = client.run(write_versioned(client.view, "k", LARGE, None))
    pending(world, mover, EC)
    (_, put), found = traffic.of(client, read_versioned(client.view, "k"))
    assert (found.tag, found.value) == (made.tag, LARGE)
    assert (put == 0) == fast
    assert traffic.of(client, read_versioned(client.view, "k"))[0] == (0, 0), (
        "now it is known of both"
    )


@every
def test_an_object_made_in_a_configuration_that_is_being_left(switches):
    """A call of create asks no server first.

    The client learns of the successor from the answers to put-data, or (plain) from the round
    after.
    """
    world = ProtocolWorld(C0, range(7))
    client, mover, other = world.client(switches), world.client(switches), world.client(switches)
    mover.run(reconfigure(mover.view, EC))
    tag = client.run(create(client.view, "new", LARGE))
    world.down = {ServerId("s0"), ServerId("s1")}
    found = client.run(cvr_read(client.view, "new", tag))
    assert found.tag == tag
    assert (
        found.value is WITHHELD
        if switches.optimised and switches.fast_read
        else found.value in (WITHHELD, LARGE)
    )
    world.down = set()
    assert other.run(read(other.view, "new")).value == LARGE


@every
def test_a_client_whose_configuration_is_dead_is_shown_the_way(switches):
    """The client's rounds end with Superseded; its memory still saves the transfer."""
    world = ProtocolWorld(C0, range(7))
    client, mover = world.client(switches), world.client(switches)
    made = client.run(write_versioned(client.view, "k", LARGE, None))
    mover.run(reconfigure(mover.view, EC2))
    world.down = {ServerId("s0"), ServerId("s1"), ServerId("s2")}
    traffic = Traffic(world)
    found = client.run(read_versioned(client.view, "k"))
    assert (found.tag, found.value) == (made.tag, LARGE)
    assert client.view.sequence.last_finalized.same_content(EC2)
    if switches.optimised and switches.fast_read:
        assert traffic.sent == 0
    assert client.run(write_versioned(client.view, "k", b"x", made.tag)).changed


@pytest.mark.parametrize("seed", range(60))
def test_random_schedules_keep_versions_in_order(seed):
    """Check that an operation sees the version of each operation that ended before it began.

    This holds in every order of messages. The operation covers no older version.
    """
    world = ProtocolWorld(C0, range(7), seed)
    rng = world.rng
    clients = [world.client(Switches(*(rng.random() < 0.7 for _ in range(6)))) for _ in range(5)]
    plans = [
        EC,
        EC2,
        ABD,
        Configuration.ec(servers(0, 1, 2, 3), 2, 4),
        Configuration.abd(servers(4, 5, 6)),
    ]
    values = {TAG_ZERO: TOMBSTONE}
    seen = dict.fromkeys(clients, TAG_ZERO)
    completed = TAG_ZERO
    running = []
    left = dict.fromkeys(clients, 7)
    outcomes = []

    def begin(client):
        if client is clients[0]:
            operation, base = reconfigure(client.view, rng.choice(plans)), None
        elif rng.random() < 0.6:
            base = seen[client]
            operation = write_versioned(
                client.view, "k", f"{client.id}-{left[client]}".encode(), base
            )
        else:
            operation, base = read_versioned(client.view, "k"), None
        running.append((client, base, completed, client.start(operation, idle=True)))

    def reap(client, base, floor, result):
        nonlocal completed
        assert result.value is not WITHHELD
        assert values.setdefault(result.tag, result.value) == result.value, (
            "one version, two values"
        )
        if base is not None and result.changed:
            assert base >= floor, "a version was covered that was known not to be the latest"
            assert result.tag > base
        assert result.tag >= floor, "a version went back"
        outcomes.append(base is not None and result.changed)
        seen[client] = result.tag
        completed = max(completed, result.tag)

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
        for entry in [entry for entry in running if entry[3].ended]:
            running.remove(entry)
            client, base, floor, ended = entry
            result = ended.result()
            if client is not clients[0]:
                reap(client, base, floor, result)
        if not running and not any(left.values()):
            break
    assert not running
    assert any(outcomes)


def test_the_successor_of_a_single_server_is_told_to_a_quorum_before_a_version_is_covered():
    """Rule R3 holds for versioned writes as for other writes."""
    world = ProtocolWorld(C0, range(7))
    client, mover = world.client(), world.client()
    made = client.run(write_versioned(client.view, "k", b"made", None))
    world.hold = lambda source, target, message: (
        source is mover and isinstance(message, WriteConfig) and target != "s0"
    )
    mover.start(reconfigure(mover.view, EC))
    while world.step():
        pass
    mover.dead, world.hold = True, lambda *_: False
    world.flights[:] = [flight for flight in world.flights if flight[0] is not mover]
    world.down = {ServerId("s1")}
    assert client.run(write_versioned(client.view, "k", b"covered", made.tag)).changed
    knowing = [
        name for name in ("s0", "s2") if world.replicas[name].hosted[C0.id].successor is not None
    ]
    assert knowing == ["s0", "s2"]
