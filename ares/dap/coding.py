"""How a value becomes one element for every server, and any k elements the value again.

Two codings: replication (ABD: n times the value, k = 1) and systematic Reed-Solomon through PyECLib (EC: n elements of 1/k of the value).

A large value is coded in stripes of STRIPE_BYTES, so an element has one part for each stripe. A stripe fits the processor's cache, and memory
that is in use already: 64 MiB with k=3, m=2 took 67 to 180 ms to encode whole and 27 ms in stripes.

PyECLib's traps, all measured: ``decode`` given anything but ``bytes`` aborts the process; it notices neither flipped bits nor mixed versions
(ares/dap/element.py does); backend isa_l_rs_vand cannot decode some patterns (ares/configuration.py refuses it).
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Protocol

from pyeclib.ec_iface import ECDriver, ECDriverError

from ares.configuration import Configuration
from ares.errors import ConfigurationRefused, DecodeFailed

STRIPE_BYTES = 1024 * 1024

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
        except (ECDriverError, ImportError, AttributeError, TypeError) as error:  # PyECLib's ways to say that it lacks a backend
            raise ConfigurationRefused(f"erasure code {backend} with k={k}, m={n - k} is not available: {error}") from error

    def encode(self, value: bytes) -> Sequence[Parts]:
        if len(value) <= STRIPE_BYTES:
            return [(part,) for part in self._driver.encode(value)] if value else [()] * self._n
        stripes = [self._driver.encode(value[start : start + STRIPE_BYTES]) for start in range(0, len(value), STRIPE_BYTES)]
        return list(zip(*stripes, strict=True))

    def decode(self, length: int, elements: Mapping[int, Parts]) -> bytes:
        chosen = [elements[index] for index in sorted(elements)[: self.k]]
        try:
            stripes = [self._driver.decode([bytes(part) for part in parts]) for parts in zip(*chosen, strict=True)]  # of other types it would abort
        except (ECDriverError, ValueError) as error:
            raise DecodeFailed("an object", f"the erasure code says {error}") from error
        value: bytes = stripes[0] if len(stripes) == 1 else b"".join(stripes)
        if len(value) != length:
            raise DecodeFailed("an object", f"{len(value)} bytes came out of the erasure code, {length} went in")
        return value


@cache
def _reed_solomon(n: int, k: int, backend: str) -> ReedSolomon:
    return ReedSolomon(n, k, backend)


def coding_for(configuration: Configuration) -> Coding:
    """The coding that a configuration asks for. Raises :class:`ConfigurationRefused` if the erasure code cannot do it."""
    if configuration.dap == "abd":
        return Replication(configuration.n)
    return _reed_solomon(configuration.n, configuration.k, configuration.backend)
