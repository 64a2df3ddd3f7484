"""Bytes that a client without a key may send: as many as a key needs."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator

import pytest

from ares.cluster.tables import TransportName
from ares.model.codec import frame_bytes_max
from ares.model.identity import (
    VALUE_BYTES_DEFAULT,
    CallId,
    ClientId,
    ConfigurationId,
    ObjectName,
)
from ares.model.messages import Ack, Element, PutData
from ares.model.tag import Tag
from ares.model.units import MIB
from ares.security.keys import SecretKey

from .secure_cluster import within
from .test_gate import S0, GuardedServer, client_of

STRANGERS = 2
EACH_BYTES = 100 * MIB
GREETING = (b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"CURVE").ljust(64, b"\0")
HUGE_COMMAND = b"\x06" + struct.pack(">Q", frame_bytes_max(VALUE_BYTES_DEFAULT))


@pytest.fixture
def known() -> SecretKey:
    return SecretKey.generate()


@contextlib.asynccontextmanager
async def serving(
    known: SecretKey, transport: TransportName = "native"
) -> AsyncIterator[GuardedServer]:
    made = GuardedServer(known, transport)
    made.address = await made.listener.serve(made.handle)
    yield made
    await made.listener.close()


def push(address: str) -> int:
    """Begin a handshake with an endless command; return the number of accepted bytes."""
    host, _, port = address.rpartition(":")
    sent, piece = 0, bytes(MIB)
    with (
        contextlib.suppress(ConnectionError),
        socket.create_connection((host, int(port)), 10) as stranger,
    ):
        stranger.sendall(GREETING)
        stranger.recv(64)
        stranger.sendall(HUGE_COMMAND)
        while sent < EACH_BYTES:
            sent += stranger.send(piece)
    return sent


async def pushed(server: GuardedServer) -> list[int]:
    """Return the number of accepted bytes for each of several strangers."""
    return list(
        await asyncio.gather(*(asyncio.to_thread(push, server.address) for _ in range(STRANGERS)))
    )


async def test_without_a_key_no_stranger_fills_the_memory(known: SecretKey) -> None:
    """A server checks the size of a command before it accepts any of it."""
    async with serving(known) as server, client_of(server, known) as client:
        assert await client.ask() == Ack(CallId(1), None)
        assert max(await within(pushed(server))) < EACH_BYTES
        assert await client.ask(2) == Ack(CallId(2), None)


async def test_libzmq_keeps_whatever_comes(known: SecretKey) -> None:
    """This shows the reason for the bound."""
    async with serving(known, "libzmq") as server:
        assert min(await within(pushed(server))) >= 8 * MIB, "as much as comes within five seconds"


async def test_a_client_with_a_key_may_begin_with_a_large_value(known: SecretKey) -> None:
    """The connection has brought no complete message before."""
    value = bytes(EACH_BYTES)
    put = PutData(
        CallId(3),
        ConfigurationId(bytes(16)),
        ObjectName("key"),
        Tag(1, ClientId(1)),
        Element(0, len(value), 0, (value,)),
    )
    async with serving(known) as server, client_of(server, known) as client:

        async def answered() -> None:
            client.connections.post(S0, [put])
            while not client.received:  # noqa: ASYNC110 (filled by another callback)
                await asyncio.sleep(0.01)

        await within(answered())
        assert client.received == [Ack(CallId(3), None)]
