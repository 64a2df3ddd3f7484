"""Cost of a dead server and of a move for a log.

Measured are the time without appends after a kill, the acknowledged entries that are lost then, and
the rate of entries that move between servers.
"""

import asyncio
import itertools
import os
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from ares.client.connect import connect
from ares.client.shared_log import Log
from ares.model.configuration import Configuration
from ares.model.errors import AresError
from ares.platform.loop import run
from ares.results.load_points import LoadFile, LoadPoint
from experiments.bench.measured_points import began
from experiments.histogram import counted, latency_of
from experiments.kept_runs import import_runs, keep_run
from experiments.local_cluster import local_cluster, pid_of
from experiments.logs.log_figures import opened
from experiments.logs.log_load_plan import (
    FAULT_ENTRY_BYTES,
    FAULT_RUNS,
    FAULT_VICTIMS,
    LOG_FAULTS,
    ChainBy,
    FaultRun,
)
from experiments.measuring import Table

FAULT_SERVERS = 4
FAULT_SECTIONS: dict[ChainBy, str] = {
    "command": "A server of a chain of 3 is killed, and the chain is formed without it by the next "
    "command: time without appends",
    "autopilot": "The same, where the autopilot finds it out",
    "next leader": "The same, and the leading member is killed at the same moment",
}
MOVED_ENTRIES = {"quick": 50_000, "paper": 1_000_000}
FAULT_ENTRY = bytes(FAULT_ENTRY_BYTES)
FAULT_BATCH = 1000
FAULT_IN_FLIGHT = 10
FAULT_PAUSE_S = 0.002
RUN_S = 1.0
KNOWN_S, FAULT_FOUND_S = 12.0, 8.0
"""Seconds until the autopilot knows a new log, and until it has made a chain without a dead server.
"""


class SteadyAppends:
    """Appends of different entries, through faults; ``acknowledged`` has positions.

    ``ends`` has the begin and the times of acknowledgements, ``took_s`` the latencies, in seconds.
    """

    def __init__(self) -> None:
        self.acknowledged: list[tuple[int, bytes]] = []
        self.ends = [time.perf_counter()]
        self.took_s: list[float] = []
        self._numbers = itertools.count()

    async def go(self, log: Log) -> None:
        """Append without end. A failed append is followed by the next."""
        while True:
            entry = next(self._numbers).to_bytes(FAULT_ENTRY_BYTES, "big")
            begin_s = time.perf_counter()
            with suppress(AresError):
                self.acknowledged.append((await log.append(entry), entry))
                self.ends.append(time.perf_counter())
                self.took_s.append(self.ends[-1] - begin_s)
            await asyncio.sleep(FAULT_PAUSE_S)

    def pause_s(self) -> float:
        """Return the longest time without an acknowledgement, from the begin until now."""
        ends = itertools.pairwise([*self.ends, time.perf_counter()])
        return max(later - earlier for earlier, later in ends)


def lost(acknowledged: Iterable[tuple[int, bytes]], found: Mapping[int, bytes]) -> int:
    """Count acknowledged entries absent from their positions."""
    return sum(found.get(position) != entry for position, entry in acknowledged)


def measure_faults(table: Table, scale: str, results: Path) -> None:
    """Kill head, middle and tail, each on a separate cluster; then move to other servers.

    Each kill becomes a run under ``results``. Moves have no claims, so `points` has none.
    """
    made = []
    for chain_by, title in FAULT_SECTIONS.items():
        table.section(title)
        by_command = chain_by == "command"
        for each in FAULT_RUNS:
            if each.chain_by != chain_by:
                continue
            words = "" if by_command else "--consensus 3 --autopilot"
            with local_cluster(FAULT_SERVERS, f"--durability fsync {words}") as file:
                point = run(killed(file, each))
            assert point.write is not None
            assert point.longest_pause_s is not None
            table.line(f"killed: {each.victim}", [point.longest_pause_s], "s")
            table.note(f"    {point.write.count} acknowledged, {point.figures['lost']:g} lost")
            made.append(keep_fault(results, each, point))
    import_runs(results, made)
    if scale in MOVED_ENTRIES:
        table.section("All entries move to three other servers, fsync")
        with local_cluster(6, "--durability fsync") as file:
            run(_moved(table, file, MOVED_ENTRIES[scale]))


def keep_fault(results: Path, each: FaultRun, point: LoadPoint) -> Path:
    """Write the run of a kill. Return the directory."""
    file = LoadFile([point], "CRAQ", f"killed: {each.victim}, next chain by: {each.chain_by}")
    name, parameters = f"{each.victim} {each.chain_by}", each.parameters()
    return keep_run(results, LOG_FAULTS, name, file, iteration=1, parameters=parameters)


async def killed(file: Path, each: FaultRun) -> LoadPoint:
    """Kill the victim while appends go on, wait for the next chain, and read the whole log."""
    names = [f"s{number}" for number in range(FAULT_SERVERS)]
    by_command = each.chain_by == "command"
    async with AsyncExitStack() as closing:
        log = await opened(closing, file, "events", names[:3])
        appends, begin_s = SteadyAppends(), time.perf_counter()
        loops = [asyncio.ensure_future(appends.go(log)) for _ in range(FAULT_IN_FLIGHT)]
        await asyncio.sleep(RUN_S if by_command else KNOWN_S)
        victim = names[FAULT_VICTIMS[each.victim]]
        dead = [victim, *([await _leader(file)] if each.chain_by == "next leader" else [])]
        for pid in [pid_of(file, name) for name in dead]:
            os.kill(pid, signal.SIGKILL)
        if by_command:
            others = [name for name in names if name != victim]
            await log.reconfigure(Configuration.chain(servers=others))
        else:
            await asyncio.sleep(FAULT_FOUND_S)
        await asyncio.sleep(RUN_S)
        pause_s = appends.pause_s()
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        found = await _entries(await opened(closing, file, "events", names[:3]))
    return LoadPoint(
        clients=FAULT_IN_FLIGHT,
        write=latency_of(counted(appends.took_s)),
        longest_pause_s=pause_s,
        figures={"lost": float(lost(appends.acknowledged, found))},
        began=began(begin_s),
    )


async def _entries(log: Log) -> dict[int, bytes]:
    """Return all entries of the log, by position."""
    found: dict[int, bytes] = {}
    tail, position = await log.tail(), 0
    while position < tail:
        pairs = await log.read_range(position, tail)
        found |= pairs
        position = pairs[-1][0] + 1
    return found


async def _leader(file: Path) -> str:
    async with connect(file) as store:
        members = (await store.status()).members
    return next(member.leader for member in members if member.leader)


async def _moved(table: Table, file: Path, count: int) -> None:
    async with AsyncExitStack() as closing:
        log = await opened(closing, file, "events", ["s0", "s1", "s2"])
        for _ in range(count // FAULT_BATCH):
            await log.append_many([FAULT_ENTRY] * FAULT_BATCH)
        appends = SteadyAppends()
        appending = asyncio.ensure_future(appends.go(log))
        begin_s = time.perf_counter()
        try:
            await log.reconfigure(Configuration.chain(servers=["s3", "s4", "s5"]))
        except AresError as error:
            table.note(f"it did not move: {error}")
            return
        finally:
            took_s, pause_s = time.perf_counter() - begin_s, appends.pause_s()
            appending.cancel()
            await asyncio.gather(appending, return_exceptions=True)
    title = f"{count:,} entries of {len(FAULT_ENTRY)} B to each of three servers"
    table.line(title, [count * len(FAULT_ENTRY) / took_s / 2**20], "MiB/s each")
    table.line("longest time between two appends during the fault", [pause_s], "s")
