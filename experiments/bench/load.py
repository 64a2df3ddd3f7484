"""Several generators at once: processes that run the clients of a workload and begin together.

The module collects their results.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from experiments.bench.generator import (
    SLOT_S,
    GeneratorOutcome,
    GeneratorPlan,
    TimedOperation,
    WorkWindow,
)
from experiments.bench.store_clients import Store
from experiments.bench.store_processes import busy_s, cpu_of, peak_bytes
from experiments.bench.values import PRELOADER, BegunWrites
from experiments.bench.worker_process import GeneratorFailed, WorkerProcess, workers
from experiments.bench.workload import Workload
from experiments.histogram import within_s

PRELOAD_CLIENTS, PRELOAD_CLIENTS_LARGE = 100, 4
PAUSES_KEPT = 200
CURVE_S = 0.1
_HEAD_START_S = 0.05


class MeasuredWorkload(Struct):
    """A measured workload. Rates and CPU are of the window, CPU in processors.

    1.0 is a single processor all the time. ``others_cpu`` is the machine's other work. ``slots``
    are completions by SLOT_S. ``operations`` are all operations of a timed run, also outside of the
    window.
    """

    per_s: float
    reads: dict[int, int]
    writes: dict[int, int]
    waits: dict[int, int]
    services: dict[int, int]
    missed: int
    generator_cpu: list[float]
    server_cpu: dict[str, float]
    others_cpu: float
    begin_s: float
    end_s: float
    slots: dict[int, int]
    troubles: dict[str, int]
    wrong: dict[str, int]
    operations: list[TimedOperation] = []

    def latency_ms(self, share: float, reads: bool = True, writes: bool = True) -> float:
        """Return the latency that ``share`` of the operations stayed within; to about 1 %.

        NaN without operations.
        """
        counts = Counter(self.reads if reads else {}) + Counter(self.writes if writes else {})
        return within_s(counts, share) * 1000

    def rate(self, begin_s: float, end_s: float) -> float:
        """Return operations a second in a part of the window."""
        done = (count for slot, count in self.slots.items() if begin_s <= slot * SLOT_S < end_s)
        return sum(done) / (end_s - begin_s)

    def pauses(self) -> list[tuple[float, float]]:
        """Return the longest times without completed operations, at most PAUSES_KEPT.

        Each is (seconds from the begin of the window, length), in order of time.
        """
        times = (slot * SLOT_S for slot in sorted(self.slots))
        done = [self.begin_s, *(at for at in times if self.begin_s <= at < self.end_s), self.end_s]
        found = [(later - earlier, earlier - self.begin_s) for earlier, later in pairwise(done)]
        return sorted((at_s, long_s) for long_s, at_s in sorted(found, reverse=True)[:PAUSES_KEPT])

    def curve(self) -> list[float]:
        """Return operations a second, for every CURVE_S of the window."""
        steps = int((self.end_s - self.begin_s) / CURVE_S + 1e-6)
        return [
            self.rate(self.begin_s + step * CURVE_S, self.begin_s + (step + 1) * CURVE_S)
            for step in range(steps)
        ]


class LoadExtent(NamedTuple):
    """The length of a run, and its rate."""

    warm_s: float
    seconds: float
    operations: int | None = None
    """Number of operations in all after which the window ends earlier."""

    per_s: float | None = None
    """Number of operations due in a second (an open loop)."""

    timed: bool = False
    """The result has each operation."""


class Generators:
    """The generator processes, for consecutive runs.

    Writers are numbered through all runs, so that a value names its run.
    """

    def __init__(self, processes: Sequence[WorkerProcess]) -> None:
        self._processes = processes
        self._next_writer = PRELOADER + 1
        self._begun = BegunWrites()
        self._preloaded: set[tuple[int, int]] = set()

    def preload_once(self, store: Store, workload: Workload) -> None:
        """Write the initial values, unless done before. Raises :class:`GeneratorFailed`."""
        kind = (workload.value_bytes, workload.first_written)
        if kind in self._preloaded or not workload.first_written:
            return
        self._preloaded.add(kind)
        count = PRELOAD_CLIENTS_LARGE if workload.large else PRELOAD_CLIENTS
        [process] = self._ready([GeneratorPlan(store, workload, count=count, preload=True)])
        process.send(WorkWindow(0.0, 0.0))
        if troubles := self._outcome(process).troubles:
            raise GeneratorFailed(
                f"keys of {workload.name} could not be written beforehand: {troubles}"
            )

    def assume_preloaded(self, workload: Workload) -> None:
        """Note that another process of this or another host has written the initial values."""
        self._preloaded.add((workload.value_bytes, workload.first_written))
        self._begun.add(BegunWrites({PRELOADER: workload.first_written}))

    def run(
        self,
        store: Store,
        workload: Workload,
        extent: LoadExtent,
        servers: Mapping[str, int],
        shares: Sequence[float] | None = None,
        at_begin: Callable[[], object] = lambda: None,
    ) -> MeasuredWorkload:
        """Run the workload, divided over the processes.

        ``shares`` are the shares of reads of each process, instead of the workload's share.
        ``at_begin`` is called when the window begins.
        """
        used = self._ready(list(self._plans(store, workload, extent, shares)))
        begin_s = time.perf_counter() + _HEAD_START_S + extent.warm_s
        window = WorkWindow(begin_s, begin_s + extent.seconds)
        for process in used:
            process.send(window)
        generators = {f"generator {number}": process.pid for number, process in enumerate(used)}
        pids = {**servers, **generators}
        time.sleep(max(0.0, begin_s - time.perf_counter()))
        at_begin()
        before, busy_before_s = cpu_of(pids.values()), busy_s()
        outcomes = [self._outcome(process) for process in used] if extent.operations else []
        time.sleep(0.0 if outcomes else max(0.0, window.end_s - time.perf_counter()))
        after, busy_after_s = cpu_of(pids.values()), busy_s()
        outcomes = outcomes or [self._outcome(process) for process in used]
        window = _ended(window, outcomes)
        seconds = window.end_s - window.begin_s
        cpu = {name: (after[pid] - before[pid]) / seconds for name, pid in pids.items()}
        others_cpu = (busy_after_s - busy_before_s) / seconds - sum(cpu.values())
        return MeasuredWorkload(
            missed=sum(outcome.missed for outcome in outcomes),
            generator_cpu=[cpu[name] for name in generators],
            server_cpu={name: cpu[name] for name in servers},
            others_cpu=max(0.0, others_cpu),
            begin_s=window.begin_s,
            end_s=window.end_s,
            operations=[each for outcome in outcomes for each in outcome.operations],
            **self._counted(outcomes, seconds),
        )

    def _plans(
        self, store: Store, workload: Workload, extent: LoadExtent, shares: Sequence[float] | None
    ) -> Iterator[GeneratorPlan]:
        clients, processes = workload.clients, min(len(self._processes), workload.clients)
        most = extent.operations and max(1, round(extent.operations / clients))
        for number in range(processes):
            mine, count = workload, clients // processes + (number < clients % processes)
            if shares is not None:
                mine = msgspec.structs.replace(workload, read_share=shares[number])
            rate = None if extent.per_s is None else extent.per_s * count / clients
            first, timed = self._next_writer, extent.timed
            yield GeneratorPlan(store, mine, first, count, operations=most, per_s=rate, timed=timed)
            self._next_writer += count

    def peak_mib(self) -> float:
        """Return the largest resident set of any of the processes."""
        return max(peak_bytes(process.pid) for process in self._processes) / 2**20

    def _ready(self, plans: Sequence[GeneratorPlan]) -> Sequence[WorkerProcess]:
        """Send the plans to as many processes, and return these once all are ready."""
        used = self._processes[: len(plans)]
        for process, plan in zip(used, plans, strict=True):
            process.send(plan)
        for process in used:
            process.await_ready()
        return used

    def _outcome(self, process: WorkerProcess) -> GeneratorOutcome:
        outcome = process.receive(GeneratorOutcome)
        self._begun.add(outcome.begun)
        return outcome

    def _counted(self, outcomes: Sequence[GeneratorOutcome], seconds: float) -> dict[str, Any]:
        """Return the sums of all processes, by field of :class:`MeasuredWorkload`."""
        names = ("reads", "writes", "waits", "services", "slots", "troubles", "wrong")
        counts = {name: Counter[Any]() for name in names}
        for outcome in outcomes:
            for name in names:
                counts[name].update(getattr(outcome, name))
        for writer, number in self._begun.unwritten().items():
            begun = self._begun.writes.get(writer, 0)
            why = f"a read returned write {number} of writer {writer}, which began {begun}"
            counts["wrong"][why] += 1
        return counts | {"per_s": (counts["reads"] + counts["writes"]).total() / seconds}


def _ended(window: WorkWindow, outcomes: Sequence[GeneratorOutcome]) -> WorkWindow:
    """Return the window, cut after the last operation if all clients were done before the end."""
    last = max((slot for outcome in outcomes for slot in outcome.slots), default=None)
    if last is None or not all(outcome.complete for outcome in outcomes):
        return window
    return WorkWindow(window.begin_s, min(window.end_s, (last + 1) * SLOT_S))


@contextlib.contextmanager
def generators(count: int) -> Iterator[Generators]:
    """Run `count` generators, stopped at the end."""
    with workers(*["experiments.bench.generator"] * count) as processes:
        yield Generators(processes)
