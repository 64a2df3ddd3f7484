"""A process of clients of a log: they append, read, follow, ask for the tail, and trim.

Appends are single, in batches, many at once and conditional. Each client has a connection of its
own. Entries name their client, hence a history names every append. An append of unknown outcome
ends the name under which the client appends; hence the order of a name is the order of its appends,
unknown appends included.
"""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from random import Random

from ares.client.connect import connect
from ares.client.shared_log import Log, Reads
from ares.cluster.settings import Settings
from ares.model.configuration import Configuration
from ares.model.errors import AppendUncertain, AresError, NotWritten, PositionTaken, Trimmed
from ares.model.identity import ServerId
from ares.testing.torture.clients import (
    ABANDONED,
    ABANDONED_AFTER_S,
    RecordLog,
    TrafficPlan,
    keep_reporting,
)
from ares.testing.torture.records import LogRecorded, name_of, value_of
from ares.testing.verify.history import Outcome
from ares.testing.verify.log_history import LogEvent, LogOperation

TORTURED_LOG = "events"
FIRST_SERVERS = 3
AT_ONCE_MAX = 30
APPENDED_TOGETHER_MAX = 6
READ_MAX = 50
KEPT_ENTRIES = 150
"""Entries that a trim leaves, in most cases."""

TRIM_SHARE = 0.02
PATIENT = 0.8
"""The share of the time limit after which an uncertain append counts as a failure of the cluster.
"""

ENTRY_SIZES_BYTES = ((32, 80), (2_000, 15), (40_000, 4), (400_000, 1))


class LogWorker:
    """A client of a log; ``name`` is unique in the run.

    ``faults``: errors that no client may raise.
    """

    def __init__(
        self,
        name: str,
        log: Log,
        chance: Random,
        record: Callable[[LogRecorded], None],
        timeout_s: float,
    ) -> None:
        self.faults: list[str] = []
        self._name = name
        self._log = log
        self._chance = chance
        self._record = record
        self._timeout_s = timeout_s
        self._written = self._life = self._first = self._tail = 0

    # -- operations --------------------------------------------------------------------------------

    async def append_one(self) -> None:
        await self._append(1)

    async def append_many_at_once(self) -> None:
        await asyncio.gather(
            *[self._append(1) for _ in range(self._chance.randint(2, AT_ONCE_MAX))]
        )

    async def append_batch(self) -> None:
        await self._append(self._chance.randint(2, APPENDED_TOGETHER_MAX))

    async def append_conditionally(self) -> None:
        """Append at the known end of the log; sometimes at a taken position."""
        if self._chance.random() < 0.7:
            await self.tail()
        await self._append(
            self._chance.randint(1, 2), at=max(0, self._tail - (self._chance.random() < 0.2))
        )

    async def tail(self) -> None:
        invoked = time.monotonic()
        try:
            self._tail = await self._log.tail(timeout_s=self._timeout_s)
        except (
            Exception
        ) as problem:  # the loop must go on; a fault of the client library is a finding too
            self._failed("tail", invoked, problem)
        else:
            self._note("tail", invoked, self._tail)

    async def read(self) -> None:
        """Read at a random place, also a little beyond the end and below the beginning."""
        await self.read_at(
            self._chance.randint(max(0, self._first - 5), max(self._first, self._tail) + 3),
            self._chance.randint(1, READ_MAX),
        )

    async def read_at(self, first: int, count: int) -> int:
        """Read and record; return the next position, or ``first`` without entries."""
        invoked = time.monotonic()
        reads: Reads = "craq" if self._chance.random() < 0.7 else "cr"
        entries: Sequence[bytes] = ()
        trimmed = None
        try:
            if count == 1:
                entries = [await self._log.read(first, reads=reads, timeout_s=self._timeout_s)]
            else:
                entries = [
                    entry
                    for _, entry in await self._log.read_range(
                        first, first + count, reads=reads, timeout_s=self._timeout_s
                    )
                ]
        except NotWritten:
            pass
        except Trimmed as error:
            trimmed = self._first = error.upto
        except Exception as problem:
            self._failed("read", invoked, problem, first)
            return first
        self._note("read", invoked, first, entries, trimmed=trimmed)
        self._tail = max(self._tail, first + len(entries))
        return first + len(entries)

    async def read_all(self) -> None:
        """Read once from the beginning to the end."""
        await self.tail()
        position = 0
        while position < self._tail:
            after = await self.read_at(position, READ_MAX)
            if after == position and self._first <= position:
                return  # the history shows the missing entries
            position = max(after, self._first)

    async def trim(self) -> None:
        """Trim old entries; rarely all committed entries."""
        if self._chance.random() > TRIM_SHARE:
            return await self.tail()
        upto, invoked = (
            max(0, self._tail - (KEPT_ENTRIES if self._chance.random() < 0.9 else 0)),
            time.monotonic(),
        )
        try:
            await self._log.trim(upto, timeout_s=self._timeout_s)
        except Exception as problem:
            self._failed("trim", invoked, problem, upto)
        else:
            self._note("trim", invoked, upto)
        return None

    async def follow(self, over: asyncio.Event) -> None:
        """Follow for a while from a random place, again and again, each time under a new name."""
        while not over.is_set():
            self._life += 1
            name, last_s = f"{self._name}/{self._life}", time.monotonic()
            begin = self._first if self._chance.random() < 0.3 else self._tail
            until_s = last_s + self._chance.uniform(1, 15)
            try:
                async for position, entry in self._log.follow(begin, timeout_s=self._timeout_s):
                    self._note("follow", last_s, position, [entry], name=name)
                    self._tail, last_s = max(self._tail, position + 1), time.monotonic()
                    if last_s > until_s or over.is_set():
                        break
            except Trimmed as error:
                self._first = error.upto
                self._note("follow", last_s, begin, trimmed=error.upto, name=name)
            except Exception as problem:
                self._failed("follow", last_s, problem)
            await asyncio.sleep(0.05)

    # -- recording ---------------------------------------------------------------------------------

    async def _append(self, count: int, at: int | None = None) -> None:
        entries, name, life = [self._next_entry() for _ in range(count)], self._name, self._life
        names, position, error = tuple(map(name_of, entries)), None, ""
        outcome: Outcome = "unknown"
        patience_s = (
            self._chance.uniform(*ABANDONED_AFTER_S) if self._chance.random() < ABANDONED else None
        )
        abandoned, invoked = False, time.monotonic()
        try:
            future = self._log.append_many(entries, at=at, timeout_s=self._timeout_s)
            async with asyncio.timeout(patience_s):
                position = await future
            outcome = "ok"
            self._tail = max(self._tail, position + count)
        except TimeoutError:
            abandoned = True
        except PositionTaken as taken:
            outcome, self._tail = "failed", taken.tail
        except AppendUncertain as problem:
            error = str(problem) if time.monotonic() - invoked > PATIENT * self._timeout_s else ""
        except Exception as problem:
            error = self._worded("append", problem)
        ended = time.monotonic()
        if outcome == "unknown" and self._life == life:
            self._life += 1
        responded = None if outcome == "unknown" else ended
        event = LogEvent(
            f"{name}/{life}",
            "append",
            TORTURED_LOG,
            position,
            invoked,
            responded,
            names,
            outcome,
            at,
        )
        self._record(LogRecorded(event, ended, error, abandoned))

    def _note(
        self,
        operation: LogOperation,
        invoked: float,
        position: int,
        entries: Sequence[bytes] = (),
        *,
        name: str = "",
        trimmed: int | None = None,
    ) -> None:
        ended = time.monotonic()
        event = LogEvent(
            name or self._name,
            operation,
            TORTURED_LOG,
            position,
            invoked,
            ended,
            tuple(map(name_of, entries)),
            trimmed=trimmed,
        )
        self._record(LogRecorded(event, ended))

    def _failed(
        self,
        operation: LogOperation,
        invoked: float,
        problem: Exception,
        position: int | None = None,
    ) -> None:
        event = LogEvent(
            self._name, operation, TORTURED_LOG, position, invoked, None, outcome="unknown"
        )
        self._record(LogRecorded(event, time.monotonic(), self._worded(operation, problem)))

    def _worded(self, operation: str, problem: Exception) -> str:
        error = f"{type(problem).__name__}: {problem}"
        if not isinstance(problem, AresError):
            self.faults.append(f"{self._name} {operation}: {error}")
        return error

    def _next_entry(self) -> bytes:
        self._written += 1
        sizes, weights = zip(*ENTRY_SIZES_BYTES, strict=True)
        return value_of(f"{self._name}-{self._written}", self._chance.choices(sizes, weights)[0])


LOG_CLIENT_KINDS: dict[str, tuple[tuple[str, ...], float]] = {
    "appender": (("append_one", "append_many_at_once"), 0.3),
    "batcher": (("append_batch", "tail"), 1.0),
    "conditional": (("append_conditionally",), 1.0),
    "mixed": (("append_one", "read", "tail", "append_batch"), 1.0),
    "reader": (("read",), 1.5),
    "trimmer": (("trim", "read"), 0.5),
    "follower": ((), 0.0),
}
"""Kinds of work, each with a share of the rate; a client takes them at random."""


async def run_log_clients(plan: TrafficPlan) -> None:
    """Work until SIGTERM, and let the operations under way end."""
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    settings, shares = (
        Settings.load(plan.cluster),
        sum(share for _, share in LOG_CLIENT_KINDS.values()),
    )
    with RecordLog(plan.out) as records:
        reporter = asyncio.create_task(keep_reporting(records))
        stores = [await connect(settings) for _ in LOG_CLIENT_KINDS]
        clients: list[LogWorker] = []
        async with asyncio.TaskGroup() as group:
            for (role, (what, share)), store in zip(LOG_CLIENT_KINDS.items(), stores, strict=True):
                log = await store.log(TORTURED_LOG, timeout_s=plan.timeout_s)
                name = f"{plan.host}.{role}"
                client = LogWorker(
                    name, log, Random(f"{plan.seed} {name}"), records.add, plan.timeout_s
                )
                clients.append(client)
                if what:
                    group.create_task(
                        _work(
                            client,
                            what,
                            shares / share / plan.operations_per_s,
                            Random(f"{plan.seed} {role}"),
                            over,
                        )
                    )
                else:
                    group.create_task(_until(client.follow(over), over))
        reporter.cancel()
        for store in stores:
            await store.close()
    if faults := [fault for client in clients for fault in client.faults]:
        raise SystemExit("\n".join(faults[:10]))


async def _work(
    client: LogWorker, what: Sequence[str], interval_s: float, chance: Random, over: asyncio.Event
) -> None:
    while not over.is_set():
        begin = time.monotonic()
        await getattr(client, chance.choice(what))()
        await asyncio.sleep(
            max(0.0, chance.uniform(0, 2 * interval_s) - (time.monotonic() - begin))
        )


async def _until(following: Awaitable[None], over: asyncio.Event) -> None:
    """Follow until ``over``: a follower waits for ever for the next entry."""
    task, ended = asyncio.ensure_future(following), asyncio.ensure_future(over.wait())
    await asyncio.wait([task, ended], return_when=asyncio.FIRST_COMPLETED)
    task.cancel()
    ended.cancel()
    await asyncio.gather(task, return_exceptions=True)


def first_chain(settings: Settings) -> list[ServerId]:
    """Return the servers of the log's first chain: servers outside the initial configuration."""
    return [server for server in settings.servers if server not in settings.initial.server_ids][
        :FIRST_SERVERS
    ]


async def make_log(plan: TrafficPlan) -> None:
    """Make the log of a run."""
    settings = Settings.load(plan.cluster)
    async with connect(settings) as store:
        await store.log(
            TORTURED_LOG, Configuration.chain(first_chain(settings)), timeout_s=plan.timeout_s
        )


async def run_final_log_reader(plan: TrafficPlan) -> None:
    """Read the whole log, with a fresh client."""
    with RecordLog(plan.out) as records:
        async with connect(Settings.load(plan.cluster)) as store:
            client = LogWorker(
                "final",
                await store.log(TORTURED_LOG, timeout_s=plan.timeout_s),
                Random(plan.seed),
                records.add,
                plan.timeout_s,
            )
            await client.read_all()
