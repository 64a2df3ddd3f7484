"""The client's side of the transport over libzmq: one DEALER socket for each server.

ZeroMQ itself queues nothing for a server that is not connected (IMMEDIATE); what it does not take waits here, bounded, and goes out when the server
takes messages again. A connection that broke is made again by ZeroMQ, ever slower up to once a second.

With a secret key, connections are CURVE, and only libzmq's monitor tells what becomes of a handshake. A server that does not know this client's key
hangs up in it, and ZeroMQ tries no more: ares/net/links.py does.
"""

import asyncio
from collections.abc import Callable, Sequence

import zmq

from ares.model.errors import BadInput
from ares.model.identity import ServerId
from ares.model.messages import AnyMessage
from ares.net.batching import Deliver, Waiting, batches
from ares.net.links import CONNECT_TIMEOUT_MS, NO_SERVER, RECONNECT_S_MAX, RECONNECT_S_MIN, UNKNOWN_KEY, WRONG_KEY, Link, LinkedConnections
from ares.net.zmq.zmq_sockets import DRAIN_BATCHES_MAX, Socket, create_socket, ready, send, told

UNSENT_BATCHES_MAX = 8
"""What ZeroMQ holds for a server that is connected and slow: little, since only what waits here is bounded in bytes."""

_REFUSALS = {zmq.Event.HANDSHAKE_FAILED_AUTH: UNKNOWN_KEY, zmq.Event.HANDSHAKE_FAILED_PROTOCOL: NO_SERVER}
_HANDSHAKES = zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL | zmq.Event(sum(_REFUSALS))


class ZmqConnections(LinkedConnections):
    """:class:`ares.net.port.Connections` over TCP; addresses are IPv4 ``host:port``, with ``secret`` ``host:port/KEY``."""

    def open(self, deliver: Deliver) -> None:
        super().open(deliver)
        self._context: zmq.Context[Socket] = zmq.Context()

    def _linked(self, server: ServerId, host: str, port: int, key: str) -> Link:
        def shaken(event: int) -> None:
            if event in _REFUSALS:
                self._shut_out(server, _REFUSALS[zmq.Event(event)])
            else:
                self._trouble(server, "" if event == zmq.Event.HANDSHAKE_SUCCEEDED else WRONG_KEY)

        socket = create_socket(self._context, zmq.DEALER)
        socket.setsockopt(zmq.SNDHWM, UNSENT_BATCHES_MAX)
        socket.setsockopt(zmq.IMMEDIATE, 1)
        socket.setsockopt(zmq.RECONNECT_IVL, round(RECONNECT_S_MIN * 1000))
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, round(RECONNECT_S_MAX * 1000))
        socket.setsockopt(zmq.CONNECT_TIMEOUT, CONNECT_TIMEOUT_MS)
        if self._secret is not None:
            socket.setsockopt(zmq.CURVE_SERVERKEY, bytes.fromhex(key))
            socket.setsockopt(zmq.CURVE_PUBLICKEY, bytes.fromhex(self._secret.public))
            socket.setsockopt(zmq.CURVE_SECRETKEY, self._secret.secret)
        link = _Link(socket, self._loop, lambda frames: self._receive(server, frames), None if self._secret is None else shaken)
        try:
            socket.connect(f"tcp://{host}:{port}")
        except zmq.ZMQError as error:
            link.close()
            raise BadInput(error.strerror) from error
        return link

    async def close(self) -> None:
        if self._opened:
            await super().close()
            await asyncio.to_thread(self._context.term)


class _Link:
    """The connection to one server, and what waits while that server takes nothing. ``shaken``: takes the ends of handshakes, if they matter."""

    def __init__(
        self, socket: Socket, loop: asyncio.AbstractEventLoop, deliver: Callable[[list[bytes]], None], shaken: Callable[[int], None] | None
    ) -> None:
        self._socket = socket
        self._loop = loop
        self._deliver = deliver
        self._waiting = Waiting()
        loop.add_reader(socket.fileno(), self._attend)
        self._monitor: Socket | None = None
        if shaken is not None:
            self._monitor = socket.get_monitor_socket(_HANDSHAKES)
            loop.add_reader(self._monitor.fileno(), _listen, self._monitor, shaken)
            loop.call_soon(_listen, self._monitor, shaken)

    def send(self, messages: Sequence[AnyMessage]) -> None:
        if self._waiting:
            self._waiting.admit(messages)
            self._look_again()
        else:
            self._transmit(messages)

    def _transmit(self, messages: Sequence[AnyMessage]) -> None:
        taken = 0
        try:
            for count, frames in batches(messages):
                if not send(self._socket, frames):
                    break
                taken += count
            self._waiting.admit(messages[taken:])
        finally:
            self._look_again()

    def _attend(self) -> None:
        """Do what the socket is ready for, within measure."""
        if self._socket.closed:
            return
        if self._waiting and ready(self._socket, zmq.POLLOUT):
            self._transmit(self._waiting.take())
        for _ in range(DRAIN_BATCHES_MAX):
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            self._deliver(frames)
        self._look_again()

    def _look_again(self) -> None:
        if ready(self._socket, zmq.POLLIN | (zmq.POLLOUT if self._waiting else 0)):
            self._loop.call_soon(self._attend)

    def close(self) -> None:
        self._loop.remove_reader(self._socket.fileno())
        if self._monitor is not None:
            self._loop.remove_reader(self._monitor.fileno())
            self._socket.disable_monitor()
            self._monitor.close()
        self._socket.close()


def _listen(monitor: Socket, shaken: Callable[[int], None]) -> None:
    for event, _ in told(monitor):
        shaken(event)
