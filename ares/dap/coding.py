"""How a value becomes one element for every server, and any k elements the value again.

Two codings: replication (ABD: n times the value, k = 1) and systematic Reed-Solomon through PyECLib (EC: n elements of 1/k of the value).

A large value is coded in stripes of STRIPE_BYTES, so an element has one part for each stripe. A stripe fits the processor's cache, and memory
that is in use already: 64 MiB with k=3, m=2 took 67 to 180 ms to encode whole and 27 ms in stripes.

The code is systematic: the first k elements hold the value itself, in slices behind a header each. A large value whose first k elements are there is
put together from those slices in one copy; the library makes two, into memory that it clears first.

PyECLib's traps, all measured: ``decode`` given anything but ``bytes`` aborts the process, and so does a fragment whose header tells of more than
there is, which is why headers are looked at here first; it notices neither flipped bits nor mixed versions (ares/model/element.py does); backend
isa_l_rs_vand cannot decode some patterns (ares/model/configuration.py refuses it).
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Protocol

from pyeclib.ec_iface import ECDriver, ECDriverError

from ares.model.configuration import Configuration
from ares.model.errors import ConfigurationRefused, DecodeFailed

STRIPE_BYTES = 1024 * 1024

_HEADER = struct.Struct("<IIIQ")
"""What a fragment of liberasurecode begins with: its index, the bytes of its slice, of what a backend adds, and of the whole stripe."""

_unpack_header = _HEADER.unpack_from
_HEADER_BYTES = 80
_PROBE = bytes(range(100))

JOINED_BYTES_MIN = 32 * 1024
"""Slices of this size and more are joined here; for smaller ones the library's own way is as quick."""

Parts = tuple[bytes, ...]


class Coding(Protocol):
    """Phi (ARES II section 5.1). ``k``: how many elements rebuild a value."""

    k: int

    def encode(self, value: bytes) -> Sequence[Parts]:
        """n elements' data, in the order of the configuration's servers."""

    def decode(self, length: int, elements: Mapping[int, Parts]) -> bytes:
        """The value of ``length`` bytes from at least k intact elements by index. Raises :class:`DecodeFailed`."""


class Replication:
    k = 1

    def __init__(self, n: int) -> None:
        self._n = n

    def encode(self, value: bytes) -> Sequence[Parts]:
        return [(value,)] * self._n

    def decode(self, length: int, elements: Mapping[int, Parts]) -> bytes:
        return b"".join(next(iter(elements.values())))


class ReedSolomon:
    def __init__(self, n: int, k: int, backend: str) -> None:
        self.k = k
        self._n = n
        try:
            self._driver = ECDriver(k=k, m=n - k, ec_type=backend)
        except (
            ECDriverError,
            ImportError,
            AttributeError,
            TypeError,
        ) as error:  # PyECLib's ways to say that it lacks a backend
            raise ConfigurationRefused(
                f"erasure code {backend} with k={k}, m={n - k} is not available: {error}"
            ) from error
        probe: bytes = self._driver.encode(_PROBE)[0]
        _, size, _, whole = _unpack_header(probe)
        if whole != len(_PROBE) or not probe[_HEADER_BYTES:].startswith(_PROBE[:size]):
            raise ConfigurationRefused(
                f"erasure code {backend}: this release of liberasurecode writes elements in another format"
            )
        self.more_bytes = len(probe) - size

    def encode(self, value: bytes) -> Sequence[Parts]:
        if len(value) <= STRIPE_BYTES:
            return [(part,) for part in self._driver.encode(value)] if value else [()] * self._n
        stripes = [
            self._driver.encode(value[start : start + STRIPE_BYTES])
            for start in range(0, len(value), STRIPE_BYTES)
        ]
        return list(zip(*stripes, strict=True))

    def decode(self, length: int, elements: Mapping[int, Parts]) -> bytes:
        indexes = sorted(elements)[: self.k]
        pieces: list[bytes | memoryview] = []
        whole = 0
        try:
            for parts in zip(*[elements[index] for index in indexes], strict=True):
                size = self._stripe_bytes(indexes, parts)
                whole += size
                if whole > length:
                    break
                if len(parts[0]) >= JOINED_BYTES_MIN and indexes == list(range(self.k)):
                    pieces.extend(_slices(parts, size))
                else:
                    pieces.append(
                        self._driver.decode(list(map(bytes, parts)))
                    )  # of other types it would abort
        except (ECDriverError, ValueError) as error:
            raise DecodeFailed("an object", f"the erasure code says {error}") from error
        if whole != length:
            raise DecodeFailed(
                "an object", f"{whole} bytes came out of the erasure code, {length} went in"
            )
        return b"".join(pieces)

    def _stripe_bytes(self, indexes: Sequence[int], parts: Parts) -> int:
        """How much of the value a stripe holds. Raises :class:`DecodeFailed` for fragments that are not what their headers say."""
        length = len(parts[0])
        size = length - self.more_bytes
        stripe_bytes = -1
        for index, part in zip(indexes, parts, strict=False):
            if len(part) != length or size <= 0:
                raise DecodeFailed(
                    "an object",
                    f"element {index} has a part of {len(part)} bytes, which does not fit the others",
                )
            header_index, header_size, _, whole = _unpack_header(part)
            if (
                header_index != index
                or header_size != size
                or whole > self.k * size
                or (whole != stripe_bytes and stripe_bytes != -1)
            ):
                raise DecodeFailed(
                    "an object", f"a part of element {index} has a header that does not fit it"
                )
            stripe_bytes = whole
        return stripe_bytes


def _slices(parts: Parts, left: int) -> Iterator[memoryview]:
    """What the first k fragments of a stripe have of the ``left`` bytes that it holds."""
    for part in parts:
        piece = memoryview(part)[_HEADER_BYTES:][:left]
        left -= len(piece)
        yield piece


MakeCoding = Callable[[Configuration], Coding]


@cache
def _reed_solomon(n: int, k: int, backend: str) -> ReedSolomon:
    return ReedSolomon(n, k, backend)


def coding_for(configuration: Configuration) -> Coding:
    """The coding that a configuration asks for. Raises :class:`ConfigurationRefused` if the erasure code cannot do it."""
    if configuration.dap == "abd":
        return Replication(configuration.n)
    if configuration.dap == "chain":
        raise ConfigurationRefused(
            f"{configuration.describe()}: a chain holds a log, and no objects; nothing was changed"
        )
    return _reed_solomon(configuration.n, configuration.k, configuration.backend)
