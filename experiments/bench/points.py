"""Turns: every store is started in every round and gets the same requests.

A single store runs at a time, and the order changes from round to round.
"""

import random
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from experiments.bench.load import LoadExtent, MeasuredWorkload, generators
from experiments.bench.peers import Peer
from experiments.bench.store_processes import BenchError, resident_bytes
from experiments.bench.workload import WARM_UP_WORKLOAD, Workload
from experiments.measuring import Repeats

FAILURES = (BenchError, subprocess.CalledProcessError)
"""Errors of a store after which the measurement of the remaining stores continues."""


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
    repeats: Repeats,
    processes: int,
    failed: dict[str, str],
) -> list[BenchTurn]:
    """Run all turns, each with the load of ``processes``, and print a line for each.

    A store gets no values larger than its limit. A failed store is not tried again, and ``failed``
    has the reason.
    """
    made: list[BenchTurn] = []
    for number in range(repeats.rounds):
        order = [peer for peer in peers if peer.name not in failed]
        random.Random(number).shuffle(order)
        for peer in order:
            try:
                for turn in _of(peer, number, workloads, repeats, processes):
                    made.append(turn)
                    print(_line(turn, repeats.rounds), flush=True)
            except FAILURES as error:
                failed[peer.name] = f"{peer.name} failed in round {number + 1}: {error}"
                print(f"  {failed[peer.name]}", flush=True)
    return [turn for turn in made if turn.peer not in failed]


def _of(
    peer: Peer, number: int, workloads: Sequence[Workload], repeats: Repeats, processes: int
) -> Iterator[BenchTurn]:
    with (
        tempfile.TemporaryDirectory(prefix="ares-bench-") as directory,
        peer.running(Path(directory)) as running,
        generators(processes) as load,
    ):
        store, servers = running.store, running.servers
        if peer.warm_up_s:
            load.preload_once(store, WARM_UP_WORKLOAD)
            load.run(store, WARM_UP_WORKLOAD, LoadExtent(0.0, peer.warm_up_s), servers)
        for workload in workloads:
            if peer.value_bytes_max is None or workload.value_bytes <= peer.value_bytes_max:
                load.preload_once(store, workload)
                extent = LoadExtent(repeats.warm_s, repeats.seconds)
                measured = load.run(store, workload, extent, servers)
                resident = sum(map(resident_bytes, servers.values()))
                yield BenchTurn(peer.name, workload.name, number, measured, resident)


def _line(turn: BenchTurn, rounds: int) -> str:
    measured = turn.measured
    trouble = f"   FAILED {sum(measured.troubles.values())}" if measured.troubles else ""
    wrong = "   WRONG READS" if measured.wrong else ""
    return (
        f"  round {turn.round + 1} of {rounds}  {turn.peer:22} {turn.workload:18} "
        f"{measured.per_s:10,.0f} op/s{trouble}{wrong}"
    )
