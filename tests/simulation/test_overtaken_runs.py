"""The run of an overtaken writer, which stays for the collector.

A third writer may be building on the run. This takes three writers in a single order out of very
many: 6000 runs of the simulator with this fault did not meet the order. This file therefore plays
the order.
"""

from contextlib import nullcontext

import pytest

from ares.engine.effects import Pause
from ares.fragment.block import genesis_name
from ares.model.tag import Tag
from ares.registers.coverable import CoverableResult
from tests.fragment.memory_blocks import TICK_S, MemoryBlocks
from tests.fragment.memory_world import BlockWorld, whole_chunks
from tests.simulation.file_controls import overtaken_runs_that_are_deleted


class Lagging(MemoryBlocks):
    """Blocks with slow writes.

    A write looks at once, lands ``lands`` ticks later, and returns ``told`` ticks after its begin.
    """

    def __init__(self, client, lands, told):
        super().__init__(client)
        self.lands = lands
        self.told = told

    def write(self, name, value, version, **more):
        tag, there = self.world.latest(name)
        if self.stale(tag, there, version):
            return CoverableResult(False, tag, there)
        new = Tag(tag.number + 1, self.client.id)
        self.world.post(self.lands, lambda: self.world.land(name, new, value))
        yield Pause(self.told * TICK_S)
        return CoverableResult(True, new, value, tag)


def _third_builds_on_the_overtaken():
    """Play the order of the three writers.

    w1's insertion lands, w3 sees it and begins to write over it; w2's lands, over the same version
    as w1's; w1 looks; w3's lands.
    """
    world = BlockWorld(ticks_max=1)
    w1, w2, w3 = (world.client() for _ in range(3))
    base = w1.make(whole_chunks(1, 600))
    for client, lands, told in ((w1, 10, 80), (w2, 60, 60), (w3, 100, 100)):
        client.blocks = Lagging(client, lands, told)
    data = world.content()
    first = w1.start(w1.update(base, whole_chunks(2, 900) + data))
    w2.start(w2.update(base, whole_chunks(3, 900) + data))

    def third():
        yield Pause(20 * TICK_S)
        seen, state = yield from w3.reading()
        assert seen != data, "w3 sees the run"
        result = yield from w3.update(state, whole_chunks(4, 900) + seen)
        return result

    last = w3.start(third())
    world.settle()
    report, _ = first.result()
    assert len(report.conflicts) == 1, "w1 sees that it was overtaken"
    last.result()
    assert world.latest(genesis_name("f"))[0].writer == w3.id
    return world, whole_chunks(4, 900) + whole_chunks(2, 900) + data


@pytest.mark.parametrize("deleted", [False, True])
def test_a_run_that_was_overtaken_is_built_on(deleted):
    with overtaken_runs_that_are_deleted() if deleted else nullcontext():
        world, due = _third_builds_on_the_overtaken()
        if deleted:
            with pytest.raises(AssertionError, match="is gone"):
                world.content()
        else:
            assert world.content() == due
