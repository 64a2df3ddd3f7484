"""The command torture: faults on real processes, and a verdict on the clients' answers."""

import secrets
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ares.cli.local.init_command import Durability, Transport
from ares.cli.options import SharedOptions
from ares.cli.terminal import STATUS_INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from ares.testing.torture.torture_run import TortureProgress
    from ares.testing.torture.verdict import Summary

Workload = Literal["objects", "log"]
MINUTES_MAX = 24 * 60.0
PROGRESS_LINE_S = 5.0
_FINDINGS_SHOWN_MAX = 10


def torture(
    common: SharedOptions,
    minutes: Annotated[
        float,
        typer.Option(
            min=0.1, max=MINUTES_MAX, help="How long to go on; starting and judging come on top."
        ),
    ] = 1.0,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed of the nemesis' and the clients' choices. Default: random.",
            show_default=False,
        ),
    ] = None,
    servers: Annotated[int, typer.Option(min=3, max=32, help="How many storage servers.")] = 7,
    consensus: Annotated[
        int,
        typer.Option(
            min=1,
            max=15,
            help="How many consensus members; never more than a minority is hurt at once.",
        ),
    ] = 3,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The directory of the results. Default: a new directory.",
            show_default=False,
        ),
    ] = None,
    durability: Annotated[
        Durability,
        typer.Option(help="memory: a killed server comes back empty, under a new identity."),
    ] = "fsync",
    etcd: Annotated[
        bool,
        typer.Option(
            "--etcd",
            help="Use an etcd with as many members as --consensus says; the nemesis hurts them "
            "too. Needs the program etcd.",
        ),
    ] = False,
    workload: Annotated[
        Workload,
        typer.Option(
            help="objects: write, read and delete keys. log: append to, read and trim a log on "
            "moving chains."
        ),
    ] = "objects",
    partitions: Annotated[
        bool,
        typer.Option(
            "--partitions/--no-partitions", help="Cut processes off from each other, if possible."
        ),
    ] = True,
    transport: Transport = "native",
) -> None:
    """Kill, stop, cut off and reconfigure a cluster of its own under load, and judge the answers.

    All processes run on this machine and in a temporary directory; none is left running. Partitions
    need root, iproute2 and iptables. Exit status 1: a write or an append was lost, a read was
    stale, or an operation failed although enough servers were well.
    """
    from rich.console import Console

    from ares.platform.trusted_files import restrict_writes_to_user
    from ares.testing.torture.torture_run import Options
    from ares.testing.torture.torture_run import torture as run

    restrict_writes_to_user()
    console = Console(stderr=True, highlight=False)
    number = secrets.randbelow(1_000_000) if seed is None else seed
    directory = Path(tempfile.mkdtemp(prefix="ares-torture-out-")) if out is None else out
    options = Options(
        60 * minutes,
        number,
        directory,
        servers,
        consensus,
        partitions,
        etcd,
        durability,
        workload,
        transport,
    )
    deciders = "etcd members" if etcd else "consensus members"
    try:
        with console.status(
            f"seed {number}: starting {servers} servers and {consensus} {deciders}"
        ) as status:
            summary = run(
                options, _progress(console, status.update, f"seed {number}"), console.print
            )
    except KeyboardInterrupt:
        typer.echo("interrupted: all processes are stopped, and there is no verdict", err=True)
        raise typer.Exit(STATUS_INTERRUPTED) from None
    _report(common, summary, directory)
    raise typer.Exit(0 if summary.ok else 1)


def _progress(
    console: "Console", update: "Callable[[str], None]", name: str
) -> "Callable[[TortureProgress], None]":
    """Return a function that shows progress.

    Progress is a changing line on a terminal, else an occasional line.
    """
    next_line_s = PROGRESS_LINE_S

    def show(progress: "TortureProgress") -> None:
        nonlocal next_line_s
        counts, reconfigurations = progress.counts, progress.reconfigurations
        line = (
            f"{name}: {progress.seconds:.0f} s, {counts.operations} operations ({counts.errors} "
            f"failed), {progress.faults} faults, {reconfigurations['done']} reconfigurations; "
            f"configuration {progress.configuration}"
        )
        if console.is_terminal:
            update(line)
        elif progress.seconds >= next_line_s:
            next_line_s += PROGRESS_LINE_S
            console.print(line, soft_wrap=True)

    return show


def _report(common: SharedOptions, summary: "Summary", directory: Path) -> None:
    import msgspec

    if common.json:
        written = {
            "history": str(directory / "history.jsonl"),
            "timeline": str(directory / "timeline.html"),
        }
        return common.report(
            {"ok": summary.ok, "verdict": summary.verdict} | msgspec.to_builtins(summary) | written,
            "",
        )
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    for table in _tables(summary):
        console.print(table)
    for title, found in (
        ("violation", summary.violations),
        ("undecided", summary.undecided),
        ("liveness failure", summary.liveness_failures),
        ("problem", summary.problems),
        ("note", summary.notes),
    ):
        for text in found[:_FINDINGS_SHOWN_MAX]:
            console.print(f"[bold]{title}:[/] {escape(text)}", soft_wrap=True)
        if len(found) > _FINDINGS_SHOWN_MAX:
            console.print(f"... and {len(found) - _FINDINGS_SHOWN_MAX} more")
    console.print(
        f"written: {directory / 'history.jsonl'}, {directory / 'timeline.html'}", soft_wrap=True
    )
    console.print(
        f"[bold {'green' if summary.ok else 'red'}]seed {summary.seed}: "
        f"{escape(summary.verdict)}[/]",
        soft_wrap=True,
    )
    return None


def _tables(summary: "Summary") -> list[Any]:
    from rich.table import Table

    outcomes = ("ok", "failed", "unknown", "abandoned")
    operations = Table(
        "operations",
        *outcomes,
        title=f"{summary.seconds:g} s, seed {summary.seed}, {summary.transport} transport",
        title_justify="left",
    )
    for kind, counts in summary.operations.items():
        operations.add_row(kind, *(str(counts.get(outcome, 0)) for outcome in outcomes))
    happened = Table("faults", "count")
    for kind, count in summary.faults.items():
        happened.add_row(kind, str(count))
    for kind, count in summary.reconfigurations.items():
        happened.add_row(f"reconfigurations {kind}", str(count))
    latency = Table("latency of successes", "count", "p50 ms", "p99 ms", "max ms")
    for title, row in (
        ("overall", summary.latency),
        ("while a process was in trouble", summary.latency_during_faults),
    ):
        times_ms = (row.p50_ms, row.p99_ms, row.max_ms)
        latency.add_row(
            title, str(row.count), *("" if value is None else f"{value:g}" for value in times_ms)
        )
    latency.add_row(
        "longest pause of all clients together", "", "", "", f"{1000 * summary.longest_pause_s:.0f}"
    )
    return [operations, happened, latency]
