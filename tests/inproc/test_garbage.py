"""Ended operations, of which the garbage collector leaves no object.

An error holds the frames of its path, and the frames hold the error.
"""

import asyncio
import contextlib
import gc

from ares.engine.effects import Gather
from ares.engine.jobs import Job, Round
from ares.model.errors import ObjectNotFound, Unavailable

from .inproc_cluster import InprocCluster

KINDS = (Job, Round, Gather)


def alive() -> dict[int, object]:
    gc.collect()
    return {id(each): each for each in gc.get_objects() if isinstance(each, KINDS)}


async def test_operations_that_failed_are_collected(cluster: InprocCluster) -> None:
    manager, before = cluster.manager(), alive()
    await manager.write("there", b"x")
    for _ in range(3):
        with contextlib.suppress(ObjectNotFound):
            await manager.read("absent")
        with contextlib.suppress(ObjectNotFound):
            await manager.delete("absent")
    cluster.stop("s0", "s1")
    with contextlib.suppress(Unavailable):
        await manager.read("there", timeout_s=0.05)
    async with asyncio.timeout(60):  # the last report is still under way
        while not alive().keys() <= before.keys():  # noqa: ASYNC110 (the collector tells nobody)
            await asyncio.sleep(0.05)


def test_structs_that_know_their_jobs_are_seen_by_the_collector() -> None:
    """Otherwise the collector would take their objects for externally referenced, and free none."""
    assert all(kind.__struct_config__.gc for kind in (Round, Gather))
