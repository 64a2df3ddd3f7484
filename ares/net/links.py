"""What both implementations have over TCP: how connections are set up, and a client's links to servers, or the reasons why there are none.

A dead peer is noticed by TCP (keepalive when idle, retransmission timeout when not), not by ZMTP heartbeats: those count whole frames as signs of
life, so a large element on a slow link would time out, be sent again, and never arrive.

A server that refuses this client's key, or has keys where the client has none or the other way round, is left alone for a while, during which this
client is told so in its name: a Refused of call 0. Then a link is made again: keys are authorised, and cluster files mended, while programs run.
All of that is said in the handshake, where nothing proves who says it; so it is told as what somebody says who answers there.

Whatever else is in the way (nothing listens, the host is not found, it hangs up) may be over soon: it is tried again, and told only where an
operation got no answer in time.
"""

import errno
import logging
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial

from ares.model.codec import Frame
from ares.model.errors import BadInput
from ares.model.identity import CallId, ServerId
from ares.model.messages import AnyMessage, Reason, Refused
from ares.net.batching import BatchConnections, Deliver, Waiting
from ares.security.keys import SecretKey, is_key, without_key

RECONNECT_S_MIN = 0.05
RECONNECT_S_MAX = 1.0
CONNECT_TIMEOUT_MS = 2_000
HANDSHAKE_TIMEOUT_MS = 5_000
SILENCE_MS_MAX = 10_000
"""How long sent bytes may stay unacknowledged before the connection is given up."""

KEEPALIVE_IDLE_S = 5
KEEPALIVE_INTERVAL_S = 2
KEEPALIVE_PROBES = 3
BACKLOG = 1024
PORT_MAX = 65_535
CLOSE_S_MAX = 1.0
CLOSE_GRACE_S = 0.05
"""Between a server's last replies and the end of its connections: a client on libzmq drops what it has and did not read when the server hangs up."""

BARRED_S = 1.0
"""How long a server that refused the key is left alone."""

UNKNOWN_KEY = (
    "what answers there says that it does not know this client's key (any more), and nothing proves that it is the server; "
    "`ares-cli keys list`, where keys are managed, tells whose the cluster knows"
)
REFUSED = "connection refused: is it running?"
FAR = "no route to its machine"
DEAF = "nothing answers at its address: is the machine up, and nothing in between that drops connections?"
MUTE = "it takes connections and says nothing: does it hang?"
HUNG_UP = (
    "it hung up during the handshake: it is ending, or has too many connections: its log tells"
)
WRONG_KEY = "it hung up during the handshake: it is ending, has too many connections, or another key than the cluster file says: its log tells"
NO_SERVER = "what answers there does not speak CURVE, or not this version of it"
NEEDS_KEYS = "what answers there knows clients by their keys, and there are none in this cluster file: use the one that the server has"
_ABOUT_THE_CLIENT = (UNKNOWN_KEY, NEEDS_KEYS)
"""Why who answers there does not want this client; everything else is about who answers."""

_log = logging.getLogger(__name__)


def divided_address(address: str) -> tuple[str, int]:
    """The host and port of ``host:port``. Raises :class:`BadInput`; libzmq itself would take port 99999 for 34463."""
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > PORT_MAX:
        raise BadInput(
            f"{address!r} is no address: expected an IPv4 host:port, such as 127.0.0.1:7000"
        )
    return host, int(port)


def cannot_listen(address: str, why: str | None) -> BadInput:
    return BadInput(
        f"cannot listen on {address!r}: {why}. Use an IPv4 address of this machine with a port that no other program has "
        "(127.0.0.1:0 takes a free one)"
    )


def tune(raw: socket.socket) -> None:
    """TCP is to notice a dead peer: keepalive when idle, the limit for retransmissions when not."""
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_MS_MAX)


class Link(ABC):
    """The connection to one server, and what waits while that server takes nothing."""

    def __init__(self, connections: "LinkedConnections", server: ServerId) -> None:
        self._secret = connections._secret
        self._waiting = Waiting()
        self._deliver = partial(connections._receive, server)
        self._trouble = partial(connections._trouble, server)
        self._shut_out = partial(connections._shut_out, server)

    @abstractmethod
    def send(self, messages: Sequence[AnyMessage]) -> None:
        """As soon as the server takes them."""

    def send_frame(self, frame: Frame) -> bool:
        """A batch in one frame, if the server takes it at once; whether it does."""
        return False

    @abstractmethod
    def close(self) -> None:
        """At once; what waits is dropped."""


class LinkedConnections(BatchConnections):
    """The part of :class:`ares.net.port.Connections` that is the same over sockets.

    Addresses are IPv4 ``host:port``, with ``secret``, the key of this client, ``host:port/KEY``.
    """

    def __init__(self, secret: SecretKey | None = None) -> None:
        super().__init__()
        self._secret = secret

    def open(self, deliver: Deliver) -> None:
        super().open(deliver)
        self._links: dict[ServerId, Link | None] = {}
        self._barred: dict[ServerId, tuple[float, Refused]] = {}

    def _send(self, server: ServerId, messages: Sequence[AnyMessage]) -> None:
        if self._barred and server in self._barred:
            until_s, refusal = self._barred[server]
            if self._loop.time() < until_s:
                self._loop.call_soon(self._refuse, server, refusal)
                return
            del self._barred[server]
        if server not in self._links:
            self._links[server] = self._link(server)
        link = self._links[server]
        if link is not None:
            link.send(messages)

    def post_frame(self, server: ServerId, frame: Frame) -> None:
        link = self._links.get(server) if self._opened else None
        if link is None or not link.send_frame(frame):
            super().post_frame(server, frame)

    def _link(self, server: ServerId) -> Link | None:
        place, key = without_key(self._addresses[server])
        try:
            host, port = divided_address(place)
            if key and self._secret is None:
                raise BadInput("it wants to know clients by their keys, and none was given")
            if self._secret is not None and not is_key(key):
                raise BadInput(
                    "its public key is not known, and without it nobody can tell whether it is the right server"
                )
            return self._linked(server, host, port, key)
        except BadInput as error:
            _log.error(
                "server %s cannot be reached at %r: %s; everything for it is dropped",
                server,
                self._addresses[server],
                error,
            )
            self._trouble(server, str(error))
            return None

    @abstractmethod
    def _linked(self, server: ServerId, host: str, port: int, key: str) -> Link:
        """A link to the server at this place, which owns ``key``; empty for one without keys. Raises :class:`BadInput`."""

    def _shut_out(self, server: ServerId, why: str) -> None:
        """The server does not want this client, or speaks another mechanism: it makes no sense to try again at once."""
        reason = Reason.NOT_AUTHORIZED if why in _ABOUT_THE_CLIENT else Reason.BAD_REQUEST
        refusal = Refused(CallId(0), reason, f"at {without_key(self._addresses[server])[0]}: {why}")
        link = self._links.get(server)
        if link is not None:
            link.close()
            del self._links[server]
            self._barred[server] = self._loop.time() + BARRED_S, refusal
        self._refuse(server, refusal)

    def _trouble(self, server: ServerId, why: str) -> None:
        """No connection has come about, and why; empty: one has."""
        if why:
            self.troubles[server] = why
        else:
            self.troubles.pop(server, None)

    def _refuse(self, server: ServerId, refusal: Refused) -> None:
        if self._opened:
            self._deliver(server, [refusal])

    async def close(self) -> None:
        if not self._opened:
            return
        self._opened = False
        for link in self._links.values():
            if link is not None:
                link.close()


def unreached(host: str, error: Exception) -> str:
    """Why connecting to ``host`` failed, for a person."""
    match error:
        case socket.gaierror() | UnicodeError():
            return f"its host name {host!r} is not known here: {getattr(error, 'strerror', None) or error}"
        case ConnectionRefusedError():
            return REFUSED
        case TimeoutError():
            return DEAF
        case OSError(errno=errno.EHOSTUNREACH | errno.ENETUNREACH):
            return FAR
        case OSError(errno=int(code)):
            return f"no connection: {os.strerror(code)}"
    return f"no connection: {error}"
