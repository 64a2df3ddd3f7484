"""fm-read: the pointers are the truth; memory and hints only save time."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ares.client.local_copy import AssemblySink
from ares.fragment.block import (
    Block,
    KnownBlock,
    block_name,
    decode_block,
    encode_block,
    encode_genesis,
    genesis_name,
)
from ares.fragment.collect import fm_remove
from ares.fragment.divide import digest
from ares.fragment.read import RESTARTS_MAX, fm_read
from ares.model.errors import BadBlock, ObjectNotFound
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import TOMBSTONE, WITHHELD

from .contents import changes, contents
from .memory_blocks import MemoryBlocks
from .memory_world import BlockWorld, noise

QUICK = settings(max_examples=40, deadline=None)


def rewritten(world, name, value):
    """Replace the value of an object."""
    tag, _ = world.latest(name)
    world.land(name, Tag(tag.number + 1, 99), value)


def hinted(world, parts):
    """Put another hint into the genesis block."""
    rewritten(
        world,
        genesis_name("f"),
        encode_genesis(msgspec.structs.replace(world.genesis(), parts=tuple(parts))),
    )


@QUICK
@given(
    contents,
    st.lists(changes, min_size=1, max_size=4),
    st.randoms(use_true_random=False),
    st.integers(0, 1000),
)
def test_no_hint_and_no_memory_makes_a_reader_see_anything_else(data, edits, chance, seed):
    """Hints and memories are of any age, shuffled, with holes and with invented blocks."""
    world = BlockWorld(seed)
    writer, reader = world.client(), world.client()
    state = writer.make(data)
    known = [None, state]
    for edit in edits:
        data = edit.on(data)
        _, state = writer.run(writer.update(state, data))
        known.append(state)
    pool = [part for old in known if old is not None for part in old.parts]
    pool.append(KnownBlock(world.client().ids.next(), Tag(3, 3), 10, bytes(16)))
    hints = [
        state.parts,
        (),
        tuple(reversed(state.parts)),
        tuple(dict.fromkeys(chance.sample(pool, chance.randint(0, len(pool))))),
    ]
    for parts in hints:
        unique = {part.id: part for part in parts}
        hinted(world, unique.values())
        for old in known:
            back, seen = reader.read(old)
            assert back == data
            assert [(part.id, part.tag, part.digest) for part in seen.parts] == [
                (part.id, part.tag, part.digest) for part in state.parts
            ]


class Forgetful(MemoryBlocks):
    """A control, which reports every block as unchanged."""

    def read(self, name, held=None):
        found = yield from super().read(name, held)
        return (
            msgspec.structs.replace(found, value=WITHHELD, tag=held) if held is not None else found
        )


def test_control_a_memory_that_says_unchanged_is_seen():
    world = BlockWorld()
    writer, reader = world.client(), world.client()
    old = writer.make(b"old")
    writer.run(writer.update(old, b"new"))
    assert reader.run(reader.reading(old))[0] == b"new"
    reader.blocks = Forgetful(reader)
    before = AssemblySink()
    reader.blocks = Forgetful(reader)
    state = reader.run(fm_read(reader.blocks, "f", None, before))
    before.finish()
    writer.run(writer.update(writer.look(), b"newer"))
    assert reader.run(reader.reading(state, before))[0] != b"newer"


def test_an_unchanged_file_moves_no_data():
    world = BlockWorld()
    writer, reader, data = world.client(), world.client(), noise(1, 20_000)
    writer.make(data)
    first = AssemblySink()
    state = reader.run(fm_read(reader.blocks, "f", None, first))
    assert first.finish() == data
    before = world.moved_bytes
    again = AssemblySink(first)
    assert reader.run(fm_read(reader.blocks, "f", state, again)).parts == state.parts
    assert again.finish() is first.data
    assert world.moved_bytes == before


def test_of_a_changed_file_what_changed_moves():
    world = BlockWorld()
    writer, reader, data = world.client(), world.client(), noise(2, 20_000)
    base = writer.make(data)
    first = AssemblySink()
    state = reader.run(fm_read(reader.blocks, "f", None, first))
    first.finish()
    edited = data[:9000] + b"x" + data[9001:]
    writer.run(writer.update(base, edited))
    before = world.moved_bytes
    again = AssemblySink(first)
    reader.run(fm_read(reader.blocks, "f", state, again))
    assert again.finish() == edited
    assert world.moved_bytes - before < 2 * 1024 + 100


def test_what_is_remembered_is_asked_for_at_once_though_the_hint_is_poor():
    world = BlockWorld(ticks_max=1)
    writer, reader = world.client(), world.client()
    state = writer.make(noise(20, 10_000))
    hinted(world, state.parts[:1])
    _, begun = reader.look(state), world.now
    reader.look(state)
    quick = world.now - begun
    begun = world.now
    reader.look()
    assert quick * 4 < world.now - begun


def test_a_hinted_block_that_is_gone_does_not_matter():
    """An overtaken write leaves blocks in hints and in memories, and a collection removes them."""
    world = BlockWorld()
    writer, reader = world.client(), world.client()
    state = writer.make(noise(3, 3000))
    ghost = KnownBlock(writer.ids.next(), Tag(1, 1), 10, digest(b"ghost"), state.parts[1].id)
    rewritten(world, block_name(state.genesis.file, ghost.id), TOMBSTONE)
    remembered = msgspec.structs.replace(state, parts=(state.parts[0], ghost, *state.parts[1:]))
    assert reader.read(remembered)[0] == noise(3, 3000)
    hinted(world, remembered.parts)
    assert reader.read()[0] == noise(3, 3000)


def test_a_hole_and_a_cycle_are_named():
    world = BlockWorld()
    writer, reader = world.client(), world.client()
    state = writer.make(noise(4, 3000))
    name = block_name(state.genesis.file, state.parts[3].id)
    value = world.latest(name)[1]
    block = decode_block(value, name)
    rewritten(world, name, encode_block(Block(state.parts[1].id, block.base, 0, block.data)))
    with pytest.raises(BadBlock, match="leads back to it; delete the file") as caught:
        reader.read()
    assert caught.value.object == block_name(state.genesis.file, state.parts[1].id)
    rewritten(world, name, TOMBSTONE)
    with pytest.raises(
        BadBlock,
        match="the block is gone, although the file still lists it; delete the file and put it "
        "again",
    ) as caught:
        reader.read()
    assert caught.value.object == name
    reader.run(fm_remove(reader.blocks, "f", reader.ids, reader.world.now_s))
    reader.make(b"again")
    assert reader.read()[0] == b"again"


def test_a_file_that_is_not_there():
    world = BlockWorld()
    reader, writer = world.client(), world.client()
    with pytest.raises(ObjectNotFound):
        reader.read()
    state = writer.make(b"x")
    writer.run(fm_remove(writer.blocks, "f", writer.ids, writer.world.now_s))
    for known in (None, state):
        with pytest.raises(ObjectNotFound):
            reader.read(known)


def test_a_file_that_is_deleted_or_made_anew_under_a_reader():
    """The reader sees the old file, the new file, or no file; never a part, and never damage."""
    old, new, outcomes = noise(5, 3000), noise(6, 3000), set()
    for seed in range(80):
        world = BlockWorld(seed, ticks_max=4)
        writer, reader = world.client(), world.client()
        state = writer.make(old)

        def replace(writer=writer):
            yield from fm_remove(writer.blocks, "f", writer.ids, writer.world.now_s)
            yield from writer.update(writer.new(), new)

        if seed % 3:
            writer.start(replace())
        for _ in range(2 * seed):
            world.advance()
        reading = reader.start(reader.reading(state if seed % 2 else None))
        if not seed % 3:
            writer.start(replace())
        world.settle()
        if isinstance(reading.error, ObjectNotFound):
            outcomes.add(None)
            continue
        outcomes.add(reading.result()[0])
    assert outcomes == {None, old, new}


def test_a_reader_beside_writers_sees_whole_blocks():
    for seed in range(30):
        world = BlockWorld(seed, weak=True, ticks_max=3)
        writer, reader = world.client(), world.client()
        base = writer.make(noise(7, 3000))
        writing = writer.start(
            writer.update(base, noise(8, 1500) + noise(7, 3000)[500:] + noise(9, 1500))
        )
        pieces = []

        class Pieces(AssemblySink):
            def take(self, part, data, pieces=pieces):
                pieces.append((part.id, bytes(data)))
                super().take(part, data)

        reader.run(fm_read(reader.blocks, "f", None, Pieces()))
        writing.result()
        for id, data in pieces:
            values = world.written[block_name(base.genesis.file, id)]
            assert data in [bytes(decode_block(value, "").data) for value in values]


def test_an_atomic_file_that_is_replaced_under_a_reader_again_and_again():
    world = BlockWorld()
    writer, reader = world.client(), world.client()
    state = writer.make(noise(10, 2000), atomic=True)
    reads = []

    class Restless(MemoryBlocks):
        """Blocks that vanish at each read, while the list changes."""

        def read(self, name, held=None):
            if name != genesis_name("f"):
                reads.append(name)
                rewritten(world, name, TOMBSTONE)
                rewritten(world, genesis_name("f"), world.latest(genesis_name("f"))[1])
            found = yield from super().read(name, held)
            return found

    reader.blocks = Restless(reader)
    with pytest.raises(
        BadBlock,
        match=f"replaced {RESTARTS_MAX} times while it was being read; nothing was lost, try again",
    ):
        reader.read(state)
    assert len(reads) >= RESTARTS_MAX


def test_progress_counts_blocks_and_bytes():
    world = BlockWorld()
    writer, reader, data = world.client(), world.client(), noise(11, 5000)
    state = writer.make(data)
    running = reader.start(reader.reading())
    world.settle()
    last = running.progress[-1]
    assert (last.stage, last.done, last.total, last.done_bytes, last.moved_bytes) == (
        "read",
        len(state.parts),
        len(state.parts),
        5000,
        5000,
    )
    assert [entry.done for entry in running.progress] == list(range(1, len(state.parts) + 1))


def test_a_long_unexpected_run_keeps_little_in_memory():
    """While the walk fetches unexpected blocks, at most some windows of expected blocks arrive."""
    world = BlockWorld(ticks_max=1)
    writer, reader, data = world.client(), world.client(), noise(12, 120_000)
    base = writer.make(data)
    writer.run(writer.update(base, data[:300] + noise(13, 30_000) + data[300:]))
    held = [0]

    class Watching(AssemblySink):
        def take(self, part, data):
            held.append(reader.blocks.arrived - len(self._parts))
            super().take(part, data)

    class Counting(MemoryBlocks):
        arrived = 0

        def read(self, name, held=None):
            found = yield from super().read(name, held)
            self.arrived += 1
            return found

    reader.blocks = Counting(reader)
    hinted(world, base.parts)
    reader.run(fm_read(reader.blocks, "f", None, Watching()))
    assert len(base.parts) > 300
    assert max(held) < 200


def test_tag_zero_is_no_version_of_a_file():
    world = BlockWorld()
    reader = world.client()
    assert reader.new().tag == TAG_ZERO
    with pytest.raises(ObjectNotFound):
        reader.read(reader.new())
