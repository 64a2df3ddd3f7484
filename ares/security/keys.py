"""Keys, and other secrets that the cluster file names by the path of a file, so that the cluster file itself can be read by everybody.

There are keys of those who speak to each other (CURVE, over Curve25519) and of those who decide (Ed25519), written as 64 hex characters. A secret
never shows itself: not in a repr, not in an error, and it is read from files that only their owner can read.
"""

import os
import re
from pathlib import Path
from typing import ClassVar, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ares.machine.named_files import HIDDEN, read_named, refuse
from ares.machine.trusted_files import is_foreign, make_directory, write_new
from ares.model.errors import BadInput

SECRET_BYTES_MAX = 4096
_SUFFIXES = (".secret", ".password", ".toml", ".pem", ".crt", ".key")
_ANYTHING = re.compile(r"[^\0]*")
_HEX = re.compile(r"[0-9a-f]{64}")
_PART = re.compile(r"[0-9A-Fa-f]{16}")
_OTHERWISE = re.compile(r"[!-~]{40}|[\w+/-]{43}=?", re.ASCII)


def is_key(text: str) -> bool:
    """Whether ``text`` is a key as this project writes it."""
    return bool(_HEX.fullmatch(text))


def may_be_key(text: str) -> bool:
    """Whether ``text`` may be a key, whole or in part, whatever its letters and what is between them; or one in Z85 or base 64."""
    return bool(
        _PART.search(re.sub(r"[^0-9A-Za-z]", "", text)) or _OTHERWISE.fullmatch(text.strip())
    )


def without_keys(text: str) -> str:
    """``text`` with every word hidden that may be a key, for an error about what somebody typed."""
    return re.sub(
        r"[!-~]{16,}",
        lambda word: HIDDEN if len(word[0]) >= 40 or may_be_key(word[0]) else word[0],
        text,
    )


class _KeyPair:
    """``secret`` for its owner alone, ``public`` (hex) for everybody."""

    __slots__ = ("public", "secret")
    _algorithm: ClassVar[type[X25519PrivateKey | Ed25519PrivateKey]]

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self.public = (
            self._algorithm.from_private_bytes(secret).public_key().public_bytes_raw().hex()
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(of {self.public})"

    @classmethod
    def generate(cls) -> Self:
        return cls(cls._algorithm.generate().private_bytes_raw())


class SecretKey(_KeyPair):
    """One side of a CURVE connection."""

    __slots__ = ()
    _algorithm = X25519PrivateKey


class SigningKey(_KeyPair):
    """What decisions are signed with."""

    __slots__ = ()
    _algorithm = Ed25519PrivateKey


def keyed(address: str, public_key: str) -> str:
    """``host:port/KEY``: where to connect, and whom to expect there."""
    return f"{address}/{public_key}" if public_key else address


def without_key(address: str) -> tuple[str, str]:
    """``host:port`` and the key (empty if there is none) of what :func:`keyed` made."""
    place, _, key = address.partition("/")
    return place, key


def read_secret(
    cluster_file: Path,
    key: str,
    path: Path,
    what: str,
    shape: re.Pattern[str] = _ANYTHING,
    anybodys: bool = False,
) -> str:
    """The secret in the file at ``path``, without spaces around it; ``what`` says whose it is, ``shape`` what it looks like.

    ``anybodys``: the file may belong to another user, who then knows it.

    Raises :class:`ares.BadInput`, naming the cluster file and ``key`` but never the secret, when the file is missing, empty, readable by
    others, another user's or of another shape.
    """
    if "\0" in str(path):
        refuse(cluster_file, key, "expected the path of a file, and found what is none")
    try:
        content, status = read_named(
            path, SECRET_BYTES_MAX
        )  # the status of this very file, whatever has the name a moment later
        if is_foreign(status) and not anybodys:
            why = f"belongs to another user ({status.st_uid}), who knows it: make another secret, in a file of your own"
            refuse(
                cluster_file, key, f"expected a file of the user who runs this, and {path} {why}"
            )
        if (mode := status.st_mode & 0o777) & 0o077:
            refuse(
                cluster_file,
                key,
                f"expected a file that only its owner can read, and {path} has mode {mode:o}: chmod 600 {path}",
            )
        text = content.decode("utf-8").strip()
    except OSError as error:
        refuse(cluster_file, key, f"{shown(path)} cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        refuse(cluster_file, key, f"expected a text file in UTF-8, and {path} is none")
    if not text:
        refuse(cluster_file, key, f"expected {what}, and {path} is empty")
    if not shape.fullmatch(text):
        refuse(cluster_file, key, f"expected {what}, and {path} holds something else")
    return text


def read_key(cluster_file: Path, key: str, path: Path, whose: str, anybodys: bool = False) -> bytes:
    """The 32 bytes of the secret in the file at ``path``, which ``key`` of the cluster file is about. ``anybodys``: whoever the file belongs to.

    Raises :class:`ares.BadInput`, which never shows the secret: the file is missing, can be read by others, or holds no key.
    """
    return bytes.fromhex(
        read_secret(cluster_file, key, path, f"the secret key of {whose}", _HEX, anybodys)
    )


def shown(path: Path) -> str:
    """``path`` for an error about it, unless somebody may have written a secret where its path belongs.

    That is so where nothing is there, and neither its name nor its directory is one of those that this project gives.
    """
    if os.path.lexists(path) or (path.parent.is_dir() and path.suffix in _SUFFIXES):
        return str(path)
    return (
        f"the file that is named there, which is not in {path.parent},"
        if path.parent.is_dir()
        else "the file that is named there"
    )


def write_secret(path: Path, text: str) -> None:
    """Make the file, readable by its owner only and durable, in a directory that others cannot look into.

    Raises :class:`BadInput` when there is such a file already: it is never followed or replaced.
    """
    try:
        make_directory(path.parent)
        write_new(path, f"{text}\n", 0o600, exact=True)
    except FileExistsError as error:
        raise BadInput(
            f"{path} exists, and a secret is never overwritten: if it is not needed any more, remove it yourself"
        ) from error
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from error
