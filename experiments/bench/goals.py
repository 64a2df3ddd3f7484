"""Goals of ares beside further stores, and the last ratios approved by a person.

Both are printed with the ratios of each run. A missed goal fails no test. The approved ratios are
in baseline.json, in this package.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from experiments.bench.figures import BenchReport
from experiments.measuring import Goal

BASELINE_FILE = Path(__file__).with_name("baseline.json")


class BenchGoal(Struct, frozen=True):
    """A bound for the rate of ares with ABD, divided by the rate of ``peer``, as durable."""

    peer: str
    workload: str
    goal: Goal


def _at_least(peer: str, workload: str, limit: float) -> BenchGoal:
    return BenchGoal(peer, workload, Goal(limit, at_most=False))


ONE_CLIENT, HUNDRED_CLIENTS = "10 B, 1 client", "10 B, 100 clients"
KEYS_MAX = Goal(1.66)
"""Most times the rate with keys that large values may have without: keys keep 0.6 of the rate."""

BENCH_GOALS = (
    _at_least("redis-wait", ONE_CLIENT, 0.8),
    _at_least("etcd", ONE_CLIENT, 3.5),
    _at_least("redis-wait", HUNDRED_CLIENTS, 2.0),
    _at_least("redis-wait-aof", HUNDRED_CLIENTS, 1.0),
    _at_least("etcd", HUNDRED_CLIENTS, 6.0),
    BenchGoal("ares-abd-curve", "1 MiB, 5 clients", KEYS_MAX),
    BenchGoal("ares-abd-curve", "8 MiB, 5 clients", KEYS_MAX),
)


def ratio_name(workload: str, peer: str, yardstick: str) -> str:
    """Return the name of a ratio in the file."""
    return f"{workload} | {yardstick} : {peer}"


def approved_ratios(path: Path = BASELINE_FILE) -> dict[str, float]:
    """Return the ratios by :func:`ratio_name`; without a file the result is empty."""
    return msgspec.json.decode(path.read_bytes(), type=dict[str, float]) if path.exists() else {}


def approve(report: BenchReport, path: Path = BASELINE_FILE) -> None:
    """Store the medians of this report; absent points keep the ratio."""
    known = approved_ratios(path)
    for point in report.points:
        for yardstick, figure in point.ratios.items():
            known[ratio_name(point.workload, point.peer, yardstick)] = round(figure.median, 3)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(known), indent=1) + b"\n")


def goal_lines(report: BenchReport, known: Mapping[str, float]) -> Iterator[str]:
    """Yield a line for each goal whose ratio was measured, with the approved ratio in brackets."""
    ratios = {(point.peer, point.workload): point.ratios.get("ABD") for point in report.points}
    for each in BENCH_GOALS:
        if (ratio := ratios.get((each.peer, each.workload))) is None:
            continue
        before = known.get(ratio_name(each.workload, each.peer, "ABD"))
        word = "met" if each.goal.met(ratio.median) else "MISSED"
        earlier = "" if before is None else f" [{before:.2f}]"
        yield (
            f"  ares ABD : {each.peer:16} {each.workload:20} {ratio.median:6.2f}{earlier:8} "
            f"goal {each.goal}: {word}"
        )
