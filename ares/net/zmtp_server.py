"""The server's side of ZMTP on the event loop: to its clients it is a ROUTER. A sender is its connection, which carries the client's key if clients
have keys: with a :class:`ares.security.clients_file.Lock` they are let in by them, and nothing of the others gets further than the handshake.

Nothing that a client does makes it hold more than the limits (docs/limits.md): connections beyond their number are hung up on, and so is whoever
holds most of what all may send unfinished, or leave unread, together. Replies for a client that left, or that leaves too many unread, are dropped:
it asks again.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence

from ares.cluster.tables import Limits
from ares.machine.metrics import Traffic
from ares.model.messages import AnyMessage
from ares.net.batching import WAITING_BYTES_MAX, BatchListener, batches
from ares.net.links import BACKLOG, CLOSE_GRACE_S, CLOSE_S_MAX, HANDSHAKE_TIMEOUT_MS, cannot_listen, divided_address, tune
from ares.net.port import Handle, Sender
from ares.net.zmtp.connection import ZmtpConnection, scratch
from ares.net.zmtp.curve import CurveServer
from ares.net.zmtp.frames import ROUTER, Handshake, NotAdmitted, Null, properties
from ares.security.clients_file import KeyedSender, Lock

ROLL_CALL_S = 2.0
"""How often clients that are connected are looked up in the list of those who may be."""

NEGLIGIBLE_BYTES = 4 * 1024
"""A batch of replies that is not larger, to a client that left nothing unread before, is not counted among what clients leave unread."""

_log = logging.getLogger(__name__)


class _ClientConnection(KeyedSender, ZmtpConnection):
    """The connection of one client; it is the sender of what comes over it."""


class ZmtpListener(BatchListener):
    """:class:`ares.net.port.Listener` over TCP at an IPv4 ``host:port``; port 0 takes a free one. ``lock``: for clients with keys.

    ``connections``: those that are there; ``refused``: connections beyond the limit; ``cut``: clients hung up on because of what they held, or
    because their keys were revoked.
    """

    def __init__(self, address: str, lock: Lock | None = None, limits: Limits | None = None, traffic: Traffic | None = None) -> None:
        super().__init__(traffic)
        self._lock = lock
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
        host, port = divided_address(self._wanted)
        try:
            self._server = await asyncio.get_running_loop().create_server(self._accept, host, port, family=socket.AF_INET, backlog=BACKLOG)
        except OSError as error:
            raise cannot_listen(self._wanted, error.strerror) from error
        bound_host, bound_port = self._server.sockets[0].getsockname()
        self._start(handle, f"{bound_host}:{bound_port}")
        if self._lock is not None:
            self._rolling = self._loop.call_later(ROLL_CALL_S, self._call_roll, self._lock)
        return self.address

    # -- connections ----------------------------------------------------------------------------------------------------

    def _accept(self) -> ZmtpConnection:
        def admits(key: str) -> bool:
            assert self._lock is not None, "only who has keys is asked about them"
            return self._lock.clients.admits(key, connection.host)

        handshake: Handshake = Null(ROUTER) if self._lock is None else CurveServer(self._lock.key, admits, properties(ROUTER))
        connection = _ClientConnection(ROUTER, handshake, self._scratch, self._met, self._receive, self._lost, holds=self._holds, made=self._made)
        return connection

    def _made(self, connection: ZmtpConnection, raw: socket.socket) -> None:
        tune(raw)
        self.connections[connection] = self._loop.call_later(HANDSHAKE_TIMEOUT_MS / 1000, _end_unless_met, connection)
        self._unmet[connection] = None
        if len(self.connections) > self._limits.connections:
            self._refuse_one(next(iter(self._unmet)))

    def _refuse_one(self, oldest: ZmtpConnection) -> None:
        """Of those whose handshakes are not done, the newest among them: or strangers who say nothing could keep everybody else out."""
        self.refused += 1
        if self.refused.bit_count() == 1:  # the 1st, 2nd, 4th, ...: attempts must not fill the log
            _log.warning("more than %d connections: refused (%d so far)", self._limits.connections, self.refused, extra={"peer": oldest.peer})
        self._forget(oldest)
        oldest.hang_up()

    def _met(self, connection: ZmtpConnection) -> None:
        self._unmet.pop(connection, None)
        if self._paused:
            connection.pause()

    def _stands(self, sender: Sender, more_bytes: int) -> None:
        assert isinstance(sender, ZmtpConnection)
        super()._stands(sender, more_bytes)
        if more_bytes > 0:
            sender.pause()
        self._holds(more_bytes)
        if more_bytes < 0 and not self._paused:
            sender.resume()

    def _weight(self, connection: ZmtpConnection) -> int:
        """What is held of what came from it."""
        line = self._lines.get(connection)
        return connection.held_bytes + (line.bytes if line is not None else 0)

    def _lost(self, connection: ZmtpConnection) -> None:
        self._forget(connection)
        self._give_up(connection)
        self._note_unread(connection, 0)
        if connection.trouble is not None and not isinstance(connection.trouble, NotAdmitted):
            self._strange += 1
            if self._strange.bit_count() == 1:
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
        """Somebody is in the middle of a message, or stands in line: hang up on whoever holds most until all together are within the bound."""
        self._held_bytes += more_bytes
        if self._held_bytes > self._limits.received_bytes:
            self._hang_up_beyond(self._limits.received_bytes, self._weight, "sent of messages that are not complete, or not answered")

    def _hang_up_beyond(self, most: int, weight: Callable[[ZmtpConnection], int], what: str) -> None:
        total = sum(map(weight, self.connections))
        while total > most and self.connections:
            heaviest = max(self.connections, key=weight)
            total -= weight(heaviest)
            self._cut(heaviest, f"{weight(heaviest)} bytes {what}, and all clients' together are too many")

    def _cut(self, connection: ZmtpConnection, why: str) -> None:
        self.cut += 1
        if self.cut.bit_count() == 1:
            _log.warning("hung up on a client (%d so far): %s", self.cut, why, extra={"peer": connection.peer})
        self._forget(connection)
        connection.hang_up()

    def _forget(self, connection: ZmtpConnection) -> None:
        """Also the timer, or many that came and went would be kept by theirs."""
        self._unmet.pop(connection, None)
        timer = self.connections.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def _call_roll(self, lock: Lock) -> None:
        """Hang up on those whose keys were revoked: their requests are refused anyway, and their connections take room."""
        self._rolling = self._loop.call_later(ROLL_CALL_S, self._call_roll, lock)
        for connection in lock.revoked(self.connections):
            self._cut(connection, "its key was revoked")

    # -- replies --------------------------------------------------------------------------------------------------------

    def _send(self, sender: Sender, messages: Sequence[AnyMessage]) -> None:
        assert isinstance(sender, ZmtpConnection)
        for _, frames in batches(messages):
            bytes = len(frames[0]) if len(frames) == 1 else sum(map(len, frames))
            unsent = sender.unsent_bytes
            if unsent == 0 or unsent + bytes <= WAITING_BYTES_MAX:  # one batch is always taken
                self._traffic.sent_bytes += bytes
                sender.send(frames)
                if unsent or bytes > NEGLIGIBLE_BYTES or sender in self._unread:
                    self._note_unread(sender, sender.unsent_bytes)

    def _note_unread(self, connection: ZmtpConnection, bytes: int) -> None:
        """What is known of ``connection``; of others it may be less by now, and is looked at when all together seem to be too much."""
        self._unread_bytes += bytes - self._unread.pop(connection, 0)
        if bytes:
            self._unread[connection] = bytes
        if self._unread_bytes > self._limits.unread_bytes:
            self._hang_up_beyond(self._limits.unread_bytes, lambda connection: connection.unsent_bytes, "left unread")
            self._unread = {connection: unsent for connection in self.connections if (unsent := connection.unsent_bytes)}
            self._unread_bytes = sum(self._unread.values())

    async def close(self) -> None:
        if not self._serving:
            return
        self._serving = False
        if self._lock is not None:
            self._rolling.cancel()
        self._server.close()
        await asyncio.sleep(CLOSE_GRACE_S)
        for connection in self.connections:
            connection.close()
        if self.connections:
            self._ended.clear()
            try:
                await asyncio.wait_for(self._ended.wait(), CLOSE_S_MAX)
            except TimeoutError:
                for connection in list(self.connections):
                    connection.hang_up()


def _end_unless_met(connection: ZmtpConnection) -> None:
    if not connection.ready:
        connection.hang_up()
