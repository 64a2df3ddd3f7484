"""Which of two implementations of ZeroMQ's protocol is used: our own, which is faster, or libzmq, whose CURVE more people have looked at.

They speak the same on the wire, and tests let each talk to the other, with keys and without. Why there are two, with figures: docs/transport.md.
libzmq is loaded only where it is used.
"""

from typing import TYPE_CHECKING

from ares.cluster.tables import Limits, TransportName
from ares.machine.metrics import Traffic
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
    traffic: Traffic | None = None,
    transport: TransportName = "native",
) -> "ZmqListener | ZmtpListener":
    """A listener at ``host:port``. ``lock``: for clients with keys. ``traffic``: where to count."""
    if transport == "native":
        return ZmtpListener(address, lock, limits, traffic)
    from ares.net.libzmq import ZmqListener

    return ZmqListener(address, lock, limits, traffic)


def connections(
    secret: SecretKey | None = None, transport: TransportName = "native", site: str = ""
) -> Connections:
    """Connections for a client. ``secret``: its key, if the cluster has keys. ``site``: where it is, which servers are told; libzmq tells nobody."""
    if transport == "native":
        return ZmtpConnections(secret, site)
    from ares.net.libzmq import ZmqConnections

    return ZmqConnections(secret)
