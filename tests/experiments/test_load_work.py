"""Load rounds with real processes on loopback: `load.json` of closed and open loops.

A bad server and unusable results are covered, too.
"""

import os
import signal
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ares.platform.loop import run
from experiments.bench.measured_points import read_load
from experiments.bench.peers import Ares, RunningStore
from experiments.bench.store_clients import AresStore
from experiments.bench.store_processes import BenchError
from experiments.rounds.load_faults import judge_load
from experiments.rounds.load_work import make_load, prepare_load
from experiments.rounds.round_worker import RoundWorker, WorkerTask
from experiments.rounds.scenario import LoadSeries, Parameters
from tests.results import operation_logs

pytestmark = [pytest.mark.process, pytest.mark.slow]

CURVE = LoadSeries(
    keys=50,
    written=20,
    operations=300,
    seconds=2.0,
    clients=2,
    clients_max=4,
    offered=(0.5,),
    processes=2,
)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with Ares("ares", n=3, consensus=1).running(tmp_path_factory.mktemp("store")) as started:
        yield started


@pytest.mark.parametrize(
    ("protocol", "read_share"), [("ARES_ABD", 0.5), ("ABD", 1.0), ("ARES_EC", 0.0)]
)
def test_a_curve_has_closed_and_open_points(tmp_path, running, protocol, read_share):
    store = msgspec.structs.replace(running.store, domain=None)
    parameters = Parameters(servers=3, parity=1, object_size=10, load=CURVE, read_share=read_share)
    begun: list[float] = []
    prepare_load(store, protocol, parameters)
    make_load(store, protocol, parameters, lambda: begun.append(time.time()), tmp_path)
    assert len(begun) == 1
    assert judge_load(tmp_path, parameters) is None
    file = read_load(tmp_path / "load.json")
    assert (file.peer, file.wrong, file.fault) == (protocol, [], None)
    assert [(point.clients, point.mode) for point in file.points] == [
        (2, "closed"),
        (4, "closed"),
        (4, "open"),
    ]
    for point in file.points:
        assert (point.failed, point.curve) == (0, None)
        assert (point.read is not None) is (read_share > 0)
        assert (point.write is not None) is (read_share < 1)
        assert datetime.fromisoformat(point.began or "").timestamp() >= begun[0]
    *closed, opened = file.points
    for point in closed:  # operations that began before the window and ended in it are counted, too
        done = sum(each.count for each in (point.read, point.write) if each)
        assert 300 <= done <= 300 + point.clients or point.seconds == pytest.approx(2.0)
    assert opened.offered_per_s == pytest.approx(0.5 * max(point.per_s or 0 for point in closed))
    assert opened.wait is not None
    assert opened.service is not None


def test_a_killed_replica_is_survived_and_what_was_kept_is_told(tmp_path):
    load = LoadSeries(keys=50, written=50, operations=10**9, seconds=1.5, clients=8, clients_max=8)
    parameters = Parameters(servers=3, parity=1, object_size=10, load=load, bad="killed replica")
    with Ares("ares", n=3, consensus=1).running(tmp_path) as running:
        prepare_load(running.store, "ARES_ABD", parameters)
        make_load(
            running.store,
            "ARES_ABD",
            parameters,
            lambda: _kill_soon(running, tmp_path / "events.jsonl"),
            tmp_path,
        )
    assert judge_load(tmp_path, parameters) is None
    file = read_load(tmp_path / "load.json")
    [point] = file.points
    assert file.fault == "a killed replica"
    assert point.kept is not None
    assert point.kept > 0
    assert len(point.curve or []) == 15


def _kill_soon(running: RunningStore, events: Path) -> None:
    def kill() -> None:
        os.kill(running.servers["s1"], signal.SIGKILL)
        operation_logs.write(
            events, {"time": datetime.now(UTC).isoformat(), "event": "crash", "server": "s1"}
        )

    threading.Timer(0.8, kill).start()


def test_a_store_that_does_not_answer_is_told(tmp_path, running):
    parameters = Parameters(servers=3, parity=1, object_size=10, load=CURVE)
    with pytest.raises(BenchError):
        make_load(
            AresStore(str(tmp_path / "none.toml")), "ARES_ABD", parameters, lambda: None, tmp_path
        )
    assert not (tmp_path / "load.json").exists()


def _writes(logs: Path) -> list[dict[str, Any]]:
    lines = (
        msgspec.json.decode(line)
        for path in logs.glob("*.log")
        for line in path.read_bytes().splitlines()
    )
    return [line for line in lines if line["op"] == "write"]


def test_operations_of_stochastic_clients_are_due_whether_their_client_is_free_or_not(
    tmp_path, running
):
    """The mean time between operations is 0.25 ms, which is shorter than an operation.

    Most operations wait, and longer and longer.
    """
    parameters = Parameters(
        servers=3,
        parity=1,
        operations=40,
        interval_s=0.0005,
        arrivals="open",
        object_size=10_000,
        check=True,
    )
    work = WorkerTask(
        running.store, "ARES_ABD", parameters, "create", (1,), 3, str(tmp_path / "first")
    )
    (tmp_path / "first").mkdir()
    (tmp_path / "logs").mkdir()
    run(RoundWorker(work).run())
    run(
        RoundWorker(
            msgspec.structs.replace(work, role="write", clients=(1, 2), logs=str(tmp_path / "logs"))
        ).run()
    )
    lines, first = (_writes(tmp_path / name) for name in ("logs", "first"))
    assert len(lines) == 80
    waited = [line["waited"] for line in lines]
    assert all(seconds >= 0 for seconds in waited)
    assert max(waited) > 0.01
    assert ["waited" in line for line in first] == [False]
    assert len(list((tmp_path / "logs").glob("*.history"))) == 2
