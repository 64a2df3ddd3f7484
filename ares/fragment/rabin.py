"""The ends of chunks by Rabin fingerprints, as in CoBFS.

Bytes are polynomials over GF(2), the first bit with the highest power. The fingerprint of the last
RABIN_WINDOW_BYTES bytes is their remainder modulo RABIN_POLYNOMIAL, which is irreducible: a step of
the window costs two looks into tables. A chunk ends where the lowest bits of the fingerprint are
all 1, hence not in a run of zeros, whose fingerprint is 0.

See M. O. Rabin, Fingerprinting by random polynomials (1981), and the file system LBFS (2001). The
compiled core has the same function (core/src/rabin.rs), some hundred times faster.
"""

from collections.abc import Callable
from functools import cache

RABIN_POLYNOMIAL = 0x3DA3358B4DC173
RABIN_WINDOW_BYTES = 48

_DEGREE = RABIN_POLYNOMIAL.bit_length() - 1

RabinEnds = Callable[[bytes, int, int, int], list[int]]
"""A function like :func:`rabin_ends`."""


def rabin_ends(data: bytes, min: int, max: int, bits: int) -> list[int]:
    """Return the ends of the chunks of ``min`` to ``max`` bytes that surely end within ``data``.

    A chunk ends where the lowest ``bits`` bits of the fingerprint are 1, or has ``max`` bytes.
    ``min`` is at least RABIN_WINDOW_BYTES.
    """
    mask = (1 << bits) - 1
    ends, start = [], 0
    while (length := _first_end(data[start : start + max], min, max, mask)) is not None:
        start += length
        ends.append(start)
    return ends


def _first_end(data: bytes, min: int, max: int, mask: int) -> int | None:
    """Return the end of the first chunk; None: the chunk may go on behind ``data``."""
    if len(data) < min:
        return None
    reduction, leaving = _tables()
    high = _DEGREE - 8
    fingerprint = 0
    for byte in data[min - RABIN_WINDOW_BYTES : min]:
        fingerprint = (fingerprint << 8 | byte) ^ reduction[fingerprint >> high]
    end = min
    for old, new in zip(data[min - RABIN_WINDOW_BYTES :], data[min:], strict=False):
        if fingerprint & mask == mask:
            return end
        fingerprint = (fingerprint << 8 | new) ^ reduction[fingerprint >> high] ^ leaving[old]
        end += 1
    return end if end == max or fingerprint & mask == mask else None


@cache
def _tables() -> tuple[list[int], list[int]]:
    """Return two tables by byte.

    The first has the sums that take the bits above the degree away, by these bits; the second has
    the terms of the byte that leaves the window.
    """
    reduction = [byte << _DEGREE ^ _remainder(byte << _DEGREE) for byte in range(256)]
    return reduction, [_remainder(byte << 8 * RABIN_WINDOW_BYTES) for byte in range(256)]


def _remainder(value: int) -> int:
    while (excess := value.bit_length() - 1 - _DEGREE) >= 0:
        value ^= RABIN_POLYNOMIAL << excess
    return value
