"""The report as text: a table for each workload, then faults, notes and missing stores."""

from collections.abc import Mapping

from experiments.bench import baseline
from experiments.bench.figures import BenchReport, Figure, Point
from experiments.bench.goals import goal_lines


def number(value: float) -> str:
    """Format a number with three figures, without exponents."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def spread(figure: Figure) -> str:
    """Format a spread such as "4,897 (4,100 to 5,000)"."""
    return f"{number(figure.median)} ({number(figure.least)} to {number(figure.most)})"


def ratio(point: Point, yardstick: str, known: Mapping[str, float]) -> str:
    """Format the median, with the median of the baseline in brackets."""
    figure = point.ratios.get(yardstick)
    if figure is None:
        return "-"
    before = known.get(baseline.key(point.workload, point.peer, yardstick))
    return f"{figure.median:.2f}" + ("" if before is None else f" [{before:.2f}]")


def text(report: BenchReport, known: Mapping[str, float]) -> str:
    """Return the whole report."""
    lines = [report.machine, report.settings]
    for workload in dict.fromkeys(point.workload for point in report.points):
        lines += [
            "",
            *_table(
                [point for point in report.points if point.workload == workload], workload, known
            ),
        ]
    if report.faults:
        lines += ["", *_faults(report)]
    if goals := list(goal_lines(report, known)):
        lines += ["", "goals", *goals]
    lines += [
        "",
        (
            "ares :  how many times the rate of that store ares has, with the same durability, "
            "round by round; [] the baseline's"
        ),
    ]
    if any(point.generator_bound for point in report.points):
        lines.append(
            "!  a generator took nearly a whole processor: the figures may be the generator's"
        )
    if any(point.disturbed for point in report.points):
        lines.append(
            "~  another program was at work on this machine: the rates say little, the processor "
            "time for each operation a bit more"
        )
    lines += [f"{name}: {note}" for name, note in report.notes.items()]
    lines += [f"not measured: {what}" for what in report.missing.values()]
    lines += [f"WRONG READ: {what}" for what in report.wrong]
    return "\n".join(lines) + "\n"


def _table(points: list[Point], workload: str, known: Mapping[str, float]) -> list[str]:
    latency, cpu, ares = (
        f"{'p50 ms':>8} {'p99 ms':>8}",
        f"{'us CPU/op':>10} {'CPU servers':>12} {'generators':>12} {'others':>7}",
        f"{'ares ABD :':>16} {'ares EC :':>16}",
    )
    rows = [f"{workload:36} {'op/s (spread)':>18} {latency} {cpu} {ares}"]
    for point in points:
        load = "+".join(f"{share:.2f}" for share in point.generator_cpu) + (
            "!" if point.generator_bound else " "
        )
        abd, ec = ratio(point, "ABD", known), ratio(point, "EC", known)
        others = f"{point.others_cpu:.2f}{'~' if point.disturbed else ' '}"
        rows.append(
            f"  {point.peer:20} {spread(point.per_s):>32} {number(point.p50_ms.median):>8} "
            f"{number(point.p99_ms.median):>8} {point.cpu_us:>10,.0f} {point.server_cpu:>12.2f} "
            f"{load:>12} {others:>7} {abd:>16} {ec:>16}"
            + (f"   {point.failed} failed" if point.failed else "")
        )
    return rows


def _faults(report: BenchReport) -> list[str]:
    rows = [
        (
            f"{'under a fault':22} {'':18} {'throughput kept':>26} {'longest pause ms':>28} "
            f"{'pause before':>14}"
        )
    ]
    for fault in report.faults:
        rows.append(
            f"  {fault.peer:20} {fault.fault:18} {spread(fault.kept):>26} "
            f"{spread(fault.longest_pause_ms):>28} {number(fault.quiet_pause_ms.median):>14}"
            + (f"   {fault.failed} failed" if fault.failed else "")
        )
    return rows
