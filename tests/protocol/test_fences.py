"""A collection beside a put or a removal of the same atomic file (ares/fragment/collect.py).

A seed chooses the order of the messages.
"""

from contextlib import nullcontext

import pytest

from ares.client.local_copy import AssemblySink, content_of_bytes
from ares.fragment.block import (
    GENESIS_NAMES,
    Block,
    BlockId,
    BlockIds,
    Genesis,
    block_name,
    encode_block,
)
from ares.fragment.collect import fm_collect, fm_remove
from ares.fragment.divide import Sizes
from ares.fragment.read import FileState, fm_read
from ares.fragment.replace import fm_put
from ares.fragment.report import REPLACED_MEANWHILE
from ares.fragment.shared_memory import Blocks, FileTarget
from ares.model.configuration import Configuration
from ares.model.errors import BadBlock, ObjectNotFound
from ares.model.identity import DEFAULT_DOMAIN
from ares.model.messages import PutData
from ares.model.tag import TAG_ZERO
from tests.protocol.protocol_world import ProtocolWorld, servers
from tests.simulation.file_controls import (
    collections_without_a_fence,
    fences_beside_young_blocks,
    puts_that_do_not_look_at_the_mark,
)

C0 = Configuration.abd(servers(0, 1, 2)).at(DEFAULT_DOMAIN, 0)
SIZES = Sizes(64, 256, 1024)
NOW_S, GRACE_S = 1_000_000, 500
OLD, NEW = b"the old content " * 10, b"the new content " * 10


def ids_of(client):
    """Return the ids of a client, each once."""
    if not hasattr(client, "ids"):
        client.ids = BlockIds(100 + client.id)
    return client.ids


def put(client, base, data):
    ids = ids_of(client)
    base = base or FileState(Genesis(ids.life("f"), True, SIZES, None, ()), TAG_ZERO, ())
    return fm_put(
        FileTarget(Blocks(client.view), "f", ids, NOW_S),
        base,
        content_of_bytes(data, SIZES),
        mine=True,
    )


def get(client, name="f"):
    """Return the content, or `None` for an absent file."""
    sink = AssemblySink(None)

    def reading():
        try:
            yield from fm_read(Blocks(client.view), name, None, sink)
        except ObjectNotFound:
            return None
        return sink.finish()

    return reading()


def collect(client):
    return fm_collect(Blocks(client.view), NOW_S, GRACE_S)


def with_orphan(seed):
    """Make a file with an old block of a dead put, a writer, a reader, and a collector.

    The collector has the highest id.
    """
    world = ProtocolWorld(C0, range(3), seed)
    writer, reader, collector = world.client(), world.client(), world.client()
    _, state = writer.run(put(writer, None, OLD))
    lost = block_name(state.genesis.file, BlockId(9, 9))
    writer.run(
        Blocks(writer.view).create(
            lost, encode_block(Block(None, TAG_ZERO, NOW_S - GRACE_S, b"lost"))
        )
    )
    return world, writer, reader, collector, state


def beside(seed, operation, wanted):
    """Run a collection, ``operation`` and reads at the same time, and return the first error."""
    world, writer, reader, collector, state = with_orphan(seed)
    for _ in range(world.rng.randrange(12)):
        world.step()
    collecting = collector.start(collect(collector))
    for _ in range(world.rng.randrange(120)):
        world.step()
    running = writer.start(operation(writer, state))
    seen = []
    while not (running.ended and collecting.ended):
        seen.append(reader.run(get(reader)))
        if not world.step():
            world.tick()
    running.result()
    seen.append(reader.run(get(reader)))
    if seen[-1] != wanted:
        yield f"seed {seed}: what was acknowledged is undone"
    if wanted in seen and OLD in seen[seen.index(wanted) :]:
        yield f"seed {seed}: readers go back"


def putting(data):
    return lambda client, state: put(client, state, data)


def removing(client, state):
    return fm_remove(Blocks(client.view), "f", ids_of(client), NOW_S)


CASES = {
    "put": (putting(NEW), NEW),
    "put of nothing new": (putting(OLD[: len(OLD) // 2]), OLD[: len(OLD) // 2]),
    "removal": (removing, None),
}


@pytest.mark.parametrize("case", CASES)
def test_no_collection_undoes_what_was_acknowledged(case):
    assert [flaw for seed in range(150) for flaw in beside(seed, *CASES[case])] == []


def test_of_two_puts_over_one_version_the_one_that_begins_later_is_told():
    for seed in range(50):
        world, writer, reader, _, state = with_orphan(seed)
        second = world.client()
        assert not writer.run(put(writer, state, NEW))[0].conflicts
        ids = ids_of(second)
        report, _ = second.run(
            fm_put(
                FileTarget(Blocks(second.view), "f", ids, NOW_S),
                state,
                content_of_bytes(b"another content " * 9, SIZES),
            )
        )
        assert [conflict.why for conflict in report.conflicts] == [REPLACED_MEANWHILE]
        assert reader.run(get(reader)) == NEW


def drain(world):
    while world.step():
        pass


def held(*clients):
    """Hold the writes of genesis blocks by these clients."""
    return lambda source, target, message: source in clients and _puts_list(message)


@pytest.mark.parametrize("broken", [nullcontext, puts_that_do_not_look_at_the_mark])
def test_a_put_that_begins_when_the_fence_has_looked_goes_above_it(broken):
    world, writer, reader, collector, state = with_orphan(1)
    with broken():
        world.hold = held(collector)
        collecting = collector.start(collect(collector))
        drain(world)
        writer.run(put(writer, state, NEW))
        world.hold = lambda *_: False
        world.until(lambda: collecting.ended)
        drain(world)
        assert (reader.run(get(reader)) == NEW) is (broken is nullcontext)


@pytest.mark.parametrize("broken", [nullcontext, fences_beside_young_blocks])
@pytest.mark.parametrize("case", ["put", "put of nothing new"])
def test_no_fence_while_a_put_that_has_looked_at_the_mark_is_about_to_publish(case, broken):
    operation, wanted = CASES[case]
    world, writer, reader, collector, state = with_orphan(2)
    with broken():
        world.hold = held(writer)
        putting = writer.start(operation(writer, state))
        drain(world)
        world.hold = held(writer, collector)
        collecting = collector.start(collect(collector))
        drain(world)
        world.hold = held(collector)
        world.until(lambda: putting.ended)
        world.hold = lambda *_: False
        world.until(lambda: collecting.ended)
        drain(world)
        assert (reader.run(get(reader)) == wanted) is (broken is nullcontext)


@pytest.mark.parametrize("broken", [nullcontext, collections_without_a_fence])
def test_what_dead_puts_left_at_one_server_does_not_come_back(broken):
    """Two dead puts left their lists at a single server, which no quorum meets for a while.

    One list is over a version, the other over no version; the blocks are collected before a quorum
    meets the server.
    """
    world, _, reader, collector, state = with_orphan(1)
    new = FileState(Genesis(BlockId(7, 7), True, SIZES, None, ()), TAG_ZERO, ())
    for name, base in (("f", state), ("g", new)):
        dying = world.client()
        world.hold = lambda source, target, message: _puts_list(message) and target != "s0"
        ids = ids_of(dying)
        dying.start(
            fm_put(
                FileTarget(Blocks(dying.view), name, ids, NOW_S - GRACE_S),
                base,
                content_of_bytes(NEW, SIZES),
            )
        )
        drain(world)
        dying.dead, world.hold = True, lambda *_: False
        world.flights.clear()
    world.down = {"s0"}
    with broken():
        assert collector.run(collect(collector)) == 3
    world.down = {"s1"}
    if broken is nullcontext:
        assert [reader.run(get(reader, name)) for name in ("f", "g")] == [OLD, None]
    else:
        for name in ("f", "g"):
            with pytest.raises(BadBlock, match="the block is gone"):
                reader.run(get(reader, name))


def _puts_list(message):
    return (
        isinstance(message, PutData)
        and message.object.startswith(GENESIS_NAMES)
        and message.element.length > 0
    )
