"""Turns: every store is started in every round and gets the same requests.

A single store runs at a time, and the order changes from round to round.
"""

import random
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from experiments.bench.load import Generators, LoadExtent, MeasuredWorkload, generators
from experiments.bench.peers import Peer, RunningStore
from experiments.bench.store_processes import BenchError, resident_bytes
from experiments.bench.workload import FAULTED, Workload
from experiments.measuring import Repeats

ReportLine = Callable[[str], None]
FAILURES = (BenchError, subprocess.CalledProcessError)
"""Errors of a store after which the measurement of the remaining stores continues."""


class BenchSettings(Repeats, frozen=True):
    """The settings of a bench: its repetitions, and the number of processes that make the load."""

    processes: int


class BenchTurn(Struct):
    """A workload at a store, in a round.

    ``resident_bytes`` is the sum over all servers, at the end.
    """

    peer: str
    workload: str
    round: int
    measured: MeasuredWorkload
    resident_bytes: int


def turns(
    peers: Sequence[Peer],
    workloads: Sequence[Workload],
    settings: BenchSettings,
    report_line: ReportLine,
    failed: dict[str, str],
) -> list[BenchTurn]:
    """Run all turns.

    A store gets no values larger than its limit. A failed store is not tried again, and ``failed``
    has the reason.
    """
    made: list[BenchTurn] = []
    for number in range(settings.rounds):
        order = list(peers)
        random.Random(number).shuffle(order)
        for peer in order:
            if peer.name in failed:
                continue
            try:
                for turn in _of(peer, number, workloads, settings):
                    made.append(turn)
                    report_line(_line(turn, settings.rounds))
            except FAILURES as error:
                failed[peer.name] = f"{peer.name} failed in round {number + 1}: {error}"
                report_line(f"  {failed[peer.name]}")
    return [turn for turn in made if turn.peer not in failed]


def _of(
    peer: Peer, number: int, workloads: Sequence[Workload], settings: BenchSettings
) -> Iterator[BenchTurn]:
    with (
        tempfile.TemporaryDirectory(prefix="ares-bench-") as directory,
        peer.running(Path(directory)) as running,
        generators(settings.processes) as load,
    ):
        warm_up(peer, running, load)
        for workload in workloads:
            if peer.value_bytes_max is None or workload.value_bytes <= peer.value_bytes_max:
                yield _turn(peer.name, number, running, load, workload, settings)


def warm_up(peer: Peer, running: RunningStore, load: Generators) -> None:
    """Run a store that needs a warm-up for a while, uncounted."""
    if peer.warm_up_s:
        load.preload_once(running.store, FAULTED)
        load.run(running.store, FAULTED, LoadExtent(0.0, peer.warm_up_s), running.servers)


def _turn(
    peer: str,
    round: int,
    running: RunningStore,
    load: Generators,
    workload: Workload,
    settings: BenchSettings,
) -> BenchTurn:
    load.preload_once(running.store, workload)
    extent = LoadExtent(settings.warm_s, settings.seconds)
    measured = load.run(running.store, workload, extent, running.servers)
    return BenchTurn(
        peer, workload.name, round, measured, sum(map(resident_bytes, running.servers.values()))
    )


def _line(turn: BenchTurn, rounds: int) -> str:
    measured = turn.measured
    trouble = f"   FAILED {sum(measured.troubles.values())}" if measured.troubles else ""
    wrong = "   WRONG READS" if measured.wrong else ""
    return (
        f"  round {turn.round + 1} of {rounds}  {turn.peer:22} {turn.workload:18} "
        f"{measured.per_s:10,.0f} op/s{trouble}{wrong}"
    )
