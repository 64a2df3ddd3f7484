"""How each domain stands: which configurations serve it, which of their members answer, and what could fail next.

Two sources are put together, so that it works however little of the cluster is left: what a quorum says when asked, and what every server that
answers says that it holds. A member counts only under the identity that the configuration names; another one means that it lost its memory.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, structs

from ares.cli.command_connection import printable
from ares.client.manager import ClusterStatus, Manager
from ares.client.store import ObjectStore
from ares.model.configuration import Configuration, Server
from ares.model.errors import AresError
from ares.model.identity import DIRECTORY, FILE_DOMAINS, ConfigurationId, DomainName, ObjectName, ServerId
from ares.model.quorum import NO_ANSWER

PROBE_S = 3.0
"""How long a domain may take to answer; beyond a second's silence a client asks the consensus service for later configurations."""

PROBES_AT_ONCE = 64
NAMES_SHOWN_MAX = 3


FORGETFUL = "restarted without its memory"
FULL = "its disk is full"
_WORDS = {FORGETFUL: FORGETFUL, FULL: "has a full disk"}


class Standing(Struct, frozen=True):
    """``active``: the last finalized configuration and those that are to follow it. ``missing``: their members that do not count, and why.

    ``margin``: how many more crashes the domain survives; negative: so many members short of a quorum. ``reading``: the same for reads alone, for
    which members count whose disks are full. ``trouble``: what the domain's servers said instead of an answer. ``left``: objects that a move left
    behind because they could not be decoded, the first of them if there are many.
    """

    domain: str
    active: list[Configuration]
    missing: dict[ServerId, str]
    margin: int
    reading: int
    trouble: str
    left: list[ObjectName] = []

    @property
    def serves(self) -> bool:
        """Reads, at least."""
        return self.reading >= 0 and not self.trouble

    def outlook(self) -> str:
        """One sentence: what could fail next. ``default: EC 5/3, survives 0 more crashes: s3 is down``."""
        absent = ", ".join(f"{server} {_WORDS.get(why, 'is down')}" for server, why in sorted(self.missing.items()))
        tail = f": {absent}" if absent else ""
        head = f"{printable(self.domain)}: {_shape(self.active[0])}"
        if self.reading < 0:
            return f"{head}, NO QUORUM, {-self.reading} more of its servers must answer{tail}"
        if self.trouble:
            return f"{head}, NO ANSWER: {self.trouble}"
        if self.margin < 0:
            return f"{head}, NO WRITES, {-self.margin} more of its servers must take them, reads go on{tail}"
        return f"{head}, survives {self.margin} more crash{'' if self.margin == 1 else 'es'}{tail}"


def _shape(configuration: Configuration) -> str:
    return f"EC {configuration.n}/{configuration.k}" if configuration.dap == "ec" else f"ABD {configuration.n}"


def is_of_file(domain: str) -> bool:
    """Whether it is the domain of a single file, of which there may be thousands."""
    return domain.startswith(FILE_DOMAINS)


def outlook_of_files(standings: Sequence[Standing]) -> str:
    """One sentence about the domains of all files together."""
    many = f"{len(standings)} domains of single files" if len(standings) != 1 else "1 domain of a single file"
    stopped = [standing.domain for standing in standings if not standing.serves]
    if stopped:
        shown = ", ".join(map(repr, stopped[:NAMES_SHOWN_MAX])) + (", ..." if len(stopped) > NAMES_SHOWN_MAX else "")
        return f"{many}: {len(stopped)} of them without a quorum: {shown}"
    least = min(standing.margin for standing in standings)
    if least < 0:
        return f"{many}: {sum(standing.margin < 0 for standing in standings)} of them take no writes now, reads go on"
    if least == 0:
        return f"{many}: {sum(standing.margin == 0 for standing in standings)} of them survive no more crashes"
    return f"{many}: each survives {least} more crash{'es' if least > 1 else ''}{' or more' if len(standings) > 1 else ''}"


async def domain_names(manager: Manager, timeout_s: float | None = None) -> list[str]:
    """The names of all domains, `default` first."""
    return [manager.name, *[name.removeprefix(DIRECTORY) async for name in manager.list_named(DIRECTORY, timeout_s)]]


async def survey(manager: Manager, every: bool = True) -> tuple[ClusterStatus, list[Standing]]:
    """Ask everybody, and tell how every domain stands, `default` first. Takes a few seconds at most, whatever is down; raises nothing for that.

    Unless ``every``, the domains of single files are not asked one by one: what the servers say that they hold must do.
    """
    status, (stores, troubles, others) = await asyncio.gather(manager.status(), _probe(manager, every))
    known = _Known()
    for description in status.servers.values():
        for hosted in description.hosted if description is not None else ():
            known.note(hosted.configuration, hosted.configuration.index == 0)
            if hosted.successor is not None:
                known.note(hosted.successor.configuration, hosted.successor.finalized)
    for store in stores:
        known.note(store.configuration, True)
    for unheard in sorted(others - known.domains):
        with contextlib.suppress(AresError):  # then its entry cannot be read, which is told of `default`
            known.note((await manager.domain(unheard, timeout_s=PROBE_S)).configuration, True)
    active = {domain: known.active(domain) for domain in [manager.name, *sorted(known.domains - {manager.name})]}
    identities = {server: description.identity for server, description in status.servers.items() if description is not None}
    identities |= await _identities_of_others(manager, status, active.values())
    full = {server for server, said in status.servers.items() if said is not None and said.stored is not None and said.stored.full}
    standings = [_standing(domain, some, identities, full, status.troubles, troubles.get(domain, "")) for domain, some in active.items()]
    marks = _marks(status)
    return status, [structs.replace(standing, left=left_behind(status, marks, standing.active)) for standing in standings]


Marks = Mapping[ConfigurationId, Sequence[ObjectName]]


def _marks(status: ClusterStatus) -> Marks:
    """Which objects servers say were left behind, each as often as one says so."""
    marks: dict[ConfigurationId, list[ObjectName]] = {}
    for description in status.servers.values():
        for hosted in description.hosted if description is not None else ():
            if hosted.left_names:
                marks.setdefault(hosted.configuration.id, []).extend(hosted.left_names)
    return marks


def left_behind(status: ClusterStatus, marks: Marks, active: Sequence[Configuration]) -> list[ObjectName]:
    """The objects of a domain that so many servers say were left behind that no quorum has a later version.

    Who says nothing may say so, too: in doubt it is told.
    """
    left: set[ObjectName] = set()
    for configuration in active if marks else ():
        answering = sum(status.servers.get(id) is not None for id in configuration.server_ids)
        said = Counter(marks.get(configuration.id, ()))
        left.update(name for name, number in said.items() if number > answering - configuration.quorum_size)
    return sorted(left)


class _Known:
    """Every configuration heard of, by domain and index, and the last finalized index of each domain."""

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

    def active(self, domain: DomainName) -> list[Configuration]:
        """From the last one known to be finalized; from the first one known if none is."""
        seen = self._seen[domain]
        return [seen[index] for index in sorted(seen) if index >= self._finalized.get(domain, 0)]


async def _probe(manager: Manager, every: bool) -> tuple[list[ObjectStore], dict[DomainName, str], set[DomainName]]:
    """The domains that can be found, each at its last configuration that answers; what those said that do not; and the domains not asked."""
    stores: list[ObjectStore] = [manager]
    troubles = {}
    others: set[DomainName] = set()
    try:
        for name in (await domain_names(manager, PROBE_S))[1:]:
            if every or not is_of_file(name):
                stores.append(await manager.domain(name, timeout_s=PROBE_S))
            else:
                others.add(DomainName(name))
    except AresError as error:
        troubles[manager.name] = str(error)
    turn = asyncio.Semaphore(PROBES_AT_ONCE)

    async def ask(store: ObjectStore) -> None:
        async with turn:
            try:
                await store.current(timeout_s=PROBE_S)
            except AresError as error:
                troubles[store.name] = str(error)

    await asyncio.gather(*map(ask, stores[1:]))
    return stores, troubles, others


async def _identities_of_others(manager: Manager, status: ClusterStatus, active: Iterable[list[Configuration]]) -> dict[ServerId, str]:
    """Identities of members that the cluster file does not name, of those that answer."""
    others = {server.id: server for some in active for configuration in some for server in configuration.servers if server.id not in status.servers}

    async def identity(server: Server) -> str:
        try:
            return (await manager.identified(Configuration("abd", (server,)))).servers[0].identity
        except AresError:
            return ""

    found = await asyncio.gather(*map(identity, others.values()))
    return {server: identity for server, identity in zip(others, found, strict=True) if identity}


def _standing(
    domain: str, active: list[Configuration], identities: dict[ServerId, str], full: set[ServerId], unreached: Mapping[ServerId, str], trouble: str
) -> Standing:
    missing: dict[ServerId, str] = {}
    margins, reading = [], []
    for configuration in active:
        absent = {server.id for server in configuration.servers if identities.get(server.id) != server.identity}
        lacking_room = full.intersection(configuration.server_ids) - absent
        missing |= {server: FORGETFUL if server in identities else unreached.get(server, NO_ANSWER) for server in sorted(absent)}
        missing |= dict.fromkeys(sorted(lacking_room), FULL)
        reading.append(configuration.n - len(absent) - configuration.quorum_size)
        margins.append(reading[-1] - len(lacking_room))
    return Standing(domain, active, missing, min(margins), min(reading), trouble)
