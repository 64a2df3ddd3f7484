"""Commands to show the time spent in the phases of an operation, run now or read from a file."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ares.cli.local_files import STANDARD_STREAM
from ares.cli.object_commands import Domain, Input, Key, read_input
from ares.cli.options import SharedOptions
from ares.model.errors import AresError, BadInput
from ares.model.identity import DEFAULT_DOMAIN
from ares.platform import loop

if TYPE_CHECKING:
    from ares.client.store import ObjectStore
    from ares.tracing.spans import Span

TRACES_SHOWN = 20


def read(common: SharedOptions, key: Key, domain: Domain = DEFAULT_DOMAIN) -> None:
    """Read the object KEY, and show where the time went. Its value is not printed."""
    _traced(common, domain, lambda store: store.read(key))


def write(
    common: SharedOptions,
    key: Key,
    file: Input = STANDARD_STREAM,
    domain: Domain = DEFAULT_DOMAIN,
) -> None:
    """Store a file, or standard input, as the object KEY, and show where the time went."""
    value = read_input(file, common.settings().limits.value_bytes)
    _traced(common, domain, lambda store: store.write(key, value))


def show(
    common: SharedOptions,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Spans as lines of JSON: OTEL_TRACES_EXPORTER=file:FILE writes them.",
        ),
    ],
    most: Annotated[
        int, typer.Option("--most", min=1, help="Show at most this many traces, the longest first.")
    ] = TRACES_SHOWN,
) -> None:
    """Show traces from files; those of several processes are joined."""
    from ares.tracing.tree import read_spans

    traces: dict[bytes, list[Span]] = {}
    for file in files:
        bad: list[int] = []
        try:
            with file.open("rb") as lines:
                for span in read_spans(lines, bad):
                    traces.setdefault(span.trace, []).append(span)
        except OSError as error:
            raise BadInput(f"{file}: cannot be read: {error.strerror}") from error
        if bad:
            typer.echo(
                f"note: {file}: {len(bad)} lines are no spans, or were cut off, and are passed "
                f"over; the first is line {bad[0]}",
                err=True,
            )
    if not traces:
        raise BadInput(
            f"{', '.join(map(str, files))}: no traces are in there, as "
            "OTEL_TRACES_EXPORTER=file:PATH writes them"
        )
    longest = sorted(
        traces.values(),
        key=lambda spans: max(span.ended_ns - span.began_ns for span in spans),
        reverse=True,
    )
    _print(common, longest[:most])
    if len(longest) > most and not common.json:
        typer.echo(
            f"{len(longest) - most} more traces are shorter; --most {len(longest)} shows all"
        )


def _traced(
    common: SharedOptions, domain: str, use: "Callable[[ObjectStore], Awaitable[object]]"
) -> None:
    """Run the operation and show its time by phase, also after a failure."""
    from ares.client.connect import PendingConnection
    from ares.cluster.tables import TracingSettings
    from ares.tracing.tracer import Tracer

    settings = common.settings()
    spans: list[Span] = []
    failed: list[AresError] = []
    tracer = Tracer(TracingSettings(exporter="console", parent=False), spans.extend)

    async def work() -> None:
        async with PendingConnection(settings, tracer) as manager:
            try:
                await use(await manager.domain(domain))
            except AresError as error:
                failed.append(error)

    loop.run(work())
    if roots := [span for span in spans if not span.parent]:
        # no spans if the operation was refused before it began
        last = max(roots, key=lambda span: span.began_ns)
        _print(common, [[span for span in spans if span.trace == last.trace]])
    if failed:
        raise failed[0]


def _print(common: SharedOptions, traces: "list[list[Span]]") -> None:
    """Print the traces; with --json, a list of spans for each trace."""
    from ares.tracing.export import as_otlp
    from ares.tracing.tree import TREE_LEGEND, Tree

    trees = map(Tree, traces)
    text = "\n\n".join("\n".join([*tree.lines(), tree.sentence()]) for tree in trees)
    text += f"\n({TREE_LEGEND})"
    common.report([[as_otlp(span) for span in spans] for spans in traces], text)
