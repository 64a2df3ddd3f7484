"""fm-update: the content of a single writer is stored, and several writers are merged by block.

A writer with a left-out block is told.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ares.fragment.report import CHANGED_MEANWHILE

from .contents import Change, IntendedWrite, carried_out, changes, contents, wishes
from .memory_blocks import MemoryBlocks
from .memory_world import SIZES, BlockWorld, noise, whole_chunks

QUICK = settings(max_examples=40, deadline=None)


class Careless(MemoryBlocks):
    """A control: every write succeeds, whatever the version."""

    def stale(self, tag, value, version):
        return False


@pytest.mark.parametrize("repeated", [False, True], ids=["random", "repetitive"])
@pytest.mark.parametrize("size", [0, 1, 63, 64, 255, 256, 1023, 1024, 1025, 5000, 20_000])
def test_any_size_comes_back(size, repeated):
    world = BlockWorld()
    data = b"ab" * (size // 2) + b"c" * (size % 2) if repeated else noise(size, size)
    state = world.client().make(data)
    assert world.content() == data
    assert world.client().read()[0] == data
    assert state.length == size
    assert all(part.length <= SIZES.max for part in state.parts)


@QUICK
@given(contents, st.lists(changes, max_size=6), st.integers(0, 1000))
def test_the_only_writer_gets_its_content_in_and_knows_the_file(data, edits, seed):
    """The state that an update returns equals the state of a fresh read.

    This state is therefore the base of the next update.
    """
    world = BlockWorld(seed)
    writer, reader = world.client(), world.client()
    state = writer.make(data)
    for edit in edits:
        data = edit.on(data)
        report, state = writer.run(writer.update(state, data))
        assert (report.conflicts, report.merged) == ((), 0)
        assert world.content() == data
        back, seen = reader.read()
        assert back == data
        assert (seen.parts, seen.tag, seen.genesis.first) == (
            state.parts,
            state.tag,
            state.genesis.first,
        )
        assert seen.genesis.modified_s == state.genesis.modified_s


def test_only_what_differs_moves():
    world = BlockWorld()
    writer, data = world.client(), noise(1, 40_000)
    state = writer.make(data)
    before = world.moved_bytes
    report, state = writer.run(writer.update(state, data[:20_000] + b"x" + data[20_000:]))
    assert report.modified + report.inserted <= 3
    assert (
        report.kept
        == sum(1 for part in state.parts if part.length) - report.modified - report.inserted
    )
    assert world.moved_bytes - before < 4 * SIZES.max
    before = world.moved_bytes
    report, _ = writer.run(writer.update(state, data[:20_000] + b"x" + data[20_000:]))
    assert (report.modified, report.inserted, report.deleted, world.moved_bytes) == (
        0,
        0,
        0,
        before,
    )


def test_emptied_blocks_are_used_again():
    """A chain with hundreds of empty blocks is read, and filled before it grows."""
    world = BlockWorld(ticks_max=1)
    writer, data = world.client(), noise(2, 100_000)
    state = writer.make(data)
    blocks = len(state.parts)
    assert blocks > 200
    report, state = writer.run(writer.update(state, b""))
    assert (report.deleted, report.kept) == (blocks, 0)
    assert writer.read()[0] == b""
    report, state = writer.run(writer.update(state, noise(3, 50_000)))
    assert report.inserted == 0
    assert (report.kept, len(state.parts)) == (0, blocks)
    assert world.content() == noise(3, 50_000)


@QUICK
@given(contents, st.lists(changes, max_size=2), changes, changes, st.integers(0, 1000))
def test_edits_from_one_base_one_after_the_other(data, history, first, second, seed):
    """With different blocks, both writes prevail.

    With the same block, the first write stands, and the second writer is told, with the present
    content.
    """
    flaws = _flaws_of_two_edits(BlockWorld(seed), data, history, first, second)
    assert not flaws


def test_control_a_memory_without_versions_is_seen():
    world, data = BlockWorld(), noise(4, 3000)
    for client in (world.client(), world.client()):
        client.blocks = Careless(client)
    assert _flaws_of_two_edits(world, data, [], Change(0, 0, b"mine"), Change(0, 0, b"theirs"))


def _flaws_of_two_edits(world, data, history, first, second):
    found = []
    while len(world.clients) < 2:
        world.client()
    a, b = world.clients
    base = a.make(data)
    for edit in history:
        data = edit.on(data)
        _, base = a.run(a.update(base, data))
    old = [block for _, block in world.chain()]
    ours, theirs = wishes(base, first.on(data)), wishes(base, second.on(data))
    a.run(a.update(base, first.on(data)))
    report, state = b.run(b.update(base, second.on(data)))
    refused = {index for index in ours.keys() & theirs.keys() if ours[index] != theirs[index]}
    expected = carried_out(old, {**theirs, **ours})
    if len(report.conflicts) != len(refused):
        found.append("conflicts")
    if world.content() != expected:
        found.append("content")
    if not report.conflicts and not report.merged and expected != second.on(data):
        found.append("it is not told that the file is another")
    known = {part.id for part in base.parts}
    now = dict(world.chain())
    for conflict in report.conflicts:
        if conflict.block in known and conflict.theirs != now[conflict.block]:
            found.append("theirs")
    if any(b.read(known)[0] != expected for known in (base, state, None)):
        found.append("read")
    return found


@QUICK
@given(contents, changes, changes, st.integers(0, 1000))
def test_mine_prevails_in_its_blocks(data, first, second, seed):
    """Every block that the second writer changes has that writer's content afterwards.

    The first writer's changes elsewhere, or behind such a block, stay.
    """
    world = BlockWorld(seed)
    a, b = world.client(), world.client()
    base = a.make(data)
    old = [block for _, block in world.chain()]
    theirs, ours = wishes(base, first.on(data)), wishes(base, second.on(data))
    a.run(a.update(base, first.on(data)))
    report, state = b.run(b.update(base, second.on(data), mine=True))
    assert not report.conflicts
    both = {**theirs, **ours}
    for block in ours.keys() & theirs.keys():
        mine, other = ours[block], theirs[block]
        if mine != other:
            both[block] = IntendedWrite(
                other.own if mine.own is None else mine.own, mine.behind + other.behind
            )
    assert world.content() == carried_out(old, both)
    assert report.merged or world.content() == second.on(data)
    assert b.read(state)[0] == world.content()


@pytest.mark.parametrize("mine", [False, True])
@pytest.mark.parametrize("front", [True, False])
def test_a_run_that_begins_like_another_is_not_that_one(mine, front):
    world = BlockWorld()
    a, b = world.client(), world.client()
    data, first, second = whole_chunks(40, 1500), whole_chunks(41, 1500), whole_chunks(42, 1500)
    base = a.make(data)
    longer, shorter = (
        (first + second + data, first + data) if front else (data + first + second, data + first)
    )
    a.run(a.update(base, longer))
    report, _ = b.run(b.update(base, shorter, mine=mine))
    assert bool(report.conflicts) is not mine
    doubled = first + longer if front else data + first + first + second
    assert world.content() == (doubled if mine else longer)


def test_the_same_edit_twice_is_no_conflict():
    world, data = BlockWorld(), noise(5, 5000)
    a, b = world.client(), world.client()
    base = a.make(data)
    edited = noise(6, 3000) + data[:2000] + data[3000:] + noise(7, 3000)
    a.run(a.update(base, edited))
    there = world.names("\0block/")
    report, state = b.run(b.update(base, edited))
    assert not report.conflicts
    assert world.content() == edited
    assert world.names("\0block/") == there, "what was made for nothing is gone"
    report, _ = b.run(b.update(state, edited + b"more"))
    assert not report.conflicts


def test_conflicts_name_the_range_and_what_is_there():
    world, data = BlockWorld(), noise(25, 5000)
    a, b = world.client(), world.client()
    base = a.make(data)
    place = sum(part.length for part in base.parts[:3]) + 5
    a.run(a.update(base, data[:place] + b"A" + data[place + 1 :]))
    report, _ = b.run(b.update(base, data[:place] + b"B" + data[place + 1 :]))
    [found] = report.conflicts
    assert found.why == CHANGED_MEANWHILE
    assert found.offset <= place < found.offset + found.length
    assert found.block == base.parts[3].id
    assert (
        found.theirs
        == (data[:place] + b"A" + data[place + 1 :])[found.offset : found.offset + found.length]
    )
