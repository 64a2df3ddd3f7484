"""The transport over libzmq, for users who prefer its implementation.

A DEALER socket for each server, and a ROUTER socket for all clients. Plain sockets are drained on
the event loop through their descriptor: an await for each message (``zmq.asyncio``) costs ten times
as much. The descriptor is edge-triggered: it reports a change once, and a send may swallow the
report. ``EVENTS`` is therefore read after every send and drain.

ZeroMQ itself queues no message for a server without a connection (IMMEDIATE); messages not taken by
ZeroMQ wait here, bounded, and leave when the server takes messages again. ZeroMQ makes a broken
connection again, ever slower up to once a second.

With a secret key, connections are CURVE, and only libzmq's monitor reports the end of a handshake.
A server that does not know this client's key hangs up in the handshake, and ZeroMQ tries no more:
ares/net/links.py does.

ROUTER never blocks: replies for a client that left, or has a thousand unread batches, are dropped.
libzmq bounds a frame and the number of batches in a queue; docs/limits.md lists the parts without a
bound.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import cast

import zmq
from zmq.utils.monitor import recv_monitor_message

from ares.cluster.addresses import split_address
from ares.cluster.tables import Limits
from ares.metrics import ListenerTraffic
from ares.model.codec import VALUE_BYTES_MAX, Frame, Outgoing, frame_bytes_max
from ares.model.errors import BadInput
from ares.model.identity import ServerId
from ares.model.messages import AnyMessage
from ares.net import links
from ares.net.batching import (
    DIRECT_BYTES_MAX,
    TURN_S,
    BatchListener,
    Deliver,
    batches,
    data_bytes,
)
from ares.net.links import Link, LinkedConnections
from ares.net.port import Handle, Sender
from ares.security.clients_file import KeyedSender, Lock

DRAIN_BATCHES_MAX = 64
"""Batches taken from a socket before the event loop has its turn."""

DRAIN_FRAMES_MAX = 512
"""Frames taken likewise: a batch of many small frames is taken in several passes."""

UNSENT_BATCHES_MAX = 8
"""Batches held by ZeroMQ for a connected, slow server.

The number is small, because only the messages that wait here are bounded in bytes.
"""

RECEIVED_BATCHES_MAX = 8
"""Batches taken by ZeroMQ from a client before the server reads them.

Beyond that the client's own TCP stream stands still.
"""

VIEWED_BYTES_MIN = 64 * 1024
"""Size from which a frame is not copied out of libzmq's memory.

Frames below 8 KiB may share the memory of many frames, and would keep all of it.
"""

_ZAP_VERSION, _ZAP_DOMAIN = b"1.0", b"ares"
_REFUSALS = {
    zmq.Event.HANDSHAKE_FAILED_AUTH: links.UNKNOWN_KEY,
    zmq.Event.HANDSHAKE_FAILED_PROTOCOL: links.NO_SERVER,
}
_HANDSHAKES = (
    zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL | zmq.Event(sum(_REFUSALS))
)

Socket = zmq.Socket[bytes]


def create_socket(
    context: zmq.Context[Socket], kind: int, value_bytes: int = VALUE_BYTES_MAX
) -> Socket:
    """Create a socket with the options common to both sides.

    The socket queues 1,000 batches in either direction, libzmq's default. ``value_bytes``: bytes of
    the largest value that a peer may send.
    """
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, frame_bytes_max(value_bytes))
    socket.setsockopt(zmq.HANDSHAKE_IVL, links.HANDSHAKE_TIMEOUT_MS)
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
    socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, links.KEEPALIVE_IDLE_S)
    socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, links.KEEPALIVE_INTERVAL_S)
    socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, links.KEEPALIVE_PROBES)
    socket.setsockopt(zmq.TCP_MAXRT, links.SILENCE_MS_MAX)
    return socket


def send(socket: Socket, frames: Sequence[bytes]) -> bool:
    """Hand a multipart message to ZeroMQ; return False if it takes none at the moment."""
    try:
        socket.send_multipart(frames, zmq.NOBLOCK, copy=False)
        return True
    except zmq.Again:
        return False


def contents(batch: Sequence[zmq.Frame]) -> list[Frame]:
    """Return the frames of a received batch; large parts are views of libzmq's own memory.

    A copy of 512 MB takes the event loop 0.3 s of processor. Views serve as bytes wherever the
    parts of elements are used; a header is always bytes.
    """
    return [
        cast(Frame, frame.buffer.toreadonly())
        if number and len(frame) >= VIEWED_BYTES_MIN
        else frame.bytes
        for number, frame in enumerate(batch)
    ]


def ready(socket: Socket, wanted: int) -> bool:
    """Return whether the socket is ready for any of ``wanted`` (POLLIN, POLLOUT)."""
    return bool(int(socket.getsockopt(zmq.EVENTS)) & wanted)


def monitor_events(monitor: Socket) -> Iterator[tuple[int, int]]:
    """Yield the events of libzmq's monitor, with their values.

    The monitor's descriptor reports no event before it was read once and found empty.
    """
    while not monitor.closed and ready(monitor, zmq.POLLIN):
        message = recv_monitor_message(monitor)
        yield message["event"], message["value"]


class ZmqConnections(LinkedConnections):
    """:class:`ares.net.port.Connections` over TCP.

    Addresses are IPv4 ``host:port``, with ``secret`` ``host:port/KEY``.
    """

    def open(self, deliver: Deliver) -> None:
        super().open(deliver)
        self.context: zmq.Context[Socket] = zmq.Context()

    def _linked(self, server: ServerId, host: str, port: int, key: str) -> Link:
        link = _ZmqLink(self, server, key)
        try:
            link.socket.connect(f"tcp://{host}:{port}")
        except zmq.ZMQError as error:
            link.close()
            raise BadInput(error.strerror) from error
        return link

    async def close(self) -> None:
        if self._opened:
            await super().close()
            await asyncio.to_thread(self.context.term)


class _ZmqLink(Link):
    """A socket, not connected yet."""

    def __init__(self, connections: ZmqConnections, server: ServerId, key: str) -> None:
        super().__init__(connections, server)
        self._loop = asyncio.get_running_loop()
        self._monitor: Socket | None = None
        self.socket = socket = create_socket(
            connections.context, zmq.DEALER, connections.value_bytes
        )
        socket.setsockopt(zmq.SNDHWM, UNSENT_BATCHES_MAX)
        socket.setsockopt(zmq.IMMEDIATE, 1)
        socket.setsockopt(zmq.RECONNECT_IVL, round(links.RECONNECT_S_MIN * 1000))
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, round(links.RECONNECT_S_MAX * 1000))
        socket.setsockopt(zmq.CONNECT_TIMEOUT, links.CONNECT_TIMEOUT_MS)
        self._loop.add_reader(socket.fileno(), self._attend)
        if self._secret is not None:
            socket.setsockopt(zmq.CURVE_SERVERKEY, bytes.fromhex(key))
            socket.setsockopt(zmq.CURVE_PUBLICKEY, bytes.fromhex(self._secret.public))
            socket.setsockopt(zmq.CURVE_SECRETKEY, self._secret.secret)
            self._monitor = socket.get_monitor_socket(_HANDSHAKES)
            self._loop.add_reader(self._monitor.fileno(), self._listen, self._monitor)
            self._loop.call_soon(self._listen, self._monitor)

    def _listen(self, monitor: Socket) -> None:
        """Take the ends of handshakes."""
        for event, _ in monitor_events(monitor):
            if event in _REFUSALS:
                self._shut_out(_REFUSALS[zmq.Event(event)])
            else:
                self._trouble("" if event == zmq.Event.HANDSHAKE_SUCCEEDED else links.WRONG_KEY)

    def send(self, messages: Sequence[AnyMessage]) -> None:
        if self._waiting or sum(map(data_bytes, messages)) > DIRECT_BYTES_MAX:
            self._waiting.admit(messages)
            self._look_again()
        else:
            self._transmit(messages)

    def _transmit(self, messages: Sequence[AnyMessage]) -> None:
        taken = 0
        try:
            for count, frames in batches(messages):
                if not send(self.socket, frames):
                    break
                taken += count
            self._waiting.give_back(messages[taken:])
        finally:
            self._look_again()

    def _attend(self) -> None:
        """Do the work that the socket is ready for, within a bound."""
        if self.socket.closed:
            return
        while self._waiting and ready(self.socket, zmq.POLLOUT):
            self._transmit(self._waiting.take_next())
        for _ in range(DRAIN_BATCHES_MAX):
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                break
            self._deliver(contents(frames))
        self._look_again()

    def _look_again(self) -> None:
        if ready(self.socket, zmq.POLLIN | (zmq.POLLOUT if self._waiting else 0)):
            self._loop.call_soon(self._attend)

    def close(self) -> None:
        self._loop.remove_reader(self.socket.fileno())
        if self._monitor is not None:
            self._loop.remove_reader(self._monitor.fileno())
            self.socket.disable_monitor()
            self._monitor.close()
        self.socket.close()


class Authenticator:
    """The authority on keys for libzmq: CURVE, and ZAP (ZeroMQ RFC 27).

    ``secured``: the socket, not yet bound. libzmq asks the authenticator after a client has proved
    to have its key, hangs up on refused clients, and attaches the key to every message of admitted
    clients. Without an authenticator libzmq would admit every key; an option therefore enforces it.
    """

    def __init__(
        self,
        context: zmq.Context[Socket],
        secured: Socket,
        loop: asyncio.AbstractEventLoop,
        lock: Lock,
    ) -> None:
        self._loop = loop
        self._lock = lock
        self._socket = context.socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind("inproc://zeromq.zap.01")
        secured.setsockopt(zmq.CURVE_SERVER, 1)
        secured.setsockopt(zmq.CURVE_SECRETKEY, lock.key.secret)
        secured.setsockopt(zmq.ZAP_DOMAIN, _ZAP_DOMAIN)
        secured.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        loop.add_reader(self._socket.fileno(), self._attend)

    def _attend(self) -> None:
        """Answer all questions; a handshake takes libzmq's thread ten times as long."""
        while not self._socket.closed and ready(self._socket, zmq.POLLIN):
            self._socket.send_multipart(self._answer(self._socket.recv_multipart()))

    def _answer(self, request: list[bytes]) -> list[bytes]:
        asked = request[1] if len(request) > 1 else b""
        if (
            len(request) == 7
            and request[0] == _ZAP_VERSION
            and request[2] == _ZAP_DOMAIN
            and request[5] == b"CURVE"
        ):
            key = request[6].hex()
            if self._lock.clients.admits(key, request[3].decode("ascii", "replace")):
                return [_ZAP_VERSION, asked, b"200", b"OK", key.encode(), b""]
        return [_ZAP_VERSION, asked, b"400", b"unknown key", b"", b""]

    def close(self) -> None:
        if not self._socket.closed:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()


class KeyedName(KeyedSender, bytes):
    """libzmq's name for a connection, with the key proved over the connection."""


class ZmqListener(BatchListener):
    """:class:`ares.net.port.Listener` over TCP at an IPv4 ``host:port``; port 0 takes a free port.

    ``lock``: for clients with keys. ``connections``: the present connections, by libzmq's numbers.
    Of ``limits`` only ``value_bytes`` is kept, and ``received_bytes`` for requests in line.
    """

    def __init__(
        self,
        address: str,
        lock: Lock | None = None,
        limits: Limits | None = None,
        traffic: ListenerTraffic | None = None,
    ) -> None:
        super().__init__(traffic)
        self.connections: set[int] = set()
        self._wanted = address
        self._lock = lock
        self._limits = limits or Limits()
        self._draining_soon = False
        self._coming: list[zmq.Frame] = []

    async def serve(self, handle: Handle) -> str:
        host, port = split_address(self._wanted, 0)
        loop = asyncio.get_running_loop()
        self._context: zmq.Context[Socket] = zmq.Context()
        self._socket = socket = create_socket(self._context, zmq.ROUTER, self._limits.value_bytes)
        socket.setsockopt(zmq.BACKLOG, links.LISTEN_BACKLOG)
        socket.setsockopt(zmq.RCVHWM, RECEIVED_BATCHES_MAX)
        self._authenticator = (
            None if self._lock is None else Authenticator(self._context, socket, loop, self._lock)
        )
        self._context.setsockopt(
            zmq.RCVHWM, 0
        )  # or libzmq's thread would wait for the monitor's reader
        self._monitor: Socket = socket.get_monitor_socket(
            zmq.Event.ACCEPTED | zmq.Event.DISCONNECTED
        )
        try:
            socket.bind(f"tcp://{host}:{port}")
        except zmq.ZMQError as error:
            self._close_sockets(0)
            self._context.term()
            raise links.cannot_listen(self._wanted, error.strerror) from error
        self._start(handle, socket.getsockopt_string(zmq.LAST_ENDPOINT).removeprefix("tcp://"))
        loop.add_reader(socket.fileno(), self._drain)
        loop.add_reader(self._monitor.fileno(), self._count)
        self._count()
        return self.address

    def _count(self) -> None:
        for event, number in monitor_events(self._monitor):
            (self.connections.add if event == zmq.Event.ACCEPTED else self.connections.discard)(
                number
            )

    def _drain(self) -> None:
        """Make a pass: take frames, and handle complete batches.

        The pass lasts a turn, or DRAIN_BATCHES_MAX batches.
        """
        self._draining_soon = False
        until_s = time.perf_counter() + TURN_S
        batches = frames = 0
        while self._serving and not self._paused:
            try:
                frame = self._socket.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                break
            frames += 1
            self._coming.append(frame)
            if not frame.more:
                batches += 1
                self._take()
            if (
                batches == DRAIN_BATCHES_MAX
                or frames >= DRAIN_FRAMES_MAX
                or time.perf_counter() >= until_s
            ):
                break
        self._look_again()

    def _take(self) -> None:
        """Handle a batch which has come to its end."""
        [connection, *frames], self._coming = self._coming, []
        sender = KeyedName(connection.bytes)
        if self._lock is not None:
            sender.key = str(connection.get("User-Id"))
        came = [contents(frames)]
        if not self._served(sender, came):
            self._receive(sender, came)

    def _go_on(self) -> None:
        super()._go_on()
        self._look_again()

    def _may_stand(self, bytes: int) -> bool:
        return self._standing_bytes + bytes <= self._limits.received_bytes

    def _look_again(self) -> None:
        """Continue draining if frames are present: the descriptor reports only new frames."""
        if (
            not self._draining_soon
            and self._serving
            and ready(self._socket, zmq.POLLIN)
            and not self._paused
        ):
            self._draining_soon = True
            self._loop.call_soon(self._drain)

    def reply(self, sender: Sender, messages: Sequence[Outgoing]) -> None:
        super().reply(sender, messages)
        self._look_again()

    def _send_batch(self, sender: Sender, frames: Sequence[Frame]) -> None:
        assert isinstance(sender, bytes)
        self._traffic.sent_bytes += sum(map(len, frames))
        send(self._socket, [sender, *frames])

    async def close(self) -> None:
        if not self._serving:
            return
        self._serving = False
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_reader(self._monitor.fileno())
        await asyncio.sleep(links.CLOSE_GRACE_S)
        self._close_sockets(round(links.CLOSE_S_MAX * 1000))
        await asyncio.to_thread(self._context.term)

    def _close_sockets(self, linger_ms: int) -> None:
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=linger_ms)
        if self._authenticator is not None:
            self._authenticator.close()
