"""How what nobody should send is brought to a port: plain TCP connections that speak ZMTP well, badly, slowly, or not at all.

Everything that is written in one piece counts as a frame: a frame of ZMTP, or a piece of garbage where no frame is possible.
"""

import asyncio
import contextlib
import random
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import cast

from ares.testing.fuzz.fuzz_frames import Mint

_SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
_METADATA = b"\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\0"
READY = b"\x04" + bytes([6 + len(_METADATA)]) + b"\x05READY" + _METADATA
_MORE, _LONG = 1, 2

BATCHES_MAX = 400
CROWD = 150
ENDLESS_FRAMES_MAX = 2000
ENDLESS_FRAME_BYTES = 16 * 1024
CONNECT_S = 10.0
LEAVE_S = 5.0
HALF_OPEN_S = 0.3
"""How long a connection stands there and says no more; now and then until the server has enough of it."""


def greeting(mechanism: bytes = b"NULL") -> bytes:
    """How every connection of ZMTP 3 begins."""
    return _SIGNATURE + b"\x03\x00" + mechanism.ljust(20, b"\0") + bytes(32)


def framed(body: bytes, more: bool) -> bytes:
    """A frame as ZMTP has it."""
    flags = _MORE if more else 0
    return bytes([flags, len(body)]) + body if len(body) < 256 else bytes([flags | _LONG]) + struct.pack(">Q", len(body)) + body


class Line(asyncio.Protocol):
    """One connection to the port; what comes back is counted and thrown away. ``met``: the other side has said who it is, or is gone.

    Whoever sends a batch before that is hung up on.
    """

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.met = asyncio.Event()
        self.received_bytes = 0
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.received_bytes += len(data)
        if self.received_bytes >= len(greeting() + READY):
            self.met.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        self.met.set()
        self._writable.set()

    async def write(self, data: bytes) -> None:
        """Returns when there is room for more, or nobody to write to."""
        if not self.gone.is_set():
            self.transport.write(data)
            await self._writable.wait()


class Attacker:
    """Attacks ``address`` (host:port). ``secured``: there one needs a key, and nothing that comes without gets as far as a batch.

    ``frames`` counts what was thrown, by attack.
    """

    def __init__(self, address: str, chance: random.Random, mint: Mint, secured: bool) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._chance = chance
        self._mint = mint
        self._mechanism = b"CURVE" if secured else b"NULL"
        self.frames: Counter[str] = Counter()
        rude: list[Callable[[], Awaitable[None]]] = [self._garbage, self._greeted_garbage, self._half_open, self._crowd]
        polite: list[Callable[[], Awaitable[None]]] = [self._bad_framing, self._slow, self._endless]
        self._attacks = rude if secured else [*rude, *polite, *([self._batches] * 25)]

    async def attack(self, frames: int) -> None:
        """Until so many are thrown. Raises OSError when nobody listens."""
        while self.frames.total() < frames:
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                await self._chance.choice(self._attacks)()

    def _threw(self, what: str, frames: int = 1) -> None:
        self.frames[what] += frames

    @contextlib.asynccontextmanager
    async def _line(self, shaken_hands: bool = False) -> AsyncIterator[Line]:
        """A connection; most of the time, what was written is sent before it ends."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_S):
            transport, line = await loop.create_connection(Line, self._host, self._port)
        try:
            if shaken_hands:
                await line.write(greeting() + READY)
                await asyncio.wait_for(line.met.wait(), CONNECT_S)
            yield line
            if self._chance.random() < 0.8:
                transport.close()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(line.gone.wait(), LEAVE_S)
        finally:
            transport.abort()

    async def _garbage(self) -> None:
        async with self._line() as line:
            for _ in range(self._chance.randint(1, 10)):
                await line.write(self._chance.randbytes(self._chance.randint(1, 3000)))
                self._threw("garbage")

    async def _greeted_garbage(self) -> None:
        async with self._line() as line:
            opening = greeting(self._mechanism)
            await line.write(opening if self._chance.random() < 0.7 else opening[: self._chance.randrange(len(opening))])
            await asyncio.sleep(0.001)
            await line.write(self._chance.randbytes(self._chance.randint(1, 3000)))
            self._threw("greeting, then garbage", 2)

    async def _bad_framing(self) -> None:
        async with self._line(shaken_hands=True) as line:
            for _ in range(self._chance.randint(1, 5)):
                await line.write(self._chance.randbytes(self._chance.choice([1, 2, 9, 10, 1000])))
                self._threw("bad framing")
                await asyncio.sleep(0.001)

    async def _batches(self) -> None:
        """Of one connection, most of the time with somebody who reads what the server thinks of it."""
        async with self._line(shaken_hands=True) as line:
            if self._chance.random() < 0.1:
                line.transport.pause_reading()
            for _ in range(self._chance.randint(1, BATCHES_MAX)):
                batch = self._mint.batch()
                await line.write(b"".join(framed(frame, number < len(batch) - 1) for number, frame in enumerate(batch)))
                self._threw("batches", len(batch))
                if line.gone.is_set():
                    return
            if self._chance.random() < 0.2:
                await line.write(framed(bytes(1000), True)[: self._chance.randint(1, 1000)])
                self._threw("cut off")

    async def _slow(self) -> None:
        """Byte by byte."""
        async with self._line() as line:
            for byte in greeting() + READY:
                await line.write(bytes([byte]))
                await asyncio.sleep(0)
            await asyncio.wait_for(line.met.wait(), CONNECT_S)
            for byte in framed(self._mint.batch()[0], False):
                await line.write(bytes([byte]))
                await asyncio.sleep(0)
            self._threw("byte by byte", 3)

    async def _endless(self) -> None:
        async with self._line(shaken_hands=True) as line:
            frame = framed(self._chance.randbytes(ENDLESS_FRAME_BYTES), True)
            for _ in range(self._chance.randint(1, ENDLESS_FRAMES_MAX)):
                await line.write(frame)
                self._threw("a batch without an end")
                if line.gone.is_set():
                    return

    async def _half_open(self) -> None:
        async with self._line() as line:
            opening = greeting(self._mechanism) + READY
            await line.write(opening[: self._chance.randrange(len(opening))])
            self._threw("half open")
            until_cut = self._chance.random() < 0.02
            for _ in range(600 if until_cut else 1):
                await asyncio.sleep(HALF_OPEN_S / 10)
                if line.gone.is_set():
                    return

    async def _crowd(self) -> None:
        async def one() -> None:
            async with self._line(shaken_hands=self._chance.random() < 0.5):
                self._threw("a crowd")
                await asyncio.sleep(0.05)

        await asyncio.gather(*(one() for _ in range(CROWD)))
