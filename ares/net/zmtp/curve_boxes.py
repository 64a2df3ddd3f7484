"""libsodium's boxes, made and opened where the message lies.

PyNaCl's own functions hand each message over in new memory, cleared first and copied at the end: for a mebibyte that takes more than twice as long as
the encryption itself. What they call is called here with places in memory that there is already. Like any function of C, these write where they are
told, and read nonces (24 bytes) and keys however long they are, so nobody but ares/net/zmtp/curve_traffic.py calls them.
"""

from nacl._sodium import ffi, lib

BOX_BYTES_MORE = 16
"""By which a box is larger than what is in it: its authenticator, which comes first."""

KEY_BYTES = 32

_BEYOND = "a box that does not lie in its memory"

_from_buffer = ffi.from_buffer
_seal = lib.crypto_box_easy_afternm
_unseal = lib.crypto_box_open_easy_afternm


def seal(memory: bytes, start: int, end: int, nonce: bytes, key: bytes) -> None:
    """What lies in ``memory`` from BOX_BYTES_MORE after ``start`` up to ``end`` becomes a box, from ``start`` to ``end``.

    ``memory`` was made just now, and nobody else has seen it: bytes that were seen never change.
    """
    if not 0 <= start <= end - BOX_BYTES_MORE <= len(memory) - BOX_BYTES_MORE:
        raise IndexError(_BEYOND)
    box = _from_buffer(memory) + start
    _seal(box, box + BOX_BYTES_MORE, end - start - BOX_BYTES_MORE, nonce, key)


def unseal(memory: memoryview, start: int, end: int, nonce: bytes, key: bytes) -> bool:
    """Opens the box there, after which its content ends where it ended. False if somebody else made it: then nothing was written."""
    if not 0 <= start <= end - BOX_BYTES_MORE <= len(memory) - BOX_BYTES_MORE:
        raise IndexError(_BEYOND)
    box = _from_buffer(memory) + start
    return bool(_unseal(box + BOX_BYTES_MORE, box, end - start, nonce, key) == 0)
