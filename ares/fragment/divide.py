"""Where a file is cut into chunks: by its content, so that an edit in the middle moves few cuts (FastCDC; the papers use Rabin fingerprints).

A cut depends on the bytes from the cut before it up to ``max`` bytes further and on nothing else. A cut that the library finds before the end of
what it was given is therefore the cut that it would find in any longer piece of the same stream, and the stream can be divided window by window.
"""

from collections.abc import Callable, Iterator, Sequence

from blake3 import blake3
from msgspec import Struct

from ares.model.errors import BadInput, ConfigurationRefused
from ares.model.numbers import is_whole, shown_number

try:
    from fastcdc.fastcdc_cy import fastcdc_cy
except ImportError:
    # The package's own fallback gives the same cuts a thousand times slower; a program that only reads files needs neither.
    fastcdc_cy = None

KIB = 1024
MIB = 1024 * KIB

SIZE_MIN = 64
SIZE_MAX = 128 * MIB
DIGEST_BYTES = 16

WINDOW_BYTES = 4 * MIB
"""What is read at a time beyond one maximal chunk."""

# What the library can do (its constants MINIMUM_MAX, AVERAGE_MIN, MAXIMUM_MIN); its other limits are wider than ours.
LARGEST_MIN = 64 * MIB
SMALLEST_AVG = 256
SMALLEST_MAX = 1024


class Sizes(Struct, frozen=True, array_like=True):
    """How large chunks are, in bytes. Only the last chunk of a file may be smaller than ``min``.

    No cut is looked for in the first ``min`` bytes; from there to ``avg - 1.5 * min`` one comes every ``2 * avg`` bytes on average, then every
    ``avg / 2``, and at ``max`` in any case. With ``avg`` at most ``2.5 * min``, as in the papers' defaults, the rarer cuts have no room: chunks have
    ``min + avg / 2`` bytes on average, less what ``max`` takes away. ``avg`` counts as the nearest power of two.
    Raises :class:`BadInput` unless 64 B <= min <= avg <= max <= 128 MiB, min <= 64 MiB, avg >= 256 B and max >= 1 KiB.
    """

    min: int = 512 * KIB
    avg: int = 512 * KIB
    max: int = 1 * MIB

    def __post_init__(self) -> None:
        if not all(is_whole(size) for size in (self.min, self.avg, self.max)):
            given = ", ".join(map(shown_number, (self.min, self.avg, self.max)))
            raise BadInput(f"block sizes are whole numbers of bytes, not {given}")
        told = f"block sizes min {self.min}, avg {self.avg}, max {self.max} bytes"
        if not SIZE_MIN <= self.min <= self.avg <= self.max <= SIZE_MAX:
            raise BadInput(f"{told}: they must be in this order, from {SIZE_MIN} to {SIZE_MAX}")
        if self.min > LARGEST_MIN or self.avg < SMALLEST_AVG or self.max < SMALLEST_MAX:
            raise BadInput(
                f"{told}: min may be at most {LARGEST_MIN}, avg at least {SMALLEST_AVG}, max at least {SMALLEST_MAX}"
            )


class Chunk(Struct, frozen=True, array_like=True, gc=False):
    """A piece of a file: where it is, and the digest of its bytes."""

    offset: int
    length: int
    digest: bytes


class Content(Struct, frozen=True):
    """What a file is to hold: its chunks, and how to get the bytes of one (at most a window of chunks is asked for at a time)."""

    chunks: Sequence[Chunk]
    load: Callable[[Chunk], bytes | memoryview]

    @property
    def length(self) -> int:
        return sum(chunk.length for chunk in self.chunks)


def digest(data: bytes | memoryview) -> bytes:
    """DIGEST_BYTES bytes of BLAKE3: equal for equal data, and for no other data that anybody can find."""
    return blake3(data).digest(DIGEST_BYTES)


def divide(read: Callable[[int, int], bytes], sizes: Sizes) -> Iterator[Chunk]:
    """The chunks of a stream, in order; none of an empty one.

    ``read(offset, count)`` gives ``count`` bytes from there, fewer only at the end; bytes behind the last cut of a window are read again with the
    next. Holds one window of ``max`` and WINDOW_BYTES bytes. Raises :class:`ConfigurationRefused` when the compiled library is missing.
    """
    count = sizes.max + WINDOW_BYTES
    start, last = 0, False
    while not last:
        window = memoryview(read(start, count))
        last = len(window) < count
        end = 0
        for offset, end in _cuts(window, sizes, last):
            yield Chunk(start + offset, end - offset, digest(window[offset:end]))
        start += end
        del window  # before the next is read: there is never more than one


class Divider:
    """``divide`` for data that is pushed: the same chunks, however the data was split. Holds less than ``max`` bytes between calls."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self._held: list[bytes] = []
        self._held_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The chunks completed by ``data``; the cut is only looked for once ``max`` bytes are there, so that no byte is looked at again and again."""
        self._held.append(data)
        self._held_bytes += len(data)
        return self._cut(False) if self._held_bytes >= self._sizes.max else []

    def finish(self) -> list[bytes]:
        """The chunks of what is left; the divider is as new."""
        return self._cut(True)

    def _cut(self, last: bool) -> list[bytes]:
        window = b"".join(self._held)
        chunks, end = [], 0
        for start, end in _cuts(memoryview(window), self._sizes, last):
            chunks.append(window[start:end])
        self._held = [window[end:]]
        self._held_bytes = len(window) - end
        return chunks


def _cuts(window: memoryview, sizes: Sizes, last: bool) -> Iterator[tuple[int, int]]:
    """Start and end of each chunk of the window, which begins at a cut; without one that may go on behind it, unless it is the ``last`` window."""
    if fastcdc_cy is None:
        raise ConfigurationRefused(
            "the compiled part of the library `fastcdc` is missing, and without it dividing files is a thousand times slower; nothing was sent. "
            "Install a wheel of it for this Python, or a C compiler and then `pip install --no-binary fastcdc fastcdc`"
        )
    for found in fastcdc_cy(window, sizes.min, sizes.avg, sizes.max):
        start, end = found.offset, found.offset + found.length
        if end == len(window) and found.length < sizes.max and not last:
            return
        yield start, end
