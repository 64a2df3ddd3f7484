"""The command demo: a temporary cluster, taken through crashes and reconfigurations."""

import contextlib
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import structs

from ares.cli.local.init_command import Transport
from ares.cli.local.up_commands import START_TIMEOUT_S
from ares.cli.options import SharedOptions
from ares.model.errors import AresError, BadInput

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from ares.cli.demo.demo_story import DemoStory
    from ares.cli.demo.narrator import Narrator
    from ares.cli.local.supervisor import Supervisor
    from ares.cluster.settings import Settings
    from ares.cluster.tables import TransportName

DEMO_SERVERS = 5
DEMO_MEMBERS = 3


def demo(
    common: SharedOptions,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Where to make the temporary directory.",
            show_default=False,
        ),
    ] = None,
    mib: Annotated[
        int, typer.Option(min=1, max=256, metavar="MIB", help="The size of the generated file.")
    ] = 8,
    transport: Transport = "native",
) -> None:
    """Run a small cluster through crashes and reconfigurations while clients use it.

    A server is killed and comes back with its data; all objects move to other servers, twice; the
    leader is lost.

    At the end every process is killed at once and started again: all written data is back.
    Afterwards the cluster is stopped and removed, except the trace of a read, a small file in the
    cache for `ares-cli trace`.
    """
    from rich.console import Console

    from ares.cli.demo.demo_story import DemoStory
    from ares.cli.demo.narrator import Narrator
    from ares.platform.loop import run

    if directory is not None and not directory.is_dir():
        raise BadInput(f"there is no directory {directory} to work in; nothing was started")
    narrator = Narrator(Console(quiet=bool(common.json), highlight=False))
    story = DemoStory(narrator, mib)
    begin = time.perf_counter()
    try:
        with (
            _signals(signal.default_int_handler),
            _cluster(narrator, directory, transport) as (settings, supervisor),
        ):
            run(story.run(structs.replace(common, cluster=settings.path).settings(), supervisor))
    except AresError as error:
        if not common.json:
            raise
        common.report({"ok": False, "error": str(error)} | _summary(narrator, story, begin), "")
        raise typer.Exit(1) from error
    summary = {"ok": True} | _summary(narrator, story, begin)
    if common.json:
        common.report(summary, "")
    else:
        narrator.close(summary)


@contextlib.contextmanager
def _cluster(
    narrator: "Narrator", directory: Path | None, transport: "TransportName"
) -> "Iterator[tuple[Settings, Supervisor]]":
    """Make a cluster in a temporary directory and run the processes; remove both at the end."""
    from ares.cli.local.supervisor import Supervisor, members_of
    from ares.cluster.new_cluster import InitPlan, create

    home = tempfile.TemporaryDirectory(prefix="ares-demo-", dir=directory)
    plan = InitPlan(DEMO_SERVERS, DEMO_MEMBERS, base_port=0, transport=transport)
    settings = create(Path(home.name), plan)
    supervisor = Supervisor(settings.path)
    try:
        with narrator.step(
            f"start {DEMO_SERVERS} storage servers and {DEMO_MEMBERS} consensus members, each a "
            f"process of its own, {transport} transport"
        ) as step:
            with supervisor.alone():
                pids = supervisor.start(members_of(settings), START_TIMEOUT_S, lambda: False)
            step.note = (
                f"{' '.join(f'{id}={pid}' for id, pid in pids.items())} (process ids)\n"
                f"in {home.name}"
            )
            step.data = {"pids": pids, "transport": settings.transport}
        yield settings, supervisor
    finally:
        with _signals(signal.SIG_IGN), narrator.step("stop every process, remove the directory"):
            supervisor.stop()
            home.cleanup()


def _summary(narrator: "Narrator", story: "DemoStory", begin: float) -> dict[str, Any]:
    return {
        "seconds": round(time.perf_counter() - begin, 2),
        "operations": len(story.traffic.samples),
        "failures": len(story.traffic.failures),
        "objects_compared": story.objects_read,
        "bytes": story.bytes,
        "crashes_survived": story.killed,
        "trace": str(story.trace or ""),
        "phases": [story.traffic.summary(phase) for phase in story.phases],
        "steps": narrator.steps,
    }


@contextlib.contextmanager
def _signals(
    handler: "signal.Handlers | Callable[[int, FrameType | None], None]",
) -> Iterator[None]:
    """Handle Ctrl-C, SIGTERM and the end of the terminal by ``handler`` inside the context."""
    before = {
        number: signal.signal(number, handler)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
