"""Access keys, and the seal that hides them in the buckets' log.

Every key of ares with the role ``read`` can read the log and the rows of the index. The seal is a
key of the gateways, a file beside the cluster file: secrets in the log are worth nothing without
this file. The sealed bytes have the id of the key inside: a process that writes the log can delete
a key or bring an older version back, and cannot move a key to another id, or make one.
"""

import base64
import enum
import hashlib
import os
import re
import secrets
import string
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from nacl.exceptions import CryptoError
from nacl.secret import SecretBox

from ares.bucket.index_records import INDEX_DATA_BYTES_MAX, BucketName
from ares.model.errors import BadInput
from ares.security.clients_file import CLIENT_NAME, CLIENT_NAME_EXPECTED
from ares.security.keys import read_key, write_secret

SEAL_NAME = "gateway.key"
"""Name of the file with the seal's key, beside the cluster file."""

SECRET_CHARACTERS = 40
_SEAL_SETTING = "the key of the gateways (--seal-key)"
_ID = re.compile(r"ARES[A-Z2-7]{16}")
_ID_RANDOM_BYTES = 10
_SECRET_LETTERS = string.ascii_letters + string.digits
_FORMAT = b"\x01"
"""First byte below the seal; a release knows its formats only."""

_encoder = msgspec.msgpack.Encoder()


class KeyRole(enum.IntEnum):
    """The rights of an access key; each role includes the roles before it."""

    READ = 1
    """Read and list objects, and read the configurations of buckets."""
    WRITE = 2
    """Change objects."""
    ADMIN = 3
    """Create, delete and configure buckets."""


class AccessKey(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A key of an S3 client. ``name`` is for people."""

    id: Annotated[str, Meta(pattern=rf"\A{_ID.pattern}\Z")]
    secret: Annotated[str, Meta(min_length=SECRET_CHARACTERS, max_length=SECRET_CHARACTERS)]
    name: Annotated[str, Meta(pattern=rf"\A{CLIENT_NAME.pattern}\Z")]
    role: KeyRole
    buckets: tuple[BucketName, ...] = ()
    """The buckets within reach; empty: all buckets."""

    def __repr__(self) -> str:
        return f"AccessKey({self.id}, {self.name!r}, {self.role.name})"

    def reaches(self, bucket: str) -> bool:
        """Return whether the bucket is within reach of the key."""
        return not self.buckets or bucket in self.buckets


_decoder = msgspec.msgpack.Decoder(AccessKey)


def is_access_key_id(text: str) -> bool:
    """Return whether ``text`` has the form of an access key's id."""
    return _ID.fullmatch(text) is not None


def new_secret() -> str:
    """Return a random secret, of 238 bits."""
    return "".join(secrets.choice(_SECRET_LETTERS) for _ in range(SECRET_CHARACTERS))


def new_access_key(name: str, role: KeyRole, buckets: tuple[str, ...]) -> AccessKey:
    """Return a key with a random id and secret. Raises :class:`ares.BadInput` for the name."""
    if CLIENT_NAME.fullmatch(name) is None:
        raise BadInput(
            f"a key's name has {CLIENT_NAME_EXPECTED}, unlike {name!r}; nothing was changed"
        )
    id = f"ARES{base64.b32encode(secrets.token_bytes(_ID_RANDOM_BYTES)).decode()}"
    return AccessKey(id, new_secret(), name, role, buckets)


class GatewaySeal:
    """The seal of the gateways: XSalsa20 and Poly1305 of libsodium, by a key of 32 bytes."""

    def __init__(self, key: bytes) -> None:
        self._box = SecretBox(key)
        self.fingerprint = hashlib.blake2b(key, digest_size=16, person=b"ares gateway").hexdigest()
        """A hash of the random key, which tells seals apart and nothing more."""

    @classmethod
    def read(cls, cluster_file: Path, path: Path) -> "GatewaySeal":
        """Return the seal in the file at ``path``.

        Raises :class:`ares.BadInput`, naming the file and never the key, for a file that is
        missing, malformed, or readable by other users.
        """
        if not is_there(path):
            raise BadInput(
                f"{path} is missing: `ares-cli bucket key new` makes it with the first access key "
                "of a cluster. Copy it from that machine, or name it with --seal-key"
            )
        return cls(read_key(cluster_file, _SEAL_SETTING, path, "the gateways"))

    @classmethod
    def make(cls, path: Path) -> None:
        """Write a new seal with mode 600. Raises :class:`ares.BadInput` if the file exists."""
        write_secret(path, secrets.token_bytes(SecretBox.KEY_SIZE).hex())

    def seal(self, key: AccessKey) -> bytes:
        """Return the sealed bytes of a key. Raises :class:`ares.BadInput` for too many buckets."""
        sealed = bytes(self._box.encrypt(_FORMAT + _encoder.encode(key)))
        if len(sealed) > INDEX_DATA_BYTES_MAX:
            raise BadInput(
                f"{len(key.buckets)} buckets are too many for a key: it has at most "
                f"{INDEX_DATA_BYTES_MAX} bytes. Make several keys, or one for all buckets"
            )
        return sealed

    def unseal(self, id: str, sealed: bytes) -> AccessKey | None:
        """Return the key sealed for ``id``; None for any other bytes."""
        try:
            opened = self._box.decrypt(sealed)
        except (CryptoError, ValueError):  # another seal; too short for a nonce
            return None
        if opened[:1] != _FORMAT:
            return None
        try:
            key = _decoder.decode(opened[1:])
        except msgspec.MsgspecError:
            return None
        return key if key.id == id else None


def seal_path(cluster_file: Path, given: Path | None) -> Path:
    """Return the path of the seal's file: as given, or beside the cluster file."""
    return given or cluster_file.absolute().parent / SEAL_NAME


def is_there(path: Path) -> bool:
    """Return whether a file, or a broken link, has this name."""
    return os.path.lexists(path)
