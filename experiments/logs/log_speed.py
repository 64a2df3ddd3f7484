"""Speed of the shared log for a client process, and the processors' time.

Measured are also reads, follow, and the memory of entries.
"""

import asyncio
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from ares.client.shared_log import Log
from ares.model.errors import AresError
from ares.platform.loop import run
from experiments.bench.store_clients import Coroutines
from experiments.bench.store_processes import resident_bytes
from experiments.histogram import counted, latency_of
from experiments.local_cluster import local_cluster, server_pids
from experiments.logs.log_figures import opened
from experiments.logs.log_work import LogWork, OurLog, TimeMeter, TimeSpent, go_through
from experiments.measuring import Repeats, Table

SPEED_ENTRY = bytes(256)
SPEED_IN_FLIGHT = 100
COUNT = {"quick": 20_000, "paper": 100_000}
LIMITS = {"quick": Repeats(1, 4.0, 0.5), "paper": Repeats(1, 20.0, 0.5)}
"""Each load ends after COUNT operations or this time."""

SPEED_CHAIN = ["s0", "s1", "s2"]


def measure_speed(table: Table, scale: str) -> None:
    """Measure chains of three, in memory and with fsync."""
    for durability in ("memory", "fsync"):
        table.section(
            f"One client process, chain of 3, 256 B, {SPEED_IN_FLIGHT} in flight, {durability}"
        )
        with local_cluster(3, f"--durability {durability}") as file:
            run(_speed(table, file, durability, scale))


async def _speed(table: Table, file: Path, durability: str, scale: str) -> None:
    servers = server_pids(file)
    async with AsyncExitStack() as closing:
        log = await opened(closing, file, "speed", SPEED_CHAIN)
        await _load(table, log, servers, _work(COUNT[scale], LIMITS[scale].warm_s))
        before = sum(map(resident_bytes, servers.values()))
        work = _work(COUNT[scale], LIMITS[scale].seconds)
        spent = await _load(table, log, servers, work)
        held = list(map(resident_bytes, servers.values()))
        grown = (sum(held) - before) / len(held) / spent.count
        _add_speed(table, "appends", spent, durability)
        table.note(f"    a server grew by {grown:.0f} B an entry, to {max(held) >> 20} MiB")
        table.latency(latency_of(counted(work.appends)))
        spent = await _load(table, log, servers, _work(COUNT[scale], 1.0), 1)
        table.line("appends, one at a time", [spent.per_s], "/s")
        tail = await log.tail()
        work = _work(COUNT[scale], LIMITS[scale].seconds, read_share=1.0, newest=tail - 1)
        spent = await _load(table, log, servers, work)
        _add_speed(table, "reads", spent, durability)
        table.latency(latency_of(counted(work.reads)))
        ranges = _Ranges(log, tail, COUNT[scale], time.perf_counter() + LIMITS[scale].seconds)
        with TimeMeter(servers) as meter:
            await ranges.go()
        _add_speed(table, "reads in ranges of one", meter.of(ranges.done), durability)
        with TimeMeter(servers) as meter:
            await _follow(log, tail)
        _add_speed(table, "entries followed", meter.of(tail), durability)


def _work(count: int, seconds: float, read_share: float = 0.0, newest: int = 0) -> LogWork:
    """Return work of at most ``count`` operations that ends ``seconds`` from now."""
    return LogWork(SPEED_ENTRY, count, time.perf_counter() + seconds, read_share, newest=newest)


async def _load(
    table: Table,
    log: Log,
    servers: Mapping[str, int],
    work: LogWork,
    at_once: int = SPEED_IN_FLIGHT,
) -> TimeSpent:
    """Do the work, and name its failures. Raises :class:`AresError` if no operation succeeds."""
    clients = Coroutines(OurLog(log, work), (AresError,), log.close)
    spent = await go_through(clients, [work], at_once, servers)
    for why, count in work.troubles.items():
        table.note(f"    FAILED {count}: {why}")
    if not spent.count:
        raise AresError("no operation of the log succeeded")
    return spent


class _Ranges:
    """Reads of ranges of a log, each begun after the answer to another."""

    def __init__(self, log: Log, tail: int, most: int, end_s: float) -> None:
        self._log, self._tail, self._most, self._end_s = log, tail, most, end_s
        self.done = 0

    async def go(self) -> None:
        await asyncio.gather(*(self._through(number) for number in range(SPEED_IN_FLIGHT)))

    async def _through(self, position: int) -> None:
        while self.done < self._most and time.perf_counter() < self._end_s:
            position = (position + 7919) % self._tail
            await self._log.read_range(position, position + 1)
            self.done += 1


async def _follow(log: Log, tail: int) -> None:
    async for position, _ in log.follow(0):
        if position == tail - 1:
            return


def _add_speed(table: Table, what: str, spent: TimeSpent, durability: str) -> None:
    table.line(what, [spent.per_s], "/s", f"log {durability}, {what}")
    table.note(f"    us of processors: {spent.processor_text}")
