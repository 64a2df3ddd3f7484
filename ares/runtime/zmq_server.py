"""The server's side of the ZeroMQ transport: one ROUTER socket for all clients.

ROUTER never blocks: replies for a client that left, or that has left too many unread, are dropped. ZeroMQ counts only batches, so this module also
counts the bytes of large ones until they are on their way.

With a :class:`ares.runtime.zmq_gate.Lock`, clients are let in by their keys, and a sender is a :class:`ares.runtime.clients_file.KeyedSender`.
"""

import asyncio

import zmq

from ares.codec import Frame
from ares.errors import BadInput
from ares.messages import AnyMessage
from ares.runtime.batching import WAITING_BYTES_MAX, BatchListener, Handle, batches
from ares.runtime.ports import Sender
from ares.runtime.zmq_gate import Gate, Lock, receive_keyed
from ares.runtime.zmq_sockets import BACKLOG, ZERO_COPY_BYTES_MIN, Socket, create_socket, endpoint, ready, receive, send

DRAIN_BATCHES_MAX = 64
DRAIN_MESSAGES_MAX = 4096
"""One pass over what clients sent ends at either; then their replies leave and the event loop has its turn."""

CLOSE_MS_MAX = 1_000
CLOSE_GRACE_S = 0.05
"""Between the last replies and the end of the connections: a client's ZeroMQ drops what it has received and not yet read when the server hangs up."""


class ZmqListener(BatchListener):
    """:class:`ares.runtime.ports.Listener` over TCP at an IPv4 ``host:port``; port 0 takes a free one."""

    def __init__(self, address: str, lock: Lock | None = None) -> None:
        super().__init__()
        self._address = address
        self._lock = lock
        self._gate: Gate | None = None
        self._take = receive if lock is None else receive_keyed
        self._unsent: list[tuple[Sender, zmq.MessageTracker, int]] = []

    async def serve(self, handle: Handle) -> str:
        place = endpoint(self._address)
        context: zmq.Context[Socket] = zmq.Context()
        socket = create_socket(context, zmq.ROUTER)
        socket.setsockopt(zmq.BACKLOG, BACKLOG)
        if self._lock is not None:
            self._gate = Gate(context, asyncio.get_running_loop(), self._lock)
            self._gate.secure(socket)
        try:
            socket.bind(place)
        except zmq.ZMQError as error:
            socket.close()
            self._close_gate()
            context.term()
            raise BadInput(
                f"cannot listen on {self._address!r}: {error.strerror}. Use an IPv4 address of this machine with a port that no other program has "
                "(127.0.0.1:0 takes a free one)"
            ) from error
        self._context, self._socket = context, socket
        self._start(handle)
        self._loop.add_reader(socket.fileno(), self._drain)
        return socket.getsockopt_string(zmq.LAST_ENDPOINT).removeprefix("tcp://")

    def _drain(self) -> None:
        """One pass: take batches, have them handled, send the replies."""
        if not self._serving:
            return
        messages = 0
        for _ in range(DRAIN_BATCHES_MAX):
            parts = self._take(self._socket)
            if parts is None:
                break
            messages += self._receive(parts[0], parts[1:])
            if messages >= DRAIN_MESSAGES_MAX:
                break
        self._flush()

    def _flush(self) -> None:
        if not self._serving:
            return
        self._outgoing.send_each(self._send)
        if ready(self._socket, zmq.POLLIN):
            self._loop.call_soon(self._drain)

    def _send(self, sender: Sender, messages: list[AnyMessage]) -> None:
        assert isinstance(sender, bytes)
        for _, frames in batches(messages):
            self._send_batch(sender, frames)

    def _send_batch(self, sender: bytes, frames: list[Frame]) -> None:
        size = sum(map(len, frames))
        if size < ZERO_COPY_BYTES_MIN:
            send(self._socket, [sender, *frames])
        elif self._room_for(sender, size):
            last = zmq.Frame(frames[-1], track=True, copy=False, copy_threshold=0)
            send(self._socket, [sender, *frames[:-1], last])
            assert last.tracker is not None
            self._unsent.append((sender, last.tracker, size))

    def _room_for(self, sender: Sender, size: int) -> bool:
        """Whether this sender has not yet left too much unread; one batch is always taken."""
        self._unsent = [entry for entry in self._unsent if not entry[1].done]
        unread = sum(entry[2] for entry in self._unsent if entry[0] == sender)
        return unread == 0 or unread + size <= WAITING_BYTES_MAX

    async def close(self) -> None:
        if not self._serving:
            return
        self._flush()
        self._serving = False
        self._loop.remove_reader(self._socket.fileno())
        await asyncio.sleep(CLOSE_GRACE_S)
        self._socket.close(linger=CLOSE_MS_MAX)
        self._close_gate()
        await asyncio.to_thread(self._context.term)

    def _close_gate(self) -> None:
        if self._gate is not None:
            self._gate.close()
            self._gate = None
