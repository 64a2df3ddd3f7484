"""The connection of a file system to a cluster, made at the first use."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from ares.client.buckets.bucket_objects import Bucket
from ares.client.connect import connect, settings_of
from ares.client.domain import checked_timeout
from ares.client.file import File
from ares.client.manager import Manager
from ares.client.store import ObjectStore
from ares.cluster.settings import Settings
from ares.model.errors import BadInput, DomainNotFound
from ares.platform.environment import CLUSTER_VARIABLE

_left_open: list[Manager] = []
"""Connections of event loops that ended first.

The list keeps them from garbage collection: ZeroMQ would wait for ever for their sockets.
"""


class ClusterConnection:
    """The connection to a cluster.

    ``domain``: the domain of the files; None: each file is a domain of its own. ``create``: make a
    missing ``domain``.
    """

    def __init__(
        self, cluster: str | Path | None, domain: str | None, create: bool, timeout_s: float | None
    ) -> None:
        if timeout_s is not None:
            checked_timeout(timeout_s)
        self._cluster = cluster
        self._domain = domain
        self._create = create
        self._timeout_s = timeout_s
        self._manager: Manager | None = None
        self._buckets: dict[str, Bucket] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    async def file(self, name: str) -> File:
        """Return the file, atomic if made by this client. Raises :class:`DomainNotFound`."""
        if self._domain is None:
            return (await self.connected()).file(name, atomic=True)
        return ObjectStore.file(await self._store(self._domain), name, atomic=True)

    async def names(self, prefix: str) -> Sequence[str]:
        """Return the files whose names start with ``prefix`` and are possible paths, in order."""
        if self._domain is None:
            found = await (await self.connected()).files(prefix)
        else:
            found = await ObjectStore.files(await self._store(self._domain), prefix)
        return [name for name in found if "" not in name.split("/")]

    async def bucket(self, name: str) -> Bucket:
        """Return a bucket, which was there once. Raises :class:`ares.BucketNotFound`."""
        manager = await self.connected()
        if name not in self._buckets:
            self._buckets[name] = await manager.bucket(name)
        return self._buckets[name]

    async def close(self) -> None:
        """Close the open connection; the next operation connects again."""
        manager, self._manager = self._manager, None
        if manager is not None:
            await manager.close()

    def close_soon(self) -> None:
        """Run ``close`` from any thread and without waiting.

        A connection of a parent process or of an ended event loop stays open.
        """
        manager, loop, self._manager = self._manager, self._loop, None
        if manager is None or loop is None:
            return
        if self._pid == os.getpid() and loop.is_running():
            asyncio.run_coroutine_threadsafe(manager.close(), loop)
        else:
            _left_open.append(manager)

    async def connected(self) -> Manager:
        """Return the connection to the cluster for the running event loop."""
        loop = asyncio.get_running_loop()
        if self._manager is None or self._loop is not loop:
            self.close_soon()
            self._manager, self._loop, self._pid = (
                await connect(self._settings()),
                loop,
                os.getpid(),
            )
            self._buckets.clear()
        return self._manager

    async def _store(self, domain: str) -> ObjectStore:
        manager = await self.connected()
        try:
            return await manager.domain(domain)
        except DomainNotFound:
            if not self._create:
                raise
        store, _ = await manager.create_domain(domain)
        return store

    def _settings(self) -> Settings:
        cluster = self._cluster or os.environ.get(CLUSTER_VARIABLE)
        if not cluster:
            raise BadInput(
                f"which cluster? Give the storage option cluster=FILE or set {CLUSTER_VARIABLE}"
            )
        settings = settings_of(cluster)
        if self._timeout_s is None:
            return settings
        return structs.replace(
            settings, client=structs.replace(settings.client, timeout_s=self._timeout_s)
        )
