"""Several generators at once: processes that run the clients of a workload and begin together.

The module collects their results.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
from msgspec import Struct

from experiments.bench.generator import (
    SLOT_S,
    GeneratorOutcome,
    GeneratorPlan,
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
    are completions by SLOT_S.
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

    def latency_ms(self, share: float, reads: bool = True, writes: bool = True) -> float:
        """Return the latency that ``share`` of the operations stayed within; to about 1 %.

        NaN without operations.
        """
        return (
            within_s(
                Counter(self.reads if reads else {}) + Counter(self.writes if writes else {}), share
            )
            * 1000
        )

    def rate(self, begin_s: float, end_s: float) -> float:
        """Return operations a second in a part of the window."""
        return sum(
            count for slot, count in self.slots.items() if begin_s <= slot * SLOT_S < end_s
        ) / (end_s - begin_s)

    def pauses(self) -> list[tuple[float, float]]:
        """Return the longest times without completed operations, at most PAUSES_KEPT.

        Each is (seconds from the begin of the window, length), in order of time.
        """
        done = [
            self.begin_s,
            *(
                slot * SLOT_S
                for slot in sorted(self.slots)
                if self.begin_s <= slot * SLOT_S < self.end_s
            ),
            self.end_s,
        ]
        found = sorted(
            ((later - earlier, earlier - self.begin_s) for earlier, later in pairwise(done)),
            reverse=True,
        )[:PAUSES_KEPT]
        return sorted((at_s, length_s) for length_s, at_s in found)

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
        if (
            workload.value_bytes,
            workload.first_written,
        ) in self._preloaded or not workload.first_written:
            return
        self._preloaded.add((workload.value_bytes, workload.first_written))
        self._send_plans(
            [
                GeneratorPlan(
                    store,
                    workload,
                    count=PRELOAD_CLIENTS_LARGE if workload.large else PRELOAD_CLIENTS,
                    preload=True,
                )
            ]
        )
        self._send(1, WorkWindow(0.0, 0.0))
        outcome = self._outcome(self._processes[0])
        if outcome.troubles:
            raise GeneratorFailed(
                f"keys of {workload.name} could not be written beforehand: {outcome.troubles}"
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
        during: Callable[[float], contextlib.AbstractContextManager[None]] | None = None,
        shares: Sequence[float] | None = None,
    ) -> MeasuredWorkload:
        """Run the workload, divided over the processes. ``during(begin_s)`` surrounds the window.

        ``shares`` are the shares of reads of each process, instead of the workload's share.
        """
        operations, per_s = extent.operations, extent.per_s
        used = self._processes[: workload.clients]
        plans = []
        for number in range(len(used)):
            count = workload.clients // len(used) + (number < workload.clients % len(used))
            mine = (
                workload
                if shares is None
                else msgspec.structs.replace(workload, read_share=shares[number])
            )
            most = None if operations is None else max(1, round(operations / workload.clients))
            rate = None if per_s is None else per_s * count / workload.clients
            plans.append(
                GeneratorPlan(store, mine, self._next_writer, count, operations=most, per_s=rate)
            )
            self._next_writer += count
        self._send_plans(plans)
        begin_s = time.perf_counter() + _HEAD_START_S + extent.warm_s
        window = WorkWindow(begin_s, begin_s + extent.seconds)
        self._send(len(used), window)
        pids = {
            **servers,
            **{f"generator {number}": process.pid for number, process in enumerate(used)},
        }
        time.sleep(max(0.0, begin_s - time.perf_counter()))
        before, busy_before_s = cpu_of(pids.values()), busy_s()
        with during(begin_s) if during is not None else contextlib.nullcontext():
            outcomes = (
                [self._outcome(process) for process in used] if operations is not None else []
            )
            time.sleep(0.0 if outcomes else max(0.0, window.end_s - time.perf_counter()))
        after, others_s = (
            cpu_of(pids.values()),
            busy_s() - busy_before_s - sum(cpu_of(pids.values()).values()) + sum(before.values()),
        )
        outcomes = outcomes or [self._outcome(process) for process in used]
        window = _ended(window, outcomes)
        seconds = window.end_s - window.begin_s
        cpu = {name: (after[pid] - before[pid]) / seconds for name, pid in pids.items()}
        return self._measured(outcomes, window, cpu, max(0.0, others_s) / seconds)

    def peak_mib(self) -> float:
        """Return the largest resident set of any of the processes."""
        return max(peak_bytes(process.pid) for process in self._processes) / 2**20

    def _send_plans(self, plans: Sequence[GeneratorPlan]) -> None:
        for process, plan in zip(self._processes, plans, strict=False):
            process.send(plan)
        for process in self._processes[: len(plans)]:
            process.await_ready()

    def _send(self, count: int, window: WorkWindow) -> None:
        for process in self._processes[:count]:
            process.send(window)

    def _outcome(self, process: WorkerProcess) -> GeneratorOutcome:
        outcome = process.receive(GeneratorOutcome)
        self._begun.add(outcome.begun)
        return outcome

    def _measured(
        self,
        outcomes: Sequence[GeneratorOutcome],
        window: WorkWindow,
        cpu: Mapping[str, float],
        others_cpu: float,
    ) -> MeasuredWorkload:
        names = ("reads", "writes", "waits", "services", "slots")
        counts = {name: Counter[int]() for name in names}
        troubles, wrong = Counter[str](), Counter[str]()
        for outcome in outcomes:
            for name in names:
                counts[name].update(getattr(outcome, name))
            troubles.update(outcome.troubles)
            wrong.update(outcome.wrong)
        for writer, number in self._begun.unwritten().items():
            wrong[
                (
                    f"a read returned write {number} of writer {writer}, which began "
                    f"{self._begun.writes.get(writer, 0)}"
                )
            ] += 1
        seconds = window.end_s - window.begin_s
        generators = [share for name, share in cpu.items() if name.startswith("generator ")]
        servers = {name: share for name, share in cpu.items() if not name.startswith("generator ")}
        return MeasuredWorkload(
            per_s=(counts["reads"] + counts["writes"]).total() / seconds,
            missed=sum(outcome.missed for outcome in outcomes),
            generator_cpu=generators,
            server_cpu=servers,
            others_cpu=others_cpu,
            begin_s=window.begin_s,
            end_s=window.end_s,
            troubles=troubles,
            wrong=wrong,
            **counts,
        )


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
