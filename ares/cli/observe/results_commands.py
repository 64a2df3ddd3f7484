"""Commands for operation logs of runs: import into a database, figures, and a page."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import to_builtins

from ares.cli.local_files import check_output, naming, reporting_interruption, write_output
from ares.cli.options import SharedOptions, print_line
from ares.cli.terminal import Show, printable, progress_bar, size
from ares.model.errors import BadInput

if TYPE_CHECKING:
    from ares.results.importing import Flaws, ImportReport, Progress
    from ares.results.influx import InfluxTarget

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="The database of results, which `results import` made.",
        show_default=False,
    ),
]
Directories = Annotated[
    list[Path],
    typer.Argument(
        metavar="DIR|FILE.tar.gz...",
        help="Directories with operation logs, at any depth, or archives of such.",
        show_default=False,
    ),
]
_COUNT_COLUMNS = {"clients": "n_clients", "ops": "n_ops", "failed": "n_unsuccessful"}
_TIME_COLUMNS = {"mean ms": "mean_s", "p50 ms": "p50_s", "p99 ms": "p99_s", "max ms": "max_s"}
_RATE_COLUMN = "throughput_ops_s_per_client"


def pack(
    common: SharedOptions,
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="A directory with operation logs, at any depth.", show_default=False
        ),
    ],
    archive: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.tar.gz", help="The new archive, whole or none.", show_default=False
        ),
    ],
) -> None:
    """Pack the runs in a directory into a new archive, which `results import` reads.

    The archive has operation logs and descriptions of runs, without times and owners: equal
    directories give equal archives. A present file is not overwritten.
    """
    from ares.results.archive import pack_runs

    check_output(archive)
    with (
        reporting_interruption(lambda: f"{archive} was not written"),
        progress_bar("packing") as show,
        naming(archive),
    ):
        packed = pack_runs(directory, archive, _in_mib(show, "packing"))
    common.report(
        to_builtins(packed),
        f"{archive}: {packed.runs} runs, {packed.files} files, {size(packed.bytes)} in "
        f"{size(packed.size)}",
    )


def import_(
    common: SharedOptions,
    directories: Directories,
    into: Annotated[
        Path,
        typer.Option(
            "--into",
            metavar="FILE",
            help="The database; made if it does not exist.",
            show_default=False,
        ),
    ],
    influx: Annotated[
        str,
        typer.Option(
            "--influx",
            metavar="URL",
            help="Also send the new operations to this InfluxDB, http://HOST:8086?org=O&bucket=B.",
        ),
    ] = "",
) -> None:
    """Import operation logs into a database: our own, and the published logs of ARES's authors.

    Importing again adds only new operations; an interrupted import continues where it stopped. An
    archive is unpacked in TMPDIR meanwhile. INFLUXDB_V2_TOKEN is the token for --influx.
    """
    from ares.results.archive import unpacked
    from ares.results.database import ResultsFailed, opened
    from ares.results.importing import import_runs, with_logs

    check_output(into)
    target = _target(influx) if influx else None
    sent, failed = 0, None
    kept = "the imported part is kept; the same command continues after it"
    with (
        reporting_interruption(lambda: kept),
        progress_bar("importing") as show,
        unpacked(directories, _in_mib(show, "unpacking")) as (tops, names),
    ):
        with_logs(tops, names)  # before a database is made
        with opened(into, create=True) as database:
            report = import_runs(database, tops, _in_mib(show, "importing"), names)
            if target:
                from ares.results.influx import send

                def so_far(count: int) -> None:
                    nonlocal sent
                    sent = count
                    show("sending", count, 0, "operations")

                try:
                    send(database, target, so_far)
                except ResultsFailed as error:  # the imported operations are still reported
                    failed = error
    sending = [f"{sent} operations were sent to {target.shown}"] if target else []
    common.report(
        to_builtins(report) | {"sent": sent}, "\n".join([*_import_lines(report), *sending])
    )
    if failed:
        raise failed


def _in_mib(show: Show, stage: str) -> "Progress":
    """Return a function that shows the progress of a stage, told in bytes."""
    return lambda done, total, name: show(stage, done >> 20, total >> 20, f"MiB, {printable(name)}")


def _target(url: str) -> "InfluxTarget":
    try:
        from ares.results.influx import parse_target
    except ImportError as error:
        raise BadInput(
            f"--influx: {error.name} is not installed here: pip install 'ares-storage[results]'. "
            "Nothing was imported"
        ) from error
    return parse_target(url)


def _import_lines(report: "ImportReport") -> list[str]:
    lines = [
        (
            f"{report.runs} runs; {report.files} files had new lines: {report.operations} "
            f"operations, {report.events} events, {report.spans} spans"
        )
        + (f", {report.points} points of load" if report.points else "")
    ]
    if report.read_again:
        lines.append(f"{report.read_again} files had been replaced, and were read again")
    if report.passed_over:
        lines.append(f"{report.passed_over} lines are of no operation")
    if report.left_out:
        lines.append(
            f"{report.left_out} spans are more than the database takes of one run, and were left "
            "out"
        )
    for what, flaws in (
        ("copies", report.copies),
        ("malformed lines", report.malformed),
        ("lines without an end", report.unfinished),
        ("unreadable", report.unreadable),
    ):
        lines += _flawed(what, flaws)
    return lines


def _flawed(what: str, flaws: "Flaws") -> list[str]:
    """Return the number of operations, and a line for each file."""
    lines = [f"{flaws.count} {what}:"] if flaws.count else []
    for path, line, why in flaws.first:
        more = flaws.files[path] - 1
        lines.append(
            f"  {printable(path)}{f':{line}' if line else ''}: {printable(why)}"
            + (f" (and {more} more in this file)" if more else "")
        )
    more = len(flaws.files) - len(flaws.first)
    return [*lines, f"  and more in {more} other files"] if more else lines


def summary(
    common: SharedOptions,
    file: File,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="All columns, as lines of comma-separated values.")
    ] = False,
) -> None:
    """Show the figures of each run and operation."""
    from ares.results.database import opened
    from ares.results.summary import SUMMARY_COLUMNS, cell, summarise

    if as_csv and common.json:
        raise BadInput("--csv and --json: choose one")
    with opened(file) as database:
        rows = list(summarise(database))
    if common.json:
        common.report(rows, "")
    elif as_csv:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(SUMMARY_COLUMNS)
        writer.writerows([cell(row[name]) for name in SUMMARY_COLUMNS] for row in rows)
        print_line(text.getvalue().removesuffix("\n"))
    else:
        print_line("\n".join(_table(rows)) or "no operations were measured in these runs")


def _table(rows: list[dict[str, Any]]) -> list[str]:
    """Group the figures by scenario; a run is named by the last part of its path."""
    table = [("run", "op", *_COUNT_COLUMNS, *_TIME_COLUMNS, "client ops/s")]
    for row in rows:
        figures = [
            "-" if row[name] is None else f"{1000 * row[name]:.3f}"
            for name in _TIME_COLUMNS.values()
        ]
        rate = "-" if row[_RATE_COLUMN] is None else f"{row[_RATE_COLUMN]:.3f}"
        run = printable(row["run_dir"].rpartition("/")[2].removeprefix("logs_"))
        table.append(
            (run, row["op"], *(str(row[name]) for name in _COUNT_COLUMNS.values()), *figures, rate)
        )
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        "  ".join(
            f"{text:{'<' if place < 2 else '>'}{widths[place]}}" for place, text in enumerate(line)
        )
        for line in table
    ]
    scenarios = [printable(row["scenario"] or "(no scenario)") for row in rows]
    sections = [
        f"\n{here}\n{line}" if here != before else line
        for line, here, before in zip(lines[1:], scenarios, [None, *scenarios], strict=False)
    ]
    return [lines[0], *sections] if rows else []


def report(
    common: SharedOptions,
    file: File,
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="The page to write, wholly or not at all.",
            show_default=False,
        ),
    ],
) -> None:
    """Make a page of the figures, timelines and traces in a database.

    The page is a single HTML file and needs no network. For every scenario: latencies and
    throughput over the parameters, distributions, phases, timelines with faults, traces, and the
    runs behind each point.
    """
    from ares.results.database import opened
    from ares.results.page import render

    check_output(output)
    if file.exists() and output.exists() and output.samefile(file):
        raise BadInput(
            f"{output} is the database itself, which the page would replace: name another file "
            "for the page; nothing was written"
        )
    with (
        reporting_interruption(lambda: f"{output} is as it was"),
        opened(file) as database,
        progress_bar("making the page") as show,
    ):
        page = render(
            database,
            file.name,
            lambda done, total, name: show(
                "making the page", done, total, f"runs, {printable(name)[-40:]}"
            ),
        ).encode()
    with naming(output):
        write_output(output, page)
    common.report(
        {"file": str(output), "bytes": len(page)},
        f"{output}: {size(len(page))}; open it in a browser",
    )
