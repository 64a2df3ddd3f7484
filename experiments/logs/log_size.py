"""A log that is larger than memory: the servers' memory during writes, follow and random reads."""

import asyncio
import random
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

from ares.client.shared_log import Log
from ares.model.errors import AresError
from ares.model.units import MIB
from ares.platform.loop import run
from experiments.bench.store_processes import resident_bytes
from experiments.local_cluster import local_cluster, server_pids
from experiments.logs.log_figures import opened
from experiments.measuring import Goal, Table, timed

SIZE_MIB = {"quick": 256, "paper": 10 * 1024}
SIZE_ENTRY = bytes(1024)
PIECE = 64
"""Entries of an append: the batch that is usual with many appending clients, too."""

SIZE_IN_FLIGHT = 32
FOLLOWED_ENTRIES = 65_536
"""Number of entries that are followed: 64 MiB."""

READ = 2000
MEMORY_GOAL = Goal(300)
"""Largest good memory of a server, in MiB."""


def measure_size(table: Table, scale: str) -> None:
    """Measure a chain of three with fsync."""
    table.section(f"A log of {SIZE_MIB[scale]} MiB on disk, chain of 3, entries of 1 KiB, fsync")
    with local_cluster(3, "--durability fsync") as file:
        run(_size(table, file, SIZE_MIB[scale] * MIB // len(SIZE_ENTRY)))


async def _size(table: Table, file: Path, count: int) -> None:
    servers = server_pids(file)
    async with AsyncExitStack() as closing:
        log = await opened(closing, file, "large", list(servers))
        seconds, _ = await timed(_write(log, count))
        table.line("written", [count * len(SIZE_ENTRY) / MIB / seconds], "MiB/s")
        _add_memory(table, servers, "written")
        seconds, _ = await timed(_follow(log, count // 2))
        followed_mib = FOLLOWED_ENTRIES * len(SIZE_ENTRY) / MIB
        table.line("followed from the middle", [followed_mib / seconds], "MiB/s")
        seconds, _ = await timed(_read(log, count))
        table.line("read anywhere, one entry at a time, 100 in flight", [READ / seconds], "/s")
        _add_memory(table, servers, "written and read")


def _add_memory(table: Table, servers: dict[str, int], when: str) -> None:
    largest_mib = max(map(resident_bytes, servers.values())) / MIB
    table.line(f"memory of the largest server, {when}", [largest_mib], "MiB", MEMORY_GOAL)


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


async def _read(log: Log, tail: int) -> None:
    positions = iter([random.randrange(tail) for _ in range(READ)])

    async def read() -> None:
        for position in positions:
            if await log.read(position) != SIZE_ENTRY:
                raise AresError(f"position {position} has another entry")

    await asyncio.gather(*(read() for _ in range(100)))
