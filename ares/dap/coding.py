"""The encoding of a value into an element for each server, and the decoding from any k elements.

Two codings: replication (ABD: n times the value, k = 1) and systematic Reed-Solomon through PyECLib
(EC: n elements of 1/k of the value).

A large value is coded in stripes of STRIPE_BYTES; an element has a part for each stripe. A stripe
fits the processor's cache, and memory already in use: 64 MiB with k=3, m=2 took 67 to 180 ms to
encode whole and 27 ms in stripes.

The code is systematic: the first k elements hold slices of the value itself, each behind a header.
If the first k elements of a large value are present, the value is joined from these slices in a
single copy; the library makes two copies, into memory which the library clears first.

PyECLib's traps, all measured: ``decode`` given anything but ``bytes`` aborts the process. A
fragment whose header promises more bytes than the fragment has aborts the process, too; this module
therefore checks headers first. The library notices neither flipped bits nor mixed versions
(ares/model/element.py does); backend isa_l_rs_vand cannot decode some patterns
(ares/model/configuration.py refuses the backend).
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
"""Header of a fragment of liberasurecode: index, bytes of the slice, of the backend's addition, and
of the stripe.
"""

_unpack_header = _HEADER.unpack_from
FRAGMENT_HEADER_BYTES = 80
_PROBE = bytes(range(100))

JOINED_BYTES_MIN = 32 * 1024
"""Size of slices from which they are joined here; for smaller slices the library is as quick."""

Parts = tuple[bytes, ...]


class Coding(Protocol):
    """An encoder and decoder, Phi of ARES II section 5.1; ``k`` elements rebuild a value."""

    k: int

    def encode(self, value: bytes) -> Sequence[Parts]:
        """Return the data of n elements, in the order of the configuration's servers."""

    def decode(self, length: int, elements: Mapping[int, Parts]) -> bytes:
        """Return the value of ``length`` bytes from at least k intact elements by index.

        Raises :class:`DecodeFailed`.
        """


class Replication:
    """The coding of ABD: every element is the whole value."""

    k = 1

    def __init__(self, n: int) -> None:
        self._n = n

    def encode(self, value: bytes) -> Sequence[Parts]:
        return [(value,)] * self._n

    def decode(self, length: int, elements: Mapping[int, Parts]) -> bytes:
        return b"".join(next(iter(elements.values())))


class ReedSolomon:
    """The coding of EC: n elements of 1/k of the value, by PyECLib."""

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
        ) as error:  # PyECLib's ways to report a missing backend
            raise ConfigurationRefused(
                f"erasure code {backend} with k={k}, m={n - k} is not available: {error}"
            ) from error
        probe: bytes = self._driver.encode(_PROBE)[0]
        _, size, _, whole = _unpack_header(probe)
        if whole != len(_PROBE) or not probe[FRAGMENT_HEADER_BYTES:].startswith(_PROBE[:size]):
            raise ConfigurationRefused(
                f"erasure code {backend}: this release of liberasurecode writes elements in "
                "another format"
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
                    # any type but bytes aborts the process
                    pieces.append(self._driver.decode(list(map(bytes, parts))))
        except (ECDriverError, ValueError) as error:
            raise DecodeFailed("an object", f"the erasure code says {error}") from error
        if whole != length:
            raise DecodeFailed(
                "an object", f"{whole} bytes came out of the erasure code, {length} went in"
            )
        return b"".join(pieces)

    def _stripe_bytes(self, indexes: Sequence[int], parts: Parts) -> int:
        """Return the bytes of the value in a stripe.

        Raises :class:`DecodeFailed` for fragments whose headers do not fit them.
        """
        length = len(parts[0])
        size = length - self.more_bytes
        stripe_bytes = -1
        for index, part in zip(indexes, parts, strict=False):
            if len(part) != length or size <= 0:
                raise DecodeFailed(
                    "an object",
                    f"element {index} has a part of {len(part)} bytes, which does not fit the "
                    "other elements",
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
    """Yield the slices of a stripe's first k fragments, ``left`` bytes in all."""
    for part in parts:
        piece = memoryview(part)[FRAGMENT_HEADER_BYTES:][:left]
        left -= len(piece)
        yield piece


MakeCoding = Callable[[Configuration], Coding]


@cache
def _reed_solomon(n: int, k: int, backend: str) -> ReedSolomon:
    return ReedSolomon(n, k, backend)


def coding_for(configuration: Configuration) -> Coding:
    """Return the coding of a configuration.

    Raises :class:`ConfigurationRefused` if the erasure code is not available for these parameters.
    """
    if configuration.dap == "abd":
        return Replication(configuration.n)
    if configuration.dap == "chain":
        raise ConfigurationRefused(
            f"{configuration.describe()}: a chain holds a log, and no objects; nothing was changed"
        )
    return _reed_solomon(configuration.n, configuration.k, configuration.code)
