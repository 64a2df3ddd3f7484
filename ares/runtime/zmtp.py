"""ZMTP 3.1 on the wire (ZeroMQ RFC 37), without I/O: the greeting, the NULL handshake, frames and messages.

What libzmq does behind DEALER and ROUTER sockets costs a batch four changes of threads, many times what the protocol takes to answer it. Spoken by
the event loop itself it costs none, and every bound is ours: on frames, on whole messages, on connections. Peers on libzmq notice no difference.
"""

from collections.abc import Iterator, Sequence

from ares.codec import FRAME_BYTES_MAX, FRAMES_MAX, Frame
from ares.errors import AresError
from ares.runtime.blank import Blank

DEALER = b"DEALER"
ROUTER = b"ROUTER"

MESSAGE_BYTES_MAX = FRAME_BYTES_MAX + 32 * 1024 * 1024
"""Of all frames of a message: the largest value in its elements, and a header."""

SCRATCH_BYTES = 256 * 1024
"""What one read takes at most."""

LARGE_BYTES_MIN = 32 * 1024
"""A frame larger than this, of which not all has come, is received where it stays."""

FRAME_BYTES_MORE = 64
"""What keeping a frame takes beside its bytes, about."""

_MORE, _LONG, _COMMAND = 1, 2, 4
_GREETING_BYTES = 64
_SIGNATURE = b"\xff" + (1).to_bytes(8, "big") + b"\x7f"
_VERSION_AT, _MECHANISM_AT = 10, 12
_NULL = b"NULL".ljust(20, b"\0")
_GREETING = (_SIGNATURE + b"\x03\x01" + _NULL).ljust(_GREETING_BYTES, b"\0")
_COMMAND_BYTES_MAX = 64 * 1024
_SHORT_MAX = 255
_HEADER_BYTES_MAX = 9
_FITS: dict[bytes, tuple[bytes, ...]] = {DEALER: (ROUTER,), ROUTER: (DEALER, b"REQ")}


class NotZmtp(AresError):
    """What a peer sends is not ZMTP 3, or beyond a bound."""


def opening(kind: bytes) -> bytes:
    """What a peer with a socket of this ``kind`` sends first: the greeting and READY."""
    ready = b"\x05READY" + _property(b"Socket-Type", kind) + _property(b"Identity", b"")
    return _GREETING + bytes([_COMMAND, len(ready)]) + ready


def _property(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + len(value).to_bytes(4, "big") + value


def pong(context: bytes) -> bytes:
    """The answer to a PING with this context."""
    body = b"\x04PONG" + context
    return bytes([_COMMAND, len(body)]) + body


def wire(frames: Sequence[Frame]) -> Iterator[bytes]:
    """One message as it goes over the wire, in buffers to be sent in order; large frames are not copied."""
    last = len(frames) - 1
    for position, frame in enumerate(frames):
        size, more = len(frame), _MORE if position < last else 0
        yield bytes((more, size)) if size <= _SHORT_MAX else bytes((more | _LONG,)) + size.to_bytes(8, "big")
        yield frame


class Incoming:
    """Takes the bytes of one connection apart. First :meth:`room` to read into, then at once :meth:`filled`, which gives what became complete.

    ``scratch``: room for one read, which all connections of a thread share: an idle one holds nothing. ``ready``: the handshake is done.
    ``answers``: what must be sent to the peer because of what it sent. ``held_bytes``: of a message that is not complete.
    """

    def __init__(self, kind: bytes, scratch: memoryview) -> None:
        self.ready = False
        self.answers: list[bytes] = []
        self.held_bytes = 0
        self._kind = kind
        self._scratch = scratch
        self._greeted = False
        self._rest = b""
        self._large: Blank | None = None
        self._large_at = 0
        self._more = False
        self._frames: list[Frame] = []
        self._message_bytes = 0

    def room(self) -> memoryview:
        """Where to put what is read next."""
        return self._scratch if self._large is None else self._large.view[self._large_at :]

    def filled(self, count: int) -> list[list[Frame]]:
        """``count`` bytes were put there; the messages that are complete now. Raises :class:`NotZmtp`: hang up."""
        if self._large is not None:
            self._large_at += count
            if self._large_at < len(self._large.view):
                return []
            frame, self._large = self._large.bytes(), None
            return [self._taken()] if self._keep(frame) else []
        read = self._scratch[:count]
        view = memoryview(self._rest + read) if self._rest else read
        start = 0 if self._greeted else self._greet(view)
        messages: list[list[Frame]] = []
        if self._greeted:
            start = self._take_apart(view, start, messages)
        self._rest = bytes(view[start:])
        self.held_bytes = self._message_bytes + (len(self._rest) if self._large is None else len(self._large.view))
        return messages

    def _greet(self, view: memoryview) -> int:
        """Where the peer's greeting ends; 0 as long as it is not here."""
        have = len(view)
        if view[0] != 0xFF or (have > 9 and view[9] != 0x7F):
            raise NotZmtp("it does not speak ZMTP")
        if have > _VERSION_AT and view[_VERSION_AT] < 3:
            raise NotZmtp(f"it speaks version {view[_VERSION_AT]} of ZMTP, and 3 is spoken here")
        if have < _GREETING_BYTES:
            return 0
        mechanism = bytes(view[_MECHANISM_AT : _MECHANISM_AT + 20])
        if mechanism != _NULL:
            wanted = mechanism.rstrip(b"\0").decode("ascii", "replace")
            raise NotZmtp(f"it wants the security mechanism {wanted!r}, and nobody has keys here")
        self._greeted = True
        return _GREETING_BYTES

    def _take_apart(self, view: memoryview, start: int, messages: list[list[Frame]]) -> int:
        """Take frames from ``start`` on; returns where what is left begins: an incomplete frame, unless it is a large one."""
        have = len(view)
        while have - start >= 2:
            flags = view[start]
            if flags & ~(_MORE | _LONG | _COMMAND):
                raise NotZmtp(f"a frame with flags {flags}")
            if not flags & _LONG:
                size, body = view[start + 1], start + 2
            elif have - start >= _HEADER_BYTES_MAX:
                size, body = int.from_bytes(view[start + 1 : start + 9], "big"), start + 9
            else:
                break
            self._check(flags, size)
            end = body + size
            if end > have:
                if size <= LARGE_BYTES_MIN or flags & _COMMAND:
                    break
                self._begin_large(view[body:], size, bool(flags & _MORE))
                return have
            start = end
            if flags & _COMMAND:
                self._command(bytes(view[body:end]))
                continue
            self._more = bool(flags & _MORE)
            if self._keep(bytes(view[body:end])):
                messages.append(self._taken())
        return start

    def _check(self, flags: int, size: int) -> None:
        if flags & _COMMAND:
            if size > _COMMAND_BYTES_MAX:
                raise NotZmtp(f"a command of {size} bytes")
        elif not self.ready:
            raise NotZmtp("a message before the handshake")
        elif size > FRAME_BYTES_MAX or self._message_bytes + size > MESSAGE_BYTES_MAX:
            raise NotZmtp(f"a frame of {size} bytes in a message that has {self._message_bytes} already")

    def _begin_large(self, first: memoryview, size: int, more: bool) -> None:
        large = Blank(size)
        large.view[: len(first)] = first
        self._large, self._large_at, self._more = large, len(first), more

    def _keep(self, frame: Frame) -> bool:
        """Whether the message is complete with it."""
        self._frames.append(frame)
        self._message_bytes += len(frame) + FRAME_BYTES_MORE
        if len(self._frames) > FRAMES_MAX:
            raise NotZmtp(f"a message of more than {FRAMES_MAX} frames")
        return not self._more

    def _taken(self) -> list[Frame]:
        frames, self._frames, self._message_bytes, self.held_bytes = self._frames, [], 0, 0
        return frames

    def _command(self, body: bytes) -> None:
        name, rest = body[1 : 1 + body[0]] if body else b"", body[1 + body[0] :] if body else b""
        if name == b"READY" and not self.ready:
            self._meet(_properties(rest))
        elif name == b"PING" and self.ready and len(rest) >= 2:
            self.answers.append(pong(rest[2:18]))
        elif name == b"ERROR":
            raise NotZmtp(f"it refuses: {rest[1:].decode('ascii', 'replace')[:100]!r}")
        elif not self.ready:
            raise NotZmtp(f"the command {name[:20]!r} in the handshake")

    def _meet(self, properties: dict[bytes, bytes]) -> None:
        theirs = properties.get(b"socket-type", b"")
        if theirs not in _FITS[self._kind]:
            raise NotZmtp(f"a socket of type {theirs[:20]!r} instead of {_FITS[self._kind][0].decode()}")
        self.ready = True


def _properties(body: bytes) -> dict[bytes, bytes]:
    """Of a READY command, by lower-case name."""
    found = {}
    while body:
        name_end = 1 + body[0]
        size = int.from_bytes(body[name_end : name_end + 4], "big")
        value_end = name_end + 4 + size
        if value_end > len(body):
            raise NotZmtp("a handshake that ends in the middle of a property")
        found[body[1:name_end].lower()] = body[name_end + 4 : value_end]
        body = body[value_end:]
    return found
