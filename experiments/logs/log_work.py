"""The load of a log: closed loops of appends and reads, for the shared log and other stores.

The loops are as in experiments/bench/closed_loop.py.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from ares.client.shared_log import Log
from ares.model.errors import NotWritten, Trimmed
from experiments.bench.closed_loop import Asked, ClientLoop
from experiments.bench.store_clients import StoreClients


class LogWork(Struct):
    """The shared state of the loops. Latencies are in seconds.

    ``newest`` is the last position that an append returned; ``oldest`` is the first existing
    position. ``interval`` is as in :class:`experiments.logs.log_load_plan.LogLoadRun`.
    """

    entry: bytes
    left: int
    end_s: float
    read_share: float = 0.0
    interval: int = 0
    oldest: int = 0
    newest: int = 0
    reads: list[float] = field(default_factory=list)
    appends: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    troubles: Counter[str] = field(default_factory=Counter)

    def position(self) -> int:
        """Return a position to read."""
        first = max(self.oldest, self.newest - self.interval) if self.interval else self.oldest
        return first + int(random.random() * (self.newest - first + 1))


class LogLoop:
    """An :class:`experiments.bench.closed_loop.ClientLoop` of sequential operations, for a log.

    A key is a position. The loop ends when the work is over.
    """

    def __init__(self, work: LogWork) -> None:
        self._work = work
        self._reading = False
        self._began_s = 0.0

    def ask(self) -> Asked | None:
        work = self._work
        self._began_s = time.perf_counter()
        if work.left <= 0 or self._began_s >= work.end_s:
            return None
        work.left -= 1
        self._reading = random.random() < work.read_share
        return (str(work.position()), None) if self._reading else (str(work.left), work.entry)

    def answered(self, value: bytes | None = None) -> None:
        now = time.perf_counter()
        if self._reading:
            self._work.reads.append(now - self._began_s)
        else:
            self._work.appends.append(now - self._began_s)
            self._work.ends.append(now)

    def failed(self, why: str) -> None:
        self._work.troubles[why] += 1


class OurLog:
    """The shared log as a store of keys: a key is a position.

    ``protocol`` selects the answering server.
    """

    def __init__(self, log: Log, work: LogWork, protocol: str = "CRAQ") -> None:
        self._log, self._work, self._protocol = log, work, protocol

    async def read(self, key: str) -> bytes | None:
        """Return the entry, or `None` if the server has no such entry."""
        try:
            if self._protocol == "UCRAQ":
                return await self._log.read(int(key), uncommitted=True)
            return await self._log.read(int(key), reads="cr" if self._protocol == "CR" else "craq")
        except (NotWritten, Trimmed):
            return None

    async def write(self, _key: str, value: bytes) -> int:
        """Append the value."""
        position = await self._log.append(value)
        self._work.newest = max(self._work.newest, position)
        return position


class JointClients:
    """Clients of several connections or logs, each with a share of the loops, by turns."""

    def __init__(self, clients: Sequence[StoreClients]) -> None:
        self._clients = clients

    async def run(self, loops: Sequence[ClientLoop]) -> None:
        count = len(self._clients)
        await asyncio.gather(
            *(clients.run(loops[number::count]) for number, clients in enumerate(self._clients))
        )

    async def close(self) -> None:
        """Leave the connections open; the opener closes them."""


class TimeSpent(Struct, frozen=True):
    """The time of a load: ``seconds``, and processor time of the client and of each server."""

    count: int
    seconds: float
    client_s: float
    servers_s: dict[str, float]

    @property
    def per_s(self) -> float:
        return self.count / self.seconds

    @property
    def busiest_s(self) -> float:
        """Return the processor time of the busiest server."""
        return max(self.servers_s.values())

    @property
    def processor_text(self) -> str:
        """Return the microseconds of processors for an operation, as text."""
        return f"client {1e6 * self.client_s / self.count:.3g}, " + ", ".join(
            f"{name} {1e6 * spent / self.count:.3g}" for name, spent in self.servers_s.items()
        )


def worked_s(pids: Iterable[int]) -> dict[int, float]:
    """Return the processor time of each process, all threads, in nanoseconds.

    /proc/PID/stat has only hundredths of a second.
    """
    tasks = {pid: Path(f"/proc/{pid}/task").glob("*/schedstat") for pid in pids}
    return {
        pid: sum(int(task.read_text().split()[0]) for task in each) / 1e9
        for pid, each in tasks.items()
    }


class TimeMeter:
    """A measurement of the time of a load: ``with``, then :meth:`of`."""

    def __init__(self, servers: Mapping[str, int]) -> None:
        self._servers = servers

    def __enter__(self) -> "TimeMeter":
        self._before = worked_s(self._servers.values())
        self._client_s, self._begin_s = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._seconds = time.perf_counter() - self._begin_s
        self._client_s = time.process_time() - self._client_s
        self._after = worked_s(self._servers.values())

    def of(self, count: int) -> TimeSpent:
        """Return the time spent on `count` operations."""
        used = {name: self._after[pid] - self._before[pid] for name, pid in self._servers.items()}
        return TimeSpent(count, self._seconds, self._client_s, used)


async def go_through(
    clients: StoreClients, works: Sequence[LogWork], window: int, servers: Mapping[str, int]
) -> TimeSpent:
    """Run the works at once, each with ``window`` operations in flight."""
    with TimeMeter(servers) as spending:
        await clients.run([LogLoop(work) for _ in range(window) for work in works])
    return spending.of(sum(len(work.reads) + len(work.appends) for work in works))
