"""Keys, and other secrets which the cluster file names by the path of a file.

The cluster file itself can therefore be read by all users. Keys of communicating processes (CURVE,
over Curve25519) and keys that sign decisions (Ed25519) are written as 64 hex characters. A secret
never shows itself: not in a repr, not in an error, and it is read from files that only their owner
can read.
"""

import os
import re
from pathlib import Path
from typing import ClassVar, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ares.model.errors import BadInput
from ares.platform.named_files import HIDDEN, read_named, refuse
from ares.platform.trusted_files import is_foreign, make_directory, write_new

SECRET_BYTES_MAX = 4096
_SUFFIXES = (".secret", ".password", ".toml", ".pem", ".crt", ".key")
_ANYTHING = re.compile(r"[^\0]*")
_HEX = re.compile(r"[0-9a-f]{64}")
_PART = re.compile(r"[0-9A-Fa-f]{16}")
_OTHERWISE = re.compile(r"[!-~]{40}|[\w+/-]{43}=?", re.ASCII)


def is_key(text: str) -> bool:
    """Return whether ``text`` is a key as written by this project."""
    return bool(_HEX.fullmatch(text))


def may_be_key(text: str) -> bool:
    """Return whether ``text`` may be a key, whole or in part, in hex, Z85 or base 64.

    Upper and lower case, and separators between the digits, are ignored.
    """
    return bool(
        _PART.search(re.sub(r"[^0-9A-Za-z]", "", text)) or _OTHERWISE.fullmatch(text.strip())
    )


def without_keys(text: str) -> str:
    """Return ``text`` with every possible key hidden, for an error about a user's input."""
    return re.sub(
        r"[!-~]{16,}",
        lambda word: HIDDEN if len(word[0]) >= 40 or may_be_key(word[0]) else word[0],
        text,
    )


class _KeyPair:
    """A key pair: ``secret`` for its owner alone, ``public`` (hex) for all others."""

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
    """A side of a CURVE connection."""

    __slots__ = ()
    _algorithm = X25519PrivateKey


class SigningKey(_KeyPair):
    """The key that signs decisions."""

    __slots__ = ()
    _algorithm = Ed25519PrivateKey


def keyed(address: str, public_key: str) -> str:
    """Return ``host:port/KEY``: the address to connect to, and the key expected at that address."""
    return f"{address}/{public_key}" if public_key else address


def without_key(address: str) -> tuple[str, str]:
    """Return ``host:port`` and the key (empty without a key) of a result of :func:`keyed`."""
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
    """Return the secret in the file at ``path``, without spaces around it.

    ``what`` names the secret's owner, ``shape`` the expected form. ``anybodys``: the file may
    belong to another user, who knows the secret in this case. Raises :class:`ares.BadInput`, naming
    the cluster file and ``key`` but never the secret, when the file is missing, empty, readable by
    other users, another user's or of another shape.
    """
    if "\0" in str(path):
        refuse(cluster_file, key, "expected the path of a file, and found another value")
    try:
        # the status of this very file, whatever file has the name a moment later
        content, status = read_named(path, SECRET_BYTES_MAX)
        if is_foreign(status) and not anybodys:
            why = (
                f"belongs to another user ({status.st_uid}), who knows the secret: make another "
                "one, in a file of your own"
            )
            refuse(
                cluster_file, key, f"expected a file of the user of this process, and {path} {why}"
            )
        if (mode := status.st_mode & 0o777) & 0o077:
            refuse(
                cluster_file,
                key,
                f"expected a file that only its owner can read, and {path} has mode {mode:o}: "
                f"chmod 600 {path}",
            )
        text = content.decode("utf-8").strip()
    except OSError as error:
        refuse(cluster_file, key, f"{shown(path)} cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        refuse(cluster_file, key, f"expected a text file in UTF-8, and {path} is none")
    if not text:
        refuse(cluster_file, key, f"expected {what}, and {path} is empty")
    if not shape.fullmatch(text):
        refuse(cluster_file, key, f"expected {what}, and {path} holds another value")
    return text


def read_key(cluster_file: Path, key: str, path: Path, owner: str, anybodys: bool = False) -> bytes:
    """Return the 32 bytes of the secret in the file at ``path``.

    ``key`` of the cluster file names the path. ``anybodys``: the file may belong to any user.
    Raises :class:`ares.BadInput`, which never shows the secret: the file is missing, can be read by
    other users, or holds no key.
    """
    return bytes.fromhex(
        read_secret(cluster_file, key, path, f"the secret key of {owner}", _HEX, anybodys)
    )


def shown(path: Path) -> str:
    """Return ``path`` for an error, unless a user may have written a secret in place of a path.

    This is possible where no such file exists, and neither the file's name nor its directory is
    among the names given by this project.
    """
    if os.path.lexists(path) or (path.parent.is_dir() and path.suffix in _SUFFIXES):
        return str(path)
    return (
        f"the file that is named there, which is not in {path.parent},"
        if path.parent.is_dir()
        else "the file that is named there"
    )


def write_secret(path: Path, text: str) -> None:
    """Make the file, readable by its owner only and durable, in a directory closed to other users.

    Raises :class:`BadInput` when such a file exists already: it is never followed or replaced.
    """
    try:
        make_directory(path.parent)
        write_new(path, f"{text}\n", 0o600, exact=True)
    except FileExistsError as error:
        raise BadInput(
            f"{path} exists, and a secret is never overwritten: if it is not needed any more, "
            "remove it yourself"
        ) from error
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from error
