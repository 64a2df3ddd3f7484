"""A stranger that speaks ZMTP over a plain socket and writes messages of logs.

The messages follow the table in docs/log.md, without the project's own client. A message is ``[tag,
call, ...]`` in the order of ares/model/log_messages.py; a batch is a single frame, the version and
an array of messages.
"""

import hashlib
import socket
import struct
import time
from typing import Any

import msgspec

READY = b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\0"
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READ_CONFIG_TYPE, WRITE_CONFIG, INTRODUCE, DESCRIBE, ACK, REFUSED, DESCRIPTION = (
    4,
    5,
    8,
    9,
    34,
    36,
    37,
)
APPEND, READ, LOOK, TRIM, SEAL, STAND, FORWARD, COMMITTED, LOOK_ROW, FETCH = range(96, 106)
APPENDED, ENTRIES, LOOKED, TRIMMED, SEALED, STOOD, ROW, FETCHED = range(112, 120)
DONE, GAP = 1, 2
PENDING, FINALIZED = 0, 1


def chain(name: str, servers: list, cluster: bytes, index: int = 0, start: int = 0) -> list:
    """Return the content of a configuration. ``servers`` has [id, address, identity] of each."""
    return ["chain", servers, 1, 0, "", name, index, cluster, b"", start]


def id_of(content: list) -> bytes:
    """Return the id of a configuration."""
    return hashlib.blake2b(
        msgspec.msgpack.encode([*content[:8], content[9]]), digest_size=16
    ).digest()


class Stranger:
    """A connection to ``address``, read only by ``answers``."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.socket.sendall(GREETING)
        self._got = b""
        self._take(64)
        self.socket.sendall(b"\x04" + bytes([len(READY)]) + READY)
        self._frame()

    def __enter__(self) -> "Stranger":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *messages: list) -> None:
        body = b"\x01" + msgspec.msgpack.encode(messages)
        self.socket.sendall(bytes([2]) + struct.pack(">Q", len(body)) + body)

    def answers(self, count: int, patience_s: float = 60) -> list:
        """Return at least `count` messages, or the messages that came in time."""
        found: list[Any] = []
        until = time.monotonic() + patience_s
        while len(found) < count and time.monotonic() < until:
            self.socket.settimeout(max(0.01, until - time.monotonic()))
            try:
                found += msgspec.msgpack.decode(self._frame()[1:])
            except TimeoutError:
                break
        return found

    def ask(self, message: list) -> list:
        """Return the answer to a message."""
        self.send(message)
        return next(
            answer for answer in iter(lambda: self.answers(1)[0], None) if answer[1] == message[1]
        )

    def _take(self, count: int) -> bytes:
        while len(self._got) < count:
            more = self.socket.recv(1 << 20)
            if not more:
                raise ConnectionError("hung up")
            self._got += more
        taken, self._got = self._got[:count], self._got[count:]
        return taken

    def _frame(self) -> bytes:
        flags = self._take(1)[0]
        size = struct.unpack(">Q", self._take(8))[0] if flags & 2 else self._take(1)[0]
        return self._take(size)
