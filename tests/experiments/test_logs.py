"""The measurements of the shared log: requests, answers of peers, and a real chain under load."""

import asyncio
import contextlib
import math
import os
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ares.results.load_points import LoadFile, LoadLatency, LoadPoint
from experiments.bench.closed_loop import ClientLoop
from experiments.bench.measured_points import write_load
from experiments.bench.redis_client import RedisStreamConnection
from experiments.bench.store_clients import Coroutines
from experiments.kept_runs import import_runs
from experiments.local_cluster import local_cluster, server_pids
from experiments.logs import log_faults, log_figures, log_peers
from experiments.logs.__main__ import LOG_PARTS_OF_CLAIMS, main
from experiments.logs.log_figures import opened, states_asked
from experiments.logs.log_load_plan import (
    FAULT_RUNS,
    LOG_EXTENTS,
    LOG_THREADS,
    FaultRun,
    LogExtent,
    LogLoadRun,
    runs,
)
from experiments.logs.log_work import JointClients, LogLoop, LogWork, OurLog, go_through
from experiments.logs.nats import NatsConnection, NatsError
from experiments.measuring import Repeats, Table
from experiments.verdicts.claim import CONFIRMED, REFUTED
from experiments.verdicts.claimed_points import claims, log_runs
from experiments.verdicts.evaluate import evaluate
from experiments.verdicts.reproduction import command
from experiments.verdicts.rows import read_rows
from tests.results.operation_logs import imported, write


def work(**more):
    return LogWork(**{"entry": b"e", "left": 10, "end_s": time.perf_counter() + 60} | more)


class Transport:
    """A transport which keeps the sent data."""

    def __init__(self):
        self.sent = b""

    def write(self, data):
        self.sent += data

    def writelines(self, parts):
        self.sent += b"".join(parts)

    def close(self):
        self.sent = b""


@pytest.mark.parametrize("scale", LOG_EXTENTS)
def test_the_points_of_a_scale_are_different_and_few(scale):
    planned = runs(scale)
    assert len({each.name for each in planned}) == len(planned)
    points = sum(len(each.windows) for each in planned)
    assert (
        points * LOG_EXTENTS[scale].seconds * LOG_EXTENTS[scale].iterations
        < {"quick": 300, "paper": 1500}[scale]
    )


def test_positions_are_of_what_is_there():
    newest = work(oldest=5, newest=20, interval=3)
    assert {newest.position() for _ in range(500)} == {17, 18, 19, 20}
    everything = work(oldest=5, newest=7)
    assert {everything.position() for _ in range(500)} == {5, 6, 7}
    assert {work(oldest=5, newest=7, interval=100).position() for _ in range(500)} == {5, 6, 7}


def test_a_loop_ends_after_so_many_operations_or_at_its_time():
    mixed = work(read_share=0.5, newest=9, left=400)
    loop: ClientLoop = LogLoop(mixed)
    while (asked := loop.ask()) is not None:
        loop.answered(b"e" if asked[1] is None else None)
    assert len(mixed.reads) + len(mixed.appends) == 400
    assert 120 < len(mixed.reads) < 280
    assert LogLoop(work(end_s=time.perf_counter())).ask() is None
    loop = LogLoop(failed := work())
    loop.ask()
    loop.failed("why")
    assert (failed.troubles["why"], failed.appends) == (1, [])


@pytest.mark.parametrize(
    ("answer", "done"),
    [
        (b"$15\r\n1700000000000-0\r\n:1\r\n", True),
        (b"$15\r\n1700000000000-0\r\n:0\r\n", False),
        (b"-OOM no memory\r\n:0\r\n", False),
    ],
)
@pytest.mark.parametrize("cut", [0, 3, 20])
async def test_an_entry_of_a_stream_counts_when_a_replica_has_it(answer, done, cut):
    connection, appending = RedisStreamConnection(wait=1), work(left=1)
    connection.connection_made(transport := Transport())
    connection.go(LogLoop(appending))
    assert (
        transport.sent == b"*5\r\n"
        b"$4\r\n"
        b"XADD\r\n"
        b"$3\r\n"
        b"log\r\n"
        b"$1\r\n"
        b"*\r\n"
        b"$1\r\n"
        b"e\r\n"
        b"$1\r\n"
        b"e\r\n"
        b"*3\r\n"
        b"$4\r\n"
        b"WAIT\r\n"
        b"$1\r\n"
        b"1\r\n"
        b"$5\r\n"
        b"10000\r\n"
    )
    for part in filter(None, (answer[:cut], answer[cut:])):
        connection.data_received(part)
    assert connection.over.done()
    assert (len(appending.appends), sum(appending.troubles.values())) == (
        (1, 0) if done else (0, 1)
    )


async def test_nats_answers_by_number_in_any_pieces():
    connection = NatsConnection()
    connection.connection_made(transport := Transport())
    first, second, third = (connection.ask("entries", b"e") for _ in range(3))
    assert b"PUB entries answers.1 1\r\ne\r\n" in transport.sent
    stream = (
        b"INFO {}\r\n"
        b"PING\r\n"
        b"MSG answers.1 1 9\r\n"
        b'{"seq":2}\r\n'
        b"MSG answers.0 1 18\r\n"
        b'{"error":"no one"}\r\n'
    )
    for at in range(len(stream)):
        connection.data_received(stream[at : at + 1])
    assert transport.sent.endswith(b"PONG\r\n")
    assert (await second)["seq"] == 2
    with pytest.raises(NatsError, match="no one"):
        await first
    connection.connection_lost(None)
    with pytest.raises(NatsError, match="ended"):
        await third


class Faulty:
    """A store in memory; the append of this number, and later ones, have the ``fault``."""

    def __init__(self, last=math.inf, fault=None):
        self.left, self.fault, self.stops = last, fault, 0

    async def read(self, key): ...

    async def write(self, key, value):
        await asyncio.sleep(0.001)
        self.left -= 1
        if self.left < 0:
            await self.fault()

    async def close(self): ...

    @contextlib.contextmanager
    def running(self, directory):
        yield self, {}
        self.stops += 1

    async def clients(self, store, work, in_flight):
        return Coroutines(store, (KeyError,), self.close)


async def reset():
    raise ConnectionResetError("reset by peer")


async def silence():
    await asyncio.sleep(1000)


async def refuse():
    raise KeyError("refused")


class Unreachable(Faulty):
    async def clients(self, store, work, in_flight):
        raise OSError("no route")


def test_a_peer_that_fails_after_its_start_ends_no_other(monkeypatch, capsys):
    stores = {
        log_peers.OURS: Faulty(),
        "resets": Faulty(30, reset),
        "silent": Faulty(30, silence),
        "far": Unreachable(),
        "refuses": Faulty(30, refuse),
        "good": Faulty(),
    }
    peers = {
        name: log_peers.LogPeer(lambda: None, store.running, store.clients)
        for name, store in stores.items()
    }
    monkeypatch.setattr(log_peers, "log_peers", lambda durability: peers)
    monkeypatch.setattr(log_peers, "PEER_PATIENCE_S", 0.3)
    monkeypatch.setattr(log_peers, "COUNT_MAX", 40)
    monkeypatch.setitem(log_peers.PEER_REPEATS, "quick", Repeats(3, 1.0, 1.0))
    log_peers.measure_peers(Table(), "quick")
    told = capsys.readouterr().out
    for line in (
        "resets FAILED, and is left out: ConnectionResetError: reset by peer\n",
        "silent FAILED, and is left out: no answer in 0.3 s\n",
        "far FAILED, and is left out: OSError: no route\n",
        "refuses FAILED, and is left out: KeyError: 'refused'\n",
        "shared log : good, 1 in flight",
        "shared log : good, 100 in flight",
    ):
        assert line in told
    assert "shared log : resets" not in told
    assert {store.stops for store in stores.values()} == {2}, "once for each durability"


def test_without_the_shared_log_the_peers_are_measured(monkeypatch, capsys):
    monkeypatch.setattr(log_peers, "COUNT_MAX", 40)

    async def measured():
        with contextlib.ExitStack() as stop:
            running = {
                name: log_peers.RunningPeer(store.clients, store, {}, stop)
                for name, store in ((log_peers.OURS, Unreachable()), ("good", Faulty()))
            }
            await log_peers._measured(Table(), "", running, 1, Repeats(1, 0.02, 0.02))
            assert running.keys() == {"good"}

    asyncio.run(measured())
    told = capsys.readouterr().out
    assert "good, 1 in flight" in told
    assert "shared log : good" not in told


def test_figures_of_a_point_are_there_for_claims(tmp_path):
    each, directory = LogLoadRun("CRAQ", read_share=1.0), tmp_path / "log" / "CRAQ_1"
    write(
        directory / "run.json",
        {"scenario": "log", "algorithm": "CRAQ", "iteration": 1, "parameters": each.parameters()},
    )
    write_load(
        directory,
        LoadFile(
            [LoadPoint(50, read_share=1.0, per_s=3.0, figures={"busiest_per_s": 7.0})], "CRAQ"
        ),
    )
    imported(tmp_path / "results.db", tmp_path / "log")
    [row] = [row for row in read_rows(tmp_path)[0] if row.op == "all"]
    assert (
        row.figures["busiest_per_s"],
        row.figures["per_s"],
        row.parameters["clients"],
        row.parameters["interval"],
    ) == (7.0, 3.0, 50, 0)


@pytest.mark.parametrize(("entries_lost", "word"), [(0, CONFIRMED), (1, REFUTED)])
def test_a_kill_that_loses_an_acknowledged_entry_refutes_the_claim(tmp_path, entries_lost, word):
    [told] = [claim for claim in claims() if claim.id == "ikaria-failures"]
    made = [
        log_faults.keep_fault(
            tmp_path,
            each,
            LoadPoint(
                10,
                write=LoadLatency(40, 0.1, 0.1, 0.1),
                figures={"lost": float(entries_lost if each.victim == "tail" else 0)},
                began="2026-01-01T00:00:00+00:00",
            ),
        )
        for each in FAULT_RUNS
    ]
    import_runs(tmp_path, made)
    assert evaluate(told, read_rows(tmp_path)[0]).word == word


def test_an_entry_is_lost_unless_it_is_where_it_was_acknowledged():
    found = {0: b"a", 1: b"b", 2: b"c"}
    assert log_faults.lost([(0, b"a"), (2, b"c")], found) == 0
    assert log_faults.lost([(0, b"b"), (1, b"b"), (1, b"c"), (3, b"d")], found) == 3


def test_the_longest_time_without_an_append_counts_until_now():
    appends = log_faults.SteadyAppends()
    now = appends.ends[0]
    appends.ends = [now - 9, now - 8, now - 6, now - 5]
    assert 5 <= appends.pause_s() < 6
    appends.ends.append(now)
    assert appends.pause_s() == pytest.approx(5)


def test_points_of_threads_are_apart_from_the_points_of_the_same_load():
    told = claims()
    threads = [each for each in log_runs(told) if each.scenario == LOG_THREADS]
    assert {(each.logs, each.processors) for each in threads} == {(1, 1), (1, 2), (4, 2)}
    assert {each.protocol for each in threads} == {"CR", "CRAQ"}
    assert len({each.name for each in log_runs(told)}) == len(log_runs(told))
    one, all_processors = LogLoadRun("CRAQ", 4, processors=2), LogLoadRun("CRAQ", 4)
    assert (one.scenario, all_processors.scenario) == ("log_threads", "log")
    assert one.parameters() == all_processors.parameters() | {"logs": 1, "processors": 2}


def test_runs_on_more_processors_than_there_are_are_left_out_and_named(monkeypatch, capsys):
    monkeypatch.setattr(log_figures, "local_cluster", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(log_figures.os, "sched_getaffinity", lambda _: {3})
    measured, kept = [], []
    monkeypatch.setattr(log_figures, "_measured", lambda table, file, each, extent: each)
    monkeypatch.setattr(log_figures, "run", measured.append)
    monkeypatch.setattr(log_figures, "_written", lambda *_: Path("made"))
    monkeypatch.setattr(log_figures, "import_runs", lambda results, made: kept.extend(made))
    chosen = [LogLoadRun("CR", processors=processors) for processors in (0, 1, 2)]
    log_figures.measure_figures(Table(), chosen, LogExtent(*[()] * 5, 1, 1.0, 1), Path("results"))
    assert ([each.processors for each in measured], len(kept)) == ([0, 1], 2)
    assert "without runs on more than 1 processors" in capsys.readouterr().out


def test_the_scale_of_claims_has_the_parts_with_claims_alone(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["logs", "--scale", "points", "--only", "faults,size"])
    with pytest.raises(SystemExit):
        main()
    assert "is for --only faults,figures" in capsys.readouterr().err
    words = {command(claim) for claim in claims() if claim.scenario.startswith("log")}
    parts = {word.split("--only ")[1].split()[0] for word in words}
    assert parts == LOG_PARTS_OF_CLAIMS


def test_each_log_has_its_own_loops():
    """Check that loops go to the log of the work, and to the connections of this log by turns."""

    class Kept:
        def __init__(self):
            self.loops = []

        async def run(self, loops):
            self.loops = loops

        async def close(self):
            raise AssertionError

    works = [work(), work()]
    connections = [[Kept(), Kept()], [Kept(), Kept()]]
    clients = JointClients([JointClients(each) for each in connections])
    asyncio.run(go_through(clients, works, 4, {}))
    for own, each in zip(works, connections, strict=True):
        assert [[loop._work for loop in kept.loops] for kept in each] == [[own, own], [own, own]]


def processors_of(pid):
    """Return the processors of each thread."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return [os.sched_getaffinity(int(thread.name)) for thread in threads]


@pytest.mark.slow
@pytest.mark.process
async def test_servers_stay_on_their_processors_and_take_loads_of_two_logs():
    each, extent = LogLoadRun("CRAQ", 3, 64, 0.5, 0, (4,), 2, 1), LogExtent(*[()] * 5, 400, 20.0, 1)
    with local_cluster(3) as file:
        point = (await log_figures._measured(Table(), file, each, extent)).points[0]
        used = [
            processors for pid in server_pids(file).values() for processors in processors_of(pid)
        ]
    assert all(each == set(sorted(os.sched_getaffinity(0))[:1]) for each in used)
    assert len(used) >= 3
    assert (point.read.count + point.write.count, point.failed, point.clients) == (400, 0, 4)


@pytest.mark.slow
@pytest.mark.process
async def test_a_killed_tail_loses_no_acknowledged_entry():
    with local_cluster(4, "--durability fsync") as file:
        point = await log_faults.killed(file, FaultRun("tail", "command"))
    assert (point.write.count >= 30, point.figures) == (True, {"lost": 0.0})
    assert point.longest_pause_s > 0


@pytest.mark.slow
@pytest.mark.process
async def test_a_chain_under_load_says_what_it_took():
    with local_cluster(3) as file:
        async with AsyncExitStack() as closing:
            logs = [
                await opened(closing, file, "events", ["s0", "s1", "s2"], number)
                for number in range(3)
            ]
            mixed = work(left=300, read_share=0.5)
            await logs[0].append(b"e")
            clients = JointClients(
                [
                    Coroutines(OurLog(log, mixed, name), (), log.close)
                    for log, name in zip(logs, ("CR", "CRAQ", "UCRAQ"), strict=True)
                ]
            )
            spent = await asyncio.wait_for(go_through(clients, [mixed], 6, server_pids(file)), 30)
            assert await logs[0].tail() == len(mixed.appends) + 1
        assert states_asked(file) > 0
    assert (spent.count, mixed.troubles) == (300, {})
    assert min(spent.servers_s.values()) > 0
