"""Cost of a moving domain for its clients, and the duration of the move.

    make bench-moving
    .venv/bin/python -m experiments.bench.moving --objects 1000 --only 'ABD to EC'

A domain on five servers moves to five others while the bench's generators read and write it: at
full speed, and slowly (``bytes_per_s``). Latencies stand beside the latencies of the same clients
before. Unused domains then move, with and without batching. All processes are on this machine:
quote ratios. The bench prints tables, and writes moving.json, moving.txt and the page report.html.
The exit status is 1 if a read returned a value that no client wrote. The logs of the scenario
`reconfiguration` have the rounds and the configurations of each operation during a move.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct, structs

from ares.client.connect import connect
from ares.cluster.settings import Settings
from ares.model.configuration import Configuration
from ares.model.units import KIB
from ares.platform.loop import run
from ares.reconfig.throttle import OBJECT_BYTES_MIN
from ares.results.load_points import LoadFile, LoadPoint
from experiments.bench.__main__ import machine
from experiments.bench.bench_files import bench_parser, emptied, finished, write_report
from experiments.bench.load import LoadExtent, MeasuredWorkload, generators
from experiments.bench.measured_points import began
from experiments.bench.store_clients import AresStore
from experiments.bench.store_processes import cpu_of, end_on_sigterm
from experiments.bench.text import aligned, number
from experiments.bench.workload import Workload, size_text
from experiments.histogram import latency_of
from experiments.kept_runs import keep_run
from experiments.local_cluster import local_cluster, server_pids
from experiments.measuring import Goal

MOVING_SERVERS, MOVING_K = 5, 3
OLD = [f"s{number}" for number in range(MOVING_SERVERS)]
NEW = [f"s{number}" for number in range(MOVING_SERVERS, 2 * MOVING_SERVERS)]
MOVING_CASES = {
    "ABD to ABD": (Configuration.abd(OLD), Configuration.abd(NEW)),
    "ABD to EC": (Configuration.abd(OLD), Configuration.ec(NEW, MOVING_K)),
    "EC to EC": (Configuration.ec(OLD, MOVING_K), Configuration.ec(NEW, MOVING_K)),
}
MOVING_SMALL_BYTES, MOVING_CLIENTS = 100, 16
MOVING_SIZES = ((MOVING_SMALL_BYTES, 1.0, 0.1), (KIB, 1.0, 0.1), (64 * KIB, 0.05, 0.02))
"""Bytes of an object, and the share of ``--objects`` that moves, with batch on and off."""

MOVING_WARM_S, PIECE_S = 0.1, 0.4
"""The generators run again and again, each time so long after a warm-up, until the move has ended.
"""

P99_GOAL = Goal(2.0)
"""The p99 during a move : the p99 before."""

MOVER = "mover"


class MeasuredMove(Struct, frozen=True):
    """A move of ``objects``, with clients at work (``quiet``: before it) or without.

    ``cpu_us`` is processor time for an object, of all servers and the mover.
    """

    case: str
    what: str
    value_bytes: int
    objects: int
    seconds: float
    cpu_us: float
    moved: int
    skipped: int
    quiet: LoadPoint | None = None
    moving: LoadPoint | None = None
    wrong: list[str] = []


class MovingReport(Struct, frozen=True):
    """All results of the bench."""

    machine: str
    settings: str
    moves: list[MeasuredMove]


class MovingDomain:
    """A new domain of a cluster, and its move, by a separate connection as an administrator has."""

    def __init__(self, file: Path, case: str, value_bytes: int, objects: int) -> None:
        self._file, self._name = file, f"moving-{os.urandom(8).hex()}"
        self._case, self._value_bytes, self._objects = case, value_bytes, objects
        self.pids = server_pids(file) | {MOVER: os.getpid()}
        self.store = AresStore(str(file), domain=self._name)
        run(self._make())

    async def _make(self) -> None:
        async with connect(self._file) as manager:
            await manager.create_domain(self._name, MOVING_CASES[self._case][0])

    def move(self, what: str, batch: bool = True, bytes_per_s: float | None = None) -> MeasuredMove:
        """Move the domain to the other servers."""
        return run(self._moved(what, batch, bytes_per_s))

    async def _moved(self, what: str, batch: bool, bytes_per_s: float | None) -> MeasuredMove:
        settings = Settings.load(self._file)
        client = structs.replace(settings.client, batch=batch)
        async with connect(structs.replace(settings, client=client)) as manager:
            domain = await manager.domain(self._name)
            await domain.current()
            begin_s, used_s = time.perf_counter(), self._used_s()
            result = await domain.reconfigure(MOVING_CASES[self._case][1], bytes_per_s=bytes_per_s)
            seconds, cpu_us = time.perf_counter() - begin_s, (self._used_s() - used_s) * 1e6
        about = (self._case, what, self._value_bytes, self._objects)
        return MeasuredMove(*about, seconds, cpu_us / self._objects, result.moved, result.skipped)

    def _used_s(self) -> float:
        return sum(cpu_of(self.pids.values()).values())


def under_load(file: Path, case: str, given: argparse.Namespace) -> Iterator[MeasuredMove]:
    """Measure moves with clients at work: two with a small rate, and a closed loop.

    The small rate is far below the clients' limit, beside a move at full speed and beside a slow
    move. The closed loop is the most that the clients can do.
    """
    workload = Workload(MOVING_CLIENTS, MOVING_SMALL_BYTES, given.objects)
    slowly = given.objects / given.slow * OBJECT_BYTES_MIN
    for per_s, bytes_per_s in ((given.rate, None), (given.rate, slowly), (None, None)):
        rate = "closed loop" if per_s is None else f"{per_s:g}/s"
        what = f"{MOVING_CLIENTS} clients, {rate}{', slow move' if bytes_per_s else ''}"
        mover = MovingDomain(file, case, MOVING_SMALL_BYTES, given.objects)
        with generators(2) as processes, ThreadPoolExecutor(1) as thread:
            processes.preload_once(mover.store, workload)
            watch, piece = (
                LoadExtent(MOVING_WARM_S, seconds, per_s=per_s)
                for seconds in (given.seconds, PIECE_S)
            )
            before = processes.run(mover.store, workload, watch, mover.pids)
            move = thread.submit(mover.move, what, bytes_per_s=bytes_per_s)
            parts = [processes.run(mover.store, workload, piece, mover.pids)]
            while not move.done():
                parts.append(processes.run(mover.store, workload, piece, mover.pids))
            after = processes.run(mover.store, workload, watch, mover.pids)
        yield structs.replace(
            move.result(),
            quiet=_point([before], per_s),
            moving=_point(parts, per_s),
            wrong=[wrong for one in (before, *parts, after) for wrong in one.wrong],
        )


def _point(parts: Sequence[MeasuredWorkload], per_s: float | None) -> LoadPoint:
    """Return a point of runs that followed one another."""
    reads, writes = Counter[int](), Counter[int]()
    for part in parts:
        reads.update(part.reads)
        writes.update(part.writes)
    seconds = sum(part.end_s - part.begin_s for part in parts)
    cpu = {name: [part.server_cpu[name] for part in parts] for name in parts[0].server_cpu}
    return LoadPoint(
        clients=MOVING_CLIENTS,
        mode="closed" if per_s is None else "open",
        offered_per_s=per_s,
        seconds=seconds,
        per_s=(reads + writes).total() / seconds,
        read=latency_of(reads),
        write=latency_of(writes),
        failed=sum(sum(part.troubles.values()) for part in parts),
        missed=sum(part.missed for part in parts),
        longest_pause_s=max(length_s for part in parts for _, length_s in part.pauses()),
        server_cpu={name: sum(shares) / len(shares) for name, shares in cpu.items()},
        began=began(parts[0].begin_s),
    )


def without_clients(file: Path, case: str, objects: int) -> Iterator[MeasuredMove]:
    """Measure moves of unused domains with every size, batched and not."""
    for value_bytes, *parts in MOVING_SIZES:
        for batch, part in zip((True, False), parts, strict=True):
            count = max(1, int(objects * part))
            mover = MovingDomain(file, case, value_bytes, count)
            with generators(1) as processes:
                processes.preload_once(mover.store, Workload(1, value_bytes, count))
            yield mover.move(f"{size_text(value_bytes)}, batch {'on' if batch else 'off'}", batch)


def measure(given: argparse.Namespace) -> MovingReport:
    """Run all measurements, and print the duration of each move at once."""
    where, made = machine(), list[MeasuredMove]()
    for case in MOVING_CASES if given.only is None else (given.only,):
        with local_cluster(2 * MOVING_SERVERS) as file:
            alone = () if given.no_durations else without_clients(file, case, given.objects)
            for moves in (under_load(file, case, given), alone):
                for one in moves:
                    made.append(one)
                    print("  ".join(_move_row(one)), flush=True)
    settings = (
        f"{given.objects:,} objects of {size_text(MOVING_SMALL_BYTES)} on five servers move to "
        f"five others; watched {given.seconds:g} s before; a slow move is held to "
        f"{given.objects / given.slow:,.0f} objects a second"
    )
    return MovingReport(where, settings, made)


def keep_moves(out: Path, moves: Sequence[MeasuredMove]) -> None:
    """Write a run for every move."""
    rounds = emptied(out, ["moving"])
    for one in moves:
        figures = {
            "seconds of the move": one.seconds,
            "objects/s": one.objects / one.seconds,
            "us CPU/object": one.cpu_us,
        }
        moving = structs.replace(one.moving or LoadPoint(0), figures=figures)
        points = [moving] if one.quiet is None else [one.quiet, moving]
        file = LoadFile(points, one.case, one.what, wrong=one.wrong)
        parameters = {"load": one.what, "objects": one.objects}
        about = {"object_size": one.value_bytes, "parameters": parameters}
        keep_run(rounds, "moving", f"{one.case}_{one.what}", file, **about)


def text(report: MovingReport) -> str:
    """Return tables with aligned columns."""
    columns = ("p50 ms before", "moving", "ratio", "p99 ms before", "moving", "ratio", "goal")
    head = ("", *columns, "pause ms before", "moving", "CPU old", "new", MOVER)
    rows = [row for one in report.moves for row in _latency_rows(one)]
    move_head = ("", "objects", "seconds", "objects/s", "us CPU", "moved", "there already")
    lines = [report.machine, report.settings, "", *aligned([head, *rows]), ""]
    lines += [
        *aligned([move_head, *map(_move_row, report.moves)]),
        "",
        f"ratio: while the domain moved : before, of one run; goal for p99: {P99_GOAL}. pause: the "
        "longest time in which no operation was done. CPU in processors; us CPU: of servers and "
        "mover for an object, with the work for clients. there already: objects that clients wrote "
        "into the new configuration themselves. batch off moves one object after the other.",
    ]
    for one in report.moves:
        failed = sum(point.failed for point in (one.quiet, one.moving) if point)
        lines += [f"FAILED: {one.case}, {one.what}: {failed} operations"] if failed else []
        lines += [f"WRONG READ: {one.case}, {one.what}: {wrong}" for wrong in one.wrong]
    return "\n".join(lines) + "\n"


def _latency_rows(one: MeasuredMove) -> Iterator[tuple[str, ...]]:
    """Yield the rows of reads and of writes."""
    if one.quiet is None or one.moving is None:
        return
    cpu = one.moving.server_cpu or {}
    used = [sum(cpu[name] for name in names) for names in (OLD, NEW, [MOVER])]
    pauses = [1e3 * (point.longest_pause_s or 0.0) for point in (one.quiet, one.moving)]
    for kind in ("read", "write"):
        quiet, moving = getattr(one.quiet, kind), getattr(one.moving, kind)
        cells = ["-"] * 7
        if quiet and moving:
            p50, p99 = moving.p50_s / quiet.p50_s, moving.p99_s / quiet.p99_s
            cells = [number(1e3 * quiet.p50_s), number(1e3 * moving.p50_s), f"{p50:.2f}"]
            cells += [number(1e3 * quiet.p99_s), number(1e3 * moving.p99_s), f"{p99:.2f}"]
            cells += ["met" if P99_GOAL.met(p99) else "MISSED"]
        label = f"{one.case}, {one.what}: {kind}s"
        yield (label, *cells, *map(number, pauses), *(f"{share:.2f}" for share in used))


def _move_row(one: MeasuredMove) -> tuple[str, ...]:
    figures = (one.seconds, one.objects / one.seconds, one.cpu_us)
    counts = (f"{one.moved:,}", f"{one.skipped:,}")
    return (f"{one.case}, {one.what}", f"{one.objects:,}", *map(number, figures), *counts)


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = bench_parser("experiments.bench.moving", __doc__)
    for name, default, what in (
        ("objects", 10_000, "of the domain"),
        ("rate", 400.0, "operations a second of clients that do less than they could"),
        ("seconds", 4.0, "how long the clients are watched before the move"),
        ("slow", 10.0, "how many seconds a move takes that is to go slowly, at least"),
    ):
        words = f"{what} (default {default:g})"
        parser.add_argument(f"--{name}", type=type(default), default=default, help=words)
    parser.add_argument("--only", choices=MOVING_CASES, help="one case")
    parser.add_argument(
        "--no-durations", action="store_true", help="leave moves without clients out"
    )
    return parser.parse_args(given)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command, and return the exit status."""
    given = arguments(words)
    report = measure(given)
    keep_moves(given.out, report.moves)
    page = write_report(given.out, "moving", report, text(report))
    print(f"\n{page}\n{finished(given.out, 'moving')}")
    return 1 if any(one.wrong for one in report.moves) else 0


if __name__ == "__main__":
    end_on_sigterm()
    sys.exit(main())
