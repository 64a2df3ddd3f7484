"""A whole cluster in an event loop: hosts, managers and consensus over the in-process transport."""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any

from ares.client.domain_directory import ClientParts
from ares.client.manager import Manager
from ares.compiled import replica_parts
from ares.consensus.local import LocalConsensus
from ares.model.configuration import Configuration, Server
from ares.model.identity import DEFAULT_DOMAIN, VALUE_BYTES_DEFAULT, ClientId
from ares.model.messages import AnyMessage, PutData
from ares.reconfig.view import Switches
from ares.replica.replica import Replica
from ares.server.storage_server import ServerParts, StorageServer
from tests.inproc.network import InprocConnections, InprocListener, InprocNetwork


class InprocCluster:
    """Servers s0 to s6, of which the first three make c0.

    ``requests`` counts accepted requests; ``put_taken`` says that a put-data was accepted.
    """

    def __init__(self, initial: tuple[int, ...] = (0, 1, 2)) -> None:
        self.network, self.consensus = InprocNetwork(), LocalConsensus()
        self.book = {
            server.id: server
            for server in (
                Server(f"s{number}", f"host{number}:1", f"{number:032x}") for number in range(7)
            )
        }
        self.initial = Configuration.abd([self.book[f"s{number}"] for number in initial]).at(
            DEFAULT_DOMAIN, 0
        )
        self.listeners: list[InprocListener] = []
        self.managers: list[Manager] = []
        self.requests = 0
        self.put_taken = asyncio.Event()

    async def start(self) -> None:
        for server in self.book.values():
            host = StorageServer(
                Replica(server.id, server.identity, self.initial, parts=replica_parts()),
                parts=ServerParts(sites=("nantes", "rennes")),
            )
            listener = InprocListener(self.network, server.address)
            listener.seen = host.users.seen
            await listener.serve(self._counting(host))
            self.listeners.append(listener)

    def _counting(self, host: StorageServer) -> Any:
        def handle(sender: Any, asked: Iterable[AnyMessage]) -> list[AnyMessage]:
            messages = list(asked)
            self.requests += len(messages)
            if any(isinstance(message, PutData) for message in messages):
                self.put_taken.set()
            return host.handle(sender, messages)

        return handle

    def manager(
        self,
        timeout_s: float = 10.0,
        switches: Switches | None = None,
        consensus: Any = None,
        book: Any = None,
        site: str = "",
        value_bytes: int = VALUE_BYTES_DEFAULT,
    ) -> Manager:
        client = ClientId(len(self.managers) + 1)
        connect = partial(InprocConnections, self.network, site)
        manager = Manager(
            ClientParts(
                connect,
                consensus or self.consensus,
                self.initial,
                book or self.book,
                client,
                switches or Switches(),
                timeout_s,
                value_bytes=value_bytes,
            )
        )
        self.managers.append(manager)
        return manager

    def stop(self, *names: str) -> None:
        for name in names:
            self.network.stop(self.book[name].address)

    def restart(self, *names: str) -> None:
        for name in names:
            self.network.restart(self.book[name].address)

    async def close(self) -> None:
        for manager in self.managers:
            await manager.close()
        for listener in self.listeners:
            await listener.close()
