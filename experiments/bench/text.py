"""The report as text: a table for each workload, then notes and missing stores."""

from collections.abc import Sequence

from experiments.bench.figures import BenchReport, Figure, Point

_BENCH_HEAD = (
    "op/s (spread)",
    *("p50 ms", "p99 ms", "us CPU/op", "CPU servers", "generators", "others"),
    *("ares ABD :", "ares EC :", "failed"),
)
_BENCH_LEGEND = (
    "ares :  how many times the rate of that store ares has, with the same durability, round by "
    "round"
)
_GENERATOR_NOTE = "!  a generator took nearly a whole processor: the figures may be the generator's"
_OTHERS_NOTE = (
    "~  another program was at work on this machine: the rates say little, the processor time for "
    "each operation a bit more"
)


def number(value: float) -> str:
    """Format a number with three figures, without exponents."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def spread(figure: Figure) -> str:
    """Format a spread such as "4,897 (4,100 to 5,000)"."""
    return f"{number(figure.median)} ({number(figure.least)} to {number(figure.most)})"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a line for each row: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(map(str.rjust, row[1:], widths[1:]))]).rstrip()
        for row in rows
    ]


def text(report: BenchReport) -> str:
    """Return the whole report."""
    lines, points = [report.machine, report.settings], report.points
    for workload in dict.fromkeys(point.workload for point in points):
        rows = [_row(point) for point in points if point.workload == workload]
        lines += ["", *aligned([(workload, *_BENCH_HEAD), *rows])]
    lines += ["", _BENCH_LEGEND]
    lines += [_GENERATOR_NOTE] if any(point.generator_bound for point in points) else []
    lines += [_OTHERS_NOTE] if any(point.disturbed for point in points) else []
    lines += [f"{name}: {note}" for name, note in report.notes.items()]
    lines += [f"not measured: {what}" for what in report.missing.values()]
    lines += [f"WRONG READ: {what}" for what in report.wrong]
    return "\n".join(lines) + "\n"


def _row(point: Point) -> tuple[str, ...]:
    load = "+".join(f"{share:.2f}" for share in point.generator_cpu)
    times = (number(point.p50_ms.median), number(point.p99_ms.median), f"{point.cpu_us:,.0f}")
    others = f"{point.others_cpu:.2f}{'~' if point.disturbed else ' '}"
    cpu = (f"{point.server_cpu:.2f}", load + ("!" if point.generator_bound else " "), others)
    found = [point.ratios.get(label) for label in ("ABD", "EC")]
    ratios = [f"{ratio.median:.2f}" if ratio else "-" for ratio in found]
    return (f"  {point.peer}", spread(point.per_s), *times, *cpu, *ratios, f"{point.failed or ''}")
