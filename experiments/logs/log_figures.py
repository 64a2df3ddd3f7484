"""The figures of the thesis: points of load of logs on the same cluster, as runs for claims.

Claims are in docs/reproduction.md. A machine with two processors is no chain of machines: all
servers take turns on the processors, whichever server answers. The rate therefore stands beside the
possible rate of a chain with a processor for each server and clients elsewhere: operations in a
second of work of the busiest server (`busiest_per_s`).
"""

import os
import time
import urllib.request
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from itertools import chain
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from ares.client.connect import PendingConnection
from ares.client.shared_log import Log
from ares.cluster.settings import Settings
from ares.model.configuration import Configuration
from ares.model.errors import AresError
from ares.platform.loop import run
from ares.results.load_points import LoadFile, LoadPoint
from experiments.bench.measured_points import began
from experiments.bench.store_clients import Coroutines
from experiments.histogram import counted, latency_of
from experiments.kept_runs import import_runs, keep_run
from experiments.local_cluster import local_cluster, server_pids
from experiments.logs.log_load_plan import LOG_SERVERS, LogExtent, LogLoadRun
from experiments.logs.log_work import JointClients, LogWork, OurLog, go_through
from experiments.measuring import Table

KEPT_BEFORE_POINT = 4000
"""Number of entries in a log before a point."""


def measure_figures(
    table: Table, chosen: Sequence[LogLoadRun], extent: LogExtent, results: Path
) -> None:
    """Measure the runs, into runs under ``results`` and the database."""
    table.section(
        "The figures of the thesis: windows, shares of reads, chains, intervals, sizes, logs"
    )
    here = len(os.sched_getaffinity(0))
    possible = [each for each in chosen if each.processors <= here]
    if len(possible) < len(chosen):
        table.note(f"without runs on more than {here} processors")
    made = []
    with local_cluster(LOG_SERVERS) as file:
        for iteration in range(1, extent.iterations + 1):
            for each in possible:
                measured = run(_measured(table, file, each, extent))
                made.append(_written(results, each, iteration, measured))
    import_runs(results, made)


def _written(results: Path, each: LogLoadRun, iteration: int, file: LoadFile) -> Path:
    about = {"iteration": iteration, "servers": each.servers, "object_size": each.object_size}
    name, parameters = f"{each.name}_{iteration}", each.parameters()
    return keep_run(results, each.scenario, name, file, parameters=parameters, **about)


async def _measured(table: Table, file: Path, each: LogLoadRun, extent: LogExtent) -> LoadFile:
    servers = _servers_of(file, each)
    keep_on_processors(servers.values(), each.processors)
    names = [f"log-{each.servers}-{each.object_size}-{log}" for log in range(each.logs)]
    async with AsyncExitStack() as closing:
        connections = range(each.servers)
        logs = [
            [await opened(closing, file, name, list(servers), number) for number in connections]
            for name in names
        ]
        points = [await _point(table, file, logs, each, window, extent) for window in each.windows]
    return LoadFile(points, each.protocol, f"{each.object_size} B, {each.read_share:.0%} reads")


def keep_on_processors(pids: Iterable[int], processors: int) -> None:
    """Run these processes on the first of this process's processors; 0: on all of these."""
    chosen = sorted(os.sched_getaffinity(0))[: processors or None]
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), chosen)


def _servers_of(file: Path, each: LogLoadRun) -> dict[str, int]:
    """Return the pids of the servers of a run's chain."""
    return {name: pid for name, pid in server_pids(file).items() if int(name[1:]) < each.servers}


async def opened(
    closing: AsyncExitStack, file: Path, name: str, servers: list[str], number: int = 0
) -> Log:
    """Open a separate connection that asks the server of this ``number`` for all reads.

    A random choice would load a server more than the others.
    """
    store = await closing.enter_async_context(PendingConnection(Settings.load(file)))
    log = await store.log(name, create=Configuration.chain(servers=servers))
    log._session.operations._turn = number
    return log


async def _point(
    table: Table,
    file: Path,
    logs: list[list[Log]],
    each: LogLoadRun,
    window: int,
    extent: LogExtent,
) -> LoadPoint:
    entry = bytes(each.object_size)
    tails = [await _filled(connections[0], entry) for connections in logs]
    begin_s, asked = time.perf_counter(), states_asked(file)
    share, end_s = extent.operations // each.logs, begin_s + extent.seconds
    loads = (entry, share, end_s, each.read_share, each.interval)
    works = [LogWork(*loads, tail - KEPT_BEFORE_POINT, tail - 1) for tail in tails]
    clients = []
    for connections, work in zip(logs, works, strict=True):
        stores = [(OurLog(log, work, each.protocol), log.close) for log in connections]
        joint = [Coroutines(log, (AresError,), close) for log, close in stores]
        clients.append(JointClients(joint))
    servers = _servers_of(file, each)
    spent = await go_through(JointClients(clients), works, window * each.servers, servers)
    reads = latency_of(counted(chain.from_iterable(work.reads for work in works)))
    appends = latency_of(counted(chain.from_iterable(work.appends for work in works)))
    figures = {"busiest_per_s": spent.count / max(spent.busiest_s, 0.01)}
    if reads:
        figures["states_per_read"] = (states_asked(file) - asked) / reads.count
    shape = f"chain of {each.servers}, {each.object_size} B, {each.read_share:.0%} reads"
    title = f"{each.protocol}, {shape}, {window} in flight"
    if each.processors:
        title += f", logs: {each.logs}, processors: {each.processors}"
    table.line(title + (f", newest {each.interval}" if each.interval else ""), [spent.per_s], "/s")
    table.latency(appends, "append ")
    table.latency(reads, "read ")
    busiest = f"{figures['busiest_per_s']:,.0f}/s of the busiest server"
    table.note(f"    {busiest}; us: {spent.processor_text}")
    return LoadPoint(
        clients=window,
        read_share=each.read_share,
        seconds=spent.seconds,
        per_s=spent.per_s,
        read=reads,
        write=appends,
        failed=sum(work.troubles.total() for work in works),
        server_cpu={name: spent_s / spent.seconds for name, spent_s in spent.servers_s.items()},
        figures=figures,
        began=began(begin_s),
    )


async def _filled(log: Log, entry: bytes) -> int:
    """Leave KEPT_BEFORE_POINT entries in the log, and return its tail."""
    tail = await log.tail()
    while tail < KEPT_BEFORE_POINT or tail % KEPT_BEFORE_POINT:
        count = min(500, KEPT_BEFORE_POINT - tail % KEPT_BEFORE_POINT)
        tail = await log.append_many([entry] * count) + count
    await log.trim(tail - KEPT_BEFORE_POINT)
    return tail


def states_asked(file: Path) -> float:
    """Return how often servers were asked for their state, in all.

    A node asks the tail for its state before each answer to a dirty read.
    """
    addresses = [server.http for server in Settings.load(file).servers.values()]
    return sum(_looks(address) for address in addresses if address)


def _looks(address: str) -> float:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{address}/metrics", timeout=5.0) as page:
        families = text_string_to_metric_families(page.read().decode())
        samples = [sample for family in families for sample in family.samples]
    return sum(sample.value for sample in samples if sample.labels.get("kind") == "look")
