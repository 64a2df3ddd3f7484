"""A server's connections, counted and weighed from outside: libzmq neither limits how many there are nor what one of them may send unfinished.

libzmq bounds a frame, and how many batches wait in the queue of a connection, but not the frames of a batch: one that never ends is kept until memory
ends. And everybody may be in the middle of a large value at once. So this module asks the kernel how many bytes came over each connection (TCP_INFO),
takes off those of the batches that the server has got, and hangs up on whoever has most when all together have too many. It hears of connections from
libzmq's monitor, with their descriptors, which stay libzmq's: they are looked at and shut down here, never closed.
"""

import logging
import socket
import struct
from collections.abc import Callable, Hashable, Sequence

import zmq

from ares.cluster.tables import Limits
from ares.model.codec import Frame
from ares.net.zmq.zmq_sockets import Socket, ready

_EVENTS = zmq.Event.ACCEPTED | zmq.Event.DISCONNECTED
_EVENT = struct.Struct("=Hi")
_ENDPOINT = "inproc://connections"
_TCP_INFO_BYTES = 136
_BYTES_RECEIVED = struct.Struct("=Q")
_BYTES_RECEIVED_AT = 128
"""In struct tcp_info of linux/tcp.h: tcpi_bytes_received; and tcpi_bytes_acked, of what was sent."""

_BYTES_ACKED_AND_RECEIVED = struct.Struct("=QQ")
_BYTES_ACKED_AT = 120

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER: what the kernel holds for a connection that is shut down here goes with it, and so does the connection's port."""

SHORT_FRAME_BYTES = 255
SHORT_FRAME_HEAD = 2
LONG_FRAME_HEAD = 9
CURVE_FRAME_BYTES = 33
"""What ZMTP 3.1 adds to a frame, and CURVE to what is inside of it."""

STRANGER_BYTES_MAX = 4 * 1024
"""More than a client's side of the CURVE handshake takes. libzmq bounds a command of the handshake like any frame, by the largest value that there
is, and keeps what came of it for as long as a handshake may take: without this whoever has no key could fill the memory."""

ADMITTED_BYTES_MIN = 260
"""A server sends 64 bytes of greeting and 170 of WELCOME to everybody, 12 of ERROR to whom it refuses and 60 or more of READY to whom it lets in."""

_log = logging.getLogger(__name__)


class Connection:
    """One client's connection: ``taken`` bytes of it were in batches that the server got. ``sender`` is known after the first."""

    def __init__(self, descriptor: int) -> None:
        self.socket, self.peer = _borrowed(descriptor)
        self.sender: Hashable = None
        self.taken = 0
        self.cut = False

    def waiting_bytes(self) -> int:
        """What came over it and is in no batch that the server got; 0 if it is not there any more."""
        if self.socket is None:
            return 0
        try:
            info = self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        except OSError:
            return 0
        received: int = _BYTES_RECEIVED.unpack_from(info, _BYTES_RECEIVED_AT)[0] if len(info) == _TCP_INFO_BYTES else 0
        return received - self.taken

    def is_pushing(self) -> bool:
        """Whether it sends more than it takes to show a key, and has not shown one that is authorised."""
        if self.socket is None or self.sender is not None:
            return False
        try:
            info = self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        except OSError:
            return False
        if len(info) != _TCP_INFO_BYTES:
            return False
        acked, received = _BYTES_ACKED_AND_RECEIVED.unpack_from(info, _BYTES_ACKED_AT)
        return bool(received > STRANGER_BYTES_MAX and acked < ADMITTED_BYTES_MIN)

    def hang_up(self) -> None:
        """End it, unless its descriptor belongs to another by now: libzmq closed it, and its monitor did not tell yet."""
        self.cut = True
        try:
            if self.socket is not None and self.socket.getpeername() == self.peer:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # the other side was quicker

    def forget(self) -> None:
        if self.socket is not None:
            self.socket.detach()


def _borrowed(descriptor: int) -> tuple[socket.socket | None, object]:
    """A connection of libzmq's to look at, and who is at its other end; nothing if it is closed already, or another file has its descriptor."""
    try:
        borrowed = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, descriptor)
    except OSError:
        return None, None
    try:
        return borrowed, borrowed.getpeername()
    except OSError:
        borrowed.detach()
        return None, None


class Connections:
    """The connections to ``watched``, not yet bound. ``secured``: frames are encrypted. ``gone(sender)`` is called when a client has left.

    One more than ``limits.connections`` is hung up on at once, the newest; beyond ``limits.received_bytes``, see :meth:`weigh`.
    """

    def __init__(self, context: zmq.Context[Socket], watched: Socket, limits: Limits, secured: bool, gone: Callable[[Hashable], None]) -> None:
        self._watched = watched
        self._limits = limits
        self._secured = secured
        self._head_more = CURVE_FRAME_BYTES if secured else 0
        self._gone = gone
        self._by_descriptor: dict[int, Connection] = {}
        self._by_sender: dict[Hashable, Connection] = {}
        self.refused = 0
        self.cut = 0
        watched.monitor(_ENDPOINT, _EVENTS)
        self._monitor = context.socket(zmq.PAIR)
        self._monitor.setsockopt(zmq.LINGER, 0)
        self._monitor.setsockopt(zmq.RCVHWM, 0)  # libzmq would wait for us in its own thread, and nothing would be sent or received meanwhile
        self._monitor.connect(_ENDPOINT)

    def __len__(self) -> int:
        return len(self._by_descriptor)

    def __contains__(self, sender: Hashable) -> bool:
        return sender in self._by_sender

    def attend(self) -> None:
        """Hear who came and who left."""
        while ready(self._monitor, zmq.POLLIN):
            event, descriptor = _EVENT.unpack(self._monitor.recv_multipart()[0])
            self._forget(descriptor)
            if event == zmq.Event.ACCEPTED:
                connection = self._by_descriptor[descriptor] = Connection(descriptor)
                if len(self._by_descriptor) > self._limits.connections:
                    self._refuse(connection)

    def took(self, descriptor: int, sender: Hashable, frames: Sequence[Frame]) -> None:
        """The server got a batch."""
        connection = self._by_descriptor.get(descriptor)
        if connection is None or connection.sender != sender:
            self.attend()
            connection = self._by_descriptor.get(descriptor)
            if connection is None:
                return  # it has left since
            self._name(connection, sender)
        for frame in frames:
            inside = len(frame) + self._head_more
            connection.taken += inside + (SHORT_FRAME_HEAD if inside <= SHORT_FRAME_BYTES else LONG_FRAME_HEAD)

    def _name(self, connection: Connection, sender: Hashable) -> None:
        """If it had a name, that was of the one that had its descriptor before, of which a last batch was still there."""
        if connection.sender != sender:
            self._part(connection)
            connection.sender = sender
            connection.taken = 0
        self._by_sender[sender] = connection

    def _part(self, connection: Connection) -> None:
        if self._by_sender.get(connection.sender) is connection:
            del self._by_sender[connection.sender]
            self._gone(connection.sender)

    def senders(self) -> list[Hashable]:
        """The clients that batches came from."""
        return list(self._by_sender)

    def hang_up(self, sender: Hashable, why: str) -> None:
        """End the connection of a client that holds what others need, or has no business here any more."""
        connection = self._by_sender.get(sender)
        if connection is not None and not connection.cut:
            self._cut(connection, why)

    def waiting_bytes(self) -> int:
        """What came from all clients and is in no batch that the server got."""
        self.attend()
        return sum(connection.waiting_bytes() for connection in self._by_descriptor.values())

    def weigh(self) -> None:
        """Hang up on whoever sent most that the server has not got, until all together are within the bound."""
        self.attend()
        if self._secured:
            for connection in [each for each in self._by_descriptor.values() if not each.cut and each.is_pushing()]:
                self._cut(connection, "it sent more than a handshake takes and showed no key")
        weights = [(connection.waiting_bytes(), connection) for connection in self._by_descriptor.values() if not connection.cut]
        excess = sum(weight for weight, _ in weights) - self._limits.received_bytes
        for weight, connection in sorted(weights, key=lambda entry: entry[0], reverse=True):
            if excess <= 0:
                return
            self._cut(connection, f"{weight} bytes came of a batch that is not complete, or were not looked at yet, and all clients' are too many")
            excess -= weight

    def _cut(self, connection: Connection, why: str) -> None:
        self.cut += 1
        if self.cut.bit_count() == 1:
            _log.warning("hung up on a client (%d so far): %s", self.cut, why, extra={"peer": str(connection.peer)})
        connection.hang_up()

    def _refuse(self, connection: Connection) -> None:
        self.refused += 1
        if self.refused.bit_count() == 1:  # the 1st, 2nd, 4th, ...: attempts must not fill the log
            limit = self._limits.connections
            _log.warning("more than %d connections: refused (%d so far)", limit, self.refused, extra={"peer": str(connection.peer)})
        connection.hang_up()

    def _forget(self, descriptor: int) -> None:
        connection = self._by_descriptor.pop(descriptor, None)
        if connection is None:
            return
        connection.forget()
        self._part(connection)

    @property
    def monitor(self) -> Socket:
        return self._monitor

    def close(self) -> None:
        """Before the watched socket is closed; what the connections hold stays libzmq's."""
        self._watched.disable_monitor()
        self._monitor.close()
        for connection in self._by_descriptor.values():
            connection.forget()
        self._by_descriptor.clear()
        self._by_sender.clear()
