"""kill -9 at random instants, again and again: a process, some or all, also during their start.

The processes are servers and consensus members that start in milliseconds: forked from a process
with all modules imported, and afterwards like any other process. The usual start takes about half a
second, nearly all for imports, which is too long where thousands of processes are to be killed
within minutes. The code after the fork is the code of `ares-cli server` and `ares-cli consensus`,
down to the lock of the data directory.
"""

import asyncio
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random

from msgspec import Struct

from ares.cluster.settings import Settings
from ares.model.errors import AresError
from ares.model.identity import ServerId
from ares.testing.torture.torture_cluster import last_words

STARTING_S = (0.0, 0.15)
"""Seconds from the start of a process to a kill before, or just at, the first service."""

DIES_AGAIN = 0.3
VICTIM_WEIGHTS = (60, 25, 15)
"""Weights of killing a process, some, or all."""

_STORM_PRELOADED = [
    "ares.server.process_lifecycle",
    "ares.autopilot.pilot",
    "ares.consensus.member_host",
    "ares.store.journal.segment_journal",
    "ares.server.storage_process",
    "ares.server.storage_server",
    "ares.testing.kills.kill_members",
    "ares.testing.kills.kill_servers",
    "uvloop",
]


class StormLimits(Struct, frozen=True):
    """The limits of a storm: the first reached limit ends the storm."""

    kills: int
    seconds: float = math.inf


class StormCounts(Struct):
    """Counts of a storm.

    ``starting``: kills of a starting process. ``all_at_once``: rounds that killed all processes.
    """

    kills: int = 0
    starting: int = 0
    rounds: int = 0
    all_at_once: int = 0


class ForkedProcesses:
    """The processes of a cluster file.

    ``compact_after``: entries after which consensus members dump their table; ``None``: the usual
    number.

    Close the object at the end; the processes end by themselves if the creating process dies first.
    """

    def __init__(self, settings: Settings, compact_after: int | None = None) -> None:
        self._settings = settings
        self._compact_after = compact_after
        self._logs = settings.path.parent / "logs"
        self._logs.mkdir(exist_ok=True)
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_STORM_PRELOADED)
        self._running: dict[ServerId, multiprocessing.context.ForkServerProcess] = {}

    def start(self, id: ServerId) -> None:
        """Start a stopped process; the process may end at once, see :meth:`ended`."""
        kind = "server" if id in self._settings.servers else "consensus"
        words = (kind, str(self._settings.path), str(id), str(self._log(id)), self._compact_after)
        process = self._context.Process(target=_serve, args=words, daemon=True)
        process.start()
        self._running[id] = process

    def ended(self, id: ServerId) -> bool:
        """Return whether the process ended by itself."""
        return self._running[id].exitcode is not None

    async def kill(self, *ids: ServerId) -> None:
        """Kill the processes with signal 9, all at once, and return when they are gone."""
        processes = [self._running.pop(id) for id in ids]
        for process in processes:
            process.kill()
        for process in processes:
            await _end_of(process.sentinel)
            process.join()
            process.close()

    async def close(self) -> None:
        await self.kill(*self._running)

    def last_words(self, id: ServerId) -> str:
        return last_words(self._log(id))

    def _log(self, id: ServerId) -> Path:
        return self._logs / f"{id}.log"


async def _end_of(sentinel: int) -> None:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    loop.add_reader(sentinel, ended.set_result, None)
    try:
        await ended
    finally:
        loop.remove_reader(sentinel)


def _end_with_parent() -> None:
    """Wait for the end of the parent, and kill this process.

    The fork server does not end before this process, therefore the kernel's signal for a parent's
    death would not come.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)


def _serve(kind: str, file: str, id: str, log: str, compact_after: int | None) -> None:
    """Run a server or consensus member in a forked process."""
    from ares.consensus.raft import replicated as raft_consensus
    from ares.server.process_lifecycle import run_consensus_member, run_storage_server

    threading.Thread(target=_end_with_parent, daemon=True).start()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    if compact_after is not None:
        raft_consensus.COMPACT_AFTER_ENTRIES = compact_after
    try:
        (run_storage_server if kind == "server" else run_consensus_member)(Path(file), id)
    except AresError as error:
        sys.exit(f"error: {error}")


async def end(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel endless tasks. Raises an error of any task before the cancellation."""
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome


class Storm:
    """A storm over the running processes in ``processes`` with these ``ids``.

    ``rest`` is awaited before each round, as a pause without kills. ``audit(id)`` is awaited after
    a process was started again, and returns failed checks, in words; the audit must end early if
    the process did.
    """

    def __init__(
        self,
        processes: ForkedProcesses,
        ids: Sequence[ServerId],
        chance: Random,
        rest: Callable[[], Awaitable[None]],
        audit: Callable[[ServerId], Awaitable[list[str]]],
    ) -> None:
        self.toll = StormCounts()
        self.findings: list[str] = []
        self._processes = processes
        self._ids = list(ids)
        self._chance = chance
        self._rest = rest
        self._audit = audit

    async def rage(self, limits: StormLimits) -> None:
        """Kill until a limit is reached or a check fails; all processes run afterwards."""
        end_s = time.monotonic() + limits.seconds
        while self.toll.kills < limits.kills and time.monotonic() < end_s and not self.findings:
            await self._rest()
            await self._round()

    async def _round(self) -> None:
        victims = self._victims()
        for id in (id for id in victims if self._processes.ended(id)):
            self.findings.append(f"{id} ended by itself: {self._processes.last_words(id)}")
        await self._processes.kill(*victims)
        self.toll.kills += len(victims)
        self.toll.rounds += 1
        self.toll.all_at_once += len(victims) == len(self._ids)
        await asyncio.gather(*(self._revive(id) for id in victims))

    def _victims(self) -> list[ServerId]:
        some = self._chance.randint(1, len(self._ids))
        [count] = self._chance.choices([1, some, len(self._ids)], VICTIM_WEIGHTS)
        return self._chance.sample(self._ids, count)

    async def _revive(self, id: ServerId) -> None:
        self._processes.start(id)
        while self._chance.random() < DIES_AGAIN:
            await asyncio.sleep(self._chance.uniform(*STARTING_S))
            if self._processes.ended(id):
                break
            await self._processes.kill(id)
            self.toll.kills += 1
            self.toll.starting += 1
            self._processes.start(id)
        self.findings.extend(f"{id}: {finding}" for finding in await self._audit(id))
