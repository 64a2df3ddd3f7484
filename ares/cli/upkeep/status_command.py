"""The command status: who answers, what every domain runs on, and what could fail next."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import structs

from ares.cli.command_connection import printable, size, with_manager
from ares.cli.local_files import naming
from ares.cli.options import Common, command
from ares.model.identity import ServerId, shown
from ares.model.quorum import NO_ANSWER

if TYPE_CHECKING:
    from rich.console import Console

    from ares.cli.upkeep.standing import Standing
    from ares.client.manager import ClusterStatus, Manager
    from ares.cluster.settings import Settings
    from ares.model.messages import ConsensusDescription, Description

All = Annotated[bool, typer.Option("--all", help="Show the domains of single files, too, one by one.")]

SHORT = 8
"""How many characters of an identity a person is shown."""


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    command(app, "status", example="ares-cli status")(status)


def status(common: Common, every: All = False) -> None:
    """Show servers, consensus members and domains, and how many crashes each domain survives. Exit status 1 if a domain has no quorum.

    The domains of single files are summed up in one line.
    """
    from ares.cli.upkeep.standing import is_of_file, survey

    settings = common.settings()

    async def use(manager: "Manager") -> "tuple[ClusterStatus, list[Standing]]":
        return await survey(manager, every)

    found, standings = with_manager(common, use)
    shown = [standing for standing in standings if every or not is_of_file(standing.domain)]
    summed_up = [standing for standing in standings if not every and is_of_file(standing.domain)]
    if common.json:
        common.report(_as_data(settings, found, shown) | {"files": _files_data(summed_up)}, "")
    else:
        with naming("standard output"):
            _show(settings, found, shown, summed_up)
    if not all(standing.serves for standing in standings):
        raise typer.Exit(1)


def _as_data(settings: "Settings", found: "ClusterStatus", standings: "list[Standing]") -> dict[str, Any]:
    members = {member.member: member for member in found.members}
    return {
        "name": settings.name,
        "servers": {id: {"address": settings.servers[id].address} | _server_data(said, _why(found, id)) for id, said in found.servers.items()},
        "consensus": {id: _member_data(members.get(id), _why(found, id)) for id in _members(settings)},
        "autopilot": _autopilot(settings, found.members),
        "domains": [
            {
                "domain": standing.domain,
                "configuration": standing.active[0].describe(),
                "index": standing.active[0].index,
                "pending": [configuration.describe() for configuration in standing.active[1:]],
                "missing": standing.missing,
                "serves": standing.serves,
                "takes_writes": standing.serves and standing.margin >= 0,
                "crashes_survived": max(standing.margin, 0),
                "outlook": standing.outlook(),
                "left_behind": standing.left,
            }
            for standing in standings
        ],
    }


def _autopilot(settings: "Settings", members: "Sequence[ConsensusDescription]") -> str | None:
    """What the autopilot does, in the words of the member that leads; None where there is none."""
    if settings.autopilot is None:
        return None
    said = [f"{member.member}: {member.autopilot or 'it was started without'}" for member in members if member.leader == member.member]
    return ", ".join(said) or "no consensus member leads, so that nothing is replaced now"


def _members(settings: "Settings") -> dict[ServerId, str]:
    """Where those who decide serve their clients, by the name that they have in a description."""
    if settings.etcd is not None:
        return {ServerId(endpoint): endpoint for endpoint in settings.etcd.endpoints}
    return {id: member.address for id, member in settings.members.items()}


def _files_data(standings: "Sequence[Standing]") -> dict[str, Any]:
    """What is summed up."""
    return {
        "domains": len(standings),
        "crashes_survived": min((max(standing.margin, 0) for standing in standings), default=None),
        "without_quorum": [standing.domain for standing in standings if not standing.serves],
        "left_behind": [standing.domain for standing in standings if standing.left],
    }


def _why(found: "ClusterStatus", id: ServerId) -> str:
    """Why nothing was heard of a server or member, if nothing was."""
    return found.troubles.get(id, NO_ANSWER)


def _member_data(member: "ConsensusDescription | None", why: str) -> dict[str, Any]:
    if member is None:
        return {"reachable": False, "why": why}
    return {"reachable": True, "leader": member.leader, "term": member.term, "decisions": member.decisions, "autopilot": member.autopilot}


def _server_data(description: "Description | None", why: str = NO_ANSWER) -> dict[str, Any]:
    if description is None:
        return {"reachable": False, "why": why}
    return {
        "reachable": True,
        "identity": description.identity,
        "version": description.version,
        "uptime_s": round(description.uptime_s, 3),
        "memory_bytes": description.memory_bytes,
        "objects": sum(hosted.objects for hosted in description.hosted),
        "bytes": sum(hosted.bytes for hosted in description.hosted),
        "unknown_keys": description.unknown_keys,
        "stored": None if description.stored is None else structs.asdict(description.stored),
    }


def _show(settings: "Settings", found: "ClusterStatus", standings: "list[Standing]", files: "list[Standing]") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    servers = Table("id", "address", "", "identity", "memory", "objects", "stored", "uptime", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    servers.columns[1].no_wrap = True
    for column in servers.columns[4:]:
        column.justify = "right"
    for id, description in found.servers.items():
        servers.add_row(id, settings.servers[id].address, *_server_cells(description))
    console.print(Text(settings.name, style="bold"))
    console.print(servers)
    if disks := _disks(found.servers):
        console.print(disks, soft_wrap=True)
    for id, description in found.servers.items():
        for line in [f"{id}: {_why(found, id)}"] if description is None else _warnings(id, description):
            console.print(Text(line, style="yellow"), soft_wrap=True)
    console.print()
    if addresses := _members(settings):
        members = {member.member: member for member in found.members}
        consensus = Table("id", "address", "", "term", "decisions", box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for member, address in addresses.items():
            consensus.add_row(member if settings.etcd is None else "etcd", address, *_member_cells(members.get(member)))
        console.print(consensus)
        for member in addresses:
            if member not in members:
                console.print(Text(f"{member}: {_why(found, member)}", style="yellow"), soft_wrap=True)
        outlook = (
            _consensus_outlook(len(members), len(addresses), any(standing.serves for standing in [*standings, *files]))
            if settings.etcd is None
            else _etcd_outlook(found.members, len(addresses))
        )
        console.print(outlook, soft_wrap=True)
    if (flown := _autopilot(settings, found.members)) is not None:
        console.print(Text(f"autopilot: {flown}"), soft_wrap=True)
    _show_domains(console, standings, files)


def _show_domains(console: "Console", standings: "Sequence[Standing]", files: "Sequence[Standing]") -> None:
    from rich.text import Text

    from ares.cli.upkeep.standing import outlook_of_files

    for standing in standings:
        console.print(Text(f"\n{standing.outlook()}", style=f"bold {_colour([standing])}"), soft_wrap=True)
        console.print(Text(f"  configuration {standing.active[0].index}: {standing.active[0].describe()}"), soft_wrap=True)
        for pending in standing.active[1:]:
            then = "the move is under way, or was left for the next `ares-cli reconfig` to finish"
            console.print(Text(f"  to follow: {pending.describe()}; {then}"), soft_wrap=True)
        if standing.left:
            names = ", ".join(printable(shown(name)) for name in standing.left)
            console.print(Text(f"  left behind undecodable, until written or deleted: {names}", style="yellow"), soft_wrap=True)
    if files:
        console.print(Text(f"\n{printable(outlook_of_files(files))}; --all shows them", style=_colour(files)), soft_wrap=True)
        if damaged := [printable(standing.domain) for standing in files if standing.left]:
            console.print(Text(f"  with parts that were left behind undecodable: {', '.join(damaged)}", style="yellow"), soft_wrap=True)


def _colour(standings: "Sequence[Standing]") -> str:
    if not all(standing.serves and standing.margin >= 0 for standing in standings):
        return "red"
    return "green" if all(standing.margin > 0 for standing in standings) else "yellow"


def _server_cells(description: "Description | None") -> list[str]:
    if description is None:
        return ["[red]silent[/red]", "", "", "", "", ""]
    data = _server_data(description)
    memory, stored = size(description.memory_bytes), size(data["bytes"])
    state = "[red]disk full[/red]" if description.stored is not None and description.stored.full else "[green]up[/green]"
    return [state, description.identity[:SHORT], memory, str(data["objects"]), stored, _duration(description.uptime_s)]


def _disks(servers: "Mapping[ServerId, Description | None]") -> str:
    """What stores take on disks, and how much of that is needed: what is not is given back by and by, and some is kept free for new data."""
    told = {id: description.stored for id, description in servers.items() if description is not None and description.stored is not None}
    each = ", ".join(f"{id} {size(stored.disk_bytes)} ({size(stored.live_bytes)} needed)" for id, stored in told.items())
    return f"on disk: {each}" if each else ""


def _warnings(id: ServerId, description: "Description") -> list[str]:
    """What a person should know of a server that answers."""
    lines = []
    if description.stored is not None and description.stored.full:
        lines.append(f"{id} has a full disk: it answers reads, and takes writes again when there is space; `ares-cli delete` makes some")
    if description.unknown_keys:
        lines.append(f"{id} has turned away {description.unknown_keys} attempts to connect with an unknown key")
    if description.stored is not None and description.stored.quarantined:
        lines.append(f"{id} holds {description.stored.quarantined} versions whose data is damaged on its disk and not repaired yet: `ares-cli scrub`")
    return lines


def _member_cells(member: "ConsensusDescription | None") -> list[str]:
    if member is None:
        return ["[red]silent[/red]", "", ""]
    role = "leader" if member.leader == member.member else "up" if member.leader else "up, knows no leader"
    return [f"[green]{role}[/green]", str(member.term), str(member.decisions)]


def _consensus_outlook(answering: int, total: int, serves: bool) -> str:
    """``serves``: some domain has its quorum."""
    spare = answering - (total // 2 + 1)
    if spare < 0:
        goes_on = "reads and writes go on, " if serves else ""
        return f"consensus: {answering} of {total} members answer, no majority: {goes_on}reconfiguring and creating domains wait"
    return f"consensus: {answering} of {total} members answer; survives {spare or 'no'} more crash{'' if spare == 1 else 'es'}"


def _etcd_outlook(members: "list[ConsensusDescription]", endpoints: int) -> str:
    """The endpoints in the cluster file need not be all members: one may stand for several."""
    waits = "reads and writes go on, reconfiguring and creating domains wait"
    answering = f"consensus: etcd; {len(members)} of {endpoints} endpoints answer"
    if not members:
        return f"{answering}: {waits}"
    total = members[0].members_total
    of_many = f"{answering}; it has {total} member{'' if total == 1 else 's'}"
    return of_many if any(member.leader for member in members) else f"{of_many} and no leader: {waits}"


def _duration(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{days}d {hour:02}:{minute:02}:{second:02}" if days else f"{hour:02}:{minute:02}:{second:02}"
