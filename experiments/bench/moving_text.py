"""Figures of moves of a domain, as text."""

from collections.abc import Sequence

from experiments.bench.figures import OTHERS_MAX
from experiments.bench.moving_figures import (
    P99_GOAL,
    Duration,
    Latency,
    LatencyPair,
    MoveUnderLoad,
    MovingReport,
)
from experiments.bench.text import number
from experiments.bench.workload import size_text

MOVING_HEAD = (
    "",
    "quiet p50 ms",
    "moving",
    "ratio",
    "quiet p99 ms",
    "moving",
    "ratio",
    "pause quiet ms",
    "moving",
    "rounds quiet",
    "moving",
)
MOVE_HEAD = (
    "",
    "objects",
    "seconds",
    "moved",
    "there already",
    "extra rounds s",
    "of operations",
    "CPU old",
    "new",
    "clients",
    "mover",
    "others",
)
DURATION_HEAD = (
    "",
    "value",
    "batch",
    "objects",
    "seconds",
    "for as many",
    "objects/s",
    "MiB/s",
    "µs CPU/object",
)
EXPLAINED = (
    f"ratio: moving : quiet, of one run; goal for p99: at most {P99_GOAL:g}. pause: the longest "
    "time in which no operation of the kind was done.",
    "extra rounds: from the first operation that visited more than one configuration to the last, "
    "and the share of such operations. While data is on its way a read or write asks both "
    "configurations at the same time, and a read takes a round more if it has to write the found "
    "version into the new configuration. Rounds side by side count as one.",
    "there already: objects that clients wrote into the new configuration themselves. CPU in "
    "processors, while it moved. ~ : another program was at work on this machine, and latencies "
    "say little.",
    "batch off moves one object after the other, and fewer of them; 'for as many' is scaled to "
    "the number that was moved with batch on.",
)


def title(one: MoveUnderLoad) -> str:
    """Return a title such as "ABD to EC, 16 clients"."""
    return f"{one.case}, {one.load}"


def text(report: MovingReport) -> str:
    """Return tables with aligned columns."""
    lines = [report.machine, report.settings, ""]
    if report.loads:
        lines += _aligned(MOVING_HEAD, [row for one in report.loads for row in latency_rows(one)])
        lines += ["", *_aligned(MOVE_HEAD, [move_row(one) for one in report.loads])]
    if report.durations:
        lines += ["", *_aligned(DURATION_HEAD, [duration_row(one) for one in report.durations])]
    lines += [
        "",
        *EXPLAINED,
        *(f"FAILED: {title(one)}: {one.failed} operations" for one in report.loads if one.failed),
    ]
    return "\n".join([*lines, *(f"WRONG READ: {what}" for what in report.wrong)]) + "\n"


def latency_rows(one: MoveUnderLoad) -> list[tuple[str, ...]]:
    """Return the rows of reads and writes; a missed goal is mentioned."""
    return [_latency_row(f"{title(one)}: {beside.kind}", beside) for beside in one.latencies]


def _latency_row(label: str, beside: LatencyPair) -> tuple[str, ...]:
    quiet, moving = beside.quiet, beside.moving
    if not (quiet.count and moving.count):
        return (label, *("-" for _ in MOVING_HEAD[1:]))
    ratio = f"{beside.p99_ratio:.2f} {'met' if beside.met else 'MISSED'}"
    return (
        label,
        *(number(quiet.p50_ms), number(moving.p50_ms), f"{beside.p50_ratio:.2f}"),
        *(number(quiet.p99_ms), number(moving.p99_ms), ratio),
        *_pauses(quiet, moving),
        *(f"{quiet.rounds:.2f}", f"{moving.rounds:.2f}"),
    )


def _pauses(quiet: Latency, moving: Latency) -> tuple[str, str]:
    return number(quiet.pause_ms), number(moving.pause_ms)


def move_row(one: MoveUnderLoad) -> tuple[str, ...]:
    """Return the row of the move itself."""
    cpu = [f"{one.cpu[name]:.2f}" for name in ("old servers", "new servers", "clients", "mover")]
    others = f"{one.others_cpu:.2f}" + (" ~" if one.others_cpu > OTHERS_MAX else "")
    counts = (f"{one.objects:,}", number(one.seconds), f"{one.moved:,}", f"{one.skipped:,}")
    return (title(one), *counts, number(one.extra_s), f"{one.extra_share:.0%}", *cpu, others)


def duration_row(one: Duration) -> tuple[str, ...]:
    """Return the row of a move of an unused domain."""
    return (
        one.case,
        size_text(one.value_bytes),
        "on" if one.batch else "off",
        f"{one.objects:,}",
        number(one.seconds),
        number(one.expected_s),
        number(one.objects_per_s),
        number(one.mib_per_s),
        number(one.cpu_us_per_object),
    )


def _aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [head, *rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in cells
    ]
