"""The server's side of the ZeroMQ transport: one ROUTER socket for all clients.

ROUTER never blocks: replies for a client that left, or that has left too many unread, are dropped. ZeroMQ counts batches and neither their bytes nor
its connections, so this module does: see zmq_unread.py and zmq_connections.py, and docs/limits.md for the bounds.

With a :class:`ares.security.lock.Lock`, clients are let in by their keys, and a sender is a :class:`ares.security.clients_file.KeyedSender`.
"""

import asyncio
import time
from collections.abc import Sequence

import zmq

from ares.cluster.tables import Limits
from ares.machine.memory import memory_bytes
from ares.machine.metrics import Traffic
from ares.model.codec import Frame
from ares.model.errors import BadInput
from ares.model.messages import AnyMessage
from ares.net.batching import WAITING_BYTES_MAX, BatchListener, batches
from ares.net.port import Handle, Sender
from ares.net.turns import TURN_S
from ares.net.zmq.zmq_connections import Connections
from ares.net.zmq.zmq_gate import Gate, keyed_sender
from ares.net.zmq.zmq_sockets import BACKLOG, Socket, create_socket, descriptor_of, endpoint, ready, receive_from, send
from ares.net.zmq.zmq_unread import Unread
from ares.security import lock as locks
from ares.security.lock import Lock

DRAIN_BATCHES_MAX = 64
DRAIN_MESSAGES_MAX = 4096
"""One pass over what clients sent ends at either, or when it took as long as a turn; then their replies leave and the event loop goes on."""

RECEIVED_BATCHES_MAX = 8
"""What ZeroMQ takes in from one client before the server gets to it: then the client's own TCP stream stands still."""

LOOK_S = 0.1
"""How often memory is looked at; if it grew by LOOK_SHARE of what clients may have on the way, connections are weighed."""

LOOK_SHARE = 1 / 16

CLOSE_MS_MAX = 1_000
CLOSE_GRACE_S = 0.05
"""Between the last replies and the end of the connections: a client's ZeroMQ drops what it has received and not yet read when the server hangs up."""


class ZmqListener(BatchListener):
    """:class:`ares.net.port.Listener` over TCP at an IPv4 ``host:port``; port 0 takes a free one. ``connections`` is there while it serves."""

    connections: Connections

    def __init__(self, address: str, lock: Lock | None = None, limits: Limits | None = None, traffic: Traffic | None = None) -> None:
        super().__init__(traffic)
        self._wanted = address
        self._lock = lock
        self._limits = limits or Limits()
        self._gate: Gate | None = None
        self._unread = Unread()
        self._memory_bytes = 0
        self._draining_soon = False

    async def serve(self, handle: Handle) -> str:
        place = endpoint(self._wanted)
        context: zmq.Context[Socket] = zmq.Context()
        socket = create_socket(context, zmq.ROUTER)
        socket.setsockopt(zmq.BACKLOG, BACKLOG)
        socket.setsockopt(zmq.RCVHWM, RECEIVED_BATCHES_MAX)
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # say so when a client takes no more, or has left
        if self._lock is not None:
            self._gate = Gate(context, asyncio.get_running_loop(), self._lock)
            self._gate.secure(socket)
        connections = Connections(context, socket, self._limits, self._lock is not None, self._left)
        try:
            socket.bind(place)
        except zmq.ZMQError as error:
            connections.close()
            socket.close()
            self._close_gate()
            context.term()
            raise BadInput(
                f"cannot listen on {self._wanted!r}: {error.strerror}. Use an IPv4 address of this machine with a port that no other program has "
                "(127.0.0.1:0 takes a free one)"
            ) from error
        self._context, self._socket, self.connections = context, socket, connections
        self._start(handle, socket.getsockopt_string(zmq.LAST_ENDPOINT).removeprefix("tcp://"))
        self._loop.add_reader(socket.fileno(), self._drain)
        self._loop.add_reader(connections.monitor.fileno(), connections.attend)
        connections.attend()  # its descriptor tells of nothing before it was looked once and found empty
        self._looking = self._loop.call_later(LOOK_S, self._look)
        if self._gate is not None:
            self._rolling = self._loop.call_later(locks.ROLL_CALL_S, self._call_roll)
        return self.address

    def _drain(self) -> None:
        """One pass: take batches, have them handled, send the replies."""
        self._draining_soon = False
        if not self._serving:
            return
        messages, until_s = 0, time.perf_counter() + TURN_S
        for _ in range(0 if self._paused else DRAIN_BATCHES_MAX):
            came = receive_from(self._socket)
            if came is None:
                break
            connection, frames = came
            sender = connection.bytes if self._lock is None else keyed_sender(connection)
            self.connections.took(descriptor_of(connection), sender, frames)
            messages += self._receive(sender, [frames])
            if messages >= DRAIN_MESSAGES_MAX or self._paused or time.perf_counter() >= until_s:
                break
        self._look_again()

    def _go_on(self) -> None:
        super()._go_on()
        if self._serving:
            self._look_again()

    def _left(self, sender: Sender) -> None:
        self._unread.forget(sender)
        self._give_up(sender)

    def _may_stand(self, bytes: int) -> bool:
        return self._standing_bytes + bytes <= self._limits.received_bytes

    def _look_again(self) -> None:
        """The descriptor tells of what comes, not of what is there already."""
        if not self._draining_soon and self._serving and ready(self._socket, zmq.POLLIN) and not self._paused:
            self._draining_soon = True
            self._loop.call_soon(self._drain)

    def reply(self, sender: Sender, messages: Sequence[AnyMessage]) -> None:
        super().reply(sender, messages)
        self._look_again()

    def _send(self, sender: Sender, messages: Sequence[AnyMessage]) -> None:
        assert isinstance(sender, bytes)
        if sender in self.connections:
            for _, frames in batches(messages):
                self._send_batch(sender, frames)

    def _send_batch(self, sender: bytes, frames: list[Frame]) -> None:
        size = sum(map(len, frames))
        if self._traffic is not None:
            self._traffic.sent_bytes += size
        if not self._unread.wants_mark(sender, size):
            send(self._socket, [sender, *frames])
        elif self._room_for(sender, size):
            last = zmq.Frame(frames[-1], track=True, copy=False, copy_threshold=0)
            assert last.tracker is not None
            if send(self._socket, [sender, *frames[:-1], last]):
                self._unread.mark(sender, size, last.tracker)

    def _room_for(self, sender: Sender, size: int) -> bool:
        """Whether this batch is within what this sender may leave unread, and what all may; whoever holds most of that is hung up on.

        A sender that owes nothing is not to suffer from those who do: for it, there is as much room again.
        """
        unread, bound = self._unread, self._limits.unread_bytes
        owed = unread.owed(sender)
        if owed and owed + size > WAITING_BYTES_MAX:
            return False
        if unread.total + size > bound:
            debtor = unread.settle()
            while debtor is not None and unread.total - unread.leaving + size > bound:
                self.connections.hang_up(debtor, f"it left {unread.owed(debtor)} bytes of replies unread, and all clients' are too many")
                unread.forget(debtor)
                debtor = unread.settle()
        return unread.total + size <= (bound if owed else 2 * bound) and sender in unread

    def _look(self) -> None:
        """If memory grew, see whether clients make it grow."""
        self._looking = self._loop.call_later(LOOK_S, self._look)
        now_bytes = memory_bytes()
        if now_bytes - self._memory_bytes > self._limits.received_bytes * LOOK_SHARE:
            self.connections.weigh()
            self._memory_bytes = now_bytes
        self._memory_bytes = min(self._memory_bytes, now_bytes)

    def _call_roll(self) -> None:
        """Hang up on those whose keys were revoked: their requests are refused anyway, and their connections take room."""
        assert self._lock is not None
        self._rolling = self._loop.call_later(locks.ROLL_CALL_S, self._call_roll)
        for sender in self._lock.revoked(self.connections.senders()):
            self.connections.hang_up(sender, locks.REVOKED)

    async def close(self) -> None:
        if not self._serving:
            return
        self._serving = False
        self._looking.cancel()
        if self._gate is not None:
            self._rolling.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_reader(self.connections.monitor.fileno())
        await asyncio.sleep(CLOSE_GRACE_S)
        self.connections.close()
        self._socket.close(linger=CLOSE_MS_MAX)
        self._close_gate()
        await asyncio.to_thread(self._context.term)

    def _close_gate(self) -> None:
        if self._gate is not None:
            self._gate.close()
            self._gate = None
