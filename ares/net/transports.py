"""The choice between two implementations of ZeroMQ's protocol.

Our own is faster; libzmq's CURVE has had more reviewers. Both speak the same on the wire, and tests
let each talk to the other, with keys and without. Reasons for two, with figures: docs/transport.md.
libzmq is loaded only where it is used.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from ares.cluster.tables import Limits, TransportName
from ares.metrics import ListenerTraffic
from ares.model.identity import VALUE_BYTES_MAX
from ares.net.native import ZmtpConnections, ZmtpListener
from ares.net.port import Connections
from ares.security.clients_file import Lock
from ares.security.keys import SecretKey

if TYPE_CHECKING:
    from ares.net.libzmq import ZmqListener


def listener_at(
    address: str,
    lock: Lock | None = None,
    limits: Limits | None = None,
    traffic: ListenerTraffic | None = None,
    transport: TransportName = "native",
    sockets: Path | None = None,
) -> "ZmqListener | ZmtpListener":
    """Return a listener at ``host:port``.

    ``lock``: for clients with keys. ``traffic``: the counters. ``sockets``: the directory for a
    Unix socket; libzmq makes none.
    """
    if transport == "native":
        return ZmtpListener(address, lock, limits, traffic, sockets)
    from ares.net.libzmq import ZmqListener

    return ZmqListener(address, lock, limits, traffic)


def connections(
    secret: SecretKey | None = None,
    transport: TransportName = "native",
    site: str = "",
    value_bytes: int = VALUE_BYTES_MAX,
    sockets: Path | None = None,
) -> Connections:
    """Return connections for a client.

    ``secret``: its key, if the cluster has keys. ``site``: the client's site, sent to servers;
    libzmq does not send it. ``value_bytes``: bytes of the largest value that a server may send.
    ``sockets``: the directory of Unix sockets; libzmq uses TCP only.
    """
    if transport == "native":
        return ZmtpConnections(secret, site, value_bytes, sockets)
    from ares.net.libzmq import ZmqConnections

    return ZmqConnections(secret, value_bytes)
