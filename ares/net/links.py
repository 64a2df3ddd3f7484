"""The setup of TCP connections, common to both implementations, and a client's links to servers.

TCP notices a dead peer (keepalive when idle, retransmission timeout when not), not ZMTP heartbeats:
heartbeats count whole frames as signs of life, hence a large element on a slow link would time out,
be sent again, and never arrive.

A server that refuses this client's key, or has keys where the client has none or the reverse, is
left alone for a while. During this time the client receives a refusal in the server's name: a
Refused of call 0. Afterwards a link is made again: keys are authorised, and cluster files mended,
while programs run. All of this is learned in the handshake, where the peer has proved no identity;
the refusal is therefore reported as the words of the process at that address.

Any other obstacle (no listener, an unknown host, a peer that hangs up) may be over soon: the link
is tried again, and the obstacle is reported only where an operation got no answer in time.
"""

import errno
import logging
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial

from ares.cluster.addresses import split_address
from ares.model.codec import Frame
from ares.model.errors import BadInput
from ares.model.identity import VALUE_BYTES_MAX, CallId, ServerId
from ares.model.messages import AnyMessage, Reason, Refused
from ares.net.batching import BatchConnections, Deliver, PeerQueue
from ares.security.keys import SecretKey, is_key, without_key

RECONNECT_S_MIN = 0.05
RECONNECT_S_MAX = 1.0
CONNECT_TIMEOUT_MS = 2_000
HANDSHAKE_TIMEOUT_MS = 5_000
SILENCE_MS_MAX = 10_000
"""Longest time of unacknowledged sent bytes before the connection is given up."""

KEEPALIVE_IDLE_S = 5
KEEPALIVE_INTERVAL_S = 2
KEEPALIVE_PROBES = 3
LISTEN_BACKLOG = 1024
CLOSE_S_MAX = 1.0
CLOSE_GRACE_S = 0.05
"""Pause between a server's last replies and the end of its connections, in seconds.

A client on libzmq drops received but unread replies when the server hangs up.
"""

BARRED_S = 1.0
"""Seconds for which a server that refused the key is left alone."""

UNKNOWN_KEY = (
    "the process that answers there says that it does not know this client's key (any more), and "
    "does not prove to be the server; `ares-cli keys list`, where keys are managed, lists the "
    "keys that the cluster knows"
)
CONNECTION_REFUSED = "connection refused: is it running?"
NO_ROUTE = "no route to its machine"
NOTHING_ANSWERS = (
    "nothing answers at its address: is the machine up, and does no firewall drop connections?"
)
SILENT_PEER = "it takes connections and says nothing: does it hang?"
HUNG_UP = (
    "it hung up during the handshake: it is ending, or has too many connections: its log tells"
)
WRONG_KEY = (
    "it hung up during the handshake: it is ending, has too many connections, or another key than "
    "the cluster file says: its log tells"
)
NO_SERVER = "the process that answers there does not speak CURVE, or speaks another version of it"
NEEDS_KEYS = (
    "the process that answers there asks clients for keys, and this cluster file has no keys: use "
    "the server's cluster file"
)
_ABOUT_THE_CLIENT = (UNKNOWN_KEY, NEEDS_KEYS)
"""Reasons why the peer refuses this client; all other reasons concern the peer."""

_log = logging.getLogger(__name__)


def cannot_listen(address: str, why: str | None) -> BadInput:
    return BadInput(
        f"cannot listen on {address!r}: {why}. Use an IPv4 address of this machine with a port "
        "that no other program has (127.0.0.1:0 takes a free one)"
    )


def tune(raw: socket.socket) -> None:
    """Let TCP notice a dead peer: by keepalive when idle, by the retransmission limit when not."""
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_MS_MAX)


class Link(ABC):
    """The connection to a server, with the messages that wait while the server takes none."""

    def __init__(self, connections: "LinkedConnections", server: ServerId) -> None:
        self._secret = connections._secret
        self._waiting = PeerQueue()
        self._deliver = partial(connections._receive, server)
        self._trouble = partial(connections._trouble, server)
        self._shut_out = partial(connections._shut_out, server)
        self._refuse = partial(connections._refuse, server)

    @abstractmethod
    def send(self, messages: Sequence[AnyMessage]) -> None:
        """Send messages as soon as the server takes them."""

    def send_frame(self, frame: Frame) -> bool:
        """Send a batch in a single frame, if the server takes it at once; return whether."""
        return False

    @abstractmethod
    def close(self) -> None:
        """Close the link at once; waiting messages are dropped."""


class LinkedConnections(BatchConnections):
    """The part of :class:`ares.net.port.Connections` common to all sockets.

    Addresses are IPv4 ``host:port``, with ``secret``, the key of this client, ``host:port/KEY``.
    ``value_bytes``: bytes of the largest value that a server may send.
    """

    def __init__(self, secret: SecretKey | None = None, value_bytes: int = VALUE_BYTES_MAX) -> None:
        super().__init__()
        self._secret = secret
        self.value_bytes = value_bytes

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
            host, port = split_address(place)
            if key and self._secret is None:
                raise BadInput("it wants to know clients by their keys, and none was given")
            if self._secret is not None and not is_key(key):
                raise BadInput(
                    "its public key is not known, and without the key the client cannot tell "
                    "whether it is the right server"
                )
            return self._linked(server, host, port, key)
        except BadInput as error:
            _log.error(
                "server %s cannot be reached at %r: %s; all messages for it are dropped",
                server,
                self._addresses[server],
                error,
            )
            self._trouble(server, str(error))
            return None

    @abstractmethod
    def _linked(self, server: ServerId, host: str, port: int, key: str) -> Link:
        """Return a link to the server at this place, which owns ``key``.

        ``key`` is empty for a server without keys. Raises :class:`BadInput`.
        """

    def _shut_out(self, server: ServerId, why: str) -> None:
        """Leave a server alone which refuses this client, or speaks another mechanism.

        An immediate second try would fail, too.
        """
        reason = Reason.NOT_AUTHORIZED if why in _ABOUT_THE_CLIENT else Reason.BAD_REQUEST
        refusal = Refused(CallId(0), reason, f"at {without_key(self._addresses[server])[0]}: {why}")
        link = self._links.get(server)
        if link is not None:
            link.close()
            del self._links[server]
            self._barred[server] = self._loop.time() + BARRED_S, refusal
        self._refuse(server, refusal)

    def _trouble(self, server: ServerId, why: str) -> None:
        """Record why no connection came about; an empty reason: a connection did."""
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
    """Describe for a person why connecting to ``host`` failed."""
    match error:
        case socket.gaierror() | UnicodeError():
            return (
                f"its host name {host!r} is not known here: "
                f"{getattr(error, 'strerror', None) or error}"
            )
        case ConnectionRefusedError():
            return CONNECTION_REFUSED
        case TimeoutError():
            return NOTHING_ANSWERS
        case OSError(errno=errno.EHOSTUNREACH | errno.ENETUNREACH):
            return NO_ROUTE
        case OSError(errno=int(code)):
            return f"no connection: {os.strerror(code)}"
    return f"no connection: {error}"
