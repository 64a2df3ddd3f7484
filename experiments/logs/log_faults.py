"""Cost of a dead server and of a move for a log.

Measured are the time without appends after a kill, and the rate of entries that move between
servers.
"""

import asyncio
import itertools
import os
import signal
import time
from contextlib import AsyncExitStack
from pathlib import Path

from ares.client.connect import connect
from ares.client.shared_log import Log
from ares.model.configuration import Configuration
from ares.model.errors import AppendUncertain, AresError
from ares.platform.loop import run
from experiments.local_cluster import ClusterOptions, local_cluster
from experiments.logs.log_figures import opened, pid_of
from experiments.measuring import Table

FAULT_VICTIMS = {"head": 0, "middle": 1, "tail": 2}
FAULT_SERVERS = 4
MOVED_ENTRIES = {"quick": 50_000, "paper": 1_000_000}
FAULT_ENTRY = bytes(256)
FAULT_BATCH = 1000
FAULT_PAUSE_S = 0.002
RUN_S = 1.0
KNOWN_S, FAULT_FOUND_S = 12.0, 8.0
"""Seconds until the autopilot knows a new log, and until it has made a chain without a dead server.
"""


def measure_faults(table: Table, scale: str) -> None:
    """Kill head, middle and tail, each on a separate cluster; then move to other servers."""
    table.section(
        "A server of a chain of 3 is killed, and the chain is formed without it by the next "
        "command: time without appends"
    )
    for victim, place in FAULT_VICTIMS.items():
        with local_cluster(
            FAULT_SERVERS, "abd", consensus=1, options=ClusterOptions(durability="fsync")
        ) as file:
            table.line(f"killed: {victim}", [run(_failed_over(file, place))], "s")
    table.section(
        "The same, where the autopilot finds it out; with the leading member: that is killed at "
        "the same moment"
    )
    for (victim, place), with_leader in itertools.product(FAULT_VICTIMS.items(), (False, True)):
        with local_cluster(
            FAULT_SERVERS,
            "abd",
            consensus=3,
            options=ClusterOptions(durability="fsync", autopilot=True),
        ) as file:
            killed = f"killed: {victim}{' and the leading member' if with_leader else ''}"
            table.line(killed, [run(_failed_over(file, place, FAULT_FOUND_S, with_leader))], "s")
    table.section("All entries move to three other servers, fsync")
    with local_cluster(6, "abd", consensus=1, options=ClusterOptions(durability="fsync")) as file:
        run(_moved(table, file, MOVED_ENTRIES[scale]))


async def _failed_over(
    file: Path, place: int, found_s: float = 0.0, with_leader: bool = False
) -> float:
    """Return the longest time between two acknowledged appends around the kill.

    ``found_s`` is the time for the autopilot to find the fault; with 0 a command forms the chain at
    once, without an autopilot.
    """
    names = [f"s{number}" for number in range(FAULT_SERVERS)]
    async with AsyncExitStack() as closing:
        log = await opened(closing, file, "events", names[:3])
        ends: list[float] = []
        appending = asyncio.ensure_future(_append(log, ends))
        await asyncio.sleep(KNOWN_S if found_s else RUN_S)
        dead = [names[place], *([await _leader(file)] if with_leader else [])]
        for pid in [pid_of(file, name) for name in dead]:
            os.kill(pid, signal.SIGKILL)
        if found_s:
            await asyncio.sleep(found_s)
        else:
            await log.reconfigure(
                Configuration.chain(servers=[name for name in names if name != names[place]])
            )
        await asyncio.sleep(RUN_S)
        appending.cancel()
        await asyncio.gather(appending, return_exceptions=True)
    return max(later - earlier for earlier, later in itertools.pairwise(ends))


async def _leader(file: Path) -> str:
    async with connect(file) as store:
        members = (await store.status()).members
    return next(member.leader for member in members if member.leader)


async def _append(log: Log, ends: list[float]) -> None:
    while True:
        try:
            await log.append(FAULT_ENTRY)
            ends.append(time.perf_counter())
        except AppendUncertain:
            pass
        await asyncio.sleep(FAULT_PAUSE_S)


async def _moved(table: Table, file: Path, count: int) -> None:
    async with AsyncExitStack() as closing:
        log = await opened(closing, file, "events", ["s0", "s1", "s2"])
        for _ in range(count // FAULT_BATCH):
            await log.append_many([FAULT_ENTRY] * FAULT_BATCH)
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
    table.line(
        f"{count:,} entries of {len(FAULT_ENTRY)} B to each of three servers",
        [count * len(FAULT_ENTRY) / took_s / 2**20],
        "MiB/s each",
    )
    table.line(
        "longest time between two appends during the fault",
        [max((b - a for a, b in itertools.pairwise(ends)), default=took_s)],
        "s",
    )
