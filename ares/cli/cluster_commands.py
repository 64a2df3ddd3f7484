"""Commands that make a cluster and run its processes: init, up, down, server, consensus."""

import signal
import threading
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ares.cli.options import Common, command
from ares.errors import BadInput

if TYPE_CHECKING:
    from ares.cli.supervisor import Member, Supervisor
    from ares.runtime.settings import Settings

START_TIMEOUT_S = 30.0

_LOST = "the servers kept their data in memory, so what was stored in the cluster is gone"
_KEPT = "what was stored in the cluster is on its servers' disks"


class Dap(StrEnum):
    """The data access primitives: replication or erasure coding."""

    ABD = "abd"
    EC = "ec"


class Durability(StrEnum):
    """What a server's acknowledgement outlasts."""

    MEMORY = "memory"
    FSYNC = "fsync"


FSYNC = Durability.FSYNC


class Security(StrEnum):
    """Keys for everybody, or, written out to accept addresses that others can reach, none."""

    CURVE = "curve"
    NONE = "none"


Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The cluster's directory; its file is DIR/cluster.toml.", show_default=False)]
File = Annotated[Path, typer.Argument(metavar="FILE", help="The cluster file.", show_default=False)]
Id = Annotated[str, typer.Option("--id", help="Which of the file's processes to be.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add these commands to the app."""
    command(app, "init", example="ares-cli init ./cluster --servers 5 --dap ec --k 3", options=["json"])(init)
    command(app, "up", example="ares-cli up ./cluster --detach", options=["json", "timeout_s"])(up)
    command(app, "down", example="ares-cli down ./cluster", options=["json"])(down)
    command(app, "server", example="ares-cli server ./cluster/cluster.toml --id s0", options=[])(server)
    command(app, "consensus", example="ares-cli consensus ./cluster/cluster.toml --id r0", options=[])(consensus)


def init(
    common: Common,
    directory: Directory,
    servers: Annotated[int, typer.Option(min=1, help="How many storage servers.")] = 5,
    consensus: Annotated[int | None, typer.Option(min=0, help="How many consensus members; an odd number is best. Default: 3, or an etcd.")] = None,
    dap: Annotated[Dap, typer.Option(help="Replicate values (abd) or erasure-code them (ec).")] = Dap.ABD,
    k: Annotated[int | None, typer.Option(help="With ec: how many elements rebuild a value. Default: the most that survives one crash.")] = None,
    delta: Annotated[int | None, typer.Option(help="With ec: how many writers at once. Default: 8.")] = None,
    host: Annotated[str, typer.Option(help="The address that everything listens on.")] = "127.0.0.1",
    base_port: Annotated[int, typer.Option(min=0, max=65535, help="The first of the ports, counted up from there; 0: choose free ones.")] = 7400,
    security: Annotated[Security | None, typer.Option(help="curve: everybody has a key. none: accept an address that others can reach.")] = None,
    allow_no_faults: Annotated[bool, typer.Option("--allow-no-faults", help="Accept a cluster that one crash stops.")] = False,
    durability: Annotated[Durability, typer.Option(help="fsync: what is acknowledged is on the disk. memory: lost when servers stop.")] = FSYNC,
    etcd: Annotated[str | None, typer.Option(metavar="HOST:PORT[,...]", help="An etcd that runs already decides. No consensus members then.")] = None,
    spares: Annotated[int, typer.Option(min=0, help="How many more servers, in no configuration, that can replace others.")] = 0,
    autopilot: Annotated[bool, typer.Option("--autopilot", help="Replace servers that are gone by spares, without being asked.")] = False,
) -> None:
    """Write the file and secrets of a new cluster. DIR is made if need be; nothing is ever overwritten."""
    from ares.runtime.cluster_file import Plan, create

    endpoints = tuple(part.strip() for part in (etcd or "").split(",") if part.strip())
    members = (0 if endpoints else 3) if consensus is None else consensus
    plan = Plan(servers, members, dap.value, k, delta, host, base_port, security, allow_no_faults, durability.value, endpoints, spares, autopilot)
    settings = create(directory, plan)
    initial = settings.initial
    lines = [f"wrote {directory / settings.path.name}: {settings.name}, {_deciders(settings)}", initial.describe()]
    if dap is Dap.EC and k is None:
        lines.append(f"k = {initial.k} was chosen: the largest with which {initial.n} servers survive a crash")
    if settings.security is not None:
        lines.append(f"keys for everybody are in {settings.security.directory}; the client admin is authorised, `ares-cli keys new` makes more")
    lines += _spare(settings) + [f"note: {note}" for note in settings.notes]
    lines += ["next:", f"  ares-cli up {directory} --detach", f"  ares-cli -c {settings.path} status", f"  ares-cli down {directory}"]
    data = {
        "file": str(settings.path),
        "name": settings.name,
        "configuration": initial.describe(),
        "k": initial.k,
        "crashes_survived": initial.crashes_survived,
        "servers": {id: server.address for id, server in settings.servers.items()},
        "consensus": {id: member.address for id, member in settings.members.items()},
        "etcd": [] if settings.etcd is None else list(settings.etcd.endpoints),
        "notes": list(settings.notes),
    }
    common.report(data, "\n".join(lines))


def up(
    common: Common,
    directory: Directory,
    detach: Annotated[bool, typer.Option("--detach", help="Return when everything serves, instead of staying until Ctrl-C.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew as an empty cluster: whatever its stopped servers hold is removed.")] = False,
) -> None:
    """Run all processes of a cluster here, or those that do not run any more; logs are in DIR/logs. Each server and consensus member is a process.

    With durability = "fsync" a server that starts again has everything that it ever acknowledged.
    """
    from ares.cli.supervisor import Supervisor
    from ares.runtime.settings import FILE_NAME, Settings

    settings = Settings.load(directory / FILE_NAME)
    settings.check_secrets()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    supervisor = Supervisor(settings.path)
    with supervisor.alone():
        settings, missing = _ready_to_start(directory, settings, supervisor, fresh)
        started = supervisor.start(missing, common.timeout_s or START_TIMEOUT_S, stop.is_set)
        pids = supervisor.running() | started
    _show(common, settings, pids, list(started))
    if not detach:
        typer.echo("Ctrl-C stops the cluster" + ("." if settings.durable else ", and what it holds is lost then."), err=True)
        raise typer.Exit(_stay(supervisor, stop, _KEPT if settings.durable else _LOST))


def down(common: Common, directory: Directory) -> None:
    """Stop what `up` started; a later `up` goes on. What servers kept in memory only (durability = "memory") is gone then."""
    from ares.cli.supervisor import Supervisor
    from ares.runtime.settings import FILE_NAME, Settings

    if not (directory / FILE_NAME).is_file():
        raise BadInput(f"there is no cluster in {directory}: {directory / FILE_NAME} does not exist")
    stopped = Supervisor(directory / FILE_NAME).stop()
    text = "nothing was running"
    if stopped:
        kept = Settings.load(directory / FILE_NAME).durable
        then = f"{_KEPT}. `ares-cli up {directory}` goes on" if kept else f"{_LOST}. `ares-cli up {directory} --fresh` begins anew"
        text = f"stopped {', '.join(stopped)}; {then}"
    common.report({"stopped": stopped}, text)


def server(
    common: Common,
    file: File,
    id: Id,
    forget: Annotated[bool, typer.Option("--forget", help="Begin empty and under a new identity, an earlier store set aside.")] = False,
) -> None:
    """Run one storage server. Prints READY, its id and its address once it serves; logs go to stderr; SIGTERM stops it."""
    from ares.cli.process import run_storage_server

    run_storage_server(file, id, forget)


def consensus(common: Common, file: File, id: Id) -> None:
    """Run one consensus member. Prints READY, its id and its address once it serves; logs go to stderr; SIGTERM stops it."""
    from ares.cli.process import run_consensus_member

    run_consensus_member(file, id)


def _ready_to_start(directory: Path, settings: "Settings", supervisor: "Supervisor", fresh: bool) -> "tuple[Settings, list[Member]]":
    """The settings to start with, those given or the renewed ones of a cluster that begins afresh; and what of the cluster does not run."""
    from ares.cli.supervisor import NotStarted, members_of, remove_data, started_before, stores_gone
    from ares.runtime.cluster_file import renew_identities

    pids = supervisor.running()
    missing = [member for member in members_of(settings) if member.id not in pids]
    if pids and (fresh or not missing or not settings.durable):
        who = ", ".join(f"{id} (pid {pid})" for id, pid in pids.items())
        raise NotStarted(f"{directory} is up already: {who}. `ares-cli down {directory}` stops it")
    if fresh:
        remove_data(settings)
        settings = renew_identities(settings)
        return settings, members_of(settings)
    if not settings.durable and (started := started_before(settings)):
        why = f"{', '.join(started)} ran before and stopped; {_LOST}, and a server that forgot may not answer as if it had not"
        raise NotStarted(f"{why}. `ares-cli up {directory} --fresh` begins anew as an empty cluster")
    if lost := stores_gone(settings):
        why = f"what {', '.join(lost)} kept on disk is gone ({settings.servers[lost[0]].data} is not there), and it must not answer as if it had it"
        remedy = (
            f"Mount the disk if it is not; else `ares-cli server {settings.path} --id {lost[0]} --forget` begins anew, and `reconfig` takes it in"
        )
        raise NotStarted(f"{why}. {remedy}")
    return settings, missing


def _spare(settings: "Settings") -> list[str]:
    """Which servers are in no configuration yet, and what becomes of them."""
    spares = [id for id in settings.servers if id not in settings.initial.server_ids]
    if settings.autopilot is not None:
        return [f"the autopilot replaces servers that are gone; spares: {', '.join(spares) or 'none yet'}"]
    return [f"spares, for `ares-cli reconfig`: {', '.join(spares)}"] if spares else []


def _deciders(settings: "Settings") -> str:
    return f"{len(settings.members)} consensus members" if settings.etcd is None else "decisions in etcd"


def _show(common: Common, settings: "Settings", pids: dict[str, int], started: list[str]) -> None:
    addresses = {process.id: process.address for process in settings.processes()}
    if common.json:
        data = {id: {"address": address, "pid": pids[id]} for id, address in addresses.items()}
        head = {"name": settings.name, "file": str(settings.path), "started": started}
        return common.report(head | {"processes": data, "notes": list(settings.notes)}, "")
    from rich.console import Console
    from rich.table import Table

    table = Table("id", "role", "address", "pid", title=f"{settings.name} is up", title_justify="left")
    for id, address in addresses.items():
        table.add_row(id, "server" if id in settings.servers else "consensus", address, str(pids[id]))
    console = Console()
    console.print(table)
    if len(started) < len(addresses):
        console.print(f"started now: {', '.join(started)}; the others ran already", highlight=False, soft_wrap=True)
    console.print(f"it began with {settings.initial.describe()}; `ares-cli status` tells what is in force", highlight=False, soft_wrap=True)
    for note in settings.notes:
        console.print(f"note: {note}", highlight=False, soft_wrap=True)
    return None


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
