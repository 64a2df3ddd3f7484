"""How a file system reaches a cluster: its connection, made when it is first needed, and the errors that programs expect of a file system."""

import asyncio
import errno
import functools
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import msgspec

from ares.client.connect import connect
from ares.client.file import File
from ares.client.manager import Manager
from ares.client.store import ObjectStore
from ares.cluster.settings import Settings
from ares.model.errors import AresError, BadInput, ConsensusUnavailable, DomainNotFound, FileChanged, ObjectNotFound, Unavailable

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

CLUSTER_VARIABLE = "ARES_CLUSTER"
"""Names the cluster file when the storage option does not."""

_left_open: list[Manager] = []
"""Of event loops that ended before their connections. If these were collected, ZeroMQ would wait for ever for sockets that are collected with it."""


class ClusterConnection:
    """``domain``: where the files live; None: each is a domain of its own. ``create``: make that domain if it is missing."""

    def __init__(self, cluster: str | Path | None, domain: str | None, create: bool, timeout_s: float | None) -> None:
        if timeout_s is not None and (not isinstance(timeout_s, int | float) or not timeout_s > 0):
            raise BadInput(f"timeout_s is a number of seconds, more than 0, not {timeout_s!r}")
        self._cluster = cluster
        self._domain = domain
        self._create = create
        self._timeout_s = timeout_s
        self._manager: Manager | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    async def file(self, name: str) -> File:
        """The file, atomic if it is made here. Raises :class:`DomainNotFound`."""
        if self._domain is None:
            return (await self._connected()).file(name, atomic=True)
        return ObjectStore.file(await self._store(self._domain), name, atomic=True)

    async def names(self, prefix: str) -> Sequence[str]:
        """The files whose names begin so and that a path can name, in order."""
        if self._domain is None:
            found = await (await self._connected()).files(prefix)
        else:
            found = await ObjectStore.files(await self._store(self._domain), prefix)
        return [name for name in found if "" not in name.split("/")]

    async def close(self) -> None:
        """Close what is open; the next operation connects again."""
        manager, self._manager = self._manager, None
        if manager is not None:
            await manager.close()

    def close_soon(self) -> None:
        """``close`` from any thread and without waiting. What a parent process or an event loop that ended left open stays so."""
        manager, loop, self._manager = self._manager, self._loop, None
        if manager is None or loop is None:
            return
        if self._pid == os.getpid() and loop.is_running():
            asyncio.run_coroutine_threadsafe(manager.close(), loop)
        else:
            _left_open.append(manager)

    async def _connected(self) -> Manager:
        loop = asyncio.get_running_loop()
        if self._manager is None or self._loop is not loop:
            self.close_soon()
            self._manager, self._loop, self._pid = await connect(self._settings()), loop, os.getpid()
        return self._manager

    async def _store(self, domain: str) -> ObjectStore:
        manager = await self._connected()
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
            raise BadInput(f"which cluster? Give the storage option cluster=FILE or set {CLUSTER_VARIABLE}")
        settings = Settings.load(cluster)
        if self._timeout_s is None:
            return settings
        return msgspec.structs.replace(settings, client=msgspec.structs.replace(settings.client, timeout_s=self._timeout_s))


NUMBERS: dict[type[AresError], int] = {
    ObjectNotFound: errno.ENOENT,
    DomainNotFound: errno.ENOENT,
    FileChanged: errno.ESTALE,
    Unavailable: errno.EHOSTUNREACH,
    ConsensusUnavailable: errno.EHOSTUNREACH,
    AresError: errno.EIO,
}
"""The first that fits. Not ETIMEDOUT: fsspec takes a TimeoutError for one of its own, and drops the text."""


def as_os_error(error: AresError) -> Exception:
    """What a program that uses files is to see: an OSError of the class that belongs to its number, or the ValueError that BadInput is."""
    if isinstance(error, BadInput):
        return error
    return OSError(next(number for kind, number in NUMBERS.items() if isinstance(error, kind)), str(error))


def as_local_error(error: BadInput) -> Exception:
    """Where the input is a local file: the OSError behind it."""
    return OSError(error.__cause__.errno, str(error)) if isinstance(error.__cause__, OSError) else error


def with_os_errors(method: Callable[Parameters, Awaitable[Result]]) -> Callable[Parameters, Coroutine[Any, Any, Result]]:
    """The method, its errors translated."""

    @functools.wraps(method)
    async def translated(*arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
        try:
            return await method(*arguments, **named)
        except AresError as error:
            raise as_os_error(error) from error

    return translated
