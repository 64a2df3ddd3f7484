"""A client's CURVE handshakes: its keys on the socket, and what becomes of the attempts to connect.

Nothing else tells a client that a server does not know its key: there is simply no connection. libzmq reports every handshake on a socket of its own.
"""

import asyncio
from collections.abc import Callable

import zmq
from zmq.utils.monitor import recv_monitor_message

from ares.net.links import NO_SERVER, UNKNOWN_KEY, WRONG_KEY
from ares.net.zmq.zmq_sockets import Socket, ready
from ares.security.keys import SecretKey

_EVENTS = zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.HANDSHAKE_FAILED_AUTH | zmq.Event.HANDSHAKE_FAILED_PROTOCOL | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL


class Handshakes:
    """Secures ``socket``, not yet connected, for a client with ``secret`` and a server that owns ``server_key`` (hex).

    ``shut_out(why)`` is called when the server refuses the key or cannot be understood, after which ZeroMQ tries no more; ``trouble(why)`` when a
    handshake came to nothing for another reason, and with nothing when one is done.
    """

    def __init__(
        self,
        socket: Socket,
        loop: asyncio.AbstractEventLoop,
        secret: SecretKey,
        server_key: str,
        shut_out: Callable[[str], None],
        trouble: Callable[[str], None],
    ) -> None:
        socket.setsockopt(zmq.CURVE_SERVERKEY, bytes.fromhex(server_key))
        socket.setsockopt(zmq.CURVE_PUBLICKEY, bytes.fromhex(secret.public))
        socket.setsockopt(zmq.CURVE_SECRETKEY, secret.secret)
        self._watched = socket
        self._loop = loop
        self._shut_out = shut_out
        self._trouble = trouble
        self._monitor: zmq.Socket[bytes] = socket.get_monitor_socket(_EVENTS)
        loop.add_reader(self._monitor.fileno(), self._attend)
        loop.call_soon(self._attend)  # the descriptor tells of nothing before it was looked once and found empty

    def _attend(self) -> None:
        while not self._monitor.closed and ready(self._monitor, zmq.POLLIN):
            self._look(recv_monitor_message(self._monitor)["event"])

    def _look(self, event: int) -> None:
        if event == zmq.Event.HANDSHAKE_SUCCEEDED:
            self._trouble("")
        elif event == zmq.Event.HANDSHAKE_FAILED_AUTH:
            self._shut_out(UNKNOWN_KEY)
        elif event == zmq.Event.HANDSHAKE_FAILED_PROTOCOL:
            self._shut_out(NO_SERVER)
        else:
            self._trouble(WRONG_KEY)

    def close(self) -> None:
        """Before the socket is closed; idempotent."""
        if not self._monitor.closed:
            self._loop.remove_reader(self._monitor.fileno())
            self._watched.disable_monitor()
            self._monitor.close()
