"""Bytes between sites that are no objects: metadata, and an idle network; and their verdicts."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from ares.results.load_points import LoadLatency
from experiments.sites import fog_plan
from experiments.sites.access_times import measure_metadata
from experiments.sites.fog_scene import FogScene
from experiments.sites.orders import Answer, FinishedOperation
from experiments.sites.outcome import Measurement, keep
from experiments.verdicts.claim import CONFIRMED, REFUTED
from experiments.verdicts.claimed_points import claims
from experiments.verdicts.evaluate import evaluate
from experiments.verdicts.rows import read_rows


class Sender:
    """A user whose store sends 100 B of metadata for each object, and 1000 B later."""

    def __init__(self, site, left):
        self.site, self._left = site, left

    async def do(self, order):
        self._left[self.site] += 100 * len(order.operations)
        loop = asyncio.get_running_loop()
        loop.call_later(0.05, lambda: self._left.update({self.site: self._left[self.site] + 1000}))
        done = [FinishedOperation("put", 0.0, 0.1) for _ in order.operations]
        return Answer(0.1, done)


async def metadata_noted(idle_per_s):
    left = {"a": 0, "b": 0}
    noted = []
    extent = fog_plan.FogExtent(1, 0.01, 0.2, 0, 0, 0, 0)
    bed = SimpleNamespace(sites=list(left), left=lambda: dict(left))
    scene = FogScene(bed, "ipfs", None, extent, 1, noted.append)

    @contextlib.asynccontextmanager
    async def users(sites):
        yield [Sender(site, left) for site in sites]

    async def watch_idle():
        scene.idle_per_s = idle_per_s

    scene.users, scene.watch_idle = users, watch_idle
    await measure_metadata(scene)
    return noted


async def test_metadata_is_counted_beyond_an_idle_network_until_it_has_followed():
    noted = await metadata_noted(0.0)
    assert [each.figures["metadata_bytes"] for each in noted] == [
        2 * (100 * objects + 1000) for objects in (1, 10, 100, 10, 10)
    ]
    assert [each.work for each in noted] == [each.parameters() for each in fog_plan.METADATA_WORKS]
    assert {each.test for each in noted} == {"metadata"}
    assert noted[0].write.count == 2
    few, *_ = await metadata_noted(1000.0)
    assert 1500 < few.figures["metadata_bytes"] <= 2000
    drowned, *_ = await metadata_noted(1e6)
    assert drowned.figures["metadata_bytes"] == 1


def fog_verdict(tmp_path, id, test, of_work):
    """Return the verdict from three trials; ``of_work`` gives the figures of sites and work."""
    [told] = [claim for claim in claims() if claim.id == id]
    many = LoadLatency(100, 0.1, 0.1, 0.1)
    measured = [
        Measurement(store, sites, trial, test, work, of_work(sites, work) | {"failed": 0.0}, many)
        for store in ("rados x1", "ipfs", "cassandra x1")
        for trial in (1, 2, 3)
        for sites in (7, 11)
        for work in (
            [each.parameters() for each in fog_plan.METADATA_WORKS] if test == "metadata" else [{}]
        )
    ]
    keep(tmp_path, measured, "2026-01-01T00:00:00+00:00")
    return evaluate(told, read_rows(tmp_path)[0]).word


@pytest.mark.parametrize(
    ("id", "of_work", "word"),
    [
        ("fog-metadata", lambda work: 500.0 * work["objects"], CONFIRMED),
        ("fog-metadata", lambda work: 500.0, REFUTED),
        ("fog-metadata-sizes", lambda work: 5000.0, CONFIRMED),
        ("fog-metadata-sizes", lambda work: 0.01 * work["object_size"], REFUTED),
    ],
)
def test_metadata_grows_with_objects_or_with_their_sizes(tmp_path, id, of_work, word):
    found = fog_verdict(tmp_path, id, "metadata", lambda _, work: {"metadata_bytes": of_work(work)})
    assert found == word


@pytest.mark.parametrize(("power", "word"), [(1, CONFIRMED), (0, REFUTED)])
def test_gossip_grows_with_the_nodes_or_not(tmp_path, power, word):
    """Bytes of all sites together are compared, and one site's bytes stay about the same."""
    figures = lambda sites, _: {"idle_B_s": 1000.0 * sites**power}  # noqa: E731
    assert fog_verdict(tmp_path, "fog-gossip", "containment", figures) == word
