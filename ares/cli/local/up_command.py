"""The command up: every process of a cluster that does not run, started; and what is said of those that cannot be.

One server that cannot start, its disk gone for example, keeps none of the others from serving: a cluster is there to survive that. So it is left out,
by name and with the reason, and the exit status is 0 only if everything runs.
"""

import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ares.cli.options import Common
from ares.model.errors import AresError

if TYPE_CHECKING:
    from ares.cli.local.supervisor import Member, Supervisor
    from ares.cluster.settings import Settings

START_TIMEOUT_S = 60.0

LOST = "the servers kept their data in memory, so what was stored in the cluster is gone"
KEPT = "what was stored in the cluster is on its servers' disks"

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The cluster's directory; its file is DIR/cluster.toml.", show_default=False)]


class LeftOut(AresError):
    """Some processes of the cluster do not run; the others do."""


def up(
    common: Common,
    directory: Directory,
    detach: Annotated[bool, typer.Option("--detach", help="Return when everything serves, instead of staying until Ctrl-C.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew as an empty cluster: whatever its stopped servers hold is removed.")] = False,
) -> None:
    """Run all processes of a cluster here, or those that do not run any more; logs are in DIR/logs. Each server and consensus member is a process.

    With durability = "fsync" a server that starts again has everything that it ever acknowledged. What cannot start is left out and named; the exit
    status is 0 only if all run.
    """
    from ares.cli.local.cluster_data import lost_directories, started_before
    from ares.cli.local.supervisor import NotStarted, Supervisor
    from ares.cluster.settings import FILE_NAME, Settings

    settings = Settings.load(directory / FILE_NAME)
    settings.check_secrets()
    stop = _asked_to_stop()
    supervisor = Supervisor(settings.path)
    with supervisor.alone():
        settings, missing = _ready_to_start(directory, settings, supervisor, fresh)
        if not started_before(settings):  # the cluster file may still be put right
            supervisor.check_ports(missing)
        lost = lost_directories(settings, {member.id for member in missing})
        able = [member for member in missing if member.id not in lost]
        started = supervisor.start_what_can(able, common.timeout_s or START_TIMEOUT_S, stop.is_set)
        pids = supervisor.running() | started.pids
    left_out = {str(process.id): why for process in settings.processes() if (why := (lost | started.left_out).get(process.id))}
    if not pids:
        fresh_too = f"If everything is lost, `ares-cli up {directory} --fresh` begins anew as an empty cluster"
        raise NotStarted(f"nothing was started.\n{_reasons(left_out)}\nPut that right, then `ares-cli up {directory}` tries again. {fresh_too}")
    _show(common, settings, pids, list(started.pids), left_out)
    trouble = _trouble(directory, settings, pids, left_out)
    if trouble and detach:
        raise LeftOut(trouble)
    if not detach:
        if trouble:
            typer.echo(f"error: {trouble}", err=True)
        typer.echo("Ctrl-C stops the cluster" + ("." if settings.durable else ", and what it holds is lost then."), err=True)
        raise typer.Exit(_stay(supervisor, stop, KEPT if settings.durable else LOST) or int(bool(trouble)))


def _asked_to_stop() -> threading.Event:
    """Set from now on by a signal to end."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _ready_to_start(directory: Path, settings: "Settings", supervisor: "Supervisor", fresh: bool) -> "tuple[Settings, list[Member]]":
    """The settings to start with, those given or the renewed ones of a cluster that begins afresh; and what of the cluster is to be started."""
    from ares.cli.local.cluster_data import remove_data, started_before
    from ares.cli.local.supervisor import NotStarted, members_of
    from ares.cluster.cluster_file import renew_identities

    pids = supervisor.running()
    spent = [] if settings.durable else started_before(settings)
    missing = [member for member in members_of(settings) if member.id not in pids and not (pids and member.id in spent)]
    if pids and (fresh or not missing):
        who = ", ".join(f"{id} (pid {pid})" for id, pid in pids.items())
        raise NotStarted(f"{directory} is up already: {who}. `ares-cli down {directory}` stops it")
    if fresh:
        remove_data(settings)
        settings = renew_identities(settings)
        return settings, members_of(settings)
    if spent and not pids:
        why = f"{', '.join(spent)} ran before and stopped; {LOST}, and a server that forgot may not answer as if it had not"
        raise NotStarted(f"{why}. `ares-cli up {directory} --fresh` begins anew as an empty cluster")
    return settings, missing


def _show(common: Common, settings: "Settings", pids: dict[str, int], started: list[str], left_out: dict[str, str]) -> None:
    addresses = {process.id: process.address for process in settings.processes()}
    if common.json:
        data = {id: {"address": address, "pid": pids.get(id)} for id, address in addresses.items()}
        head = {"name": settings.name, "file": str(settings.path), "started": started, "left_out": left_out}
        return common.report(head | {"processes": data, "notes": list(settings.notes)}, "")
    from rich.console import Console
    from rich.table import Table

    part = f" in part: {len(pids)} of {len(addresses)} processes" if len(pids) < len(addresses) else ""
    table = Table("id", "role", "address", "pid", title=f"{settings.name} is up{part}", title_justify="left")
    for id, address in addresses.items():
        table.add_row(id, "server" if id in settings.servers else "consensus", address, str(pids.get(id, "-")))
    console = Console()
    console.print(table)
    if already := [id for id in addresses if id in pids and id not in started]:
        console.print(f"started now: {', '.join(started) or 'none'}; {', '.join(already)} ran already", highlight=False, soft_wrap=True)
    console.print(f"it began with {settings.initial.describe()}; `ares-cli status` tells what is in force", highlight=False, soft_wrap=True)
    for note in settings.notes:
        console.print(f"note: {note}", highlight=False, soft_wrap=True)
    return None


def _trouble(directory: Path, settings: "Settings", pids: dict[str, int], left_out: dict[str, str]) -> str:
    """What does not run, why, what that means and what to do; empty if everything does."""
    if not left_out:
        return ""
    lines = [f"some processes do not run; the others do.\n{_reasons(left_out)}"]
    serving = sum(id in pids for id in settings.initial.server_ids)
    if serving < settings.initial.quorum_size:
        initial = settings.initial
        lines.append(f"{serving} of the {initial.n} servers that the cluster began with run, and a quorum of these is {initial.quorum_size}")
    members = sum(id in pids for id in settings.members)
    if members <= len(settings.members) // 2 and settings.members:
        lines.append(f"{members} of {len(settings.members)} consensus members run, which is no majority: creating domains and reconfiguring wait")
    lines.append(f"Put that right, then `ares-cli up {directory}` starts what does not run")
    return "\n".join(lines)


def _reasons(left_out: dict[str, str]) -> str:
    """A line for each; one for several that have the same."""
    alike = {why: ", ".join(id for id, other in left_out.items() if other == why) for why in left_out.values()}
    return "\n".join(f"  {ids}: {why}" for why, ids in alike.items())


def _stay(supervisor: "Supervisor", stop: threading.Event, then: str) -> int:
    """Until asked to stop or nothing runs any more; returns the exit status."""
    worst = 0
    while not stop.wait(0.2):
        for id, status in supervisor.ended().items():
            typer.echo(f"{id} ended with status {status}; see {supervisor.log_path(id)}", err=True)
            worst = worst or int(status != 0)
        if not supervisor.running():
            typer.echo("no process of the cluster runs any more", err=True)
            return worst
    stopped = supervisor.stop()
    typer.echo(f"stopped {', '.join(stopped)}; {then}", err=True)
    return 0
