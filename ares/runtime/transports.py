"""Which of two implementations of ZeroMQ's protocol is used: with keys libzmq's, which has CURVE; without keys our own, which is faster.

They speak the same on the wire, and tests let each talk to the other. Why there are two, with figures: docs/transport.md.
"""

from ares.runtime.keys import SecretKey
from ares.runtime.limits import Limits
from ares.runtime.ports import Connections
from ares.runtime.zmq_gate import Lock
from ares.runtime.zmq_server import ZmqListener
from ares.runtime.zmtp_client import ZmtpConnections
from ares.runtime.zmtp_server import ZmtpListener
from ares.server.metrics import Traffic


def listener_at(address: str, lock: Lock | None = None, limits: Limits | None = None, traffic: Traffic | None = None) -> ZmqListener | ZmtpListener:
    """A listener at ``host:port``. ``lock``: for clients with keys. ``traffic``: where to count."""
    return ZmtpListener(address, limits, traffic) if lock is None else ZmqListener(address, lock, limits, traffic)


def connections(secret: SecretKey | None = None) -> Connections:
    """Connections for a client. ``secret``: its key, if the cluster has keys."""
    if secret is None:
        return ZmtpConnections()
    from ares.runtime.zmq_client import ZmqConnections

    return ZmqConnections(secret)
