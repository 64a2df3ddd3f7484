"""A process of clients that read, write and delete at a bounded rate, and record the answers.

Each client has a connection of its own and does one operation at a time. Sometimes a client walks
away from an operation after a moment, as a crashed client does: the write stays half done, with an
unknown outcome.
"""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from types import MappingProxyType
from typing import Self

from msgspec import Struct, structs

from ares.client.connect import connect
from ares.client.manager import Manager
from ares.cluster.settings import Settings
from ares.model.errors import AresError, ObjectNotFound, Uncertain
from ares.model.identity import ObjectName
from ares.model.tag import Tag
from ares.model.value import LOST, TOMBSTONE, WITHHELD
from ares.testing.torture.records import (
    Counts,
    LogRecorded,
    Record,
    encoder,
    name_of,
    send_to_parent,
    value_of,
)
from ares.testing.verify.history import Event, Operation, Outcome

HOT = tuple(f"hot/{number}" for number in range(6))
"""Keys that every client writes."""

MORTAL = tuple(f"mortal/{number}" for number in range(2))
"""Keys with deletes: few operations, because the check of deletes takes a search."""

COLD_EACH = 24
"""Keys that each process writes once, at the beginning; they must exist ever after."""

ABANDONED = 0.02
ABANDONED_AFTER_S = (0.0, 0.003)
VALUE_SIZES_BYTES = ((32, 70), (2_000, 20), (12_000, 8), (200_000, 2))
REPORT_S = 0.5


class TrafficPlan(Struct, frozen=True):
    """The work of a process.

    ``host``: the prefix of the clients' names; ``out``: the file of records.
    """

    cluster: str
    host: str
    seed: int
    operations_per_s: float
    timeout_s: float
    out: str


class ClientKind(Struct, frozen=True):
    """A kind of client: weights of operations, switches, and the share of the rate."""

    name: str
    weights: Mapping[Operation, int]
    switches: Mapping[str, bool] = MappingProxyType({})
    share: float = 1.0
    keys: tuple[str, ...] = HOT


CLIENT_KINDS = (
    ClientKind("writer", {"write": 1}),
    ClientKind("reader", {"read": 1}, {"fast_read": True}),
    ClientKind("slow-reader", {"read": 1}, {"fast_read": False}),
    ClientKind("plain", {"read": 1, "write": 1}, {"piggyback": False}),
    ClientKind("mixed", {"read": 1, "write": 1}),
    ClientKind("deleter", {"read": 2, "write": 2, "delete": 1}, share=0.25, keys=MORTAL),
)


class RecordLog:
    """The file of records at ``path``, with a count. Use it as a context manager."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "wb")  # noqa: SIM115 - closed by __exit__
        self._counts: Counter[str] = Counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.report()
        self._file.close()

    def add(self, record: Record | LogRecorded) -> None:
        self._counts["operations"] += 1
        self._counts["errors"] += bool(record.error)
        self._file.write(encoder.encode(record) + b"\n")

    def report(self) -> None:
        """Report the counts to the parent process."""
        self._file.flush()
        send_to_parent(Counts(**self._counts))


class RecordedClient:
    """A client; ``name`` is unique in the run.

    ``record`` is called with each operation. ``faults``: errors that no client may raise.
    """

    def __init__(
        self,
        name: str,
        store: Manager,
        chance: Random,
        record: Callable[[Record], None],
        timeout_s: float,
    ) -> None:
        self.name = name
        self._store = store
        self._chance = chance
        self._record = record
        self.faults: list[str] = []
        self._timeout_s = timeout_s
        self._written = 0

    async def work(
        self, role: ClientKind, cold: tuple[str, ...], interval_s: float, over: asyncio.Event
    ) -> None:
        """Work as the role says, an operation every ``interval_s`` on average, until ``over``."""
        kinds, weights = list(role.weights), list(role.weights.values())
        while not over.is_set():
            kind = self._chance.choices(kinds, weights)[0]
            keys = cold if kind == "read" and self._chance.random() < 0.1 else role.keys
            patience_s = (
                self._chance.uniform(*ABANDONED_AFTER_S)
                if self._chance.random() < ABANDONED
                else None
            )
            begin = time.monotonic()
            await self.operate(kind, self._chance.choice(keys), patience_s)
            spent_s = time.monotonic() - begin
            await asyncio.sleep(max(0.0, self._chance.uniform(0, 2 * interval_s) - spent_s))

    async def operate(
        self,
        kind: Operation,
        key: str,
        patience_s: float | None = None,
        size_bytes: int | None = None,
    ) -> None:
        """Perform an operation and record the outcome.

        ``patience_s``: abandon the operation after this time. ``size_bytes``: of a written value.
        """
        value = self._next_value(size_bytes) if kind == "write" else None
        outcome: Outcome = "unknown"
        tag: Tag | None = None
        error, abandoned = "", False
        invoked = time.monotonic()
        try:
            async with asyncio.timeout(patience_s):
                found, tag = await self._perform(kind, key, value)
            outcome = "ok"
            if kind == "read":
                value = found
        except TimeoutError:
            abandoned = True
        except ObjectNotFound:  # a delete that found the object absent
            kind, outcome = "read", "ok"
        except (
            Exception
        ) as problem:  # the loop must go on; a fault of the client library is a finding too
            error = f"{type(problem).__name__}: {problem}"
            if not isinstance(problem, AresError):
                self.faults.append(f"{self.name} {kind} {key!r}: {error}")
            certain = isinstance(problem, AresError) and not (
                isinstance(problem, Uncertain) and problem.may_have_taken_effect
            )
            outcome = "failed" if certain and kind != "read" else "unknown"
        ended = time.monotonic()
        name = None if value is None else name_of(value)
        pair = None if tag is None else (tag.number, int(tag.writer))
        event = Event(
            self.name,
            kind,
            key,
            name,
            invoked,
            None if outcome == "unknown" else ended,
            outcome,
            pair,
        )
        self._record(Record(event, ended, error, abandoned))

    async def _perform(
        self, kind: Operation, key: str, value: bytes | None
    ) -> tuple[bytes | None, Tag]:
        if kind == "write":
            assert value is not None
            return None, await self._store.write(key, value, timeout_s=self._timeout_s)
        if kind == "delete":
            return None, await self._store.delete(key, timeout_s=self._timeout_s)
        found = await self._store.read_named(ObjectName(key), self._timeout_s)
        assert found.value is not WITHHELD
        assert found.value is not LOST
        return (None if found.value is TOMBSTONE else found.value), found.tag

    def _next_value(self, size_bytes: int | None) -> bytes:
        self._written += 1
        sizes, weights = zip(*VALUE_SIZES_BYTES, strict=True)
        return value_of(
            f"{self.name}-{self._written}",
            self._chance.choices(sizes, weights)[0] if size_bytes is None else size_bytes,
        )


def cold_keys(host: str) -> tuple[str, ...]:
    """Return the keys that the process ``host`` writes once."""
    return tuple(f"cold/{host}/{number}" for number in range(COLD_EACH))


async def run_clients(plan: TrafficPlan) -> None:
    """Work until SIGTERM, and let the operations under way end."""
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    settings = Settings.load(plan.cluster)
    cold, shares = cold_keys(plan.host), sum(role.share for role in CLIENT_KINDS)
    with RecordLog(plan.out) as log:
        reporter = asyncio.create_task(keep_reporting(log))
        kinds = [structs.replace(settings.client, **role.switches) for role in CLIENT_KINDS]
        stores = [await connect(structs.replace(settings, client=client)) for client in kinds]
        clients = [
            RecordedClient(
                f"{plan.host}.{role.name}",
                store,
                Random(f"{plan.seed} {plan.host} {role.name}"),
                log.add,
                plan.timeout_s,
            )
            for role, store in zip(CLIENT_KINDS, stores, strict=True)
        ]
        for key in cold:
            await clients[0].operate("write", key)
        async with asyncio.TaskGroup() as group:
            for client, role in zip(clients, CLIENT_KINDS, strict=True):
                group.create_task(
                    client.work(role, cold, shares / role.share / plan.operations_per_s, over)
                )
        reporter.cancel()
        for store in stores:
            await store.close()


async def run_final_reader(plan: TrafficPlan) -> None:
    """Read every key once, with a fresh client.

    ``plan.host``: a letter for each process of clients in the run.
    """
    keys = [*HOT, *MORTAL, *(key for host in plan.host for key in cold_keys(host))]
    with RecordLog(plan.out) as log:
        async with connect(Settings.load(plan.cluster)) as store:
            client = RecordedClient("final", store, Random(plan.seed), log.add, plan.timeout_s)
            for key in keys:
                await client.operate("read", key)


async def keep_reporting(log: RecordLog) -> None:
    """Report the counts again and again, until cancelled."""
    while True:
        await asyncio.sleep(REPORT_S)
        log.report()
