"""Cost of a moving domain for its clients, and the duration of the move.

    make bench-moving
    .venv/bin/python -m experiments.bench.moving --objects 1000 --only 'ABD to EC'

A domain on five servers moves to five others while clients read and write it: at full speed, and
slowly (``bytes_per_s``). Latencies stand beside the latencies of the same clients before and after.
Unused domains then move, with and without batching. All processes are on this machine: quote
ratios. The bench prints tables, and writes moving.json, moving.txt and the page report.html. The
exit status is 1 if a read returned a value that no client wrote.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from experiments.bench.__main__ import machine
from experiments.bench.as_runs import emptied, write_durations, write_move
from experiments.bench.bench_files import bench_parser, finished, write_report
from experiments.bench.moving_figures import Duration, MoveUnderLoad, MovingReport
from experiments.bench.moving_figures import under_load as figures_of
from experiments.bench.moving_runs import (
    MOVING_CASES,
    MoveCase,
    MoveLoad,
    alone,
    cluster,
    under_load,
)
from experiments.bench.moving_text import duration_row, latency_rows, move_row, text
from experiments.bench.store_processes import end_on_sigterm
from experiments.bench.workload import KIB, Workload, size_text

MOVING_SMALL_BYTES = 100
MOVING_CLIENTS = 16
MOVING_SIZES = ((MOVING_SMALL_BYTES, 1.0, 0.1), (KIB, 1.0, 0.1), (64 * KIB, 0.05, 0.02))
"""Bytes of an object, and the share of ``--objects`` that moves, with batch on and off."""


def loads(per_s: float) -> tuple[MoveLoad, ...]:
    """Return the loads during a move: two with a small rate, and a closed loop.

    The small rate is far below the clients' limit, beside a move at full speed and beside a slow
    move. The closed loop is the most that the clients can do.
    """
    paced = f"{MOVING_CLIENTS} clients, {per_s:g}/s"
    return (
        MoveLoad(paced, MOVING_CLIENTS, per_s),
        MoveLoad(f"{paced}, slow move", MOVING_CLIENTS, per_s, slow=True),
        MoveLoad(f"{MOVING_CLIENTS} clients, closed loop", MOVING_CLIENTS),
    )


def with_clients(
    file: Path, case: MoveCase, given: argparse.Namespace, where: str
) -> Iterator[MoveUnderLoad]:
    """Measure a case under every load."""
    for load in loads(given.rate):
        run = under_load(
            file,
            case,
            load,
            Workload(load.clients, MOVING_SMALL_BYTES, given.objects),
            given.seconds,
            given.objects / given.slow if load.slow else None,
        )
        write_move(given.out, run, given.objects, MOVING_SMALL_BYTES, where)
        yield figures_of(run, given.objects, MOVING_SMALL_BYTES)


def without_clients(file: Path, case: MoveCase, objects: int) -> Iterator[Duration]:
    """Measure a case with every size, batched and not."""
    for value_bytes, *parts in MOVING_SIZES:
        counts = [max(1, int(objects * part)) for part in parts]
        for batch, count in zip((True, False), counts, strict=True):
            moved, cpu = alone(file, case, count, value_bytes, batch)
            used_us = sum(cpu.values()) * moved.seconds / count * 1e6
            yield Duration(
                case.name,
                value_bytes,
                count,
                batch,
                moved.seconds,
                moved.seconds * counts[0] / count,
                moved.bytes,
                used_us,
            )


def measure(given: argparse.Namespace) -> MovingReport:
    """Run all measurements, and print each line at once."""
    where, began_s = machine(), time.monotonic()
    emptied(given.out, ["moving", "moving_alone"])
    made: list[MoveUnderLoad] = []
    durations: list[Duration] = []
    for case in (case for case in MOVING_CASES if given.only in (None, case.name)):
        with cluster() as file:
            for one in with_clients(file, case, given, where):
                made.append(one)
                for row in (*latency_rows(one), move_row(one)):
                    print("  ".join(row), flush=True)
            for duration in (
                without_clients(file, case, given.objects) if not given.no_durations else ()
            ):
                durations.append(duration)
                print("  ".join(duration_row(duration)), flush=True)
    write_durations(given.out, durations, where)
    settings = (
        f"{given.objects:,} objects of {size_text(MOVING_SMALL_BYTES)} on five servers move to "
        f"five others; watched {given.seconds:g} s before and after; a slow move is held to "
        f"{given.objects / given.slow:,.0f} objects a second; {time.monotonic() - began_s:.0f} s "
        "altogether"
    )
    return MovingReport(where, settings, made, durations)


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = bench_parser("experiments.bench.moving", __doc__)
    parser.add_argument("--objects", type=int, default=10_000, help="of the domain (default 10000)")
    parser.add_argument(
        "--rate",
        type=float,
        default=400.0,
        help="operations a second of clients that do less than they could (default 400)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=4.0,
        help="how long the clients are watched before and after the move (default 4)",
    )
    parser.add_argument(
        "--slow",
        type=float,
        default=10.0,
        help="how many seconds a move takes that is to go slowly, at least (default 10)",
    )
    parser.add_argument("--only", choices=[case.name for case in MOVING_CASES], help="one case")
    parser.add_argument(
        "--no-durations", action="store_true", help="leave moves without clients out"
    )
    return parser.parse_args(given)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command, and return the exit status."""
    given = arguments(words)
    report = measure(given)
    page = write_report(given.out, "moving", report, text(report))
    print(f"\n{page}\n{finished(given.out, 'moving')}")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    end_on_sigterm()
    sys.exit(main())
