"""fm-put: every reader at any time sees a single put of an atomic file, whole.

The writer of an unseen, replaced put is told.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ares.fragment.block import block_name, decode_block, decode_genesis, genesis_name
from ares.fragment.collect import fm_collect, fm_remove
from ares.fragment.replace import REPLACE_GRACE_S
from ares.fragment.report import DELETED_MEANWHILE, MADE_MEANWHILE, REPLACED_MEANWHILE
from ares.model.errors import Unavailable

from .contents import changes, contents
from .memory_blocks import MemoryBlocks
from .memory_world import BlockWorld, noise

QUICK = settings(max_examples=40, deadline=None)


class Careless(MemoryBlocks):
    """A control: every write succeeds with any version."""

    def stale(self, tag, value, version):
        return False


@pytest.mark.parametrize("size", [0, 1, 64, 1024, 1025, 20_000])
@pytest.mark.parametrize("repeated", [False, True])
def test_any_size_comes_back(size, repeated):
    world = BlockWorld()
    data = b"x" * size if repeated else noise(size, size)
    state = world.client().make(data, atomic=True)
    back, seen = world.client().read()
    assert back == data
    assert (seen.parts, seen.tag) == (state.parts, state.tag)


@QUICK
@given(contents, st.lists(changes, max_size=5), st.integers(0, 1000))
def test_puts_of_one_writer_keep_blocks_of_old_chunks(data, edits, seed):
    """Old chunks keep their blocks; listed and retired blocks exist.

    All other blocks are gone after the grace time.
    """
    world = BlockWorld(seed)
    writer, reader = world.client(), world.client()
    state = writer.make(data, atomic=True)
    for edit in edits:
        world.now_s += REPLACE_GRACE_S // 2
        data = edit.on(data)
        old = {part.digest for part in state.parts}
        report, state = writer.run(writer.put(state, data))
        assert not report.conflicts
        assert report.kept >= sum(part.digest in old for part in state.parts)
        assert reader.read()[0] == world.content() == data
        assert reader.read(state)[0] == data
        genesis = world.genesis()
        held = {
            block_name(genesis.file, id)
            for id in [*(part.id for part in genesis.parts), *(id for id, _ in genesis.retired)]
        }
        assert set(world.names("\0block/")) == held
        assert all(world.now_s - since_s < REPLACE_GRACE_S for _, since_s in genesis.retired)


def test_readers_beside_puts_see_one_of_them():
    for seed in range(60):
        world = BlockWorld(seed, weak=True, ticks_max=4)
        writers, reader = [world.client() for _ in range(3)], world.client()
        data = noise(1, 3000)
        base = writers[0].make(data, atomic=True)
        puts = [noise(2 + number, 1000) + data[:2000] for number in range(3)]
        running = [
            writer.start(writer.put(base, put, overwrite=bool(seed % 2)))
            for writer, put in zip(writers, puts, strict=True)
        ]
        reads = []
        while any(writer.busy for writer in writers):
            world.advance()
            if world.rng.random() < 0.2:
                reads.append(
                    reader.start(reader.reading(base if world.rng.random() < 0.5 else None))
                )
        world.settle()
        assert {one.result()[0] for one in reads} <= {data, *puts}
        assert world.content() in puts
        reports = [one.result()[0] for one in running]
        if seed % 2:
            assert not any(report.conflicts for report in reports)


def _stand(world, overwrite):
    """Run two puts over the same version; return their contents and their success."""
    a, b = world.clients
    base = a.make(b"old", atomic=True)
    data = noise(1, 400), noise(2, 400)
    running = [
        client.start(client.put(base, one, overwrite=overwrite))
        for client, one in zip((a, b), data, strict=True)
    ]
    world.settle()
    return data, [not one.result()[0].conflicts for one in running]


def test_of_two_puts_over_one_version_one_is_told():
    """The exception is a put whose publication lands after the rival's look."""
    refused = unseen = 0
    for seed in range(100):
        world = BlockWorld(seed, weak=True, ticks_max=3)
        world.client(), world.client()
        data, stand = _stand(world, overwrite=False)
        assert any(stand)
        assert world.content() in [one for one, there in zip(data, stand, strict=True) if there]
        refused += not all(stand)
        unseen += all(stand)
    assert refused > 3 * unseen


def test_control_a_memory_without_versions_is_seen():
    world = BlockWorld()
    a, b = world.client(), world.client()
    b.blocks = Careless(b)
    base = a.make(noise(3, 3000), atomic=True)
    a.run(a.put(base, noise(4, 3000)))
    report, _ = b.run(b.put(base, noise(5, 3000)))
    assert not report.conflicts


def test_a_put_over_a_replaced_version_is_a_conflict():
    world = BlockWorld()
    a, b = world.client(), world.client()
    base = a.make(noise(3, 3000), atomic=True)
    _, newer = b.run(b.put(base, noise(4, 3000)))
    there = world.names("\0block/")
    report, state = a.run(a.put(base, noise(5, 3000)))
    assert [(found.why, found.offset, found.length) for found in report.conflicts] == [
        (REPLACED_MEANWHILE, 0, 3000)
    ]
    assert state == base
    assert world.names("\0block/") == there, "what was made for nothing is gone"
    assert world.content() == noise(4, 3000)
    report, state = a.run(a.put(base, noise(5, 3000) + noise(3, 3000), overwrite=True))
    assert not report.conflicts
    assert world.content() == noise(5, 3000) + noise(3, 3000)
    assert b.run(b.put(newer, b"x"))[0].conflicts
    assert b.read(newer)[0] == world.content()


def test_a_put_of_what_is_there_already_is_no_conflict():
    world = BlockWorld()
    a, b = world.client(), world.client()
    base = a.make(noise(6, 3000), atomic=True)
    a.run(a.put(base, noise(7, 3000)))
    there = world.names("\0block/")
    report, state = b.run(b.put(base, noise(7, 3000)))
    assert not report.conflicts
    assert world.names("\0block/") == there
    assert b.run(b.put(state, b"on"))[0].conflicts == ()


def test_retired_blocks_are_not_reused_when_they_may_be_about_to_go():
    world = BlockWorld()
    a, b = world.client(), world.client()
    base = a.make(noise(8, 3000), atomic=True)
    a.run(a.put(base, noise(9, 3000)))
    world.now_s += REPLACE_GRACE_S - 1
    report, _ = b.run(b.put(base, noise(8, 3000) + b"more", overwrite=True))
    assert [found.why for found in report.conflicts] == [REPLACED_MEANWHILE]
    report, _ = b.run(b.put(b.look(), noise(8, 3000) + b"more", overwrite=True))
    assert not report.conflicts
    world.now_s += REPLACE_GRACE_S
    a.run(a.put(a.look(), b"x"))
    assert a.read()[0] == b"x"


def test_old_blocks_survive_the_grace_and_no_longer():
    world = BlockWorld()
    writer, reader = world.client(), world.client()
    base = writer.make(noise(10, 3000), atomic=True)
    old = {block_name(base.genesis.file, part.id) for part in base.parts}
    state = base
    for seconds, there in ((0, True), (REPLACE_GRACE_S - 1, True), (2, False)):
        world.now_s += seconds
        _, state = writer.run(writer.put(state, noise(world.now_s, 3000)))
        assert (old <= set(world.names())) is there
        assert not there or reader.read()[0]
    assert not old & set(world.names())


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_put_that_failed_or_died(overwrite):
    """The file is old or new, whole; the repeated put finishes the work.

    Collection leaves no other blocks behind.
    """
    data, edited = noise(11, 3000), noise(12, 1500) + noise(11, 3000)[:1500]
    seen = set()
    for step in range(100):
        world = BlockWorld(step, weak=bool(step % 2))
        writer, other = world.client(), world.client()
        base = writer.make(data, atomic=True)
        writer.fail_at = writer.steps + step
        running = writer.start(writer.put(base, edited, overwrite=overwrite))
        world.settle()
        seen.add(world.content())
        if running.error is None:
            break
        assert isinstance(running.error, Unavailable)
        assert world.content() == data or running.error.may_have_taken_effect
        assert world.content() in (data, edited)
        assert (
            not running.error.may_have_taken_effect
            or "its old content or its new one, whole" in str(running.error)
        )
        report, _ = writer.run(writer.put(base, edited, overwrite=overwrite))
        assert not report.conflicts
        other.run(fm_collect(other.blocks, world.now_s, 0))
        assert other.read()[0] == edited
    else:
        raise AssertionError("it never succeeds")
    assert seen == {data, edited}


def test_made_deleted_and_replaced_meanwhile():
    world = BlockWorld()
    a, b = world.client(), world.client()
    base = a.make(noise(13, 2000), atomic=True)
    report, _ = b.run(b.put(b.new(atomic=True), noise(14, 2000)))
    assert [found.why for found in report.conflicts] == [MADE_MEANWHILE]
    b.run(fm_remove(b.blocks, "f", b.ids, b.world.now_s))
    for overwrite in (False, True):
        report, state = a.run(a.put(base, noise(15, 2000), overwrite=overwrite))
        assert [found.why for found in report.conflicts] == [DELETED_MEANWHILE]
        assert state == base
    assert not world.names()
    b.make(noise(16, 2000), atomic=True)
    for overwrite in (False, True):
        report, _ = a.run(a.put(base, noise(13, 2000) + b"x", overwrite=overwrite))
        assert [found.why for found in report.conflicts] == [REPLACED_MEANWHILE]
    report, _ = a.run(a.put(a.new(atomic=True), noise(17, 2000), overwrite=True))
    assert not report.conflicts
    assert a.read()[0] == noise(17, 2000)


def test_a_shared_file_becomes_atomic_whole():
    world = BlockWorld()
    a = world.client()
    state = a.make(noise(18, 2000))
    report, state = a.run(a.put(state, noise(19, 2000)))
    assert not report.conflicts
    assert world.genesis().atomic
    assert a.read()[0] == noise(19, 2000)
    a.run(fm_collect(a.blocks, world.now_s, 0))
    assert sum(
        len(decode_block(world.latest(name)[1], name).data) > 0 for name in world.names("\0block/")
    ) == len(state.parts)


def test_what_a_list_named_stays_for_its_readers():
    """An overtaken put was visible before: the blocks of this put are left for collection."""
    for seed in range(40):
        world = BlockWorld(seed, weak=True, ticks_max=2)
        a, b = world.client(), world.client()
        base = a.make(b"old", atomic=True)
        running = [
            client.start(client.put(base, noise(number, 500)))
            for number, client in enumerate((a, b))
        ]
        world.settle()
        lists = [
            decode_genesis(value, "")
            for value in world.written[genesis_name("f")]
            if isinstance(value, bytes)
        ]
        there = set(world.names("\0block/"))
        assert {
            block_name(genesis.file, part.id) for genesis in lists for part in genesis.parts
        } <= there
        if len(lists) == 3 and any(one.result()[0].conflicts for one in running):
            return
    raise AssertionError("no put was overtaken")
