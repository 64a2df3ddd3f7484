"""Keys: of those who speak to each other (CURVE, over Curve25519) and of those who decide (Ed25519). Written as 64 hex characters.

A secret never shows itself: not in a repr, not in an error, and it is read from files that only their owner can read.
"""

import re
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ares.machine.hidden import HIDDEN
from ares.security.secrets import read_secret

_HEX = re.compile(r"[0-9a-f]{64}")
_PART = re.compile(r"[0-9A-Fa-f]{16}")
_OTHERWISE = re.compile(r"[!-~]{40}|[\w+/-]{43}=?", re.ASCII)


def is_key(text: str) -> bool:
    """Whether ``text`` is a key as this project writes it."""
    return bool(_HEX.fullmatch(text))


def may_be_key(text: str) -> bool:
    """Whether ``text`` may be a key, whole or in part, whatever its letters and what is between them; or one in Z85 or base 64."""
    return bool(_PART.search(re.sub(r"[^0-9A-Za-z]", "", text)) or _OTHERWISE.fullmatch(text.strip()))


def without_keys(text: str) -> str:
    """``text`` with every word hidden that may be a key, for an error about what somebody typed."""
    return re.sub(r"[!-~]{16,}", lambda word: HIDDEN if len(word[0]) >= 40 or may_be_key(word[0]) else word[0], text)


class SecretKey:
    """One side of a CURVE connection: ``secret`` for the transport alone, ``public`` (hex) for everybody."""

    __slots__ = ("public", "secret")

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self.public = X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw().hex()

    def __repr__(self) -> str:
        return f"SecretKey(of {self.public})"

    @staticmethod
    def generate() -> "SecretKey":
        return SecretKey(X25519PrivateKey.generate().private_bytes_raw())


class SigningKey:
    """What decisions are signed with: ``secret`` for the signer alone, ``public`` (hex) for everybody."""

    __slots__ = ("public", "secret")

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self.public = Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw().hex()

    def __repr__(self) -> str:
        return f"SigningKey(of {self.public})"

    @staticmethod
    def generate() -> "SigningKey":
        return SigningKey(Ed25519PrivateKey.generate().private_bytes_raw())


def read_key(cluster_file: Path, key: str, path: Path, whose: str, anybodys: bool = False) -> bytes:
    """The 32 bytes of the secret in the file at ``path``, which ``key`` of the cluster file is about. ``anybodys``: whoever the file belongs to.

    Raises :class:`ares.BadInput`, which never shows the secret: the file is missing, can be read by others, or holds no key.
    """
    return bytes.fromhex(read_secret(cluster_file, key, path, f"the secret key of {whose}", _HEX, anybodys))


def keyed(address: str, public_key: str) -> str:
    """``host:port/KEY``: where to connect, and whom to expect there."""
    return f"{address}/{public_key}" if public_key else address


def without_key(address: str) -> tuple[str, str]:
    """``host:port`` and the key (empty if there is none) of what :func:`keyed` made."""
    place, _, key = address.partition("/")
    return place, key
