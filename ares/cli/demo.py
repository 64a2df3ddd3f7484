"""The command demo: a cluster of its own, taken through crashes and reconfigurations, and nothing left behind."""

import contextlib
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from msgspec import structs

from ares.cli.cluster_commands import START_TIMEOUT_S
from ares.cli.options import ALL, Common, command
from ares.errors import AresError, BadInput

if TYPE_CHECKING:
    from ares.cli.demo_show import Narrator
    from ares.cli.demo_steps import Story

SERVERS = 5
MEMBERS = 3


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    command(app, "demo", example="ares-cli demo", options=[name for name in ALL if name != "cluster"])(demo)


def demo(
    common: Common,
    directory: Annotated[Path | None, typer.Option("--dir", metavar="DIR", help="Where to make the temporary directory.", show_default=False)] = None,
    mib: Annotated[int, typer.Option(min=1, max=256, metavar="MIB", help="The size of the generated file.")] = 8,
) -> None:
    """Start a cluster, lose a server, move everything elsewhere twice while clients read and write, lose the consensus leader; then stop it all."""
    from rich.console import Console

    from ares.cli.demo_show import Narrator

    if directory is not None and not directory.is_dir():
        raise BadInput(f"there is no directory {directory} to work in; nothing was started")
    narrator = Narrator(Console(quiet=bool(common.json), highlight=False))
    begin = time.perf_counter()
    story: Story | None = None
    error: AresError | None = None
    try:
        with _signals_interrupt():
            for story in _cluster(common, directory, narrator, mib):
                _run(story)
    except AresError as failure:
        error = failure
    _report(common, narrator, story, error, time.perf_counter() - begin)
    if error is not None:
        raise typer.Exit(1)
