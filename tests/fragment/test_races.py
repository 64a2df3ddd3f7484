"""Simultaneous writes of a shared file over the same version.

All writers may be told of success, and a single write stands; a look after the write tells the
others.
"""

import msgspec
import pytest

from ares.fragment.block import Block, block_name, encode_block, encode_genesis, genesis_name
from ares.fragment.report import OVERTAKEN
from ares.model.tag import TAG_ZERO, Tag

from .memory_blocks import MemoryBlocks
from .memory_world import BlockWorld, noise, whole_chunks


class Overtaken(MemoryBlocks):
    """Blocks on which another write over the same version overtakes the first write of ``name``.

    The other write has ``value``, and stands.
    """

    def arm(self, name, value):
        self.armed = {name: value}

    def write(self, name, value, version, **more):
        covered = yield from super().write(name, value, version, **more)
        if covered.changed and name in self.armed:
            self.world.land(name, Tag(covered.tag.number, 99), self.armed.pop(name)(version))
        return covered


def _overtake(world, client, base, block, run, data=None):
    """Let another write overtake the next write of ``block``.

    ``block`` is an index, or `None` for the genesis block. The other write inserts ``run``, and
    writes ``data``.
    """
    client.blocks = Overtaken(client)
    other = world.client()
    file, id = base.genesis.file, other.ids.next()
    following = base.genesis.first if block is None else base.parts[block].next
    world.land(
        block_name(file, id), Tag(1, 99), encode_block(Block(following, TAG_ZERO, world.now_s, run))
    )
    if block is None:
        genesis = world.genesis()
        client.blocks.arm(
            genesis_name("f"),
            lambda version: encode_genesis(
                msgspec.structs.replace(genesis, first=id, base=version)
            ),
        )
    else:
        client.blocks.arm(
            block_name(file, base.parts[block].id),
            lambda version: encode_block(Block(id, version, world.now_s, data)),
        )


@pytest.mark.parametrize("mine", [False, True])
@pytest.mark.parametrize("place", ["front", "end"])
def test_an_insertion_that_was_overtaken(place, mine):
    """The overtaken writer is told, or (``mine``) its run goes in front of the other run.

    No content is lost, and a visible run is not linked twice.
    """
    world = BlockWorld()
    client = world.client()
    data, brought = whole_chunks(20, 1500), whole_chunks(21, 1500)
    base = client.make(data)
    last = len(base.parts) - 1
    changed = b"their last block"
    if place == "front":
        _overtake(world, client, base, None, b"THEIRS")
    else:
        _overtake(world, client, base, last, b"THEIRS", changed)
    report, state = client.run(
        client.update(base, brought + data if place == "front" else data + brought, mine=mine)
    )
    old = data if place == "front" else data[: -base.parts[last].length] + changed
    ours = brought if mine else b""
    assert world.content() == (
        ours + b"THEIRS" + old if place == "front" else old + ours + b"THEIRS"
    )
    assert len(report.conflicts) == (0 if mine else 1)
    assert report.merged or not mine
    for known in (None, base, state):
        assert world.client().read(known)[0] == world.content()


def test_a_changed_block_that_was_overtaken():
    data = whole_chunks(22, 1500)
    for mine in (False, True):
        world = BlockWorld()
        client = world.client()
        base = client.make(data)
        _overtake(world, client, base, 0, b"THEIRS", b"their block")
        rest = data[base.parts[0].length :]
        report, _ = client.run(client.update(base, b"x" + data, mine=mine))
        if mine:
            assert not report.conflicts
            assert world.content() == b"x" + data[: base.parts[0].length] + b"THEIRS" + rest
        else:
            [found] = report.conflicts
            assert (found.why, found.theirs, found.offset) == (OVERTAKEN, b"their block", 0)
            assert world.content() == b"their block" + b"THEIRS" + rest


def _race(seed, data, edited, *, mine, ticks_max=4):
    """Let clients put each of ``edited`` from the same base at the same time; weak coverability."""
    world = BlockWorld(seed, weak=True, ticks_max=ticks_max)
    clients = [world.client() for _ in edited]
    base = clients[0].make(data)
    running = [
        client.start(client.update(base, one, mine=mine))
        for client, one in zip(clients, edited, strict=True)
    ]
    world.settle()
    return world, base, [one.result() for one in running]


def test_overtaken_writers_are_told_of_conflicts():
    """All writers wrote over the same version of the only block, and a single content stands."""
    overtaken = 0
    for seed in range(60):
        edited = [bytes([65 + number]) * 50 for number in range(3)]
        world, _, results = _race(seed, b"old", edited, mine=False)
        stand = [
            one for one, (report, _) in zip(edited, results, strict=True) if not report.conflicts
        ]
        # a write may land after the other clients have looked
        assert world.content() in stand or world.content() in edited
        overtaken += sum(
            found.why == OVERTAKEN for report, _ in results for found in report.conflicts
        )
        if len(stand) == 1:
            assert world.content() == stand[0]
        assert stand
    assert overtaken > 10, "the race must take place"


def test_with_mine_no_client_loses_a_run():
    """All clients insert behind the same block.

    Whichever write overtakes another, no run is lost, duplicated or unreachable, and no client is
    refused.
    """
    for seed in range(60):
        data = noise(26, 600)
        brought = [bytes([65 + number]) * 200 + noise(27 + number, 1200) for number in range(3)]
        world, base, results = _race(seed, data, [data + one for one in brought], mine=True)
        assert not any(report.conflicts for report, _ in results)
        ids = [id for id, _ in world.chain()]
        assert len(ids) == len(set(ids))
        everything = world.content()
        assert world.client().read()[0] == everything
        for known in (base, *(state for _, state in results)):
            assert world.client().read(known)[0] == everything
        assert any(one in everything for one in brought)


def test_a_refreshed_hint_does_not_cost_an_insertion_at_the_front():
    """Only the hint was written at the same time, not the content.

    The write has no conflict, and the overtaken part is published again.
    """
    data, front = whole_chunks(30, 1500), whole_chunks(31, 1500)
    overtaken = 0
    for seed in range(60):
        world = BlockWorld(seed, weak=True, ticks_max=6)
        writer, other = world.client(), world.client()
        base = writer.make(data)
        hint = msgspec.structs.replace(world.genesis(), base=base.tag)
        running = writer.start(writer.update(base, front + data))
        for _ in range(seed % 12):
            world.advance()
        refreshing = other.start(
            other.blocks.write(genesis_name("f"), encode_genesis(hint), base.tag)
        )
        world.settle()
        report, state = running.result()
        assert not report.conflicts
        assert world.content() in (front + data, data), (
            "a hint that lands after the last look is seen by nobody"
        )
        if (
            refreshing.result().changed
            and world.content() == front + data
            and state.tag.number > base.tag.number + 1
        ):
            overtaken += 1
    assert overtaken
