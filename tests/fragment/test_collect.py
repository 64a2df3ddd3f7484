"""Deletion of files and collection of blocks.

Collection never takes a block of a file, and always takes an orphan that is old enough.
"""

import msgspec
import pytest

from ares.fragment.block import (
    Block,
    block_name,
    decode_block,
    encode_block,
    encode_genesis,
    genesis_name,
)
from ares.fragment.collect import fm_collect, fm_remove
from ares.fragment.shared_memory import RETRIES_MAX, list_files
from ares.model.errors import BadBlock, FileChanged, ObjectNotFound, Unavailable
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import TOMBSTONE

from .memory_world import BlockWorld, noise


def collected(client, grace_s=0):
    return client.run(fm_collect(client.blocks, client.world.now_s, grace_s))


def orphan(client, created_s=None):
    """Make an orphaned block."""
    world = client.world
    name = block_name(client.ids.next(), client.ids.next())
    value = encode_block(
        Block(None, TAG_ZERO, world.now_s if created_s is None else created_s, b"lost")
    )
    world.land(name, Tag(1, client.id), value)
    return name


def full(world):
    """Return the existing objects, without empty blocks."""
    return [
        name
        for name in world.names()
        if not name.startswith("\0block/") or _holds_data(world.latest(name)[1])
    ]


def _holds_data(value):
    return value[:1] == b"\xff" or len(decode_block(value, "").data) > 0


def test_files_are_listed_by_prefix_without_removed_files():
    world = BlockWorld()
    client = world.client()
    names = [f"a/{number:02}" for number in range(10)] + ["b", "\N{SNOWMAN}"]
    for name in names:
        client.make(b"x", file=name, atomic=name == "b")
    assert client.run(list_files(client.blocks)) == names
    assert client.run(list_files(client.blocks, "a/0")) == names[:10]
    client.run(fm_remove(client.blocks, "b", client.ids, client.world.now_s))
    assert "b" not in client.run(list_files(client.blocks))


@pytest.mark.parametrize("atomic", [False, True])
def test_remove_leaves_nothing_and_moves_no_content(atomic):
    world = BlockWorld()
    client = world.client()
    client.make(noise(1, 20_000), atomic=atomic)
    other = client.make(b"other", file="g")
    before = world.moved_bytes
    client.run(fm_remove(client.blocks, "f", client.ids, client.world.now_s))
    assert len(world.names()) == 1 + len(other.parts)
    assert world.moved_bytes - before < 20_000 / 4
    with pytest.raises(ObjectNotFound):
        client.run(fm_remove(client.blocks, "f", client.ids, client.world.now_s))
    client.make(noise(2, 3000), atomic=atomic)
    assert client.read()[0] == noise(2, 3000)
    assert client.read(file="g")[0] == b"other"


def test_two_remove_the_same_file():
    for seed in range(20):
        world = BlockWorld(seed, weak=True)
        clients = [world.client(), world.client()]
        clients[0].make(noise(3, 2000))
        running = [
            client.start(fm_remove(client.blocks, "f", client.ids, client.world.now_s))
            for client in clients
        ]
        world.settle()
        assert all(one.error is None or isinstance(one.error, ObjectNotFound) for one in running)
        assert not world.names()


def test_remove_beside_a_put():
    """Check that the file is gone with all blocks, or present whole, in either order.

    If the file is gone, the put is told.
    """
    outcomes = set()
    for seed in range(100):
        world = BlockWorld(seed, ticks_max=3)
        a, b = world.client(), world.client()
        atomic = bool(seed % 2)
        base = a.make(noise(4, 1500), atomic=atomic)
        edited = noise(5, 700) + noise(4, 1500)
        putting = a.start(a.put(base, edited) if atomic else a.update(base, edited))
        for _ in range(seed % 30):
            world.advance()
        removing = b.start(fm_remove(b.blocks, "f", b.ids, b.world.now_s))
        world.settle()
        removing.result()
        report, _ = putting.result()
        assert world.genesis() is None
        outcomes.add(bool(report.conflicts))
        collected(b)
        assert not full(world)
    assert outcomes == {False, True}


def test_remove_beside_a_write_of_the_same_version_tries_again():
    """The write stands instead of the tombstone over the same version.

    The file is therefore deleted again.
    """
    world = BlockWorld()
    client = world.client()
    base = client.make(noise(6, 1000))
    name = genesis_name("f")

    class Overtaking(type(client.blocks)):
        times = 0

        def write(self, object, value, version, **more):
            covered = yield from super().write(object, value, version, **more)
            if value is TOMBSTONE and self.times < 3:
                self.times += 1
                genesis = msgspec.structs.replace(base.genesis, base=version)
                world.land(name, Tag(covered.tag.number, 99), encode_genesis(genesis))
            return covered

    client.blocks = Overtaking(client)
    client.run(fm_remove(client.blocks, "f", client.ids, client.world.now_s))
    assert client.blocks.times == 3
    assert not world.names()

    base = client.make(noise(6, 1000))
    client.blocks = Overtaking(client)
    client.blocks.times = -2 * RETRIES_MAX
    with pytest.raises(FileChanged):
        client.run(fm_remove(client.blocks, "f", client.ids, client.world.now_s))


def test_a_file_that_was_made_anew_meanwhile_stays_and_the_old_blocks_go():
    world = BlockWorld()
    client = world.client()
    old = client.make(noise(7, 1000))

    class Remade(type(client.blocks)):
        def write(self, object, value, version, **more):
            covered = yield from super().write(object, value, version, **more)
            if value is TOMBSTONE:
                genesis = msgspec.structs.replace(
                    old.genesis, file=client.ids.next(), first=None, parts=()
                )
                world.land(object, Tag(covered.tag.number + 1, 99), encode_genesis(genesis))
            return covered

    client.blocks = Remade(client)
    client.run(fm_remove(client.blocks, "f", client.ids, client.world.now_s))
    assert world.names() == [genesis_name("f")]
    assert client.read()[0] == b""


def test_a_removal_that_fails_says_how_far_it_came():
    outcomes = []
    for step in range(100):
        world = BlockWorld()
        client = world.client()
        client.make(noise(8, 1000))
        client.fail_at = client.steps + step
        running = client.start(fm_remove(client.blocks, "f", client.ids, client.world.now_s))
        world.settle()
        if running.error is None:
            break
        assert isinstance(running.error, Unavailable)
        gone = world.genesis() is None
        assert running.error.may_have_taken_effect or not gone
        outcomes.append("the file is deleted; the rest of its blocks" in str(running.error))
        collected(client)
        assert len(full(world)) == (0 if gone else len(world.chain()) + 1)
    assert outcomes == sorted(outcomes)
    assert {False, True} == set(outcomes)


def test_orphans_go_when_they_are_old_enough():
    world = BlockWorld()
    client = world.client()
    shared, atomic = (
        client.make(noise(9, 2000)),
        client.make(noise(10, 2000), atomic=True, file="g"),
    )
    client.run(client.put(atomic, noise(11, 2000), file="g"))
    young, old = orphan(client, world.now_s - 99), orphan(client, world.now_s - 100)
    before = set(world.names())
    assert collected(client, 100) == 1
    assert before - set(full(world)) == {old}
    assert collected(client, 100) == 0
    assert collected(client, 99) == 1
    assert young not in full(world)
    assert client.read()[0] == noise(9, 2000)
    assert client.read(atomic, file="g")[0] == noise(11, 2000)
    assert all(block_name(shared.genesis.file, part.id) in world.names() for part in shared.parts)


def test_collection_beside_writers_takes_nothing_that_becomes_part_of_a_file():
    """The blocks of puts under way are younger than the grace."""
    for seed in range(40):
        world = BlockWorld(seed, weak=True, ticks_max=3)
        a, b, collector = world.client(), world.client(), world.client()
        base, whole = a.make(noise(12, 1500)), b.make(noise(13, 1500), atomic=True, file="g")
        world.now_s += 1000
        first = a.start(a.update(base, noise(14, 1500) + noise(12, 1500)))
        second = b.start(b.put(whole, noise(15, 1500), file="g"))
        for _ in range(seed % 25):
            world.advance()
        lost = orphan(collector, world.now_s - 1000)
        collecting = collector.start(fm_collect(collector.blocks, world.now_s, 500))
        world.settle()
        assert not first.result()[0].conflicts
        assert not second.result()[0].conflicts
        assert collecting.result() == 1
        assert lost not in full(world)
        assert collector.read()[0] == world.content()
        assert collector.read(file="g")[0] == noise(15, 1500)


def test_control_a_grace_that_is_too_short_is_seen():
    damaged = 0
    for seed in range(40):
        world = BlockWorld(seed, ticks_max=2)
        a, collector = world.client(), world.client()
        base = a.make(noise(12, 1500))
        a.start(a.update(base, noise(14, 40_000) + noise(12, 1500)))
        for _ in range(seed % 20):
            world.advance()
        collector.start(fm_collect(collector.blocks, world.now_s, 0))
        world.settle()
        damaged += world.content() not in (noise(12, 1500), noise(14, 40_000) + noise(12, 1500))
    assert damaged


def test_what_cannot_be_read_is_let_be():
    """A damaged file keeps all of its blocks; a block of a newer release stays.

    An unreadable genesis block stops the whole collection.
    """
    world = BlockWorld()
    client = world.client()
    damaged, sound = client.make(noise(16, 2000)), client.make(noise(17, 2000), file="g")
    hole = block_name(damaged.genesis.file, damaged.parts[2].id)
    world.land(hole, Tag(9, 9), TOMBSTONE)
    newer, lost = orphan(client), orphan(client)
    world.land(newer, Tag(9, 9), b"\xff")
    before = set(world.names())
    assert collected(client) == 1
    assert before - set(full(world)) == {lost}
    assert client.read(file="g")[1].parts == sound.parts
    world.land(genesis_name("g"), Tag(9, 9), b"\xff")
    lost = orphan(client)
    with pytest.raises(BadBlock, match="use a newer release"):
        collected(client)
    assert lost in world.names()


def test_progress_of_a_collection():
    world = BlockWorld()
    client = world.client()
    client.make(noise(18, 1000))
    for _ in range(3):
        orphan(client)
    running = client.start(fm_collect(client.blocks, world.now_s, 0))
    world.settle()
    told = [entry for entry in running.progress if entry.stage == "collect"]
    assert [(entry.done, entry.total) for entry in told] == [(1, 3), (2, 3), (3, 3)]


def test_an_unreadable_block_may_be_of_a_put_and_keeps_all_blocks_of_a_removed_file():
    world = BlockWorld()
    client = world.client()
    state = client.make(noise(19, 2000), atomic=True)
    newer = block_name(state.genesis.file, client.ids.next())
    world.land(newer, Tag(9, 9), b"\xff")
    client.run(fm_remove(client.blocks, "f", client.ids, world.now_s))
    assert world.genesis() is None
    assert {block_name(state.genesis.file, part.id) for part in state.parts} | {newer} <= set(
        world.names()
    )
