"""Which of two implementations of ZeroMQ's protocol is used: our own, which is faster, or libzmq, whose CURVE more people have looked at.

They speak the same on the wire, and tests let each talk to the other, with keys and without. Why there are two, with figures: docs/transport.md.
"""

from ares.runtime.cluster_tables import TransportName
from ares.runtime.keys import SecretKey
from ares.runtime.limits import Limits
from ares.runtime.lock import Lock
from ares.runtime.ports import Connections
from ares.runtime.zmq_server import ZmqListener
from ares.runtime.zmtp_client import ZmtpConnections
from ares.runtime.zmtp_server import ZmtpListener
from ares.server.metrics import Traffic


def listener_at(
    address: str, lock: Lock | None = None, limits: Limits | None = None, traffic: Traffic | None = None, transport: TransportName = "native"
) -> ZmqListener | ZmtpListener:
    """A listener at ``host:port``. ``lock``: for clients with keys. ``traffic``: where to count."""
    kind = ZmqListener if transport == "libzmq" else ZmtpListener
    return kind(address, lock, limits, traffic)


def connections(secret: SecretKey | None = None, transport: TransportName = "native") -> Connections:
    """Connections for a client. ``secret``: its key, if the cluster has keys."""
    if transport == "native":
        return ZmtpConnections(secret)
    from ares.runtime.zmq_client import ZmqConnections

    return ZmqConnections(secret)
