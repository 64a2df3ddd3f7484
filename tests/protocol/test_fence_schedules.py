"""Schedules which broke the promises of ares/fragment/collect.py in the past.

The schedules hold messages of removals, puts, updates and collections of the same file.
"""

import random

import pytest

from ares.client.local_copy import content_of_bytes
from ares.fragment.block import GENESIS_NAMES, MARK_NAMES, Genesis
from ares.fragment.collect import fm_remove
from ares.fragment.match import GENESIS, match
from ares.fragment.read import FileState
from ares.fragment.replace import fm_put
from ares.fragment.shared_memory import Blocks, FileTarget
from ares.fragment.update import fm_update
from ares.model.errors import ObjectNotFound
from ares.model.messages import PutData
from ares.model.tag import TAG_ZERO
from tests.protocol.test_fences import (
    GRACE_S,
    NOW_S,
    SIZES,
    collect,
    drain,
    get,
    ids_of,
    put,
    removing,
    with_orphan,
)

OLD, NEW = random.Random(1).randbytes(5000), random.Random(2).randbytes(5000)
MIXED = OLD[:2500] + NEW[:2500]


def made(data=OLD, *, shared=False, seed=1):
    """Make a file with ``data``, an old block in no list, and seven clients in the order of ids."""
    world, writer, _, _, old = with_orphan(seed)
    write = update(writer, None, data) if shared else put(writer, old, data)
    if shared:
        writer.run(removing(writer, old))
    _, state = writer.run(write)
    return world, state, [world.client() for _ in range(7)]


def update(client, base, data):
    ids = ids_of(client)
    base = base or FileState(Genesis(ids.life("f"), False, SIZES, None, ()), TAG_ZERO, ())
    return fm_update(
        FileTarget(Blocks(client.view), "f", ids, NOW_S), base, content_of_bytes(data, SIZES)
    )


def lists(*clients):
    """Hold the writes of these clients to the genesis block."""

    def holds(source, target, message):
        return (
            source in clients
            and isinstance(message, PutData)
            and message.object.startswith(GENESIS_NAMES)
            and message.tag.number > 0
        )

    return holds


def free(*_):
    return False


def chunks(data):
    return [(chunk.length, chunk.digest) for chunk in content_of_bytes(data, SIZES).chunks]


def at_front():
    """Return OLD with a prefix; the prefix becomes a separate block."""
    for seed in range(2000):
        data = random.Random(seed).randbytes(300) + OLD
        if any(edit.block == GENESIS for edit in match(chunks(OLD), chunks(data)).edits):
            return data
    raise AssertionError("none of these is")


WRITES = {
    "a put": (False, put, NEW),
    "a put of other blocks": (False, put, MIXED),
    "an insertion at the front": (True, update, at_front()),
}


@pytest.mark.parametrize("write", WRITES)
def test_what_lands_after_the_tombstone_of_a_removal_finds_its_blocks(write):
    shared, writing, data = WRITES[write]
    world, state, (remover, writer, reader, *_) = made(shared=shared)
    world.hold = lists(remover)
    removal = remover.start(removing(remover, state))
    drain(world)
    world.hold = lists(remover, writer)
    running = writer.start(writing(writer, state, data))
    drain(world)
    world.hold = lists(writer)
    world.until(lambda: removal.ended)
    world.hold = free
    world.until(lambda: running.ended)
    told = running.result()[0].conflicts
    assert reader.run(get(reader)) == (None if told else data)


@pytest.mark.parametrize("dies", ["collection", "removal"])
def test_a_mark_that_is_at_one_server_only_is_completed_before_it_is_relied_on(dies):
    """A collection or removal dies when the mark is at s0.

    A put uses the mark's number for a list, and dies with the list at s0. Another collection meets
    the remaining servers.
    """
    world, state, (first, putter, second, reader, *_) = made()
    world.hold = lambda source, target, message: (
        source is first
        and isinstance(message, PutData)
        and message.object.startswith(MARK_NAMES)
        and target != "s0"
    )
    removal = fm_remove(Blocks(first.view), "f", ids_of(first), NOW_S - GRACE_S)
    first.start(collect(first) if dies == "collection" else removal)
    drain(world)
    first.dead, world.down = True, {"s1"}
    world.flights.clear()
    holds = lists(putter)
    world.hold = lambda source, target, message: holds(source, target, message) and target != "s0"
    ids = ids_of(putter)
    putter.start(
        fm_put(
            FileTarget(Blocks(putter.view), "f", ids, NOW_S - GRACE_S),
            state,
            content_of_bytes(NEW, SIZES),
        )
    )
    drain(world)
    putter.dead, world.hold, world.down = True, free, {"s0"}
    world.flights.clear()
    second.run(collect(second))
    world.down = {"s1"}
    assert reader.run(get(reader)) == OLD


def test_an_empty_shared_file_is_announced_when_it_is_made():
    world, _, (maker, collector, reader, *_) = made()
    maker.run(removing(maker, None))
    world.hold = lists(maker)
    making = maker.start(update(maker, None, b""))
    drain(world)
    world.hold = lists(maker, collector)
    collecting = collector.start(collect(collector))
    drain(world)
    world.hold = lists(collector)
    world.until(lambda: making.ended)
    assert reader.run(get(reader)) == b""
    world.hold = free
    world.until(lambda: collecting.ended)
    drain(world)
    assert reader.run(get(reader)) == b""


@pytest.mark.parametrize("other", ["put", "insertion"])
def test_a_new_hint_hides_nothing_that_was_published_beside_it(other):
    world, state, (publisher, hinter, reader, *_) = made(shared=True)
    long = OLD + random.Random(5).randbytes(20_000)
    world.hold = lists(hinter)
    hinting = hinter.start(update(hinter, state, long))
    drain(world)
    data = NEW if other == "put" else at_front()
    report, _ = publisher.run(
        put(publisher, state, data) if other == "put" else update(publisher, state, data)
    )
    assert not report.conflicts
    world.hold = free
    world.until(lambda: hinting.ended)
    drain(world)
    assert reader.run(get(reader)) == (NEW if other == "put" else data[:300] + long)


def test_a_content_that_comes_back_is_not_taken_for_a_fence():
    _, state, (other, putter, reader, *_) = made()
    _, between = other.run(put(other, state, NEW))
    other.run(put(other, between, OLD))
    ids = ids_of(putter)
    report, _ = putter.run(
        fm_put(
            FileTarget(Blocks(putter.view), "f", ids, NOW_S), state, content_of_bytes(MIXED, SIZES)
        )
    )
    assert report.conflicts
    assert reader.run(get(reader)) == OLD


@pytest.mark.parametrize("shared", [False, True])
def test_a_put_over_what_a_collection_has_fenced_is_no_conflict(shared):
    _, state, (collector, putter, reader, *_) = made(shared=shared)
    collector.run(collect(collector))
    ids = ids_of(putter)
    report, _ = putter.run(
        fm_put(
            FileTarget(Blocks(putter.view), "f", ids, NOW_S), state, content_of_bytes(NEW, SIZES)
        )
    )
    assert not report.conflicts
    assert reader.run(get(reader)) == NEW


@pytest.mark.parametrize("seed", range(60))
def test_whatever_runs_side_by_side_leaves_a_file_that_is_whole(seed):
    world, state, clients = made(seed=seed)
    reader, *others = clients
    operations = {
        "put": lambda client: put(client, state, NEW),
        "mix": lambda client: put(client, state, MIXED),
        "collect": collect,
    }
    operations |= {
        "make": lambda client: put(client, None, NEW + b"m"),
        "remove": lambda client: removing(client, state),
    }
    running = []
    for client in world.rng.sample(others, 4):
        kind = world.rng.choice(sorted(operations))
        running.append((kind, client.start(operations[kind](client))))
        for _ in range(world.rng.randrange(60)):
            world.step()
    world.until(lambda: all(one.ended for _, one in running))
    drain(world)
    assert [
        one.error
        for _, one in running
        if one.error is not None and not isinstance(one.error, ObjectNotFound)
    ] == []
    left = reader.run(get(reader))
    kinds = [
        kind
        for kind, one in running
        if one.error is None and not (kind in ("put", "mix", "make") and one.value[0].conflicts)
    ]
    if "remove" not in kinds:
        assert left is not None
    if {"put", "mix", "make"} & set(kinds):
        assert left != OLD
