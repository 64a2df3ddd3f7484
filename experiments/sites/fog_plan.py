"""Extent of the study's measurements at each scale: numbers only."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from experiments.bench.patterns import YCSB_MIXES
from experiments.sites.orders import MB

FOG_STUDY = "fog"
SITE_COUNTS = (1, 7, 11)
"""Numbers of sites in the study."""


class FogExtent(Struct, frozen=True):
    """The extent of a scale, in seconds except ``trials``.

    ``records`` and ``operations`` are of YCSB, for each site. A trial accesses about ``accessed``
    objects for a column of Tables II and III, by repetitions with other objects.
    """

    trials: int
    idle_s: float
    quiet_s: float
    cut_s: float
    move_s: float
    records: int
    operations: int
    accessed: int = 1

    def repeats(self, objects: int) -> int:
        """Return the repetitions of a column with so many objects."""
        return max(1, self.accessed // objects)


FOG_EXTENTS = {
    "quick": FogExtent(1, 15.0, 5.0, 20.0, 30.0, 100, 200),
    "points": FogExtent(3, 60.0, 15.0, 30.0, 60.0, 100, 200, accessed=10),
    "paper": FogExtent(10, 60.0, 30.0, 60.0, 120.0, 1000, 1000),
}


class FogWork(Struct, frozen=True):
    """The objects of a test, ``parallel`` at a time."""

    objects: int
    object_size: int
    parallel: int = 1

    def parameters(self) -> dict[str, int | str]:
        """Return the parameters for claims."""
        return {"objects": self.objects, "object_size": self.object_size, "parallel": self.parallel}


WORKS = (
    FogWork(1, 10 * MB),
    FogWork(10, MB),
    FogWork(10, MB, 10),
    FogWork(100, MB, 10),
    FogWork(10, 10 * MB, 10),
)
"""Columns of the study's Tables II and III.

The study does not say how many of 100 objects were under way at once.
"""


METADATA_WORKS = tuple(
    FogWork(objects, size, 10)
    for objects, size in ((1, MB), (10, MB), (100, MB), (10, 256_000), (10, 10 * MB))
)
"""Numbers of objects of one size, and sizes of ten objects."""


def tests() -> Iterator[dict[str, Any]]:
    """Yield the parameters for claims, of each measurement of a store."""
    for sites in SITE_COUNTS:
        for work in WORKS:
            yield {"sites": sites, "test": "local"} | work.parameters()
        for name in YCSB_MIXES:
            yield {"sites": sites, "test": "ycsb", "workload": name}
        if sites > 1:
            for work in WORKS:
                yield {"sites": sites, "test": "remote"} | work.parameters()
            for work in METADATA_WORKS:
                yield {"sites": sites, "test": "metadata"} | work.parameters()
            yield {"sites": sites, "test": "containment"}
            yield {"sites": sites, "test": "cut"}
            yield {"sites": sites, "test": "move"}
