"""The cutting of a file into chunks by its content: an edit in the middle moves few cuts.

By FastCDC, or by the papers' Rabin fingerprints (ares/fragment/rabin.py). A cut depends only on the
bytes from the previous cut up to ``max`` bytes further. A cut found before the end of a window is
therefore a cut in any longer piece of the same stream, and the stream can be divided window by
window.
"""

from collections.abc import Callable, Iterator, Sequence
from math import log2

from blake3 import blake3
from msgspec import Struct

from ares.fragment.rabin import RabinEnds
from ares.model.errors import BadInput, ConfigurationRefused
from ares.model.numbers import is_whole, shown_number
from ares.model.units import KIB, MIB

try:
    from fastcdc.fastcdc_cy import fastcdc_cy
except ImportError:
    # The package's own fallback gives the same cuts a thousand times slower; a program that only
    # reads files needs neither.
    fastcdc_cy = None


FASTCDC, RABIN = CHUNKINGS = "fastcdc", "rabin"
"""Ways to find cuts; the file keeps the way with which it was made."""

CHUNK_SIZE_MIN = 64
CHUNK_SIZE_MAX = 128 * MIB
DIGEST_BYTES = 16

DIVIDE_WINDOW_BYTES = 4 * MIB
"""Bytes read at a time beyond a maximal chunk."""

# Limits of the library (its constants MINIMUM_MAX, AVERAGE_MIN, MAXIMUM_MIN); its further limits
# are wider than ours.
LARGEST_MIN = 64 * MIB
SMALLEST_AVG = 256
SMALLEST_MAX = 1024

NAME_SHOWN_MAX = 40
"""Characters of an unknown name in a message."""


class Sizes(Struct, frozen=True, array_like=True):
    """The sizes of chunks, in bytes. Only the last chunk of a file may be smaller than ``min``.

    The first ``min`` bytes have no cut. FastCDC: from there to ``avg - 1.5 * min`` a cut comes
    every ``2 * avg`` bytes on average, afterwards every ``avg / 2``, and at ``max`` in any case.
    With ``avg`` at most ``2.5 * min``, as in the papers' defaults, the rarer cuts have no room:
    chunks have ``min + avg / 2`` bytes on average, less the part cut off by ``max``. Rabin: from
    ``min`` on a cut comes every ``avg`` bytes on average, and at ``max`` in any case: chunks have
    ``min + avg`` bytes on average, less the part cut off. ``avg`` counts as the nearest power of
    two. Raises :class:`BadInput` unless 64 B <= min <= avg <= max <= 128 MiB, min
    <= 64 MiB, avg >= 256 B and max >= 1 KiB.
    """

    min: int = 512 * KIB
    avg: int = 512 * KIB
    max: int = 1 * MIB

    def __post_init__(self) -> None:
        if not all(is_whole(size) for size in (self.min, self.avg, self.max)):
            given = ", ".join(map(shown_number, (self.min, self.avg, self.max)))
            raise BadInput(f"block sizes are whole numbers of bytes, not {given}")
        sizes = f"block sizes min {self.min}, avg {self.avg}, max {self.max} bytes"
        if not CHUNK_SIZE_MIN <= self.min <= self.avg <= self.max <= CHUNK_SIZE_MAX:
            raise BadInput(
                f"{sizes}: they must be in this order, from {CHUNK_SIZE_MIN} to {CHUNK_SIZE_MAX}"
            )
        if self.min > LARGEST_MIN or self.avg < SMALLEST_AVG or self.max < SMALLEST_MAX:
            raise BadInput(
                f"{sizes}: min may be at most {LARGEST_MIN}, avg at least {SMALLEST_AVG}, max at "
                f"least {SMALLEST_MAX}"
            )


class Chunk(Struct, frozen=True, array_like=True, gc=False):
    """A piece of a file: its position, and the digest of its bytes."""

    offset: int
    length: int
    digest: bytes


class Content(Struct, frozen=True):
    """The intended content of a file: its chunks, and a function that loads the bytes of a chunk.

    At most a window of chunks is loaded at a time.
    """

    chunks: Sequence[Chunk]
    load: Callable[[Chunk], bytes | memoryview]

    @property
    def length(self) -> int:
        return sum(chunk.length for chunk in self.chunks)


def digest(data: bytes | memoryview) -> bytes:
    """Return DIGEST_BYTES bytes of BLAKE3.

    Equal for equal data, and for no other data that can be found.
    """
    return blake3(data).digest(DIGEST_BYTES)


Cuts = Callable[[bytes, Sizes, bool], Iterator[tuple[int, int]]]
"""A function that yields start and end of each chunk of a window, which begins at a cut.

Unless the window is the last of its stream (the third argument), a chunk that may go on behind the
window is left out.
"""


def checked_chunking(name: str) -> str:
    """Return ``name``, if it names a chunking; raise :class:`BadInput` otherwise."""
    if name not in CHUNKINGS:
        given = repr(name[:NAME_SHOWN_MAX] if isinstance(name, str) else name)
        known = " and ".join(CHUNKINGS)
        raise BadInput(f"this release of ares has no chunking {given}, only {known}")
    return name


def fastcdc_cuts(window: bytes, sizes: Sizes, last: bool) -> Iterator[tuple[int, int]]:
    """Yield the chunks of FastCDC; see :data:`Cuts`.

    Raises :class:`ConfigurationRefused` when the compiled library is missing.
    """
    if fastcdc_cy is None:
        raise ConfigurationRefused(
            "the compiled part of the library `fastcdc` is missing, and without it dividing files "
            "is a thousand times slower; nothing was sent. Install a wheel of it for this Python, "
            "or a C compiler and then `pip install --no-binary fastcdc fastcdc`"
        )
    for found in fastcdc_cy(window, sizes.min, sizes.avg, sizes.max):
        start, end = found.offset, found.offset + found.length
        if end == len(window) and found.length < sizes.max and not last:
            return
        yield start, end


def rabin_cuts(
    rabin_ends: RabinEnds, window: bytes, sizes: Sizes, last: bool
) -> Iterator[tuple[int, int]]:
    """Yield the chunks by Rabin fingerprints; see :data:`Cuts`.

    ``rabin_ends``: :func:`ares.fragment.rabin.rabin_ends`, or the same function of the core.
    """
    start = 0
    for end in rabin_ends(window, sizes.min, sizes.max, round(log2(sizes.avg))):
        yield start, end
        start = end
    if last and start < len(window):
        yield start, len(window)


def divide(
    read: Callable[[int, int], bytes], sizes: Sizes, cuts: Cuts = fastcdc_cuts
) -> Iterator[Chunk]:
    """Yield the chunks of a stream, in order; an empty stream has no chunk.

    ``read(offset, count)`` returns ``count`` bytes from the offset, fewer only at the end; bytes
    behind the last cut of a window are read again with the next window. Holds a single window of
    ``max`` and DIVIDE_WINDOW_BYTES bytes.
    """
    count = sizes.max + DIVIDE_WINDOW_BYTES
    start, last = 0, False
    while not last:
        window = read(start, count)
        last = len(window) < count
        end = 0
        for offset, end in cuts(window, sizes, last):
            yield Chunk(start + offset, end - offset, digest(memoryview(window)[offset:end]))
        start += end
        del window  # before the next read: at most a single window exists


class Divider:
    """``divide`` for pushed data: the same chunks, however the data was split.

    Holds less than ``max`` bytes between calls.
    """

    def __init__(self, sizes: Sizes, cuts: Cuts = fastcdc_cuts) -> None:
        self._sizes = sizes
        self._cuts = cuts
        self._held: list[bytes] = []
        self._held_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the chunks completed by ``data``.

        The cut is searched only once ``max`` bytes are present, hence no byte is examined again and
        again.
        """
        self._held.append(data)
        self._held_bytes += len(data)
        return self._cut(False) if self._held_bytes >= self._sizes.max else []

    def finish(self) -> list[bytes]:
        """Return the chunks of the remaining data; the divider is as new."""
        return self._cut(True)

    def _cut(self, last: bool) -> list[bytes]:
        window = b"".join(self._held)
        chunks, end = [], 0
        for start, end in self._cuts(window, self._sizes, last):
            chunks.append(window[start:end])
        self._held = [window[end:]]
        self._held_bytes = len(window) - end
        return chunks
