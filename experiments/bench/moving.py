"""Cost of a moving domain for its clients, and the duration of the move.

    make bench-moving
    .venv/bin/python -m experiments.bench.moving --objects 1000 --only 'ABD to EC'

A domain on five servers moves to five others while the bench's generators read and write it: at
full speed, with and without copies ahead, and slowly (``bytes_per_s``). Latencies stand beside the
latencies of the same clients before. Unused domains then move, with and without batching and copies
ahead. All processes are on this machine: quote ratios. The bench prints tables, and the goals
beside the last run kept in git. It writes moving.json, moving_figures.json, moving.txt and the page
report.html.
The exit status is 1 if a read returned a value that no client wrote. The logs of the scenario
`reconfiguration` have the rounds and the configurations of each operation during a move.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import pairwise
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
from experiments.bench.figures import Figure
from experiments.bench.load import LoadExtent, MeasuredWorkload, generators
from experiments.bench.measured_points import began
from experiments.bench.store_clients import AresStore
from experiments.bench.store_processes import cpu_of, end_on_sigterm
from experiments.bench.text import aligned, number
from experiments.bench.workload import Workload, size_text
from experiments.histogram import bucket, latency_of
from experiments.kept_runs import keep_run
from experiments.local_cluster import local_cluster, server_pids

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

MOVING_WARM_S = 0.1
"""The generators warm up for so long before each window, of which a slow move has several."""

MOVER = "mover"
COPIED_AHEAD = ", copied ahead"


class MeasuredMove(Struct, frozen=True):
    """A move of ``objects``, with clients at work (``quiet``: before it) or without.

    ``cpu_us`` is processor time for an object, of all servers and the mover. ``cpu`` is in
    processors, by process. The move began at ``begin_s`` of the monotonic clock. ``two_s``: the
    time with two configurations, from the proposal until the new configuration was final.
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
    cpu: dict[str, float] = {}
    begin_s: float = 0.0
    two_s: float = 0.0


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

    def move(
        self,
        what: str,
        batch: bool = True,
        ahead: bool = False,
        bytes_per_s: float | None = None,
    ) -> MeasuredMove:
        """Move the domain to the other servers."""
        return run(self._moved(what, batch, ahead, bytes_per_s))

    async def _moved(
        self, what: str, batch: bool, ahead: bool, bytes_per_s: float | None
    ) -> MeasuredMove:
        settings = Settings.load(self._file)
        client = structs.replace(settings.client, batch=batch, ahead=ahead)
        stages: dict[str, float] = {}
        async with connect(structs.replace(settings, client=client)) as manager:
            domain = await manager.domain(self._name)
            await domain.current()
            begin_s, before = time.perf_counter(), cpu_of(self.pids.values())
            result = await domain.reconfigure(
                MOVING_CASES[self._case][1],
                bytes_per_s=bytes_per_s,
                progress=lambda now: stages.setdefault(now.stage, time.perf_counter()),
            )
            seconds, after = time.perf_counter() - begin_s, cpu_of(self.pids.values())
        used_s = {name: after[pid] - before[pid] for name, pid in self.pids.items()}
        return MeasuredMove(
            *(self._case, what, self._value_bytes, self._objects, seconds),
            cpu_us=sum(used_s.values()) * 1e6 / self._objects,
            moved=result.moved,
            skipped=result.skipped,
            cpu={name: each / seconds for name, each in used_s.items()},
            begin_s=begin_s,
            two_s=stages["gc-config"] - stages["add-config"],
        )


def under_load(file: Path, case: str, given: argparse.Namespace) -> Iterator[MeasuredMove]:
    """Measure moves with clients at work: with a small rate, and a closed loop.

    The small rate is far below the clients' limit, beside a move at full speed, the same with
    copies ahead, and a slow move. The closed loop is the most that the clients can do.
    """
    workload = Workload(MOVING_CLIENTS, MOVING_SMALL_BYTES, given.objects)
    slowly = given.objects / given.slow * OBJECT_BYTES_MIN
    for per_s, bytes_per_s, ahead in (
        (given.rate, None, False),
        (given.rate, None, True),
        (given.rate, slowly, False),
        (None, None, False),
    ):
        rate = "closed loop" if per_s is None else f"{per_s:g}/s"
        what = f"{MOVING_CLIENTS} clients, {rate}{', slow move' if bytes_per_s else ''}"
        what += COPIED_AHEAD if ahead else ""
        mover = MovingDomain(file, case, MOVING_SMALL_BYTES, given.objects)
        watch = LoadExtent(MOVING_WARM_S, given.seconds, per_s=per_s, timed=True)
        with generators(2) as processes:
            processes.preload_once(mover.store, workload)
            watched = partial(processes.run, mover.store, workload, watch, mover.pids)
            move = partial(mover.move, what, ahead=ahead, bytes_per_s=bytes_per_s)
            yield _moved_beside(watched, move, per_s)


def _moved_beside(
    watched: Callable[..., MeasuredWorkload],
    move: Callable[[], MeasuredMove],
    per_s: float | None,
) -> MeasuredMove:
    """Return the move, with points of the clients before and during the move."""
    moves = list[Future[MeasuredMove]]()
    with ThreadPoolExecutor(1) as thread:
        before = watched()
        parts = [watched(at_begin=lambda: moves.append(thread.submit(move)))]
        while not moves[0].done():
            parts.append(watched())
        moved, after = moves[0].result(), watched()
    end_s = moved.begin_s + moved.seconds
    return structs.replace(
        moved,
        quiet=_point([before], before.begin_s, before.end_s, before.server_cpu, per_s),
        moving=_point(parts, moved.begin_s, end_s, moved.cpu, per_s),
        wrong=[wrong for one in (before, *parts, after) for wrong in one.wrong],
    )


def _point(
    parts: Sequence[MeasuredWorkload],
    begin_s: float,
    end_s: float,
    cpu: dict[str, float],
    per_s: float | None,
) -> LoadPoint:
    """Return a point of the operations that were due from ``begin_s`` to ``end_s``.

    The windows of ``parts`` follow one another; times between two windows do not count.
    """
    reads, writes, pauses, seconds = Counter[int](), Counter[int](), [0.0], 0.0
    for part in parts:
        first_s, last_s = max(begin_s, part.begin_s), min(end_s, part.end_s)
        if first_s >= last_s:
            continue
        seconds += last_s - first_s
        for due_s, ended_s, reading in part.operations:
            if first_s <= due_s < last_s:
                (reads if reading else writes)[bucket(ended_s - due_s)] += 1
        done = sorted(ended_s for _, ended_s, _ in part.operations if first_s < ended_s < last_s)
        pauses += [later - earlier for earlier, later in pairwise([first_s, *done, last_s])]
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
        longest_pause_s=max(pauses),
        server_cpu=cpu,
        began=began(begin_s),
    )


def without_clients(file: Path, case: str, objects: int) -> Iterator[MeasuredMove]:
    """Measure moves of unused domains with every size: batched, with copies ahead, and neither."""
    for value_bytes, batched, single in MOVING_SIZES:
        for batch, ahead in ((True, False), (True, True), (False, False)):
            count = max(1, int(objects * (batched if batch else single)))
            mover = MovingDomain(file, case, value_bytes, count)
            with generators(1) as processes:
                processes.preload_once(mover.store, Workload(1, value_bytes, count))
            what = f"{size_text(value_bytes)}, batch {'on' if batch else 'off'}"
            yield mover.move(f"{what}{COPIED_AHEAD if ahead else ''}", batch, ahead)


def measure(given: argparse.Namespace) -> MovingReport:
    """Run all measurements, and print the duration of each move at once."""
    where, made = machine(), list[MeasuredMove]()
    cases = tuple(MOVING_CASES) if given.only is None else (given.only,)
    for case in cases * given.rounds:
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


def goal_figures(moves: Sequence[MeasuredMove]) -> dict[str, Figure]:
    """Return the p99 of moves : the p99 before, and what copies ahead save, by names of goals.

    A round gives one ratio. Copies ahead are compared with the same move without them.
    """
    found: dict[str, list[float]] = {}
    for one in moves:
        for kind in ("read", "write") if one.quiet and one.moving else ():
            quiet, moving = getattr(one.quiet, kind), getattr(one.moving, kind)
            if quiet and moving:
                name = f"{one.objects:,} objects, {one.case}, {one.what}: p99 of {kind}s"
                found.setdefault(name, []).append(moving.p99_s / quiet.p99_s)
    last: dict[tuple[str, str, int], MeasuredMove] = {}
    for one in moves:
        if one.quiet:
            what = one.what.removesuffix(COPIED_AHEAD)
            if what != one.what and (plain := last.get((one.case, what, one.objects))):
                name = f"{one.objects:,} objects, {what}: time with two configurations"
                found.setdefault(f"{name}, copied ahead : not", []).append(one.two_s / plain.two_s)
            last[one.case, one.what, one.objects] = one
    return {name: Figure.of(values) for name, values in found.items()}


def keep_moves(out: Path, moves: Sequence[MeasuredMove]) -> None:
    """Write a run for every move."""
    rounds, made = emptied(out, ["moving"]), Counter[str]()
    for one in moves:
        figures = {
            "seconds of the move": one.seconds,
            "seconds with two configurations": one.two_s,
            "objects/s": one.objects / one.seconds,
            "us CPU/object": one.cpu_us,
        }
        moving = structs.replace(one.moving or LoadPoint(0), figures=figures)
        points = [moving] if one.quiet is None else [one.quiet, moving]
        file = LoadFile(points, one.case, one.what, wrong=one.wrong)
        parameters = {"load": one.what, "objects": one.objects}
        name = f"{one.case}_{one.what}"
        made[name] += 1
        about = {"object_size": one.value_bytes, "parameters": parameters, "iteration": made[name]}
        keep_run(rounds, "moving", f"{name}_{made[name]}", file, **about)


def text(report: MovingReport) -> str:
    """Return tables with aligned columns."""
    columns = ("p50 ms before", "moving", "ratio", "p99 ms before", "moving", "ratio")
    head = ("", *columns, "pause ms before", "moving", "CPU old", "new", MOVER)
    rows = [row for one in report.moves for row in _latency_rows(one)]
    columns = ("objects", "seconds", "with two", "objects/s", "us CPU", "moved", "there already")
    moves = [("", *columns), *map(_move_row, report.moves)]
    lines = [report.machine, report.settings, "", *aligned([head, *rows]), "", *aligned(moves), ""]
    lines.append(
        "ratio: while the domain moved : before, of one run. pause: the "
        "longest time in which no operation was done. CPU in processors; us CPU: of servers and "
        "mover for an object, with the work for clients. there already: objects that clients wrote "
        "into the new configuration themselves. batch off moves one object after the other. with "
        "two: seconds with two configurations, from the proposal on."
    )
    for one in report.moves:
        points = [point for point in (one.quiet, one.moving) if point]
        for word, count in (
            ("FAILED", sum(point.failed for point in points)),
            ("NOT BEGUN IN TIME", sum(point.missed or 0 for point in points)),
        ):
            lines += [f"{word}: {one.case}, {one.what}: {count} operations"] if count else []
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
        cells = ["-"] * 6
        if quiet and moving:
            p50, p99 = moving.p50_s / quiet.p50_s, moving.p99_s / quiet.p99_s
            cells = [number(1e3 * quiet.p50_s), number(1e3 * moving.p50_s), f"{p50:.2f}"]
            cells += [number(1e3 * quiet.p99_s), number(1e3 * moving.p99_s), f"{p99:.2f}"]
        label = f"{one.case}, {one.what}: {kind}s"
        yield (label, *cells, *map(number, pauses), *(f"{share:.2f}" for share in used))


def _move_row(one: MeasuredMove) -> tuple[str, ...]:
    figures = (one.seconds, one.two_s, one.objects / one.seconds, one.cpu_us)
    counts = (f"{one.moved:,}", f"{one.skipped:,}")
    return (f"{one.case}, {one.what}", f"{one.objects:,}", *map(number, figures), *counts)


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = bench_parser("experiments.bench.moving", __doc__)
    for name, default, what in (
        ("objects", 10_000, "of the domain"),
        ("rate", 400.0, "operations a second of clients that do less than they could"),
        ("seconds", 4.0, "of each window in which the clients are watched, also before the move"),
        ("rounds", 1, "of all moves"),
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
    found = goal_figures(report.moves)
    page = write_report(given.out, "moving", report, text(report), found)
    print(f"\n{page}\n{finished(given.out, 'moving')}")
    return 1 if any(one.wrong for one in report.moves) else 0


if __name__ == "__main__":
    end_on_sigterm()
    sys.exit(main())
