"""How a value becomes one element for every server, and any k elements the value again.

Two codings: replication (ABD: n times the value, k = 1) and systematic Reed-Solomon through PyECLib (EC: n elements of 1/k of the value).
PyECLib's traps, all measured: ``decode`` given anything but ``bytes`` aborts the process; it notices neither flipped bits nor mixed versions
(ares/dap/element.py does); backend isa_l_rs_vand cannot decode some patterns (ares/configuration.py refuses it).
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Protocol

from pyeclib.ec_iface import ECDriver, ECDriverError

from ares.configuration import Configuration
from ares.errors import ConfigurationRefused, DecodeFailed


class Coding(Protocol):
    """Phi (ARES II section 5.1). ``k``: how many elements rebuild a value."""

    k: int

    def encode(self, value: bytes) -> Sequence[bytes]:
        """n elements' data, in the order of the configuration's servers."""

    def decode(self, length: int, elements: Mapping[int, bytes]) -> bytes:
        """The value of ``length`` bytes from at least k intact elements by index. Raises :class:`DecodeFailed`."""


class Replication:
    k = 1

    def __init__(self, n: int) -> None:
        self._n = n

    def encode(self, value: bytes) -> Sequence[bytes]:
        return [value] * self._n

    def decode(self, length: int, elements: Mapping[int, bytes]) -> bytes:
        return next(iter(elements.values()))


class ReedSolomon:
    def __init__(self, n: int, k: int, backend: str) -> None:
        self.k = k
        self._n = n
        try:
            self._driver = ECDriver(k=k, m=n - k, ec_type=backend)
        except ECDriverError as error:
            raise ConfigurationRefused(f"erasure code {backend} with k={k}, m={n - k} is not available: {error}") from error

    def encode(self, value: bytes) -> Sequence[bytes]:
        if not value:
            return [b""] * self._n
        elements: list[bytes] = self._driver.encode(value)
        return elements

    def decode(self, length: int, elements: Mapping[int, bytes]) -> bytes:
        if not length:
            return b""
        chosen = [elements[index] for index in sorted(elements)[: self.k]]
        try:
            value: bytes = self._driver.decode(chosen)
        except ECDriverError as error:
            raise DecodeFailed("an object", f"the erasure code says {error}") from error
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
