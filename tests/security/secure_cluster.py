"""A cluster with keys in an event loop, over real sockets on loopback.

The cluster has servers, a consensus member, and clients with roles.
"""

import asyncio
import contextlib
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

from msgspec import structs

from ares.client.connect import connect, with_key
from ares.client.manager import Manager
from ares.cluster.cluster_keys import SecuritySettings, authorise
from ares.cluster.new_cluster import InitPlan, create
from ares.cluster.sites import sites_of
from ares.cluster.tables import TransportName
from ares.compiled import replica_parts
from ares.consensus.local import LocalConsensus
from ares.consensus.member_host import ConsensusHost
from ares.model.identity import ServerId
from ares.net.libzmq import ZmqListener
from ares.net.native import ZmtpListener
from ares.net.transports import listener_at
from ares.replica.replica import Replica
from ares.security.keys import SecretKey
from ares.server.process_lifecycle import certifying, guard_of
from ares.server.storage_server import ServerParts, StorageServer

WAIT_S_MAX = 60.0
"""Seconds far beyond any time in these tests, also on a busy machine."""

TIMEOUT_S = 30.0

Result = TypeVar("Result")


async def within(work: Awaitable[Result]) -> Result:
    async with asyncio.timeout(WAIT_S_MAX):
        return await work


class SecureCluster:
    """Five servers, all in c0, or the servers of ``sites``.

    ``hosts`` and ``listeners`` are for inspection, and for closing. A server in ``behind`` listens
    at the address there; clients know its usual address, where a relay may listen.
    """

    def __init__(
        self,
        directory: Path,
        transport: TransportName = "native",
        sites: tuple[tuple[str, int], ...] = (),
    ) -> None:
        spares = sum(number for _, number in sites[1:])
        made = create(
            directory,
            InitPlan(
                servers=sites[0][1] if sites else 5,
                spares=spares,
                sites=sites,
                consensus=1,
                security="curve",
                base_port=0,
            ),
        )
        self.settings = structs.replace(made, transport=transport)
        self.hosts: dict[ServerId, StorageServer] = {}
        self.listeners: dict[ServerId, ZmqListener | ZmtpListener] = {}
        self.behind: dict[ServerId, str] = {}
        self.decisions = LocalConsensus()
        self._closing = contextlib.AsyncExitStack()

    @property
    def security(self) -> SecuritySettings:
        assert self.settings.security is not None
        return self.settings.security

    async def start(self) -> None:
        for server in self.settings.servers.values():
            guard = guard_of(self.settings, server.id, server.public_key)
            replica = Replica(
                server.id, server.identity, self.settings.initial, parts=replica_parts()
            )
            host = StorageServer(
                replica, parts=ServerParts(admission=guard.admission, sites=sites_of(self.settings))
            )
            address = self.behind.get(server.id, server.address)
            listener = listener_at(address, guard.lock, transport=self.settings.transport)
            listener.seen, listener.core = host.users.seen, host.core
            await listener.serve(host.handler)
            self.hosts[server.id], self.listeners[server.id] = host, listener
            self._closing.push_async_callback(listener.close)
        for member in self.settings.members.values():
            guard = guard_of(self.settings, member.id, member.public_key)
            certified = certifying(self.settings)
            assert certified is not None
            listener = listener_at(member.address, guard.lock, transport=self.settings.transport)
            service = ConsensusHost(certified(self.decisions), listener, guard.admission)
            await service.start()
            self._closing.push_async_callback(service.close)

    def key(self, name: str, role: str = "") -> SecretKey:
        """Return the key of a client, authorised now if a role is given."""
        if role:
            authorise(self.security, name, role)
        return self.security.client_key(str(self.security.secret_path(name)))

    async def manager(
        self, name: str, role: str = "", timeout_s: float = TIMEOUT_S, site: str | None = None
    ) -> Manager:
        """Return a connection of a client, authorised now if a role is given."""
        if role:
            authorise(self.security, name, role)
        settings = with_key(self.settings, self.security.secret_path(name))
        settings = structs.replace(settings, client=structs.replace(settings.client, site=site))
        made = await connect(settings)
        made._timeout_s = timeout_s
        self._closing.push_async_callback(made.close)
        return made

    async def close(self) -> None:
        await self._closing.aclose()
