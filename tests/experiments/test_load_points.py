"""Points of load: end of doubling, due operations, percentiles, and the cost of faults.

The tests also cover the rows and the page.
"""

import json
import random
import statistics
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import msgspec
import pytest

from ares.results.database import opened
from ares.results.load_points import (
    CURVE_STEPS_MAX,
    LoadFile,
    LoadLatency,
    LoadPoint,
    points_of,
    read_points,
)
from experiments.bench.closed_loop import Arrivals, ClosedLoop, LoopWork, OpenLoop, Record
from experiments.bench.load import MeasuredWorkload
from experiments.bench.measured_points import (
    goes_on,
    longest_pause_s,
    point_of,
    read_load,
    under_fault,
    write_load,
)
from experiments.bench.patterns import Even
from experiments.bench.store_clients import Coroutines
from experiments.bench.values import Values
from experiments.bench.workload import Workload
from experiments.histogram import counted, latency_of, within_s
from experiments.rounds.load_faults import judge_load
from experiments.rounds.scenario import LoadSeries, Parameters
from tests.results import operation_logs


def evenly(read_share: float) -> Even:
    return Even(read_share, random.Random(1), 1)


BEGAN = datetime(2026, 11, 22, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("rates", "on"),
    [
        ([], True),
        ([100.0], True),
        ([100.0, 90.0], True),
        ([100.0, 190.0, 350.0], True),
        ([100.0, 200.0, 190.0], True),  # a single disturbed point
        ([100.0, 200.0, 190.0, 203.0], False),
        ([100.0, 200.0, 190.0, 300.0], True),
        ([0.0, 0.0, 0.0], False),
    ],
)
def test_clients_double_while_that_adds_to_the_throughput(rates, on):
    assert goes_on(rates, growth=0.05) is on


def test_arrivals_are_a_poisson_process():
    arrivals = Arrivals(1000.0, 5.0, 25.0, "seed")
    times = list(iter(arrivals.take, None))
    assert times == sorted(times)
    assert 5.0 < times[0] < times[-1] < 25.0
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert len(times) == pytest.approx(20_000, rel=0.03)
    # in a Poisson process they are the same
    assert statistics.stdev(gaps) == pytest.approx(statistics.mean(gaps), rel=0.03)
    assert arrivals.take() is None
    assert Arrivals(1000.0, 5.0, 25.0, "seed").left() == len(times)
    assert Arrivals(1000.0, 5.0, 25.0, "other").left() != len(times)


class Slow:
    """A store that takes ``seconds`` for each operation, and has no values."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def read(self, key: str) -> bytes | None:
        import asyncio

        await asyncio.sleep(self._seconds)
        return None

    async def write(self, key: str, value: bytes) -> None:
        await self.read(key)

    async def close(self) -> None:
        """Do nothing."""


async def test_an_open_loop_counts_from_when_an_operation_was_due():
    """The client takes 20 ms for an operation, and 100 are due in a second.

    Half of the operations wait longer and longer, and many never begin.
    """
    record, store, begin_s = Record(), Slow(0.02), time.perf_counter()
    arrivals = Arrivals(100.0, begin_s, begin_s + 0.5, 3)
    work = LoopWork(evenly(1.0), ["k"], Values(16), record, end_s=begin_s + 0.5, written=0)
    loop = OpenLoop(arrivals, 1, work)
    await Coroutines(store, (), store.close).run([loop])
    waits = [began_s - due_s for due_s, began_s, _, _ in record.operations]
    assert all(wait >= 0 for wait in waits)
    assert waits[-1] - waits[0] > 0.05
    assert not record.wrong, "a key without a value may be found without"
    assert (
        len(record.operations) + loop.missed + arrivals.left()
        == Arrivals(100.0, begin_s, begin_s + 0.5, 3).left()
    )


async def test_a_closed_loop_ends_with_its_operations():
    record, store, begin_s = Record(), Slow(0.0), time.perf_counter()
    work = LoopWork(
        evenly(0.5), ["k"], Values(16), record, begin_s + 30.0, begin_s, most=7, written=0
    )
    await Coroutines(store, (), store.close).run([ClosedLoop(1, work)])
    assert len(record.operations) == 7
    assert all(due_s == began_s for due_s, began_s, _, _ in record.operations)


async def test_a_read_that_finds_nothing_where_a_value_was_is_wrong():
    record, store = Record(), Slow(0.0)
    work = LoopWork(evenly(1.0), ["k"], Values(16), record, time.perf_counter() + 30.0, most=1)
    await Coroutines(store, (), store.close).run([ClosedLoop(1, work)])
    assert list(record.wrong) == ["a read of k returned a value that no write stored: nothing"]


def test_percentiles_are_those_of_the_latencies():
    chance = random.Random(1)
    latencies = sorted(chance.lognormvariate(-5, 1) for _ in range(10_000))
    counts = counted(latencies)
    for share in (0.5, 0.99):
        assert within_s(counts, share) == pytest.approx(
            latencies[int(share * len(latencies)) - 1], rel=0.02
        )
    slots = {100_000 + number // 10: 10 for number in range(0, 10_000, 10)}
    measured = MeasuredWorkload(
        1e4, counts, {}, {}, {}, 0, [], {}, 0.0, 100.0, 101.0, slots, {"why": 2}, {}
    )
    point = point_of(measured, Workload(8, read_share=1.0), curve=True)
    assert point.read is not None
    assert (point.clients, point.mode, point.write, point.wait, point.failed, point.read.count) == (
        8,
        "closed",
        None,
        None,
        2,
        10_000,
    )
    assert point.read.mean_s == pytest.approx(statistics.mean(latencies), rel=0.01)
    assert point.curve == pytest.approx([1e4] * 10, rel=0.02)


def test_a_histogram_without_operations_has_no_latency():
    assert latency_of(counted([])) is None
    found = latency_of(counted([0.1] * 98 + [0.3, 0.2]))
    assert found is not None
    assert (found.p50_s, found.p99_s) == pytest.approx((0.1, 0.2), rel=0.01)


def bad_run(**changes: object) -> LoadPoint:
    """Return a run of five seconds with a fault.

    The rate is 100 a second, and from 2 s on half, after half a second without operations.
    """
    curve = [100.0] * 20 + [0.0] * 5 + [50.0] * 25
    pauses = [(1.0, 0.2), (1.98, 0.52), (4.0, 0.1)]
    fields = {
        "clients": 100,
        "per_s": 65.0,
        "curve": curve,
        "pauses": pauses,
        "began": BEGAN.isoformat(),
    } | changes
    return LoadPoint(**fields)  # type: ignore[arg-type]


def test_what_a_fault_cost():
    point = under_fault(bad_run(), 2.0)
    assert point.kept == pytest.approx(25 * 50 / 30 / 100)
    assert point.longest_pause_s == pytest.approx(0.5)
    assert longest_pause_s(point.pauses or [], 0.0, 2.0) == pytest.approx(0.2)
    for at_s in (-1.0, 0.05, 5.0):
        with pytest.raises(ValueError, match="the fault came"):
            under_fault(bad_run(), at_s)


def test_a_round_with_a_fault_is_completed_by_its_events(tmp_path):
    bad = Parameters(load=LoadSeries(), bad="killed leader")
    assert judge_load(tmp_path, bad) == "the round left no load.json"
    below = tmp_path / "logs" / "host"
    below.mkdir(parents=True)
    write_load(below, LoadFile([bad_run()], "ETCD"))
    assert judge_load(tmp_path, Parameters(load=LoadSeries())) is None
    assert judge_load(tmp_path, bad) == "no server was made bad: killed leader was asked for"
    events = [
        {"time": (BEGAN + timedelta(seconds=at_s)).isoformat(), "event": event}
        for at_s, event in ((0, "phase"), (2.0, "crash"))
    ]
    operation_logs.write(tmp_path / "events.jsonl", *events)
    assert judge_load(tmp_path, bad) is None
    judged = read_load(below / "load.json")
    assert (judged.fault, judged.points[0].figures) == ("a killed leader", {"fault at (s)": 2.0})
    assert judge_load(tmp_path, bad) is None
    assert read_load(below / "load.json") == judged, "it may be judged again"
    write_load(below, LoadFile([bad_run(per_s=0.0)], "ETCD"))
    assert judge_load(tmp_path, bad) == "no operation succeeded"
    write_load(below, LoadFile([bad_run()], "ETCD", wrong=["made up"]))
    assert judge_load(tmp_path, bad) == "a read returned a value that no write stored: made up"


def test_points_become_rows_and_are_shown(tmp_path):
    latency = LoadLatency(10, 0.001, 0.009, 0.002)
    long = bad_run(
        curve=[float(number) for number in range(3 * CURVE_STEPS_MAX)],
        read=latency,
        figures={"evil\u202e": 1.5},
        server_cpu={"s0": 0.5, "s1": 0.25},
    )
    directory = tmp_path / "runs" / "one"
    directory.mkdir(parents=True)
    (directory / "run.json").write_text(json.dumps({"scenario": "s", "algorithm": "ABD"}))
    write_load(
        directory, LoadFile([LoadPoint(1, "open", 50.0), long], "ABD", "10 B", "a killed leader")
    )
    database = tmp_path / "results.db"
    report = operation_logs.imported(database, tmp_path / "runs")
    assert report.points == 2
    assert operation_logs.imported(database, tmp_path / "runs").points == 0
    with opened(database) as connection:
        [(run,)] = connection.execute("SELECT id FROM runs")
        shown = points_of(connection, run)
        assert shown is not None
        assert points_of(connection, run + 1) is None
    assert (shown["peer"], shown["workload"], shown["fault"], shown["wrong"]) == (
        "ABD",
        "10 B",
        "a killed leader",
        0,
    )
    first, second = shown["points"]
    assert (first["clients"], first["mode"], first["offered_per_s"], "read_p50_s" in first) == (
        1,
        "open",
        50.0,
        False,
    )
    assert second["curve"][0] == pytest.approx(0.3)
    assert second["curve"][1:] == [1.0 + 3 * step for step in range(CURVE_STEPS_MAX)]
    assert second["figures"] == {"evil?": 1.5, "processors of all servers": 0.75}
    write_load(directory, LoadFile([LoadPoint(2)]))
    assert operation_logs.imported(database, tmp_path / "runs").read_again == 1
    with opened(database) as connection:
        assert connection.execute("SELECT clients FROM load_points").fetchall() == [(2,)]


@pytest.mark.parametrize(
    "line",
    [
        *(
            b"",
            b"[]",
            b"{",
            b'{"points": 5}',
            b'{"points": [{}]}',
            b'{"points": [{"clients": -1}]}',
            b'{"points": [{"clients": 1, "kept": -5}]}',
        ),
        *(
            b'{"points": [{"clients": 1, "mode": "half"}]}',
            b'{"points": [{"clients": 99999999999999999999}]}',
            b'{"points": [{"clients": 1, "per_s": 1e300}]}',
        ),
        msgspec.json.encode({"points": [{"clients": 1}] * 1001}),
    ],
)
def test_a_file_that_is_none_has_no_rows(line):
    with pytest.raises(ValueError, match="no points of load"):
        read_points(line)
