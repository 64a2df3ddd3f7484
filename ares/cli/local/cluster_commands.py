"""Commands for a cluster on this machine: init, up, down.

A cluster survives the loss of a server. A server that cannot start (with a lost disk, for example)
must therefore not keep other servers from serving. `up` leaves such a process out and shows the
name and the reason. The exit status is 0 only if every process runs.
"""

import asyncio
import re
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from msgspec import structs

from ares.cli.options import SharedOptions, print_core_advice
from ares.model.configuration import SERVERS_MAX
from ares.model.errors import AresError, BadInput, NotAuthorized, Uncertain
from ares.model.numbers import PORT_MAX
from ares.platform import loop
from ares.platform.environment import TRANSPORT_VARIABLE

if TYPE_CHECKING:
    from ares.cli.local.supervisor import SupervisedProcess, Supervisor
    from ares.client.manager import Manager
    from ares.cluster.new_cluster import InitPlan
    from ares.cluster.settings import Settings

SERVERS_DEFAULT = 5
SPARES_MAX = 1000
MEMBERS_MAX = 15
"""The largest number of consensus members; each decision waits for a majority."""

START_TIMEOUT_S = 60.0
_REACH_S = 2.0
_REACH_POLL_S = 0.05
_PART_USABLE_S = 5.0
"""Seconds that `up` waits for a working cluster when some processes do not run."""

LOST_WITH_MEMORY = "the servers kept their data in memory, and all data of the cluster is gone"
KEPT_ON_DISK = "all data of the cluster is on its servers' disks"

Dap = Literal["abd", "ec"]
"""The data access primitives: replication or erasure coding."""

Durability = Literal["memory", "fsync"]
"""The failures that a server's acknowledgement outlasts."""


class LeftOut(AresError):
    """Some processes of the cluster do not run; the others do."""


Directory = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        help="The cluster's directory; its file is DIR/cluster.toml.",
        show_default=False,
    ),
]
Consensus = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=MEMBERS_MAX,
        help="How many consensus members; an odd number is best. Default: 3, or an etcd.",
    ),
]

Transport = Annotated[
    Literal["native", "libzmq"],
    typer.Option(
        envvar=TRANSPORT_VARIABLE,
        help="native: ares speaks ZeroMQ's protocol itself. libzmq: pyzmq does; both understand "
        "each other.",
    ),
]


def init(
    common: SharedOptions,
    directory: Directory,
    servers: Annotated[
        int | None,
        typer.Option(min=1, max=SERVERS_MAX, help="How many storage servers. Default: 5."),
    ] = None,
    consensus: Consensus = None,
    dap: Annotated[
        Dap, typer.Option(help="Replicate values (abd) or erasure-code them (ec).")
    ] = "abd",
    k: Annotated[
        int | None,
        typer.Option(
            help="With ec: how many elements rebuild a value. Default: the largest k that survives "
            "one crash."
        ),
    ] = None,
    delta: Annotated[
        int | None, typer.Option(help="With ec: how many writers at once. Default: 8.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address that all processes listen on.")
    ] = "127.0.0.1",
    base_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=PORT_MAX,
            help="The first of consecutive ports that are free on this machine; 0: any free ports. "
            "Default: 7400, or 7500, ... if taken.",
        ),
    ] = None,
    security: Annotated[
        Literal["curve", "none"] | None,
        typer.Option(
            help="curve: every process and client has a key. none: no keys, even if other machines "
            "reach --host."
        ),
    ] = None,
    allow_no_faults: Annotated[
        bool, typer.Option("--allow-no-faults", help="Accept a cluster that one crash stops.")
    ] = False,
    durability: Annotated[
        Durability,
        typer.Option(
            help="fsync: acknowledged data is on the disk. memory: data is lost when servers stop."
        ),
    ] = "fsync",
    etcd: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT[,...]",
            help="An etcd that runs already decides. No consensus members then.",
        ),
    ] = None,
    spares: Annotated[
        int,
        typer.Option(
            min=0,
            max=SPARES_MAX,
            help="How many more servers, in no configuration, that can replace crashed servers.",
        ),
    ] = 0,
    autopilot: Annotated[
        bool,
        typer.Option(
            "--autopilot", help="Replace servers that are gone by spares, without being asked."
        ),
    ] = False,
    sites: Annotated[
        str | None,
        typer.Option(
            metavar="NAME:N,...",
            help="How many servers are at which site, in place of --servers. `default` begins at "
            "the first one.",
        ),
    ] = None,
    transport: Transport = "native",
) -> None:
    """Write the file and secrets of a new cluster.

    DIR is made if needed; existing files are never overwritten.
    """
    from ares.cluster.new_cluster import InitPlan, check_free, check_unused, create, free_base_port

    endpoints = tuple(part.strip() for part in (etcd or "").split(",") if part.strip())
    members = (0 if endpoints else 3) if consensus is None else consensus
    if sites is not None and servers is not None:
        raise BadInput(
            "--sites says how many servers there are: give no --servers; nothing was written"
        )
    plan = InitPlan(
        servers or SERVERS_DEFAULT,
        members,
        dap,
        k,
        delta,
        host,
        base_port or 0,
        security,
        allow_no_faults,
        durability,
        endpoints,
        spares,
        autopilot,
        transport=transport,
    )
    plan = plan if sites is None else _at_sites(plan, sites)
    check_unused(directory)
    if base_port is None:
        plan = structs.replace(plan, base_port=free_base_port(plan))
    elif base_port:
        check_free(plan)
    settings = create(directory, plan)
    lines = _written(settings, plan, directory, base_port)
    data = {
        "file": str(settings.path),
        "name": settings.name,
        "configuration": settings.initial.describe(),
        "k": settings.initial.k,
        "crashes_survived": settings.initial.crashes_survived,
        "servers": {id: server.address for id, server in settings.servers.items()},
        "consensus": {id: member.address for id, member in settings.members.items()},
        "etcd": [] if settings.etcd is None else list(settings.etcd.endpoints),
        "notes": list(settings.notes),
    }
    common.report(data, "\n".join(lines))


def _written(
    settings: "Settings", plan: "InitPlan", directory: Path, base_port: int | None
) -> list[str]:
    """Return the new files and the next steps as text for a person."""
    from ares.cluster.new_cluster import BASE_PORT
    from ares.cluster.sites import sites_of

    initial = settings.initial
    deciders = (
        f"{len(settings.members)} consensus members"
        if settings.etcd is None
        else "decisions in etcd"
    )
    lines = [
        f"wrote {directory / settings.path.name}: {settings.name}, {deciders}",
        initial.describe(),
    ]
    if plan.dap == "ec" and plan.k is None:
        lines.append(
            f"k = {initial.k} was chosen: the largest with which {initial.n} servers survive a "
            "crash"
        )
    if settings.security is not None:
        lines.append(
            f"keys for all processes and clients are in {settings.security.directory}; the "
            "client admin is authorised, `ares-cli keys new` makes more"
        )
    lines += [f"site {site}: {', '.join(ids)}" for site, ids in sites_of(settings).items()]
    unused = ", ".join(
        id for id in settings.servers if id not in initial.server_ids and not plan.sites
    )  # servers at other sites are no spares
    if plan.autopilot:
        lines.append(
            f"the autopilot replaces servers that are gone; spares: {unused or 'none yet'}"
        )
    elif unused:
        lines.append(f"spares, for `ares-cli reconfig`: {unused}")
    if base_port is None and plan.base_port != BASE_PORT:
        lines.append(
            f"ports from {BASE_PORT} on are taken by other processes here: the cluster uses "
            f"{settings.processes()[0].address} and the next ones"
        )
    lines += [f"note: {note}" for note in settings.notes]
    lines += [
        "next:",
        f"  ares-cli up {directory} --detach",
        f"  ares-cli -c {settings.path} status",
        f"  ares-cli down {directory}",
    ]
    return lines


def _at_sites(plan: "InitPlan", sites: str) -> "InitPlan":
    """Return the plan with the servers of ``NAME:N,...``. Raises :class:`BadInput`."""
    from ares.security.clients_file import CLIENT_NAME, CLIENT_NAME_EXPECTED

    counts: dict[str, int] = {}
    for part in sites.split(","):
        name, _, count = part.strip().rpartition(":")
        if (
            not CLIENT_NAME.fullmatch(name)
            or name in counts
            or not re.fullmatch("[1-9][0-9]{0,3}", count)
        ):
            raise BadInput(
                "--sites takes each site once and how many servers are there, as in "
                f"nantes:5,rennes:5, not {sites!r}; a site's name has {CLIENT_NAME_EXPECTED}; "
                "nothing was written"
            )
        counts[name] = int(count)
    first, *others = counts.values()
    if plan.spares:
        raise BadInput(
            "--sites names all servers, spares included: give no --spares, but more servers at a "
            "site; nothing was written"
        )
    if first + sum(others) > SERVERS_MAX + SPARES_MAX:
        raise BadInput(
            f"--sites names {first + sum(others)} servers, and {SERVERS_MAX + SPARES_MAX} are "
            "the most; nothing was written"
        )
    return structs.replace(plan, servers=first, spares=sum(others), sites=tuple(counts.items()))


def up(
    common: SharedOptions,
    directory: Directory,
    detach: Annotated[
        bool,
        typer.Option(
            "--detach", help="Return when all processes serve, instead of staying until Ctrl-C."
        ),
    ] = False,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh",
            help="Begin anew as an empty cluster: all data of its stopped servers is removed.",
        ),
    ] = False,
) -> None:
    """Run all processes of a cluster here, or the stopped ones; logs are in DIR/logs.

    Each server and consensus member is a process. The cluster is up when reads, writes and
    decisions work: when the servers answer and a consensus member leads.

    With durability = "fsync" a restarted server has all data ever acknowledged. A process that
    cannot start is left out and named; the exit status is 0 only if all run.
    """
    from ares.cli.local.supervisor import NotStarted, Supervisor, lost_directories, started_before
    from ares.cluster.settings import FILE_NAME, Settings

    settings = Settings.load(directory / FILE_NAME)
    settings.check_secrets()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    supervisor = Supervisor(settings.path)
    with supervisor.alone():
        settings, missing = _ready_to_start(directory, settings, supervisor, fresh)
        if not started_before(settings):  # the cluster file may still be corrected
            supervisor.check_ports(missing, _other_ports(directory, settings))
        lost = lost_directories(settings, {member.id for member in missing})
        able = [member for member in missing if member.id not in lost]
        started, failed = supervisor.start_what_can(
            able, common.timeout_s or START_TIMEOUT_S, stop.is_set
        )
        pids = supervisor.running() | started
        left_out = {
            str(process.id): why
            for process in settings.processes()
            if (why := (lost | failed).get(process.id))
        }
        if not pids:
            fresh_too = (
                f"If all data is lost, `ares-cli up {directory} --fresh` begins anew as an empty "
                "cluster"
            )
            raise NotStarted(
                "nothing was started.\n"
                f"{_reasons(left_out)}\n"
                f"Mend the cause, then `ares-cli up {directory}` tries again. {fresh_too}"
            )
        patience_s = (
            common.timeout_s or START_TIMEOUT_S + 12 * settings.beat_s
        )  # members with slow heartbeats elect no leader before
        unable = _await_usable(settings, _PART_USABLE_S if left_out else patience_s, stop)
        if stop.is_set():
            supervisor.stop(started)
            raise NotStarted(
                "interrupted: all processes that this command had started are stopped again"
            )
    print_core_advice()
    _show(common, settings, pids, list(started), left_out)
    trouble = _trouble(directory, settings, pids, left_out, unable)
    if trouble and detach:
        raise LeftOut(trouble)
    if not detach:
        if trouble:
            typer.echo(f"error: {trouble}", err=True)
        typer.echo(
            "Ctrl-C stops the cluster"
            + ("." if settings.durable else ", and all its data is lost then."),
            err=True,
        )
        raise typer.Exit(
            _stay(supervisor, stop, KEPT_ON_DISK if settings.durable else LOST_WITH_MEMORY)
            or int(bool(trouble))
        )


def _other_ports(directory: Path, settings: "Settings") -> str:
    """Return the advice for a cluster that never ran and finds used ports."""
    from ares.cluster.addresses import split_address
    from ares.cluster.new_cluster import InitPlan, is_free, other_ports

    [first, *_] = settings.processes()
    host, _ = split_address(first.address)
    if not is_free(host, 0):  # another machine's: its free ports are not known here
        return ""
    plan = InitPlan(len(settings.servers), len(settings.members), host=host)
    return (
        ". No process of this cluster ever ran: end the process that listens there, or remove "
        f"{directory} and repeat `ares-cli init` with other ports. {other_ports(plan)}"
    )


def _ready_to_start(
    directory: Path, settings: "Settings", supervisor: "Supervisor", fresh: bool
) -> "tuple[Settings, list[SupervisedProcess]]":
    """Return the settings to start with, and the processes to start.

    A cluster that begins afresh gets renewed settings; otherwise ``settings`` are returned.
    """
    from ares.cli.local.supervisor import NotStarted, members_of, remove_data, started_before
    from ares.cluster.new_cluster import renew_identities

    pids = supervisor.running()
    spent = [] if settings.durable else started_before(settings)
    missing = [
        member
        for member in members_of(settings)
        if member.id not in pids and not (pids and member.id in spent)
    ]
    if pids and (fresh or not missing):
        running = ", ".join(f"{id} (pid {pid})" for id, pid in pids.items())
        raise NotStarted(
            f"{directory} is up already: {running}. `ares-cli down {directory}` stops it"
        )
    if fresh:
        remove_data(settings)
        settings = renew_identities(settings)
        return settings, members_of(settings)
    if spent and not pids:
        why = (
            f"{', '.join(spent)} ran before and stopped; {LOST_WITH_MEMORY}, and a server that "
            "forgot may not answer as if it had not"
        )
        raise NotStarted(
            f"{why}. `ares-cli up {directory} --fresh` begins anew as an empty cluster"
        )
    return settings, missing


def _show(
    common: SharedOptions,
    settings: "Settings",
    pids: dict[str, int],
    started: list[str],
    left_out: dict[str, str],
) -> None:
    addresses = {process.id: process.address for process in settings.processes()}
    if common.json:
        data = {id: {"address": address, "pid": pids.get(id)} for id, address in addresses.items()}
        head = {
            "name": settings.name,
            "file": str(settings.path),
            "started": started,
            "left_out": left_out,
        }
        return common.report(head | {"processes": data, "notes": list(settings.notes)}, "")
    from rich.console import Console
    from rich.table import Table

    part = (
        f" in part: {len(pids)} of {len(addresses)} processes" if len(pids) < len(addresses) else ""
    )
    table = Table(
        "id", "role", "address", "pid", title=f"{settings.name} is up{part}", title_justify="left"
    )
    for id, address in addresses.items():
        table.add_row(
            id, "server" if id in settings.servers else "consensus", address, str(pids.get(id, "-"))
        )
    console = Console()
    console.print(table)
    if already := [id for id in addresses if id in pids and id not in started]:
        console.print(
            f"started now: {', '.join(started) or 'none'}; {', '.join(already)} ran already",
            highlight=False,
            soft_wrap=True,
        )
    console.print(
        f"it began with {settings.initial.describe()}; `ares-cli status` tells the present "
        "configurations",
        highlight=False,
        soft_wrap=True,
    )
    for note in settings.notes:
        console.print(f"note: {note}", highlight=False, soft_wrap=True)
    return None


def _await_usable(settings: "Settings", timeout_s: float, stop: threading.Event) -> list[str]:
    """Wait until the cluster reads, writes and decides; return the failing functions with reasons.

    The wait also ends after an interruption or when the time is over.
    """
    from ares.client.connect import connect, settings_of

    async def awaited() -> list[str]:
        deadline = time.monotonic() + timeout_s
        async with connect(settings_of(settings.path)) as manager:
            while unable := await _unable(manager, settings):
                if stop.is_set() or time.monotonic() > deadline:
                    return unable
                await asyncio.sleep(_REACH_POLL_S)
            return []

    try:
        return loop.run(awaited())
    except (BadInput, NotAuthorized) as error:  # no client's key is here, or it may not ask
        typer.echo(f"note: whether the cluster can be used was not found out: {error}", err=True)
        return []


async def _unable(manager: "Manager", settings: "Settings") -> list[str]:
    """Return the presently failing functions of the cluster.

    Reads and writes wait for as many servers as a question for the configuration.
    """
    unable = []
    try:
        await manager.current(timeout_s=_REACH_S)
    except NotAuthorized:
        raise
    except Uncertain as error:
        unable.append(f"it does not read and write yet: {error}")
    members = (await manager.status()).members
    leading = sum(bool(member.leader) for member in members)
    if leading <= len(settings.members) // 2 and (settings.members or settings.etcd is not None):
        unable.append(
            "the consensus service has no leader yet: creating domains and reconfiguring wait"
        )
    return unable


def _trouble(
    directory: Path,
    settings: "Settings",
    pids: dict[str, int],
    left_out: dict[str, str],
    unable: Sequence[str],
) -> str:
    """Return the failures, with reasons, consequences and remedies; empty without failures."""
    if not left_out:
        return (
            "\n".join([*unable, f"All its processes run; their logs are in {directory / 'logs'}"])
            if unable
            else ""
        )
    lines = [(f"some processes do not run; the rest runs.\n{_reasons(left_out)}")]
    serving = sum(id in pids for id in settings.initial.server_ids)
    if serving < settings.initial.quorum_size:
        initial = settings.initial
        lines.append(
            f"{serving} of the {initial.n} servers that the cluster began with run, and a quorum "
            f"of these is {initial.quorum_size}"
        )
    members = sum(id in pids for id in settings.members)
    if members <= len(settings.members) // 2 and settings.members:
        lines.append(
            f"{members} of {len(settings.members)} consensus members run, which is no majority: "
            "creating domains and reconfiguring wait"
        )
    if len(lines) == 1:
        lines += unable
    lines.append(f"Mend the cause, then `ares-cli up {directory}` starts the stopped processes")
    return "\n".join(lines)


def _reasons(left_out: dict[str, str]) -> str:
    """Return a line for each reason, with all processes of the same reason."""
    alike = {
        why: ", ".join(id for id, other in left_out.items() if other == why)
        for why in left_out.values()
    }
    return "\n".join(f"  {ids}: {why}" for why, ids in alike.items())


def _stay(supervisor: "Supervisor", stop: threading.Event, then: str) -> int:
    """Wait until a request to stop, or until no process runs; return the exit status."""
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


def down(common: SharedOptions, directory: Directory) -> None:
    """Stop the processes that `up` started; a later `up` goes on.

    Data kept in memory only (durability = "memory") is lost.
    """
    from ares.cli.local.supervisor import Supervisor
    from ares.cluster.settings import FILE_NAME, Settings

    if not (directory / FILE_NAME).is_file():
        raise BadInput(
            f"there is no cluster in {directory}: {directory / FILE_NAME} does not exist"
        )
    stopped = Supervisor(directory / FILE_NAME).stop()
    text = "nothing was running"
    if stopped:
        kept = Settings.load(directory / FILE_NAME).durable
        then = (
            f"{KEPT_ON_DISK}. `ares-cli up {directory}` goes on"
            if kept
            else f"{LOST_WITH_MEMORY}. `ares-cli up {directory} --fresh` begins anew"
        )
        text = f"stopped {', '.join(stopped)}; {then}"
    common.report({"stopped": stopped}, text)
