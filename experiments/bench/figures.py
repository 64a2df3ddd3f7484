"""Medians, spreads and ratios: the bench's results in a structure for print and JSON."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from experiments.bench.peers import Peer, yardsticks
from experiments.bench.points import BenchTurn
from experiments.measuring import ratios

OTHERS_MAX = 0.3
"""Processors. The kernel's work for our sockets and disks is included."""

GENERATOR_BOUND = 0.9
"""Share of a processor above which a generator may limit the rate."""


class Figure(Struct, frozen=True):
    """A number measured in several rounds."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Figure":
        """Return the figure of at least one value."""
        return cls(statistics.median(values), min(values), max(values))

    @property
    def inverse(self) -> "Figure":
        """Return the figure of the inverse values, above 0."""
        return Figure(1 / self.median, 1 / self.most, 1 / self.least)


class Point(Struct, frozen=True):
    """A store under a workload. CPU is in processors; latencies are in milliseconds.

    Latencies are of reads and writes together. ``ratios`` has, for each yardstick ("ABD", "EC":
    with the same durability) and round, the rate of ares divided by the rate of this store.
    """

    peer: str
    workload: str
    per_s: Figure
    p50_ms: Figure
    p99_ms: Figure
    server_cpu: float
    generator_cpu: list[float]
    others_cpu: float
    ratios: dict[str, Figure]
    failed: int
    wrong: list[str]

    @property
    def cpu_us(self) -> float:
        """Return processor time for an operation, servers and generators together.

        A busy machine distorts this figure least.
        """
        used_s = self.server_cpu + sum(self.generator_cpu)
        return used_s / self.per_s.median * 1e6 if self.per_s.median else float("nan")

    @property
    def disturbed(self) -> bool:
        """Return whether other work took so much of the machine that the rates say little."""
        return self.others_cpu > OTHERS_MAX

    @property
    def generator_bound(self) -> bool:
        """Return whether the generators may have limited the rate."""
        return max(self.generator_cpu) > GENERATOR_BOUND


class BenchReport(Struct, frozen=True):
    """All results of the bench.

    ``machine`` describes the machine. ``notes`` are caveats for the figures of each store.
    ``missing`` has the absent stores.
    """

    machine: str
    settings: str
    points: list[Point]
    notes: dict[str, str]
    missing: dict[str, str]

    @property
    def wrong(self) -> list[str]:
        """Return the values that readers found and no client wrote."""
        return [
            f"{point.peer}, {point.workload}: {what}"
            for point in self.points
            for what in point.wrong
        ]


def goal_ratios(points: Iterable[Point], prefix: str) -> Iterator[tuple[str, Figure]]:
    """Yield the ratios of ABD to each store and back, by names that begin with ``prefix``."""
    for point in points:
        if (ratio := point.ratios.get("ABD")) and ratio.least > 0:
            yield f"{prefix}{point.workload}, ABD : {point.peer}", ratio
            yield f"{prefix}{point.workload}, {point.peer} : ABD", ratio.inverse


def points(
    turns: Iterable[BenchTurn], peers: Iterable[Peer], workloads: Iterable[str]
) -> list[Point]:
    """Return a point for every measured workload (by name) and store, in this order."""
    found: dict[tuple[str, str], list[BenchTurn]] = {}
    for turn in sorted(turns, key=lambda turn: turn.round):
        found.setdefault((turn.workload, turn.peer), []).append(turn)
    order = [(workload, peer) for workload in workloads for peer in peers]
    return [
        _point(found, workload, peer) for workload, peer in order if (workload, peer.name) in found
    ]


def _point(found: Mapping[tuple[str, str], list[BenchTurn]], workload: str, peer: Peer) -> Point:
    measured = [turn.measured for turn in found[workload, peer.name]]
    rates = [one.per_s for one in measured]
    beside = {
        label: found.get((workload, name)) for label, name in yardsticks(peer.durability).items()
    }
    return Point(
        peer=peer.name,
        workload=workload,
        per_s=Figure.of(rates),
        p50_ms=Figure.of([one.latency_ms(0.5) for one in measured]),
        p99_ms=Figure.of([one.latency_ms(0.99) for one in measured]),
        server_cpu=statistics.median(sum(one.server_cpu.values()) for one in measured),
        generator_cpu=[
            statistics.median(shares)
            for shares in zip(*(one.generator_cpu for one in measured), strict=True)
        ],
        others_cpu=max(one.others_cpu for one in measured),
        ratios={
            label: Figure.of(ratios([turn.measured.per_s for turn in ours], rates))
            for label, ours in beside.items()
            if ours and min(rates) > 0
        },
        failed=sum(sum(one.troubles.values()) for one in measured),
        wrong=[what for one in measured for what in one.wrong],
    )
