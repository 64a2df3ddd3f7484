"""What the two security mechanisms of ZMTP have in common, and the one that secures nothing: NULL. The other one is in ares/net/zmtp/curve.py."""

import re
from collections.abc import Iterator, Sequence
from typing import Protocol

from ares.model.codec import Frame
from ares.model.errors import AresError

DEALER = b"DEALER"
ROUTER = b"ROUTER"

MORE, LONG, COMMAND = 1, 2, 4
"""Flags of a frame."""

GREETING_BYTES = 64
SHORT_MAX = 255
_SIGNATURE = b"\xff" + (1).to_bytes(8, "big") + b"\x7f"
_AS_SERVER_AT = 32
_NAME = re.compile(rb"[a-z0-9._+-]{1,255}")
_SIZE_BYTES = 4


class NotZmtp(AresError):
    """What a peer sends is not ZMTP 3, or beyond a bound, or not what it must be."""


class WrongMechanism(NotZmtp):
    """The peer speaks another security mechanism."""


class TurnedAway(NotZmtp):
    """The peer refuses to speak with us. ``code``: what it says, ``400`` where our key is not known."""

    def __init__(self, code: str) -> None:
        super().__init__(f"it refuses: {code!r}")
        self.code = code


class NotAdmitted(NotZmtp):
    """We refuse to speak with the peer. ``answer``: what it is to be told."""

    def __init__(self, answer: bytes) -> None:
        super().__init__("its key is not known")
        self.answer = answer


class Traffic(Protocol):
    """How messages are kept secret once the handshake is done."""

    overhead_bytes: int
    """What is in a frame beside its content, at most."""

    def seal(self, frames: Sequence[Frame]) -> Iterator[bytes]:
        """One message as it goes over the wire, in buffers that are to be sent in order, and before what is sealed later."""

    def seal_command(self, command: bytes) -> bytes:
        """A command, likewise."""

    def open(self, memory: memoryview, start: int, end: int) -> tuple[int, int]:
        """The frame whose body lies there: flags, and where its content begins, in place, which ends where the body does. Raises NotZmtp."""


class Handshake(Protocol):
    """One side of one connection's handshake.

    ``properties``: what the peer said of itself, once it said it: the handshake is done then, but for the last answer. ``traffic``: from then on;
    None: messages are sent as they are. ``client_key``: the key (hex) that the client has proved to own; empty where nobody has keys.
    """

    mechanism: bytes
    properties: bytes | None
    traffic: Traffic | None
    client_key: str

    def opening(self) -> bytes:
        """What is sent first, before anything has come."""

    def hear(self, command: bytes) -> bytes:
        """Take the peer's next command; returns what is to be sent, if anything. Raises :class:`NotZmtp`: hang up."""


class Null:
    """The handshake of a socket of this ``kind`` where nobody has keys."""

    mechanism = b"NULL"

    def __init__(self, kind: bytes) -> None:
        self.properties: bytes | None = None
        self.traffic: Traffic | None = None
        self.client_key = ""
        self._kind = kind

    def opening(self) -> bytes:
        return greeting(self.mechanism) + framed(b"\x05READY" + properties(self._kind))

    def hear(self, command: bytes) -> bytes:
        if (refused := refusal(command)) is not None:
            raise refused
        name, rest = divided(command)
        if name != b"READY":
            raise NotZmtp(f"the command {name[:20]!r} in the handshake")
        self.properties = rest
        return b""


def greeting(mechanism: bytes, as_server: bool = False) -> bytes:
    """The first 64 bytes of either side."""
    head = (_SIGNATURE + b"\x03\x01" + mechanism.ljust(20, b"\0")).ljust(_AS_SERVER_AT, b"\0")
    return (head + bytes([as_server])).ljust(GREETING_BYTES, b"\0")


def properties(kind: bytes) -> bytes:
    """What a socket of this kind says of itself."""
    return _property(b"Socket-Type", kind) + _property(b"Identity", b"")


def _property(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + len(value).to_bytes(4, "big") + value


def framed(command: bytes) -> bytes:
    """A command as it goes over the wire."""
    if len(command) <= SHORT_MAX:
        return bytes([COMMAND, len(command)]) + command
    return bytes([COMMAND | LONG]) + len(command).to_bytes(8, "big") + command


def divided(command: bytes) -> tuple[bytes, bytes]:
    """The name of a command, and what follows."""
    return (command[1 : 1 + command[0]], command[1 + command[0] :]) if command else (b"", b"")


def refusal(command: bytes) -> TurnedAway | None:
    """What the peer means by it, if it is the command ERROR."""
    name, rest = divided(command)
    return TurnedAway(_code(rest)) if name == b"ERROR" else None


def _code(rest: bytes) -> str:
    if not rest or len(rest) != 1 + rest[0]:
        raise NotZmtp("an ERROR whose reason is not as long as it says")
    return rest[1:].decode("ascii", "replace")[:100]


def parsed(metadata: bytes) -> dict[bytes, bytes]:
    """Properties by lower-case name: case tells no names apart. Raises :class:`NotZmtp` for what RFC 37 does not allow, and for a name twice."""
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(metadata):
        value_at = at + 1 + metadata[at] + _SIZE_BYTES
        name = metadata[at + 1 : value_at - _SIZE_BYTES].lower()
        end = value_at + int.from_bytes(metadata[value_at - _SIZE_BYTES : value_at], "big")
        if end > len(metadata):
            raise NotZmtp("a handshake that ends in the middle of a property")
        if not _NAME.fullmatch(name):
            raise NotZmtp(f"a property with the name {name[:20]!r}")
        if name in found:
            raise NotZmtp(f"two properties with the name {name[:20]!r}")
        found[name] = metadata[value_at:end]
        at = end
    return found
