"""The changes of a bucket as they come: bucket watch."""

import json
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import structs

from ares.cli.local_files import reporting_interruption
from ares.cli.options import SharedOptions, print_line, with_manager
from ares.cli.terminal import printable

if TYPE_CHECKING:
    from ares.client.manager import Manager


def watch(
    common: SharedOptions,
    place: Annotated[
        str,
        typer.Argument(
            metavar="BUCKET[/PREFIX]",
            help="The bucket; with PREFIX, the objects whose keys begin with it.",
            show_default=False,
        ),
    ],
    since: Annotated[
        int | None,
        typer.Option(
            "--since",
            metavar="P",
            min=0,
            help="Go on at the position P, as an earlier watch printed it (default: now).",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print the changes of a bucket in their order, as they come, until Ctrl-C.

    A line begins with the position to go on from. With --json a line has all events of a change;
    marks, which have a position without events, come every few seconds.
    """
    bucket, _, prefix = place.partition("/")
    upcoming = since

    async def use(manager: "Manager") -> None:
        nonlocal upcoming
        opened = await manager.bucket(bucket)
        async for change in opened.watch(prefix, since=upcoming):
            if common.json:
                events = [structs.asdict(event) for event in change.events]
                print_line(json.dumps({"position": change.position, "events": events}))
            for event in () if common.json else change.events:
                key = printable(event.key)
                print_line(
                    f"{change.position:>8}  {event.kind:<6} {event.version:>8} "
                    f"{event.size:>12}  {key}"
                )
            upcoming = change.position

    def outcome() -> str:
        return "no change was told" if upcoming is None else f"--since {upcoming} goes on here"

    with reporting_interruption(outcome):
        with_manager(common, use)
