"""What a dead server and a move cost a log: time without appends after a kill, and how fast entries move from server to server."""

import asyncio
import itertools
import os
import signal
import time
from contextlib import AsyncExitStack
from pathlib import Path

from ares.client.shared_log import Log
from ares.machine.loop import run
from ares.model.configuration import Configuration
from ares.model.errors import AppendUncertain, AresError
from experiments.cluster import local_cluster
from experiments.logs.log_figures import opened, pids_of
from experiments.measuring import Table

VICTIMS = {"head": 0, "middle": 1, "tail": 2}
SERVERS = 4
MOVED = {"quick": 50_000, "paper": 1_000_000}
ENTRY = bytes(256)
BATCH = 1000
PAUSE_S = 0.002
RUN_S = 1.0


def measure_faults(table: Table, scale: str) -> None:
    """Kills of head, middle and tail, each on a cluster of its own; then a move to other servers."""
    table.section("A server of a chain of 3 is killed, and the chain is formed without it by the next command: time without appends")
    for victim, place in VICTIMS.items():
        with local_cluster(SERVERS, "abd", consensus=1, durability="fsync") as file:
            table.line(f"killed: {victim}", [run(_failed_over(file, place))], "s")
    table.section("All entries move to three other servers, fsync")
    with local_cluster(6, "abd", consensus=1, durability="fsync") as file:
        run(_moved(table, file, MOVED[scale]))


async def _failed_over(file: Path, place: int) -> float:
    """The longest time between two acknowledged appends around the kill, which is told at once: finding it out is not in it."""
    names = [f"s{number}" for number in range(SERVERS)]
    async with AsyncExitStack() as closing:
        log = await opened(closing, file, "events", names[:3])
        ends: list[float] = []
        appending = asyncio.ensure_future(_append(log, ends))
        await asyncio.sleep(RUN_S)
        os.kill(pids_of(file)[names[place]], signal.SIGKILL)
        await log.reconfigure(Configuration.chain(servers=[name for name in names if name != names[place]]))
        await asyncio.sleep(RUN_S)
        appending.cancel()
        await asyncio.gather(appending, return_exceptions=True)
    return max(later - earlier for earlier, later in itertools.pairwise(ends))


async def _append(log: Log, ends: list[float]) -> None:
    while True:
        try:
            await log.append(ENTRY)
            ends.append(time.perf_counter())
        except AppendUncertain:
            pass
        await asyncio.sleep(PAUSE_S)


async def _moved(table: Table, file: Path, count: int) -> None:
    async with AsyncExitStack() as closing:
        log = await opened(closing, file, "events", ["s0", "s1", "s2"])
        for _ in range(count // BATCH):
            await log.append_many([ENTRY] * BATCH)
        ends: list[float] = []
        appending = asyncio.ensure_future(_append(log, ends))
        begin_s = time.perf_counter()
        try:
            await log.reconfigure(Configuration.chain(servers=["s3", "s4", "s5"]))
        except AresError as error:
            table.note(f"it did not move: {error}")
            return
        finally:
            took_s = time.perf_counter() - begin_s
            appending.cancel()
            await asyncio.gather(appending, return_exceptions=True)
    table.line(f"{count:,} entries of {len(ENTRY)} B to each of three servers", [count * len(ENTRY) / took_s / 2**20], "MiB/s each")
    table.line("longest time between two appends meanwhile", [max((b - a for a, b in itertools.pairwise(ends)), default=took_s)], "s")
