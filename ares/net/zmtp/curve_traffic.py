"""What follows a CURVE handshake (ZeroMQ RFC 26): MESSAGE commands, each a box with one frame of a message, sealed and opened in place."""

from collections.abc import Iterator, Sequence

from ares.model.codec import Frame
from ares.net.zmtp.curve_boxes import BOX_BYTES_MORE, KEY_BYTES, seal, unseal
from ares.net.zmtp.handshake import COMMAND, LONG, MORE, SHORT_MAX, NotZmtp

FROM_CLIENT, FROM_SERVER = b"CurveZMQMESSAGEC", b"CurveZMQMESSAGES"
"""What nonces begin with, by who sends."""

_MESSAGE = b"\x07MESSAGE"
_COUNT = 8
_BOX_AT = len(_MESSAGE) + _COUNT
_CONTENT_AT = _BOX_AT + BOX_BYTES_MORE + 1
"""In a MESSAGE; before it, in the box, is a byte of flags."""

_SEALED_MORE, _SEALED_COMMAND = 1, 2
_ROOM = [bytes(BOX_BYTES_MORE) + bytes([flags]) for flags in range(4)]
_OPENED = [0, MORE, COMMAND, MORE | COMMAND]
"""Flags of a frame, by those in the box."""


class CurveTraffic:
    """The messages of a connection whose handshake is done (:class:`ares.net.zmtp.handshake.Traffic`).

    ``key``: what both transient keys make; ``ours`` and ``theirs``: what nonces begin with; ``sent``, ``received``: the last ones of the handshake.
    """

    overhead_bytes = _CONTENT_AT

    def __init__(self, key: bytes, ours: bytes, theirs: bytes, sent: int, received: int) -> None:
        assert len(key) == KEY_BYTES, "libsodium takes its word for it"
        self._key = key
        self._ours = ours
        self._theirs = theirs
        self._sent = sent
        self._received = received.to_bytes(_COUNT, "big")

    def seal(self, frames: Sequence[Frame]) -> Iterator[bytes]:
        last = len(frames) - 1
        for position, frame in enumerate(frames):
            yield self._sealed(frame, _SEALED_MORE if position < last else 0)

    def seal_command(self, command: bytes) -> bytes:
        return self._sealed(command, _SEALED_COMMAND)

    def _sealed(self, frame: Frame, flags: int) -> bytes:
        """Copied once, to where it is sealed in place, before anybody else sees those bytes."""
        self._sent += 1
        count = self._sent.to_bytes(_COUNT, "big")
        size = _CONTENT_AT + len(frame)
        head = bytes((0, size)) if size <= SHORT_MAX else bytes((LONG,)) + size.to_bytes(8, "big")
        memory = b"".join((head, _MESSAGE, count, _ROOM[flags], frame))
        seal(memory, len(head) + _BOX_AT, len(memory), self._ours + count, self._key)
        return memory

    def open(self, memory: memoryview, start: int, end: int) -> tuple[int, int]:
        head = bytes(memory[start : start + _BOX_AT])
        if end - start < _CONTENT_AT or not head.startswith(_MESSAGE):
            raise NotZmtp("what is no MESSAGE after the handshake")
        count = head[len(_MESSAGE) :]
        if count <= self._received:
            raise NotZmtp("a message that came before, or out of order")
        if not unseal(memory, start + _BOX_AT, end, self._theirs + count, self._key):
            raise NotZmtp("a message that was not sealed by the peer")
        self._received = count
        content = start + _CONTENT_AT
        flags = memory[content - 1]
        if flags >= len(_OPENED):
            raise NotZmtp(f"a sealed frame with flags {flags}")
        return _OPENED[flags], content
