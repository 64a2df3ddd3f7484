"""The encryption of a connection after the handshake of CURVE: MESSAGE commands, sealed frames.

A frame is sealed with the box of CurveZMQ (XSalsa20 and Poly1305) or, if both ends agreed in their
sealed handshake, with AES-256-GCM, which takes a sixth of the time where the processor has
instructions for it. Both have the same size on the wire. Each side counts its frames, and takes
from the peer only the next count, which is in the nonce. Hence no frame can be sent twice, in
another order, or left out: without a message's last frame and the next message's first, the head
of one message would come with the content of the other.

Frames are sealed and opened in place, by libsodium's own functions. PyNaCl's functions return each
message in new memory, cleared first and copied at the end: this takes 1.2 to 1.8 times as long for
a frame of 40 to 1,000 bytes, and 1.3 to 2.4 times for opening a mebibyte. Like any function of C,
libsodium's functions write to any given address, and read keys (32 bytes) and nonces however long
they are.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from nacl._sodium import ffi, lib
from nacl.bindings import sodium_init

from ares.model.codec import Frame
from ares.net.zmtp.frames import COMMAND_FLAG, LONG_FLAG, MORE_FLAG, SHORT_MAX, NotZmtp

AUTHENTICATOR_BYTES = 16
"""Size of a sealed frame beyond its content and flags."""

FROM_CLIENT, FROM_SERVER = b"CurveZMQMESSAGEC", b"CurveZMQMESSAGES"
"""Prefixes of the box's nonces, by sender."""

KEY_BYTES = 32
COUNT_BYTES = 8
"""Size of the count of messages in a nonce."""

_MESSAGE_COMMAND = b"\x07MESSAGE"
_SEALED_AT = len(_MESSAGE_COMMAND) + COUNT_BYTES
_SEALED_MORE, _SEALED_COMMAND = 1, 2
_OPENED = [0, MORE_FLAG, COMMAND_FLAG, MORE_FLAG | COMMAND_FLAG]
"""Flags of a frame, by the flags in the sealed part."""

sodium_init()  # before it, libsodium does not know the processor

_from_buffer = ffi.from_buffer
_box = lib.crypto_box_easy_afternm
_unbox = lib.crypto_box_open_easy_afternm
_encrypt = lib.crypto_aead_aes256gcm_encrypt
_decrypt = lib.crypto_aead_aes256gcm_decrypt


class SealingCipher(ABC):
    """A :class:`ares.net.zmtp.frames.Cipher` which seals flags and content of each frame.

    ``sent``, ``received``: the last counts of the handshake. ``room``, ``tail``: the places of the
    authenticator, of which one is empty: before the flags, and behind the content.
    """

    overhead_bytes = _SEALED_AT + AUTHENTICATOR_BYTES + 1
    """Most bytes of a frame beside its content."""

    def __init__(self, room: bytes, tail: bytes, sent: int, received: int) -> None:
        self._rooms = [room + bytes([flags]) for flags in range(len(_OPENED))]
        self._content_at = _SEALED_AT + len(room) + 1
        self._tail = tail
        self._sent = sent
        self._received = received

    @abstractmethod
    def _seal_in_place(self, place: Any, size: int, count: bytes) -> bool:
        """Seal flags and content, ``size`` bytes with the authenticator, at a C address.

        Returns whether they are sealed.
        """

    @abstractmethod
    def _open_in_place(self, place: Any, size: int, count: bytes) -> bool:
        """Open flags and content at a C address; return whether the peer sealed them."""

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
        count = self._sent.to_bytes(COUNT_BYTES, "big")
        size = self.overhead_bytes + len(frame)
        head = (
            bytes((0, size)) if size <= SHORT_MAX else bytes((LONG_FLAG,)) + size.to_bytes(8, "big")
        )
        memory = bytearray().join(
            (head, _MESSAGE_COMMAND, count, self._rooms[flags], frame, self._tail)
        )
        place = _from_buffer(memory) + len(head) + _SEALED_AT
        if not self._seal_in_place(place, size - _SEALED_AT, count):
            raise RuntimeError("libsodium sealed nothing; the frame is not sent")
        return memory

    def open(self, memory: memoryview, start: int, end: int) -> tuple[int, int, int]:
        """Open the frame whose body lies from ``start`` to ``end``, in place.

        Returns its flags, and start and end of its content. Raises NotZmtp.
        """
        head = bytes(memory[start : start + _SEALED_AT])
        if end - start < self.overhead_bytes or not head.startswith(_MESSAGE_COMMAND):
            raise NotZmtp("a command other than MESSAGE after the handshake")
        if not 0 <= start < end <= len(memory):
            raise IndexError("a sealed frame that does not lie in its memory")
        count = head[len(_MESSAGE_COMMAND) :]
        if int.from_bytes(count, "big") != self._received + 1:
            raise NotZmtp("a message that came before, or out of order, or after a missing one")
        place = _from_buffer(memory, require_writable=True) + start + _SEALED_AT
        if not self._open_in_place(place, end - start - _SEALED_AT, count):
            raise NotZmtp("a message that was not sealed by the peer")
        self._received += 1
        content = start + self._content_at
        flags = memory[content - 1]
        if flags >= len(_OPENED):
            raise NotZmtp(f"a sealed frame with flags {flags}")
        return _OPENED[flags], content, end - len(self._tail)


class CurveCipher(SealingCipher):
    """The box of CurveZMQ; the authenticator comes first.

    ``key``: made of both transient keys. ``ours``, ``theirs``: the prefixes of nonces.
    """

    def __init__(self, key: bytes, ours: bytes, theirs: bytes, sent: int, received: int) -> None:
        super().__init__(bytes(AUTHENTICATOR_BYTES), b"", sent, received)
        assert len(key) == KEY_BYTES, "libsodium takes its word for it"
        self._key = key
        self._ours = ours
        self._theirs = theirs

    def _seal_in_place(self, place: Any, size: int, count: bytes) -> bool:
        content = place + AUTHENTICATOR_BYTES
        text = size - AUTHENTICATOR_BYTES
        return bool(_box(place, content, text, self._ours + count, self._key) == 0)

    def _open_in_place(self, place: Any, size: int, count: bytes) -> bool:
        content = place + AUTHENTICATOR_BYTES
        return bool(_unbox(content, place, size, self._theirs + count, self._key) == 0)


class GcmCipher(SealingCipher):
    """AES-256-GCM (NIST SP 800-38D); the authenticator comes last.

    Each direction has a key of its own: HKDF (RFC 5869, SHA-256) of ``key``, which is made of both
    transient keys, for the sender's name, ``ours`` or ``theirs``. The nonce is four zeros and the
    count: no nonce comes twice under a key, for the keys end with the connection.
    """

    _NONCE_PREFIX = bytes(4)

    def __init__(self, key: bytes, ours: bytes, theirs: bytes, sent: int, received: int) -> None:
        super().__init__(b"", bytes(AUTHENTICATOR_BYTES), sent, received)
        self._sealing, self._opening = (_derived(key, name) for name in (ours, theirs))

    def _seal_in_place(self, place: Any, size: int, count: bytes) -> bool:
        nonce, text = self._NONCE_PREFIX + count, size - AUTHENTICATOR_BYTES
        sealed = _encrypt(place, ffi.NULL, place, text, ffi.NULL, 0, ffi.NULL, nonce, self._sealing)
        return bool(sealed == 0)

    def _open_in_place(self, place: Any, size: int, count: bytes) -> bool:
        nonce = self._NONCE_PREFIX + count
        opened = _decrypt(place, ffi.NULL, ffi.NULL, place, size, ffi.NULL, 0, nonce, self._opening)
        return bool(opened == 0)


def _derived(key: bytes, sender: bytes) -> bytes:
    info = b"ares AES-256-GCM " + sender
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(key)


def has_gcm() -> bool:
    """Return whether this processor has the instructions for AES-256-GCM."""
    return bool(lib.crypto_aead_aes256gcm_is_available())
