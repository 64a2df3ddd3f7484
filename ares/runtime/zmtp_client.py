"""The client's side of ZMTP on the event loop: one connection for each server, spoken to as a DEALER.

What a server does not take waits here, bounded, and goes out when the server takes messages again. A connection that broke is made again soon,
then ever slower up to once a second, as long as something waits for it.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from ares.codec import Frame
from ares.errors import BadInput
from ares.identity import ServerId
from ares.messages import AnyMessage
from ares.runtime.batching import BatchConnections, Deliver, Waiting, batches
from ares.runtime.keys import without_key
from ares.runtime.zmq_sockets import CONNECT_TIMEOUT_MS, endpoint
from ares.runtime.zmtp import DEALER
from ares.runtime.zmtp_connection import ZmtpConnection, scratch

RECONNECT_S_MIN = 0.05
RECONNECT_S_MAX = 1.0

_log = logging.getLogger(__name__)


class ZmtpConnections(BatchConnections):
    """:class:`ares.runtime.ports.Connections` over TCP; addresses are IPv4 ``host:port``. For servers without keys."""

    def open(self, deliver: Deliver) -> None:
        super().open(deliver)
        self._links: dict[ServerId, _Link | None] = {}
        self._scratch = scratch()

    def _flush(self) -> None:
        if self._opened:
            self._outgoing.send_each(self._send)

    def _send(self, server: ServerId, messages: list[AnyMessage]) -> None:
        if server not in self._links:
            self._links[server] = self._link(server)
        link = self._links[server]
        if link is not None:
            link.send(messages)

    def _link(self, server: ServerId) -> "_Link | None":
        place, key = without_key(self._addresses[server])
        try:
            endpoint(place)
            if key:
                raise BadInput("it wants to know clients by their keys, and none was given")
        except BadInput as error:
            _log.error("server %s cannot be reached at %r: %s; everything for it is dropped", server, self._addresses[server], error)
            return None
        host, _, port = place.rpartition(":")
        return _Link(host, int(port), self._loop, self._scratch, lambda frames: self._receive(server, frames))

    async def close(self) -> None:
        if not self._opened:
            return
        self._opened = False
        for link in self._links.values():
            if link is not None:
                link.close()


class _Link:
    """The connection to one server, made when there is something to send; and what waits while there is none, or the server takes nothing."""

    def __init__(self, host: str, port: int, loop: asyncio.AbstractEventLoop, scratch: memoryview, deliver: Callable[[list[Frame]], None]) -> None:
        self._host = host
        self._port = port
        self._loop = loop
        self._scratch = scratch
        self._deliver = deliver
        self._waiting = Waiting()
        self._connection: ZmtpConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._closed = False

    def send(self, messages: list[AnyMessage]) -> None:
        connection = self._connection
        if connection is None or connection.slow or self._waiting:
            self._waiting.admit(messages)
            if connection is None and self._connecting is None:
                self._connecting = self._loop.create_task(self._connect())
        else:
            self._transmit(connection, messages)

    def _transmit(self, connection: ZmtpConnection, messages: Sequence[AnyMessage]) -> None:
        taken = 0
        for count, frames in batches(messages):
            if connection.slow:
                break
            connection.send(frames)
            taken += count
        self._waiting.admit(messages[taken:])

    async def _connect(self) -> None:
        """Until a connection is made; how long it then lasts is another matter."""
        pause_s = RECONNECT_S_MIN
        while not self._closed and self._waiting:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_MS / 1000):
                    await self._loop.create_connection(self._made, self._host, self._port)
                return
            except (OSError, TimeoutError):
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, RECONNECT_S_MAX)
        self._connecting = None

    def _made(self) -> ZmtpConnection:
        return ZmtpConnection(DEALER, self._scratch, self._met, lambda _, frames: self._deliver(frames), self._lost, self._flow)

    def _met(self, connection: ZmtpConnection) -> None:
        self._connection, self._connecting = connection, None
        if self._closed:
            connection.hang_up()
        else:
            self._flow()

    def _flow(self) -> None:
        connection = self._connection
        if connection is not None and self._waiting:
            self._transmit(connection, self._waiting.take())

    def _lost(self, connection: ZmtpConnection) -> None:
        """Also when it never came to a handshake."""
        self._connection = self._connecting = None
        if self._waiting and not self._closed:
            self._connecting = self._loop.create_task(self._reconnect())

    async def _reconnect(self) -> None:
        await asyncio.sleep(RECONNECT_S_MIN)
        await self._connect()

    def close(self) -> None:
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.close()
