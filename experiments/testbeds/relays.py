"""Relays for the links between the sites of testbed `processes`, in a separate process.

    python -m experiments.testbeds.relays      # RelayRequests in, RelayReplies out, as JSON lines

The process lasts as long as its standard input. A TCP relay before each server passes bytes on
after a delay, for kernels without network emulation. A relay delays and does not limit the rate,
but never holds more than HELD_CHUNKS_MAX chunks of a direction: at this bound the relay stops
reading, as a full link would. Relays listen on loopback only. The event loop waits with select(2),
whose timeout has microseconds; epoll's timeout has milliseconds, as much as the delay itself.
"""

import asyncio
import contextlib
import random
import selectors
from typing import Protocol

from msgspec import Struct

from ares.cluster.addresses import is_loopback, split_address
from experiments.bench.worker_process import answer, received

CHUNK_BYTES = 256 * 1024
HELD_CHUNKS_MAX = 128

Held = asyncio.Queue[tuple[float, bytes]]


class LinkDirection:
    """A direction of a link.

    Bytes are late by ``delay_s`` +- ``jitter_s``, and wait while the link is cut.
    """

    def __init__(self, delay_s: float = 0.0, jitter_s: float = 0.0) -> None:
        self.delay_s = delay_s
        self.jitter_s = jitter_s
        self.joined = asyncio.Event()
        self.joined.set()
        self.delivered_bytes = 0

    def late_s(self) -> float:
        """Return the delay for bytes that arrive now."""
        return self.delay_s + (random.uniform(-1, 1) * self.jitter_s if self.jitter_s else 0.0)


class Relay:
    """A listener on a free port of loopback for ``target`` (``host:port``, loopback too).

    Bytes to the target go ``there``, and bytes from the target ``back``; both may be the same way.
    """

    def __init__(self, target: str, there: LinkDirection, back: LinkDirection) -> None:
        self._host, self._port = split_address(target)
        if not is_loopback(self._host):
            raise ValueError(f"a relay is for servers on loopback, not for {target}")
        self._there, self._back = there, back
        self._links: set[asyncio.Task[None]] = set()

    async def open(self) -> str:
        """Begin to listen, and return the address."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=CHUNK_BYTES)
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    async def close(self) -> None:
        """Stop listening and cut every connection; bytes on their way are lost."""
        self._server.close()
        for link in self._links:
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.current_task()
        assert link is not None
        self._links.add(link)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._connect(reader, writer)
        finally:
            self._links.discard(link)
            writer.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._host, self._port, limit=CHUNK_BYTES)
        try:
            async with asyncio.TaskGroup() as ways:
                ways.create_task(carry(reader, back, self._there))
                ways.create_task(carry(there, writer, self._back))
        except* OSError:
            pass
        finally:
            back.close()


class ByteSource(Protocol):
    """A source of bytes: a :class:`asyncio.StreamReader`."""

    async def read(self, n: int) -> bytes: ...


async def carry(source: ByteSource, target: asyncio.StreamWriter, way: LinkDirection) -> None:
    """Carry the bytes of a direction up to the end of stream, and pass the end on."""
    held: Held = asyncio.Queue(HELD_CHUNKS_MAX)
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as ends:
        ends.create_task(_deliver(held, target, way))
        data = b"begin"
        while data:
            data = await source.read(CHUNK_BYTES)
            await held.put((loop.time() + way.late_s(), data))


async def _deliver(held: Held, target: asyncio.StreamWriter, way: LinkDirection) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due, data = await held.get()
        if (wait_s := due - loop.time()) > 0:
            await asyncio.sleep(wait_s)
        await way.joined.wait()
        if not data:
            target.write_eof()
            return
        way.delivered_bytes += len(data)
        target.write(data)
        await target.drain()


class RelayRequest(Struct, frozen=True, omit_defaults=True):
    """A request about the way from ``site`` to ``other``.

    ``target`` opens a relay to this ``host:port`` at ``other``. ``delay_s``, ``jitter_s`` and
    ``joined`` change the way.
    """

    site: str = ""
    other: str = ""
    target: str | None = None
    delay_s: float | None = None
    jitter_s: float = 0.0
    joined: bool | None = None


class RelayReply(Struct, frozen=True, omit_defaults=True):
    """A reply.

    ``address`` is the address of the new relay. ``traffic`` has sites and delivered bytes of every
    way so far. ``error`` describes a failure.
    """

    address: str = ""
    traffic: list[tuple[str, str, int]] = []
    error: str = ""


class Links:
    """Every way between two sites that a request named, and the relays."""

    def __init__(self) -> None:
        self._ways: dict[tuple[str, str], LinkDirection] = {}
        self._relays: list[Relay] = []

    async def answer(self, request: RelayRequest) -> RelayReply:
        """Do the work of a request."""
        way = LinkDirection()
        if request.site:
            way = self._ways.setdefault((request.site, request.other), way)
        if request.delay_s is not None:
            way.delay_s, way.jitter_s = request.delay_s, request.jitter_s
        if request.joined is not None:
            (way.joined.set if request.joined else way.joined.clear)()
        address = ""
        if request.target:
            back = self._ways.setdefault((request.other, request.site), LinkDirection())
            self._relays.append(Relay(request.target, way, back))
            address = await self._relays[-1].open()
        traffic = [(*sites, each.delivered_bytes) for sites, each in self._ways.items()]
        return RelayReply(address, traffic)

    async def close(self) -> None:
        """Close every connection."""
        for relay in self._relays:
            await relay.close()


async def _serve() -> None:
    links = Links()
    while (request := await asyncio.to_thread(received, RelayRequest)) is not None:
        try:
            answer(await links.answer(request))
        except (OSError, ValueError) as error:
            answer(RelayReply(error=str(error)))
    await links.close()


if __name__ == "__main__":
    with asyncio.Runner(
        loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())
    ) as runner:
        runner.run(_serve())
