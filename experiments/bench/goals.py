"""Goals of ares beside other stores: bounds for ratios of the bench, printed with each run.

A missed goal is printed with the ratio and fails no test.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from experiments.bench import baseline
from experiments.bench.figures import BenchReport
from experiments.measuring import Goal


class BenchGoal(Struct, frozen=True):
    """A bound for the rate of ares with ABD to that of ``peer``, with the same durability."""

    peer: str
    workload: str
    goal: Goal


def _at_least(peer: str, workload: str, limit: float) -> BenchGoal:
    return BenchGoal(peer, workload, Goal(limit, at_most=False))


ONE_CLIENT, HUNDRED_CLIENTS = "10 B, 1 client", "10 B, 100 clients"
KEYS_MAX = Goal(1.66)
"""Without keys large values have at most 1.66 times the rate with keys, which is then 0.6 of it."""

BENCH_GOALS = (
    _at_least("redis-wait", ONE_CLIENT, 0.8),
    _at_least("etcd", ONE_CLIENT, 3.5),
    _at_least("redis-wait", HUNDRED_CLIENTS, 2.0),
    _at_least("redis-wait-aof", HUNDRED_CLIENTS, 1.0),
    _at_least("etcd", HUNDRED_CLIENTS, 6.0),
    BenchGoal("ares-abd-curve", "1 MiB, 5 clients", KEYS_MAX),
    BenchGoal("ares-abd-curve", "8 MiB, 5 clients", KEYS_MAX),
)


def goal_lines(report: BenchReport, known: Mapping[str, float]) -> Iterator[str]:
    """Yield a line for each goal whose ratio was measured, with the baseline's in brackets."""
    for each in BENCH_GOALS:
        point = report.find(each.peer, each.workload)
        ratio = point.ratios.get("ABD") if point is not None else None
        if ratio is None:
            continue
        before = known.get(baseline.key(each.workload, each.peer, "ABD"))
        word = "met" if each.goal.met(ratio.median) else "MISSED"
        earlier = "" if before is None else f" [{before:.2f}]"
        yield (
            f"  ares ABD : {each.peer:16} {each.workload:20} {ratio.median:6.2f}{earlier:8} "
            f"goal {each.goal}: {word}"
        )
