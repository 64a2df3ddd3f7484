"""Commands for the processes of a cluster on this machine: up, down.

A cluster survives the loss of a server. A server that cannot start (with a lost disk, for example)
must therefore not keep other servers from serving. `up` leaves such a process out and shows the
name and the reason. The exit status is 0 only if every process runs.
"""

import asyncio
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ares.cli.buckets.gateway_command import GATEWAY_PORT, require_gateway_libraries
from ares.cli.local.init_command import Directory
from ares.cli.options import SharedOptions, print_core_advice
from ares.model.errors import AresError, BadInput, NotAuthorized, Uncertain
from ares.platform import loop

if TYPE_CHECKING:
    from ares.cli.local.supervisor import SupervisedProcess, Supervisor
    from ares.client.manager import Manager
    from ares.cluster.settings import Settings
    from ares.gateway.access.sealed_keys import AccessKey

START_TIMEOUT_S = 60.0
_REACH_S = 2.0
_REACH_POLL_S = 0.05
_PART_USABLE_S = 5.0
"""Seconds that `up` waits for a working cluster when some processes do not run."""

LOST_WITH_MEMORY = "the servers kept their data in memory, and all data of the cluster is gone"
KEPT_ON_DISK = "all data of the cluster is on its servers' disks"

Detach = Annotated[
    bool,
    typer.Option(
        "--detach", help="Return when all processes serve, instead of staying until Ctrl-C."
    ),
]
Fresh = Annotated[
    bool,
    typer.Option(
        "--fresh",
        help="Begin anew as an empty cluster: all data of its stopped servers is removed.",
    ),
]
WithGateway = Annotated[
    bool,
    typer.Option(
        "--gateway",
        help="Also serve S3: make buckets possible, and a first access key, shown this once. "
        "The cluster file gets the autopilot and a spare, unless it has them.",
    ),
]
GatewayPort = Annotated[
    int,
    typer.Option("--gateway-port", metavar="PORT", min=1, max=65535, help="The gateway's port."),
]


class LeftOut(AresError):
    """Some processes of the cluster do not run; the others do."""


def up(
    common: SharedOptions,
    directory: Directory,
    detach: Detach = False,
    fresh: Fresh = False,
    gateway: WithGateway = False,
    gateway_port: GatewayPort = GATEWAY_PORT,
) -> None:
    """Run all processes of a cluster here, or the stopped ones; logs are in DIR/logs.

    Each server and consensus member is a process. The cluster is up when reads, writes and
    decisions work: when the servers answer and a consensus member leads.

    With durability = "fsync" a restarted server has all data ever acknowledged. A process that
    cannot start is left out and named; the exit status is 0 only if all run.
    """
    from ares.cli.local.supervisor import NotStarted, Supervisor, lost_directories, started_before
    from ares.cluster.settings import FILE_NAME, Settings

    if gateway:
        require_gateway_libraries()
    settings = Settings.load(directory / FILE_NAME)
    settings.check_secrets()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    supervisor = Supervisor(settings.path)
    with supervisor.alone():
        settings, missing = _ready_to_start(directory, settings, supervisor, fresh)
        if gateway and len(missing) == len(settings.processes()):
            settings, missing = _with_autopilot(common, settings, gateway_port)
        elif gateway and settings.members and settings.autopilot is None:
            typer.echo(
                "note: lost servers will not be replaced: processes of this cluster run, hence the "
                "autopilot is not added. 'ares-cli down' and 'up --gateway' add it",
                err=True,
            )
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
            raise NotStarted(_nothing_started(directory, left_out))
        # members with slow heartbeats elect no leader before
        patience_s = common.timeout_s or START_TIMEOUT_S + 12 * settings.beat_s
        unable = _await_usable(settings, _PART_USABLE_S if left_out else patience_s, stop)
        if stop.is_set():
            supervisor.stop(started)
            raise NotStarted(
                "interrupted: all processes that this command had started are stopped again"
            )
        served = {}
        if gateway and not unable:
            served = _with_gateway(common, settings, supervisor, started, gateway_port, stop)
    print_core_advice()
    _show(common, settings, pids, list(started), left_out, served)
    trouble = _trouble(directory, settings, pids, left_out, unable)
    if trouble and detach:
        raise LeftOut(trouble)
    if not detach:
        raise typer.Exit(_stay_up(settings.durable, supervisor, stop, trouble))


def _stay_up(durable: bool, supervisor: "Supervisor", stop: threading.Event, trouble: str) -> int:
    """Stay until Ctrl-C or the end of all processes, and return the exit status."""
    if trouble:
        typer.echo(f"error: {trouble}", err=True)
    typer.echo(
        "Ctrl-C stops the cluster" + ("." if durable else ", and all its data is lost then."),
        err=True,
    )
    kept = KEPT_ON_DISK if durable else LOST_WITH_MEMORY
    return _stay(supervisor, stop, kept) or int(bool(trouble))


def _nothing_started(directory: Path, left_out: dict[str, str]) -> str:
    """Return the message when no process runs."""
    return (
        "nothing was started.\n"
        f"{_reasons(left_out)}\n"
        f"Mend the cause, then `ares-cli up {directory}` tries again. If all data is lost, "
        f"`ares-cli up {directory} --fresh` begins anew as an empty cluster"
    )


def _with_autopilot(
    common: SharedOptions, settings: "Settings", gateway_port: int
) -> "tuple[Settings, list[SupervisedProcess]]":
    """Add the autopilot and a spare unless they are there; return the processes to start, too.

    A file that cannot be changed is no reason not to start its cluster.
    """
    from ares.cli.local.supervisor import members_of
    from ares.cluster.added_spare import add_autopilot

    try:
        settings, added = add_autopilot(settings, gateway_port)
    except (BadInput, OSError) as error:
        added = ""
        typer.echo(f"note: no autopilot and no spare could be added: {error}", err=True)
    if added and not common.json:
        typer.echo(f"added to {settings.path}: {added}, to replace lost servers")
    return settings, members_of(settings)


def _with_gateway(
    common: SharedOptions,
    settings: "Settings",
    supervisor: "Supervisor",
    started: dict[str, int],
    port: int,
    stop: threading.Event,
) -> dict[str, object]:
    """Start a gateway, after all it needs was made, and return the facts for --json.

    A new access key is shown at once: the gateway may not start. Without it the processes in
    ``started`` are stopped, and an AresError is raised.
    """
    from ares.cli.local.local_gateway import first_access_key, start_gateway
    from ares.client.connect import connect, settings_of

    async def made() -> "AccessKey | None":
        async with connect(settings_of(settings.path)) as manager:
            return await first_access_key(manager, settings.path)

    address = f"127.0.0.1:{port}"
    facts: dict[str, object] = {"endpoint": f"http://{address}"}
    try:
        key = loop.run(made())
        if key is not None:
            facts |= {"access_key": key.id, "secret_key": key.secret}
        if key is not None and not common.json:
            typer.echo(
                f"the first access key, with the role admin; the secret is not shown again:\n"
                f"export AWS_ACCESS_KEY_ID={key.id} AWS_SECRET_ACCESS_KEY={key.secret}"
            )
        timeout_s = common.timeout_s or START_TIMEOUT_S
        facts["pid"] = start_gateway(supervisor, address, timeout_s, stop.is_set)
    except AresError:
        supervisor.stop(started)
        raise
    if not common.json:
        typer.echo(f"S3 clients connect to http://{address}, region us-east-1")
    return facts


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
    from ares.cli.local.supervisor import (
        GATEWAY_ID,
        NotStarted,
        members_of,
        remove_data,
        started_before,
    )
    from ares.cluster.new_cluster import renew_identities

    pids = {id: pid for id, pid in supervisor.running().items() if id != GATEWAY_ID}
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
    served: dict[str, object],
) -> None:
    addresses = {process.id: process.address for process in settings.processes()}
    if common.json:
        data = {id: {"address": address, "pid": pids.get(id)} for id, address in addresses.items()}
        head = {
            "name": settings.name,
            "file": str(settings.path),
            "started": started,
            "left_out": left_out,
        } | ({"gateway": served} if served else {})
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
