"""How this project sets up and writes to ZeroMQ sockets, on both sides.

Plain sockets are drained on the event loop through their descriptor: one await per message (``zmq.asyncio``) costs ten times as much. The descriptor
is edge-triggered: it tells that something changed, once, and a send may swallow that edge. So ``EVENTS`` is looked at after every send and drain.

A dead peer is noticed by TCP (keepalive when idle, retransmission timeout when not), not by ZMTP heartbeats: those count whole frames as
signs of life, so a large element on a slow link would time out, be sent again, and never arrive.
"""

from collections.abc import Sequence

import zmq

from ares.model.codec import FRAME_BYTES_MAX
from ares.model.errors import BadInput

ZERO_COPY_BYTES_MIN = 64 * 1024
"""Frames of this size and more are lent to ZeroMQ instead of copied; below, the bookkeeping costs more than the copy."""

HIGH_WATER_BATCHES = 1000
CONNECT_TIMEOUT_MS = 2_000
HANDSHAKE_TIMEOUT_MS = 5_000
SILENCE_MS_MAX = 10_000
"""How long sent bytes may stay unacknowledged before the connection is given up."""

KEEPALIVE_IDLE_S = 5
KEEPALIVE_INTERVAL_S = 2
KEEPALIVE_PROBES = 3
BACKLOG = 1024
PORT_MAX = 65_535

Socket = zmq.Socket[bytes]


def endpoint(address: str) -> str:
    """``host:port`` as ZeroMQ writes it. Raises :class:`BadInput`; ZeroMQ itself would take port 99999 for 34463."""
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > PORT_MAX:
        raise BadInput(f"{address!r} is no address: expected an IPv4 host:port, such as 127.0.0.1:7000")
    return f"tcp://{host}:{port}"


def create_socket(context: zmq.Context[Socket], kind: int) -> Socket:
    """A socket with everything that both sides have in common."""
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, HIGH_WATER_BATCHES)
    socket.setsockopt(zmq.RCVHWM, HIGH_WATER_BATCHES)
    socket.setsockopt(zmq.MAXMSGSIZE, FRAME_BYTES_MAX)
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_TIMEOUT_MS)
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
    socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, KEEPALIVE_IDLE_S)
    socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, KEEPALIVE_INTERVAL_S)
    socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, KEEPALIVE_PROBES)
    socket.setsockopt(zmq.TCP_MAXRT, SILENCE_MS_MAX)
    socket.copy_threshold = ZERO_COPY_BYTES_MIN
    return socket


def send(socket: Socket, frames: Sequence[bytes | zmq.Frame]) -> bool:
    """Hand one multipart message to ZeroMQ; False if it takes none at the moment, or (ROUTER) if the client that it is for has left."""
    try:
        socket.send_multipart(frames, zmq.NOBLOCK, copy=False)
    except zmq.ZMQError as error:
        if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
            raise
        return False
    return True


def receive(socket: Socket) -> list[bytes] | None:
    """The next multipart message, if there is one."""
    try:
        return socket.recv_multipart(zmq.NOBLOCK)
    except zmq.Again:
        return None


def receive_from(socket: Socket) -> tuple[zmq.Frame, list[bytes]] | None:
    """The next multipart message of a ROUTER, if there is one: the connection that it came over, and its parts."""
    try:
        connection = socket.recv(zmq.NOBLOCK, copy=False)
    except zmq.Again:
        return None
    return connection, socket.recv_multipart()


def descriptor_of(connection: zmq.Frame) -> int:
    """The descriptor of the connection that a message came over, whose first part this is; -1 if it had broken before ZeroMQ began to read."""
    try:
        descriptor = connection.get(zmq.SRCFD)
    except zmq.ZMQError:
        return -1
    assert isinstance(descriptor, int)
    return descriptor


def ready(socket: Socket, wanted: int) -> bool:
    """Whether the socket is ready for something of ``wanted`` (POLLIN, POLLOUT)."""
    events = socket.getsockopt(zmq.EVENTS)
    assert isinstance(events, int)
    return bool(events & wanted)
