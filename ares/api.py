"""How a program gets to a cluster: :func:`connect`. The one place of the library that names concrete adapters."""

import secrets
from collections.abc import Generator
from pathlib import Path
from typing import Any

from ares.client.manager import Manager
from ares.identity import ClientId
from ares.reconfig.view import Switches
from ares.runtime.allocator import CLIENT_BYTES, keep_freed_memory
from ares.runtime.remote_consensus import RemoteConsensus
from ares.runtime.settings import Settings
from ares.runtime.zmq_client import ZmqConnections


class Connecting:
    """``async with connect(...) as store``, or ``store = await connect(...)`` and ``await store.close()`` later."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._manager: Manager | None = None

    async def _connect(self) -> Manager:
        settings, client = self._settings, self._settings.client
        members = {member.id: member.address for member in settings.members.values()}
        return Manager(
            ZmqConnections(),
            RemoteConsensus(ZmqConnections(), members),
            settings.initial,
            settings.book(),
            ClientId(secrets.randbits(64)),
            Switches(client.piggyback, client.gc, client.batch, client.fast_read),
            client.timeout_s,
        )

    def __await__(self) -> Generator[Any, None, Manager]:
        return self._connect().__await__()

    async def __aenter__(self) -> Manager:
        self._manager = await self._connect()
        return self._manager

    async def __aexit__(self, *_: object) -> None:
        if self._manager is not None:
            await self._manager.close()


def connect(cluster: str | Path | Settings) -> Connecting:
    """A connection to the cluster of a cluster file. Raises :class:`ares.errors.BadInput` if the file is not one.

    Nothing is sent until the first operation. Use one connection for a whole program: its operations run side by side. The process keeps up to
    256 MiB of freed memory for large values from then on (ares/runtime/allocator.py tells why, and how the environment prevents it).
    """
    keep_freed_memory(CLIENT_BYTES)
    return Connecting(cluster if isinstance(cluster, Settings) else Settings.load(cluster))
