"""The delaying relay of the experiments (experiments/testbeds/relays.py).

The relay carries bytes unchanged, in order, and not early.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from experiments.testbeds.relays import CHUNK_BYTES, HELD_CHUNKS_MAX, LinkDirection, Relay, carry

from .wires import S0, WAIT_S_MAX, ZmqWire, get_tag

FOR_EVER_S = 3600.0

Link = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Linker = Callable[[float], Awaitable[Link]]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.fixture
async def link() -> AsyncIterator[Linker]:
    """Make connections to an echo server behind a relay of the given delay."""
    async with AsyncExitStack() as closing:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        closing.callback(server.close)

        async def make(delay_s: float) -> Link:
            relay = Relay(
                f"127.0.0.1:{server.sockets[0].getsockname()[1]}",
                LinkDirection(delay_s),
                LinkDirection(delay_s),
            )
            port = int((await relay.open()).rpartition(":")[2])
            closing.push_async_callback(relay.close)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            closing.callback(writer.close)
            return reader, writer

        yield make


async def test_bytes_come_through_in_order_and_the_end_too(link: Linker) -> None:
    reader, writer = await link(0.001)
    sent = random.Random(1).randbytes(3 * CHUNK_BYTES + 17)
    for start in range(0, len(sent), 100_000):
        writer.write(sent[start : start + 100_000])
    writer.write_eof()
    async with asyncio.timeout(WAIT_S_MAX):
        assert await reader.read() == sent


async def test_nothing_comes_before_its_time(link: Linker) -> None:
    """The relay without a delay is the control, which shows that earlier delivery is possible."""
    (slow_reader, slow_writer), (reader, writer) = await link(FOR_EVER_S), await link(0.0)
    slow_writer.write(b"ping")
    for _ in range(20):
        writer.write(b"ping")
        async with asyncio.timeout(WAIT_S_MAX):
            assert await reader.readexactly(4) == b"ping"
    slow = asyncio.create_task(slow_reader.read(4))
    await asyncio.sleep(0)
    assert not slow.done()
    slow.cancel()


async def test_both_ways_take_their_time(link: Linker) -> None:
    reader, writer = await link(0.02)
    loop = asyncio.get_running_loop()
    begin = loop.time()
    writer.write(b"ping")
    async with asyncio.timeout(WAIT_S_MAX):
        assert await reader.readexactly(4) == b"ping"
    assert loop.time() - begin >= 2 * 0.02


class Endless:
    """An endless source with a count of the bytes read."""

    def __init__(self) -> None:
        self.taken = 0

    async def read(self, n: int) -> bytes:
        self.taken += 1
        await asyncio.sleep(0)
        return b"x"


@pytest.mark.parametrize(("delay_s", "stops"), [(FOR_EVER_S, True), (0.0, False)])
async def test_what_is_held_is_bounded(link: Linker, delay_s: float, stops: bool) -> None:
    source, (_, writer) = Endless(), await link(0.0)
    carrying = asyncio.create_task(carry(source, writer, LinkDirection(delay_s)))
    for _ in range(20 * HELD_CHUNKS_MAX):
        await asyncio.sleep(0)
    assert (source.taken <= HELD_CHUNKS_MAX + 2) is stops
    carrying.cancel()


async def test_a_server_that_is_gone_costs_only_the_connection(zmq_wire: ZmqWire) -> None:
    """ZeroMQ connects again, through the same relay, after a server listens."""
    target = zmq_wire.fresh_address()
    relay = Relay(target, LinkDirection(0.001), LinkDirection(0.001))
    client = zmq_wire.connect(await relay.open())
    client.connections.post(S0, [get_tag(1)])
    await asyncio.sleep(0.05)
    await zmq_wire.serve(target)
    await client.insist(S0, 2)
    await relay.close()


async def test_a_relay_listens_on_loopback_only() -> None:
    with pytest.raises(ValueError, match="loopback"):
        Relay("192.0.2.1:7000", LinkDirection(), LinkDirection())
