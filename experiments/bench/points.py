"""Turns: every store is started in every round and asked the same, one store at a time, in an order that turns round from round to round."""

import random
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from experiments.bench.load import Generators, Measured, generators
from experiments.bench.peers import Peer, Running
from experiments.bench.processes import BenchError, resident_bytes
from experiments.bench.workload import FAULTED, Workload

Tell = Callable[[str], None]
FAILURES = (BenchError, subprocess.CalledProcessError)
"""What one store may end with while the others are measured all the same."""


class Settings(Struct, frozen=True):
    """``seconds`` of each measurement, after ``warm_s`` that do not count; ``processes`` that make the load."""

    rounds: int = 3
    seconds: float = 2.0
    warm_s: float = 0.5
    processes: int = 2


class Turn(Struct):
    """One workload at one store, in one round. ``resident_bytes``: of all its servers, at the end."""

    peer: str
    workload: str
    round: int
    measured: Measured
    resident_bytes: int


def turns(
    peers: Sequence[Peer],
    workloads: Sequence[Workload],
    settings: Settings,
    tell: Tell,
    failed: dict[str, str],
) -> list[Turn]:
    """All of them. A store that refuses values of a size is not asked for them; one that fails is not tried again, and ``failed`` says why."""
    made: list[Turn] = []
    for number in range(settings.rounds):
        order = list(peers)
        random.Random(number).shuffle(order)
        for peer in order:
            if peer.name in failed:
                continue
            try:
                for turn in _of(peer, number, workloads, settings):
                    made.append(turn)
                    tell(_line(turn, settings.rounds))
            except FAILURES as error:
                failed[peer.name] = f"{peer.name} failed in round {number + 1}: {error}"
                tell(f"  {failed[peer.name]}")
    return [turn for turn in made if turn.peer not in failed]


def _of(
    peer: Peer, number: int, workloads: Sequence[Workload], settings: Settings
) -> Iterator[Turn]:
    with (
        tempfile.TemporaryDirectory(prefix="ares-bench-") as directory,
        peer.running(Path(directory)) as running,
        generators(settings.processes) as load,
    ):
        warm_up(peer, running, load)
        for workload in workloads:
            if peer.value_bytes_max is None or workload.value_bytes <= peer.value_bytes_max:
                yield _turn(peer.name, number, running, load, workload, settings)


def warm_up(peer: Peer, running: Running, load: Generators) -> None:
    """Have a store that needs it work for a while, uncounted."""
    if peer.warm_up_s:
        load.preload_once(running.store, FAULTED)
        load.run(running.store, FAULTED, 0.0, peer.warm_up_s, running.servers)


def _turn(
    peer: str,
    round: int,
    running: Running,
    load: Generators,
    workload: Workload,
    settings: Settings,
) -> Turn:
    load.preload_once(running.store, workload)
    measured = load.run(running.store, workload, settings.warm_s, settings.seconds, running.servers)
    return Turn(
        peer, workload.name, round, measured, sum(map(resident_bytes, running.servers.values()))
    )


def _line(turn: Turn, rounds: int) -> str:
    measured = turn.measured
    trouble = f"   FAILED {sum(measured.troubles.values())}" if measured.troubles else ""
    wrong = "   WRONG READS" if measured.wrong else ""
    return f"  round {turn.round + 1} of {rounds}  {turn.peer:22} {turn.workload:18} {measured.per_s:10,.0f} op/s{trouble}{wrong}"
