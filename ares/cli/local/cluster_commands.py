"""Commands that make a cluster and run its processes: init, down, server, consensus; with up and prepare, in modules of their own."""

import signal
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from ares.cli.local.prepare_command import File, prepare
from ares.cli.local.up_command import KEPT, LOST, Directory, up
from ares.cli.options import Common, command
from ares.model.configuration import SERVERS_MAX
from ares.model.errors import BadInput

if TYPE_CHECKING:
    from ares.cluster.settings import Settings

SPARES_MAX = 1000
MEMBERS_MAX = 15
"""Each decision waits for a majority of them."""


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


Consensus = Annotated[
    int | None, typer.Option(min=0, max=MEMBERS_MAX, help="How many consensus members; an odd number is best. Default: 3, or an etcd.")
]
Id = Annotated[str, typer.Option("--id", help="Which of the file's processes to be.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add these commands to the app."""
    command(app, "init", example="ares-cli init ./cluster --servers 5 --dap ec --k 3", options=["json"])(init)
    command(app, "up", example="ares-cli up ./cluster --detach", options=["json", "timeout_s"])(up)
    command(app, "down", example="ares-cli down ./cluster", options=["json"])(down)
    command(app, "prepare", example="ares-cli prepare /etc/ares/cluster.toml s1", options=["json"])(prepare)
    command(app, "server", example="ares-cli server ./cluster/cluster.toml --id s0", options=[])(server)
    command(app, "consensus", example="ares-cli consensus ./cluster/cluster.toml --id r0", options=[])(consensus)


def init(
    common: Common,
    directory: Directory,
    servers: Annotated[int, typer.Option(min=1, max=SERVERS_MAX, help="How many storage servers.")] = 5,
    consensus: Consensus = None,
    dap: Annotated[Dap, typer.Option(help="Replicate values (abd) or erasure-code them (ec).")] = Dap.ABD,
    k: Annotated[int | None, typer.Option(help="With ec: how many elements rebuild a value. Default: the most that survives one crash.")] = None,
    delta: Annotated[int | None, typer.Option(help="With ec: how many writers at once. Default: 8.")] = None,
    host: Annotated[str, typer.Option(help="The address that everything listens on.")] = "127.0.0.1",
    base_port: Annotated[int, typer.Option(min=0, max=65535, help="The first of the ports, counted up from there; 0: choose free ones.")] = 7400,
    security: Annotated[Security | None, typer.Option(help="curve: everybody has a key. none: accept an address that others can reach.")] = None,
    allow_no_faults: Annotated[bool, typer.Option("--allow-no-faults", help="Accept a cluster that one crash stops.")] = False,
    durability: Annotated[Durability, typer.Option(help="fsync: what is acknowledged is on the disk. memory: lost when servers stop.")] = FSYNC,
    etcd: Annotated[str | None, typer.Option(metavar="HOST:PORT[,...]", help="An etcd that runs already decides. No consensus members then.")] = None,
    spares: Annotated[int, typer.Option(min=0, max=SPARES_MAX, help="How many more servers, in no configuration, that can replace others.")] = 0,
    autopilot: Annotated[bool, typer.Option("--autopilot", help="Replace servers that are gone by spares, without being asked.")] = False,
) -> None:
    """Write the file and secrets of a new cluster. DIR is made if need be; nothing is ever overwritten."""
    from ares.cluster.cluster_file import Plan, create

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


def down(common: Common, directory: Directory) -> None:
    """Stop what `up` started; a later `up` goes on. What servers kept in memory only (durability = "memory") is gone then."""
    from ares.cli.local.supervisor import Supervisor
    from ares.cluster.settings import FILE_NAME, Settings

    if not (directory / FILE_NAME).is_file():
        raise BadInput(f"there is no cluster in {directory}: {directory / FILE_NAME} does not exist")
    stopped = Supervisor(directory / FILE_NAME).stop()
    text = "nothing was running"
    if stopped:
        kept = Settings.load(directory / FILE_NAME).durable
        then = f"{KEPT}. `ares-cli up {directory}` goes on" if kept else f"{LOST}. `ares-cli up {directory} --fresh` begins anew"
        text = f"stopped {', '.join(stopped)}; {then}"
    common.report({"stopped": stopped}, text)


def server(
    common: Common,
    file: File,
    id: Id,
    forget: Annotated[bool, typer.Option("--forget", help="Begin empty and under a new identity, an earlier store set aside.")] = False,
) -> None:
    """Run one storage server. Prints READY, its id and its address once it serves; logs go to stderr; SIGTERM stops it."""
    _end_at_once()
    from ares.server.process import run_storage_server

    run_storage_server(file, id, forget)


def consensus(common: Common, file: File, id: Id) -> None:
    """Run one consensus member. Prints READY, its id and its address once it serves; logs go to stderr; SIGTERM stops it."""
    _end_at_once()
    from ares.server.process import run_consensus_member

    run_consensus_member(file, id)


def _end_at_once() -> None:
    """What SIGTERM does to this process until it serves. A service manager takes that for a clean end, as it does status 0."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _spare(settings: "Settings") -> list[str]:
    """Which servers are in no configuration yet, and what becomes of them."""
    spares = [id for id in settings.servers if id not in settings.initial.server_ids]
    if settings.autopilot is not None:
        return [f"the autopilot replaces servers that are gone; spares: {', '.join(spares) or 'none yet'}"]
    return [f"spares, for `ares-cli reconfig`: {', '.join(spares)}"] if spares else []


def _deciders(settings: "Settings") -> str:
    return f"{len(settings.members)} consensus members" if settings.etcd is None else "decisions in etcd"
