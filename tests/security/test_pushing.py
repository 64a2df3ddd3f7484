"""What somebody without a key may send: as much as it takes to show one."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator

import pytest

from ares.model.codec import FRAME_BYTES_MAX
from ares.model.identity import CallId, ClientId, ConfigurationId, ObjectName
from ares.model.messages import Ack, Element, PutData
from ares.model.tag import Tag
from ares.net.zmq import zmq_connections, zmq_server
from ares.security.keys import SecretKey

from .cluster import within
from .test_gate import MIB, S0, Server, client_of

STRANGERS = 2
EACH_BYTES = 100 * MIB
GREETING = (b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"CURVE").ljust(64, b"\0")
HUGE_COMMAND = b"\x06" + struct.pack(">Q", FRAME_BYTES_MAX)


@pytest.fixture
def known() -> SecretKey:
    return SecretKey.generate()


@pytest.fixture
async def server(known: SecretKey, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    """One that looks at its connections all the time."""
    monkeypatch.setattr(zmq_server, "LOOK_S", 0.005)
    monkeypatch.setattr(zmq_server, "LOOK_SHARE", -1.0)
    made = Server(known, "libzmq")
    made.address = await made.listener.serve(made.handle)
    yield made
    await made.listener.close()


def push(address: str) -> int:
    """Begin a handshake with a command that has no end; how much of it was taken."""
    host, _, port = address.rpartition(":")
    sent, piece = 0, bytes(MIB)
    with contextlib.suppress(ConnectionError), socket.create_connection((host, int(port)), 10) as stranger:
        stranger.sendall(GREETING)
        stranger.recv(64)
        stranger.sendall(HUGE_COMMAND)
        while sent < EACH_BYTES:
            sent += stranger.send(piece)
    return sent


async def pushed(server: Server) -> list[int]:
    """How much was taken of each of several strangers."""
    return list(await asyncio.gather(*(asyncio.to_thread(push, server.address) for _ in range(STRANGERS))))


async def test_without_a_key_nobody_fills_the_memory(server: Server, known: SecretKey) -> None:
    async with client_of(server, known) as client:
        assert await client.ask() == Ack(CallId(1), None)
        assert max(await within(pushed(server))) < EACH_BYTES
        assert server.listener.connections.cut == STRANGERS
        assert await client.ask(2) == Ack(CallId(2), None)


async def test_libzmq_keeps_whatever_comes(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the bound is for."""
    monkeypatch.setattr(zmq_connections, "STRANGER_BYTES_MAX", 1 << 40)
    assert min(await within(pushed(server))) >= EACH_BYTES
    assert server.listener.connections.cut == 0


async def test_whoever_has_a_key_may_begin_with_a_large_value(server: Server, known: SecretKey) -> None:
    """On a connection that has brought nothing complete yet, and is looked at meanwhile."""
    value = bytes(EACH_BYTES)
    put = PutData(CallId(3), ConfigurationId(bytes(16)), ObjectName("key"), Tag(1, ClientId(1)), Element(0, len(value), 0, (value,)))
    async with client_of(server, known) as client:

        async def answered() -> None:
            client.connections.post(S0, [put])
            while not client.received:  # noqa: ASYNC110 (filled by another callback)
                await asyncio.sleep(0.01)

        await within(answered())
        assert client.received == [Ack(CallId(3), None)]
    assert server.listener.connections.cut == 0


async def test_our_own_transport_takes_less_than_a_handshake(known: SecretKey) -> None:
    """It looks at the size of a command before it takes any of it."""
    server = Server(known)
    server.address = await server.listener.serve(server.handle)
    async with client_of(server, known) as client:
        assert await client.ask() == Ack(CallId(1), None)
        assert max(await within(pushed(server))) < EACH_BYTES
        assert await client.ask(2) == Ack(CallId(2), None)
    await server.listener.close()
