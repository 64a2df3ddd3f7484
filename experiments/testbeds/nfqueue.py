"""Delay, jitter and loss of packets that iptables sends to queues (``-j NFQUEUE``).

    python -m experiments.testbeds.nfqueue SOCKET      # in the network namespace of the rules

This replaces netem, the kernel's network emulation. Settings come by SOCKET, see Shaper. The kernel
gives the metadata of each packet and keeps the packet until it has a verdict. A verdict is for all
packets of a queue up to a given packet, so the packets of a queue stay in order, also with jitter.
A queue without loss takes the large packets of segmentation offload whole. For a queue with loss,
the kernel cuts them up first; otherwise a single verdict would lose 64 KB at once.

The formats are defined in linux/netfilter/nfnetlink_queue.h. If this process ends, the packets of
its queues are dropped: silence, not speed.
"""

import contextlib
import random
import select
import signal
import socket
import struct
import sys
import time
from collections import deque
from pathlib import Path

import msgspec
from msgspec import Struct

_NETLINK_NETFILTER = 12
_SUBSYSTEM = 3 << 8
_PACKET, _VERDICT, _CONFIG, _VERDICT_BATCH = (_SUBSYSTEM | number for number in range(4))
_NLMSG_ERROR = 2
_REQUEST, _ACK = 1, 4
_CFG_CMD, _CFG_PARAMS, _CFG_QUEUE_MAXLEN, _CFG_MASK, _CFG_FLAGS = range(1, 6)
_COMMAND_BIND = 1
_COPY_META = 1
_FLAG_GSO = 4
_PACKET_HDR, _VERDICT_HDR = 1, 2
_DROP, _ACCEPT = 0, 1
_SOL_NETLINK, _NO_ENOBUFS, _RCVBUFFORCE = 270, 5, 33

_NETLINK_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_QUEUE = struct.Struct(">BBH")  # family, version, queue
_ATTRIBUTE = struct.Struct("=HH")  # length with these four bytes, type
_PACKET_ID = struct.Struct(">I")
_ID_AT = _NETLINK_HEADER.size + _QUEUE.size + _ATTRIBUTE.size
"""Position of a packet's id: the header of a packet is its first attribute, and begins with the id.
"""

HELD_PACKETS_MAX = 1 << 17
"""Packets of a queue on their way; later packets are dropped, as by a full router."""

_BUFFER_BYTES = 1 << 25
_PACKETS_AT_ONCE = 256
_REQUEST_S = 5.0


class QueueShape(Struct, frozen=True, forbid_unknown_fields=True):
    """Treatment of the packets of a queue, in a single direction.

    Packets are late by ``delay_s`` +- ``jitter_s`` (uniform); ``loss`` is the fraction that is
    dropped.
    """

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0


class _Queue:
    """Packets of a queue that wait for a verdict, in order, with the times when they are due."""

    def __init__(self) -> None:
        self.shape = QueueShape()
        self.held: deque[tuple[float, int]] = deque()

    def due(self, now: float) -> float:
        """Return the departure time of a packet that arrives now: not before the packet ahead."""
        late = self.shape.delay_s + (
            random.uniform(-1, 1) * self.shape.jitter_s if self.shape.jitter_s else 0.0
        )
        return max(now + max(late, 0.0), self.held[-1][0] if self.held else 0.0)


class Shaper:
    """The queues of a network namespace.

    ``place`` is a Unix socket. It takes a JSON object {queue number: QueueShape} and a line feed,
    and answers "ok" when the shapes hold, or the error.
    """

    def __init__(self, place: Path) -> None:
        self._queues: dict[int, _Queue] = {}
        self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
        self._netlink.bind((0, 0))
        self._netlink.setsockopt(socket.SOL_SOCKET, _RCVBUFFORCE, _BUFFER_BYTES)
        self._netlink.setsockopt(_SOL_NETLINK, _NO_ENOBUFS, 1)
        self._requests = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._requests.bind(str(place))
        self._requests.listen(8)

    def run(self) -> None:
        """Serve for ever."""
        while True:
            ready, _, _ = select.select([self._netlink, self._requests], [], [], self._wait_s())
            if self._netlink in ready:
                self._take()
            self._release()
            if self._requests in ready:
                self._answer()

    def _wait_s(self) -> float | None:
        dues = [queue.held[0][0] for queue in self._queues.values() if queue.held]
        return max(0.0, min(dues) - time.monotonic()) if dues else None

    def _take(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for _ in range(_PACKETS_AT_ONCE):
                self._note(self._netlink.recv(65536, socket.MSG_DONTWAIT))

    def _note(self, message: bytes) -> None:
        if _NETLINK_HEADER.unpack_from(message)[1] != _PACKET:
            return
        number = _QUEUE.unpack_from(message, _NETLINK_HEADER.size)[2]
        packet = _PACKET_ID.unpack_from(message, _ID_AT)[0]
        queue = self._queues[number]
        if queue.shape.loss and random.random() < queue.shape.loss:
            self._verdict(_VERDICT, number, packet, _DROP)
        else:
            queue.held.append((queue.due(time.monotonic()), packet))

    def _release(self) -> None:
        now = time.monotonic()
        for number, queue in self._queues.items():
            last = None
            while queue.held and queue.held[0][0] <= now:
                last = queue.held.popleft()[1]
            if last is not None:
                self._verdict(_VERDICT_BATCH, number, last, _ACCEPT)

    def _verdict(self, kind: int, number: int, packet: int, verdict: int) -> None:
        self._send(kind, number, _attribute(_VERDICT_HDR, struct.pack(">II", verdict, packet)), 0)

    def _answer(self) -> None:
        client, _ = self._requests.accept()
        with client, contextlib.suppress(OSError):
            client.settimeout(_REQUEST_S)
            try:
                shapes = msgspec.json.decode(
                    client.makefile("rb").readline(1 << 20), type=dict[int, QueueShape]
                )
                for number, shape in shapes.items():
                    self._shape(number, shape)
                client.sendall(b"ok\n")
            except (msgspec.MsgspecError, OSError) as error:
                client.sendall(f"{error}\n".encode())

    def _shape(self, number: int, shape: QueueShape) -> None:
        if number not in self._queues:
            self._queues[number] = _Queue()
            self._configure(number, _attribute(_CFG_CMD, struct.pack(">BxH", _COMMAND_BIND, 0)))
            self._configure(number, _attribute(_CFG_PARAMS, struct.pack(">IB", 0, _COPY_META)))
            self._configure(
                number, _attribute(_CFG_QUEUE_MAXLEN, struct.pack(">I", HELD_PACKETS_MAX))
            )
        flags = 0 if shape.loss else _FLAG_GSO
        mask = _attribute(_CFG_MASK, struct.pack(">I", _FLAG_GSO))
        self._configure(number, _attribute(_CFG_FLAGS, struct.pack(">I", flags)) + mask)
        self._queues[number].shape = shape

    def _configure(self, number: int, attributes: bytes) -> None:
        """Configure a queue. Raises OSError if the kernel refuses.

        Packets that come during this are taken as always.
        """
        self._send(_CONFIG, number, attributes, _ACK)
        while True:
            message = self._netlink.recv(65536)
            if _NETLINK_HEADER.unpack_from(message)[1] != _NLMSG_ERROR:
                self._note(message)
            elif refused := -struct.unpack_from("=i", message, _NETLINK_HEADER.size)[0]:
                raise OSError(refused, f"the kernel refuses queue {number}")
            else:
                return

    def _send(self, kind: int, number: int, attributes: bytes, flags: int) -> None:
        length = _NETLINK_HEADER.size + _QUEUE.size + len(attributes)
        message = (
            _NETLINK_HEADER.pack(length, kind, _REQUEST | flags, 0, 0)
            + _QUEUE.pack(0, 0, number)
            + attributes
        )
        self._netlink.send(message)


def _attribute(kind: int, value: bytes) -> bytes:
    length = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(length, kind) + value + bytes(-length % 4)


def shape(place: Path, shapes: dict[int, QueueShape]) -> None:
    """Have the :class:`Shaper` at ``place`` apply ``shapes``.

    Raises OSError if the shaper is absent or failed.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(2 * _REQUEST_S)
        client.connect(str(place))
        client.sendall(msgspec.json.encode(shapes) + b"\n")
        answer = client.makefile().readline().strip()
    if answer != "ok":
        raise OSError(answer or "the process that delays packets ended before it answered")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    Shaper(Path(sys.argv[1])).run()
