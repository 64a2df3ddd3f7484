"""Parts of a file as of a single moment, or the notice that the version is gone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ares.fragment.block import block_name
from ares.fragment.collect import fm_remove
from ares.fragment.read import fm_read_range
from ares.model.errors import FileChanged

from .contents import contents
from .memory_world import BlockWorld, noise


def ranged(client, state, start, stop):
    return client.run(fm_read_range(client.blocks, "f", state, start, stop))


@settings(max_examples=40, deadline=None)
@given(
    contents,
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 13_000), st.integers(0, 13_000)), max_size=5),
)
def test_ranges_are_slices(data, atomic, ranges):
    world = BlockWorld(ticks_max=1)
    client = world.client()
    state = client.make(data, atomic=atomic)
    for start, stop in [*ranges, (0, len(data)), (len(data), len(data) + 5), (0, 0)]:
        assert ranged(client, state, start, stop) == data[start:stop]


@pytest.mark.parametrize("atomic", [False, True])
def test_only_the_blocks_of_the_range_move(atomic):
    world = BlockWorld()
    client = world.client()
    state = client.make(noise(1, 50_000), atomic=atomic)
    before = world.moved_bytes
    assert ranged(client, state, 20_000, 20_010) == noise(1, 50_000)[20_000:20_010]
    assert world.moved_bytes - before < 2 * 1024 + 200


def test_a_changed_block_is_no_part_of_the_old_file():
    """The other blocks still are; an atomic file keeps all of its old blocks for a while."""
    data = noise(2, 5000)
    edited = data[:2500] + b"x" + data[2501:]
    world = BlockWorld()
    client = world.client()
    state = client.make(data)
    client.run(client.update(state, edited))
    assert ranged(client, state, 0, 100) == data[:100]
    with pytest.raises(
        FileChanged,
        match="'f' was changed since it was opened here; nothing was lost: open it again",
    ):
        ranged(client, state, 2400, 2600)
    assert ranged(client, client.look(), 2400, 2600) == edited[2400:2600]

    world = BlockWorld()
    client = world.client()
    state = client.make(data, atomic=True)
    client.run(client.put(state, edited))
    assert ranged(client, state, 2400, 2600) == data[2400:2600]


@pytest.mark.parametrize("atomic", [False, True])
def test_a_range_of_a_deleted_file_is_refused(atomic):
    world = BlockWorld()
    client = world.client()
    state = client.make(noise(3, 3000), atomic=atomic)
    client.run(fm_remove(client.blocks, "f", client.ids, client.world.now_s))
    assert not world.names("\0block/")
    with pytest.raises(FileChanged):
        ranged(client, state, 0, 10)


def test_an_atomic_file_whose_block_holds_something_else():
    world = BlockWorld()
    client = world.client()
    state = client.make(noise(4, 300), atomic=True)
    name = block_name(state.genesis.file, state.parts[0].id)
    _, value = world.latest(name)
    client.run(client.blocks.write(name, value, state.parts[0].tag))
    with pytest.raises(FileChanged):
        ranged(client, state, 0, 10)
