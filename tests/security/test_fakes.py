"""Impostors at the addresses of servers, who refuse all clients.

No client takes such a refusal for the word of the servers.
"""

import asyncio
import contextlib

import pytest

from ares.model.errors import Unavailable
from ares.model.identity import ServerId
from ares.net.zmtp.frames import framed, greeting

from .secure_cluster import SecureCluster, within

REFUSAL = framed(b"\x05ERROR\x03400")
"""Refusal of an unknown key; no part of it is secret or signed."""


class Fakes:
    """Impostors in the places of stopped servers, which answer every handshake with a refusal."""

    def __init__(self, cluster: SecureCluster) -> None:
        self._cluster = cluster
        self._servers: list[asyncio.Server] = []
        self.refused = 0

    async def __aenter__(self) -> "Fakes":
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()

    async def replace(self, *ids: str) -> None:
        for id in map(ServerId, ids):
            await self._cluster.listeners[id].close()
            host, _, port = self._cluster.settings.servers[id].address.rpartition(":")
            self._servers.append(await asyncio.start_server(self._refuse, host, int(port)))

    async def _refuse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            writer.write(greeting(b"CURVE", as_server=True) + REFUSAL)
            self.refused += 1
            while await reader.read(1000):
                pass
        writer.close()


EITHER_TRANSPORT = pytest.mark.parametrize("cluster", ["native", "libzmq"], indirect=True)


@EITHER_TRANSPORT
async def test_a_quorum_answers_whatever_the_others_places_say(cluster: SecureCluster) -> None:
    async with Fakes(cluster) as fakes:
        await fakes.replace("s0", "s1")
        admin = await cluster.manager("admin")
        await within(admin.write("key", b"value"))
        assert await within(admin.read("key")) == b"value"
        assert fakes.refused


@EITHER_TRANSPORT
async def test_without_a_quorum_the_client_is_told_what_is_known_and_not_that_it_is_not_authorised(
    cluster: SecureCluster,
) -> None:
    async with Fakes(cluster) as fakes:
        await fakes.replace("s0", "s1", "s2")
        admin = await cluster.manager("admin", timeout_s=2.0)
        with pytest.raises(
            Unavailable,
            match=r"before it has shown to own the server's key|"
            r"the process that answers there does not speak CURVE",
        ) as failed:
            await within(admin.read("key"))
        assert fakes.refused
        assert {"s0", "s1", "s2"} <= failed.value.missing.keys()
