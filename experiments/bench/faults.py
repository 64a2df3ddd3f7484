"""Cost of a slow or a dead process: throughput beside the undisturbed throughput, and pauses.

Both throughputs are of the same run. A pause is a time without completed operations.
"""

import contextlib
import math
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from msgspec import Struct

from ares.results.load_points import LoadPoint
from experiments.bench.load import LoadExtent, MeasuredWorkload, generators
from experiments.bench.measured_points import longest_pause_s, point_of, under_fault
from experiments.bench.peers import Peer
from experiments.bench.points import FAILURES, BenchSettings, ReportLine, warm_up
from experiments.bench.store_processes import SlowedProcess
from experiments.bench.workload import FAULTED, Workload

SHARE = 0.2
"""Share of a processor for a slowed process."""

QUIET_PART = 1 / 3
"""Share of each run before the fault."""

Fault = Literal["slowed", "killed"]
Victim = Literal["replica", "leader"]


class DisturbedRun(Struct):
    """A run with a fault.

    ``point`` has the kept throughput, and the curve; ``quiet_pause_s`` is the longest pause before
    the fault.
    """

    peer: str
    fault: Fault
    victim: Victim
    round: int
    point: LoadPoint
    quiet_pause_s: float
    wrong: list[str]

    @property
    def kept(self) -> float:
        """Return throughput under the fault : before the fault; NaN without throughput before."""
        return math.nan if self.point.kept is None else self.point.kept

    @property
    def name(self) -> str:
        """Return a name such as "a killed replica"."""
        return f"a {self.fault} {self.victim}"


def faults(
    peers: Sequence[Peer],
    settings: BenchSettings,
    report_line: ReportLine,
    failed: dict[str, str],
    workload: Workload = FAULTED,
) -> list[DisturbedRun]:
    """Measure every fault at every store, in turns.

    A store without a leader has only replicas. A store without failover keeps its leader alive.
    """
    made: list[DisturbedRun] = []
    kinds: list[tuple[Fault, Victim]] = [
        ("slowed", "replica"),
        ("slowed", "leader"),
        ("killed", "replica"),
        ("killed", "leader"),
    ]
    for number in range(settings.rounds):
        for peer in peers:
            for fault, victim in kinds:
                try:
                    disturbed = _run(peer, fault, victim, number, settings, workload)
                except FAILURES as error:
                    failed[f"{peer.name}, {fault} {victim}"] = (
                        f"{peer.name}, {fault} {victim}: {error}"
                    )
                    continue
                if disturbed is not None:
                    made.append(disturbed)
                    pause_ms = (disturbed.point.longest_pause_s or 0.0) * 1000
                    report_line(
                        f"  {peer.name:22} {disturbed.name:18} kept {disturbed.kept:.2f}, pause "
                        f"{pause_ms:,.0f} ms"
                    )
    return made


def _run(
    peer: Peer,
    fault: Fault,
    victim: Victim,
    number: int,
    settings: BenchSettings,
    workload: Workload,
) -> DisturbedRun | None:
    if fault == "killed" and victim == "leader" and not peer.fails_over:
        return None
    with (
        tempfile.TemporaryDirectory(prefix="ares-bench-") as directory,
        peer.running(Path(directory)) as running,
    ):
        name = running.replica if victim == "replica" else running.leader
        if name is None:
            return None
        pid, seconds = running.servers[name], 3 * settings.seconds
        with generators(settings.processes) as load:
            warm_up(peer, running, load)
            load.preload_once(running.store, workload)
            during: Callable[[float], contextlib.AbstractContextManager[None]] = partial(
                _disturbed, pid, fault, seconds * QUIET_PART
            )
            measured = load.run(
                running.store,
                workload,
                LoadExtent(settings.warm_s, seconds),
                running.servers,
                during,
            )
        return _judged(peer.name, fault, victim, number, measured, workload)


@contextlib.contextmanager
def _disturbed(pid: int, fault: Fault, quiet_s: float, begin_s: float) -> Iterator[None]:
    """Disturb the process from the end of the quiet part on."""
    time.sleep(max(0.0, begin_s + quiet_s - time.perf_counter()))
    if fault == "killed":
        os.kill(pid, signal.SIGKILL)
        yield
    else:
        with SlowedProcess(pid, SHARE):
            yield


def _judged(
    peer: str,
    fault: Fault,
    victim: Victim,
    number: int,
    measured: MeasuredWorkload,
    workload: Workload,
) -> DisturbedRun:
    at_s = (measured.end_s - measured.begin_s) * QUIET_PART
    point = under_fault(point_of(measured, workload, curve=True), at_s)
    quiet_pause_s = longest_pause_s(point.pauses or [], 0.0, at_s)
    return DisturbedRun(peer, fault, victim, number, point, quiet_pause_s, list(measured.wrong))
