"""The transport that speaks ZMTP on the event loop itself.

A client is a DEALER, with a connection for each server; a server is a ROUTER. Messages not taken by
a server wait here, bounded, and leave when the server takes messages again. A broken connection is
made again soon, and ever slower up to once a second, as long as messages wait for it. With a secret
key, connections are CURVE (ares/net/zmtp/curve.py), each to a server that owns the key in its
address. Processes of one host meet at a Unix socket in place of TCP (ares/net/local_sockets.py).

On the server's side a sender is its connection, which carries the client's key if clients have
keys: with a :class:`ares.security.clients_file.Lock` clients are admitted by their keys, and no
byte of any other client gets further than the handshake. No client can make a server hold more than
the limits (docs/limits.md): connections beyond their number are closed. When the unfinished
messages, or the unread replies, of all clients exceed their bound, the connection which holds most
bytes is closed. Replies for a client that left, or leaves too many unread, are dropped: the client
asks again.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from ares.cluster.addresses import split_address
from ares.cluster.tables import Limits
from ares.metrics import ListenerTraffic
from ares.model.codec import Frame
from ares.model.element import too_large
from ares.model.identity import VALUE_BYTES_MAX, CallId, ServerId
from ares.model.messages import AnyMessage, PutAhead, PutData, Reason, Refused
from ares.model.units import MIB
from ares.net import links
from ares.net.batching import (
    DIRECT_BYTES_MAX,
    PEER_WAITING_BYTES_MAX,
    BatchListener,
    Deliver,
    batches,
    data_bytes,
    is_large,
)
from ares.net.entrance import Entrance, giving_reason
from ares.net.links import HANDSHAKE_TIMEOUT_MS, Link, LinkedConnections, tune
from ares.net.local_sockets import LocalSocket, connect_locally, listen_locally, socket_path
from ares.net.port import Handle, Sender
from ares.net.zmtp.connection import ConnectionEvents, ZmtpConnection, scratch
from ares.net.zmtp.curve import CurveClient, CurveServer
from ares.net.zmtp.frames import (
    DEALER,
    ROUTER,
    Handshake,
    NotAdmitted,
    NullHandshake,
    TurnedAway,
    WrongMechanism,
    properties,
)
from ares.platform import tasks
from ares.platform.json_logs import is_worth_a_line
from ares.security.clients_file import KeyedSender, Lock
from ares.security.keys import SecretKey

ROLL_CALL_S = 2.0
"""Seconds between two checks of connected clients against the list of authorised clients."""

NEGLIGIBLE_BYTES = 4 * 1024
"""Size of a batch of replies up to which it is not counted as unread, for a client without unread
bytes.
"""

LINK_UNSENT_BYTES = 1024 * 1024
"""Size of a client's unsent bytes, in the process and in the kernel, beyond which a server is slow.
"""

SLOW_LINK_UNSENT_BYTES = 64 * 1024
"""The same bound after a server stayed slow for SLOW_LINK_S: small requests wait behind fewer
bytes.

On a quick link this bound would cost a large write 1.6 times the processor time.
"""

SLOW_LINK_S = 0.05
"""Seconds after which a slow server counts as behind a slow link, until the connection ends.

A server at a Unix socket never does.
"""

PROGRESS_S = 0.25
"""Seconds between two checks whether a large reply is still arriving."""

_log = logging.getLogger(__name__)


class ZmtpConnections(LinkedConnections):
    """:class:`ares.net.port.Connections` over TCP, or the Unix sockets of servers on this host.

    Addresses are IPv4 ``host:port``, with ``secret`` ``host:port/KEY``. ``site``: the client's
    site, by its own word; empty: none. ``sockets``: the directory of Unix sockets; None: TCP only.
    """

    def __init__(
        self,
        secret: SecretKey | None = None,
        site: str = "",
        value_bytes: int = VALUE_BYTES_MAX,
        sockets: Path | None = None,
    ) -> None:
        super().__init__(secret, value_bytes)
        self.site = site
        self.sockets = sockets

    def open(self, deliver: Deliver) -> None:
        super().open(deliver)
        self.scratch = scratch()

    def _linked(self, server: ServerId, host: str, port: int, key: str) -> Link:
        return _ZmtpLink(self, server, host, port, key)

    def receiving(self, server: ServerId) -> bool:
        link = self._links.get(server)
        return isinstance(link, _ZmtpLink) and link.receiving()

    def sending(self, server: ServerId, call: CallId) -> bool:
        link = self._links.get(server)
        return isinstance(link, _ZmtpLink) and link.sending(call)


def _tune_link(connection: ZmtpConnection, raw: socket.socket) -> None:
    if connection.local:
        connection.silence_s = links.SILENCE_MS_MAX / 1000
    else:
        tune(raw)
    _bound_unsent(connection, raw, LINK_UNSENT_BYTES)


def _bound_unsent(connection: ZmtpConnection, raw: socket.socket, bound_bytes: int) -> None:
    """Bound the unsent bytes in process and kernel: a small request waits behind them.

    The kernel's buffer of a Unix socket is small.
    """
    if not connection.local:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, bound_bytes)
    connection.transport.set_write_buffer_limits(bound_bytes)


class _ZmtpLink(Link):
    """A link whose connection is made when a message is to be sent."""

    def __init__(
        self, connections: ZmtpConnections, server: ServerId, host: str, port: int, key: str
    ) -> None:
        super().__init__(connections, server)
        self._server = server
        self._connected_s = connections.connected_s
        self._over_sockets = connections.over_sockets
        sockets = connections.sockets
        self._socket_path = None if sockets is None else socket_path(sockets, host, port)
        self._scratch = connections.scratch
        self._site = connections.site
        self._value_bytes = connections.value_bytes
        self._host = host
        self._port = port
        self._key = key
        self._loop = asyncio.get_running_loop()
        self._careful = False
        self._latest: ZmtpConnection | None = None
        self._met_or_lost = asyncio.Event()
        self._connecting: asyncio.Task[None] | None = None
        self._pause_s = links.RECONNECT_S_MIN
        self._closed = False
        self._progress, self._receiving, self._looked_at = 0, False, 0.0
        self._leaving: dict[CallId, int] = {}
        self._slow_since = 0.0
        deliver = self._deliver

        def receive(_: ZmtpConnection, batches: list[list[Frame]]) -> None:
            for frames in batches:
                deliver(frames)

        self._receive = receive

    @property
    def _usable(self) -> ZmtpConnection | None:
        return self._latest if self._latest is not None and self._latest.ready else None

    def receiving(self) -> bool:
        """Return whether more of a reply came since the last check, PROGRESS_S ago or longer."""
        if self._loop.time() - self._looked_at >= PROGRESS_S:
            self._looked_at, before = self._loop.time(), self._progress
            self._progress = 0 if self._latest is None else self._latest.progress
            self._receiving = self._progress not in (0, before)
        return self._receiving

    def send(self, messages: Sequence[AnyMessage]) -> None:
        connection = self._latest
        if (
            connection is not None
            and connection.ready
            and not (connection.slow or self._waiting)
            and sum(map(data_bytes, messages)) <= DIRECT_BYTES_MAX
        ):
            self._transmit(connection, messages)
            return
        self._waiting.admit(messages)
        if self._usable is not None:
            self._flow()
        elif self._connecting is None:
            self._begin_connecting(0.0)

    def send_frame(self, frame: Frame) -> bool:
        connection = self._latest
        return (
            connection is not None
            and not connection.slow
            and not self._waiting.small
            and connection.send((frame,))
        )

    def _transmit(self, connection: ZmtpConnection, messages: Sequence[AnyMessage]) -> bool:
        """Send ``messages``; return whether the connection took all. The rest waits.

        An ending connection takes none: its loss, which comes next, begins another.
        """
        taken = 0
        for count, frames in batches(messages):
            if connection.slow or not connection.send(frames):
                break
            taken += count
        if taken < len(messages):
            self._waiting.give_back(messages[taken:])
        if connection.slow:
            self._slow_since = self._slow_since or self._loop.time()
            self._forget_arrived(connection)
            end, sent = connection.sent_bytes, messages[:taken]
            self._leaving.update((message.call, end) for message in sent if is_large(message))
        return taken == len(messages)

    def _begin_connecting(self, pause_s: float) -> None:
        self._connecting = tasks.begin(self._connect(pause_s), "connecting to a server")

    async def _connect(self, pause_s: float) -> None:
        """Connect until a handshake is done. After a failure the next message begins again."""
        try:
            await self._try_to_connect(pause_s)
        finally:
            self._connecting = None

    async def _try_to_connect(self, pause_s: float) -> None:
        """Connect until a handshake is done.

        A Unix socket that leads to no server is left for TCP, and tried again later. A server that
        hangs up without a word may have too many connections, and gets a pause.
        """
        over_tcp = False
        while not self._closed and self._waiting:
            await asyncio.sleep(pause_s)
            self._met_or_lost.clear()
            handshake: Handshake = (
                NullHandshake(DEALER, self._site)
                if self._secret is None
                else CurveClient(self._secret, self._key, properties(DEALER, self._site))
            )
            connection = self._latest = ZmtpConnection(
                DEALER,
                handshake,
                self._scratch,
                ConnectionEvents(_tune_link, self._met, self._receive, self._lost, self._flow),
                careful=self._careful,
                value_bytes=self._value_bytes,
            )
            await self._reach(connection, over_tcp)
            if self._usable is not None:
                break
            over_tcp = connection.local
            if over_tcp:
                pause_s = 0.0 if connection.trouble else links.RECONNECT_S_MIN
                continue
            pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, links.RECONNECT_S_MAX)

    async def _reach(self, connection: ZmtpConnection, over_tcp: bool) -> None:
        """Wait until the connection's handshake is done, or has failed."""
        try:
            async with asyncio.timeout(links.CONNECT_TIMEOUT_MS / 1000):
                await self._dial(connection, None if over_tcp else self._socket_path)
        except (OSError, TimeoutError, UnicodeError) as error:
            connection.hang_up()
            self._trouble(links.unreached(self._host, error))
            return
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_MS / 1000):
                await self._met_or_lost.wait()
        except TimeoutError:
            self._latest = None  # the end of this connection is our doing
            connection.hang_up()
            self._trouble(links.SILENT_PEER)

    async def _dial(self, connection: ZmtpConnection, path: Path | None) -> None:
        """Connect at the Unix socket ``path``, if the server listens there, or over TCP."""
        raw = None if path is None else connect_locally(path)
        if raw is None:
            await self._loop.create_connection(
                lambda: connection, self._host, self._port, family=socket.AF_INET
            )
            return
        try:
            await self._loop.create_unix_connection(lambda: connection, sock=raw)
        finally:
            if not isinstance(self._loop, asyncio.BaseEventLoop):
                raw.detach()  # uvloop closes the descriptor, after failures too; never close twice

    def _met(self, connection: ZmtpConnection) -> None:
        if connection is not self._latest or self._closed:
            connection.hang_up()
            return
        self._pause_s = links.RECONNECT_S_MIN
        self._careful = False
        self._connected_s[self._server] = time.perf_counter()
        if connection.local:
            self._over_sockets.add(self._server)
        else:
            self._over_sockets.discard(self._server)
        self._trouble("")
        self._met_or_lost.set()
        self._flow()

    def _flow(self) -> None:
        connection = self._usable
        if connection is None:
            return
        if self._slow_since and not connection.slow:
            raw = connection.transport.get_extra_info("socket")
            slow_s = self._loop.time() - self._slow_since
            if raw is not None and not connection.local and slow_s > SLOW_LINK_S:
                _bound_unsent(connection, raw, SLOW_LINK_UNSENT_BYTES)
            self._slow_since = 0.0
            if connection.local:
                self._leaving.clear()  # a Unix socket counts no bytes
        while self._waiting and not connection.slow:
            messages = self._waiting.take_next()
            if self._fits(connection, messages[0]) and not self._transmit(connection, messages):
                break

    def _fits(self, connection: ZmtpConnection, message: AnyMessage) -> bool:
        """Return whether the server takes a value so large; otherwise refuse in the server's name.

        The server would hang up. Such a message leaves the queue alone.
        """
        if (
            not isinstance(message, PutData | PutAhead)
            or (length := message.element.length) <= connection.peer_value_bytes
        ):
            return True
        why = too_large(length, connection.peer_value_bytes)
        refusal = Refused(message.call, Reason.BAD_ELEMENT, why)
        self._loop.call_soon(self._refuse, refusal)
        return False

    def sending(self, call: CallId) -> bool:
        """Return whether a large request waits here, or has not wholly arrived at the server."""
        if self._usable is not None:
            self._forget_arrived(self._usable)
        return call in self._leaving or any(
            message.call == call for message in self._waiting.large.values()
        )

    def _forget_arrived(self, connection: ZmtpConnection) -> None:
        if self._leaving:
            arrived = connection.arrived_bytes
            self._leaving = {call: end for call, end in self._leaving.items() if end > arrived}

    def _lost(self, connection: ZmtpConnection) -> None:
        """Handle the end of a connection, with or without a handshake."""
        if not connection.shaken:
            if connection is self._latest and not self._closed:
                self._judge(connection)
        elif connection.trouble is not None:
            _log.warning(
                "hung up on a server at %s:%d: %s", self._host, self._port, connection.trouble
            )
        if connection is self._latest:
            self._leaving.clear()
            self._slow_since = 0.0
            self._met_or_lost.set()
            if self._waiting and not self._closed and self._connecting is None:
                self._begin_connecting(self._pause_s)

    def _judge(self, connection: ZmtpConnection) -> None:
        """Report a failed handshake."""
        match connection.trouble:
            case TurnedAway(code="400") if self._secret is not None:
                self._shut_out(links.UNKNOWN_KEY)
            case _ if connection.local:
                pass  # TCP, which is tried next, tells
            case WrongMechanism():
                self._shut_out(links.NEEDS_KEYS if self._secret is None else links.NO_SERVER)
            case None:
                self._careful = True  # libzmq names its mechanism only to a peer that waits
                self._trouble(links.HUNG_UP if self._secret is None else links.WRONG_KEY)
            case TurnedAway() as refused:
                self._trouble(str(refused))
            case trouble:
                self._trouble(
                    "the process that answers there is not a server that this release "
                    f"understands: {trouble}"
                )

    def close(self) -> None:
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._usable is not None:
            self._usable.close()
        elif self._latest is not None:
            self._latest.hang_up()


class _ClientConnection(KeyedSender, ZmtpConnection):
    """The connection of a client, and the sender of its messages."""


class ZmtpListener(BatchListener):
    """:class:`ares.net.port.Listener` over TCP at an IPv4 ``host:port``; port 0 takes a free port.

    ``lock``: for clients with keys. ``sockets``: the directory for a Unix socket, too; its clients
    have the same bounds. ``connections``: the present connections; ``refused``:
    connections beyond the limit; ``cut``: clients disconnected because of the bytes they held, or
    because their keys were revoked.
    """

    def __init__(
        self,
        address: str,
        lock: Lock | None = None,
        limits: Limits | None = None,
        traffic: ListenerTraffic | None = None,
        sockets: Path | None = None,
    ) -> None:
        super().__init__(traffic)
        self._lock = lock
        self._sockets = sockets
        self._servers: list[asyncio.Server] = []
        self._raw: socket.socket | None = None
        self._local: LocalSocket | None = None
        self.refused = 0
        self.cut = 0
        self._wanted = address
        self._limits = limits or Limits()
        self.connections: dict[ZmtpConnection, asyncio.TimerHandle] = {}
        self._unmet: dict[ZmtpConnection, None] = {}
        self._scratch = scratch()
        self._ended = asyncio.Event()
        self._held_bytes = 0
        self._unread: dict[ZmtpConnection, int] = {}
        self._unread_bytes = 0
        self._strange = 0

    async def serve(self, handle: Handle) -> str:
        loop, backlog = asyncio.get_running_loop(), links.LISTEN_BACKLOG
        raw = self._bind()
        bound_host, bound_port = raw.getsockname()
        if self._sockets is not None:  # before any client is met over TCP
            host, _ = split_address(self._wanted, 0)
            self._local = listen_locally(socket_path(self._sockets, host, bound_port), backlog)
        self._start(handle, f"{bound_host}:{bound_port}")
        try:
            self._servers = [await loop.create_server(self._accept, sock=raw, backlog=backlog)]
            if (local := self._local) is not None:
                server = await loop.create_unix_server(
                    self._accept, sock=local.raw, backlog=backlog
                )
                self._servers.append(server)
        except BaseException:
            self._serving = False
            self._abandon()
            raise
        if self._lock is not None:
            roll = partial(self._call_roll, self._lock)
            self._rolling = tasks.every(ROLL_CALL_S, roll, "roll call of keys")
        return self.address

    def _bind(self) -> socket.socket:
        """Return the listening socket, whose clients wait until they are served."""
        if self._raw is None:
            try:
                self._raw = socket.create_server(
                    split_address(self._wanted, 0), backlog=links.LISTEN_BACKLOG
                )
            except OSError as error:
                raise links.cannot_listen(self._wanted, error.strerror) from error
        return self._raw

    def giving_reason(self, reason: Callable[[], str]) -> AbstractContextManager[Entrance]:
        """Give clients ``reason()`` in place of service while the block runs, before :meth:`serve`.

        See :mod:`ares.net.entrance`. Raises :class:`ares.BadInput` if the address cannot be bound.
        """
        return giving_reason(self._bind(), self._handshake, reason)

    def _abandon(self) -> None:
        """Close the sockets of a failed start: TCP, and the Unix socket with its file."""
        for server in self._servers:
            server.close()
        if self._raw is not None:
            self._raw.close()
        if self._local is not None:
            self._local.end()
            self._local = None

    # -- connections -------------------------------------------------------------------------------

    def _handshake(self, host: Callable[[], str]) -> Handshake:
        """Return the handshake with a client on this host."""
        lock, value_bytes = self._lock, self._limits.value_bytes
        if lock is None:
            return NullHandshake(ROUTER, value_bytes=value_bytes)
        return CurveServer(
            lock.key,
            lambda key: lock.clients.admits(key, host()),
            properties(ROUTER, value_bytes=value_bytes),
        )

    def _accept(self) -> ZmtpConnection:
        value_bytes = self._limits.value_bytes
        handshake = self._handshake(lambda: connection.host)
        events = ConnectionEvents(
            self._made,
            self._met,
            self._receive,
            self._lost,
            holds=self._holds,
            quick=self._served,
        )
        connection = _ClientConnection(
            ROUTER, handshake, self._scratch, events, value_bytes=value_bytes
        )
        return connection

    def _made(self, connection: ZmtpConnection, raw: socket.socket) -> None:
        if not connection.local:
            tune(raw)
        self.connections[connection] = self._loop.call_later(
            HANDSHAKE_TIMEOUT_MS / 1000, _end_unless_met, connection
        )
        self._unmet[connection] = None
        if len(self.connections) <= self._limits.connections:
            return
        # the newest is among them; otherwise silent strangers could keep all other clients out
        oldest = next(iter(self._unmet))
        self.refused += 1
        if is_worth_a_line(self.refused):
            _log.warning(
                "more than %d connections: refused (%d so far)",
                self._limits.connections,
                self.refused,
                extra={"peer": oldest.peer},
            )
        self._forget(oldest)
        oldest.hang_up()

    def _met(self, connection: ZmtpConnection) -> None:
        self._unmet.pop(connection, None)
        if self._paused:
            connection.pause()

    def _receive(self, sender: Sender, came: Sequence[Sequence[Frame]]) -> None:
        if self._lock is None or not self._served(sender, came):
            # without keys, the core saw it before it was taken apart
            super()._receive(sender, came)

    def _stands(self, sender: Sender, more_bytes: int) -> None:
        assert isinstance(sender, _ClientConnection)
        super()._stands(sender, more_bytes)
        if more_bytes > 0:
            sender.pause()
        self._holds(more_bytes)
        if more_bytes < 0 and not self._paused:
            sender.resume()

    def _weight(self, connection: ZmtpConnection) -> int:
        """Return the bytes held of this client's messages."""
        line = self._lines.get(connection)
        return connection.held_bytes + (line.bytes if line is not None else 0)

    def _lost(self, connection: ZmtpConnection) -> None:
        self._forget(connection)
        self._leave(connection)
        self._note_unread(connection, 0)
        if connection.trouble is not None and not isinstance(connection.trouble, NotAdmitted):
            self._strange += 1
            if is_worth_a_line(self._strange):
                _log.info("hung up on a peer (%d so far): %s", self._strange, connection.trouble)
        if not self.connections:
            self._ended.set()

    def pause(self) -> None:
        super().pause()
        for connection in self.connections:
            connection.pause()

    def _drain(self) -> None:
        if not self._paused:
            for connection in self.connections:
                if connection not in self._lines:
                    connection.resume()

    def _holds(self, more_bytes: int) -> None:
        """Count held bytes, of a message under way or a line; beyond the bound, close connections.

        Requests of clients that have left are dropped first. Then the connections which hold most
        are closed until the total is within the bound; among equals, to a MiB, the connection whose
        message lacks most.
        """
        self._held_bytes += more_bytes
        if more_bytes <= 0:
            return
        while self._held_bytes > self._limits.received_bytes and self._left:
            self._give_up(next(iter(self._left)))
        if self._held_bytes > self._limits.received_bytes:
            self._hang_up_beyond(
                self._limits.received_bytes,
                self._weight,
                "sent of messages that are not complete, or not answered",
                lambda held: (self._weight(held) // MIB, held.missing_bytes, self._weight(held)),
            )

    def _hang_up_beyond(
        self,
        most: int,
        weight: Callable[[ZmtpConnection], int],
        what: str,
        order: Callable[[ZmtpConnection], Any] | None = None,
    ) -> None:
        """Close the highest connections by ``order``, or by weight, until the sum is within most.

        A connection without any weight stays.
        """
        total = sum(map(weight, self.connections))
        while total > most and self.connections:
            heaviest = max(filter(weight, self.connections), key=order or weight)
            total -= weight(heaviest)
            self._cut(
                heaviest, f"{weight(heaviest)} bytes {what}, and all clients' together are too many"
            )

    def _cut(self, connection: ZmtpConnection, why: str) -> None:
        self.cut += 1
        if is_worth_a_line(self.cut):
            _log.warning(
                "hung up on a client (%d so far): %s",
                self.cut,
                why,
                extra={"peer": connection.peer},
            )
        self._forget(connection)
        self._give_up(connection)
        connection.hang_up()

    def _forget(self, connection: ZmtpConnection) -> None:
        """Forget a connection and its timer, which would keep a closed connection in memory."""
        self._unmet.pop(connection, None)
        timer = self.connections.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def _call_roll(self, lock: Lock) -> None:
        """Close the connections whose keys were revoked.

        Their requests are refused in any case, and their connections take room.
        """
        for connection in lock.revoked(self.connections):
            self._cut(connection, "its key was revoked")

    # -- replies -----------------------------------------------------------------------------------

    def _send_batch(self, sender: Sender, frames: Sequence[Frame]) -> None:
        assert isinstance(sender, _ClientConnection)
        bytes = len(frames[0]) if len(frames) == 1 else sum(map(len, frames))
        unsent = sender.unsent_bytes
        if unsent == 0 or unsent + bytes <= PEER_WAITING_BYTES_MAX:
            # a single batch is always taken
            self._traffic.sent_bytes += bytes
            sender.send(frames)
            if unsent or bytes > NEGLIGIBLE_BYTES or sender in self._unread:
                self._note_unread(sender, sender.unsent_bytes)

    def _note_unread(self, connection: ZmtpConnection, bytes: int) -> None:
        """Record the unread bytes of ``connection``.

        The numbers of other connections may have shrunk since; all are read again when their sum
        seems too large.
        """
        self._unread_bytes += bytes - self._unread.pop(connection, 0)
        if bytes:
            self._unread[connection] = bytes
        if self._unread_bytes > self._limits.unread_bytes:
            self._hang_up_beyond(
                self._limits.unread_bytes, lambda connection: connection.unsent_bytes, "left unread"
            )
            self._unread = {
                connection: unsent
                for connection in self.connections
                if (unsent := connection.unsent_bytes)
            }
            self._unread_bytes = sum(self._unread.values())

    async def close(self) -> None:
        if not self._serving:
            self._abandon()
            return
        self._serving = False
        if self._lock is not None:
            self._rolling.cancel()
        if self._local is not None:
            self._local.remove()
            self._local = None
        for server in self._servers:
            server.close()
        await asyncio.sleep(links.CLOSE_GRACE_S)
        for connection in self.connections:
            connection.close()
        if self.connections:
            self._ended.clear()
            try:
                await asyncio.wait_for(self._ended.wait(), links.CLOSE_S_MAX)
            except TimeoutError:
                for connection in list(self.connections):
                    connection.hang_up()


def _end_unless_met(connection: ZmtpConnection) -> None:
    if not connection.ready:
        connection.hang_up()
