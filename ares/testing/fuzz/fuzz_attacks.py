"""Batches never sent by a correct client, and attackers to bring them to a port.

A mint makes batches of garbage, of real messages with random content, and of real messages damaged.
Messages are made by type (ares/model/messages.py), therefore a new kind of message is fuzzed from
its first day. Every choice is random, from a seed. Attackers have plain TCP connections and speak
ZMTP well, badly, slowly, or not at all. Each piece written at once counts as a frame: a frame of
ZMTP, or a piece of garbage where no frame is possible.
"""

import asyncio
import contextlib
import random
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import cast, get_args

import msgspec
from msgspec import inspect

from ares.cluster.addresses import split_address
from ares.model.codec import WIRE_PREFIX
from ares.model.configuration import Configuration, Server
from ares.model.identity import DEFAULT_DOMAIN, DomainName, ServerId
from ares.model.log_messages import (
    Append,
    AwaitAppend,
    Fetch,
    Look,
    LookRow,
    NeighbourMessage,
    ReadEach,
    ReadLog,
    Stand,
    Trim,
)
from ares.model.messages import (
    AnyMessage,
    GetData,
    GetTag,
    Introduce,
    ListObjects,
    PutData,
    ReadConfig,
    SetLogLevel,
)
from ares.net.zmtp.frames import LONG_FLAG, MORE_FLAG

_ODD_SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
_METADATA = b"\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\0"
FUZZ_READY = b"\x04" + bytes([6 + len(_METADATA)]) + b"\x05READY" + _METADATA

FUZZED_BATCHES_MAX = 400
CROWD_CONNECTIONS = 150
ENDLESS_FRAMES_MAX = 2000
ENDLESS_FRAME_BYTES = 16 * 1024
FUZZ_CONNECT_S = 10.0
LEAVE_S = 5.0
HALF_OPEN_S = 0.3
"""Seconds of silence of a half-open connection; a few wait until the server closes them."""

_INTEGERS = (
    0,
    1,
    -1,
    2,
    127,
    128,
    255,
    256,
    2**31 - 1,
    2**31,
    2**32,
    2**63 - 1,
    2**63,
    2**64 - 1,
    -(2**63),
)
_TEXTS = (
    "",
    "k",
    "default",
    "a/b",
    "\0",
    "ä\N{SNOWMAN}",
    "x" * 300,
    "127.0.0.1:7000",
    "abd",
    "ec",
    "../../etc/passwd",
)
_ITEMS_MAX = 4
_GARBAGE_BYTES_MAX = 2000
_MESSAGES_MAX = 6
_ABOUT_ONE = (GetTag, GetData, PutData, ReadConfig, ListObjects)
"""Requests about a single configuration, without need of a successor."""

_ABOUT_LOGS = (
    *(Append, AwaitAppend, ReadLog, ReadEach, Look, Trim, Stand, LookRow, Fetch),
    *get_args(NeighbourMessage),
)
"""Requests about a chain, without need of a successor; without Seal, which ends operations on the
log.
"""

FUZZED_LOG = DomainName("fuzzed")

_FUZZED_SERVERS = [
    Server(ServerId(f"s{index}"), f"127.0.0.1:{7000 + index}", f"{index:032x}")
    for index in range(5)
]
_CONFIGURATIONS: list[object] = [
    msgspec.msgpack.decode(msgspec.msgpack.encode(configuration.at(DEFAULT_DOMAIN, index)))
    for configuration in (
        Configuration.abd(_FUZZED_SERVERS[:3]),
        Configuration.ec(_FUZZED_SERVERS, k=3),
        Configuration.chain(_FUZZED_SERVERS[:3]),
    )
    for index in (0, 1, 7)
]
"""Made-up but possible configurations: most random configurations are impossible."""

_MESSAGE_KINDS = [
    kind
    for kind in inspect.type_info(AnyMessage).types  # type: ignore[attr-defined]
    if kind.cls is not SetLogLevel  # works for any client, and would fill the process's own log
]


class BatchMaker:
    """A maker of random batches; a batch is a list of frames.

    ``known``: the id of a served configuration, to pass the server's first check. ``log``: a chain
    that the server accepts in Introduce.

    Requests about these two carry no successor: a server without keys would believe the successor
    and stop serving.
    """

    def __init__(
        self, chance: random.Random, known: bytes | None = None, log: Configuration | None = None
    ) -> None:
        self._chance = chance
        self._known = known
        self._log = log
        self._slips = 0.0
        self._makers: Sequence[Callable[[], list[bytes]]] = (
            self._garbage,
            self._invented,
            self._invented,
            self._damaged,
            self._damaged,
        )

    def batch(self) -> list[bytes]:
        """Return a random batch; about 1 in 100 may even be right."""
        return self._chance.choice(self._makers)()

    def _garbage(self) -> list[bytes]:
        chance = self._chance
        frames = [
            chance.randbytes(chance.randrange(_GARBAGE_BYTES_MAX))
            for _ in range(chance.randint(1, 3))
        ]
        if chance.random() < 0.7:
            frames[0] = WIRE_PREFIX + frames[0]
        return frames

    def _invented(self) -> list[bytes]:
        """Return messages of the right shape; every third batch has a few wrong values."""
        self._slips = self._chance.choice([0.0, 0.0, 0.02])
        messages = [self._message() for _ in range(self._chance.randint(1, _MESSAGES_MAX))]
        more = [
            self._chance.randbytes(self._chance.randrange(300))
            for _ in range(self._chance.choice([0] * 8 + [1, 2]))
        ]
        return [WIRE_PREFIX + msgspec.msgpack.encode(messages), *more]

    def _damaged(self) -> list[bytes]:
        chance = self._chance
        frames = self._invented()
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(frames))
            frame = bytearray(frames[place])
            where = chance.randrange(len(frame) + 1)
            match chance.randrange(6):
                case 0 if frame:
                    frame[min(where, len(frame) - 1)] ^= 1 << chance.randrange(8)
                case 1:
                    del frame[where:]
                case 2:
                    frame[where:where] = chance.randbytes(chance.randint(1, 9))
                case 3:
                    del frame[where : where + chance.randint(1, 9)]
                case 4:
                    frame += frame[where:]
                case 5:
                    frames.append(bytes(frame))
            frames[place] = bytes(frame)
        return frames

    def _message(self) -> list[object]:
        kind = self._chance.choice(_MESSAGE_KINDS)
        message = self._struct(kind)
        names = [field.name for field in kind.fields]
        if self._log is not None and kind.cls is Introduce and self._chance.random() < 0.5:
            return [kind.tag, 0, msgspec.msgpack.decode(msgspec.msgpack.encode(self._log)), []]
        in_log = kind.cls in _ABOUT_LOGS and self._log is not None
        known = (
            self._log.id
            if self._log is not None and in_log
            else self._known
            if kind.cls in _ABOUT_ONE
            else None
        )
        if known is not None and self._chance.random() < 0.5:
            message[1 + names.index("configuration")] = known
            if "server" in names and self._log is not None:
                message[1 + names.index("server")] = self._log.servers[-1].id
            if "successor" in names:
                message[1 + names.index("successor")] = None
        return message

    def _struct(self, kind: inspect.StructType) -> list[object]:
        struct: list[object] = [] if kind.tag is None else [kind.tag]
        for field in kind.fields:
            usual = field.default is not msgspec.NODEFAULT and self._chance.random() < 0.5
            struct.append(field.default if usual else self._value(field.type))
        return struct

    def _value(self, kind: inspect.Type) -> object:
        chance = self._chance
        if self._slips and chance.random() < self._slips:
            return chance.choice([None, "text", 7, b"\xff", [], {}, [[[]]]])
        match kind:
            case inspect.StructType(cls=cls):
                return (
                    chance.choice(_CONFIGURATIONS)
                    if cls is Configuration and chance.random() < 0.8
                    else self._struct(kind)
                )
            case inspect.UnionType(types=types):
                return self._value(chance.choice(types))
            case inspect.VarTupleType(item_type=item):
                return [self._value(item) for _ in range(chance.randrange(_ITEMS_MAX))]
            case inspect.IntType(ge=least, le=most):
                return (
                    chance.choice(_INTEGERS)
                    if chance.random() < 0.1
                    else self._integer(least, most)
                )
            case inspect.BytesType():
                return chance.randbytes(
                    chance.choice([0, 1, 16, 16, 200]) if chance.random() < 0.2 else 16
                )
            case inspect.StrType():
                return chance.choice(_TEXTS)
            case inspect.BoolType():
                return chance.random() < 0.5
            case inspect.FloatType():
                return chance.choice([0.0, 0.1, 1.5, 2, -1.5, float("inf"), float("nan")])
            case inspect.EnumType(cls=cls):
                return chance.choice(
                    [*(member.value for member in cls), *([99] if self._slips else [])]
                )
            case inspect.LiteralType(values=values):
                return chance.choice(values)
            case _:
                return None

    def _integer(self, least: int | None, most: int | None) -> int:
        """Choose a number within the bounds of a field.

        Often it is a bound itself, sometimes a number just beyond.
        """
        chance = self._chance
        lowest, highest = 0 if least is None else least, 2**64 - 1 if most is None else most
        if chance.random() < 0.02:
            return chance.choice([lowest - 1, min(highest + 1, 2**64 - 1)])
        return chance.choice([lowest, highest, chance.randint(lowest, min(highest, lowest + 100))])


def greeting(mechanism: bytes = b"NULL") -> bytes:
    """Return the greeting at the begin of each connection of ZMTP 3."""
    return _ODD_SIGNATURE + b"\x03\x00" + mechanism.ljust(20, b"\0") + bytes(32)


def framed(body: bytes, more: bool) -> bytes:
    """Return a frame in ZMTP's form."""
    flags = MORE_FLAG if more else 0
    return (
        bytes([flags, len(body)]) + body
        if len(body) < 256
        else bytes([flags | LONG_FLAG]) + struct.pack(">Q", len(body)) + body
    )


class RawConnection(asyncio.Protocol):
    """A TCP connection to the port; received bytes are counted and thrown away.

    ``met``: the peer has greeted and said READY, or has closed. The server closes a connection with
    an earlier batch.
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
        if self.received_bytes >= len(greeting() + FUZZ_READY):
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
        """Write, and return when the peer takes more or the connection is closed."""
        if not self.gone.is_set():
            self.transport.write(data)
            await self._writable.wait()


class Attacker:
    """A source of attacks on ``address`` (host:port).

    ``secured``: the port asks for keys; without a key no frame gets as far as a batch. ``frames``
    counts the frames thrown, by attack.
    """

    def __init__(
        self, address: str, chance: random.Random, mint: BatchMaker, secured: bool
    ) -> None:
        self._host, self._port = split_address(address)
        self._chance = chance
        self._mint = mint
        self._mechanism = b"CURVE" if secured else b"NULL"
        self.frames: Counter[str] = Counter()
        rude: list[Callable[[], Awaitable[None]]] = [
            self._garbage,
            self._greeted_garbage,
            self._half_open,
            self._crowd,
        ]
        polite: list[Callable[[], Awaitable[None]]] = [self._bad_framing, self._slow, self._endless]
        once = rude if secured else [*rude, *polite]
        self._first = self._chance.sample(once, len(once))
        self._attacks = rude if secured else [*once, *([self._batches] * 25)]

    async def attack(self, frames: int) -> None:
        """Attack until ``frames`` are thrown, each way once and then by chance.

        Raises OSError when no process listens.
        """
        while self.frames.total() < frames:
            attack = self._first.pop() if self._first else self._chance.choice(self._attacks)
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                await attack()

    @contextlib.asynccontextmanager
    async def _line(self, shaken_hands: bool = False) -> AsyncIterator[RawConnection]:
        """Open a connection; in most cases, all written bytes are sent before the end."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(FUZZ_CONNECT_S):
            transport, line = await loop.create_connection(RawConnection, self._host, self._port)
        try:
            if shaken_hands:
                await line.write(greeting() + FUZZ_READY)
                await asyncio.wait_for(line.met.wait(), FUZZ_CONNECT_S)
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
                self.frames["garbage"] += 1

    async def _greeted_garbage(self) -> None:
        async with self._line() as line:
            opening = greeting(self._mechanism)
            await line.write(
                opening
                if self._chance.random() < 0.7
                else opening[: self._chance.randrange(len(opening))]
            )
            await asyncio.sleep(0.001)
            await line.write(self._chance.randbytes(self._chance.randint(1, 3000)))
            self.frames["greeting, then garbage"] += 2

    async def _bad_framing(self) -> None:
        async with self._line(shaken_hands=True) as line:
            for _ in range(self._chance.randint(1, 5)):
                await line.write(self._chance.randbytes(self._chance.choice([1, 2, 9, 10, 1000])))
                self.frames["bad framing"] += 1
                await asyncio.sleep(0.001)

    async def _batches(self) -> None:
        """Send batches on a connection; in most cases the answers are read."""
        async with self._line(shaken_hands=True) as line:
            if self._chance.random() < 0.1:
                line.transport.pause_reading()
            for _ in range(self._chance.randint(1, FUZZED_BATCHES_MAX)):
                batch = self._mint.batch()
                await line.write(
                    b"".join(
                        framed(frame, number < len(batch) - 1) for number, frame in enumerate(batch)
                    )
                )
                self.frames["batches"] += len(batch)
                if line.gone.is_set():
                    return
            if self._chance.random() < 0.2:
                await line.write(framed(bytes(1000), True)[: self._chance.randint(1, 1000)])
                self.frames["cut off"] += 1

    async def _slow(self) -> None:
        async with self._line() as line:
            for byte in greeting() + FUZZ_READY:
                await line.write(bytes([byte]))
                await asyncio.sleep(0)
            await asyncio.wait_for(line.met.wait(), FUZZ_CONNECT_S)
            for byte in framed(self._mint.batch()[0], False):
                await line.write(bytes([byte]))
                await asyncio.sleep(0)
            self.frames["byte by byte"] += 3

    async def _endless(self) -> None:
        async with self._line(shaken_hands=True) as line:
            frame = framed(self._chance.randbytes(ENDLESS_FRAME_BYTES), True)
            for _ in range(self._chance.randint(1, ENDLESS_FRAMES_MAX)):
                await line.write(frame)
                self.frames["a batch without an end"] += 1
                if line.gone.is_set():
                    return

    async def _half_open(self) -> None:
        async with self._line() as line:
            opening = greeting(self._mechanism) + FUZZ_READY
            await line.write(opening[: self._chance.randrange(len(opening))])
            self.frames["half open"] += 1
            until_cut = self._chance.random() < 0.02
            for _ in range(600 if until_cut else 1):
                await asyncio.sleep(HALF_OPEN_S / 10)
                if line.gone.is_set():
                    return

    async def _crowd(self) -> None:
        async def one() -> None:
            async with self._line(shaken_hands=self._chance.random() < 0.5):
                self.frames["a crowd"] += 1
                await asyncio.sleep(0.05)

        await asyncio.gather(*(one() for _ in range(CROWD_CONNECTIONS)))
