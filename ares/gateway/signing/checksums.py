"""The checksums of objects: five algorithms, their texts, and checksums of parts.

Source: "Checking object integrity in Amazon S3", in Amazon S3's user guide.
"""

import enum
import hashlib
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from typing import Protocol

from awscrt import checksums as crt  # type: ignore[import-untyped]
from msgspec import Struct

CrcFunction = Callable[[bytes, int], int]
"""A function from bytes, and the CRC of the bytes before, to a CRC."""

CrcSum = Callable[[int, int, int], int]
"""A function from two CRCs, and the second number of bytes, to the CRC of both."""


class RunningDigest(Protocol):
    """The checksum of bytes in pieces."""

    def update(self, data: bytes, /) -> None: ...
    def digest(self) -> bytes: ...


class _RunningCrc:
    """The CRC of bytes in pieces. ``width``: the bytes of the CRC."""

    __slots__ = ("_function", "_value", "_width")

    def __init__(self, function: CrcFunction, width: int) -> None:
        self._function = function
        self._width = width
        self._value = 0

    def update(self, data: bytes, /) -> None:
        self._value = self._function(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(self._width, "big")


class ChecksumKind(enum.Enum):
    """The relation of a checksum to the bytes of an object in parts."""

    FULL_OBJECT = "FULL_OBJECT"
    """Checksum of all bytes."""
    COMPOSITE = "COMPOSITE"
    """Checksum of the checksums of the parts, with the number of parts behind a hyphen."""


class Algorithm(enum.Enum):
    """The algorithms of checksums, with their numbers of bytes. CRCs are reflected, as in S3."""

    CRC32 = "CRC32", 4
    CRC32C = "CRC32C", 4
    CRC64NVME = "CRC64NVME", 8
    SHA1 = "SHA1", 20
    SHA256 = "SHA256", 32

    def __init__(self, label: str, width: int) -> None:
        self.width = width
        self.header = f"x-amz-checksum-{label.lower()}"
        self.element = f"Checksum{label}"

    @property
    def kinds(self) -> tuple[ChecksumKind, ...]:
        """The kinds for objects in parts, as S3 has them; the first is the default."""
        match self:
            case Algorithm.CRC64NVME:
                return (ChecksumKind.FULL_OBJECT,)
            case Algorithm.SHA1 | Algorithm.SHA256:
                return (ChecksumKind.COMPOSITE,)
            case _:
                return (ChecksumKind.COMPOSITE, ChecksumKind.FULL_OBJECT)

    def begin(self) -> RunningDigest:
        """Return the checksum of no bytes."""
        match self:
            case Algorithm.CRC32:
                return _RunningCrc(zlib.crc32, self.width)
            case Algorithm.CRC32C:
                return _RunningCrc(crt.crc32c, self.width)
            case Algorithm.CRC64NVME:
                return _RunningCrc(crt.crc64nvme, self.width)
            case Algorithm.SHA1:
                return hashlib.sha1(usedforsecurity=False)
            case Algorithm.SHA256:
                return hashlib.sha256()

    def has_form(self, value: str) -> bool:
        """Return whether ``value`` is a checksum in base64."""
        try:
            return len(b64decode(value, validate=True)) == self.width
        except ValueError:
            return False


ALGORITHMS_BY_HEADER = {algorithm.header: algorithm for algorithm in Algorithm}

_SUMS: dict[Algorithm, CrcSum] = {
    Algorithm.CRC32: crt.combine_crc32,
    Algorithm.CRC32C: crt.combine_crc32c,
    Algorithm.CRC64NVME: crt.combine_crc64nvme,
}


class ObjectChecksum(Struct, frozen=True):
    """A checksum of an object. An empty ``value``: the algorithm and kind asked of an upload."""

    algorithm: Algorithm
    value: str
    """Base64; a composite value ends with a hyphen and the number of parts."""
    kind: ChecksumKind = ChecksumKind.FULL_OBJECT


def encode_checksum(checksum: ObjectChecksum | None) -> bytes:
    """Return the bytes kept in the index, at most 64; empty for None."""
    if checksum is None:
        return b""
    return f"{checksum.algorithm.name} {checksum.kind.name} {checksum.value}".encode()


def decode_checksum(data: bytes) -> ObjectChecksum | None:
    """Return the checksum kept in the index; None for an algorithm of a later release, too."""
    try:
        algorithm, kind, value = data.decode().split(" ")
        return ObjectChecksum(Algorithm[algorithm], value, ChecksumKind[kind])
    except (KeyError, ValueError):
        return None


def checksum_of_parts(asked: ObjectChecksum, parts: Sequence[tuple[str, int]]) -> ObjectChecksum:
    """Return the checksum of an object from its parts' checksums and lengths.

    ``asked``: the algorithm and the kind. The checksums of the parts are base64 of that algorithm,
    and the lengths are in bytes.
    """
    algorithm = asked.algorithm
    digests = [b64decode(value) for value, _ in parts]
    if asked.kind is ChecksumKind.COMPOSITE:
        running = algorithm.begin()
        running.update(b"".join(digests))
        value = f"{b64encode(running.digest()).decode()}-{len(parts)}"
        return ObjectChecksum(algorithm, value, asked.kind)
    total = 0
    for digest, (_, length) in zip(digests, parts, strict=True):
        total = _SUMS[algorithm](total, int.from_bytes(digest, "big"), length)
    value = b64encode(total.to_bytes(algorithm.width, "big")).decode()
    return ObjectChecksum(algorithm, value, asked.kind)
