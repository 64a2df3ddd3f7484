"""The connections of consensus members: PySyncObj's transport over TCP, with its gaps closed.

- Entries and votes are on disk before the message that promises them leaves, and arriving messages
  are checked first (``make_durable`` and ``admitted`` in ares/consensus/raft/replicated.py).
- PySyncObj drops a silent connection just when the connection is needed to ask for a vote, which
  makes fail-over slow: members without messages greet each other. PySyncObj waits for minutes for
  an answer to a lost SYN, this transport for RAFT_CONNECT_S.
- Any process that reaches the port may connect, and proves knowledge of the password only by the
  first message. Until this proof PySyncObj reads without end, in an uninterrupted loop, and keeps
  all the bytes: a single stranger sending on and on would stop the member and fill the memory. In
  this transport a stranger may send STRANGER_BYTES_MAX and stay for STRANGER_S, and beyond
  STRANGERS_MAX strangers the oldest has to go: strangers cannot use up the process's descriptors.
  After a failure to accept a connection, PySyncObj stops listening for ever.
- PySyncObj seals every message, with the random key chosen by the receiver for the connection:
  no message can be made up, changed, sent back, or taken from another connection. But a message
  repeated within a second is taken twice, a missing message is not noticed, and no field names the
  answering member. In this transport messages carry their number over the connection, their sender
  and their receiver; a wrong message ends the connection. Members of earlier releases number
  nothing, and are heard all the same; an attacker on the way cannot leave the numbers out, because
  they are sealed.
"""

import logging
import time
from typing import Any

from pysyncobj.tcp_connection import CONNECTION_STATE
from pysyncobj.transport import TCPTransport

from ares.platform.json_logs import is_worth_a_line

RAFT_CONNECT_S = 2.0

STRANGER_BYTES_MAX = 16 * 1024
"""Most bytes of a stranger; a member's first messages, key and address, take a few hundred."""

STRANGER_S = 5.0
STRANGERS_MAX = 64

_RANDOM_KEY_BYTES = 32

_log = logging.getLogger(__name__)


class RaftTransport(TCPTransport):  # type: ignore[misc]
    """A transport made by PySyncObj, with the SyncObj, a ReplicatedTable.

    All methods run in PySyncObj's thread.
    """

    def __init__(self, *arguments: Any) -> None:
        self._spoke_at_s: dict[Any, float] = {}
        self._came_at_s: dict[Any, float] = {}
        self._sent: dict[Any, int] = {}
        self._noted: dict[Any, int] = {}
        """Number of the note last sent to each member over the present connection."""

        self._heard: dict[Any, int | None] = {}
        self._claims: dict[Any, Any] = {}
        self._misfits = 0
        super().__init__(*arguments)

    def send(self, node: Any, message: dict[str, Any]) -> bool:
        self._syncObj.make_durable(message)
        connection = self._connections.get(node)
        if (
            connection is None
            or not connection.sendRandKey
            or connection.state != CONNECTION_STATE.CONNECTED
        ):
            return False
        self._spoke_at_s[node] = time.monotonic()
        number = self._sent[node]
        self._sent[node] = number + 1
        way = {"number": number, "sender": self._selfNode.address, "receiver": node.address}
        return bool(super().send(node, {**message, "sender_term": self._syncObj._getTerm(), **way}))

    def _onMessageReceived(self, node: Any, message: Any) -> None:
        expected = self._heard[node]
        if not self._fits(node, message, expected):
            self._misfit(node, self._connections[node])
            return
        if "number" in message:
            self._heard[node] = message["number"] + 1
        elif expected is not None:
            self._heard[node] = None
            what = (
                "consensus member %s is of an earlier release: a machine on the network path may "
                "repeat its messages. Upgrade it to this release"
            )
            _log.warning(what, node.address)
        admitted = self._syncObj.admitted(node.address, message)
        if admitted is not None:
            super()._onMessageReceived(node, admitted)

    def _fits(self, node: Any, message: Any, expected: int | None) -> bool:
        """Return whether ``node`` may send ``message`` to this member as number ``expected``.

        None: the first message of ``node`` had no number.
        """
        if not isinstance(message, dict):
            return False
        if "number" not in message:
            return expected is None or expected == 0
        found = (message["number"], message.get("sender"), message.get("receiver"))
        return bool(found == (expected, node.address, self._selfNode.address))

    def _misfit(self, node: Any, connection: Any) -> None:
        self._misfits += 1
        if is_worth_a_line(self._misfits):
            what = (
                "a message of consensus member %s was repeated, dropped or misdirected on the "
                "network: the connection is ended (%d so far)"
            )
            _log.warning(what, node.address, self._misfits)
        connection.disconnect()

    def _onNodeConnected(self, node: Any) -> None:
        self._sent[node] = self._heard[node] = self._noted[node] = 0
        super()._onNodeConnected(node)
        self._syncObj.beat_soon()

    def _onIncomingMessageReceived(self, conn: Any, message: Any) -> None:
        """Take a message from an incoming connection.

        In order: a random key, a member's address, and its first message, which replaces the
        member's last connection.
        """
        if not conn.sendRandKey:
            if _is_random_key(message):
                super()._onIncomingMessageReceived(conn, message)
            else:
                conn.disconnect()
        elif conn not in self._claims:
            node = self._nodeAddrToNode.get(message) if isinstance(message, str) else None
            if node is None or self._shouldConnect(node):
                conn.disconnect()
            else:
                self._claims[conn] = node
        else:
            self._welcome(self._claims.pop(conn), conn, message)

    def _welcome(self, node: Any, conn: Any, first: Any) -> None:
        if not self._fits(node, first, 0):
            self._misfit(node, conn)
            return
        if node in self._connections:
            self._connections[node].disconnect()
        super()._onIncomingMessageReceived(conn, node.address)
        self._onMessageReceived(node, first)

    def _onOutgoingMessageReceived(self, conn: Any, message: Any) -> None:
        """Take the random key of a member to which this one connected; greet the member at once."""
        if not _is_random_key(message):
            conn.disconnect()
            return
        super()._onOutgoingMessageReceived(conn, message)
        self.send(self._connToNode(conn), {"type": "greeting"})

    def _onTick(self) -> None:
        super()._onTick()
        now = time.monotonic()
        self._send_away(now - STRANGER_S)
        number, note = self._syncObj.note
        for node in self._nodes:
            if number != self._noted.get(node, 0):
                if self.send(node, {"type": "greeting", "note": note}):
                    self._noted[node] = number
            elif now - self._spoke_at_s.get(node, 0.0) >= self._syncObj.times.greeting_s:
                self._spoke_at_s[node] = now
                self.send(node, {"type": "greeting"})

    def _connectIfNecessarySingle(self, node: Any) -> bool:
        connection = self._connections.get(node)
        connecting = connection is not None and connection.state == CONNECTION_STATE.CONNECTING
        if connecting and time.monotonic() - self._lastConnectAttempt[node] > RAFT_CONNECT_S:
            connection.disconnect()
        return bool(super()._connectIfNecessarySingle(node))

    def _onNewIncomingConnection(self, conn: Any) -> None:
        super()._onNewIncomingConnection(conn)
        self._came_at_s[conn] = time.monotonic()
        read = conn._TcpConnection__processRead

        def read_within_measure() -> bool:
            if (
                conn in self._unknownConnections
                and conn not in self._claims
                and len(conn._TcpConnection__readBuffer) > STRANGER_BYTES_MAX
            ):
                conn.disconnect()
                return False
            return bool(read())

        conn._TcpConnection__processRead = read_within_measure
        self._send_away(time.monotonic() - STRANGER_S)

    def _send_away(self, came_before_s: float) -> None:
        """Disconnect strangers that came before this time, and the oldest beyond STRANGERS_MAX."""
        self._came_at_s = {
            conn: at_s for conn, at_s in self._came_at_s.items() if conn in self._unknownConnections
        }
        self._claims = {
            conn: node for conn, node in self._claims.items() if conn in self._unknownConnections
        }
        surplus = len(self._came_at_s) - STRANGERS_MAX
        for position, (conn, at_s) in enumerate(list(self._came_at_s.items())):
            if at_s < came_before_s or position < surplus:
                conn.disconnect()
                del self._came_at_s[conn]


def _is_random_key(message: Any) -> bool:
    return isinstance(message, bytes) and len(message) == _RANDOM_KEY_BYTES
