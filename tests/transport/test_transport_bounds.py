"""Bounds of a server's memory for clients (docs/limits.md).

Clients open connections, send endless batches, and do not read replies.
"""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import zmq
import zmq.asyncio

from ares.cluster.tables import Limits
from ares.model.codec import encode, frame_bytes_max
from ares.model.identity import CallId, ConfigurationId, ObjectName
from ares.model.messages import Ack, AnyMessage, DataReply, Element, PutData, Reason, Refused
from ares.model.tag import TAG_ZERO, Tag
from ares.model.units import MIB
from ares.net.libzmq import RECEIVED_BATCHES_MAX, ZmqConnections, ZmqListener
from ares.net.native import ZmtpConnections, ZmtpListener
from ares.security.clients_file import Lock
from tests.private_memory import private_bytes

from .test_zmq import LARGE_FRAME, hung_up, shaken_hands
from .wires import (
    S0,
    WAIT_S_MAX,
    Everybody,
    Wire,
    WireClient,
    WireServer,
    ZmqWire,
    ZmtpWire,
    acknowledge,
    get_tag,
    until,
)

MORE = b"\x03"
HANDSHAKE_BYTES_MAX = 1024


@contextlib.asynccontextmanager
async def serving(
    limits: Limits, data: bytes = b""
) -> AsyncIterator[tuple[WireServer, ZmtpListener]]:
    """Run a server with these limits; with ``data``, each answer has `data`."""

    def answer(messages: Sequence[AnyMessage]) -> list[AnyMessage]:
        if not data:
            return acknowledge(messages)
        return [
            DataReply(
                message.call, (), len(data), TAG_ZERO, Element(0, len(data), 1, (data,)), None
            )
            for message in messages
        ]

    listener = ZmtpListener("127.0.0.1:0", limits=limits)
    server = WireServer(listener, answer)
    server.address = await listener.serve(server.handle)
    try:
        yield server, listener
    finally:
        await listener.close()


def put(call: int, *sizes: int) -> PutData:
    parts = tuple(bytes(size) for size in sizes)
    return PutData(
        CallId(call),
        ConfigurationId(b"c" * 16),
        ObjectName("k"),
        Tag(1, TAG_ZERO.writer),
        Element(0, sum(sizes), 1, parts),
    )


async def test_one_connection_too_many_is_refused_until_another_has_left(
    our_server: ZmqWire,
) -> None:
    async with serving(Limits(connections=3)) as (server, listener):
        client = our_server.connect(server)
        await client.ask(S0, [get_tag(1)])
        links = [await shaken_hands(server) for _ in range(2)]
        for number in range(5):
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                reader, writer = await shaken_hands(server)
                assert await hung_up(reader)
                writer.close()
            await until(lambda number=number: listener.refused == number + 1)
        await client.ask(S0, [get_tag(2)])
        links[0][1].close()
        await until(lambda: len(listener.connections) == 2)
        await our_server.connect(server).insist(S0, 3)
        assert listener.refused == 5
        links[1][1].close()


@pytest.mark.parametrize("kind", [ZmtpListener, ZmqListener])
async def test_a_frame_is_bounded_by_the_setting_for_values(
    kind: type[ZmtpListener] | type[ZmqListener],
) -> None:
    listener = kind("127.0.0.1:0", limits=Limits(value_bytes=600 * MIB))
    server = WireServer(listener, acknowledge)
    server.address = await listener.serve(server.handle)
    links = []
    for more in (0, 1):
        reader, writer = await shaken_hands(server)
        size = frame_bytes_max(600 * MIB) + more
        writer.write(LARGE_FRAME + struct.pack(">Q", size) + bytes(1000))
        links.append((reader, writer))
    assert await hung_up(links[1][0])
    links[0][1].write(bytes(1000))
    await asyncio.sleep(0.05)
    assert not links[0][0].at_eof()
    for _, writer in links:
        writer.close()
    await listener.close()


@pytest.mark.parametrize("has_keys", [False, True])
async def test_a_value_beyond_the_server_s_setting_is_refused_before_it_is_sent(
    has_keys: bool,
) -> None:
    """The server would hang up on the frame, and the client would not know the reason."""
    wire = ZmtpWire(has_keys)
    lock = None if wire.server_key is None else Lock(wire.server_key, Everybody())
    listener = ZmtpListener("127.0.0.1:0", lock, Limits(value_bytes=2 * MIB))
    server = WireServer(listener, acknowledge)
    server.address = await listener.serve(server.handle)
    client = wire.connect(server)
    assert [type(reply) for reply in await client.ask(S0, [put(1, 2 * MIB)])] == [Ack]
    [refused] = await client.ask(S0, [put(2, 2 * MIB + 1)])
    assert isinstance(refused, Refused)
    assert (refused.call, refused.reason) == (2, Reason.BAD_ELEMENT)
    assert f"allows {2 * MIB} (value_bytes under [limits])" in refused.detail
    await client.ask(S0, [get_tag(3)])
    assert [message.call for message in server.received] == [1, 3]
    await wire.close()
    await listener.close()


@pytest.mark.parametrize("kind", [ZmtpConnections, ZmqConnections])
async def test_a_client_reads_values_up_to_its_own_bound(
    kind: type[ZmtpConnections] | type[ZmqConnections],
) -> None:
    """A server's own connections have the bound of the server's file."""
    async with serving(Limits(), bytes(2 * MIB)) as (server, _):
        clients = [WireClient(kind(value_bytes=size)) for size in (MIB, 2 * MIB)]
        for client in clients:
            client.connections.learn(S0, server.address)
        clients[0].connections.post(S0, [get_tag(1)])
        await clients[1].ask(S0, [get_tag(2)])
        await until(lambda: len(server.received) == 2)
        await asyncio.sleep(0.1)
        assert [client.calls() for client in clients] == [set(), {2}]
        for client in clients:
            await client.connections.close()


async def send_for_ever(server: WireServer, head: bytes, stop_bytes: int) -> int:
    """Send frames of an endless batch on a new connection until the server hangs up.

    Return the number of bytes sent.
    """
    reader, writer = await shaken_hands(server)
    frame = head + struct.pack(">Q", MIB) + bytes(MIB)
    sent = 0
    try:
        async with asyncio.timeout(WAIT_S_MAX):
            while sent < stop_bytes:
                writer.write(frame)
                await writer.drain()
                sent += len(frame)
    except ConnectionError:
        pass
    finally:
        writer.transport.abort()
        reader.feed_eof()
    return sent


async def test_a_batch_that_never_ends_is_cut_off(our_server: ZmqWire) -> None:
    async with serving(Limits(received_bytes=32 * MIB)) as (server, listener):
        client = our_server.connect(server)
        await client.ask(S0, [get_tag(1)])
        before = private_bytes()
        sent = await send_for_ever(server, MORE, 4096 * MIB)
        assert sent < 4096 * MIB
        assert listener.cut == 1
        assert private_bytes() - before < 1024 * MIB
        await client.ask(S0, [get_tag(2)])
        assert [message.call for message in server.received] == [1, 2]


async def test_batches_that_end_are_taken_however_many_bytes_they_are_together(
    our_server: ZmqWire,
) -> None:
    """The control: as many bytes, in many batches."""
    async with serving(Limits(received_bytes=32 * MIB)) as (server, listener):
        assert await send_for_ever(server, LARGE_FRAME, 256 * MIB) >= 256 * MIB
        assert listener.cut == 0


@pytest.mark.parametrize("more_bytes", [0, 100])
async def test_of_two_large_messages_the_one_with_more_missing_is_cut_off(more_bytes: int) -> None:
    """A message counts with its whole size from its first byte."""
    size = 8 * MIB
    async with serving(Limits(received_bytes=12 * MIB)) as (server, listener):
        reader, nearly = await shaken_hands(server)
        nearly.write(LARGE_FRAME + struct.pack(">Q", size + more_bytes) + bytes(size - 1))
        await nearly.drain()
        await until(lambda: max(held.progress for held in listener.connections) >= size)
        late_reader, late = await shaken_hands(server)
        late.write(LARGE_FRAME + struct.pack(">Q", size) + bytes(MIB))
        assert await hung_up(late_reader)
        nearly.write(bytes(1 + more_bytes))
        await until(lambda: not any(held.held_bytes for held in listener.connections))
        assert (listener.cut, len(listener.connections)) == (1, 1)
        assert not reader.at_eof()
        for writer in (nearly, late):
            writer.close()


@pytest.mark.parametrize("writers", [4, 5])
async def test_four_of_the_largest_values_have_room_at_once(writers: int) -> None:
    value_bytes = 300 * MIB
    async with serving(Limits.for_values(value_bytes)) as (server, listener):
        links = [await shaken_hands(server) for _ in range(writers)]
        for _, writer in links:
            frame = struct.pack(">Q", frame_bytes_max(value_bytes)) + bytes(MIB)
            writer.write(LARGE_FRAME + frame)
        await until(
            lambda: (
                sum(held.held_bytes > 0 for held in listener.connections) + listener.cut == writers
            )
        )
        assert listener.cut == writers - 4
        for _, writer in links:
            writer.close()


@contextlib.asynccontextmanager
async def deaf(
    server: WireServer, clients: int, batches: int, requests: int = 1
) -> AsyncIterator[None]:
    """Run clients that send ``requests`` in each batch, and read no replies."""
    with zmq.asyncio.Context() as context, contextlib.ExitStack() as sockets:
        for number in range(clients):
            socket = sockets.enter_context(context.socket(zmq.DEALER))
            socket.linger = 0
            socket.rcvhwm = 1
            socket.rcvbuf = 4096
            socket.reconnect_ivl = -1
            socket.connect(f"tcp://{server.address}")
            for call in range(batches):
                await socket.send_multipart(encode([get_tag(number * batches + call)] * requests))
        yield


def unread_bytes(listener: ZmtpListener) -> int:
    return sum(connection.unsent_bytes for connection in listener.connections)


async def test_clients_that_read_nothing_are_owed_a_bounded_sum(our_server: ZmqWire) -> None:
    limit = 32 * MIB
    async with (
        serving(Limits(unread_bytes=limit), bytes(MIB)) as (server, listener),
        deaf(server, 40, 10),
    ):
        await until(lambda: len(server.received) >= 300)
        async with asyncio.timeout(WAIT_S_MAX):
            while listener.cut == 0:
                await our_server.connect(server).insist(S0, 10_000)
        assert unread_bytes(listener) <= 2 * limit + MIB
        await our_server.connect(server).ask(S0, [get_tag(10_001)])


async def test_without_that_bound_they_are_owed_more(our_server: ZmqWire) -> None:
    """The control: without the bound the server owes more."""
    async with serving(Limits(), bytes(MIB)) as (server, listener), deaf(server, 40, 10):
        await until(lambda: len(server.received) == 400)
        assert unread_bytes(listener) > 64 * MIB
        assert listener.cut == 0


async def test_small_unread_replies_are_counted_too(our_server: ZmqWire) -> None:
    async with (
        serving(Limits(unread_bytes=4 * MIB), bytes(4000)) as (server, listener),
        deaf(server, 20, 200, 15),
    ):
        await until(lambda: listener.cut > 0)
        assert unread_bytes(listener) <= 9 * MIB
        await our_server.connect(server).ask(S0, [get_tag(10_001)])


async def test_a_complete_message_is_counted_once(
    our_server: ZmqWire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection counts the bytes under way, and the line the complete messages."""
    counted: list[int] = []
    receive = ZmtpListener._receive

    def record(listener: ZmtpListener, sender: Any, came: Any) -> None:
        counted.append(listener._held_bytes)
        receive(listener, sender, came)

    monkeypatch.setattr(ZmtpListener, "_receive", record)
    async with serving(Limits()) as (server, listener):
        await our_server.connect(server).ask(S0, [put(1, 8 * MIB)])
        assert counted == [0]
        assert listener._held_bytes == 0


async def test_unread_replies_of_others_do_not_cut_off_an_upload(our_server: ZmqWire) -> None:
    """Each of the others has less than 1 MiB unread."""
    async with serving(Limits(unread_bytes=4 * MIB), bytes(4000)) as (server, listener):
        _, writer = await shaken_hands(server)
        writer.write(LARGE_FRAME + struct.pack(">Q", 100 * MIB) + bytes(MIB))
        await until(lambda: any(each.missing_bytes > MIB for each in listener.connections))
        upload = next(each for each in listener.connections if each.missing_bytes > MIB)
        async with deaf(server, 20, 200, 15):
            await until(lambda: listener.cut > 0)
            assert upload in listener.connections
        writer.close()


async def test_a_client_that_left_is_forgotten(our_server: ZmqWire) -> None:
    async with serving(Limits(), bytes(1000)) as (server, listener):
        for _ in range(20):
            client = our_server.connect(server)
            await client.ask(S0, [get_tag(call) for call in range(100)])
            await client.connections.close()
        await until(lambda: len(listener.connections) == 0)
        assert len(listener._unread) == 0
        assert listener._unread_bytes == 0


async def test_a_paused_server_takes_nothing_and_loses_nothing(wire: Wire) -> None:
    server = await wire.serve()
    client = wire.connect(server)
    await client.ask(S0, [get_tag(1)])
    server.listener.pause()
    server.listener.pause()
    for call in range(2, 2 + 3 * RECEIVED_BATCHES_MAX):
        client.connections.post(S0, [get_tag(call)])
        await asyncio.sleep(0.002)
    sender = server.batches[0][0]
    server.listener.reply(sender, acknowledge([get_tag(1000)]))
    await until(lambda: 1000 in client.calls())
    assert [message.call for message in server.received] == [1]
    server.listener.resume()
    server.listener.resume()
    await until(lambda: len(server.received) == 1 + 3 * RECEIVED_BATCHES_MAX)
    await client.ask(S0, [get_tag(2000)])


async def test_a_server_that_pauses_in_the_middle_goes_on_where_it_was(wire: Wire) -> None:
    """Pausing is decided while a batch is handled, and ended from outside."""

    def answer(messages: Sequence[AnyMessage]) -> list[AnyMessage]:
        server.listener.pause()
        asyncio.get_running_loop().call_later(0.001, server.listener.resume)
        return acknowledge(messages)

    server = await wire.serve(answer=answer)
    client = wire.connect(server)
    for call in range(100):
        client.connections.post(S0, [get_tag(call)])
        await asyncio.sleep(0)
    await until(lambda: client.calls() == set(range(100)))


@pytest.mark.parametrize("loop", [1, 2])
async def test_a_closed_server_can_be_resumed(wire: Wire, loop: int) -> None:
    server = await wire.serve()
    server.listener.pause()
    for _ in range(loop):
        await server.listener.close()
    server.listener.resume()
    await asyncio.sleep(0.01)


async def test_a_client_that_leaves_within_a_message_leaves_nothing(zmq_wire: ZmqWire) -> None:
    """This holds even while a timer for the handshake still refers to the connection."""
    listener = ZmtpListener("127.0.0.1:0")
    server = WireServer(listener, acknowledge)
    server.address = await listener.serve(server.handle)
    try:
        _, writer = await shaken_hands(server)
        writer.write((MORE + struct.pack(">Q", MIB) + bytes(MIB)) * 8)
        await until(
            lambda: sum(connection.held_bytes for connection in listener.connections) >= 8 * MIB
        )
        [connection] = listener.connections
        writer.transport.abort()
        await until(lambda: not listener.connections)
        assert connection.held_bytes == 0
    finally:
        await listener.close()
