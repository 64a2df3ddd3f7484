"""A process of load, with many clients of a single store, and the record of their operations.

``load`` starts the process. It reads a :class:`GeneratorPlan`, connects, says READY, reads the
:class:`WorkWindow` of its work, works, and prints an :class:`GeneratorOutcome`; the next plan
follows until standard input ends. All are JSON, a line each.
"""

import gc
import math
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec
from msgspec import Struct

from ares.platform.loop import run
from experiments.bench.closed_loop import (
    Arrivals,
    Asked,
    ClientLoop,
    ClosedLoop,
    LoopWork,
    OpenLoop,
    Record,
)
from experiments.bench.patterns import pattern_maker
from experiments.bench.store_clients import (
    AresStore,
    EtcdStore,
    RedisStore,
    Store,
    StoreClients,
    ares_clients,
)
from experiments.bench.values import PRELOADER, BegunWrites, Values
from experiments.bench.worker_process import WORKER_IS_READY, answer, received, send_line
from experiments.bench.workload import Workload
from experiments.histogram import bucket

SLOT_S = 0.001
"""Slots of the machine's monotonic clock in which completions are counted."""


async def connected(store: Store, count: int) -> StoreClients:
    """Return ``count`` clients of ``store``. Libraries of a store are imported only here."""
    if isinstance(store, AresStore):
        return await ares_clients(store)
    if isinstance(store, RedisStore):
        from experiments.bench.redis_client import redis_clients

        return await redis_clients(store, count)
    if isinstance(store, EtcdStore):
        from experiments.bench.etcd_client import etcd_clients

        return await etcd_clients(store)
    from experiments.bench.cassandra_client import cassandra_clients

    return await cassandra_clients(store)


TimedOperation = tuple[float, float, bool]
"""The due time and the end of an operation, by the machine's monotonic clock; whether a read."""


class GeneratorPlan(Struct, frozen=True):
    """The work of this process: clients ``first`` to ``first + count - 1`` of ``workload``.

    With ``preload``, the process writes the first keys once instead. ``operations`` limits the
    number for each client. ``per_s`` operations a second are due, by a Poisson process (an open
    loop). ``timed``: the outcome has each operation.
    """

    store: Store
    workload: Workload
    first: int = PRELOADER
    count: int = 1
    preload: bool = False
    operations: int | None = None
    per_s: float | None = None
    timed: bool = False


class WorkWindow(Struct, frozen=True):
    """The time of work, from now until ``end_s``; operations that end from ``begin_s`` on count."""

    begin_s: float
    end_s: float


class GeneratorOutcome(Struct):
    """The results of a process.

    ``reads`` and ``writes`` are latencies from the due times, as counts by bucket; ``slots`` are
    completed operations by slot. In an open loop, ``waits`` are from due times to begins,
    ``services`` from begins to ends, and ``missed`` counts operations without a free client.
    ``complete`` says that every client did all its operations. ``operations``, of a timed plan:
    due time, end and whether a read, of all operations.
    """

    reads: dict[int, int] = {}
    writes: dict[int, int] = {}
    waits: dict[int, int] = {}
    services: dict[int, int] = {}
    missed: int = 0
    complete: bool = False
    slots: dict[int, int] = {}
    begun: BegunWrites = msgspec.field(default_factory=BegunWrites)
    troubles: dict[str, int] = {}
    wrong: dict[str, int] = {}
    operations: list[TimedOperation] = []


class Preload:
    """The loop of a preload: an operation for each key, shared by many clients."""

    def __init__(
        self, numbers: Iterator[int], workload: Workload, values: Values, record: Record
    ) -> None:
        self._numbers, self._workload = numbers, workload
        self._values, self._record = values, record

    def ask(self) -> Asked | None:
        """Return a key without a value."""
        number = next(self._numbers, None)
        if number is None:
            return None
        return self._workload.key(number), self._values.make(PRELOADER, number, number)

    def answered(self, value: bytes | None = None) -> None:
        """Measure no latencies."""

    def failed(self, why: str) -> None:
        """Record a missing key now; later it would be a wrong read."""
        self._record.troubles[why] += 1


async def work(plan: GeneratorPlan) -> GeneratorOutcome:
    """Connect, wait for the window, and work through it."""
    clients = await connected(plan.store, plan.count)
    try:
        keys = () if plan.preload else _keys(plan.workload.value_bytes, plan.workload.keys)
        send_line(WORKER_IS_READY)
        window = received(WorkWindow)
        assert window is not None, "the starting process ended"
        return await _through(clients, plan, keys, window)
    finally:
        await clients.close()


@lru_cache(1)
def _keys(value_bytes: int, count: int) -> Sequence[str]:
    """Return all keys, cached, because consecutive plans have mostly the same keys.

    A million keys take longer than some windows last.
    """
    workload = Workload(1, value_bytes, count)
    keys = [workload.key(number) for number in range(count)]
    gc.collect()
    gc.freeze()
    return keys


async def _through(
    clients: StoreClients, plan: GeneratorPlan, keys: Sequence[str], window: WorkWindow
) -> GeneratorOutcome:
    workload, record, values = plan.workload, Record(), Values(plan.workload.value_bytes)
    first_written, writers = workload.first_written, range(plan.first, plan.first + plan.count)
    loops: Sequence[ClientLoop]
    arrivals: Arrivals | None = None
    if plan.preload:
        numbers = iter(range(first_written))
        loops = [Preload(numbers, workload, values, record) for _ in writers]
        record.begun.writes[PRELOADER] = first_written
    else:
        make = pattern_maker(workload.pattern, workload.read_share)
        pattern = make(random.Random(plan.first), first_written, workload.keys)
        most = math.inf if plan.operations is None else plan.operations
        times = (window.end_s, window.begin_s)
        extent = (most, first_written, workload.clients)
        common = LoopWork(pattern, keys, values, record, *times, *extent)
        if plan.per_s is not None:
            arrivals = Arrivals(plan.per_s, time.perf_counter(), window.end_s, plan.first)
            loops = [OpenLoop(arrivals, writer, common) for writer in writers]
        else:
            loops = [ClosedLoop(writer, common) for writer in writers]
    await clients.run(loops)
    outcome = _outcome(record, window, is_open=arrivals is not None)
    if plan.timed:
        outcome.operations = [(due, ended, read) for due, _, ended, read in record.operations]
    outcome.complete = all(isinstance(loop, ClosedLoop) and loop.has_done_all for loop in loops)
    if arrivals is not None:
        missed = sum(loop.missed for loop in loops if isinstance(loop, OpenLoop))
        outcome.missed = arrivals.left() + missed
    return outcome


def _outcome(record: Record, window: WorkWindow, *, is_open: bool) -> GeneratorOutcome:
    reads, writes, waits, services, slots = (Counter[int]() for _ in range(5))
    for due_s, began_s, ended_s, reading in record.operations:
        if window.begin_s <= ended_s <= window.end_s:
            slots[int(ended_s / SLOT_S)] += 1
            (reads if reading else writes)[bucket(ended_s - due_s)] += 1
            if is_open:
                waits[bucket(began_s - due_s)] += 1
                services[bucket(ended_s - began_s)] += 1
    kept = {"begun": record.begun, "troubles": record.troubles, "wrong": record.wrong}
    return GeneratorOutcome(reads, writes, waits, services, slots=slots, **kept)


def main() -> None:
    assert time.get_clock_info("perf_counter").implementation == "clock_gettime(CLOCK_MONOTONIC)", (
        "processes share no clock here"
    )
    while (plan := received(GeneratorPlan)) is not None:
        answer(run(work(plan)))


if __name__ == "__main__":
    main()
