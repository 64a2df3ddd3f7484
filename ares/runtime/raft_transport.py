"""How consensus members reach each other: PySyncObj's transport over TCP, with what it leaves open closed.

* Entries and votes are on disk before the message that promises them leaves, and what comes in is looked at first (:class:`Gatekeeper`).
* PySyncObj drops a connection that was silent for a while just when it wants to ask for a vote over it, which makes fail-over slow: members greet
  each other. It waits for minutes for an answer to a lost SYN: here for CONNECT_S.
* Whoever reaches the port may connect, and shows only by the first message to know the password. Until then PySyncObj reads without end, in a loop
  that nothing else interrupts, and keeps all of it: one stranger who keeps sending would stop the member and fill its memory. Here a stranger may
  send STRANGER_BYTES_MAX and stay for STRANGER_S, and of more than STRANGERS_MAX the one who came first has to go, so that none can use up the
  process's descriptors: when it cannot accept a connection, PySyncObj stops listening for ever.
"""

import time
from typing import Any, Protocol

from pysyncobj.tcp_connection import CONNECTION_STATE
from pysyncobj.transport import TCPTransport

GREETING_S = 1.0
CONNECT_S = 2.0

STRANGER_BYTES_MAX = 16 * 1024
"""A member's first messages, its random key and its address, take a few hundred bytes."""

STRANGER_S = 5.0
STRANGERS_MAX = 64


class Gatekeeper(Protocol):
    """Sees every message first."""

    def make_durable(self, message: dict[str, Any]) -> None:
        """Before ``message`` leaves: what it promises."""

    def admitted(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """What of a received ``message`` may be seen; None: nothing."""


class Transport(TCPTransport):  # type: ignore[misc]
    """PySyncObj makes it, and gives it a SyncObj that is a :class:`Gatekeeper`. Everything happens in PySyncObj's thread."""

    def __init__(self, *arguments: Any) -> None:
        self._greet_at_s = 0.0
        self._came_at_s: dict[Any, float] = {}
        super().__init__(*arguments)

    def send(self, node: Any, message: dict[str, Any]) -> bool:
        self._syncObj.make_durable(message)
        return bool(super().send(node, {**message, "sender_term": self._syncObj._getTerm()}))

    def _onMessageReceived(self, node: Any, message: dict[str, Any]) -> None:
        admitted = self._syncObj.admitted(message)
        if admitted is not None:
            super()._onMessageReceived(node, admitted)

    def _onTick(self) -> None:
        super()._onTick()
        self._send_away(time.monotonic() - STRANGER_S)
        if time.monotonic() >= self._greet_at_s:
            self._greet_at_s = time.monotonic() + GREETING_S
            for node in self._nodes:
                self.send(node, {"type": "greeting"})

    def _connectIfNecessarySingle(self, node: Any) -> bool:
        connection = self._connections.get(node)
        connecting = connection is not None and connection.state == CONNECTION_STATE.CONNECTING
        if connecting and time.monotonic() - self._lastConnectAttempt[node] > CONNECT_S:
            connection.disconnect()
        return bool(super()._connectIfNecessarySingle(node))

    def _onNewIncomingConnection(self, conn: Any) -> None:
        super()._onNewIncomingConnection(conn)
        self._came_at_s[conn] = time.monotonic()
        read = conn._TcpConnection__processRead

        def read_within_measure() -> bool:
            if conn in self._unknownConnections and len(conn._TcpConnection__readBuffer) > STRANGER_BYTES_MAX:
                conn.disconnect()
                return False
            return bool(read())

        conn._TcpConnection__processRead = read_within_measure
        self._send_away(time.monotonic() - STRANGER_S)

    def _send_away(self, came_before_s: float) -> None:
        """Strangers who came earlier than that, and those who came first of too many."""
        self._came_at_s = {conn: at_s for conn, at_s in self._came_at_s.items() if conn in self._unknownConnections}
        surplus = len(self._came_at_s) - STRANGERS_MAX
        for position, (conn, at_s) in enumerate(list(self._came_at_s.items())):
            if at_s < came_before_s or position < surplus:
                conn.disconnect()
                del self._came_at_s[conn]
