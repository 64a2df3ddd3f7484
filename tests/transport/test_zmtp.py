"""ZMTP of this project: parsed in pieces of any size, bounded, and compatible with libzmq.

Compatibility is tested in both directions.
"""

import asyncio
import contextlib
import random
from collections.abc import Sequence

import pytest
import zmq
import zmq.asyncio
from hypothesis import given
from hypothesis import strategies as st

from ares.cluster.tables import Limits
from ares.model.codec import FRAMES_MAX, decode, encode, frame_bytes_max
from ares.model.identity import VALUE_BYTES_DEFAULT, VALUE_BYTES_MAX
from ares.model.messages import DataReply, Element
from ares.model.tag import TAG_ZERO
from ares.net.libzmq import ZmqConnections
from ares.net.native import ZmtpConnections, ZmtpListener
from ares.net.zmtp.frames import (
    DEALER,
    FRAMES_AT_ONCE,
    GREETING_BYTES,
    LARGE_FRAME_BYTES_MIN,
    ROUTER,
    SCRATCH_BYTES,
    FrameParser,
    NotZmtp,
    NullHandshake,
    TurnedAway,
    framed,
    greeting,
    parsed,
    properties,
    wire,
)
from ares.security.clients_file import Lock
from ares.security.keys import SecretKey, keyed

from .wires import (
    S0,
    WAIT_S_MAX,
    WireClient,
    WireServer,
    acknowledge,
    get_tag,
    nothing_stays,
    until,
)

LARGEST_FRAME = frame_bytes_max(VALUE_BYTES_MAX)


def opening(kind: bytes) -> bytes:
    return NullHandshake(kind).opening()


def incoming(kind: bytes = ROUTER) -> FrameParser:
    return FrameParser(kind, memoryview(bytearray(SCRATCH_BYTES)), NullHandshake(kind))


def feed(side: FrameParser, data: bytes, sizes: Sequence[int] = ()) -> list[list[bytes]]:
    """Feed ``data`` in pieces of these sizes, then in the largest possible pieces.

    Return every completed batch.
    """
    messages, at, pieces = [], 0, iter(sizes)
    while at < len(data):
        room = side.room()
        count = min(len(room), len(data) - at, next(pieces, SCRATCH_BYTES))
        room[:count] = data[at : at + count]
        messages += side.filled(count)
        while side.behind:
            messages += side.filled(0)
        at += count
    return [[bytes(frame) for frame in message] for message in messages]


def met(kind: bytes = ROUTER) -> FrameParser:
    side = incoming(kind)
    feed(side, opening(DEALER if kind == ROUTER else ROUTER))
    assert side.ready
    return side


def on_wire(*messages: Sequence[bytes]) -> bytes:
    return b"".join(buffer for message in messages for buffer in wire(message))


SIZES = st.sampled_from(
    [
        0,
        1,
        255,
        256,
        LARGE_FRAME_BYTES_MIN,
        LARGE_FRAME_BYTES_MIN + 1,
        SCRATCH_BYTES - 9,
        SCRATCH_BYTES + 7,
        3 * SCRATCH_BYTES,
    ]
)
MESSAGES = st.lists(st.lists(SIZES, min_size=1, max_size=4), min_size=1, max_size=4)


@given(MESSAGES, st.lists(st.integers(1, 70_000), max_size=40), st.integers(0, 2**32))
def test_messages_come_out_as_they_went_in_whatever_the_pieces(
    shapes: list[list[int]], pieces: list[int], seed: int
) -> None:
    rng = random.Random(seed)
    messages = [[rng.randbytes(size) for size in shape] for shape in shapes]
    side = incoming()
    assert feed(side, opening(DEALER) + on_wire(*messages), pieces) == messages
    assert side.held_bytes == 0


BAD_METADATA = {
    "no name": b"\x00" + bytes(4),
    "no name, and a value": b"\x00" + b"\x00\x00\x00\x05value",
    "a space in a name": b"\x03a b" + bytes(4),
    "a zero in a name": b"\x03a\x00b" + bytes(4),
    "a letter of another alphabet": b"\x02" + "é".encode() + bytes(4),
    "a line's end": b"\x02a\n" + bytes(4),
    "a name twice": b"\x01x" + bytes(4) + b"\x01x" + bytes(4),
    "a name twice, in other letters": b"\x0bSOCKET-TYPE\x00\x00\x00\x06DEALER",
    "a value that is not there": b"\x01x\x00\x00\x00\x02v",
    "a value of 2 GiB": b"\x01x\x80\x00\x00\x00",
    "a size that is not there": b"\x01x\x00\x00",
    "a name that is not there": b"\x09x",
    "a byte more": b"\x01x" + bytes(4) + b"\x01",
}
"""Invalid metadata by the grammar of RFC 37, after valid properties."""


@pytest.mark.parametrize("metadata", BAD_METADATA.values(), ids=BAD_METADATA)
@pytest.mark.parametrize("kind", [ROUTER, DEALER])
def test_what_is_no_metadata_ends_the_handshake(kind: bytes, metadata: bytes) -> None:
    side = incoming(kind)
    with pytest.raises(NotZmtp, match="propert"):
        feed(
            side,
            greeting(b"NULL")
            + framed(b"\x05READY" + properties(DEALER if kind == ROUTER else ROUTER) + metadata),
        )
    assert not side.ready


def test_metadata_is_what_the_grammar_says() -> None:
    """Names have 1 to 255 characters, without case; values may be empty."""
    longest = b"aZ09-_.+" * 31 + b"x" * 7
    metadata = b"\x01X" + bytes(4) + b"\xff" + longest + b"\x00\x00\x01\x00" + bytes(256)
    assert parsed(metadata) == {b"x": b"", longest.lower(): bytes(256)}
    assert parsed(b"") == {}
    side = incoming()
    feed(
        side,
        greeting(b"NULL")
        + framed(b"\x05READY" + b"\x0bsOCKET-tYPE\x00\x00\x00\x06DEALER" + metadata),
    )
    assert side.ready


@pytest.mark.parametrize("reason", [b"", b"\x03", b"\x0340", b"\x03400 and more", b"\xff400"])
def test_an_error_whose_reason_is_not_as_long_as_it_says_is_none(reason: bytes) -> None:
    with pytest.raises(NotZmtp, match="another length than it says") as refused:
        feed(incoming(DEALER), greeting(b"NULL") + framed(b"\x05ERROR" + reason))
    assert not isinstance(refused.value, TurnedAway)


@pytest.mark.parametrize(
    ("piece", "last"),
    [(b"\0\0", b""), (b"\1\0", b"\0\0"), (framed(b"\x04PING\0\0"), b"")],
    ids=["messages", "frames", "pings"],
)
def test_so_many_frames_are_taken_apart_at_once(piece: bytes, last: bytes) -> None:
    """A read has room for 131,072 frames without a byte, and parsing them took half a second."""
    side, count = met(), 20_000
    data = piece * count + last
    side.room()[: len(data)] = data
    side.answers.clear()
    messages, rounds = side.filled(len(data)), 1
    while side.behind:
        assert side.held_bytes > 0
        messages, rounds = [*messages, *side.filled(0)], rounds + 1
        assert len(messages) + len(side.answers) <= rounds * FRAMES_AT_ONCE
    assert rounds == 1 + count // FRAMES_AT_ONCE
    assert sum(map(len, messages)) + len(side.answers) == count + bool(last)
    assert side.held_bytes == 0


def test_an_incomplete_message_is_on_the_books() -> None:
    side = met()
    assert feed(side, on_wire([b"a" * 1000, b"b" * 200_000])[:150_000]) == []
    assert 201_000 <= side.held_bytes < 202_000


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "does not speak ZMTP"),
        (b"\xff" + b"\0" * 8 + b"\x7f\x02", "version 2"),
        (opening(DEALER).replace(b"NULL", b"CURV"), "mechanism"),
        (opening(b"PUB"), "socket of type"),
        (opening(DEALER)[:GREETING_BYTES] + on_wire([b"early"]), "before the handshake"),
        (opening(DEALER)[:GREETING_BYTES] + b"\x04\x06\x05OTHER", "in the handshake"),
        (opening(DEALER) + b"\x40\x00", "flags"),
        (opening(DEALER) + b"\x02" + (LARGEST_FRAME + 1).to_bytes(8, "big"), "a frame of"),
        (opening(DEALER) + b"\x02" + b"\xff" * 8, "a frame of"),
        (opening(DEALER) + b"\x06" + (1 << 20).to_bytes(8, "big"), "a command of"),
        (opening(DEALER) + b"\x01\x00" * (FRAMES_MAX + 1), "frames"),
        (opening(DEALER) + b"\x04\x08\x05ERROR\x01x", "refuses"),
    ],
)
def test_what_is_not_zmtp_is_hung_up_on(sent: bytes, why: str) -> None:
    with pytest.raises(NotZmtp, match=why):
        feed(incoming(), sent)


@given(st.binary(max_size=300), st.integers(0, 3))
def test_garbage_is_refused_or_waited_for(garbage: bytes, stage: int) -> None:
    whole = opening(DEALER) + on_wire([b"x"])
    side = incoming()
    try:
        feed(side, whole[: (0, GREETING_BYTES, len(whole), len(opening(DEALER)))[stage]] + garbage)
    except NotZmtp:
        return
    assert side.held_bytes <= len(garbage) + LARGEST_FRAME


@given(st.integers(VALUE_BYTES_DEFAULT, VALUE_BYTES_MAX), st.integers(-2, 2))
def test_a_frame_is_bounded_by_the_largest_value_of_the_cluster(value: int, more: int) -> None:
    side = FrameParser(
        ROUTER, memoryview(bytearray(SCRATCH_BYTES)), NullHandshake(ROUTER), value_bytes=value
    )
    size = frame_bytes_max(value) + more
    sent = opening(DEALER) + b"\x02" + size.to_bytes(8, "big") + b"begin"
    if more > 0:
        with pytest.raises(NotZmtp, match=f"a frame of {size}"):
            feed(side, sent)
    else:
        feed(side, sent)
        assert side.held_bytes == size


@pytest.mark.parametrize(
    ("said", "largest"),
    [
        (b"629145600", 629145600),
        (b"9" * 10, 9_999_999_999),
        *((bad, VALUE_BYTES_MAX) for bad in (b"", b"0", b"-1", b"1e9", b"9" * 11, b"\xff")),
    ],
)
def test_a_server_says_its_largest_value_in_the_handshake(said: bytes, largest: int) -> None:
    name = b"Ares-Value-Bytes"
    metadata = properties(ROUTER) + bytes([len(name)]) + name + len(said).to_bytes(4, "big") + said
    side = incoming(DEALER)
    feed(side, greeting(b"NULL") + framed(b"\x05READY" + metadata))
    assert side.peer_value_bytes == largest


def test_a_ping_is_answered() -> None:
    side = met()
    body = b"\x04PING" + b"\0\x0a" + b"context"
    feed(side, bytes([4, len(body)]) + body)
    assert side.answers == [framed(b"\x04PONGcontext")]


# -- libzmq on the other side ----------------------------------------------------------------------


async def test_a_dealer_of_libzmq_talks_to_our_listener() -> None:
    listener = ZmtpListener("127.0.0.1:0")
    address = await listener.serve(lambda _, messages: acknowledge(messages))
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.HEARTBEAT_IVL, 50)
    # otherwise libzmq hangs up on a machine that is busy for as long as the interval
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 60_000)
    socket.connect(f"tcp://{address}")
    try:
        async with asyncio.timeout(WAIT_S_MAX):
            for call in (1, 2):
                await socket.send_multipart(encode([get_tag(call)]))
                [answer] = decode(await socket.recv_multipart())
                assert answer.call == call
                await asyncio.sleep(0.2)  # PING and PONG go to and fro
    finally:
        socket.close(0)
        context.term()
        await listener.close()


async def test_our_client_talks_to_a_router_of_libzmq() -> None:
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.ROUTER)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    client = WireClient(ZmtpConnections())
    client.connections.learn(S0, f"127.0.0.1:{port}")
    try:
        async with asyncio.timeout(WAIT_S_MAX):
            client.connections.post(S0, [get_tag(7)])
            sender, *frames = await socket.recv_multipart()
            await socket.send_multipart([sender, *encode(acknowledge(decode(frames)))])
            await until(lambda: client.calls() == {7})
    finally:
        await client.connections.close()
        socket.close(0)
        context.term()


# -- the site of a client --------------------------------------------------------------------------


def test_what_is_no_name_of_a_site_is_none() -> None:
    def site_in(site: bytes) -> str:
        metadata = properties(DEALER) + b"\x09ARES-site" + len(site).to_bytes(4, "big") + site
        side = incoming()
        feed(side, greeting(b"NULL") + framed(b"\x05READY" + metadata))
        assert side.ready
        return side.site

    assert site_in(b"nantes") == "nantes"
    assert site_in(b"a" * 64) == "a" * 64
    for bad in (b"", b"a" * 65, b"nan tes", b"\xff", b"-nantes", b"nantes\n", b"a" * 3000):
        assert site_in(bad) == ""


@pytest.mark.parametrize("keys", [False, True])
async def test_a_server_is_told_where_a_client_is(keys: bool) -> None:
    own, theirs = SecretKey.generate(), SecretKey.generate()
    lock = Lock(own, Everybody()) if keys else None  # type: ignore[arg-type]
    server = WireServer(ZmtpListener("127.0.0.1:0", lock), acknowledge)
    address = await server.listener.serve(server.handle)
    secret = theirs if keys else None
    clients = [
        WireClient(ZmtpConnections(secret, "nantes")),
        WireClient(ZmtpConnections(secret)),
        WireClient(ZmqConnections(secret)),
    ]
    try:
        for call, client in enumerate(clients):
            client.connections.learn(S0, keyed(address, own.public) if keys else address)
            client.connections.post(S0, [get_tag(call)])
            await until(lambda client=client, call=call: client.calls() == {call})
        assert [sender.site for sender, _ in server.batches] == ["nantes", "", ""]  # type: ignore[attr-defined]
    finally:
        for client in clients:
            await client.connections.close()
        await server.listener.close()


class Everybody:
    """A policy that admits every key."""

    def admits(self, key: str, address: str) -> bool:
        return True


# -- bounds ----------------------------------------------------------------------------------------


async def raw(address: str, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    await writer.drain()
    return reader, writer


async def test_one_connection_too_many_is_hung_up_on() -> None:
    listener = ZmtpListener("127.0.0.1:0", limits=Limits(connections=2))
    address = await listener.serve(lambda _, messages: acknowledge(messages))
    try:
        async with asyncio.timeout(WAIT_S_MAX):
            kept = [await raw(address, opening(DEALER)) for _ in range(2)]
            await until(
                lambda: [connection.ready for connection in listener.connections] == [True, True]
            )
            reader, writer = await raw(address, b"")
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await reader.readexactly(4096)
            assert listener.refused == 1
            for _, writer in kept:
                writer.write(on_wire(encode([get_tag(1)])))
                assert not writer.is_closing()
            writer.close()
    finally:
        await listener.close()


async def test_a_silent_connection_keeps_no_client_out() -> None:
    """The oldest connection without a finished handshake goes.

    Any process at all can open connections.
    """
    listener = ZmtpListener("127.0.0.1:0", limits=Limits(connections=3))
    address = await listener.serve(lambda _, messages: acknowledge(messages))
    clients = [WireClient(ZmtpConnections()) for _ in range(2)]
    try:
        silent = [await raw(address, b"") for _ in range(3)]
        await until(lambda: len(listener.connections) == 3)
        for client in clients:
            client.connections.learn(S0, address)
            await client.ask(S0, [get_tag(1)])
        assert listener.refused == 2
        async with asyncio.timeout(WAIT_S_MAX):
            for reader, _ in silent[:2]:
                with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                    await reader.readexactly(4096)
        for client in clients:
            await client.ask(S0, [get_tag(2)])
        assert len(listener.connections) == 3
    finally:
        for client in clients:
            await client.connections.close()
        await listener.close()


async def test_nothing_stays_of_the_messages_of_a_disconnected_client() -> None:
    """This holds before garbage collection, which may come late and hold many MiB."""
    listener = ZmtpListener("127.0.0.1:0")
    address = await listener.serve(lambda _, messages: acknowledge(messages))
    _, writer = await raw(address, opening(DEALER))
    await until(lambda: [connection.ready for connection in listener.connections] == [True])
    await nothing_stays(
        listener, lambda: writer.write(on_wire([b"x" * 2_000_000, b"y"])[:-3] + b"\xff\xff")
    )
    writer.close()
    await listener.close()


async def send_and_wait(address: str, sent: bytes) -> None:
    """Send, and wait for the hang-up.

    The client may learn of the hang-up while sending, or later, depending on the kernel's buffers.
    """
    reader, _ = await raw(address, sent)
    await reader.readexactly(4096)


async def test_the_connection_with_most_unfinished_bytes_is_closed() -> None:
    listener = ZmtpListener("127.0.0.1:0", limits=Limits(received_bytes=5_000_000))
    address = await listener.serve(lambda _, messages: acknowledge(messages))
    try:
        async with asyncio.timeout(WAIT_S_MAX):
            _, small = await raw(address, opening(DEALER) + on_wire([b"x" * 2_000_000])[:-1])
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await send_and_wait(address, opening(DEALER) + on_wire([b"x" * 4_000_000])[:-1])
            assert listener.cut == 1
            assert not small.is_closing()
    finally:
        await listener.close()


async def test_a_handshake_that_does_not_come_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ares.net.native.HANDSHAKE_TIMEOUT_MS", 50)
    listener = ZmtpListener("127.0.0.1:0")
    address = await listener.serve(lambda _, messages: acknowledge(messages))
    try:
        async with asyncio.timeout(WAIT_S_MAX):
            reader, _ = await raw(address, opening(DEALER)[:20])
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await reader.readexactly(4096)
    finally:
        await listener.close()


async def test_a_paused_listener_takes_nothing_and_loses_nothing() -> None:
    listener = ZmtpListener("127.0.0.1:0")
    address = await listener.serve(lambda _, messages: acknowledge(messages))
    client = WireClient(ZmtpConnections())
    client.connections.learn(S0, address)
    try:
        await client.ask(S0, [get_tag(1)])
        listener.pause()
        client.connections.post(S0, [get_tag(2)])
        await asyncio.sleep(0.1)
        assert client.calls() == {1}
        listener.resume()
        await until(lambda: client.calls() == {1, 2})
    finally:
        await client.connections.close()
        await listener.close()


async def test_replies_that_all_leave_unread_together_are_bounded() -> None:
    """Each reply leaves less than a connection may hold."""
    element = Element(0, 700_000, 1, (bytes(700_000),))
    listener = ZmtpListener("127.0.0.1:0", limits=Limits(unread_bytes=4_000_000))
    address = await listener.serve(
        lambda _, messages: [
            DataReply(message.call, (), 700_000, TAG_ZERO, element, None) for message in messages
        ]
    )
    question = opening(DEALER) + on_wire(*(encode([get_tag(call)]) for call in range(12)))
    try:
        async with asyncio.timeout(WAIT_S_MAX):
            idle = [await raw(address, question) for _ in range(10)]
            await until(lambda: listener.cut > 0)
            assert (
                sum(connection.unsent_bytes for connection in listener.connections)
                <= 4_000_000 + 700_000
            )
            for _, writer in idle:
                writer.close()
    finally:
        await listener.close()


async def test_a_client_that_does_not_read_its_pongs_gets_no_more() -> None:
    listener = ZmtpListener("127.0.0.1:0")
    address = await listener.serve(lambda _, messages: acknowledge(messages))
    ping = b"\x04PING\0\x0a" + b"x" * 16
    flood = bytes([4, len(ping)]) + ping
    try:
        async with asyncio.timeout(WAIT_S_MAX):
            _, writer = await raw(address, opening(DEALER))
            with contextlib.suppress(ConnectionError):  # the server may hang up on such a client
                for _ in range(200):
                    writer.write(flood * 4000)
                    await writer.drain()
            assert sum(connection.unsent_bytes for connection in listener.connections) < 4_000_000
            writer.transport.abort()
    finally:
        await listener.close()


async def test_others_are_served_while_many_small_frames_are_taken_apart() -> None:
    """Earlier releases parsed and refused all frames of a read before another client's answer."""
    listener, many = ZmtpListener("127.0.0.1:0"), 60_000
    address = await listener.serve(lambda _, messages: acknowledge(list(messages)))
    other = WireClient(ZmtpConnections())
    other.connections.learn(S0, address)
    try:
        async with asyncio.timeout(WAIT_S_MAX):
            await other.insist(S0, 1)
            _, writer = await raw(address, opening(DEALER) + b"\0\0" * many)
            await until(lambda: listener.bad_batches > 0)
            await other.insist(S0, 2)
            assert listener.bad_batches < many
            await until(lambda: listener.bad_batches == many)
            writer.close()
    finally:
        await other.connections.close()
        await listener.close()


async def test_a_server_that_hangs_up_is_tried_ever_slower() -> None:
    tries = 0

    async def slam(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal tries
        tries += 1
        writer.close()

    server = await asyncio.start_server(slam, "127.0.0.1", 0)
    client = WireClient(ZmtpConnections())
    client.connections.learn(S0, "{}:{}".format(*server.sockets[0].getsockname()))
    try:
        client.connections.post(S0, [get_tag(1)])
        await asyncio.sleep(2.0)
        assert tries <= 8
        await until(lambda: tries >= 2)
    finally:
        await client.connections.close()
        server.close()


async def test_a_server_that_says_nothing_is_let_go_when_the_client_closes() -> None:
    ended = asyncio.Event()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1000):
            pass
        ended.set()
        writer.close()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    client = WireClient(ZmtpConnections())
    client.connections.learn(S0, "{}:{}".format(*server.sockets[0].getsockname()))
    try:
        client.connections.post(S0, [get_tag(1)])
        await asyncio.sleep(0.2)
        await client.connections.close()
        await asyncio.wait_for(ended.wait(), WAIT_S_MAX)
    finally:
        server.close()


async def test_batches_that_one_read_brings_are_answered_in_one() -> None:
    listener = ZmtpListener("127.0.0.1:0")
    client = WireClient(ZmtpConnections())
    client.connections.learn(S0, await listener.serve(lambda _, messages: acknowledge(messages)))
    await client.ask(S0, [get_tag(0)])
    for call in range(1, 11):
        # they leave when this turn of the event loop is over, and together
        client.connections.post(S0, [get_tag(call)])
    await until(lambda: len(client.received) == 11)
    assert [message.call for message in client.received] == list(range(11))
    assert len(client.batches) < 11
    await client.connections.close()
    await listener.close()


async def test_what_is_posted_over_a_connection_that_asyncio_ends_is_kept() -> None:
    listener = ZmtpListener("127.0.0.1:0")
    client = WireClient(ZmtpConnections())
    client.connections.learn(S0, await listener.serve(lambda _, messages: acknowledge(messages)))
    await client.ask(S0, [get_tag(0)])
    ours = client.connections._links[S0]._latest  # type: ignore[attr-defined]
    ours.transport.close()  # as asyncio does by itself, before it reports the lost connection
    client.connections.post(S0, [get_tag(1)])
    await until(lambda: client.calls() == {0, 1})
    await client.connections.close()
    await listener.close()
