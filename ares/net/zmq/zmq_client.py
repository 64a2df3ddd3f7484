"""The client's side of the ZeroMQ transport: one DEALER socket for each server.

ZeroMQ itself queues nothing for a server that is not connected (IMMEDIATE); what it does not take waits here, bounded, and goes out when the server
takes messages again. A connection that broke is made again by ZeroMQ, ever slower up to once a second.

With a secret key, connections are CURVE, each to a server that owns the key in its address. A server that does not know this client's key hangs up
in the handshake, and ZeroMQ tries no more: ares/net/links.py does.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import zmq

from ares.model.errors import BadInput
from ares.model.identity import ServerId
from ares.model.messages import AnyMessage
from ares.net.batching import Deliver, Waiting, batches
from ares.net.links import Link, LinkedConnections
from ares.net.zmq.zmq_handshakes import Handshakes
from ares.net.zmq.zmq_sockets import CONNECT_TIMEOUT_MS, Socket, create_socket, endpoint, ready, receive, send

RECONNECT_MS_MIN = 50
RECONNECT_MS_MAX = 1_000
UNSENT_BATCHES_MAX = 8
"""What ZeroMQ holds for a server that is connected and slow: little, since only what waits here is bounded in bytes."""

DRAIN_BATCHES_MAX = 64
"""Batches taken from one server before the event loop has its turn."""


class ZmqConnections(LinkedConnections):
    """:class:`ares.net.port.Connections` over TCP; addresses are IPv4 ``host:port``, with ``secret`` ``host:port/KEY``."""

    def open(self, deliver: Deliver) -> None:
        super().open(deliver)
        self._context: zmq.Context[Socket] = zmq.Context()

    def _linked(self, server: ServerId, place: str, key: str) -> Link:
        socket = create_socket(self._context, zmq.DEALER)
        socket.setsockopt(zmq.SNDHWM, UNSENT_BATCHES_MAX)
        socket.setsockopt(zmq.IMMEDIATE, 1)
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS_MIN)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MS_MAX)
        socket.setsockopt(zmq.CONNECT_TIMEOUT, CONNECT_TIMEOUT_MS)
        handshakes = None
        if self._secret is not None:
            handshakes = Handshakes(socket, self._loop, self._secret, key, partial(self._shut_out, server), partial(self._trouble, server))
        try:
            socket.connect(endpoint(place))
        except zmq.ZMQError as error:
            if handshakes is not None:
                handshakes.close()
            socket.close()
            raise BadInput(error.strerror) from error
        return _Link(socket, self._loop, lambda frames: self._receive(server, frames), handshakes)

    async def close(self) -> None:
        if self._opened:
            await super().close()
            await asyncio.to_thread(self._context.term)


class _Link:
    """The connection to one server, and what waits while that server takes nothing."""

    def __init__(
        self, socket: Socket, loop: asyncio.AbstractEventLoop, deliver: Callable[[list[bytes]], None], handshakes: Handshakes | None
    ) -> None:
        self._socket = socket
        self._loop = loop
        self._deliver = deliver
        self._handshakes = handshakes
        self._waiting = Waiting()
        loop.add_reader(socket.fileno(), self._attend)

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
            frames = receive(self._socket)
            if frames is None:
                break
            self._deliver(frames)
        self._look_again()

    def _look_again(self) -> None:
        if ready(self._socket, zmq.POLLIN | (zmq.POLLOUT if self._waiting else 0)):
            self._loop.call_soon(self._attend)

    def close(self) -> None:
        self._loop.remove_reader(self._socket.fileno())
        if self._handshakes is not None:
            self._handshakes.close()
        self._socket.close()
