"""Medians, spreads and ratios: the bench's results in a structure for print, charts and JSON."""

import statistics
from collections.abc import Mapping, Sequence

from msgspec import Struct

from experiments.bench.faults import DisturbedRun
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


class Point(Struct, frozen=True):
    """A store under a workload. CPU is in processors; latencies are in milliseconds.

    Latencies are of reads and writes together unless named otherwise. ``ratios`` has, for each
    yardstick ("ABD", "EC": with the same durability) and round, the rate of ares divided by the
    rate of this store.
    """

    peer: str
    workload: str
    value_bytes: int
    clients: int
    per_s: Figure
    p50_ms: Figure
    p99_ms: Figure
    read_p50_ms: float
    write_p50_ms: float
    server_cpu: float
    generator_cpu: list[float]
    others_cpu: float
    resident_mib: float
    ratios: dict[str, Figure]
    failed: int
    wrong: list[str]

    @property
    def cpu_us(self) -> float:
        """Return processor time for an operation, servers and generators together.

        A busy machine distorts this figure least.
        """
        return (
            (self.server_cpu + sum(self.generator_cpu)) / self.per_s.median * 1e6
            if self.per_s.median
            else float("nan")
        )

    @property
    def disturbed(self) -> bool:
        """Return whether other work took so much of the machine that the rates say little."""
        return self.others_cpu > OTHERS_MAX

    @property
    def generator_bound(self) -> bool:
        """Return whether the generators may have limited the rate."""
        return max(self.generator_cpu) > GENERATOR_BOUND


class FaultPoint(Struct, frozen=True):
    """A store under a fault.

    ``curve`` is from the last round: operations a second for every 0.1 s.
    """

    peer: str
    fault: str
    kept: Figure
    longest_pause_ms: Figure
    quiet_pause_ms: Figure
    failed: int
    wrong: list[str]
    curve: list[float]


class BenchReport(Struct, frozen=True):
    """All results of the bench.

    ``machine`` describes the machine. ``notes`` are caveats for the figures of each store.
    ``missing`` has the absent stores.
    """

    machine: str
    settings: str
    points: list[Point]
    faults: list[FaultPoint]
    notes: dict[str, str]
    missing: dict[str, str]
    durabilities: dict[str, str]

    @property
    def wrong(self) -> list[str]:
        """Return the values that readers found and no client wrote."""
        checked = [(point.peer, point.workload, point.wrong) for point in self.points] + [
            (it.peer, it.fault, it.wrong) for it in self.faults
        ]
        return [f"{peer}, {where}: {what}" for peer, where, found in checked for what in found]

    def find(self, peer: str, workload: str) -> Point | None:
        """Return the point, if measured."""
        return next(
            (point for point in self.points if (point.peer, point.workload) == (peer, workload)),
            None,
        )


def points(
    turns: Sequence[BenchTurn], peers: Sequence[Peer], sizes: Mapping[str, tuple[int, int]]
) -> list[Point]:
    """Return a point for every measured store and workload.

    ``sizes`` has (bytes, clients) by workload.
    """
    by_name = {peer.name: peer for peer in peers}
    found: dict[tuple[str, str], list[BenchTurn]] = {}
    for turn in sorted(turns, key=lambda turn: turn.round):
        found.setdefault((turn.workload, turn.peer), []).append(turn)
    order = [
        (workload, peer) for workload in sizes for peer in by_name if (workload, peer) in found
    ]
    return [_point(found, workload, by_name[peer], sizes[workload]) for workload, peer in order]


def _point(
    found: Mapping[tuple[str, str], list[BenchTurn]],
    workload: str,
    peer: Peer,
    size: tuple[int, int],
) -> Point:
    turns = found[workload, peer.name]
    rates = [turn.measured.per_s for turn in turns]
    beside = {
        label: found.get((workload, name)) for label, name in yardsticks(peer.durability).items()
    }
    measured = [turn.measured for turn in turns]
    return Point(
        peer=peer.name,
        workload=workload,
        value_bytes=size[0],
        clients=size[1],
        per_s=Figure.of(rates),
        p50_ms=Figure.of([one.latency_ms(0.5) for one in measured]),
        p99_ms=Figure.of([one.latency_ms(0.99) for one in measured]),
        read_p50_ms=statistics.median(one.latency_ms(0.5, writes=False) for one in measured),
        write_p50_ms=statistics.median(one.latency_ms(0.5, reads=False) for one in measured),
        server_cpu=statistics.median(sum(one.server_cpu.values()) for one in measured),
        generator_cpu=[
            statistics.median(shares)
            for shares in zip(*(one.generator_cpu for one in measured), strict=True)
        ],
        others_cpu=max(one.others_cpu for one in measured),
        resident_mib=statistics.median(turn.resident_bytes for turn in turns) / 2**20,
        ratios={
            label: Figure.of(ratios([turn.measured.per_s for turn in ours], rates))
            for label, ours in beside.items()
            if ours and min(rates) > 0
        },
        failed=sum(sum(one.troubles.values()) for one in measured),
        wrong=[what for one in measured for what in one.wrong],
    )


def fault_points(disturbed: Sequence[DisturbedRun]) -> list[FaultPoint]:
    """Return a point for every store and fault."""
    found: dict[tuple[str, str], list[DisturbedRun]] = {}
    for one in disturbed:
        found.setdefault((one.peer, one.name), []).append(one)
    return [
        FaultPoint(
            peer,
            fault,
            Figure.of([run.kept for run in runs]),
            Figure.of([(run.point.longest_pause_s or 0.0) * 1000 for run in runs]),
            Figure.of([run.quiet_pause_s * 1000 for run in runs]),
            sum(run.point.failed for run in runs),
            [what for run in runs for what in run.wrong],
            runs[-1].point.curve or [],
        )
        for (peer, fault), runs in found.items()
    ]
