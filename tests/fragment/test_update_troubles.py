"""fm-update after a failure, a dead writer or a deleted file: the state, and the report."""

import pytest

from ares.fragment.block import block_name, genesis_name
from ares.fragment.collect import fm_remove
from ares.fragment.replace import fm_put
from ares.fragment.report import DELETED_MEANWHILE, MADE_MEANWHILE, REPLACED_MEANWHILE
from ares.fragment.shared_memory import FileTarget
from ares.fragment.update import HINT_STALE_BLOCKS
from ares.model.errors import Unavailable
from ares.model.tag import Tag
from ares.model.value import TOMBSTONE

from .contents import carried_out, wishes
from .memory_world import BlockWorld, content, noise, whole_chunks


@pytest.mark.parametrize("mine", [False, True])
@pytest.mark.parametrize("edit", ["front", "middle", "end", "empty"])
def test_a_put_that_failed_is_put_again(edit, mine):
    """After a failure at any step, the same put from the same base finishes the work.

    The put has no conflict with itself, and duplicates no content.
    """
    data = noise(8, 3000)
    new = noise(9, 2500)
    edited = {
        "front": new + data,
        "middle": data[:1500] + new + data[2000:],
        "end": data + new,
        "empty": b"",
    }[edit]
    for weak in (False, True):
        for step in range(200):
            world = BlockWorld(step, weak=weak)
            writer = world.client()
            base = writer.make(data)
            writer.fail_at = writer.steps + step
            running = writer.start(writer.update(base, edited, mine=mine))
            world.settle()
            if running.error is None:
                assert step > 5
                break
            assert isinstance(running.error, Unavailable)
            if not running.error.may_have_taken_effect:
                assert world.content() == data
            report, _ = writer.run(writer.update(base, edited, mine=mine))
            assert not report.conflicts
            assert world.content() == edited
        else:
            raise AssertionError("it never succeeds")


def test_a_writer_that_dies_leaves_old_or_new_blocks():
    data = noise(10, 4000)
    edited = data[:1000] + noise(11, 1500) + data[1200:3000] + b"x" + data[3001:]
    seen = set()
    for step in range(80):
        world = BlockWorld(step, weak=True)
        writer = world.client()
        base = writer.make(data)
        old, wished = [block for _, block in world.chain()], wishes(base, edited)
        writer.die_at = writer.steps + step
        writer.start(writer.update(base, edited))
        world.settle()
        found = world.client().read()[0]
        assert found == world.content()
        assert found in _mixtures(old, wished)
        seen.add(found)
    assert {data, edited} <= seen


def _mixtures(old, wished):
    blocks = list(wished)
    for chosen in range(2 ** len(blocks)):
        yield carried_out(
            old, {block: wished[block] for place, block in enumerate(blocks) if chosen >> place & 1}
        )


def test_what_failed_is_said_truly():
    """Before any publication no change was made.

    Afterwards a change is possible, even if only the last look fails.
    """
    data, outcomes = noise(12, 3000), set()
    edited = (
        whole_chunks(13, 1500)
        + b"x"
        + data[:1500]
        + b"y"
        + data[1501:2500]
        + b"z"
        + data[2501:]
        + noise(13, 3000)
    )
    for step in range(200):
        world = BlockWorld(step, ticks_max=6)
        writer = world.client()
        base = writer.make(data)
        writer.fail_at = writer.steps + step
        running = writer.start(writer.update(base, edited))
        world.settle()
        if running.error is None:
            break
        assert world.content() == data or running.error.may_have_taken_effect
        outcomes.add(
            (
                running.error.may_have_taken_effect,
                str(running.error).partition("; ")[2].partition("; ")[2],
            )
        )
    assert outcomes == {
        (False, "nothing was changed"),
        (
            True,
            "some blocks of the file may have their new content, and the rest the old content: "
            "put it again",
        ),
        (
            True,
            "the file was written, but whether it is the current version could not be read: read "
            "it, or put it again",
        ),
    }


def test_a_hint_that_cannot_be_written_is_no_failure():
    world, data = BlockWorld(), noise(14, 2000)
    writer = world.client()
    base = writer.make(data)
    edited = data + noise(15, 20_000)
    writer.run(writer.update(base, edited))
    steps = writer.steps

    again = BlockWorld()
    writer = again.client()
    base = writer.make(data)
    writer.fail_at = steps - 1
    report, state = writer.run(writer.update(base, edited))
    assert report.inserted >= HINT_STALE_BLOCKS
    assert not report.conflicts
    assert state.tag == base.tag
    assert again.content() == edited


def test_a_poor_hint_is_written_anew():
    world, data = BlockWorld(), noise(16, 2000)
    writer = world.client()
    base = writer.make(data)
    _, state = writer.run(writer.update(base, data[:1000] + noise(17, 20_000) + data[1000:]))
    assert world.genesis().parts == state.parts == writer.look().parts
    assert state.tag > base.tag


def test_two_make_the_same_file():
    world = BlockWorld()
    a, b = world.client(), world.client()
    new = b.new()
    a.make(b"first")
    report, state = b.run(b.update(new, noise(18, 3000)))
    assert [conflict.why for conflict in report.conflicts] == [MADE_MEANWHILE]
    assert state.tag == new.tag
    assert len(world.names()) == 2, "the blocks of the second are gone"
    report, state = b.run(b.update(new, noise(18, 3000), mine=True))
    assert not report.conflicts
    assert world.content() == noise(18, 3000)
    assert b.run(b.update(state, b"on"))[0].conflicts == ()


def test_a_file_that_was_deleted_takes_the_whole_put_with_it():
    """This holds for a pending write of the genesis block, too.

    It also holds before the file's blocks are gone.
    """
    world, data = BlockWorld(), whole_chunks(19, 3000)
    a, b = world.client(), world.client()
    for edited in (b"x" + data, whole_chunks(20, 3000) + data + b"y", b"", data):
        for blocks_too in (True, False):
            base = a.make(data)
            if blocks_too:
                b.run(fm_remove(b.blocks, "f", b.ids, b.world.now_s))
            else:
                b.run(b.blocks.write(genesis_name("f"), TOMBSTONE, base.tag))
            for mine in (False, True):
                report, _ = a.run(a.update(base, edited, mine=mine))
                assert [(found.why, found.offset, found.length) for found in report.conflicts] == [
                    (DELETED_MEANWHILE, 0, len(edited))
                ]
            assert world.genesis() is None


def test_a_block_that_is_gone_takes_the_whole_put_with_it():
    """Another client deletes the file, and at the same time the genesis block was written again.

    The genesis block exists, and the file is lost.
    """
    for edited in (b"x", b"y", b"z"):
        world, data = BlockWorld(), noise(43, 3000)
        a = world.client()
        base = a.make(data)
        world.land(block_name(base.genesis.file, base.parts[4].id), Tag(9, 9), TOMBSTONE)
        report, _ = a.run(a.update(base, edited + data))
        assert [(found.why, found.length) for found in report.conflicts] == [
            (DELETED_MEANWHILE, 3001)
        ]


def test_a_file_that_was_replaced_takes_the_whole_put_with_it():
    world, data = BlockWorld(), noise(21, 3000)
    a, b = world.client(), world.client()
    base = a.make(data)
    b.run(fm_remove(b.blocks, "f", b.ids, b.world.now_s))
    b.make(b"another")
    for edited in (b"x" + data, noise(22, 3000) + data):
        report, _ = a.run(a.update(base, edited))
        assert {found.why for found in report.conflicts} <= {REPLACED_MEANWHILE, DELETED_MEANWHILE}
        assert len(report.conflicts) == 1
    assert world.content() == b"another"


def test_a_file_that_became_atomic_is_not_written_block_by_block():
    world, data = BlockWorld(), noise(23, 3000)
    a, b = world.client(), world.client()
    base = a.make(data)
    b.run(fm_put(FileTarget(b.blocks, "f", b.ids, world.now_s), b.look(), content(b"whole")))
    for mine in (False, True):
        report, _ = a.run(a.update(base, noise(24, 3000) + data, mine=mine))
        assert [found.why for found in report.conflicts] == [REPLACED_MEANWHILE]
    assert world.content() == b"whole"
