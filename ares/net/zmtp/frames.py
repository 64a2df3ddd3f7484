"""ZMTP 3.1 on the wire (ZeroMQ RFC 37), without I/O: greeting, handshake, frames and messages.

NULL, the mechanism without keys, is here; CURVE is in ares/net/zmtp/curve.py. libzmq's work behind
DEALER and ROUTER sockets costs a batch four changes of threads, many times the cost of answering
it. Spoken by the event loop itself, the protocol costs none of them, and every bound is ours: on
frames, on whole messages, on connections. Peers on libzmq notice no difference.
"""

import ctypes
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Protocol, cast

from ares.model.codec import (
    FRAMES_MAX,
    HEADER_BYTES_MAX,
    VALUE_BYTES_MAX,
    Frame,
    frame_bytes_max,
)
from ares.model.errors import STARTING, AresError

DEALER = b"DEALER"
ROUTER = b"ROUTER"

MORE_FLAG, LONG_FLAG, COMMAND_FLAG = 1, 2, 4
"""Flags of a frame."""

GREETING_BYTES = 64
SHORT_MAX = 255
GREETING_SIGNATURE = b"\xff" + (1).to_bytes(8, "big") + b"\x7f"
_AS_SERVER_AT = 32
_PROPERTY_NAME = re.compile(rb"[a-z0-9._+-]{1,255}")
_SITE = re.compile(rb"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_NUMBER = re.compile(rb"[1-9][0-9]{0,9}")
_SIZE_BYTES = 4

SCRATCH_BYTES = 256 * 1024
"""Most bytes of a read."""

LARGE_FRAME_BYTES_MIN = 32 * 1024
"""Size of a frame above which an incomplete frame is received into its final memory."""

FRAME_BYTES_MORE = 64
"""Memory for a kept frame in addition to its bytes, roughly."""

FRAMES_AT_ONCE = 512
"""Frames and commands taken apart at a time; they may have two bytes each, and each takes
microseconds.
"""

MECHANISM_AT = 12
"""Position of the mechanism in a greeting."""

_VERSION_AT, _MECHANISM_BYTES = 10, 20
_COMMAND_BYTES_MAX = 64 * 1024
_HANDSHAKE_BYTES_MAX = 4 * 1024
_HEADER_BYTES_MAX = 9
_HEADS_KEPT = 1024
_FLAGS = frozenset(
    {0, MORE_FLAG, LONG_FLAG, MORE_FLAG | LONG_FLAG, COMMAND_FLAG, COMMAND_FLAG | LONG_FLAG}
)
_FLAGS_SEALED = frozenset({0, LONG_FLAG})
"""Outer flags of a sealed frame; the other flags are inside."""

_FITS: dict[bytes, tuple[bytes, ...]] = {DEALER: (ROUTER,), ROUTER: (DEALER, b"REQ")}

_new_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize
_new_bytes.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t]
_new_bytes.restype = ctypes.py_object
_BYTES_CONTENT_AT = bytes.__basicsize__ - 1


REASON_CHARACTERS_MAX = 100
"""Characters of a reason that are shown."""


class NotZmtp(AresError):
    """The peer's bytes are not ZMTP 3, or exceed a bound, or break a rule."""


class WrongMechanism(NotZmtp):
    """The peer speaks another security mechanism."""


class TurnedAway(NotZmtp):
    """The peer refuses to speak with us.

    ``code``: the peer's word, ``400`` for an unknown key of ours.
    """

    def __init__(self, code: str) -> None:
        is_sentence = code.startswith(STARTING) and code.isprintable()
        super().__init__(code if is_sentence else f"it refuses: {code!r}")
        self.code = code


class NotAdmitted(NotZmtp):
    """We refuse to speak with the peer. ``answer``: the bytes for the peer."""

    def __init__(self, answer: bytes, why: str = "its key is not known") -> None:
        super().__init__(why)
        self.answer = answer


class Cipher(Protocol):
    """The encryption of a connection after its handshake; see ares/net/zmtp/curve_ciphers.py."""

    overhead_bytes: int
    """Most bytes of a frame beside its content."""

    def seal(self, frames: Sequence[Frame]) -> Iterator[bytearray]: ...

    def seal_command(self, command: bytes) -> bytearray: ...

    def open(self, memory: memoryview, start: int, end: int) -> tuple[int, int, int]: ...


class Handshake(ABC):
    """A side of a connection's handshake.

    ``properties``: the peer's properties, once received: the handshake is done at this point,
    except for the last answer. ``cipher``: the encryption from then on; None: messages are sent
    unencrypted. ``client_key``: the key (hex) which the client has proved to own; empty in a
    cluster without keys.
    """

    mechanism: bytes
    properties: bytes | None = None
    cipher: Cipher | None = None
    client_key = ""

    @abstractmethod
    def opening(self) -> bytes:
        """Return the bytes sent first, before any byte has come."""

    @abstractmethod
    def hear(self, command: bytes) -> bytes:
        """Take the peer's next command; return the bytes to be sent, if any.

        Raises :class:`NotZmtp`: hang up.
        """


class NullHandshake(Handshake):
    """The handshake in a cluster without keys; its arguments are those of :func:`properties`."""

    mechanism = b"NULL"

    def __init__(self, kind: bytes, site: str = "", value_bytes: int = 0) -> None:
        self._own = properties(kind, site, value_bytes)

    def opening(self) -> bytes:
        return greeting(self.mechanism) + framed(b"\x05READY" + self._own)

    def hear(self, command: bytes) -> bytes:
        if (refused := refusal(command)) is not None:
            raise refused
        name, rest = divided(command)
        if name != b"READY":
            raise NotZmtp(f"the command {name[:20]!r} in the handshake")
        self.properties = rest
        return b""


def greeting(mechanism: bytes, as_server: bool = False) -> bytes:
    """Return the first 64 bytes of either side."""
    head = (GREETING_SIGNATURE + b"\x03\x01" + mechanism.ljust(20, b"\0")).ljust(
        _AS_SERVER_AT, b"\0"
    )
    return (head + bytes([as_server])).ljust(GREETING_BYTES, b"\0")


def properties(kind: bytes, site: str = "", value_bytes: int = 0) -> bytes:
    """Return the properties of a socket of this kind.

    A client sends its ``site`` (docs/sites.md), and a server the bytes of the largest value taken.
    A client also says that it shows a person the reason of a refusal, and tries again.
    """
    return (
        property_of(b"Socket-Type", kind)
        + property_of(b"Identity", b"")
        + (property_of(b"Ares-Reasons", b"1") if kind == DEALER else b"")
        + (property_of(b"Ares-Site", site.encode()) if site else b"")
        + (property_of(b"Ares-Value-Bytes", b"%d" % value_bytes) if value_bytes else b"")
    )


def site_in(found: Mapping[bytes, bytes]) -> str:
    """Return the site among a peer's properties; empty without a valid name of a site."""
    site = found.get(b"ares-site", b"")
    return site.decode("ascii") if _SITE.fullmatch(site) else ""


def understands_reasons(found: Mapping[bytes, bytes]) -> bool:
    """Return whether a peer tries again after a refusal with a reason."""
    return found.get(b"ares-reasons") == b"1"


def value_bytes_in(found: Mapping[bytes, bytes]) -> int:
    """Return the largest value taken by a peer; VALUE_BYTES_MAX without a valid number."""
    given = found.get(b"ares-value-bytes", b"")
    return int(given) if _NUMBER.fullmatch(given) else VALUE_BYTES_MAX


def property_of(name: bytes, value: bytes) -> bytes:
    """Return a property in its form in the handshake."""
    return bytes([len(name)]) + name + len(value).to_bytes(4, "big") + value


def framed(command: bytes) -> bytes:
    """Return a command in its form on the wire."""
    if len(command) <= SHORT_MAX:
        return bytes([COMMAND_FLAG, len(command)]) + command
    return bytes([COMMAND_FLAG | LONG_FLAG]) + len(command).to_bytes(8, "big") + command


def divided(command: bytes) -> tuple[bytes, bytes]:
    """Return the name of a command, and the following bytes."""
    return (command[1 : 1 + command[0]], command[1 + command[0] :]) if command else (b"", b"")


def refusal(command: bytes) -> TurnedAway | None:
    """Return the refusal in a command ERROR; None for other commands."""
    name, rest = divided(command)
    if name != b"ERROR":
        return None
    if not rest or len(rest) != 1 + rest[0]:
        raise NotZmtp("an ERROR with a reason of another length than it says")
    return TurnedAway(rest[1:].decode("ascii", "replace")[:REASON_CHARACTERS_MAX])


def error_command(reason: str) -> bytes:
    """Return the command ERROR in its form on the wire."""
    said = reason.encode("ascii", "replace")[:REASON_CHARACTERS_MAX]
    return framed(b"\x05ERROR" + bytes([len(said)]) + said)


def parsed(metadata: bytes) -> dict[bytes, bytes]:
    """Return properties by lower-case name: names are equal whatever their case.

    Raises :class:`NotZmtp` for metadata against RFC 37, and for a repeated name.
    """
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(metadata):
        value_at = at + 1 + metadata[at] + _SIZE_BYTES
        name = metadata[at + 1 : value_at - _SIZE_BYTES].lower()
        end = value_at + int.from_bytes(metadata[value_at - _SIZE_BYTES : value_at], "big")
        if end > len(metadata):
            raise NotZmtp("a handshake that ends in the middle of a property")
        if not _PROPERTY_NAME.fullmatch(name):
            raise NotZmtp(f"a property with the name {name[:20]!r}")
        if name in found:
            raise NotZmtp(f"two properties with the name {name[:20]!r}")
        found[name] = metadata[value_at:end]
        at = end
    return found


@lru_cache(_HEADS_KEPT)
def head(size: int, more: int = 0) -> bytes:
    """Return the bytes before a frame of ``size`` bytes.

    ``more``: MORE_FLAG if another frame of the same message follows.
    """
    return (
        bytes((more, size))
        if size <= SHORT_MAX
        else bytes((more | LONG_FLAG,)) + size.to_bytes(8, "big")
    )


def wire(frames: Sequence[Frame]) -> Iterator[bytes]:
    """Yield a message in its form on the wire, in buffers to be sent in order.

    Large frames are not copied.
    """
    last = len(frames) - 1
    for position, frame in enumerate(frames):
        yield head(len(frame), MORE_FLAG if position < last else 0)
        yield frame


class BlankMemory:
    """Memory for ``size`` bytes, more than 1, undefined until filled through ``view``.

    Afterwards :meth:`bytes` returns the fixed bytes. A bytearray begins with a pass over memory for
    its zeros, and bytes made from a bytearray are another pass: receiving 256 KiB takes 1.6 to 1.9
    times as long with these passes, and 1 to 16 MiB 2 to 3.5 times. CPython lets its own modules
    make a bytes object and fill the object before any other code sees it.
    """

    __slots__ = ("_bytes", "view")

    def __init__(self, size: int) -> None:
        self._bytes: bytes = _new_bytes(None, size)
        self.view = memoryview(
            (ctypes.c_char * size).from_address(id(self._bytes) + _BYTES_CONTENT_AT)
        ).cast("B")

    def bytes(self) -> bytes:
        """Return the bytes after all of ``view`` is filled; end writes to ``view``."""
        self.view.release()
        return self._bytes


class FrameParser:
    """The parser of a connection's bytes.

    First :meth:`room` to read into, and at once :meth:`filled`, which returns the complete
    messages. As long as ``behind``, frames are left for another :meth:`filled`, of no bytes, before
    the next read.

    ``scratch``: room for a read, shared by all connections of a thread: an idle connection holds no
    memory. ``ready``: the handshake is done, and the client has proved to own ``client_key``
    (empty: a cluster without keys), and has given ``site``. ``peer_value_bytes``: the largest value
    taken by the peer. ``cipher``: seals messages from this moment on, if set. ``answers``: bytes to
    be sent to the peer as an answer; ``after_greeting`` among them, once the peer's greeting is
    here and fits. ``held_bytes``: of an incomplete message. ``plain``: the handshake is done, and
    messages are sent unencrypted. ``value_bytes``: bytes of the largest value that may come.
    """

    def __init__(
        self,
        kind: bytes,
        scratch: memoryview,
        handshake: Handshake,
        value_bytes: int = VALUE_BYTES_MAX,
    ) -> None:
        self.ready = False
        self.client_key = self.site = ""
        self.peer_value_bytes = VALUE_BYTES_MAX
        self.cipher: Cipher | None = None
        self.answers: list[bytes | bytearray] = []
        self.after_greeting = b""
        self.held_bytes = 0
        self.behind = False
        self._kind = kind
        self.scratch = scratch
        self.handshake: Handshake | None = handshake
        self._mechanism = handshake.mechanism
        self._greeted = False
        self._rest: bytes | bytearray | memoryview = b""
        self.plain = False
        self.large: BlankMemory | None = None
        self._large_at = 0
        self._more = False
        self._frames: list[Frame] = []
        self._message_bytes = 0
        self._frame_bytes_max = frame_bytes_max(value_bytes)
        self._message_bytes_max = self._frame_bytes_max + HEADER_BYTES_MAX

    @property
    def progress(self) -> int:
        """Return the bytes received of a message of several pieces; 0 between messages."""
        return self.held_bytes and self._message_bytes + self._large_at + 1

    def room(self) -> memoryview:
        """Return the memory for the next read: ``scratch``, or the rest of a ``large`` frame."""
        return self.scratch if self.large is None else self.large.view[self._large_at :]

    def filled(self, count: int) -> list[list[Frame]]:
        """Take ``count`` bytes from :meth:`room`; return the messages complete now.

        Raises :class:`NotZmtp`: hang up.
        """
        messages: list[list[Frame]] = []
        if self.large is not None:
            self._large_at += count
            if self._large_at == len(self.large.view):
                self._end_large(self.large, messages)
            return messages
        start, scratch = 0, self.scratch
        if self.plain and not self.held_bytes:
            for _ in range(FRAMES_AT_ONCE):  # the usual case: messages of a single frame
                if count - start < _HEADER_BYTES_MAX:
                    break
                flags = scratch[start]
                if flags == 0:
                    body = start + 2
                    end = body + scratch[start + 1]
                elif flags == LONG_FLAG:
                    body = start + _HEADER_BYTES_MAX
                    end = body + int.from_bytes(scratch[start + 1 : body], "big")
                else:
                    break
                if end > count:
                    break
                messages.append([scratch[body:end].tobytes()])
                start = end
            if start == count:
                return messages
        read, own = scratch[start:count], self.behind
        if own:
            view = memoryview(self._rest)
        elif self._rest:
            view = memoryview(bytearray(self._rest) + read)
        else:
            view = read
        start = 0 if self._greeted else self._greet(view)
        self.behind = False
        if self._greeted:
            start = self._take_apart(view, start, messages)
        self._rest = view[start:] if own and self.behind else bytearray(view[start:])
        self.held_bytes = self._message_bytes + (
            len(self._rest) if self.large is None else len(self.large.view)
        )
        return messages

    def _greet(self, view: memoryview) -> int:
        """Return the end of the peer's greeting; 0 as long as it is incomplete."""
        have = len(view)
        if view[0] != 0xFF or (have > 9 and view[9] != 0x7F):
            raise NotZmtp("it does not speak ZMTP")
        if have > _VERSION_AT and view[_VERSION_AT] < 3:
            raise NotZmtp(f"it speaks version {view[_VERSION_AT]} of ZMTP, and 3 is spoken here")
        if have < GREETING_BYTES:
            return 0
        mechanism = bytes(view[MECHANISM_AT : MECHANISM_AT + _MECHANISM_BYTES]).rstrip(b"\0")
        if mechanism != self._mechanism:
            known = (
                "this process uses no keys"
                if self._mechanism == b"NULL"
                else f"here it is {self._mechanism.decode()}: every process and client has a key"
            )
            raise WrongMechanism(
                f"it wants the security mechanism {mechanism.decode('ascii', 'replace')!r}, and "
                f"{known}"
            )
        self._greeted = True
        if self.after_greeting:
            self.answers.append(self.after_greeting)
        return GREETING_BYTES

    def _take_apart(self, view: memoryview, start: int, messages: list[list[Frame]]) -> int:
        """Take frames from ``start`` on; return the start of the rest.

        The rest is an incomplete frame, unless it is a large one.
        """
        have, left = len(view), FRAMES_AT_ONCE - len(messages)
        while have - start >= 2:
            if not left:
                self.behind = True
                break
            left -= 1
            flags = view[start]
            if flags not in (_FLAGS if self.cipher is None else _FLAGS_SEALED):
                raise NotZmtp(f"a frame with flags {flags}")
            if not flags & LONG_FLAG:
                size, body = view[start + 1], start + 2
            elif have - start >= _HEADER_BYTES_MAX:
                size, body = int.from_bytes(view[start + 1 : start + 9], "big"), start + 9
            else:
                break
            self._check(flags, size)
            end = body + size
            if end > have:
                if size <= LARGE_FRAME_BYTES_MIN or flags & COMMAND_FLAG:
                    break
                large, self._large_at, self._more = (
                    BlankMemory(size),
                    have - body,
                    bool(flags & MORE_FLAG),
                )
                large.view[: self._large_at] = view[body:]
                self.large = large
                return have
            start = end
            if self.cipher is not None:
                flags, body, end = self.cipher.open(view, body, end)
            if flags & COMMAND_FLAG:
                self._command(bytes(view[body:end]))
                continue
            self._more = bool(flags & MORE_FLAG)
            self._keep(bytes(view[body:end]), messages)
        return start

    def _check(self, flags: int, size: int) -> None:
        if flags & COMMAND_FLAG:
            if size > (_COMMAND_BYTES_MAX if self.ready else _HANDSHAKE_BYTES_MAX):
                raise NotZmtp(f"a command of {size} bytes")
            return
        if not self.ready:
            raise NotZmtp("a message before the handshake")
        content = size if self.cipher is None else size - self.cipher.overhead_bytes
        if (
            content > self._frame_bytes_max
            or self._message_bytes + content > self._message_bytes_max
        ):
            raise NotZmtp(
                f"a frame of {size} bytes in a message that has {self._message_bytes} already"
            )

    def _end_large(self, large: BlankMemory, messages: list[list[Frame]]) -> None:
        self.large = None
        if self.cipher is None:
            frame = large.bytes()
        else:
            flags, start, end = self.cipher.open(large.view, 0, len(large.view))
            if flags & COMMAND_FLAG:
                raise NotZmtp(f"a command of {len(large.view)} bytes")
            self._more = bool(flags & MORE_FLAG)
            opened = memoryview(large.bytes())[start:end]  # a part is not copied, a header is bytes
            frame = cast(Frame, opened) if self._frames else bytes(opened)
        self._keep(frame, messages)

    def _keep(self, frame: Frame, messages: list[list[Frame]]) -> None:
        """Keep a frame; a message complete with this frame joins ``messages``."""
        self._frames.append(frame)
        self._message_bytes += len(frame) + FRAME_BYTES_MORE
        if len(self._frames) > FRAMES_MAX:
            raise NotZmtp(f"a message of more than {FRAMES_MAX} frames")
        if not self._more:
            messages.append(self._frames)
            self._frames, self._message_bytes, self.held_bytes = [], 0, 0

    def _command(self, body: bytes) -> None:
        if self.handshake is not None:
            self._shake(self.handshake, body)
            return
        if (refused := refusal(body)) is not None:
            raise refused
        name, rest = divided(body)
        if name == b"PING" and len(rest) >= 2:
            answer = b"\x04PONG" + rest[2:18]
            self.answers.append(
                framed(answer) if self.cipher is None else self.cipher.seal_command(answer)
            )

    def _shake(self, handshake: Handshake, command: bytes) -> None:
        answer = handshake.hear(command)
        if handshake.properties is not None:
            found = parsed(handshake.properties)
            theirs = found.get(b"socket-type", b"")
            if theirs not in _FITS[self._kind]:
                raise NotZmtp(
                    f"a socket of type {theirs[:20]!r} instead of {_FITS[self._kind][0].decode()}"
                )
            self.ready, self.cipher, self.client_key, self.handshake = (
                True,
                handshake.cipher,
                handshake.client_key,
                None,
            )
            self.site, self.peer_value_bytes = site_in(found), value_bytes_in(found)
            self.plain = handshake.cipher is None
        if answer:
            self.answers.append(answer)
