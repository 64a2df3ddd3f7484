"""Troubles of transports over TCP only: strangers, garbage, slow readers, both event loops."""

import asyncio
import random
import struct
import time
from collections.abc import Callable, Sequence

import pytest
import zmq
import zmq.asyncio

from ares.model.codec import WIRE_VERSION, decode, encode, frame_bytes_max
from ares.model.errors import BadInput
from ares.model.identity import VALUE_BYTES_DEFAULT, CallId, ServerId
from ares.model.messages import AnyMessage, DataReply, Element
from ares.model.tag import TAG_ZERO
from ares.model.units import MIB
from ares.net.libzmq import VIEWED_BYTES_MIN, ZmqListener, contents
from tests.private_memory import private_bytes

from .wires import S0, WAIT_S_MAX, WireClient, WireServer, ZmqWire, acknowledge, get_tag, until

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x04\x29\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\0"
LARGE_FRAME = b"\x02"


async def raw_connection(
    server: WireServer, payload: bytes
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = server.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(payload)
    return reader, writer


async def shaken_hands(server: WireServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Make a connection and finish ZeroMQ's handshake, step by step as the server expects."""
    reader, writer = await raw_connection(server, GREETING[:10])
    await reader.readexactly(10)
    writer.write(GREETING[10:])
    await reader.readexactly(len(GREETING) - 10)
    writer.write(READY)
    await reader.readexactly(len(READY))
    return reader, writer


async def hung_up(reader: asyncio.StreamReader) -> bool:
    """Read until the other side closes."""
    try:
        async with asyncio.timeout(WAIT_S_MAX):
            while await reader.read(65536):
                pass
    except ConnectionError:
        pass
    return True


def test_only_large_parts_stay_in_libzmq_s_memory() -> None:
    sizes = (2 * VIEWED_BYTES_MIN, VIEWED_BYTES_MIN, VIEWED_BYTES_MIN - 1)
    found = contents([zmq.Frame(bytes(size)) for size in sizes])
    assert [type(frame) for frame in found] == [bytes, memoryview, bytes]
    assert [len(frame) for frame in found] == list(sizes)


async def test_strangers_on_the_port_disturb_no_client(zmq_wire: ZmqWire) -> None:
    server = await zmq_wire.serve()
    client = zmq_wire.connect(server)
    chance = random.Random(20)
    for number in range(300):
        size = chance.choice([0, 1, 10, 64, 100, 5000])
        prefix = chance.choice(
            [
                b"",
                GREETING[:10],
                GREETING[:12],
                GREETING,
                GREETING + READY,
                b"GET / HTTP/1.1\r\n\r\n",
            ]
        )
        _, writer = await raw_connection(server, prefix + chance.randbytes(size))
        if chance.random() < 0.5:
            writer.transport.abort()
        else:
            writer.close()
        if number % 50 == 0:
            await client.ask(S0, [get_tag(number)])
    for _ in range(50):
        _, writer = await shaken_hands(server)
        writer.write(chance.randbytes(chance.choice([1, 10, 1000])))
        writer.close()
    await client.ask(S0, [get_tag(1000)])
    await zmq_wire.connect(server).ask(S0, [get_tag(1)])


async def test_thousands_of_short_connections_disturb_no_client(zmq_wire: ZmqWire) -> None:
    server = await zmq_wire.serve()
    client = zmq_wire.connect(server)
    for number in range(2000):
        _, writer = await raw_connection(server, b"")
        writer.transport.abort()
        if number % 200 == 0:
            await client.ask(S0, [get_tag(number)])
    await zmq_wire.connect(server).ask(S0, [get_tag(1)])


async def test_an_oversized_frame_ends_its_connection_only(zmq_wire: ZmqWire) -> None:
    server = await zmq_wire.serve()
    client = zmq_wire.connect(server)
    await client.ask(S0, [get_tag(1)])
    for size in (frame_bytes_max(VALUE_BYTES_DEFAULT) + 1, 2**62):
        reader, writer = await shaken_hands(server)
        writer.write(LARGE_FRAME + struct.pack(">Q", size) + bytes(1000))
        assert await hung_up(reader)
        writer.close()
    await client.ask(S0, [get_tag(2)])
    assert server.listener.bad_batches == 0
    assert [message.call for message in server.received] == [1, 2]


async def test_a_frame_cut_off_by_a_hang_up_is_not_seen(zmq_wire: ZmqWire) -> None:
    server = await zmq_wire.serve()
    header = encode([get_tag(1)])[0]
    frame = b"\x00" + bytes([len(header)]) + header
    for sent in (frame[:-5], frame):
        _, writer = await shaken_hands(server)
        writer.write(sent)
        writer.close()
    await until(lambda: bool(server.batches))
    await zmq_wire.connect(server).ask(S0, [get_tag(2)])
    assert [message.call for message in server.received] == [1, 2]
    assert server.listener.bad_batches == 0


async def test_a_hose_of_garbage_leaves_memory_flat(zmq_wire: ZmqWire) -> None:
    server = await zmq_wire.serve()
    client = zmq_wire.connect(server)
    chance = random.Random(7)
    garbage = [
        [bytes([WIRE_VERSION]) + chance.randbytes(4000)],
        [chance.randbytes(4000)],
        [b""],
        [chance.randbytes(40)] * 9,
    ]

    async def hose(batches: int) -> None:
        expected = server.listener.bad_batches + batches
        for number in range(batches):
            await socket.send_multipart(garbage[number % len(garbage)])
            if number % 100 == 0:  # a slow server ends a connection whose answers are not read
                while await socket.poll(0):
                    await socket.recv_multipart()
            if number % 1000 == 0:
                await client.ask(S0, [get_tag(number)])
        await until(lambda: server.listener.bad_batches == expected)

    with (
        zmq.asyncio.Context() as context,
        context.socket(zmq.DEALER) as socket,
    ):
        socket.linger = 0
        socket.connect(f"tcp://{server.address}")
        await hose(4000)
        before = private_bytes()
        await hose(20_000)
        assert private_bytes() - before < 48 * MIB
    await client.ask(S0, [get_tag(99_999)])


async def test_a_client_that_reads_nothing_is_owed_bounded_bytes(
    our_server: ZmqWire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ares.net.native.PEER_WAITING_BYTES_MAX", 8 * MIB)
    data = bytes(MIB)

    def large(messages: Sequence[AnyMessage]) -> list[AnyMessage]:
        return [
            DataReply(message.call, (), MIB, TAG_ZERO, Element(0, MIB, 1, (data,)), None)
            for message in messages
        ]

    server = await our_server.serve(answer=large)
    with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.rcvhwm = 1
        socket.connect(f"tcp://{server.address}")
        for call in range(100):
            await socket.send_multipart(encode([get_tag(call)]))
        await until(lambda: len(server.received) == 100)
        await our_server.connect(server).ask(S0, [get_tag(1)])
        received = 0
        while await socket.poll(500):
            received += len(decode(await socket.recv_multipart()))
        assert 0 < received < 60
        await socket.send_multipart(encode([get_tag(200)]))
        assert await asyncio.wait_for(socket.recv_multipart(), WAIT_S_MAX), (
            "having read, it is served again"
        )


def test_what_waits_leaves_before_what_is_posted_later() -> None:
    wire = ZmqWire()
    address = wire.fresh_address()
    with asyncio.Runner() as runner, zmq.Context() as context, context.socket(zmq.ROUTER) as router:

        async def begin() -> WireClient:
            client = wire.connect(address)
            client.connections.post(S0, [get_tag(1)])
            await asyncio.sleep(0.01)
            return client

        async def finish() -> None:
            async with asyncio.timeout(WAIT_S_MAX):
                while len(received) < 2:
                    received.extend(arrived(0))
                    await asyncio.sleep(0.01)
            await wire.close()

        def arrived(within_ms: int) -> list[int]:
            calls: list[int] = []
            while router.poll(within_ms):
                calls += [message.call for message in decode(router.recv_multipart()[1:])]
            return calls

        received: list[int] = []
        client = runner.run(begin())
        router.bind(f"tcp://{address}")
        time.sleep(
            0.5
        )  # with an idle loop: ZeroMQ connects, and the loop hears of it after the second post
        client.connections.post(S0, [get_tag(2)])
        runner.run(finish())
        received += arrived(200)
    assert received == [1, 2]


async def test_a_connected_server_that_does_not_read_gets_everything_later(
    zmq_wire: ZmqWire,
) -> None:
    """ZeroMQ's queue fills; ours takes over and is sent later.

    The order is kept, and no message within the bound is lost.
    """
    with zmq.asyncio.Context() as context, context.socket(zmq.ROUTER) as router:
        router.rcvhwm = 1
        port = router.bind_to_random_port("tcp://127.0.0.1")
        client = zmq_wire.connect(f"127.0.0.1:{port}")
        client.connections.post(S0, [get_tag(0)])
        await asyncio.wait_for(router.recv_multipart(), WAIT_S_MAX)
        data = bytes(64 * 1024)
        messages = [
            DataReply(
                CallId(call), (), len(data), TAG_ZERO, Element(0, len(data), 1, (data,)), None
            )
            for call in range(1, 1001)
        ]
        for message in messages:
            client.connections.post(S0, [message])
            await asyncio.sleep(0)
        batches: list[list[AnyMessage]] = []
        async with asyncio.timeout(WAIT_S_MAX):
            while sum(map(len, batches)) < len(messages):
                _, *frames = await router.recv_multipart()
                batches.append(decode(frames))
        assert [message for batch in batches for message in batch] == messages
        assert len(batches) < len(messages), "what waited left together"


@pytest.mark.parametrize(
    "address",
    [
        "nonsense",
        "127.0.0.1",
        "127.0.0.1:99999",
        "127.0.0.1:-1",
        ":0",
        "203.0.113.1:0",
        "",
        "no.such.host.invalid:0",
    ],
)
async def test_an_address_that_cannot_be_bound_is_refused(address: str) -> None:
    with pytest.raises(BadInput, match=r"IPv4|expected a port") as caught:
        await ZmqListener(address).serve(lambda sender, messages: [])
    assert repr(address) in str(caught.value)


async def test_an_impossible_server_address_is_logged_and_disturbs_no_other(
    zmq_wire: ZmqWire, caplog: pytest.LogCaptureFixture
) -> None:
    client = zmq_wire.connect(await zmq_wire.serve(), "not an address")
    for call in (1, 2):
        client.connections.post(ServerId("s1"), [get_tag(call)])
        await client.ask(S0, [get_tag(call)])
    assert [
        record.getMessage().startswith("server s1 cannot be reached") for record in caplog.records
    ] == [True]


async def test_bad_replies_are_dropped_and_the_next_are_taken(
    zmq_wire: ZmqWire, caplog: pytest.LogCaptureFixture
) -> None:
    with zmq.asyncio.Context() as context, context.socket(zmq.ROUTER) as router:
        port = router.bind_to_random_port("tcp://127.0.0.1")
        client = zmq_wire.connect(f"127.0.0.1:{port}")
        client.connections.post(S0, [get_tag(1)])
        sender, *_ = await asyncio.wait_for(router.recv_multipart(), WAIT_S_MAX)
        for frames in ([b"garbage"], [b""], encode(acknowledge([get_tag(1)]))):
            await router.send_multipart([sender, *frames])
        await until(lambda: client.received == acknowledge([get_tag(1)]))
    assert "bad batch" in caplog.text


def uvloop_loop() -> asyncio.AbstractEventLoop:
    loop: asyncio.AbstractEventLoop = pytest.importorskip("uvloop").new_event_loop()
    return loop


@pytest.mark.parametrize(
    "loop_factory", [asyncio.new_event_loop, uvloop_loop], ids=["asyncio", "uvloop"]
)
def test_both_event_loops_carry_load_and_a_restart(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def scenario() -> None:
        wire = ZmqWire()
        server = await wire.serve()
        client = wire.connect(server)
        await client.ask(S0, [get_tag(0)])
        for _ in range(50):
            await client.ask(S0, [get_tag(call) for call in range(1, 200)])
        for call in range(1000, 5000):
            client.connections.post(S0, [get_tag(call)])
            await asyncio.sleep(0)
        await until(lambda: len(client.received) == 1 + 50 * 199 + 4000)
        await server.listener.close()
        await wire.serve(server.address)
        await client.insist(S0, 9999)
        await wire.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(scenario())
