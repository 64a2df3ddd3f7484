"""CurveZMQ (ZeroMQ RFC 26), without I/O: the handshake of either side, and its messages.

    client                                   server
      HELLO: its transient key, and a box that only a client expecting this server's key can make
                                               WELCOME: the server's transient key, and a cookie
      INITIATE: the cookie, its permanent key, and a vouch: the permanent key vouches
        for the transient key, to this server
                                               READY, or ERROR if the permanent key is refused
      MESSAGE ...                              MESSAGE ...

All bytes after HELLO are secret between the two transient keys, which end with the connection: a
permanent key that becomes known opens no recorded connection. Each side counts its nonces up by
one, and takes only the next nonce of the peer's messages, hence no message can be sent twice, in
another order, or left out. The server keeps its transient key in the cookie, under a key of the
connection. PyNaCl has the cryptography; this module has the order of messages and the checks. The
bytes on the wire equal libzmq's, and the peer may be libzmq.

INITIATE and READY carry properties, sealed. A client that can use AES-256-GCM says so there, and a
server that can, too, answers with the same property; from then on both use it in place of the box.
No process between them can change either property, or add one.
"""

from collections.abc import Callable
from typing import Protocol

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

from ares.net.zmtp.curve_ciphers import (
    AUTHENTICATOR_BYTES,
    COUNT_BYTES,
    FROM_CLIENT,
    FROM_SERVER,
    KEY_BYTES,
    CurveCipher,
    GcmCipher,
    has_gcm,
)
from ares.net.zmtp.frames import (
    Handshake,
    NotAdmitted,
    NotZmtp,
    framed,
    greeting,
    parsed,
    property_of,
    refusal,
)

_CIPHER_PROPERTY, _GCM = b"Ares-Cipher", b"aes-256-gcm"

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
_COOKIE_BYTES = _LONG_NONCE + AUTHENTICATOR_BYTES + 2 * KEY_BYTES
_VOUCH_BYTES = _LONG_NONCE + AUTHENTICATOR_BYTES + 2 * KEY_BYTES
_WELCOME_BYTES = (
    len(_WELCOME_COMMAND) + _LONG_NONCE + AUTHENTICATOR_BYTES + KEY_BYTES + _COOKIE_BYTES
)
_INITIATE_BYTES = (
    len(_INITIATE_COMMAND)
    + _COOKIE_BYTES
    + COUNT_BYTES
    + AUTHENTICATOR_BYTES
    + KEY_BYTES
    + _VOUCH_BYTES
)
_READY_BYTES = len(_READY_COMMAND) + COUNT_BYTES + AUTHENTICATOR_BYTES
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
        self._gcm = has_gcm()
        self._metadata = metadata + _cipher_property(self._gcm)
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
        transient, cookie = content[:KEY_BYTES], content[KEY_BYTES:]
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
            ready[len(_READY_COMMAND) :][:COUNT_BYTES],
            ready[len(_READY_COMMAND) + COUNT_BYTES :],
        )
        self.properties = _opened(
            box, b"CurveZMQREADY---" + count, self._key, "a READY that the server did not seal"
        )
        agreed = _names_gcm(self.properties)
        if agreed and not self._gcm:
            raise NotZmtp("a cipher that was not offered")
        self.cipher = _cipher(agreed)(
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
        self._gcm = has_gcm()
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
            hello[at : at + KEY_BYTES],
            hello[at + KEY_BYTES :][:COUNT_BYTES],
            hello[at + KEY_BYTES + COUNT_BYTES :],
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
            randombytes(KEY_BYTES),
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
            initiate[at : at + COUNT_BYTES],
            initiate[at + COUNT_BYTES :],
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
            content[:KEY_BYTES],
            content[KEY_BYTES : KEY_BYTES + _VOUCH_BYTES],
            content[KEY_BYTES + _VOUCH_BYTES :],
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
        agreed = self._gcm and _names_gcm(metadata)
        self.client_key, self.properties = permanent.hex(), metadata
        self.cipher = _cipher(agreed)(key, FROM_SERVER, FROM_CLIENT, 1, received)
        count = _counted(1)
        content = self._metadata + _cipher_property(agreed)
        box = crypto_box_easy_afternm(content, b"CurveZMQREADY---" + count, key)
        return framed(_READY_COMMAND + count + box)

    def _of_cookie(self, cookie: bytes) -> tuple[bytes, bytes]:
        """Return the client's public transient key, and our secret one."""
        nonce, box = cookie[:_LONG_NONCE], cookie[_LONG_NONCE:]
        try:
            content = crypto_secretbox_open_easy(box, b"COOKIE--" + nonce, self._cookie_key)
        except CryptoError as error:
            raise NotZmtp("a cookie of another connection") from error
        return content[:KEY_BYTES], content[KEY_BYTES:]


def _unexpected(command: bytes) -> NotZmtp:
    return NotZmtp(
        f"the command {command[1 : 1 + min(command[0], 20)] if command else b''!r}, of "
        f"{len(command)} bytes, in the handshake"
    )


def _counted(number: int) -> bytes:
    return number.to_bytes(COUNT_BYTES, "big")


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


def _cipher_property(gcm: bool) -> bytes:
    return property_of(_CIPHER_PROPERTY, _GCM) if gcm else b""


def _names_gcm(metadata: bytes) -> bool:
    return parsed(metadata).get(_CIPHER_PROPERTY.lower()) == _GCM


def _cipher(gcm: bool) -> type[CurveCipher | GcmCipher]:
    return GcmCipher if gcm else CurveCipher
