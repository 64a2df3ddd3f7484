"""A log that is larger than memory: the servers' memory during writes, follow and random reads."""

import asyncio
import random
import time
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

from ares.client.shared_log import Log
from ares.model.errors import AresError
from ares.model.units import MIB
from ares.platform.loop import run
from experiments.bench.store_processes import resident_bytes
from experiments.local_cluster import local_cluster, server_pids
from experiments.logs.log_figures import opened
from experiments.measuring import Table, timed

SIZE_MIB = {"quick": 256, "paper": 10 * 1024}
SIZE_ENTRY = bytes(1024)
PIECE = 64
"""Entries of an append: the batch that is usual with many appending clients, too."""

SIZE_IN_FLIGHT = 32
FOLLOWED_ENTRIES = 65_536
"""Number of entries that are followed: 64 MiB."""

READ_S, READS_IN_FLIGHT = 4.0, 100


def measure_size(table: Table, scale: str) -> None:
    """Measure a chain of three with fsync."""
    table.section(f"A log of {SIZE_MIB[scale]} MiB on disk, chain of 3, entries of 1 KiB, fsync")
    with local_cluster(3, "--durability fsync") as file:
        run(_size(table, file, SIZE_MIB[scale] * MIB // len(SIZE_ENTRY)))


async def _size(table: Table, file: Path, count: int) -> None:
    servers = server_pids(file)
    async with AsyncExitStack() as closing:
        before = {name: _disk_mib(file, name) for name in servers}
        log = await opened(closing, file, "large", list(servers))
        await log.append(SIZE_ENTRY)
        grown = max(_disk_mib(file, name) - before[name] for name in servers)
        table.line("disk of a server for a new log", [grown], "MiB", "new log, disk of a server")
        seconds, _ = await timed(_write(log, count))
        table.line("written", [count * len(SIZE_ENTRY) / MIB / seconds], "MiB/s")
        written_mib = _memory_mib(servers)
        table.line("memory of the largest server, written", [written_mib], "MiB")
        seconds, _ = await timed(_follow(log, count // 2))
        followed_mib = FOLLOWED_ENTRIES * len(SIZE_ENTRY) / MIB
        table.line("followed from the middle", [followed_mib / seconds], "MiB/s")
        seconds, done = await timed(_read(log, count))
        title, name = "read anywhere, one entry at a time", "large log, reads"
        table.line(f"{title}, {READS_IN_FLIGHT} in flight", [done / seconds], "/s", name)
        name = "large log, memory of a server"
        most_mib = max(written_mib, _memory_mib(servers))
        table.line("memory of the largest server, written and read", [most_mib], "MiB", name)


def _memory_mib(servers: dict[str, int]) -> float:
    """Return the memory of the largest server."""
    return max(map(resident_bytes, servers.values())) / MIB


def _disk_mib(file: Path, server: str) -> float:
    """Return the disk that the logs of a server take."""
    files = (file.parent / "data" / server / "journal" / "logs").rglob("*")
    return sum(each.stat().st_blocks * 512 for each in files) / MIB


async def _write(log: Log, count: int) -> None:
    pieces = iter([[SIZE_ENTRY] * PIECE] * (count // PIECE))

    async def write() -> None:
        for piece in pieces:
            await log.append_many(piece)

    await asyncio.gather(*(write() for _ in range(SIZE_IN_FLIGHT)))


async def _follow(log: Log, first: int) -> None:
    async with aclosing(log.follow(first)) as entries:
        async for position, _ in entries:
            if position == first + FOLLOWED_ENTRIES - 1:
                return


async def _read(log: Log, tail: int) -> int:
    """Read random positions for READ_S; return the number of reads."""
    done, end_s = 0, time.perf_counter() + READ_S

    async def read() -> None:
        nonlocal done
        while time.perf_counter() < end_s:
            position = random.randrange(tail)
            if await log.read(position) != SIZE_ENTRY:
                raise AresError(f"position {position} has another entry")
            done += 1

    await asyncio.gather(*(read() for _ in range(READS_IN_FLIGHT)))
    return done
