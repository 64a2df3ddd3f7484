"""The measurements of the shared log: requests, answers of peers, and a real chain under load."""

import asyncio
import time
from contextlib import AsyncExitStack

import pytest

from ares.results.load_points import LoadFile, LoadPoint
from experiments.bench.closed_loop import ClientLoop
from experiments.bench.measured_points import write_load
from experiments.bench.redis_client import RedisStreamConnection
from experiments.bench.store_clients import Coroutines
from experiments.local_cluster import local_cluster
from experiments.logs.log_figures import opened, pids_of, states_asked
from experiments.logs.log_load_plan import LOG_EXTENTS, LogLoadRun, runs
from experiments.logs.log_work import JointClients, LogLoop, LogWork, OurLog, go_through
from experiments.logs.nats_client import NatsConnection, NatsError
from experiments.verdicts.rows import read_rows
from tests.results.operation_logs import imported, write


def work(**more):
    return LogWork(**{"entry": b"e", "left": 10, "end_s": time.perf_counter() + 60} | more)


class Transport:
    """A transport that keeps the sent data."""

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


@pytest.mark.slow
@pytest.mark.process
async def test_a_chain_under_load_says_what_it_took():
    with local_cluster(3, "abd", consensus=1) as file:
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
            spent = await asyncio.wait_for(go_through(clients, mixed, 6, pids_of(file)), 30)
            assert await logs[0].tail() == len(mixed.appends) + 1
        assert states_asked(file) > 0
    assert (spent.count, mixed.troubles) == (300, {})
    assert min(spent.servers_s.values()) > 0
