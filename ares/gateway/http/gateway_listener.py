"""The listener of a gateway's process: sockets, connections, and their end."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Container, Sequence
from functools import partial

from ares.gateway.http.gateway_limits import (
    HTTP_READ_BYTES,
    LINGER_S,
    TLS_HANDSHAKE_S,
    GatewayLimits,
)
from ares.gateway.http.s3_connection import (
    RequestRefused,
    S3Connection,
    Serve,
    rendered_refusal,
)
from ares.gateway.http.tls_files import TlsFiles
from ares.gateway.s3.s3_errors import S3Code
from ares.metrics import GatewayTraffic
from ares.platform import tasks

ACCEPT_PAUSE_S = 0.2
"""Pause after a connection could not be taken: descriptors or memory ran out."""

_log = logging.getLogger(__name__)

_TOO_MANY = rendered_refusal(
    RequestRefused(S3Code.SlowDown, "Too busy: too many connections. Nothing was done.")
)


class GatewayListener:
    """The connections of a process, and the sockets from which they come.

    ``serve``: answers a request. ``tls``: None for HTTP without TLS.
    """

    def __init__(
        self,
        serve: Serve,
        limits: GatewayLimits,
        traffic: GatewayTraffic,
        tls: TlsFiles | None = None,
    ) -> None:
        self.serve = serve
        self.traffic = traffic
        self.read_buffer = memoryview(bytearray(HTTP_READ_BYTES))
        self._limits = limits
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._opening = 0
        """Connections in their TLS handshake."""
        self._open: set[S3Connection] = set()
        self._idle: dict[S3Connection, None] = {}
        """Connections without a request, the oldest first."""
        self._headless: dict[object, Callable[[], object]] = {}
        """The ways to cut connections in a handshake or within a head, the oldest first."""
        self._of_address: dict[str, set[object]] = {}
        """Connections and handshakes, by the addresses of their peers."""
        self._accepting: list[asyncio.Task[None]] = []
        self._all_closed = asyncio.Event()

    @property
    def connections(self) -> int:
        return len(self._open) + self._opening

    def start(self, sockets: Sequence[socket.socket]) -> None:
        """Accept connections from the listening ``sockets``."""
        for listening in sockets:
            listening.setblocking(False)
            self._accepting.append(
                tasks.keep(partial(self._accept, listening), "accepting of connections")
            )

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                taken, (address, *_) = await self._loop.sock_accept(listening)
            except OSError as error:
                _log.warning("no connection can be taken now: %s", error.strerror)
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._has_room(address):
                self._opening += 1
                self._of_address.setdefault(address, set()).add(taken)
                begun = tasks.begin(self._connect(taken), "beginning of a connection")
                self._headless[taken] = begun.cancel
                begun.add_done_callback(partial(self._begun, taken, address))
            else:
                self._refuse(taken)
            await asyncio.sleep(0)  # asyncio's loop takes all waiting connections in a turn

    def _has_room(self, address: str) -> bool:
        """Make room for a connection, if need be in place of the oldest without a request.

        An address with its share of connections makes room among its own.
        """
        own = self._of_address.get(address, set())
        if len(own) >= self._limits.address_connections:
            return self._makes_room(own)
        return self.connections < self._limits.connections or self._makes_room(None)

    def _makes_room(self, among: Container[object] | None) -> bool:
        """Cut the oldest connection without a request, of ``among`` or, for None, of all.

        Idle connections go first, then handshakes and heads that are not whole: bytes that are no
        request keep no place.
        """
        for idle in self._idle:
            if among is None or idle in among:
                del self._idle[idle]
                idle.cut()
                return True
        for headless in self._headless:
            if among is None or headless in among:
                self._headless.pop(headless)()
                return True
        return False

    def _refuse(self, taken: socket.socket) -> None:
        self.traffic.count_refused(S3Code.SlowDown.name)
        with contextlib.closing(taken), contextlib.suppress(OSError):
            if self._tls is None:
                taken.setblocking(False)
                taken.send(_TOO_MANY)

    async def _connect(self, taken: socket.socket) -> None:
        """Begin a connection, with TLS after the handshake."""
        tls = None if self._tls is None else self._tls.context
        try:
            await self._loop.connect_accepted_socket(
                partial(S3Connection, self),
                taken,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else TLS_HANDSHAKE_S,
                ssl_shutdown_timeout=None if tls is None else LINGER_S,
            )
        except OSError as error:  # ssl.SSLError is one; a peer that went away
            self.traffic.count_refused("Handshake")
            _log.debug("a connection did not begin: %s", error)

    def _begun(self, taken: socket.socket, address: str, _: asyncio.Task[None]) -> None:
        """Take the end of a beginning, which may have been cut before its first step."""
        self._headless.pop(taken, None)
        self._opening -= 1
        self._leave(address, taken)

    def _leave(self, address: str, connection: object) -> None:
        """Take the end of a connection or of a handshake of an address."""
        if (own := self._of_address.get(address)) is not None:
            own.discard(connection)
            if not own:
                del self._of_address[address]

    # -- what connections tell ---------------------------------------------------------------------

    def opened(self, connection: S3Connection) -> None:
        """Take a connection that can send requests."""
        self._open.add(connection)
        self._of_address.setdefault(connection.client, set()).add(connection)

    def idle(self, connection: S3Connection) -> None:
        """Take the begin of a connection's time without a request."""
        self._idle[connection] = None

    def head_begun(self, connection: S3Connection) -> None:
        """Take the first byte of a request."""
        self._idle.pop(connection, None)
        self._headless[connection] = connection.cut

    def head_ended(self, connection: S3Connection) -> None:
        """Take the whole head of a request."""
        self._headless.pop(connection, None)

    def refused(self, code: S3Code) -> None:
        self.traffic.count_refused(code.name)

    def closed(self, connection: S3Connection) -> None:
        self._open.discard(connection)
        self._idle.pop(connection, None)
        self._headless.pop(connection, None)
        self._leave(connection.client, connection)
        if not self._open:
            self._all_closed.set()

    # -- the end -----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Accept nothing more, let the requests at work finish in bounded time; idempotent."""
        for accepting in self._accepting:
            accepting.cancel()
        for connection in list(self._open):
            connection.finish()
        self._all_closed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.end_s):
                while self._open:
                    await self._all_closed.wait()
        if self._open:
            _log.warning("%d requests were cut at the end", len(self._open))
        for connection in list(self._open):
            connection.cut()
