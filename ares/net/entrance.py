"""The entrance of a server whose start reads a long journal: a word in place of service.

The event loop of a starting server reads the journal and can answer no client. A thread waits at
the server's own port, and ends each handshake with the reason, in the command ERROR of ZMTP, which
clients report as the trouble of the server ("starting: 43 % of its journal is read"). No message of
a client is ever read. With keys only a client with an authorised key hears the reason.

A client that does not name the property of :func:`understands_reasons` hears nothing: libzmq ends a
connection for ever after an ERROR, and tries again after a plain end.

The thread takes time and files which the start needs: at most ENTRANCE_CONNECTIONS_MAX connections
are open, and ENTRANCE_PAUSE_S passes after each. Further clients wait in the backlog of the port.
"""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

from ares.net.zmtp.connection import ConnectionEvents, ZmtpConnection, scratch
from ares.net.zmtp.frames import (
    GREETING_BYTES,
    ROUTER,
    Handshake,
    NotAdmitted,
    NotZmtp,
    error_command,
    parsed,
    understands_reasons,
)

ENTRANCE_CONNECTIONS_MAX = 32
"""Most open connections; the oldest is closed for one more."""

ENTRANCE_PAUSE_S = 0.005
"""Seconds between two connections."""

NO_FILE_PAUSE_S = 0.5
"""Seconds before the next connection after an error, such as too many open files."""

_log = logging.getLogger(__name__)

Admit = Callable[[Callable[[], str]], Handshake]
"""A function that makes the handshake with a client; its argument returns the client's host."""


class ReasonGiven(Handshake):
    """A server's handshake, ``inner``, that ends with ``reason`` in place of a connection."""

    def __init__(self, inner: Handshake, reason: Callable[[], str]) -> None:
        self.mechanism = inner.mechanism
        self._inner = inner
        self._reason = reason

    def opening(self) -> bytes:
        return self._inner.opening()[:GREETING_BYTES]  # else READY of a process without keys

    def hear(self, command: bytes) -> bytes:
        answer = self._inner.hear(command)
        if self._inner.properties is None:
            return answer
        reason = self._reason()
        if understands_reasons(parsed(self._inner.properties)):
            raise NotAdmitted(error_command(reason), reason)
        raise NotZmtp(reason)


class Entrance:
    """The connections of an entrance. ``reason``: called in the thread of :meth:`serve`."""

    def __init__(self, admit: Admit, reason: Callable[[], str]) -> None:
        self.connections: dict[ZmtpConnection, None] = {}
        self._admit = admit
        self._reason = reason
        self._scratch = scratch()
        self._serving: asyncio.Task[None] | None = None

    async def serve(self, raw: socket.socket) -> None:
        """Take connections from the listening socket until :meth:`end`, then close them."""
        self._serving = asyncio.current_task()
        with suppress(asyncio.CancelledError):
            while True:
                await self._take(raw)
        for connection in list(self.connections):
            connection.hang_up()
        await asyncio.sleep(0)  # the connections end

    def end(self) -> None:
        if self._serving is not None:
            self._serving.cancel()

    async def _take(self, raw: socket.socket) -> None:
        """Take a connection, and pause."""
        loop = asyncio.get_running_loop()
        try:
            taken, _ = await loop.sock_accept(raw)
            await loop.connect_accepted_socket(self._connection, taken)
            await asyncio.sleep(ENTRANCE_PAUSE_S)
        except OSError as error:
            _log.warning("a client could not be told of the start: %s", error)
            await asyncio.sleep(NO_FILE_PAUSE_S)

    def _connection(self) -> ZmtpConnection:
        inner = self._admit(lambda: connection.host)
        events = ConnectionEvents(self._made, _pass_over, _pass_over, self._lost)
        handshake = ReasonGiven(inner, self._reason)
        connection = ZmtpConnection(ROUTER, handshake, self._scratch, events)
        return connection

    def _made(self, connection: ZmtpConnection, raw: socket.socket) -> None:
        self.connections[connection] = None
        if len(self.connections) > ENTRANCE_CONNECTIONS_MAX:
            oldest = next(iter(self.connections))
            self._lost(oldest)
            oldest.hang_up()

    def _lost(self, connection: ZmtpConnection) -> None:
        self.connections.pop(connection, None)


def _pass_over(*_: object) -> None:
    """Do nothing: no handshake of an entrance is done."""


@contextmanager
def giving_reason(
    raw: socket.socket, admit: Admit, reason: Callable[[], str]
) -> Iterator[Entrance]:
    """Give clients at the listening socket ``reason()``, in a thread, while the block runs.

    The socket stays open: further clients wait in its backlog for the next user.
    """
    entrance, loop, own = Entrance(admit, reason), asyncio.SelectorEventLoop(), raw.dup()
    own.setblocking(False)

    begun = threading.Event()

    def serve() -> None:
        loop.call_soon(loop.call_soon, begun.set)  # once the entrance serves
        with closing(loop), own:
            loop.run_until_complete(entrance.serve(own))

    thread = threading.Thread(target=serve, name="entrance", daemon=True)
    thread.start()
    begun.wait()
    try:
        yield entrance
    finally:
        with suppress(RuntimeError):  # the thread has failed, and closed its loop
            loop.call_soon_threadsafe(entrance.end)
        thread.join()
