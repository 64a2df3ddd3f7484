"""The bench's clients of Redis: RESP over a separate connection for every client.

Answers drive the clients. The code is as light as Python allows: no futures, no tasks, no parser.
The bench sends three kinds of requests, and the request tells the kind of the answer. A general
parser (hiredis) would copy every large value once more and not help small ones. The next operation
is sent from the function that received the answer.
"""

import asyncio
from collections.abc import Sequence
from typing import cast

from ares.cluster.addresses import split_address
from experiments.bench.closed_loop import ClientLoop
from experiments.bench.store_clients import RedisStore

WAIT_MS = 10_000
"""Timeout of WAIT: a write without enough replicas by this time has failed."""

CRLF = b"\r\n"


class RedisConnection(asyncio.Protocol):
    """A client. ``wait`` is the number of replicas that must have a write.

    ``acknowledged`` is the number of replicas with the last write at the end of WAIT, or None
    without an answer.
    """

    def __init__(self, wait: int) -> None:
        self._wait = wait
        self._waiting = (
            b"*3\r\n$4\r\nWAIT\r\n$%d\r\n%d\r\n$%d\r\n%d\r\n"
            % (len(str(wait)), wait, len(str(WAIT_MS)), WAIT_MS)
            if wait
            else b""
        )
        self._lines = 2 if wait else 1
        self._parts: list[bytes] = []
        self._size = self._needed = 0
        self._reading = False
        self._loop: ClientLoop | None = None
        self.acknowledged: int | None = None
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport does not declare the type
        self.transport = cast(asyncio.Transport, transport)

    def go(self, loop: ClientLoop) -> None:
        """Begin with the first operation; ``over`` is done after the last."""
        self._loop = loop
        self.over = asyncio.get_running_loop().create_future()
        self._next()

    def data_received(self, data: bytes) -> None:
        if self._parts or self._needed:
            self._parts.append(data)
            self._size += len(data)
            if self._size < self._needed:
                return
            data = b"".join(self._parts)
        if self._reading:
            self._read(data)
        elif data.count(CRLF) < self._lines_of(data):
            self._parts, self._size, self._needed = [data], len(data), len(data) + 1
        else:
            self._written(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self._loop is not None and not self.over.done():
            self._loop.failed(f"the connection ended: {error}")
            self.over.set_result(None)

    def _next(self) -> None:
        assert self._loop is not None
        self._parts, self._size, self._needed = [], 0, 0
        asked = self._loop.ask()
        if asked is None:
            self.over.set_result(None)
            return
        if isinstance(asked, float):
            asyncio.get_running_loop().call_later(asked, self._next)
            return
        key, value = asked[0].encode(), asked[1]
        self.acknowledged = None
        self._reading = value is None
        if value is None:
            self.transport.write(b"*2\r\n$3\r\nGET\r\n$%d\r\n%b\r\n" % (len(key), key))
        else:
            self.transport.writelines((self._head(key, value), value, CRLF + self._waiting))

    def _lines_of(self, data: bytes) -> int:
        """Return the number of lines of an answer to a write that begins with `data`."""
        return self._lines

    def _head(self, key: bytes, value: bytes) -> bytes:
        """Return the bytes before the value of a write."""
        return b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n" % (len(key), key, len(value))

    def _read(self, data: bytes) -> None:
        assert self._loop is not None
        line = data.find(CRLF)
        if line >= 0 and data[:1] == b"$" and (length := int(data[1:line])) >= 0:
            begin = line + 2
            if len(data) < begin + length + 2:
                self._parts, self._size, self._needed = [data], len(data), begin + length + 2
                return
            self._loop.answered(data[begin : begin + length])
        elif line < 0:
            self._parts, self._size, self._needed = [data], len(data), len(data) + 1
            return
        elif data.startswith(b"$-1"):
            self._loop.answered(None)
        else:
            self._loop.failed(data[:line].decode(errors="replace"))
        self._next()

    def _written(self, data: bytes) -> None:
        assert self._loop is not None
        first, *rest = data.split(CRLF)
        self.acknowledged = int(rest[0][1:]) if self._wait and rest[0][:1] == b":" else None
        if first != b"+OK":
            self._loop.failed(first.decode(errors="replace"))
        elif self._wait and (self.acknowledged is None or self.acknowledged < self._wait):
            reply = self.acknowledged
            if reply is None:
                reply = rest[0].decode(errors="replace")
            self._loop.failed(f"WAIT {self._wait} ended with {reply}")
        else:
            self._loop.answered()
        self._next()


class RedisStreamConnection(RedisConnection):
    """A client that appends to a single stream, for all keys.

    The server answers with the name of the entry, in two lines, instead of OK.
    """

    def _lines_of(self, data: bytes) -> int:
        return self._lines + (data[:1] == b"$")

    def _head(self, key: bytes, value: bytes) -> bytes:
        return b"*5\r\n$4\r\nXADD\r\n$3\r\nlog\r\n$1\r\n*\r\n$1\r\ne\r\n$%d\r\n" % len(value)

    def _written(self, data: bytes) -> None:
        length, _, rest = data.partition(CRLF)
        super()._written(b"+OK" + rest[rest.find(CRLF) :] if length[:1] == b"$" else data)


class RedisConnections:
    """The connections of a generator."""

    def __init__(self, connections: Sequence[RedisConnection]) -> None:
        self._connections = connections

    async def run(self, loops: Sequence[ClientLoop]) -> None:
        for connection, loop in zip(self._connections, loops, strict=True):
            connection.go(loop)
        await asyncio.gather(*(connection.over for connection in self._connections))

    @property
    def acknowledged(self) -> int | None:
        """Return the number of replicas with the last write of the first connection."""
        return self._connections[0].acknowledged

    async def close(self) -> None:
        for connection in self._connections:
            connection.transport.close()


async def redis_clients(
    store: RedisStore, count: int, kind: type[RedisConnection] = RedisConnection
) -> RedisConnections:
    """Return ``count`` connections to the primary."""
    host, port = split_address(store.address)
    make = asyncio.get_running_loop().create_connection
    return RedisConnections(
        [(await make(lambda: kind(store.wait), host, port))[1] for _ in range(count)]
    )
