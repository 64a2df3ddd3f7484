"""The server's side of the transport over libzmq: one ROUTER socket for all clients.

ROUTER never blocks: replies for a client that left, or that has a thousand batches unread, are dropped. libzmq bounds a frame and the number of
batches in a queue; docs/limits.md says what is without a bound.
"""

import asyncio
import time
from collections.abc import Sequence

import zmq

from ares.cluster.tables import Limits
from ares.machine.metrics import Traffic
from ares.model.messages import AnyMessage
from ares.net.batching import TURN_S, BatchListener, batches
from ares.net.links import BACKLOG, CLOSE_GRACE_S, CLOSE_S_MAX, cannot_listen, divided_address
from ares.net.port import Handle, Sender
from ares.net.zmq.zmq_sockets import DRAIN_BATCHES_MAX, Socket, create_socket, ready, send, told
from ares.security.clients_file import KeyedSender
from ares.security.lock import Lock

RECEIVED_BATCHES_MAX = 8
"""What ZeroMQ takes in from one client before the server gets to it: then the client's own TCP stream stands still."""

_ZAP_VERSION, _ZAP_DOMAIN = b"1.0", b"ares"


class Authenticator:
    """Tells libzmq which keys may connect to ``secured``, not yet bound: CURVE, and ZAP (ZeroMQ RFC 27).

    libzmq asks it after a client has proved to have its key, hangs up on those that are refused, and says the key with every message of the others.
    Without an authenticator libzmq would let every key in, so that is asked for, too.
    """

    def __init__(self, context: zmq.Context[Socket], secured: Socket, loop: asyncio.AbstractEventLoop, lock: Lock) -> None:
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
        """Answer all that was asked; a handshake takes libzmq's thread ten times as long."""
        while not self._socket.closed and ready(self._socket, zmq.POLLIN):
            self._socket.send_multipart(self._answer(self._socket.recv_multipart()))

    def _answer(self, request: list[bytes]) -> list[bytes]:
        asked = request[1] if len(request) > 1 else b""
        if len(request) == 7 and request[0] == _ZAP_VERSION and request[2] == _ZAP_DOMAIN and request[5] == b"CURVE":
            key = request[6].hex()
            if self._lock.clients.admits(key, request[3].decode("ascii", "replace")):
                return [_ZAP_VERSION, asked, b"200", b"OK", key.encode(), b""]
        return [_ZAP_VERSION, asked, b"400", b"unknown key", b"", b""]

    def close(self) -> None:
        if not self._socket.closed:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()


class KeyedName(KeyedSender, bytes):
    """libzmq's name for a connection, and the key that was proved over it."""


class ZmqListener(BatchListener):
    """:class:`ares.net.port.Listener` over TCP at an IPv4 ``host:port``; port 0 takes a free one. ``lock``: for clients with keys.

    ``connections``: those that are there, by libzmq's numbers. Of ``limits`` only ``received_bytes`` is kept, and only for what stands in line.
    """

    def __init__(self, address: str, lock: Lock | None = None, limits: Limits | None = None, traffic: Traffic | None = None) -> None:
        super().__init__(traffic)
        self.connections: set[int] = set()
        self._wanted = address
        self._lock = lock
        self._limits = limits or Limits()
        self._draining_soon = False

    async def serve(self, handle: Handle) -> str:
        host, port = divided_address(self._wanted)
        loop = asyncio.get_running_loop()
        self._context: zmq.Context[Socket] = zmq.Context()
        self._socket = socket = create_socket(self._context, zmq.ROUTER)
        socket.setsockopt(zmq.BACKLOG, BACKLOG)
        socket.setsockopt(zmq.RCVHWM, RECEIVED_BATCHES_MAX)
        self._authenticator = None if self._lock is None else Authenticator(self._context, socket, loop, self._lock)
        self._context.setsockopt(zmq.RCVHWM, 0)  # or libzmq's thread would wait for us to hear the monitor, and send and receive nothing meanwhile
        self._monitor: Socket = socket.get_monitor_socket(zmq.Event.ACCEPTED | zmq.Event.DISCONNECTED)
        try:
            socket.bind(f"tcp://{host}:{port}")
        except zmq.ZMQError as error:
            self._close_sockets(0)
            self._context.term()
            raise cannot_listen(self._wanted, error.strerror) from error
        self._start(handle, socket.getsockopt_string(zmq.LAST_ENDPOINT).removeprefix("tcp://"))
        loop.add_reader(socket.fileno(), self._drain)
        loop.add_reader(self._monitor.fileno(), self._count)
        self._count()
        return self.address

    def _count(self) -> None:
        for event, number in told(self._monitor):
            (self.connections.add if event == zmq.Event.ACCEPTED else self.connections.discard)(number)

    def _drain(self) -> None:
        """One pass: take batches, have them handled, send the replies; for as long as a turn, or DRAIN_BATCHES_MAX of them."""
        self._draining_soon = False
        until_s = time.perf_counter() + TURN_S
        for _ in range(DRAIN_BATCHES_MAX if self._serving and not self._paused else 0):
            try:
                connection = self._socket.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                break
            sender = KeyedName(connection.bytes)
            if self._lock is not None:
                sender.key = str(connection.get("User-Id"))
            self._receive(sender, [self._socket.recv_multipart()])
            if self._paused or time.perf_counter() >= until_s:
                break
        self._look_again()

    def _go_on(self) -> None:
        super()._go_on()
        self._look_again()

    def _may_stand(self, bytes: int) -> bool:
        return self._standing_bytes + bytes <= self._limits.received_bytes

    def _look_again(self) -> None:
        """The descriptor tells of what comes, not of what is there already."""
        if not self._draining_soon and self._serving and ready(self._socket, zmq.POLLIN) and not self._paused:
            self._draining_soon = True
            self._loop.call_soon(self._drain)

    def reply(self, sender: Sender, messages: Sequence[AnyMessage]) -> None:
        super().reply(sender, messages)
        self._look_again()

    def _send(self, sender: Sender, messages: Sequence[AnyMessage]) -> None:
        assert isinstance(sender, bytes)
        for _, frames in batches(messages):
            self._traffic.sent_bytes += sum(map(len, frames))
            send(self._socket, [sender, *frames])

    async def close(self) -> None:
        if not self._serving:
            return
        self._serving = False
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_reader(self._monitor.fileno())
        await asyncio.sleep(CLOSE_GRACE_S)
        self._close_sockets(round(CLOSE_S_MAX * 1000))
        await asyncio.to_thread(self._context.term)

    def _close_sockets(self, linger_ms: int) -> None:
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=linger_ms)
        if self._authenticator is not None:
            self._authenticator.close()
