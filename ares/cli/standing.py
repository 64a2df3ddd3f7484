"""How each domain stands: which configurations serve it, which of their members answer, and what could fail next.

Two sources are put together, so that it works however little of the cluster is left: what a quorum says when asked, and what every server that
answers says that it holds. A member counts only under the identity that the configuration names; another one means that it lost its memory.
"""

import asyncio
from collections.abc import Iterable

from msgspec import Struct

from ares.client.manager import Manager, Status
from ares.client.store import ObjectStore
from ares.configuration import Configuration, Server
from ares.errors import AresError
from ares.identity import DomainName, ServerId

PROBE_S = 3.0
"""How long a domain may take to answer; beyond a second's silence a client asks the consensus service for later configurations."""


class Standing(Struct, frozen=True):
    """``active``: the last finalized configuration and those that are to follow it. ``missing``: their members that do not count, and why.

    ``margin``: how many more crashes the domain survives; negative: so many members short of a quorum. ``trouble``: what the domain's servers
    said instead of an answer.
    """

    domain: str
    active: list[Configuration]
    missing: dict[ServerId, str]
    margin: int
    trouble: str

    @property
    def serves(self) -> bool:
        return self.margin >= 0 and not self.trouble

    def outlook(self) -> str:
        """One sentence: what could fail next."""
        absent = ", ".join(f"{server} ({why})" for server, why in sorted(self.missing.items()))
        tail = f"; missing: {absent}" if absent else ""
        if self.margin < 0:
            return f"NO QUORUM: {-self.margin} more of its servers must answer{tail}"
        if self.trouble:
            return f"NO ANSWER: {self.trouble}"
        if self.margin == 0:
            return f"survives no more crashes: the next one stops it{tail}"
        return f"survives {self.margin} more crash{'es' if self.margin > 1 else ''}{tail}"


async def survey(manager: Manager) -> tuple[Status, list[Standing]]:
    """Ask everybody, and tell how every domain stands, `default` first. Takes a few seconds at most, whatever is down; raises nothing for that."""
    status, (stores, troubles) = await asyncio.gather(manager.status(), _probe(manager))
    known = _Known()
    for description in status.servers.values():
        for hosted in description.hosted if description is not None else ():
            known.note(hosted.configuration, hosted.configuration.index == 0)
            if hosted.successor is not None:
                known.note(hosted.successor.configuration, hosted.successor.finalized)
    for store in stores:
        known.note(store.configuration, True)
    active = {domain: known.active(domain) for domain in [manager.name, *sorted(known.domains - {manager.name})]}
    identities = {server: description.identity for server, description in status.servers.items() if description is not None}
    identities |= await _identities_of_others(manager, status, active.values())
    return status, [_standing(domain, some, identities, troubles.get(domain, "")) for domain, some in active.items()]


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


async def _probe(manager: Manager) -> tuple[list[ObjectStore], dict[DomainName, str]]:
    """The domains that can be found, each at its last configuration that answers; and what those said that do not."""
    stores: list[ObjectStore] = []
    troubles = {}
    try:
        async for store in manager.domains(timeout_s=PROBE_S):
            stores.append(store)
    except AresError as error:
        troubles[manager.name] = str(error)

    async def ask(store: ObjectStore) -> None:
        try:
            await store.current(timeout_s=PROBE_S)
        except AresError as error:
            troubles[store.name] = str(error)

    await asyncio.gather(*(ask(store) for store in stores if store is not manager))
    return stores, troubles


async def _identities_of_others(manager: Manager, status: Status, active: Iterable[list[Configuration]]) -> dict[ServerId, str]:
    """Identities of members that the cluster file does not name, of those that answer."""
    others = {server.id: server for some in active for configuration in some for server in configuration.servers if server.id not in status.servers}

    async def identity(server: Server) -> str:
        try:
            return (await manager.identified(Configuration("abd", (server,)))).servers[0].identity
        except AresError:
            return ""

    found = await asyncio.gather(*map(identity, others.values()))
    return {server: identity for server, identity in zip(others, found, strict=True) if identity}


def _standing(domain: str, active: list[Configuration], identities: dict[ServerId, str], trouble: str) -> Standing:
    missing = {}
    margins = []
    for configuration in active:
        present = configuration.n
        for server in configuration.servers:
            if identities.get(server.id) != server.identity:
                present -= 1
                missing[server.id] = "restarted without its memory" if server.id in identities else "no answer"
        margins.append(present - configuration.quorum_size)
    return Standing(domain, active, missing, min(margins), trouble)
