"""The report as one HTML page that needs nothing else: curves, bars and the table."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from experiments.bench.faults import QUIET_PART
from experiments.bench.figures import Point, Report
from experiments.bench.load import CURVE_S
from experiments.bench.plot import Axis, Series, bars, line_chart
from experiments.bench.text import number, ratio, spread

_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; color: #1d2433; background: #fff; max-width: 1480px; margin: 24px auto; padding: 0 16px; }
h1 { font-size: 22px; margin-bottom: 4px; } h2 { font-size: 17px; margin: 28px 0 8px; }
svg { width: 100%; max-width: 860px; font-family: system-ui, sans-serif; fill: #38424f; display: block; margin: 8px 0 18px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 3px 9px; border-bottom: 1px solid #e3e7ed; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } th { font-weight: 600; color: #566074; }
.note { color: #566074; max-width: 100ch; } .bad { color: #b3261e; font-weight: 600; }
"""


def document(title: str, body: Iterable[str]) -> str:
    """A whole page of these pieces of HTML."""
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return f"<!doctype html>\n<html lang=en><head>{head}</head><body>\n<h1>{escape(title)}</h1>\n{chr(10).join(body)}\n</body></html>\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The first column to the left, the others to the right."""
    lines = ["<tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows]
    return f'<div class="wide"><table>{chr(10).join(lines)}</table></div>'


def note(words: str, bad: bool = False) -> str:
    """A paragraph below a table."""
    return f'<p class="{"bad" if bad else "note"}">{escape(words)}</p>'


def page(report: Report, known: Mapping[str, float]) -> str:
    """The whole report."""
    body = [note(report.machine), note(report.settings), *(note(f"wrong read: {what}", bad=True) for what in report.wrong)]
    body += _curves(report)
    workloads = list(dict.fromkeys(point.workload for point in report.points))
    body += [_bars([point for point in report.points if point.workload == name]) for name in workloads]
    for name in workloads:
        body += [f"<h2>{escape(name)}</h2>", _table([point for point in report.points if point.workload == name], known)]
    body.append(
        note(
            "ares : how many times the rate of that store ares has, with the same durability; in brackets the baseline's. "
            "! : a generator took "
            "nearly a whole processor, and may be what was measured. ~ : something else was at work on this machine. servers, generators and others: "
            "processors."
        )
    )
    if report.faults:
        body += _faults(report)
    body += ["<h2>Notes</h2>", *(note(f"{name}: {words}") for name, words in report.notes.items())]
    body += [note(f"not measured: {what}") for what in report.missing.values()]
    return document("ares beside other stores", body)


def _curves(report: Report) -> list[str]:
    """Throughput and latency, by the number of clients; a chart for each durability."""
    charts, hues = [], _hues(report)
    for durability, words in (("memory", "acknowledged in memory"), ("fsync", "acknowledged from disk")):
        mine = [point for point in report.points if report.durabilities[point.peer] == durability and point.value_bytes == 10]
        lines = []
        for peer in dict.fromkeys(point.peer for point in mine):
            points = sorted((point for point in mine if point.peer == peer), key=lambda point: point.clients)
            places = [(it.per_s.median, it.p50_ms.median, f"{peer}, {it.workload}: {spread(it.per_s)} op/s") for it in points]
            lines.append(Series(peer, places, hues[peer]))
        charts.append(line_chart(f"10 B, half reads, {words}: more clients, further right", Axis("op/s"), Axis("median latency, ms"), lines))
    return charts


def _bars(points: list[Point]) -> str:
    if points[0].value_bytes == 10:
        return ""
    mib = points[0].value_bytes / 2**20
    if mib < 1:
        return bars(points[0].workload, "op/s", [(point.peer, point.per_s.median) for point in points])
    return bars(points[0].workload, "MiB/s", [(point.peer, point.per_s.median * mib) for point in points])


def _table(points: list[Point], known: Mapping[str, float]) -> str:
    head = (
        "",
        "op/s (spread)",
        "ares ABD :",
        "ares EC :",
        "p50 ms",
        "p99 ms",
        "read p50",
        "write p50",
        "µs CPU/op",
        "servers",
        "generators",
        "others",
        "memory MiB",
        "failed",
    )
    rows = [
        (
            point.peer,
            spread(point.per_s),
            ratio(point, "ABD", known),
            ratio(point, "EC", known),
            number(point.p50_ms.median),
            number(point.p99_ms.median),
            number(point.read_p50_ms),
            number(point.write_p50_ms),
            f"{point.cpu_us:,.0f}",
            f"{point.server_cpu:.2f}",
            " + ".join(f"{share:.2f}" for share in point.generator_cpu) + (" !" if point.generator_bound else ""),
            f"{point.others_cpu:.2f}" + (" ~" if point.disturbed else ""),
            f"{point.resident_mib:,.0f}",
            str(point.failed or ""),
        )
        for point in points
    ]
    return table(head, rows)


def _hues(report: Report) -> dict[str, int]:
    """Every store looks the same in all charts."""
    return {peer: number for number, peer in enumerate(report.durabilities)}


def _faults(report: Report) -> list[str]:
    faults, hues = report.faults, _hues(report)
    head = ("", "fault", "throughput kept", "longest pause, ms", "before the fault, ms", "failed")
    rows = [
        (one.peer, one.fault, spread(one.kept), spread(one.longest_pause_ms), number(one.quiet_pause_ms.median), str(one.failed or ""))
        for one in faults
    ]
    charts = []
    for fault in dict.fromkeys(one.fault for one in faults):
        lines = [
            Series(one.peer, [(step * CURVE_S, rate, "") for step, rate in enumerate(one.curve)], hues[one.peer], marks=False)
            for one in report.faults
            if one.fault == fault
        ]
        charts.append(line_chart(f"{fault}, from {QUIET_PART:.0%} of the time on", Axis("seconds", log=False), Axis("op/s", log=False), lines))
    return ["<h2>Under a fault</h2>", table(head, rows), *charts]
