"""How ZeroMQ sockets are set up, read and written, on both sides.

Plain sockets are drained on the event loop through their descriptor: one await per message (``zmq.asyncio``) costs ten times as much. The descriptor
is edge-triggered: it tells that something changed, once, and a send may swallow that edge. So ``EVENTS`` is looked at after every send and drain.
"""

from collections.abc import Iterator, Sequence

import zmq
from zmq.utils.monitor import recv_monitor_message

from ares.model.codec import FRAME_BYTES_MAX
from ares.net.links import HANDSHAKE_TIMEOUT_MS, KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_PROBES, SILENCE_MS_MAX

DRAIN_BATCHES_MAX = 64  # taken from a socket before the event loop has its turn

Socket = zmq.Socket[bytes]


def create_socket(context: zmq.Context[Socket], kind: int) -> Socket:
    """A socket with everything that both sides have in common. It queues 1,000 batches in either direction, which is libzmq's default."""
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, FRAME_BYTES_MAX)
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_TIMEOUT_MS)
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
    socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, KEEPALIVE_IDLE_S)
    socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, KEEPALIVE_INTERVAL_S)
    socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, KEEPALIVE_PROBES)
    socket.setsockopt(zmq.TCP_MAXRT, SILENCE_MS_MAX)
    return socket


def send(socket: Socket, frames: Sequence[bytes]) -> bool:
    """Hand one multipart message to ZeroMQ; False if it takes none at the moment."""
    try:
        socket.send_multipart(frames, zmq.NOBLOCK, copy=False)
        return True
    except zmq.Again:
        return False


def ready(socket: Socket, wanted: int) -> bool:
    """Whether the socket is ready for something of ``wanted`` (POLLIN, POLLOUT)."""
    return bool(int(socket.getsockopt(zmq.EVENTS)) & wanted)


def told(monitor: Socket) -> Iterator[tuple[int, int]]:
    """What libzmq's monitor has to tell: events, and their values. Its descriptor tells of nothing before it was looked once and found empty."""
    while not monitor.closed and ready(monitor, zmq.POLLIN):
        message = recv_monitor_message(monitor)
        yield message["event"], message["value"]
