"""The state of the domains of a cluster: configurations, answering members, crashes survived.

Two sources are put together, to work with any rest of a cluster: a quorum's answers, and the
holdings that every answering server reports. A member counts only under the identity that the
configuration names; a different identity means a server that lost its memory.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from ares.cli.observe.observed_chains import ObservedChains, chains_seen
from ares.cli.terminal import printable
from ares.model.configuration import Configuration, Server
from ares.model.errors import NO_ANSWER, AresError
from ares.model.identity import (
    DIRECTORY_PREFIX,
    FILE_DOMAINS,
    ConfigurationId,
    DomainName,
    ObjectName,
    ServerId,
)
from ares.model.messages import ConfigurationReport
from ares.model.numbers import plural

if TYPE_CHECKING:
    from ares.client.domain import Domain
    from ares.client.manager import ClusterStatus, Manager

PROBE_S = 3.0
"""Seconds that a domain may take to answer.

After a second of silence a client asks the consensus service for later configurations.
"""

PROBES_AT_ONCE = 64
NAMES_SHOWN_MAX = 3

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
        return f"{head}, survives {plural(self.margin, 'more crash', 'es')}{tail}{stops}"


def is_of_file(domain: str) -> bool:
    """Return whether the domain belongs to a single file; a cluster may have thousands."""
    return domain.startswith(FILE_DOMAINS)


def outlook_of_files(standings: Sequence[DomainState]) -> str:
    """Return a sentence about the domains of all files together."""
    many = (
        f"{plural(len(standings), 'domain')} of single files"
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
        with contextlib.suppress(AresError):
            # its entry cannot be read, which the line of `default` reports
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
        for server, description in status.servers.items()
        if description is not None and description.stored is not None and description.stored.full
    }
    reports = {
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
            chains_seen(some, reports),
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
            # a chain takes appends only with all of its servers
            margins[-1] = -len(absent | lacking_room)
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
        counts = Counter(marks.get(configuration.id, ()))
        left.update(
            name
            for name, number in counts.items()
            if number > answering - configuration.quorum_size
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
