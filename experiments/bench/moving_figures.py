"""Figures of moves of a domain: latencies beside quiet ones, extra rounds, and durations.

Quiet latencies are of the same run.
"""

import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from msgspec import Struct

from experiments.bench.moving_load import WatchedOperation
from experiments.bench.moving_runs import MoveRun
from experiments.histogram import counted, within_s

P99_GOAL = 2.0
"""The largest good p99 during a move : the quiet p99."""

Kind = Literal["reads", "writes"]
MOVING_KINDS: tuple[Kind, ...] = ("reads", "writes")


class Latency(Struct, frozen=True):
    """Latencies in milliseconds.

    ``pause_ms`` is the longest time without a completed operation of this kind by any client.
    ``rounds`` is the mean of an operation.
    """

    count: int
    p50_ms: float
    p99_ms: float
    slowest_ms: float
    pause_ms: float
    rounds: float


class LatencyPair(Struct, frozen=True):
    """A kind of operation, ``quiet`` and while the domain moved."""

    kind: Kind
    quiet: Latency
    moving: Latency

    @property
    def p50_ratio(self) -> float:
        return self.moving.p50_ms / self.quiet.p50_ms

    @property
    def p99_ratio(self) -> float:
        return self.moving.p99_ms / self.quiet.p99_ms

    @property
    def met(self) -> bool:
        """Return whether the goal is met."""
        return self.p99_ratio <= P99_GOAL


class MoveUnderLoad(Struct, frozen=True):
    """A move with clients at work.

    ``extra_s`` is the time from the begin of the first operation that visited several
    configurations to the end of the last. ``extra_share`` is the share of such operations within
    the move. ``stages`` are in seconds after the move began. ``cpu`` is in processors;
    ``others_cpu`` is the machine's other work.
    """

    case: str
    load: str
    objects: int
    value_bytes: int
    seconds: float
    moved: int
    skipped: int
    stages: list[tuple[str, float]]
    latencies: list[LatencyPair]
    extra_s: float
    extra_share: float
    cpu: dict[str, float]
    quiet_cpu: dict[str, float]
    others_cpu: float
    failed: int
    wrong: list[str]


class Duration(Struct, frozen=True):
    """A move of an unused domain.

    ``expected_s`` is the time for as many objects as were moved in batches; for a batched move it
    equals ``seconds``.
    """

    case: str
    value_bytes: int
    objects: int
    batch: bool
    seconds: float
    expected_s: float
    moved_bytes: int
    cpu_us_per_object: float

    @property
    def objects_per_s(self) -> float:
        return self.objects / self.seconds

    @property
    def mib_per_s(self) -> float:
        return self.moved_bytes / self.seconds / 2**20


class MovingReport(Struct, frozen=True):
    """All results of the bench."""

    machine: str
    settings: str
    loads: list[MoveUnderLoad]
    durations: list[Duration]

    @property
    def wrong(self) -> list[str]:
        """Return the values that readers found and no client wrote."""
        return [f"{one.case}, {one.load}: {what}" for one in self.loads for what in one.wrong]


def latency(
    operations: Sequence[WatchedOperation], windows: Sequence[tuple[float, float]]
) -> Latency:
    """Return latencies of operations that ended in a window. All are zero without operations."""
    found = [
        one for one in operations if any(begin <= one.ended_s <= end for begin, end in windows)
    ]
    if not found:
        return Latency(0, 0.0, 0.0, 0.0, max(end - begin for begin, end in windows) * 1e3, 0.0)
    took_s = [one.ended_s - one.began_s for one in found]
    counts = counted(took_s)
    pause_s = 0.0
    for begin, end in windows:
        done = [begin, *sorted(one.ended_s for one in found if begin <= one.ended_s <= end), end]
        pause_s = max(pause_s, *(later - earlier for earlier, later in pairwise(done)))
    rounds = statistics.fmean(one.rounds for one in found)
    p50_s, p99_s = within_s(counts, 0.5), within_s(counts, 0.99)
    times_ms = (1e3 * each_s for each_s in (p50_s, p99_s, max(took_s), pause_s))
    return Latency(len(found), *times_ms, rounds)


def under_load(run: MoveRun, objects: int, value_bytes: int) -> MoveUnderLoad:
    """Return the figures of a run."""
    moved, operations = run.moved, run.outcome.operations
    during = (moved.began_s, moved.ended_s)
    by_kind: dict[Kind, list[WatchedOperation]] = {
        kind: [one for one in operations if one.reading == (kind == "reads")]
        for kind in MOVING_KINDS
    }
    extra = [one for one in operations if one.configurations > 1]
    within = [one for one in operations if during[0] <= one.ended_s and one.began_s <= during[1]]
    return MoveUnderLoad(
        case=run.case,
        load=run.load,
        objects=objects,
        value_bytes=value_bytes,
        seconds=moved.seconds,
        moved=moved.moved,
        skipped=moved.skipped,
        stages=[(name, at_s - moved.began_s) for name, at_s in moved.stages],
        latencies=[
            LatencyPair(kind, latency(by_kind[kind], run.quiet_s), latency(by_kind[kind], [during]))
            for kind in MOVING_KINDS
        ],
        extra_s=max(one.ended_s for one in extra) - min(one.began_s for one in extra)
        if extra
        else 0.0,
        extra_share=sum(one.configurations > 1 for one in within) / len(within) if within else 0.0,
        cpu=run.cpu,
        quiet_cpu=run.quiet_cpu,
        others_cpu=run.others_cpu,
        failed=sum(run.outcome.troubles.values()),
        wrong=list(run.outcome.wrong),
    )
