"""The command status: processes, domains, and the next possible failure."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import structs

from ares.cli.local_files import naming
from ares.cli.observe.consensus_seen import etcd_outlook, raft_outlook
from ares.cli.observe.domain_survey import DomainState, is_of_file, outlook_of_files, survey
from ares.cli.observe.observed_releases import releases, sentence, warning
from ares.cli.options import SharedOptions, with_manager
from ares.cli.terminal import printable, size
from ares.model.errors import NO_ANSWER, STARTING
from ares.model.identity import (
    ServerId,
    shown,
)
from ares.model.messages import ConsensusDescription, Description, FollowReport
from ares.model.numbers import plural

if TYPE_CHECKING:
    from rich.console import Console

    from ares.client.manager import ClusterStatus
    from ares.cluster.settings import Settings

ID_CHARACTERS_SHOWN = 8
"""Characters of an identity shown to a person."""


def status(
    common: SharedOptions,
    every: Annotated[
        bool, typer.Option("--all", help="Show the domains of single files, too, one by one.")
    ] = False,
) -> None:
    """Show servers, consensus members and domains, and how many crashes each domain survives.

    The exit status is 1 if a domain has no quorum. The domains of single files are summed up in one
    line.
    """
    settings = common.settings()
    found, standings = with_manager(common, lambda manager: survey(manager, every))
    shown = [standing for standing in standings if every or not is_of_file(standing.domain)]
    summed_up = [standing for standing in standings if not every and is_of_file(standing.domain)]
    if common.json:
        files = {
            "domains": len(summed_up),
            "crashes_survived": min(
                (max(standing.margin, 0) for standing in summed_up), default=None
            ),
            "without_quorum": [standing.domain for standing in summed_up if not standing.serves],
            "left_behind": [standing.domain for standing in summed_up if standing.left],
        }
        common.report(_as_data(settings, found, shown) | {"files": files}, "")
    else:
        with naming("standard output"):
            _show(settings, found, shown, summed_up)
    if not all(standing.serves for standing in standings):
        raise typer.Exit(1)


def _as_data(
    settings: "Settings", found: "ClusterStatus", standings: list[DomainState]
) -> dict[str, Any]:
    from ares.cluster.sites import labels_of, site_of

    labels, followed = labels_of(settings), followed_by(found.members)
    members = {member.member: member for member in found.members}
    return {
        "name": settings.name,
        "servers": {
            id: {"address": settings.servers[id].address, "site": settings.servers[id].site}
            | {"over_socket": id in found.over_sockets}
            | _server_data(description, _why(found, id))
            for id, description in found.servers.items()
        },
        "releases": releases(found.servers, ares_members(settings, found)),
        "consensus": {
            id: _member_data(members.get(id), _why(found, id)) for id in members_of(settings)
        },
        "autopilot": autopilot_sentence(settings, found.members),
        "domains": [
            {
                "domain": standing.domain,
                "configuration": standing.active[0].describe(),
                "site": site_of(labels, standing.active[0]),
                "index": standing.active[0].index,
                "pending": [configuration.describe() for configuration in standing.active[1:]],
                "missing": standing.missing,
                "serves": standing.serves,
                "takes_writes": standing.serves and standing.margin >= 0,
                "crashes_survived": max(standing.margin, 0),
                "outlook": standing.outlook(),
                "left_behind": standing.left,
                "log": standing.log.as_data() if standing.log is not None else None,
                "follows_users": structs.asdict(followed[standing.domain])
                if standing.domain in followed
                else None,
            }
            for standing in standings
        ],
    }


def autopilot_sentence(settings: "Settings", members: Sequence[ConsensusDescription]) -> str | None:
    """Return the autopilot's actions, in the leader's words; ``None`` without an autopilot."""
    if settings.autopilot is None:
        return None
    reports = [
        f"{member.member}: {member.autopilot or 'it was started without'}"
        for member in members
        if member.leader == member.member
    ]
    return ", ".join(reports) or "no consensus member leads: no server is replaced now"


def followed_by(members: Sequence[ConsensusDescription]) -> dict[str, FollowReport]:
    """Return the leader's decisions about domains that follow their users."""
    return {
        each.domain: each
        for member in members
        if member.leader == member.member
        for each in member.followed
    }


def members_of(settings: "Settings") -> dict[ServerId, str]:
    """Return the client addresses of the deciding members, by the name in a description."""
    if settings.etcd is not None:
        return {ServerId(endpoint): endpoint for endpoint in settings.etcd.endpoints}
    return {id: member.address for id, member in settings.members.items()}


def ares_members(settings: "Settings", found: "ClusterStatus") -> list[ConsensusDescription]:
    """Return the members that are processes of ares: none where an etcd decides."""
    return found.members if settings.etcd is None else []


def _why(found: "ClusterStatus", id: ServerId) -> str:
    """Return the reason for the silence of a server or member."""
    return found.troubles.get(id, NO_ANSWER)


def _member_data(member: ConsensusDescription | None, why: str) -> dict[str, Any]:
    if member is None:
        return {"reachable": False, "why": why}
    return {
        "reachable": True,
        "version": member.version,
        "leader": member.leader,
        "term": member.term,
        "decisions": member.decisions,
        "autopilot": member.autopilot,
    }


def _server_data(description: Description | None, why: str = NO_ANSWER) -> dict[str, Any]:
    if description is None:
        return {"reachable": False, "why": why}
    return {
        "reachable": True,
        "identity": description.identity,
        "version": description.version,
        "core": description.core,
        "uptime_s": round(description.uptime_s, 3),
        "memory_bytes": description.memory_bytes,
        "objects": sum(hosted.objects for hosted in description.hosted),
        "bytes": sum(hosted.bytes for hosted in description.hosted),
        "unknown_keys": description.unknown_keys,
        "stored": None if description.stored is None else structs.asdict(description.stored),
    }


def _show(
    settings: "Settings",
    found: "ClusterStatus",
    standings: list[DomainState],
    files: list[DomainState],
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # COLUMNS=0 means an unknown width
    console = Console(highlight=False, width=shutil.get_terminal_size().columns)
    sited = any(server.site for server in settings.servers.values())
    columns = [
        "id",
        *(["site"] if sited else []),
        "address",
        "",
        "identity",
        "memory",
        "objects",
        "stored",
        "uptime",
    ]
    servers = Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    servers.columns[1 + sited].no_wrap = True
    for column in servers.columns[4 + sited :]:
        column.justify = "right"
    for id, description in found.servers.items():
        server = settings.servers[id]
        servers.add_row(
            id,
            *([server.site] if sited else []),
            server.address,
            *_server_cells(description, _why(found, id)),
        )
    console.print(Text(settings.name, style="bold"))
    console.print(servers)
    running = releases(found.servers, ares_members(settings, found))
    over_sockets = ", ".join(id for id in found.servers if id in found.over_sockets)
    for line in filter(
        None,
        (
            sentence(running),
            _disks(found.servers),
            _cores(found.servers),
            over_sockets and f"reached over Unix sockets: {over_sockets}",
        ),
    ):
        console.print(line, soft_wrap=True)
    if mixed := warning(running):
        console.print(Text(mixed, style="yellow"), soft_wrap=True)
    for id, description in found.servers.items():
        for line in (
            [f"{id}: {_why(found, id)}"] if description is None else _warnings(id, description)
        ):
            console.print(Text(line, style="yellow"), soft_wrap=True)
    console.print()
    if members_of(settings):
        _show_members(settings, console, found)
        console.print(
            consensus_outlook(settings, found.members, [*standings, *files]), soft_wrap=True
        )
    if (flown := autopilot_sentence(settings, found.members)) is not None:
        console.print(Text(f"autopilot: {flown}"), soft_wrap=True)
    _show_domains(settings, console, standings, files, followed_by(found.members))


def _show_members(settings: "Settings", console: "Console", found: "ClusterStatus") -> None:
    from rich.table import Table
    from rich.text import Text

    addresses, members = members_of(settings), {member.member: member for member in found.members}
    consensus = Table(
        "id", "address", "", "term", "decisions", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    for member, address in addresses.items():
        consensus.add_row(
            member if settings.etcd is None else "etcd",
            address,
            *_member_cells(members.get(member)),
        )
    console.print(consensus)
    for member in addresses:
        if member not in members:
            console.print(Text(f"{member}: {_why(found, member)}", style="yellow"), soft_wrap=True)


def _show_domains(
    settings: "Settings",
    console: "Console",
    standings: Sequence[DomainState],
    files: Sequence[DomainState],
    followed: Mapping[str, FollowReport],
) -> None:
    from rich.text import Text

    from ares.cluster.sites import labels_of, site_of

    labels = labels_of(settings)
    for standing in standings:
        console.print(
            Text(f"\n{standing.outlook()}", style=f"bold {_colour([standing])}"), soft_wrap=True
        )
        site, here = site_of(labels, standing.active[0]), settings.client.site
        distance = (
            ""
            if here in (None, site)
            else f", partly remote from {here}"
            if here in site.split("+")
            else f", remote from {here}"
        )
        where = f", at site {site}{distance}" if site else ""
        console.print(
            Text(
                f"  configuration {standing.active[0].index}: "
                f"{standing.active[0].describe()}{where}"
            ),
            soft_wrap=True,
        )
        if (each := followed.get(standing.domain)) is not None:
            console.print(Text(f"  follows its users: {printable(each.why)}"), soft_wrap=True)
        for line in standing.log.lines() if standing.log is not None else ():
            console.print(Text(f"  {line}"), soft_wrap=True)
        for pending in standing.active[1:]:
            line = f"  to follow: {pending.describe()}; {standing.move_to(pending)}"
            console.print(Text(line), soft_wrap=True)
        if standing.left:
            names = ", ".join(printable(shown(name)) for name in standing.left)
            console.print(
                Text(
                    f"  left behind undecodable, until written or deleted: {names}", style="yellow"
                ),
                soft_wrap=True,
            )
    if files:
        console.print(
            Text(f"\n{printable(outlook_of_files(files))}; --all shows them", style=_colour(files)),
            soft_wrap=True,
        )
        if damaged := [printable(standing.domain) for standing in files if standing.left]:
            console.print(
                Text(
                    f"  with parts that were left behind undecodable: {', '.join(damaged)}",
                    style="yellow",
                ),
                soft_wrap=True,
            )


def _colour(standings: Sequence[DomainState]) -> str:
    if not all(standing.serves and standing.margin >= 0 for standing in standings):
        return "red"
    return "green" if all(standing.margin > 0 for standing in standings) else "yellow"


def _server_cells(description: Description | None, why: str) -> list[str]:
    if description is None:
        starts = why.startswith(STARTING)
        return ["[yellow]starting[/yellow]" if starts else "[red]silent[/red]", "", "", "", "", ""]
    data = _server_data(description)
    memory, stored = size(description.memory_bytes), size(data["bytes"])
    state = (
        "[red]disk full[/red]"
        if description.stored is not None and description.stored.full
        else "[green]up[/green]"
    )
    return [
        state,
        description.identity[:ID_CHARACTERS_SHOWN],
        memory,
        str(data["objects"]),
        stored,
        duration(description.uptime_s),
    ]


def _disks(servers: Mapping[ServerId, Description | None]) -> str:
    """Return the disk usage of stores, and the needed part.

    Unneeded room is given back gradually; some is kept free for new data.
    """
    disks = {
        id: description.stored
        for id, description in servers.items()
        if description is not None and description.stored is not None
    }
    each = ", ".join(
        f"{id} {size(stored.disk_bytes)} ({size(stored.live_bytes)} needed)"
        for id, stored in disks.items()
    )
    return f"on disk: {each}" if each else ""


def _cores(servers: Mapping[ServerId, Description | None]) -> str:
    """Return the cores that run small operations at the servers, as far as known."""
    cores = {
        id: printable(description.core)
        for id, description in servers.items()
        if description is not None and description.core
    }
    each = (
        f"{core} ({', '.join(id for id in cores if cores[id] == core)})"
        for core in sorted(set(cores.values()))
    )
    return f"core: {', '.join(each)}" if cores else ""


def _warnings(id: ServerId, description: Description) -> list[str]:
    """Return warnings about an answering server."""
    lines = []
    if description.stored is not None and description.stored.full:
        lines.append(
            f"{id} has a full disk: it answers reads, and takes writes again when there is "
            "space; `ares-cli delete` makes some"
        )
    if description.unknown_keys:
        lines.append(
            f"{id} has turned away {description.unknown_keys} attempts to connect with an "
            "unknown key"
        )
    if description.stored is not None and description.stored.quarantined:
        lines.append(
            f"{id} holds {description.stored.quarantined} versions whose data is damaged on its "
            "disk and not repaired yet: `ares-cli scrub`"
        )
    if description.stored is not None and description.stored.in_logs:
        lines.append(
            f"{id} has {plural(description.stored.in_logs, 'damaged file')} of logs, not repaired "
            "yet: a start would refuse them; its log names the reason"
        )
    return lines


def _member_cells(member: ConsensusDescription | None) -> list[str]:
    if member is None:
        return ["[red]silent[/red]", "", ""]
    role = (
        "leader"
        if member.leader == member.member
        else "up"
        if member.leader
        else "up, knows no leader"
    )
    return [f"[green]{role}[/green]", str(member.term), str(member.decisions)]


def consensus_outlook(
    settings: "Settings", members: list[ConsensusDescription], standings: Iterable[DomainState]
) -> str:
    """Return a sentence on decisions and the next possible failure.

    ``members``: the answering members.
    """
    total = len(members_of(settings))
    if settings.etcd is not None:
        return etcd_outlook(members, total)
    return raft_outlook(len(members), total, any(standing.serves for standing in standings))


def duration(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return (
        f"{days}d {hour:02}:{minute:02}:{second:02}"
        if days
        else f"{hour:02}:{minute:02}:{second:02}"
    )
