"""CurveZMQ over real sockets on loopback: beside libzmq, cut short, forged, and without leaks."""

import asyncio
import types

import pytest
import zmq
import zmq.asyncio

from ares.model.codec import decode, encode
from ares.net.native import ZmtpConnections, ZmtpListener
from ares.net.zmtp.frames import GREETING_BYTES
from ares.security.clients_file import Lock
from ares.security.keys import keyed

from .test_curve import CLIENT, SERVER, STRANGER, client_of
from .wires import (
    S0,
    WAIT_S_MAX,
    Everybody,
    WireClient,
    acknowledge,
    get_tag,
    nothing_stays,
    secure,
    until,
)


async def test_heartbeats_of_libzmq_are_answered_in_secret() -> None:
    listener = ZmtpListener("127.0.0.1:0", Lock(SERVER, Everybody()))
    address = await listener.serve(lambda _, messages: acknowledge(messages))
    with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.setsockopt(zmq.HEARTBEAT_IVL, 20)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 2_000)
        secure(socket, SERVER, CLIENT)
        socket.connect(f"tcp://{address}")
        async with asyncio.timeout(WAIT_S_MAX):
            for call in (1, 2):
                await socket.send_multipart(encode([get_tag(call)]))
                [answer] = decode(await socket.recv_multipart())
                assert answer.call == call
                await asyncio.sleep(0.1)
    await listener.close()


async def test_a_connection_that_is_sent_something_made_up_is_cut_and_the_others_are_not() -> None:
    listener = ZmtpListener("127.0.0.1:0", Lock(SERVER, Everybody()))
    address = keyed(await listener.serve(lambda _, messages: acknowledge(messages)), SERVER.public)
    clients = [WireClient(ZmtpConnections(CLIENT)) for _ in range(2)]
    for client in clients:
        client.connections.learn(S0, address)
        await client.ask(S0, [get_tag(1)])
    evil = next(iter(listener.connections))
    evil.transport.write(b"\x00\x05plain")
    await until(lambda: len(listener.connections) == 1)
    for client in clients:
        await client.insist(S0, 2)
        await client.connections.close()
    await listener.close()


async def test_small_frames_of_a_batch_leave_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = ZmtpListener("127.0.0.1:0", Lock(SERVER, Everybody()))
    client = WireClient(ZmtpConnections(CLIENT))
    client.connections.learn(
        S0, keyed(await listener.serve(lambda _, messages: acknowledge(messages)), SERVER.public)
    )
    await client.ask(S0, [get_tag(1)])
    [connection] = listener.connections
    written: list[bytes] = []
    with monkeypatch.context() as patched:
        patched.setattr(
            connection,
            "_transport",
            types.SimpleNamespace(write=written.append, is_closing=lambda: False),
        )
        connection.send([b"head", bytes(10_000), bytes(20_000)])
        connection.send([b"head", bytes(100_000), b"tail"])
    assert [len(data) >= 100_000 for data in written] == [False, False, True, False]
    await client.connections.close()
    await listener.close()


async def test_what_follows_a_message_that_could_not_be_sent_whole_is_not_taken_for_its_rest() -> (
    None
):
    listener = ZmtpListener("127.0.0.1:0", Lock(SERVER, Everybody()))
    client = WireClient(ZmtpConnections(CLIENT))
    client.connections.learn(
        S0, keyed(await listener.serve(lambda _, messages: acknowledge(messages)), SERVER.public)
    )
    await client.ask(S0, [get_tag(1)])
    [torn] = listener.connections
    with pytest.raises(TypeError):
        torn.send([b"head", bytes(100_000), "no bytes"])  # type: ignore[list-item]
    assert not torn.ready
    await client.insist(S0, 2)
    assert len(client.received) >= 2
    await client.connections.close()
    await listener.close()


async def test_nothing_stays_of_a_stranger() -> None:
    """This holds even before garbage collection."""
    listener = ZmtpListener("127.0.0.1:0", Lock(SERVER, Everybody()))
    host, _, port = (await listener.serve(lambda _, messages: acknowledge(messages))).rpartition(
        ":"
    )
    _, writer = await asyncio.open_connection(host, int(port))
    await until(lambda: len(listener.connections) == 1)
    await nothing_stays(
        listener, lambda: writer.write(client_of(STRANGER.public).handshake.opening())
    )
    writer.close()
    await listener.close()


async def test_in_a_handshake_next_to_nothing_is_kept() -> None:
    listener = ZmtpListener("127.0.0.1:0", Lock(SERVER, Everybody()))
    host, _, port = (await listener.serve(lambda _, messages: acknowledge(messages))).rpartition(
        ":"
    )
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        client_of().handshake.opening()[:GREETING_BYTES]
        + b"\x06"
        + (4_000).to_bytes(8, "big")
        + bytes(3_900)
    )
    await until(lambda: [connection.held_bytes for connection in listener.connections] == [3_909])
    writer.write(bytes(1_000))
    async with asyncio.timeout(WAIT_S_MAX):
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await reader.readexactly(1 << 20)
    await until(lambda: not listener.connections)
    await listener.close()
