"""The result of a run: the judged history, counts, latencies, and the verdict."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from ares.cluster.tables import TransportName
from ares.model.numbers import plural
from ares.testing.torture.records import LogRecorded, Record, RecordedOperation, Seen, Timeline
from ares.testing.verify.history import Event
from ares.testing.verify.linearizability import check
from ares.testing.verify.log_history import LogEvent
from ares.testing.verify.log_order import check_log
from ares.testing.verify.tag_order import check_tags


class LatencySummary(Struct, frozen=True):
    """Milliseconds of successful operations; ``None`` without operations."""

    count: int
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None


class Summary(Struct, frozen=True):
    """The summary of a run.

    ``operations``: kind to outcome to count. ``liveness_failures``: operations that failed although
    enough servers were well. ``violations``: contradictions in the history, each of which is a lost
    write or a stale read. ``problems``: all further findings. ``longest_pause_s``: the longest time
    without a successful operation of any client.
    """

    seed: int
    seconds: float
    servers: int
    consensus: int
    partitions: bool
    operations: dict[str, dict[str, int]]
    faults: dict[str, int]
    reconfigurations: dict[str, int]
    configurations: int
    latency: LatencySummary
    latency_during_faults: LatencySummary
    longest_pause_s: float
    violations: list[str]
    undecided: list[str]
    liveness_failures: list[str]
    problems: list[str]
    notes: list[str]
    transport: TransportName = "native"

    @property
    def ok(self) -> bool:
        return not (self.violations or self.undecided or self.liveness_failures or self.problems)

    @property
    def verdict(self) -> str:
        if self.ok:
            what = (
                "append lost, doubled or out of order"
                if "append" in self.operations
                else "write lost"
            )
            return f"clean: no acknowledged {what}, no stale read, no operation failed"
        findings = {
            "violation": self.violations,
            "undecided key": self.undecided,
            "liveness failure": self.liveness_failures,
            "problem": self.problems,
        }
        counts = [plural(len(found), name) for name, found in findings.items() if found]
        return f"NOT CLEAN: {', '.join(counts)}"


class Findings(Struct, frozen=True):
    """The findings of a history, in words."""

    violations: list[str]
    undecided: list[str]
    liveness_failures: list[str]


def judge(records: Sequence[Record]) -> Findings:
    """Judge the records of clients."""
    events = [record.event for record in records]
    report = check(events)
    violations = [violation.describe() for violation in (*report.violations, *check_tags(events))]
    return Findings(violations, [key.describe() for key in report.undecided], _failures(records))


def judge_log(records: Sequence[LogRecorded]) -> Findings:
    """Judge the records of a log's clients.

    Each violation names the append that was lost, doubled or moved, or the answer that was false.
    """
    return Findings(
        [
            violation.describe()
            for violation in check_log(record.event for record in records).violations
        ],
        [],
        _failures(records),
    )


def place_of(event: Event | LogEvent) -> str:
    """Return the key of an operation on an object, or the position of an operation on a log."""
    if isinstance(event, Event):
        return event.key
    place = event.position if event.at is None else event.at
    return "" if place is None else f"{event.log}/{place}"


def _failures(records: Sequence[RecordedOperation[Seen]]) -> list[str]:
    return [
        f"[{record.event.invoked:.1f} s, after {record.ended - record.event.invoked:.1f} s] "
        f"{record.event.client} {record.event.operation} {place_of(record.event)!r}: {record.error}"
        for record in records
        if record.error
    ]


def count_operations(records: Sequence[RecordedOperation[Seen]]) -> dict[str, dict[str, int]]:
    """Count by kind and outcome; ``abandoned``: unknown because the client left by itself."""
    counts: dict[str, Counter[str]] = {}
    for record in records:
        counts.setdefault(record.event.operation, Counter())[
            "abandoned" if record.abandoned else record.event.outcome
        ] += 1
    return {kind: dict(counts[kind]) for kind in sorted(counts)}


def latencies(
    records: Sequence[RecordedOperation[Seen]], timeline: Timeline
) -> tuple[LatencySummary, LatencySummary]:
    """Return latencies of all successful operations, and of those during trouble of any process."""
    troubled = timeline.troubled()
    ends = [end for _, end in troubled]
    everything, during = [], []
    for record in records:
        if record.event.outcome == "ok":
            spent_s = record.ended - record.event.invoked
            everything.append(spent_s)
            place = bisect_right(ends, record.event.invoked)
            if place < len(troubled) and troubled[place][0] < record.ended:
                during.append(spent_s)
    return _latency(everything), _latency(during)


def longest_pause_s(records: Sequence[RecordedOperation[Seen]]) -> float:
    """Return the longest time between two successive successes of any clients."""
    ends = sorted(record.ended for record in records if record.event.outcome == "ok")
    return max((later - earlier for earlier, later in pairwise(ends)), default=0.0)


def _latency(seconds: list[float]) -> LatencySummary:
    if not seconds:
        return LatencySummary(0, None, None, None)
    ordered = sorted(seconds)
    p50, p99 = (round(1000 * ordered[len(ordered) * percent // 100], 2) for percent in (50, 99))
    return LatencySummary(len(ordered), p50, p99, round(1000 * ordered[-1], 2))
