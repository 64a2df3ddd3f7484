"""Who may connect to a ZeroMQ socket: CURVE, and the authenticator that asks the list of authorised clients (ZAP, ZeroMQ RFC 27).

libzmq asks at an address within the process after a client has proved, by the CURVE handshake, that it has the key. It then hangs up on clients that
are refused, before anything of them reaches the server's socket. Without an authenticator libzmq would let every key in, so that is asked for, too
(ZAP_ENFORCE_DOMAIN). Of those let in, every message carries the key that was proved, as its user id.
"""

import asyncio

import zmq

from ares.net.zmq.zmq_sockets import Socket, ready
from ares.security.clients_file import KeyedSender
from ares.security.lock import Lock

_ENDPOINT = "inproc://zeromq.zap.01"
_VERSION = b"1.0"
_DOMAIN = b"ares"
_REQUEST_FRAMES = 7

ANSWERS_MAX = 64
"""Attempts to connect that are answered before the event loop has its turn."""


class Gate:
    """The authenticator of one context, on the event loop. Make it before the sockets that it is for are bound."""

    def __init__(self, context: zmq.Context[Socket], loop: asyncio.AbstractEventLoop, lock: Lock) -> None:
        self._loop = loop
        self._lock = lock
        self._socket = context.socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(_ENDPOINT)
        loop.add_reader(self._socket.fileno(), self._attend)

    def secure(self, socket: Socket) -> None:
        """Let only those in who are authorised."""
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self._lock.key.secret)
        socket.setsockopt(zmq.ZAP_DOMAIN, _DOMAIN)
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)

    def _attend(self) -> None:
        """Answer what was asked, within measure; the descriptor tells of a change only once."""
        if self._socket.closed:
            return
        for _ in range(ANSWERS_MAX):
            if not ready(self._socket, zmq.POLLIN):
                return
            self._socket.send_multipart(self._answer(self._socket.recv_multipart()))
        self._loop.call_soon(self._attend)

    def _answer(self, request: list[bytes]) -> list[bytes]:
        asked = request[1] if len(request) > 1 else b""
        if len(request) == _REQUEST_FRAMES and request[0] == _VERSION and request[2] == _DOMAIN and request[5] == b"CURVE":
            key = request[6].hex()
            if self._lock.clients.admits(key, request[3].decode("ascii", "replace")):
                return [_VERSION, asked, b"200", b"OK", key.encode(), b""]
        return [_VERSION, asked, b"400", b"unknown key", b"", b""]

    def close(self) -> None:
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()


class KeyedName(KeyedSender, bytes):
    """libzmq's name for a connection, and the key that was proved over it."""


def keyed_sender(connection: zmq.Frame) -> KeyedName:
    """Who is at the other end of a connection, as the first part of every message over it says."""
    sender = KeyedName(connection.bytes)
    sender.key = str(connection.get("User-Id"))
    return sender
