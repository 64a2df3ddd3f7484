"""The command top: a live view of a cluster."""

import asyncio
import shutil
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ares.cli.local_files import reporting_interruption
from ares.cli.options import SharedOptions, print_line, with_manager
from ares.model.errors import BadInput

if TYPE_CHECKING:
    from ares.cli.observe.top_watch import TopWatch
    from ares.client.manager import Manager

INTERVAL_S, INTERVAL_S_MIN, INTERVAL_S_MAX = 1.0, 0.2, 3600.0
SIGNALLED = 128
"""The difference between the exit status of a program ended by a signal and the signal's number."""


def top(
    common: SharedOptions,
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="Print one view after one interval and end. With --json: one JSON object.",
        ),
    ] = False,
    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            metavar="S",
            min=INTERVAL_S_MIN,
            max=INTERVAL_S_MAX,
            help="Seconds between two views.",
        ),
    ] = INTERVAL_S,
) -> None:
    """Watch the cluster: rates and times of operations, servers, disks, possible failures, moves.

    Press q to quit. Times are measured at the servers. Clients also wait for the queue before, the
    network and a quorum. A key with the role `read` is enough.

    Into a pipe or a file the command prints a header, and a line for each interval until Ctrl-C.

    With --once the exit status is 1 if a domain has no quorum.
    """
    if common.json and not once:
        raise BadInput("--json goes with --once: the live view and its lines are for people")
    settings = common.settings()

    async def watched(manager: "Manager") -> int:
        from ares.cli.observe.top_screen import can_be_painted
        from ares.cli.observe.top_watch import TopWatch

        watch = TopWatch(manager, settings, interval)
        if once:
            return await _once(common, watch)
        if can_be_painted():
            return await _live(watch, settings.name, interval)
        return await _by_lines(watch)

    with reporting_interruption(lambda: "`top` only looks, nothing was changed"):
        status = with_manager(common, watched)
    if status:
        raise typer.Exit(status)


async def _once(common: SharedOptions, watch: "TopWatch") -> int:
    from ares.cli.observe.top_view import COLUMNS_MIN, ROWS_MIN, lines

    looks = watch.looks()
    await anext(looks)
    figures = await anext(looks)  # a rate needs two looks
    await looks.aclose()
    columns, rows = (
        max(shutil.get_terminal_size().columns, COLUMNS_MIN),
        ROWS_MIN + 2 * len(figures["servers"]) + len(figures["domains"]),
    )
    if common.json:
        common.report(figures, "")
    else:
        print_line("\n".join(lines(figures, columns, rows, sys.stdout.isatty(), live=False)))
    return int(any(domain["reads_survive"] < 0 for domain in figures["domains"]))


async def _by_lines(watch: "TopWatch") -> int:
    from ares.cli.observe.top_lines import header, line

    looks = watch.looks()
    await anext(looks)  # the first look has no rates
    print_line(header())
    async for figures in looks:
        print_line(line(figures))
    return 0


async def _live(watch: "TopWatch", name: str, interval_s: float) -> int:
    from ares.cli.observe.top_history import TopHistory
    from ares.cli.observe.top_screen import TopScreen
    from ares.cli.observe.top_view import lines

    screen = TopScreen()
    figures: dict[str, Any] = {}
    history = TopHistory(interval_s)

    def paint() -> None:
        screen.paint(
            lines(figures, *screen.size)
            if figures
            else [f"asking the servers of {name} ..."[: screen.size[0]]]
        )

    async def look() -> None:
        async for seen in watch.looks():
            figures.update(seen, history=history.note(seen["operations"]))
            paint()

    with screen.shown(paint):
        paint()
        looking, ended = asyncio.create_task(look()), asyncio.create_task(screen.ended.wait())
        await asyncio.wait((looking, ended), return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if looking.done():
            looking.result()
        looking.cancel()
        await asyncio.wait((looking,))
    return SIGNALLED + screen.signal if screen.signal else 0
