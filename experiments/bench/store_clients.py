"""Access of a generator to each kind of store: the address from the peer, and the clients."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from msgspec import Struct, structs

from ares.client.connect import connect
from ares.cluster.settings import Settings
from ares.model.errors import AresError, ObjectNotFound
from ares.testing.published.published_objects import PublishedAlgorithm, connect_published
from experiments.bench.closed_loop import ClientLoop

PAUSE_AFTER_TROUBLE_S = 0.01


class AresStore(Struct, frozen=True, tag="ares"):
    """The cluster of a cluster file, or a ``domain`` of the cluster.

    The clients of a generator share a connection, as in a program. ``published``: they run this
    algorithm as published, on the cluster's c0.
    """

    file: str
    fast_read: bool = True
    piggyback: bool = True
    domain: str | None = None
    published: PublishedAlgorithm | None = None


class RedisStore(Struct, frozen=True, tag="redis"):
    """The primary at ``address``, with a connection for every client.

    ``wait`` is the number of replicas that must have a write before it counts.
    """

    address: str
    wait: int = 0


class EtcdStore(Struct, frozen=True, tag="etcd"):
    """Members of a cluster, the leader first.

    Every client begins with the first, and turns to the next after a failure.
    """

    endpoints: tuple[str, ...]


class CassandraStore(Struct, frozen=True, tag="cassandra"):
    """Nodes of a cluster as (host, port of the native protocol)."""

    nodes: tuple[tuple[str, int], ...]
    keyspace: str


Store = AresStore | RedisStore | EtcdStore | CassandraStore


class StoreClients(Protocol):
    """Connected clients of a store."""

    async def run(self, loops: Sequence[ClientLoop]) -> None:
        """Run all loops at once, a client for each, until they are over."""

    async def close(self) -> None:
        """Close every connection."""


class KeyValue(Protocol):
    """A client with coroutines; any number of operations at once."""

    async def read(self, key: str) -> bytes | None: ...

    async def write(self, key: str, value: bytes) -> object: ...


class Coroutines:
    """Clients that share a ``store``, with a task for each.

    ``errors`` are the errors of failed operations. ``absent`` is the error of a read without a
    value, for stores that raise it.
    """

    def __init__(
        self,
        store: KeyValue,
        errors: tuple[type[Exception], ...],
        close: Callable[[], Awaitable[None]],
        absent: tuple[type[Exception], ...] = (),
    ) -> None:
        self._store, self._close = store, close
        self._errors, self._absent = errors, absent

    async def run(self, loops: Sequence[ClientLoop]) -> None:
        async with asyncio.TaskGroup() as group:
            for loop in loops:
                group.create_task(self._through(loop))

    async def close(self) -> None:
        await self._close()

    async def _through(self, loop: ClientLoop) -> None:
        read, write = self._store.read, self._store.write
        while (asked := loop.ask()) is not None:
            if isinstance(asked, float):
                await asyncio.sleep(asked)
                continue
            key, value = asked
            try:
                if value is None:
                    loop.answered(await read(key))
                else:
                    await write(key, value)
                    loop.answered()
            except self._absent:
                loop.answered(None)
            except self._errors as error:
                loop.failed(f"{type(error).__name__}: {error}"[:300])
                await asyncio.sleep(PAUSE_AFTER_TROUBLE_S)


async def ares_clients(store: AresStore) -> Coroutines:
    """Return clients of ares that share a connection."""
    settings = Settings.load(store.file)
    if store.published is not None:
        published = await connect_published(settings, store.published)
        return Coroutines(published, (AresError,), published.close, absent=(ObjectNotFound,))
    client = structs.replace(settings.client, fast_read=store.fast_read, piggyback=store.piggyback)
    manager = await connect(structs.replace(settings, client=client))
    objects = manager if store.domain is None else await manager.domain(store.domain)
    return Coroutines(objects, (AresError,), manager.close, absent=(ObjectNotFound,))
