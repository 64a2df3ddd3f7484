"""The client's side of ZMTP on the event loop: one connection for each server, spoken to as a DEALER.

What a server does not take waits here, bounded, and goes out when the server takes messages again. A connection that broke is made again soon,
then ever slower up to once a second, as long as something waits for it.

With a secret key, connections are CURVE (ares/net/zmtp/curve.py), each to a server that owns the key in its address.
"""

import asyncio
import logging
import socket
from collections.abc import Sequence

from ares.model.codec import Frame
from ares.model.identity import ServerId
from ares.model.messages import AnyMessage
from ares.net.batching import Deliver, batches
from ares.net.links import (
    CONNECT_TIMEOUT_MS,
    HANDSHAKE_TIMEOUT_MS,
    HUNG_UP,
    MUTE,
    NEEDS_KEYS,
    NO_SERVER,
    RECONNECT_S_MAX,
    RECONNECT_S_MIN,
    UNKNOWN_KEY,
    WRONG_KEY,
    Link,
    LinkedConnections,
    tune,
    unreached,
)
from ares.net.zmtp.connection import ZmtpConnection, scratch
from ares.net.zmtp.curve import CurveClient
from ares.net.zmtp.frames import DEALER, Handshake, Null, TurnedAway, WrongMechanism, properties

_log = logging.getLogger(__name__)


class ZmtpConnections(LinkedConnections):
    """:class:`ares.net.port.Connections` over TCP; addresses are IPv4 ``host:port``, with ``secret`` ``host:port/KEY``."""

    def open(self, deliver: Deliver) -> None:
        super().open(deliver)
        self.scratch = scratch()

    def _linked(self, server: ServerId, host: str, port: int, key: str) -> Link:
        return _Link(self, server, host, port, key)


class _Link(Link):
    """Its connection is made when there is something to send."""

    def __init__(self, connections: ZmtpConnections, server: ServerId, host: str, port: int, key: str) -> None:
        super().__init__(connections, server)
        self._secret = connections.secret
        self._scratch = connections.scratch
        self._host = host
        self._port = port
        self._key = key
        self._loop = asyncio.get_running_loop()
        self._careful = False
        self._latest: ZmtpConnection | None = None
        self._met_or_lost = asyncio.Event()
        self._connecting: asyncio.Task[None] | None = None
        self._pause_s = RECONNECT_S_MIN
        self._closed = False

    def _candidate(self) -> ZmtpConnection:
        """A connection that is not there yet."""
        handshake: Handshake = Null(DEALER) if self._secret is None else CurveClient(self._secret, self._key, properties(DEALER))
        return ZmtpConnection(DEALER, handshake, self._scratch, self._met, self._receive, self._lost, self._made, self._flow, careful=self._careful)

    @property
    def _usable(self) -> ZmtpConnection | None:
        return self._latest if self._latest is not None and self._latest.ready else None

    def send(self, messages: Sequence[AnyMessage]) -> None:
        connection = self._latest
        if connection is None or not connection.ready or connection.slow or self._waiting.messages:
            self._waiting.admit(messages)
            if self._usable is None and self._connecting is None:
                self._connecting = self._loop.create_task(self._connect(0.0))
        else:
            self._transmit(connection, messages)

    def _transmit(self, connection: ZmtpConnection, messages: Sequence[AnyMessage]) -> None:
        taken = 0
        for count, frames in batches(messages):
            if connection.slow or not connection.send(frames):
                break
            taken += count
        if taken < len(messages):
            self._waiting.admit(messages[taken:])

    async def _connect(self, pause_s: float) -> None:
        """Until a handshake is done; how long the connection then lasts is another matter."""
        while not self._closed and self._waiting:
            await asyncio.sleep(pause_s)
            self._met_or_lost.clear()
            connection = self._latest = self._candidate()
            await self._reach(connection)
            if self._usable is not None:
                break
            pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, RECONNECT_S_MAX)
        self._connecting = None

    async def _reach(self, connection: ZmtpConnection) -> None:
        """Until its handshake is done, or has come to nothing."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_MS / 1000):
                await self._loop.create_connection(lambda: connection, self._host, self._port, family=socket.AF_INET)
        except (OSError, TimeoutError, UnicodeError) as error:
            connection.hang_up()
            self._trouble(unreached(self._host, error))
            return
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_MS / 1000):
                await self._met_or_lost.wait()
        except TimeoutError:
            self._latest = None  # that it ends now is our doing
            connection.hang_up()
            self._trouble(MUTE)

    def _made(self, connection: ZmtpConnection, raw: socket.socket) -> None:
        tune(raw)

    def _met(self, connection: ZmtpConnection) -> None:
        if connection is not self._latest or self._closed:
            connection.hang_up()
            return
        self._pause_s = RECONNECT_S_MIN
        self._careful = False
        self._trouble("")
        self._met_or_lost.set()
        self._flow()

    def _receive(self, connection: ZmtpConnection, batches: list[list[Frame]]) -> None:
        for frames in batches:
            self._deliver(frames)

    def _flow(self) -> None:
        connection = self._usable
        if connection is not None and self._waiting:
            self._transmit(connection, self._waiting.take())

    def _lost(self, connection: ZmtpConnection) -> None:
        """Also when it never came to a handshake."""
        if not connection.shaken:
            if connection is self._latest and not self._closed:
                self._judge(connection)
        elif connection.trouble is not None:
            _log.warning("hung up on a server at %s:%d: %s", self._host, self._port, connection.trouble)
        if connection is self._latest:
            self._met_or_lost.set()
            if self._waiting and not self._closed and self._connecting is None:
                self._connecting = self._loop.create_task(self._connect(self._pause_s))

    def _judge(self, connection: ZmtpConnection) -> None:
        """A handshake that came to nothing."""
        match connection.trouble:
            case WrongMechanism():
                self._shut_out(NEEDS_KEYS if self._secret is None else NO_SERVER)
            case TurnedAway(code="400") if self._secret is not None:
                self._shut_out(UNKNOWN_KEY)
            case None:
                self._careful = True  # it may want another mechanism, and libzmq says which only to who waits for that
                self._trouble(HUNG_UP if self._secret is None else WRONG_KEY)
            case TurnedAway() as refused:
                self._trouble(str(refused))
            case trouble:
                self._trouble(f"what answers there is no server that can be understood: {trouble}")

    def close(self) -> None:
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._usable is not None:
            self._usable.close()
        elif self._latest is not None:
            self._latest.hang_up()
