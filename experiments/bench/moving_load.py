"""The clients of a moving domain: a process that writes every object once, and reads and writes.

``moving_runs`` starts the process. The process reads a :class:`MovingPlan`, creates and fills the
domain, says READY, and begins at the next line; at the line after, the process stops and prints an
:class:`MovingOutcome`. All are JSON, a line each. Operations are watched as they run: their number
of rounds and of configurations.
"""

import asyncio
import gc
import math
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, structs

from ares.client.connect import connect
from ares.client.store import ObjectStore, checked_key
from ares.engine.effects import Effect, Gather, Operation, Together
from ares.model.configuration import Configuration
from ares.model.errors import AresError
from ares.platform.loop import run
from ares.registers.operations import read, write
from experiments.bench.closed_loop import Asked, ClosedLoop, LoopWork, Record
from experiments.bench.generator import Preload
from experiments.bench.patterns import Even
from experiments.bench.store_clients import Coroutines
from experiments.bench.values import PRELOADER, BegunWrites, Values
from experiments.bench.worker_process import WORKER_IS_READY, answer, received, send_line
from experiments.bench.workload import Workload

FILLING_CLIENTS, FILLING_BYTES = 100, 4 * 2**20
"""Largest number of clients that fill the domain, and of bytes under way together."""


class DomainShape(Struct, frozen=True):
    """A configuration by the names of its servers; ``k`` selects erasure coding."""

    servers: tuple[str, ...]
    k: int | None = None

    def configuration(self) -> Configuration:
        return (
            Configuration.abd(self.servers)
            if self.k is None
            else Configuration.ec(self.servers, self.k)
        )


class MovingPlan(Struct, frozen=True):
    """A ``workload`` in the domain ``domain`` of the cluster ``file``, which begins as ``source``.

    ``per_s`` operations a second begin at even steps, over all clients; with `None`, each begins
    after the last answer.
    """

    file: str
    domain: str
    source: DomainShape
    workload: Workload
    per_s: float | None = None


class WatchedOperation(Struct, frozen=True, array_like=True, gc=False):
    """An operation: times by the monotonic clock, ``rounds`` and ``configurations`` visited."""

    began_s: float
    ended_s: float
    reading: bool
    rounds: int
    configurations: int


class MovingOutcome(Struct, frozen=True):
    """The results of the clients, with ``operations`` in the order of their ends."""

    operations: list[WatchedOperation]
    troubles: dict[str, int]
    wrong: dict[str, int]


class Trace:
    """The rounds and configurations (by index) of an operation.

    Parallel rounds count as the longest sequence of them.
    """

    def __init__(self) -> None:
        self.rounds = 0
        self.configurations: set[int] = set()

    def add(self, beside: list["Trace"]) -> None:
        self.rounds += max((trace.rounds for trace in beside), default=0)
        self.configurations.update(*(trace.configurations for trace in beside))


def watched(operation: Operation[Any], trace: Trace) -> Operation[Any]:
    """Run the operation, and write its rounds into ``trace``."""
    step, given = operation.send, None
    while True:
        try:
            effect: Effect = step(given)
        except StopIteration as stop:
            return stop.value
        beside: list[Trace] = []
        if isinstance(effect, Gather):
            trace.rounds += 1
            trace.configurations.add(effect.configuration.index)
        elif isinstance(effect, Together):
            effect = structs.replace(effect, operations=_each_watched(effect.operations, beside))
        try:
            step, given = operation.send, (yield effect)
            trace.add(beside)
        except GeneratorExit:
            operation.close()
            raise
        except Exception as error:
            step, given = operation.throw, error


def _each_watched(
    operations: Iterator[Operation[None]], traces: list[Trace]
) -> Iterator[Operation[None]]:
    for operation in operations:
        traces.append(Trace())
        yield watched(operation, traces[-1])


class WatchedStore:
    """Reads and writes of a domain; ``traces`` has the successful ones, in the order of their ends.

    Writes of the same key run sequentially, as in the library.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.traces: list[Trace] = []

    async def read(self, key: str) -> bytes | None:
        name, trace = checked_key(key), Trace()
        found = await self._store.run(lambda view: watched(read(view, name), trace), "read")
        self.traces.append(trace)
        return found.value if isinstance(found.value, bytes) else None

    async def write(self, key: str, value: bytes) -> None:
        name, trace = checked_key(key), Trace()
        async with self._turns[key]:
            await self._store.run(lambda view: watched(write(view, name, value), trace), "write")
        self.traces.append(trace)


class PacedLoop(ClosedLoop):
    """A client until ``stop`` is set, with an operation every ``period_s`` if given.

    If the client is busy at a due time, a caller would wait: such an operation counts from its due
    time.
    """

    def __init__(
        self, writer: int, work: LoopWork, stop: asyncio.Event, first_s: float, period_s: float
    ) -> None:
        super().__init__(writer, work)
        self._stop, self._next_s, self._period_s = stop, first_s, period_s
        self._waited = True

    def ask(self) -> Asked | float | None:  # type: ignore[override]
        if self._stop.is_set():
            return None
        if not self._period_s:
            return super().ask()
        now_s = time.perf_counter()
        if now_s < self._next_s:
            self._waited = True
            return self._next_s - now_s
        self._due_s = now_s if self._waited else self._next_s
        self._began_s, self._waited = now_s, False
        self._next_s += self._period_s
        return self._chosen()


async def work(plan: MovingPlan) -> MovingOutcome:
    """Fill the domain, then go through the workload between two lines of standard input."""
    workload, record = plan.workload, Record()
    values = Values(workload.value_bytes)
    async with connect(plan.file) as manager:
        domain, _ = await manager.create_domain(plan.domain, plan.source.configuration())
        store = WatchedStore(domain)
        await _fill(store, workload, values, record)
        send_line(WORKER_IS_READY)
        await asyncio.to_thread(sys.stdin.buffer.readline)
        pattern = Even(workload.read_share, random.Random(1), workload.keys)
        keys = [workload.key(number) for number in range(workload.keys)]
        common = LoopWork(pattern, keys, values, record, end_s=math.inf)
        step_s = 1 / plan.per_s if plan.per_s else 0.0
        stop, start_s = asyncio.Event(), time.perf_counter()
        loops = [
            PacedLoop(writer, common, stop, start_s + writer * step_s, workload.clients * step_s)
            for writer in range(PRELOADER + 1, PRELOADER + 1 + workload.clients)
        ]
        gc.collect()
        gc.freeze()
        store.traces.clear()
        working = asyncio.create_task(_clients(store).run(loops))
        await asyncio.to_thread(sys.stdin.buffer.readline)
        stop.set()
        await working
    operations = [
        WatchedOperation(due_s, ended_s, reading, trace.rounds, len(trace.configurations))
        for (due_s, _, ended_s, reading), trace in zip(record.operations, store.traces, strict=True)
    ]
    return MovingOutcome(operations, record.troubles, _wrong(record, record.begun))


def _clients(store: WatchedStore) -> Coroutines:
    async def close() -> None:
        """Leave the connection open; its opener closes it."""

    return Coroutines(store, (AresError,), close)


async def _fill(store: WatchedStore, workload: Workload, values: Values, record: Record) -> None:
    """Write each object once. Raises :class:`SystemExit` on failure.

    Without the objects no measurement is possible.
    """
    numbers = iter(range(workload.keys))
    record.begun.writes[PRELOADER] = workload.keys
    at_once = max(2, min(FILLING_CLIENTS, FILLING_BYTES // workload.value_bytes))
    await _clients(store).run([Preload(numbers, workload, values, record) for _ in range(at_once)])
    if record.troubles:
        raise SystemExit(f"the domain could not be filled: {dict(record.troubles)}")


def _wrong(record: Record, begun: BegunWrites) -> dict[str, int]:
    made_up = {
        f"a read returned write {number} of writer {writer}, which it never began": 1
        for writer, number in begun.unwritten().items()
    }
    return {**record.wrong, **made_up}


if __name__ == "__main__":
    plan = received(MovingPlan)
    assert plan is not None
    answer(run(work(plan)))
