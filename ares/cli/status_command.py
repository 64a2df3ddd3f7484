"""The command status: who answers, what every domain runs on, and what could fail next."""

from typing import TYPE_CHECKING, Any

import typer

from ares.cli.connection import printable, size, with_manager
from ares.cli.options import Common, command

if TYPE_CHECKING:
    from ares.cli.standing import Standing
    from ares.client.manager import Status
    from ares.messages import ConsensusDescription, Description
    from ares.runtime.settings import Settings

SHORT = 8
"""How many characters of an identity a person is shown."""


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    command(app, "status", example="ares-cli status")(status)


def status(common: Common) -> None:
    """Show servers, consensus members and domains, and how many crashes each domain survives. Exit status 1 if a domain has no quorum."""
    from ares.cli.standing import survey

    settings = common.settings()
    found, standings = with_manager(common, survey)
    if common.json:
        common.report(_as_data(settings, found, standings), "")
    else:
        _show(settings, found, standings)
    if not all(standing.serves for standing in standings):
        raise typer.Exit(1)


def _as_data(settings: "Settings", found: "Status", standings: "list[Standing]") -> dict[str, Any]:
    members = {member.member: member for member in found.members}
    return {
        "name": settings.name,
        "servers": {id: {"address": settings.servers[id].address} | _server_data(description) for id, description in found.servers.items()},
        "consensus": {id: _member_data(members.get(id)) for id in settings.members},
        "domains": [
            {
                "domain": standing.domain,
                "configuration": standing.active[0].describe(),
                "index": standing.active[0].index,
                "pending": [configuration.describe() for configuration in standing.active[1:]],
                "missing": standing.missing,
                "serves": standing.serves,
                "crashes_survived": max(standing.margin, 0),
                "outlook": standing.outlook(),
            }
            for standing in standings
        ],
    }


def _member_data(member: "ConsensusDescription | None") -> dict[str, Any]:
    if member is None:
        return {"reachable": False}
    return {"reachable": True, "leader": member.leader, "term": member.term, "decisions": member.decisions}


def _server_data(description: "Description | None") -> dict[str, Any]:
    if description is None:
        return {"reachable": False}
    return {
        "reachable": True,
        "identity": description.identity,
        "version": description.version,
        "uptime_s": round(description.uptime_s, 3),
        "memory_bytes": description.memory_bytes,
        "objects": sum(hosted.objects for hosted in description.hosted),
        "bytes": sum(hosted.bytes for hosted in description.hosted),
    }


def _show(settings: "Settings", found: "Status", standings: "list[Standing]") -> None:
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
    console.print()
    if settings.members:
        members = {member.member: member for member in found.members}
        consensus = Table("id", "address", "", "term", "decisions", box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for member, about in settings.members.items():
            consensus.add_row(member, about.address, *_member_cells(members.get(member)))
        console.print(consensus)
        console.print(_consensus_outlook(len(members), len(settings.members)), soft_wrap=True)
    for standing in standings:
        console.print(Text(f"\ndomain {printable(standing.domain)}: {standing.active[0].describe()}", style="bold"), soft_wrap=True)
        for pending in standing.active[1:]:
            then = "the move is under way, or was left for the next `ares-cli reconfig` to finish"
            console.print(Text(f"  to follow: {pending.describe()}; {then}"), soft_wrap=True)
        colour = "red" if not standing.serves else "green" if standing.margin else "yellow"
        console.print(Text(f"  {standing.outlook()}", style=colour), soft_wrap=True)


def _server_cells(description: "Description | None") -> list[str]:
    if description is None:
        return ["[red]silent[/red]", "", "", "", "", ""]
    data = _server_data(description)
    memory, stored = size(description.memory_bytes), size(data["bytes"])
    return ["[green]up[/green]", description.identity[:SHORT], memory, str(data["objects"]), stored, _duration(description.uptime_s)]


def _member_cells(member: "ConsensusDescription | None") -> list[str]:
    if member is None:
        return ["[red]silent[/red]", "", ""]
    role = "leader" if member.leader == member.member else "up" if member.leader else "up, knows no leader"
    return [f"[green]{role}[/green]", str(member.term), str(member.decisions)]


def _consensus_outlook(answering: int, total: int) -> str:
    spare = answering - (total // 2 + 1)
    if spare < 0:
        return f"consensus: {answering} of {total} members answer, no majority: reads and writes go on, reconfiguring and creating domains wait"
    return f"consensus: {answering} of {total} members answer; survives {spare or 'no'} more crash{'' if spare == 1 else 'es'}"


def _duration(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{days}d {hour:02}:{minute:02}:{second:02}" if days else f"{hour:02}:{minute:02}:{second:02}"
