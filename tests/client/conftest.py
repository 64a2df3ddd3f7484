"""A cluster of real servers in an event loop, with logs in memory; closed afterwards."""

import asyncio
from functools import partial

import pytest

from ares.client.buckets.upkeep import index_upkeep
from ares.client.domain_directory import ClientParts
from ares.client.manager import Manager
from ares.consensus.local import LocalConsensus
from ares.model.configuration import Configuration, Server
from ares.model.identity import DEFAULT_DOMAIN, ClientId
from ares.reconfig.view import Switches
from ares.server.storage_process import ServingParts, run_server
from tests.inproc.network import InprocConnections, InprocListener, InprocNetwork

SERVERS = ["s0", "s1", "s2", "s3", "s4"]
"""The servers of the data of buckets."""


class LogCluster:
    """Servers s0 to s5, of which the first three make c0.

    ``stop`` and ``restart`` affect their messages.
    """

    def __init__(self, count: int = 6) -> None:
        self.network, self.consensus = InprocNetwork(), LocalConsensus()
        self.book = {
            server.id: server
            for server in (
                Server(f"s{number}", f"host{number}:1", f"{number:032x}") for number in range(count)
            )
        }
        self.initial = Configuration.abd([self.book[f"s{number}"] for number in range(3)]).at(
            DEFAULT_DOMAIN, 0
        )
        self.managers = []
        self._stops = []
        self._tasks = []

    async def start(self) -> None:
        for server in self.book.values():
            stop, links = asyncio.Event(), InprocConnections(self.network)
            listener = InprocListener(self.network, server.address)
            self._tasks.append(
                asyncio.create_task(
                    run_server(
                        ServingParts(
                            server.id, server.identity, self.initial, listener, stop, links=links
                        )
                    )
                )
            )
            self._stops.append(stop)
        await asyncio.sleep(0.01)

    def manager(self, timeout_s=60.0, tracer=None, site="") -> Manager:
        client = ClientId(len(self.managers) + 1)
        connect = partial(InprocConnections, self.network, site)
        self.managers.append(
            Manager(
                ClientParts(
                    connect,
                    self.consensus,
                    self.initial,
                    self.book,
                    client,
                    Switches(),
                    timeout_s,
                    tracer=tracer,
                )
            )
        )
        return self.managers[-1]

    async def log(self, name="events", servers=("s0", "s1", "s2"), **options):
        return await self.manager(**options).log(name, Configuration.chain(servers))

    def stop(self, *names) -> None:
        for name in names:
            self.network.stop(self.book[name].address)

    def restart(self, *names) -> None:
        for name in names:
            self.network.restart(self.book[name].address)

    async def close(self) -> None:
        for manager in self.managers:
            await manager.close()
        for stop in self._stops:
            stop.set()
        await asyncio.gather(*self._tasks)


@pytest.fixture
async def cluster():
    cluster = LogCluster()
    await cluster.start()
    yield cluster
    await cluster.close()


@pytest.fixture
async def store(cluster, monkeypatch):
    """A client that makes buckets possible, and beats and collects often."""
    monkeypatch.setattr(index_upkeep, "SESSION_BEAT_S", 0.05)
    monkeypatch.setattr(index_upkeep, "COLLECTION_S", 0.05)
    manager = cluster.manager()
    await manager.create_bucket_domains(Configuration.ec(SERVERS, 3))
    return manager


@pytest.fixture
async def bucket(store):
    return await store.bucket("photos", create=True)


@pytest.fixture
async def rival(cluster, bucket):
    """The bucket of another client."""
    return await cluster.manager().bucket("photos")
