"""The transcription of the papers' algorithms (ares/testing/published), line by line, and whole."""

import ast
import asyncio
import itertools
import random
from collections import deque
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from ares.engine.phases import FIND_TAG, MAX_TAG, MAX_VALUE
from ares.engine.recording import Recording
from ares.model.configuration import Configuration, Status, Successor
from ares.model.errors import BadInput, ConfigurationRefused, Unavailable, Undecodable
from ares.model.identity import DEFAULT_DOMAIN, ClientId, ObjectName
from ares.model.messages import (
    CollectConfig,
    GetTag,
    Introduce,
    ListReply,
    PutData,
    QueryList,
    ReadConfig,
    WriteConfig,
)
from ares.model.tag import Tag
from ares.model.value import TOMBSTONE
from ares.replica.replica import Replica
from ares.testing.published.alg4 import beginning, respond
from ares.testing.published.ares2 import Ares2Client, Ares2Switches
from ares.testing.published.ares_2022 import AresClient
from ares.testing.published.data_access import measure_into
from ares.testing.published.plain_abd import AbdClient
from ares.testing.published.published_objects import (
    PublishedAlgorithm,
    PublishedObjects,
    connect_published,
    permitted_c0,
)
from tests.paper.read_going_back import ReadGoingBack
from tests.paper.schedules import PLANS, Done, broken_atomicity
from tests.protocol.protocol_world import ProtocolWorld, servers

X = ObjectName("x")
C0 = Configuration.abd(servers(0, 1, 2)).at(DEFAULT_DOMAIN, 0)
EC = Configuration.ec(servers(0, 1, 2, 3), 2, 1)
EC_0 = EC.at(DEFAULT_DOMAIN, 0)
LATER = Configuration.abd(servers(4, 5, 6))
ALL_ON = Ares2Switches()


def joined(world, switches=ALL_ON):
    """Return a client of the world with its state, by ARES II, or by ARES without switches."""
    client = world.client()
    if switches is None:
        return client, AresClient(client.id, world.initial)
    return client, Ares2Client(client.id, world.initial, switches)


def asked(world, client, operation):
    """Return the kinds of requests of an operation with their configuration, in order."""
    while world.step():
        pass
    seen = []

    def watch(source, target, message):
        if source is client and not isinstance(message, Introduce):
            entry = (type(message).__name__, message.configuration)
        else:
            return
        if entry not in seen:
            seen.append(entry)

    world.watch = watch
    client.run(operation)
    world.watch = lambda *_: None
    return [name for name, _ in seen], seen


@pytest.fixture
def world():
    return ProtocolWorld(C0, range(7))


def test_alg_1_lines_8_and_21_only_ares_reads_the_sequence_before_and_after(world):
    """Alg. 1: the struck-out lines; both phases of a read always take place."""
    for switches, expected in (
        (ALL_ON, ["QueryList", "PutData"]),
        (None, ["ReadConfig", "QueryList", "PutData"]),
        (Ares2Switches(piggyback=False), ["ReadConfig", "QueryList", "PutData"]),
    ):
        client, state = joined(world, switches)
        client.run(state.write(X, b"v"))
        assert asked(world, client, state.read(X))[0] == expected


def test_alg_1_lines_9_to_16_the_tag_is_above_all_configurations(world):
    """Alg. 1:9-16: from mu until no successor, and ts + 1 with the own id."""
    (mover, moving), (client, state) = joined(world), joined(world)
    client.run(state.write(X, b"v"))
    world.hold = lambda source, _, message: source is mover and isinstance(message, PutData)
    mover.start(moving.reconfig(LATER, [X]))
    while world.step():
        pass
    _, seen = asked(world, client, state.write(X, b"w"))
    first = state.cseq[1].configuration.id
    assert [entry for entry in seen if entry[0] == "GetTag"] == [
        ("GetTag", C0.id),
        ("GetTag", first),
    ]
    assert seen[-1] == ("PutData", first)
    assert client.run(state.read(X)) == (Tag(2, client.id), b"w")


def test_alg_2_lines_4_to_11_the_last_finalized_successor_counts_before_a_pending_one(world):
    client, state = joined(world)
    one, two, three = (
        Successor(LATER.at(DEFAULT_DOMAIN, index, C0.id), status)
        for index, status in ((1, Status.PENDING), (2, Status.FINALIZED), (3, Status.FINALIZED))
    )
    for found, expected in (
        ([None, None], None),
        ([None, one], one),
        ([one, two, None], two),
        ([three, one, two], three),
    ):
        assert client.run(state.find_next_config(C0, found)) == expected
        assert expected is None or state.cseq[expected.configuration.index] == expected


def test_alg_2_line_3_as_printed_makes_a_configuration_its_own_successor(world):
    """Alg. 2:3, 2:15: a client that knows c1 as pending finds it again at c0."""
    (mover, moving), (client, state) = joined(world), joined(world)
    world.hold = lambda source, _, message: source is mover and isinstance(message, PutData)
    mover.start(moving.reconfig(LATER, [X]))
    while world.step():
        pass
    client.run(state.read(X))
    client.run(state.read(X))
    state.printed_line_3 = True
    with pytest.raises(ConfigurationRefused, match="index 1 of 'default' cannot follow index 1"):
        client.run(state.read(X))


def test_alg_3_lines_13_to_20_k_lists_and_no_bottom_make_a_value():
    world = ProtocolWorld(EC_0, range(4))
    client, state = joined(world)
    tag = client.run(state.write(X, b"value"))
    world.hold = lambda _, target, message: isinstance(message, PutData) and target != "s0"
    client.start(state.write(X, b"at one server only"))
    while world.step():
        pass
    client, state = joined(world)
    assert client.run(state.dap(EC_0).get_data(X))[0] == (tag, b"value")
    final = Successor(LATER.at(DEFAULT_DOMAIN, 1, EC_0.id), Status.FINALIZED)
    world.replicas["s1"].handle(WriteConfig(1, EC_0.id, final))
    world.down = {"s0"}
    (found, value), known = client.run(state.dap(EC_0).get_data(X))
    assert (found, value is TOMBSTONE, isinstance(value, bytes)) == (tag, False, False)
    assert final in known


@pytest.mark.parametrize("shape", [C0, EC_0], ids=["abd", "ec"])
def test_alg_4_lines_10_to_12_come_with_the_piggyback(shape):
    """A reader without piggyback never repeats read-config, and reads the old configuration."""
    for switches in (None, Ares2Switches(piggyback=False, gc=False)):
        world = ProtocolWorld(shape, range(7))
        (mover, moving), (client, state) = joined(world, switches), joined(world, switches)
        mover.run(moving.write(X, b"v"))
        world.hold = lambda source, _, message, own=client: (
            source is own and isinstance(message, QueryList)
        )
        reading = client.start(state.read(X))
        while world.step():
            pass
        mover.run(moving.reconfig(LATER, [X]))
        world.hold = lambda *_: False
        while not reading.ended:
            if not world.step():
                world.tick()
        assert reading.result()[1] == b"v"


def test_alg_3_line_15_without_a_tag_in_k_lists_get_data_fails():
    """The paper leaves out the case of more than delta writers."""
    world = ProtocolWorld(EC_0, range(4))
    for number in range(4):
        for at in (number, number + 4):
            put(world, Tag(number * 2 + at, number), number)
    client, state = joined(world)
    with pytest.raises(Undecodable, match="no tag is in 2 of 3 Lists"):
        client.run(state.read(X))


def test_alg_5_reconfig_finalizes_and_collects(world):
    """Alg. 5:6-13; line 12 only with garbage collection; line 31 asks every configuration."""
    for switches in (ALL_ON, Ares2Switches(gc=False)):
        client, state = joined(world, switches)
        client.run(state.write(X, b"v"))
        names, _ = asked(world, client, state.reconfig(LATER, [X]))
        order = [
            names.index(kind) for kind in ("ReadConfig", "WriteConfig", "QueryList", "PutData")
        ]
        assert order == sorted(order)
        assert ("CollectConfig" in names) == (min(state.cseq) == state.mu) == switches.gc
        assert all(world.replicas[name].hosted[C0.id].successor.finalized for name in ("s0", "s1"))
        assert client.run(state.read(X))[1] == b"v"


def test_without_batching_a_reconfiguration_moves_one_object(world):
    for switches in (None, Ares2Switches(batching=False)):
        client, state = joined(world, switches)
        with pytest.raises(BadInput, match="one object, not 2"):
            client.run(state.reconfig(LATER, [X, ObjectName("y")]))
    client, state = joined(world)
    client.run(state.write(ObjectName("y"), b"v"))
    client.run(state.reconfig(LATER, [X, ObjectName("y")]))
    assert client.run(state.read(ObjectName("y")))[1] == b"v"


def test_plain_abd_reads_and_writes_in_two_phases(world):
    client = world.client()
    state = AbdClient(client.id, C0)
    tag = client.run(state.write(X, b"v"))
    assert asked(world, client, state.read(X))[0] == ["QueryList", "PutData"]
    assert client.run(state.read(X)) == (tag, b"v")


# -- servers ---------------------------------------------------------------------------------------


def put(world, tag, server):
    """Store an element at a single server."""
    gather = next(Ares2Client(ClientId(1), EC_0).dap(EC_0).put_data(X, tag, b"value"))
    world.replicas[f"s{server}"].handle(gather.requests(1, *gather.arguments)[server])


@pytest.mark.parametrize("shape", [C0, EC_0], ids=["abd", "ec"])
@pytest.mark.parametrize("seed", range(30))
def test_alg_4_answers_as_the_servers_of_this_project_do(shape, seed):
    """Alg. 4; after gc-config the tags differ: a server of ours forgets them."""
    rng = random.Random(seed)
    ours = Replica("s0", servers(0)[0].identity, shape)
    state = beginning(shape, 0, X)
    dap = Ares2Client(ClientId(1), shape).dap(shape)
    following = [
        Configuration.abd(servers(0, 1, 2)).at(DEFAULT_DOMAIN, i, shape.id) for i in (1, 2)
    ]
    nexts = [Successor(following[0], Status.PENDING)]
    nexts += [Successor(configuration, Status.FINALIZED) for configuration in following]
    for _ in range(40):
        gather = next(dap.put_data(X, Tag(rng.randrange(1, 9), 1), b"value"))
        request = rng.choice(
            [
                GetTag(1, shape.id, X),
                QueryList(1, shape.id, X),
                QueryList(1, shape.id, X, nexts[0], rng.random() < 0.5),
                QueryList(1, shape.id, X, held=Tag(rng.randrange(9), 1)),
                gather.requests(1, *gather.arguments)[0],
                ReadConfig(1, shape.id),
                WriteConfig(1, shape.id, nexts[0]),
                *([WriteConfig(1, shape.id, rng.choice(nexts))] if rng.random() < 0.1 else []),
            ]
        )
        state, reply = respond(state, request)
        assert ours.handle(request) == reply
    collect = CollectConfig(1, shape.id, nexts[2])
    state, reply = respond(state, collect)
    assert ours.handle(collect) == reply
    kept = respond(state, QueryList(1, shape.id, X))[1]
    assert kept.entries
    assert {entry.element for entry in kept.entries} == {None}
    assert ours.handle(QueryList(1, shape.id, X)) == ListReply(1, (), nexts[2])


def test_the_package_is_for_tests_the_simulator_and_experiments_alone():
    """No module of the product but its testing names the package: it is not atomic."""
    package = Path(__file__).parents[2] / "ares"
    importers = {
        path.relative_to(package).parts[0]
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ares.testing.pub")
    }
    assert importers == {"testing"}


def test_a_cluster_of_users_gives_no_configuration_to_clients_as_published():
    users = SimpleNamespace(published=False, initial=C0, path="c/cluster.toml")
    with pytest.raises(BadInput, match=r"cluster.toml: .* not atomic, .* published = true"):
        asyncio.run(connect_published(users, PublishedAlgorithm("ares")))
    assert permitted_c0(SimpleNamespace(published=True, initial=C0)) == C0


def test_a_client_whose_operation_failed_is_never_used_again():
    """Its next write would have the tag of the failed write, for another value (Alg. 1:16)."""
    made, outcomes = [], iter([None, Unavailable(2, 1, {}), None, None])

    class Fate:
        async def run(self, operation, label, timeout_s):
            if (error := next(outcomes)) is not None:
                raise error
            return Tag(1, 1)

    def make(id):
        made.append(id)
        return AresClient(id, C0)

    async def write_four():
        objects = PublishedObjects(Fate(), make, 1.0)
        for _ in range(4):
            with suppress(Unavailable):
                await objects.write("x", b"v")

    asyncio.run(write_four())
    assert len(made) == len(set(made)) == 2


# -- whole runs ------------------------------------------------------------------------------------


def run(seed, switches):
    """Run random operations on random schedules; return the completed reads and writes."""
    world = ProtocolWorld(PLANS[0].at(DEFAULT_DOMAIN, 0), range(7), seed)
    states = [joined(world, switches) for _ in range(5)]
    history, running, left = [], {}, {client: 4 for client, _ in states}
    moment = 0
    while running or any(left.values()):
        moment += 1
        idle = [each for each in states if each[0] not in running and left[each[0]]]
        if idle and world.rng.random() < 0.1:
            client, state = world.rng.choice(idle)
            left[client] -= 1
            value = f"{client.id}.{left[client]}".encode()
            if client is states[0][0]:
                kind, operation = "reconfigure", state.reconfig(world.rng.choice(PLANS), [X])
            elif world.rng.random() < 0.5:
                kind, operation = "write", state.write(X, value)
            else:
                kind, operation = "read", state.read(X)
            running[client] = kind, value, moment, client.start(operation, idle=True)
        if not world.step() or world.rng.random() < 0.01:
            world.tick()
        for client, (kind, value, began, pending) in list(running.items()):
            if pending.ended:
                del running[client]
                result = pending.result()
                if kind != "reconfigure":
                    tag, value = (result, value) if kind == "write" else result
                    done = Done(client.id, kind, X, began, moment, tag, value, None)
                    history.append(done)
    return history


@pytest.mark.parametrize(
    "switches",
    [
        None,
        Ares2Switches(r1=True),
        Ares2Switches(piggyback=False),
        Ares2Switches(gc=False, r1=True),
    ],
    ids=["ares", "ares2 with r1", "ares2 without piggyback", "ares2 with r1, without gc"],
)
def test_random_schedules_are_atomic_but_for_the_piggyback(switches):
    for seed in range(12):
        assert broken_atomicity(run(seed, switches)) == []


def test_a_read_goes_back_with_more_than_delta_writers():
    """EC-DAP: delta is 1, and two writes run beside the read (Alg. 3:13-14, Alg. 4:19-24)."""
    run = ReadGoingBack()
    found = run.as_published()
    assert (found.tag < run.completed, found.value) == (True, b"v1")
    lists = [reply.split("reply: ")[1] for reply in found.diagram if "QUERY-LIST" in reply]
    assert lists == [f"{tags}, nextC = none" for tags in ("t4, t3", "t2, t1", "t1, t0")]


def test_with_rule_r7_the_read_of_the_same_schedule_does_not_go_back():
    """It is open after the answers of s1, s2 and s3, and a fourth answer settles it."""
    run = ReadGoingBack()
    found = run.with_r7()
    assert found.tag > run.completed
    assert "Note over r: cannot decide: t2 may be complete" in found.diagram


def test_traces_of_the_transcription_have_the_names_of_the_figures():
    """Figs. 2-4 of ARES II: what get-data does after the communication."""
    world = ProtocolWorld(EC_0, range(4))
    client = world.client()
    clock, computed = itertools.count().__next__, deque()
    state = Ares2Client(client.id, EC_0, measure=measure_into(computed, clock))
    client.run(state.write(X, b"value"))
    recording = Recording("read", clock, computed)
    client.run(state.read(X), recording=recording)
    parts = [(part.name, part.parent and part.parent.name) for part in recording.parts]
    assert parts == [
        ("read", None),
        ("StartReadRequest-MEMORY", "read"),
        ("Phase1", "StartReadRequest-MEMORY"),
        ("GetData", "Phase1"),
        ("CommunicationLatency", "GetData"),
        (FIND_TAG, "GetData"),
        (MAX_TAG, "GetData"),
        (MAX_VALUE, "GetData"),
        ("Phase2", "StartReadRequest-MEMORY"),
        ("PutData", "Phase2"),
        ("CommunicationLatency", "PutData"),
    ]
