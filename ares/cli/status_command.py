"""The command status: processes, configurations, answering members, and the next possible failure.

Two sources are put together, to work with any rest of a cluster: a quorum's answers, and the
holdings that every answering server reports. A member counts only under the identity that the
configuration names; a different identity means a server that lost its memory.
"""

import asyncio
import contextlib
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct, structs

from ares.cli.local_files import naming
from ares.cli.observe.consensus_seen import etcd_outlook, raft_outlook
from ares.cli.observe.observed_chains import ObservedChains, chains_seen
from ares.cli.observe.observed_releases import releases, sentence, warning
from ares.cli.options import SharedOptions, with_manager
from ares.cli.terminal import printable, size
from ares.model.configuration import Configuration, Server
from ares.model.errors import AresError
from ares.model.identity import (
    DIRECTORY_PREFIX,
    FILE_DOMAINS,
    ConfigurationId,
    DomainName,
    ObjectName,
    ServerId,
    shown,
)
from ares.model.messages import ConfigurationReport, ConsensusDescription, Description, FollowReport
from ares.model.quorum import NO_ANSWER

if TYPE_CHECKING:
    from rich.console import Console

    from ares.client.domain import Domain
    from ares.client.manager import ClusterStatus, Manager
    from ares.cluster.settings import Settings

PROBE_S = 3.0
"""Seconds that a domain may take to answer.

After a second of silence a client asks the consensus service for later configurations.
"""

PROBES_AT_ONCE = 64
NAMES_SHOWN_MAX = 3
ID_CHARACTERS_SHOWN = 8
"""Characters of an identity shown to a person."""

FORGETFUL = "restarted without its memory"
DISK_IS_FULL = "its disk is full"
_WORDS = {FORGETFUL: FORGETFUL, DISK_IS_FULL: "has a full disk"}


class DomainState(Struct, frozen=True):
    """The state of a domain.

    ``active``: the last finalized configuration and its planned successors. ``missing``: their
    members that do not count, with reasons. ``margin``: crashes that the domain still survives;
    negative: members missing from a quorum. ``reading``: the same for reads alone, for which
    members with full disks count. ``trouble``: the servers' errors in place of an answer. ``left``:
    objects that a move left behind because they could not be decoded, only the first of many.
    ``log``: the log's chains; ``None`` for objects.
    """

    domain: str
    active: list[Configuration]
    missing: dict[ServerId, str]
    margin: int
    reading: int
    trouble: str
    left: list[ObjectName]
    log: ObservedChains | None = None

    @property
    def serves(self) -> bool:
        """Return whether the domain serves at least reads."""
        return self.reading >= 0 and not self.trouble

    def move_to(self, pending: Configuration) -> str:
        """Return the progress of the move to a decided configuration."""
        silent = [
            id for id in pending.server_ids if self.missing.get(id, DISK_IS_FULL) != DISK_IS_FULL
        ]
        if pending.n - len(silent) >= pending.quorum_size:
            return "the move is under way, or was left for the next `ares-cli reconfig` to finish"
        waiting = "appends wait" if pending.dap == "chain" else "reads and writes fail"
        return (
            f"the configuration is decided, and {waiting} until a quorum of its servers answers: "
            f"{', '.join(silent)} must come back. Nothing is lost; the next `ares-cli reconfig` "
            "finishes the move"
        )

    def outlook(self) -> str:
        """Return a sentence about the next possible failure.

        An example: ``default: EC 5/3, survives 0 more crashes: s3 is down``.
        """
        absent = ", ".join(
            f"{server} {_WORDS.get(why, 'is down')}" for server, why in sorted(self.missing.items())
        )
        tail = f": {absent}" if absent else ""
        finalized = self.active[0]
        shape = (
            f"EC {finalized.n}/{finalized.k}"
            if finalized.dap == "ec"
            else f"{finalized.dap} {finalized.n}".replace("abd", "ABD")
        )
        head = f"{printable(self.domain)}: {shape}"
        if self.reading < 0:
            return f"{head}, NO QUORUM, {-self.reading} more of its servers must answer{tail}"
        if self.trouble:
            return f"{head}, NO ANSWER: {self.trouble}"
        if self.log is not None and self.log.sealed and not absent:
            ways = "`ares-cli reconfig`, to the same servers if need be, or the autopilot goes on"
            return (
                f"{head}, NO APPENDS: its chain is sealed, and the next chain is not decided; "
                f"{ways}; reads go on"
            )
        if self.margin < 0 and self.active[-1].dap == "chain":
            back = "until they are back, or `ares-cli reconfig` makes a chain without them"
            return f"{head}, NO APPENDS{tail}, {back}; reads go on"
        if self.margin < 0:
            return (
                f"{head}, NO WRITES, {-self.margin} more of its servers must take them, reads go "
                f"on{tail}"
            )
        stops = (
            "; appends stop then until a chain without that server is made"
            if self.log is not None and self.margin > 0
            else ""
        )
        return (
            f"{head}, survives {self.margin} more "
            f"crash{'' if self.margin == 1 else 'es'}{tail}{stops}"
        )


def is_of_file(domain: str) -> bool:
    """Return whether the domain belongs to a single file; a cluster may have thousands."""
    return domain.startswith(FILE_DOMAINS)


def outlook_of_files(standings: Sequence[DomainState]) -> str:
    """Return a sentence about the domains of all files together."""
    many = (
        f"{len(standings)} domains of single files"
        if len(standings) != 1
        else "1 domain of a single file"
    )
    stopped = [standing.domain for standing in standings if not standing.serves]
    if stopped:
        shown = ", ".join(map(repr, stopped[:NAMES_SHOWN_MAX])) + (
            ", ..." if len(stopped) > NAMES_SHOWN_MAX else ""
        )
        return f"{many}: {len(stopped)} of them without a quorum: {shown}"
    least = min(standing.margin for standing in standings)
    if least < 0:
        return (
            f"{many}: {sum(standing.margin < 0 for standing in standings)} of them take no "
            "writes now, reads go on"
        )
    if least == 0:
        return (
            f"{many}: {sum(standing.margin == 0 for standing in standings)} of them survive no "
            "more crashes"
        )
    return (
        f"{many}: each survives {least} more "
        f"crash{'es' if least > 1 else ''}{' or more' if len(standings) > 1 else ''}"
    )


async def domain_names(manager: "Manager", timeout_s: float | None = None) -> list[str]:
    """Return the names of all domains, `default` first."""
    return [
        manager.name,
        *[
            name.removeprefix(DIRECTORY_PREFIX)
            async for name in manager.list_named(DIRECTORY_PREFIX, timeout_s)
        ],
    ]


async def survey(
    manager: "Manager", every: bool = True
) -> "tuple[ClusterStatus, list[DomainState]]":
    """Ask all processes, and return the state of every domain, `default` first.

    The survey takes a few seconds at most with any processes down, and raises no error for them.
    Unless ``every``, domains of single files are not asked separately: the servers' reports of
    their holdings must do.
    """
    status, (stores, troubles, others) = await asyncio.gather(
        manager.status(), _probe(manager, every)
    )
    known = KnownConfigurations()
    marks: dict[ConfigurationId, list[ObjectName]] = {}
    for description in status.servers.values():
        for hosted in description.hosted if description is not None else ():
            known.note_hosted(hosted)
            marks.setdefault(hosted.configuration.id, []).extend(hosted.left_names)
    for store in stores:
        known.note(store.configuration, True)
    for unheard in sorted(others - known.domains):
        with contextlib.suppress(
            AresError
        ):  # its entry cannot be read, which the line of `default` reports
            known.note(
                (await manager.domain_or_log(unheard, timeout_s=PROBE_S)).configuration, True
            )
    active = {
        domain: known.active(domain)
        for domain in [manager.name, *sorted(known.domains - {manager.name})]
    }
    identities = {
        server: description.identity
        for server, description in status.servers.items()
        if description is not None
    }
    identities |= await _identities_of_others(manager, status, active.values())
    full = {
        server
        for server, said in status.servers.items()
        if said is not None and said.stored is not None and said.stored.full
    }
    said = {
        server: description.hosted
        for server, description in status.servers.items()
        if description is not None
    }
    standings = [
        standing_of(
            some,
            identities,
            full,
            status.troubles,
            troubles.get(domain, ""),
            _left_behind(status, marks, some),
            chains_seen(some, said),
        )
        for domain, some in active.items()
    ]
    return status, standings


def standing_of(
    active: list[Configuration],
    identities: Mapping[ServerId, str],
    full: set[ServerId],
    troubles: Mapping[ServerId, str],
    trouble: str = "",
    left: Sequence[ObjectName] = (),
    log: ObservedChains | None = None,
) -> DomainState:
    """Return the state of the domain with these configurations.

    ``identities``: of answering servers; ``full``: servers with full disks; ``troubles``: of the
    rest.
    """
    missing: dict[ServerId, str] = {}
    margins, reading = [], []
    for configuration in active:
        absent = {
            server.id
            for server in configuration.servers
            if identities.get(server.id) != server.identity
        }
        lacking_room = full.intersection(configuration.server_ids) - absent
        missing |= {
            server: FORGETFUL if server in identities else troubles.get(server, NO_ANSWER)
            for server in sorted(absent)
        }
        missing |= dict.fromkeys(sorted(lacking_room), DISK_IS_FULL)
        reading.append(configuration.n - len(absent) - configuration.quorum_size)
        margins.append(reading[-1] - len(lacking_room))
        if (
            configuration.dap == "chain"
            and configuration is active[-1]
            and (absent or lacking_room)
        ):
            margins[-1] = -len(
                absent | lacking_room
            )  # a chain takes appends only with all of its servers
    if log is not None and log.sealed:
        margins[-1] = min(margins[-1], -1)
    return DomainState(
        active[0].domain, active, missing, min(margins), min(reading), trouble, list(left), log
    )


def _left_behind(
    status: "ClusterStatus",
    marks: Mapping[ConfigurationId, Sequence[ObjectName]],
    active: Sequence[Configuration],
) -> list[ObjectName]:
    """Return the objects that a move left behind, without a later version at a quorum.

    ``marks``: each object as often as a server reports it. A silent server may hold a report too:
    in doubt the object is returned.
    """
    left: set[ObjectName] = set()
    for configuration in active:
        answering = sum(status.servers.get(id) is not None for id in configuration.server_ids)
        said = Counter(marks.get(configuration.id, ()))
        left.update(
            name for name, number in said.items() if number > answering - configuration.quorum_size
        )
    return sorted(left)


class KnownConfigurations:
    """Known configurations, by domain and index, and the last finalized index of each domain."""

    def __init__(self) -> None:
        self._seen: dict[DomainName, dict[int, Configuration]] = {}
        self._finalized: dict[DomainName, int] = {}

    @property
    def domains(self) -> set[DomainName]:
        return set(self._seen)

    def note(self, configuration: Configuration, finalized: bool) -> None:
        domain, index = configuration.domain, configuration.index
        self._seen.setdefault(domain, {})[index] = configuration
        if finalized:
            self._finalized[domain] = max(index, self._finalized.get(domain, 0))

    def note_hosted(self, hosted: ConfigurationReport) -> None:
        """Note a server's report."""
        self.note(hosted.configuration, hosted.configuration.index == 0)
        if hosted.successor is not None:
            self.note(hosted.successor.configuration, hosted.successor.finalized)

    def active(self, domain: DomainName) -> list[Configuration]:
        """Return the configurations from the last known finalized on, or all if none is known."""
        seen = self._seen[domain]
        return [seen[index] for index in sorted(seen) if index >= self._finalized.get(domain, 0)]


async def _probe(
    manager: "Manager", every: bool
) -> "tuple[list[Domain], dict[DomainName, str], set[DomainName]]":
    """Probe the domains at their last answering configurations.

    Returns the found domains, the errors of the silent domains, and the domains not asked.
    """
    stores: list[Domain] = [manager]
    troubles = {}
    others: set[DomainName] = set()
    try:
        for name in (await domain_names(manager, PROBE_S))[1:]:
            if every or not is_of_file(name):
                stores.append(await manager.domain_or_log(name, timeout_s=PROBE_S))
            else:
                others.add(DomainName(name))
    except AresError as error:
        troubles[manager.name] = str(error)
    turn = asyncio.Semaphore(PROBES_AT_ONCE)

    async def ask(store: "Domain") -> None:
        async with turn:
            try:
                await store.current(timeout_s=PROBE_S)
            except AresError as error:
                troubles[store.name] = str(error)

    await asyncio.gather(*map(ask, stores[1:]))
    return stores, troubles, others


async def _identities_of_others(
    manager: "Manager", status: "ClusterStatus", active: Iterable[list[Configuration]]
) -> dict[ServerId, str]:
    """Return identities of answering members that the cluster file does not name."""
    others = {
        server.id: server
        for some in active
        for configuration in some
        for server in configuration.servers
        if server.id not in status.servers
    }

    async def identity(server: Server) -> str:
        try:
            return (await manager.identified(Configuration("abd", (server,)))).servers[0].identity
        except AresError:
            return ""

    found = await asyncio.gather(*map(identity, others.values()))
    return {server: identity for server, identity in zip(others, found, strict=True) if identity}


# -- the command -----------------------------------------------------------------------------------


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
            | _server_data(said, _why(found, id))
            for id, said in found.servers.items()
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
    said = [
        f"{member.member}: {member.autopilot or 'it was started without'}"
        for member in members
        if member.leader == member.member
    ]
    return ", ".join(said) or "no consensus member leads: no server is replaced now"


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

    console = Console(
        highlight=False, width=shutil.get_terminal_size().columns
    )  # COLUMNS=0 means an unknown width
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
            id, *([server.site] if sited else []), server.address, *_server_cells(description)
        )
    console.print(Text(settings.name, style="bold"))
    console.print(servers)
    told = releases(found.servers, ares_members(settings, found))
    for line in filter(None, (sentence(told), _disks(found.servers), _cores(found.servers))):
        console.print(line, soft_wrap=True)
    if mixed := warning(told):
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


def _server_cells(description: Description | None) -> list[str]:
    if description is None:
        return ["[red]silent[/red]", "", "", "", "", ""]
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
    told = {
        id: description.stored
        for id, description in servers.items()
        if description is not None and description.stored is not None
    }
    each = ", ".join(
        f"{id} {size(stored.disk_bytes)} ({size(stored.live_bytes)} needed)"
        for id, stored in told.items()
    )
    return f"on disk: {each}" if each else ""


def _cores(servers: Mapping[ServerId, Description | None]) -> str:
    """Return the cores that run small operations at the servers, as far as known."""
    told = {
        id: printable(description.core)
        for id, description in servers.items()
        if description is not None and description.core
    }
    each = (
        f"{core} ({', '.join(id for id in told if told[id] == core)})"
        for core in sorted(set(told.values()))
    )
    return f"core: {', '.join(each)}" if told else ""


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
