"""CurveZMQ (ZeroMQ RFC 26), without I/O: the handshake of either side, and its messages.

    client                                   server
      HELLO: its transient key, and a box that only a client expecting this server's key can make
                                               WELCOME: the server's transient key, and a cookie
      INITIATE: the cookie, its permanent key, and a vouch: the permanent key vouches
        for the transient key, to this server
                                               READY, or ERROR if the permanent key is refused
      MESSAGE ...                              MESSAGE ...

All bytes after HELLO are secret between the two transient keys, which end with the connection: a
permanent key that becomes known opens no recorded connection. Each side counts its nonces up and
takes only a nonce higher than the previous nonce, hence no message can be sent twice or in another
order. The server keeps its transient key in the cookie, under a key of the connection. PyNaCl has
the cryptography; this module has the order of messages and the checks. The bytes on the wire equal
libzmq's, and the peer may be libzmq.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from nacl._sodium import ffi, lib
from nacl.bindings import (
    crypto_box_beforenm,
    crypto_box_easy_afternm,
    crypto_box_keypair,
    crypto_box_open_easy_afternm,
    crypto_secretbox_easy,
    crypto_secretbox_open_easy,
    randombytes,
)
from nacl.exceptions import CryptoError

from ares.model.codec import Frame
from ares.net.zmtp.frames import (
    COMMAND_FLAG,
    LONG_FLAG,
    MORE_FLAG,
    SHORT_MAX,
    Handshake,
    NotAdmitted,
    NotZmtp,
    framed,
    greeting,
    refusal,
)

BOX_BYTES_MORE = 16
"""Size of a box beyond the content: the authenticator, which comes first."""

_from_buffer = ffi.from_buffer
_seal = lib.crypto_box_easy_afternm
_unseal = lib.crypto_box_open_easy_afternm

FROM_CLIENT, FROM_SERVER = b"CurveZMQMESSAGEC", b"CurveZMQMESSAGES"
"""Prefixes of nonces, by sender."""

_KEY_BYTES = 32
_COUNT_BYTES = 8
_MESSAGE_COMMAND = b"\x07MESSAGE"
_BOX_AT = len(_MESSAGE_COMMAND) + _COUNT_BYTES
_CONTENT_AT = _BOX_AT + BOX_BYTES_MORE + 1
"""Position of the content in a MESSAGE; a byte of flags precedes the content in the box."""

_SEALED_MORE, _SEALED_COMMAND = 1, 2
_ROOM = [bytes(BOX_BYTES_MORE) + bytes([flags]) for flags in range(4)]
_OPENED = [0, MORE_FLAG, COMMAND_FLAG, MORE_FLAG | COMMAND_FLAG]
"""Flags of a frame, by the flags in the box."""

METADATA_BYTES_MAX = 1024
"""Bytes of a peer's properties in the handshake."""

_LONG_NONCE = 16
_VERSION = b"\x01\x00"
_HELLO_COMMAND, _WELCOME_COMMAND, _INITIATE_COMMAND, _READY_COMMAND = (
    b"\x05HELLO",
    b"\x07WELCOME",
    b"\x08INITIATE",
    b"\x05READY",
)
_HELLO_PAD = bytes(72)
_HELLO_SIGNED = bytes(64)
_HELLO_BYTES = 200
_COOKIE_BYTES = _LONG_NONCE + BOX_BYTES_MORE + 2 * _KEY_BYTES
_VOUCH_BYTES = _LONG_NONCE + BOX_BYTES_MORE + 2 * _KEY_BYTES
_WELCOME_BYTES = len(_WELCOME_COMMAND) + _LONG_NONCE + BOX_BYTES_MORE + _KEY_BYTES + _COOKIE_BYTES
_INITIATE_BYTES = (
    len(_INITIATE_COMMAND)
    + _COOKIE_BYTES
    + _COUNT_BYTES
    + BOX_BYTES_MORE
    + _KEY_BYTES
    + _VOUCH_BYTES
)
_READY_BYTES = len(_READY_COMMAND) + _COUNT_BYTES + BOX_BYTES_MORE
_REFUSED_COMMAND = framed(b"\x05ERROR\x03400")


class KeyPair(Protocol):
    """A permanent key: the secret half, and the public half in hex."""

    @property
    def secret(self) -> bytes: ...

    @property
    def public(self) -> str: ...


class CurveClient(Handshake):
    """The handshake (:class:`ares.net.zmtp.frames.Handshake`) of a client with ``secret``.

    The server owns ``server_key`` (hex). ``metadata``: the client's properties.
    """

    mechanism = b"CURVE"

    def __init__(self, secret: KeyPair, server_key: str, metadata: bytes) -> None:
        self._secret = secret
        self._server = bytes.fromhex(server_key)
        self._metadata = metadata
        self._public, self._transient = crypto_box_keypair()
        self._first = b""
        self._key = b""

    def opening(self) -> bytes:
        count = _counted(1)
        self._first = _shared(self._server, self._transient)
        signature = crypto_box_easy_afternm(_HELLO_SIGNED, b"CurveZMQHELLO---" + count, self._first)
        return greeting(self.mechanism) + framed(
            _HELLO_COMMAND + _VERSION + _HELLO_PAD + self._public + count + signature
        )

    def hear(self, command: bytes) -> bytes:
        if (
            refused := refusal(command)
        ) is not None:  # unsigned; but before INITIATE a server has no key to refuse
            raise (
                refused
                if self._key
                else NotZmtp("it refuses before it has shown to own the server's key")
            )
        if not self._key:
            return self._initiate(command)
        if self.cipher is None:
            return self._finish(command)
        raise _unexpected(command)

    def _initiate(self, welcome: bytes) -> bytes:
        if not welcome.startswith(_WELCOME_COMMAND) or len(welcome) != _WELCOME_BYTES:
            raise _unexpected(welcome)
        nonce, box = (
            welcome[len(_WELCOME_COMMAND) :][:_LONG_NONCE],
            welcome[len(_WELCOME_COMMAND) + _LONG_NONCE :],
        )
        content = _opened(
            box,
            b"WELCOME-" + nonce,
            self._first,
            "a WELCOME that the owner of the server's key did not make",
        )
        transient, cookie = content[:_KEY_BYTES], content[_KEY_BYTES:]
        vouch_nonce = randombytes(_LONG_NONCE)
        vouched = crypto_box_easy_afternm(
            self._public + self._server,
            b"VOUCH---" + vouch_nonce,
            _shared(transient, self._secret.secret),
        )
        self._key = _shared(transient, self._transient)
        count = _counted(2)
        content = bytes.fromhex(self._secret.public) + vouch_nonce + vouched + self._metadata
        return framed(
            _INITIATE_COMMAND
            + cookie
            + count
            + crypto_box_easy_afternm(content, b"CurveZMQINITIATE" + count, self._key)
        )

    def _finish(self, ready: bytes) -> bytes:
        if (
            not ready.startswith(_READY_COMMAND)
            or not _READY_BYTES <= len(ready) <= _READY_BYTES + METADATA_BYTES_MAX
        ):
            raise _unexpected(ready)
        count, box = (
            ready[len(_READY_COMMAND) :][:_COUNT_BYTES],
            ready[len(_READY_COMMAND) + _COUNT_BYTES :],
        )
        self.properties = _opened(
            box, b"CurveZMQREADY---" + count, self._key, "a READY that the server did not seal"
        )
        self.cipher = CurveCipher(
            self._key, FROM_CLIENT, FROM_SERVER, 2, int.from_bytes(count, "big")
        )
        return b""


class CurveServer(Handshake):
    """The handshake (:class:`ares.net.zmtp.frames.Handshake`) of the server with ``secret``.

    ``admits(key)``: whether the client that owns ``key`` (hex) is admitted; called only after the
    client's proof. ``metadata``: the server's properties.
    """

    mechanism = b"CURVE"

    def __init__(self, secret: KeyPair, admits: Callable[[str], bool], metadata: bytes) -> None:
        self._secret = secret
        self._admits = admits
        self._metadata = metadata
        self._cookie_key = b""
        self._received = 0

    def opening(self) -> bytes:
        return greeting(self.mechanism, as_server=True)

    def hear(self, command: bytes) -> bytes:
        if not self._cookie_key:
            return self._welcome(command)
        if self.cipher is None:
            return self._meet(command)
        raise _unexpected(command)

    def _welcome(self, hello: bytes) -> bytes:
        if (
            not hello.startswith(_HELLO_COMMAND + _VERSION + _HELLO_PAD)
            or len(hello) != _HELLO_BYTES
        ):
            raise _unexpected(hello)
        at = len(_HELLO_COMMAND + _VERSION + _HELLO_PAD)
        client, count, signature = (
            hello[at : at + _KEY_BYTES],
            hello[at + _KEY_BYTES :][:_COUNT_BYTES],
            hello[at + _KEY_BYTES + _COUNT_BYTES :],
        )
        first = _shared(client, self._secret.secret)
        if (
            _opened(
                signature,
                b"CurveZMQHELLO---" + count,
                first,
                "a HELLO for the owner of another key",
            )
            != _HELLO_SIGNED
        ):
            raise _unexpected(hello)
        self._received = int.from_bytes(count, "big")
        public, transient = crypto_box_keypair()
        self._cookie_key, cookie_nonce, nonce = (
            randombytes(_KEY_BYTES),
            randombytes(_LONG_NONCE),
            randombytes(_LONG_NONCE),
        )
        cookie = cookie_nonce + crypto_secretbox_easy(
            client + transient, b"COOKIE--" + cookie_nonce, self._cookie_key
        )
        return framed(
            _WELCOME_COMMAND
            + nonce
            + crypto_box_easy_afternm(public + cookie, b"WELCOME-" + nonce, first)
        )

    def _meet(self, initiate: bytes) -> bytes:
        if (
            not initiate.startswith(_INITIATE_COMMAND)
            or not _INITIATE_BYTES <= len(initiate) <= _INITIATE_BYTES + METADATA_BYTES_MAX
        ):
            raise _unexpected(initiate)
        at = len(_INITIATE_COMMAND) + _COOKIE_BYTES
        cookie, count, box = (
            initiate[len(_INITIATE_COMMAND) : at],
            initiate[at : at + _COUNT_BYTES],
            initiate[at + _COUNT_BYTES :],
        )
        client, transient = self._of_cookie(cookie)
        received = int.from_bytes(count, "big")
        if received <= self._received:
            raise NotZmtp("an INITIATE that came before, or out of order")
        key = _shared(client, transient)
        content = _opened(
            box, b"CurveZMQINITIATE" + count, key, "an INITIATE that the client did not seal"
        )
        permanent, vouch, metadata = (
            content[:_KEY_BYTES],
            content[_KEY_BYTES : _KEY_BYTES + _VOUCH_BYTES],
            content[_KEY_BYTES + _VOUCH_BYTES :],
        )
        nonce, vouched = b"VOUCH---" + vouch[:_LONG_NONCE], vouch[_LONG_NONCE:]
        own = bytes.fromhex(self._secret.public)
        if (
            _opened(
                vouched, nonce, _shared(permanent, transient), "a key that the client does not own"
            )
            != client + own
        ):
            raise NotZmtp("a vouch for another connection")
        if not self._admits(permanent.hex()):
            raise NotAdmitted(_REFUSED_COMMAND)
        self.client_key, self.properties = permanent.hex(), metadata
        self.cipher = CurveCipher(key, FROM_SERVER, FROM_CLIENT, 1, received)
        count = _counted(1)
        return framed(
            _READY_COMMAND
            + count
            + crypto_box_easy_afternm(self._metadata, b"CurveZMQREADY---" + count, key)
        )

    def _of_cookie(self, cookie: bytes) -> tuple[bytes, bytes]:
        """Return the client's public transient key, and our secret one."""
        nonce, box = cookie[:_LONG_NONCE], cookie[_LONG_NONCE:]
        try:
            content = crypto_secretbox_open_easy(box, b"COOKIE--" + nonce, self._cookie_key)
        except CryptoError as error:
            raise NotZmtp("a cookie of another connection") from error
        return content[:_KEY_BYTES], content[_KEY_BYTES:]


def _unexpected(command: bytes) -> NotZmtp:
    return NotZmtp(
        f"the command {command[1 : 1 + min(command[0], 20)] if command else b''!r}, of "
        f"{len(command)} bytes, in the handshake"
    )


def _counted(number: int) -> bytes:
    return number.to_bytes(_COUNT_BYTES, "big")


def _shared(public: bytes, secret: bytes) -> bytes:
    """Return the key of boxes between two keys."""
    try:
        return crypto_box_beforenm(public, secret)
    except CryptoError as error:
        raise NotZmtp("a public key that is none") from error


def _opened(box: bytes, nonce: bytes, key: bytes, otherwise: str) -> bytes:
    try:
        return crypto_box_open_easy_afternm(box, nonce, key)
    except CryptoError as error:
        raise NotZmtp(otherwise) from error


class CurveCipher:
    """The encryption of a connection after its handshake: MESSAGE commands with sealed frames.

    ``key``: made of both transient keys; ``ours`` and ``theirs``: the prefixes of nonces; ``sent``,
    ``received``: the last nonces of the handshake.

    Boxes are made and opened in place, by libsodium's own functions. PyNaCl's functions return each
    message in new memory, cleared first and copied at the end: this takes 1.2 to 1.8 times as long
    for a frame of 40 to 1,000 bytes, and 1.3 to 2.4 times for opening a mebibyte. Like any function
    of C, libsodium's functions write to any given address, and read keys (32 bytes) and nonces (24)
    however long they are.
    """

    overhead_bytes = _CONTENT_AT
    """Most bytes of a frame beside its content."""

    def __init__(self, key: bytes, ours: bytes, theirs: bytes, sent: int, received: int) -> None:
        assert len(key) == _KEY_BYTES, "libsodium takes its word for it"
        self._key = key
        self._ours = ours
        self._theirs = theirs
        self._sent = sent
        self._received = received.to_bytes(_COUNT_BYTES, "big")

    def seal(self, frames: Sequence[Frame]) -> Iterator[bytearray]:
        """Yield a message in its form on the wire.

        The buffers are to be sent in order, and before any buffer sealed later.
        """
        last = len(frames) - 1
        for position, frame in enumerate(frames):
            yield self._sealed(frame, _SEALED_MORE if position < last else 0)

    def seal_command(self, command: bytes) -> bytearray:
        """Return a command in its form on the wire."""
        return self._sealed(command, _SEALED_COMMAND)

    def _sealed(self, frame: Frame, flags: int) -> bytearray:
        """Return a sealed frame; the content is copied once, to the place of sealing."""
        self._sent += 1
        count = self._sent.to_bytes(_COUNT_BYTES, "big")
        size = _CONTENT_AT + len(frame)
        head = (
            bytes((0, size)) if size <= SHORT_MAX else bytes((LONG_FLAG,)) + size.to_bytes(8, "big")
        )
        memory = bytearray().join((head, _MESSAGE_COMMAND, count, _ROOM[flags], frame))
        box = _from_buffer(memory) + len(head) + _BOX_AT
        _seal(box, box + BOX_BYTES_MORE, 1 + len(frame), self._ours + count, self._key)
        return memory

    def open(self, memory: memoryview, start: int, end: int) -> tuple[int, int]:
        """Open the frame whose body lies from ``start`` to ``end``, in place.

        Returns its flags and the start of its content, which ends at ``end``. Raises NotZmtp.
        """
        head = bytes(memory[start : start + _BOX_AT])
        if end - start < _CONTENT_AT or not head.startswith(_MESSAGE_COMMAND):
            raise NotZmtp("a command other than MESSAGE after the handshake")
        if not 0 <= start < end <= len(memory):
            raise IndexError("a box that does not lie in its memory")
        count = head[len(_MESSAGE_COMMAND) :]
        if count <= self._received:
            raise NotZmtp("a message that came before, or out of order")
        box = _from_buffer(memory) + start + _BOX_AT
        if (
            _unseal(
                box + BOX_BYTES_MORE, box, end - start - _BOX_AT, self._theirs + count, self._key
            )
            != 0
        ):
            raise NotZmtp("a message that was not sealed by the peer")
        self._received = count
        content = start + _CONTENT_AT
        flags = memory[content - 1]
        if flags >= len(_OPENED):
            raise NotZmtp(f"a sealed frame with flags {flags}")
        return _OPENED[flags], content
