"""Several writers of a shared file in any order, from fresh and from stale bases.

Some of the writers fail or die on the way.
"""

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ares.fragment.block import block_name, decode_block
from ares.fragment.collect import fm_collect
from ares.fragment.match import GENESIS
from ares.model.errors import Unavailable
from ares.model.units import DAY_S

from .contents import Change, changes, contents, wishes
from .memory_blocks import MemoryBlocks
from .memory_world import BlockWorld, noise, whole_chunks

pytestmark = pytest.mark.slow


class Careless(MemoryBlocks):
    """A control: every write succeeds, whatever the version."""

    def stale(self, tag, value, version):
        return False


# -- simultaneous writes from the same base ------------------------------------------------------


def _flaws_of_a_race(world, data, edits, pauses):
    """Let every client put its edit of ``data`` at about the same time; writes are atomic."""
    while len(world.clients) < len(edits):
        world.client()
    base = world.clients[0].make(data)
    wished = [wishes(base, edit.on(data)) for edit in edits]
    running = []
    for client, edit, pause in zip(world.clients, edits, pauses, strict=False):
        running.append(client.start(client.update(base, edit.on(data))))
        for _ in range(pause):
            world.advance()
    world.settle()
    chain = world.chain()
    refused = [{conflict.block for conflict in one.result()[0].conflicts} for one in running]
    for index in range(GENESIS, len(base.parts)):
        id = base.parts[index].id if index != GENESIS else None
        place = (
            next(at for at, (other, _) in enumerate(chain) if other == id) if id is not None else -1
        )
        wanted = [wish[index] for wish in wished if index in wish]
        got_in = [
            wish[index]
            for wish, lost in zip(wished, refused, strict=True)
            if index in wish and id not in lost
        ]
        if wanted and len(set(got_in)) != 1:
            yield f"block {index}: {len(got_in)} of {len(wanted)} got in"
        for wish in got_in[:1]:
            behind = tuple(data for _, data in chain[place + 1 :][: len(wish.behind)])
            if (wish.own is not None and chain[place][1] != wish.own) or behind != wish.behind:
                yield f"block {index}: what got in is not there"
    everything = b"".join(data for _, data in chain)
    for known in (None, base, *(one.result()[1] for one in running)):
        if world.clients[0].read(known)[0] != everything:
            yield "a reader sees something else"


@settings(max_examples=150, deadline=None)
@given(
    contents,
    st.lists(changes, min_size=2, max_size=3),
    st.lists(st.integers(0, 12), min_size=3, max_size=3),
    st.integers(0, 1000),
)
def test_of_writes_of_one_block_one_prevails_and_of_different_blocks_all(data, edits, pauses, seed):
    assert not list(_flaws_of_a_race(BlockWorld(seed), data, edits, pauses))


def test_control_a_memory_without_versions_is_seen():
    world = BlockWorld()
    for client in (world.client(), world.client()):
        client.blocks = Careless(client)
    data = noise(1, 3000)
    assert list(
        _flaws_of_a_race(
            world, data, [Change(500, 0, b"mine"), Change(500, 0, b"theirs")], [200, 0]
        )
    )


def test_different_blocks_merge():
    """The three-way merge, by hand: front, middle and end, by three independent clients."""
    data, front = whole_chunks(2, 6000), whole_chunks(3, 1500)
    half = len(data) // 2
    for seed in range(20):
        world = BlockWorld(seed, weak=True)
        clients = [world.client() for _ in range(3)]
        base = clients[0].make(data)
        edits = [front + data, data[:half] + b"MIDDLE" + data[half:], data + noise(4, 1500)]
        running = [
            client.start(client.update(base, edited))
            for client, edited in zip(clients, edits, strict=True)
        ]
        world.settle()
        assert not any(one.result()[0].conflicts for one in running)
        assert world.content() == front + data[:half] + b"MIDDLE" + data[half:] + noise(4, 1500)


# -- round after round -----------------------------------------------------------------------------


class Turn(NamedTuple):
    """A client's action in a round; at most once in its life the client ends early."""

    change: Change
    mine: bool
    fresh: bool
    pause: int
    fate: str
    step: int


fates = st.sampled_from(["none", "none", "none", "fails", "dies"])
turns = st.builds(
    Turn, changes, st.booleans(), st.booleans(), st.integers(0, 15), fates, st.integers(0, 60)
)
rounds = st.lists(st.lists(turns, min_size=1, max_size=3), min_size=1, max_size=4)


def _play(world, data, turns_of_rounds):
    """Yield after every round the states that clients hold."""
    client = world.client()
    bases = [(client.make(data), data)] * 3
    clients = [client, world.client(), world.client()]
    for turns in turns_of_rounds:
        world.now_s += DAY_S
        running = []
        for place, turn in enumerate(turns):
            client = clients[place]
            if client.dead:
                client = clients[place] = world.client()
                turn = turn._replace(fresh=True)
            if turn.fresh:
                back, state = client.read()
                bases[place] = (state, back)
            base, known = bases[place]
            client.die_at = client.steps + turn.step if turn.fate == "dies" else None
            client.fail_at = client.steps + turn.step if turn.fate == "fails" else None
            running.append(
                (
                    place,
                    client.start(client.update(base, turn.change.on(known), mine=turn.mine)),
                    turn,
                )
            )
            for _ in range(turn.pause):
                world.advance()
        world.settle()
        for place, one, turn in running:
            clients[place].die_at = clients[place].fail_at = None
            if one.error is not None:
                assert isinstance(one.error, Unavailable), one.error
            elif not one.died:
                report, state = one.result()
                assert not (turn.mine and report.conflicts)
                bases[place] = (state, turn.change.on(bases[place][1]))
        yield [state for state, _ in bases]


def _check(world, states):
    chain = world.chain()
    everything = b"".join(data for _, data in chain)
    genesis = world.genesis()
    for id, data in chain:
        name = block_name(genesis.file, id)
        assert any(
            isinstance(value, bytes) and bytes(decode_block(value, name).data) == data
            for value in world.written[name]
        )
    reader = world.client()
    fresh = reader.read()
    assert fresh[0] == everything
    for state in states:
        back, seen = reader.read(state)
        assert back == everything
        assert seen.parts == fresh[1].parts
    collected = reader.run(fm_collect(reader.blocks, world.now_s, DAY_S))
    assert world.chain() == chain
    assert collected >= 0
    world.clients.remove(reader)


@settings(max_examples=150, deadline=None)
@given(contents, rounds, st.integers(0, 1000), st.booleans())
def test_the_file_stays_whole(data, turns_of_rounds, seed, weak):
    """The file is readable by pointers, with and without hints and memories of any age.

    The file has no cycle and no hole; collection takes no block of it.
    """
    world = BlockWorld(seed, weak=weak, ticks_max=1 + seed % 5)
    for states in _play(world, data, turns_of_rounds):
        _check(world, states)
    reader = world.client()
    world.now_s += 2 * DAY_S
    reader.run(fm_collect(reader.blocks, world.now_s, DAY_S))
    used = {block_name(world.genesis().file, id) for id, _ in world.chain()}
    full = {
        name
        for name in world.names("\0block/")
        if len(decode_block(world.latest(name)[1], name).data)
    }
    assert full <= used, "whatever nobody points to holds nothing in the end"


def test_control_a_lost_block_is_seen():
    world = BlockWorld()
    state = world.client().make(noise(5, 3000))
    name = block_name(state.genesis.file, state.parts[1].id)
    del world.objects[name]
    with pytest.raises(AssertionError, match="is gone"):
        _check(world, [])


def test_crowds_on_one_block():
    """The tightest races: few blocks, simultaneous inserts at the same places.

    Hints and memories are kept throughout.
    """
    for seed in range(24):
        world = BlockWorld(seed, weak=True, ticks_max=1 + seed % 8)
        clients, reader = [world.client() for _ in range(4)], world.client()
        states = [clients[0].make(noise(seed, 600))]
        for _ in range(3):
            world.now_s += DAY_S
            data, base = reader.read()
            running = []
            for client in clients:
                place = world.rng.choice([0, len(data) // 2, len(data)])
                brought = noise(world.rng.randrange(10**6), world.rng.choice([3, 400, 3000]))
                mine = world.rng.random() < 0.5
                running.append(
                    (
                        mine,
                        client.start(
                            client.update(base, data[:place] + brought + data[place:], mine=mine)
                        ),
                    )
                )
            world.settle()
            for mine, one in running:
                report, state = one.result()
                assert not (mine and report.conflicts)
                states.append(state)
            everything = world.content()
            world.clients[0].run(fm_collect(world.clients[0].blocks, world.now_s, 0))
            assert world.content() == everything
            for known in (None, *states):
                assert reader.read(known)[0] == everything
