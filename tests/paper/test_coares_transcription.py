"""CoARES and CoARESF as published (ares/testing/published/coares.py and cobfs.py)."""

import itertools
import json
import random
from collections import deque
from typing import Any, NamedTuple

import pytest

from ares.client.chunking import CUTS
from ares.client.local_copy import content_of_bytes
from ares.engine.recording import Recording
from ares.fragment.divide import RABIN, Sizes
from ares.model.configuration import Configuration
from ares.model.errors import ObjectNotFound, Unavailable
from ares.model.identity import DEFAULT_DOMAIN, ClientId, ObjectName
from ares.model.messages import GetTag, ListReply, PutData, QueryList
from ares.model.tag import TAG_ZERO, Tag
from ares.replica.port import lists_of
from ares.testing.published.ares2 import Ares2Switches
from ares.testing.published.coares import CoAres2Client, CoAresClient
from ares.testing.published.cobfs import FragmentedObject
from ares.testing.published.published_files import BlockLog, PublishedFile
from ares.testing.published.published_objects import PublishedAlgorithm, PublishedObjects
from tests.paper.schedules import PLANS, broken_atomicity
from tests.protocol.protocol_world import ProtocolWorld, servers

X, F = ObjectName("x"), ObjectName("f")
SHAPES = {
    "abd": Configuration.abd(servers(0, 1, 2)).at(DEFAULT_DOMAIN, 0),
    "ec": Configuration.ec(servers(0, 1, 2, 3), 2, 4).at(DEFAULT_DOMAIN, 0),
}
LATER = Configuration.ec(servers(3, 4, 5, 6), 2, 4)
R1 = Ares2Switches(r1=True)
KINDS = {
    "ares": PublishedAlgorithm("ares", coverable=True, fragmented=True),
    "ares2": PublishedAlgorithm("ares2", coverable=True, fragmented=True),
    "ares2-r1": PublishedAlgorithm("ares2", R1, coverable=True, fragmented=True),
    "ares2-plain": PublishedAlgorithm("ares2", Ares2Switches(False, False), True, True),
}
SIZES = Sizes(512, 512, 4096)
DATA = random.Random(5).randbytes(40_000)

each_kind = pytest.mark.parametrize("kind", KINDS)
each_atomic_kind = pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "ares2"])
"""All but the piggyback as printed, which loses writes with and without versions."""

each_shape = pytest.mark.parametrize("shape", SHAPES)


def joined(world, kind):
    client = world.client()
    return client, KINDS[kind].client(client.id, world.initial)


def cut(data):
    return content_of_bytes(data, SIZES, CUTS[RABIN])


class Seen:
    """The messages of an operation: requests by kind and object, and the bytes of values."""

    def __init__(self, world, client, operation):
        while world.step():
            pass
        self.requests: list[tuple[str, str]] = []
        self.bytes = 0
        world.watch = lambda source, target, message: self._see(client, source, message)
        self.result = client.run(operation)
        world.watch = lambda *_: None

    def _see(self, client, source, message):
        if isinstance(message, ListReply):
            self.bytes += message.size
        if source is client and isinstance(message, PutData):
            self.bytes += message.element.size
        if source is client and isinstance(message, QueryList | PutData | GetTag):
            entry = type(message).__name__, message.object
            if entry not in self.requests:
                self.requests.append(entry)


# -- coverable objects -----------------------------------------------------------------------------


@each_kind
@each_shape
def test_a_write_over_an_old_version_becomes_a_read(kind, shape):
    world = ProtocolWorld(SHAPES[shape], range(7))
    (one, first), (other, second) = joined(world, kind), joined(world, kind)
    begun = one.run(first.cvr_write(X, b"begin"))
    assert (begun.changed, begun.tag) == (True, Tag(1, one.id))
    late = other.run(second.cvr_write(X, b"late"))
    assert (late.changed, late.tag, late.value) == (False, begun.tag, b"begin")
    assert one.run(first.read(X)) == (begun.tag, b"begin")
    over = other.run(second.cvr_write(X, b"over"))
    assert (over.changed, over.tag) == (True, Tag(2, other.id))
    assert one.run(first.read(X)) == (over.tag, b"over")


@each_kind
@each_shape
def test_values_known_to_the_client_do_not_travel(kind, shape):
    """Section 3, Extension 1: a slow read brings the value and puts it, a fast read neither."""
    world = ProtocolWorld(SHAPES[shape], range(7))
    (one, writing), (other, reading) = joined(world, kind), joined(world, kind)
    one.run(writing.cvr_write(X, DATA))
    slow = Seen(world, other, reading.read(X))
    assert [name for name, _ in slow.requests] == ["QueryList", "PutData"]
    assert slow.bytes > 2 * len(DATA)
    for client, state in ((other, reading), (one, writing)):
        fast = Seen(world, client, state.read(X))
        assert (fast.requests, fast.bytes) == ([("QueryList", X)], 0)
        assert fast.result == slow.result == (Tag(1, one.id), DATA)
    short = Seen(world, other, reading.cvr_write(X, b"short"))
    assert short.result.changed
    assert short.bytes < 1000


class Covered(NamedTuple):
    """An operation, as tests/paper/schedules.py keeps it, with the version of a write."""

    client: int
    kind: str
    object: str
    began: int
    ended: int
    tag: Tag
    value: Any
    base: Tag = TAG_ZERO


def broken_coverability(history):
    """Return the writes that took effect although a later version was complete before them."""
    writes = [done for done in history if done.kind == "write"]
    return [
        f"{second} over an older version than {first}"
        for first in writes
        for second in writes
        if first.ended < second.began and second.base < first.tag
    ]


def careless(state, value):
    """A write that takes effect whatever the version."""
    tag = yield from state.write(X, value)
    state.versions[X] = tag
    return Covers(True, tag, value)


class Covers(NamedTuple):
    changed: bool
    tag: Tag
    value: Any


def history_of(seed, kind, write=lambda state, value: state.cvr_write(X, value)):
    """Run random reads, coverable writes and moves on a random schedule."""
    world = ProtocolWorld(PLANS[0].at(DEFAULT_DOMAIN, 0), range(7), seed)
    states = [joined(world, kind) for _ in range(5)]
    states[0][1].fragmented = False
    history, running, left = [], {}, {client: 4 for client, _ in states}
    moment = 0
    while running or any(left.values()):
        moment += 1
        idle = [each for each in states if each[0] not in running and left[each[0]]]
        if idle and world.rng.random() < 0.1:
            client, state = world.rng.choice(idle)
            left[client] -= 1
            value, base = f"{client.id}.{left[client]}".encode(), state.versions.get(X, TAG_ZERO)
            if client is states[0][0]:
                doing, operation = "reconfigure", state.reconfig(world.rng.choice(PLANS), [X])
            elif world.rng.random() < 0.6:
                doing, operation = "write", write(state, value)
            else:
                doing, operation = "read", state.read(X)
            running[client] = doing, base, moment, client.start(operation, idle=True)
        if not world.step() or world.rng.random() < 0.01:
            world.tick()
        for client, (doing, base, began, pending) in list(running.items()):
            if pending.ended:
                del running[client]
                result = pending.result()
                if doing == "read" or (doing == "write" and not result.changed):
                    tag, value = result if doing == "read" else (result.tag, result.value)
                    history.append(Covered(client.id, "read", X, began, moment, tag, value))
                elif doing == "write":
                    done = Covered(
                        client.id, "write", X, began, moment, result.tag, result.value, base
                    )
                    history.append(done)
    return history


@each_atomic_kind
def test_random_schedules_are_atomic_and_coverable(kind):
    changed = 0
    for seed in range(8):
        history = history_of(seed, kind)
        assert broken_atomicity(history) == []
        assert broken_coverability(history) == []
        changed += sum(done.kind == "write" for done in history)
    assert changed > 10


@each_kind
def test_control_writes_without_versions_are_not_coverable(kind):
    assert any(broken_coverability(history_of(seed, kind, careless)) for seed in range(8))


# -- files -----------------------------------------------------------------------------------------


@each_kind
@each_shape
def test_a_file_comes_back_and_an_edit_moves_few_blocks(kind, shape):
    world = ProtocolWorld(SHAPES[shape], range(7))
    (one, first), (other, second) = joined(world, kind), joined(world, kind)
    mine, theirs = FragmentedObject(first, F), FragmentedObject(second, F)
    with pytest.raises(ObjectNotFound):
        other.run(theirs.fm_read())
    assert one.run(mine.fm_update(cut(b""))).changed
    assert other.run(theirs.fm_read()) == b""
    made = one.run(mine.fm_update(cut(DATA)))
    assert (made.changed, made.written) == (True, 1 + len(cut(DATA).chunks))
    assert other.run(theirs.fm_read()) == DATA
    for edited in (
        DATA[:20_000] + b"!" + DATA[20_001:],
        DATA[:20_000] + DATA[22_000:],
        DATA[:10_000] + bytes(reversed(DATA[:2_000])) + DATA[10_000:],
        b"",
        DATA,
    ):
        done = Seen(world, one, mine.fm_update(cut(edited)))
        assert done.result.changed
        if edited not in (b"", DATA):
            assert 0 < done.result.written < 20 < len(mine.blocks)
            assert done.bytes < 4 * 2 * 4096 * done.result.written
        assert other.run(theirs.fm_read()) == one.run(mine.fm_read()) == edited
    assert one.run(mine.fm_update(cut(DATA))).written == 0


@each_kind
@each_shape
def test_a_read_follows_the_list_and_brings_only_changed_blocks(kind, shape):
    world = ProtocolWorld(SHAPES[shape], range(7))
    (one, first), (other, second) = joined(world, kind), joined(world, kind)
    mine, theirs = FragmentedObject(first, F), FragmentedObject(second, F)
    one.run(mine.fm_update(cut(DATA)))
    whole = Seen(world, other, theirs.fm_read())
    names = [F, *(theirs._name(id) for id, _ in theirs.blocks)]
    assert whole.requests == [(step, name) for name in names for step in ("QueryList", "PutData")]
    again = Seen(world, other, theirs.fm_read())
    assert again.requests == [("QueryList", name) for name in names]
    assert (again.bytes, again.result) == (0, DATA)
    one.run(mine.fm_update(cut(DATA[:20_000] + b"!" + DATA[20_001:])))
    changed = Seen(world, other, theirs.fm_read())
    assert [step for step, _ in changed.requests].count("PutData") in (1, 2)


@each_kind
@each_shape
def test_writers_of_different_blocks_both_prevail_and_of_one_block_one(kind, shape):
    """Fragmented coverability (ARES II, section 2)."""
    world = ProtocolWorld(SHAPES[shape], range(7))
    (one, first), (other, second) = joined(world, kind), joined(world, kind)
    mine, theirs = FragmentedObject(first, F), FragmentedObject(second, F)
    one.run(mine.fm_update(cut(DATA)))
    other.run(theirs.fm_read())
    begin = DATA[:1000] + b"?" + DATA[1001:]
    end = DATA[:39_000] + b"!" + DATA[39_001:]
    assert one.run(mine.fm_update(cut(begin))).changed
    assert other.run(theirs.fm_update(cut(end))).changed
    both = begin[:20_000] + end[20_000:]
    assert one.run(mine.fm_read()) == other.run(theirs.fm_read()) == both
    assert one.run(mine.fm_update(cut(both[:400] + b"?" + both[401:]))).changed
    late = other.run(theirs.fm_update(cut(b"!" + both[1:])))
    assert (late.changed, late.written) == (False, 1)
    assert other.run(theirs.fm_read()) == both[:400] + b"?" + both[401:]
    assert other.run(theirs.fm_update(cut(b"!" + both[1:]))).changed
    assert one.run(mine.fm_read()) == b"!" + both[1:]


@each_kind
def test_a_writer_reads_the_blocks_that_a_lost_write_shows(kind):
    """The other writer's new blocks come behind the block whose write became a read."""
    world = ProtocolWorld(SHAPES["abd"], range(7))
    (one, first), (other, second) = joined(world, kind), joined(world, kind)
    mine, theirs = FragmentedObject(first, F), FragmentedObject(second, F)
    one.run(mine.fm_update(cut(b"")))
    other.run(theirs.fm_read())
    assert one.run(mine.fm_update(cut(DATA))).changed
    assert not other.run(theirs.fm_update(cut(bytes(reversed(DATA))))).changed
    assert [id for id, _ in theirs.blocks] == [id for id, _ in mine.blocks]
    short = Seen(world, other, theirs.fm_update(cut(DATA[:30_000])))
    assert short.result.changed
    assert other.run(theirs.fm_read()) == one.run(mine.fm_read()) == DATA[:30_000]


@each_kind
@each_shape
def test_a_reconfiguration_moves_all_blocks_of_a_file(kind, shape):
    """Section 4.3.5: a single reconfiguration for the whole file."""
    world = ProtocolWorld(SHAPES[shape], range(7))
    (one, first), (mover, moving), (_, third) = (joined(world, kind) for _ in range(3))
    mine = FragmentedObject(first, F)
    one.run(mine.fm_update(cut(DATA)))
    mover.run(moving.reconfig(LATER, [F]))
    while world.step():
        pass
    names = {F, *(mine._name(id) for id, _ in mine.blocks)}
    target = next(c for c in world.replicas["s3"].hosted if c != SHAPES[shape].id)
    assert {name for name, _ in lists_of(world.replicas["s3"].hosted[target].objects)} == names
    assert one.run(mine.fm_update(cut(DATA[1:]))).changed
    assert one.run(FragmentedObject(third, F).fm_read()) == DATA[1:]
    assert first.lambda_ == third.lambda_ == 1


@each_shape
def test_without_batching_each_block_has_a_sequence_of_its_own(shape):
    """Section 5.3: a reconfiguration for each block, one after another."""
    one_by_one = PublishedAlgorithm("ares2", Ares2Switches(True, True, False), True, True)
    world = ProtocolWorld(SHAPES[shape], range(7))
    clients = [world.client() for _ in range(3)]
    files = [FragmentedObject(one_by_one.client(client.id, world.initial), F) for client in clients]
    clients[0].run(files[0].fm_update(cut(DATA)))
    assert clients[1].run(files[1].fm_read()) == DATA
    names = files[1].objects
    moved = clients[1].run(files[1].dsmm.reconfig(LATER, names))
    assert (moved.domain, moved.index) == (names[-1], 1)
    assert world.decisions.decisions.keys() == set(names)
    assert clients[0].run(files[0].fm_update(cut(DATA[:20_000] + b"!" + DATA[20_000:]))).changed
    assert clients[2].run(files[2].fm_read()) == DATA[:20_000] + b"!" + DATA[20_000:]
    assert {files[2].dsmm.of(name).lambda_ for name in names} == {1}


@each_atomic_kind
def test_files_on_random_schedules_hold_whole_blocks(kind):
    """Each write replaces all blocks; a read beside writes and moves finds blocks of writes."""
    for seed in range(4):
        world = ProtocolWorld(SHAPES["abd"], range(7), seed)
        states = [joined(world, kind) for _ in range(4)]
        files = [FragmentedObject(state, F) for _, state in states]
        contents = [random.Random(seed * 10 + number).randbytes(6_000) for number in range(3)]
        pieces = {
            content[c.offset :][: c.length] for content in contents for c in cut(content).chunks
        }
        states[0][0].run(files[0].fm_update(cut(contents[0])))
        for (client, _), file in zip(states[1:3], files[1:3], strict=True):
            client.run(file.fm_read())
        pending = [
            states[1][0].start(files[1].fm_update(cut(contents[1])), idle=True),
            states[2][0].start(files[2].fm_update(cut(contents[2])), idle=True),
            states[3][0].start(states[3][1].reconfig(LATER, [F]), idle=True),
            states[0][0].start(files[0].fm_read(), idle=True),
        ]
        world.until(lambda pending=pending: all(each.ended for each in pending))
        assert all(each.error is None for each in pending)
        for (client, _), file in zip(states[:3], files[:3], strict=True):
            client.run(file.fm_read())
        found = {bytes(block.data) for _, block in files[0].blocks} - {b""}
        assert found <= pieces
        assert found - {contents[0][c.offset :][: c.length] for c in cut(contents[0]).chunks}
        assert files[0].blocks == files[1].blocks == files[2].blocks


# -- files of processes ----------------------------------------------------------------------------


class WorldRunner:
    """A runner of a client's operations in a world, with a log."""

    def __init__(self, world, log):
        self.world, self.log, self.fails = world, log, False

    async def run(self, operation, label, timeout_s, **more):
        if self.fails:
            raise Unavailable(2, 1, {})
        recording = Recording(label.what, itertools.count().__next__, deque())
        result = error = None
        try:
            result = self.world.client().run(operation, recording=recording)
        except ObjectNotFound as found:
            error = found
        recording.close()
        self.log.write(recording, label, result, error)
        if error is not None:
            raise error
        return result


@each_kind
async def test_a_file_of_processes_reads_first_and_logs_its_blocks(kind, tmp_path):
    world = ProtocolWorld(SHAPES["ec"], range(7))
    runner = WorldRunner(world, BlockLog(tmp_path / "log", ClientId(1)))
    ids = itertools.count(100).__next__
    files = [
        PublishedObjects(
            runner, lambda _: KINDS[kind].client(ClientId(ids()), world.initial), 9.0
        ).file("f", SIZES)
        for _ in range(2)
    ]
    assert all(isinstance(file, PublishedFile) for file in files)
    blocks = 1 + len(cut(DATA).chunks)
    assert await files[0].write(DATA)
    assert await files[1].write(DATA[:-1])
    assert await files[1].read() == DATA[:-1]
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [
        (line["op"], line["outcome"]) for line in lines if line["op"] not in ("read", "write")
    ] == [*(("stat", "failed"), ("put", "ok"), ("stat", "ok"), ("put", "ok"), ("get", "ok"))]
    of_blocks = [line for line in lines if line["op"] in ("read", "write")]
    assert [line["op"] for line in of_blocks] == ["write"] * (blocks + 1) + ["read"] * blocks
    assert {line["message"] for line in of_blocks} == {"READ-COMPLETE-DSMM", "WRITE-COMPLETE-DSMM"}
    assert {line["outcome"] for line in of_blocks} == {"ok"}
    assert [line["prop"] for line in of_blocks] == [True] * (blocks + 1) + [False] * blocks
    assert (lines[-1]["op"], lines[-1]["prop"]) == ("get", False)
    assert all(line["op_latency"] > 0 for line in lines[1:])
    runner.fails = True
    with pytest.raises(Unavailable):
        await files[1].read()
    runner.fails = False
    assert await files[1].write(DATA)
    assert await files[0].read() == DATA


@each_kind
def test_clients_are_of_the_named_algorithm(kind):
    client = KINDS[kind].client(ClientId(1), SHAPES["abd"])
    assert type(client) is (CoAresClient if kind == "ares" else CoAres2Client)
    assert client.piggyback == (kind in ("ares2", "ares2-r1"))
    assert client.dap(SHAPES["abd"]).whole != client.piggyback
