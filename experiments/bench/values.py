"""Values that tell who wrote them and as what, so that every read can be checked, whichever process wrote what it finds.

A value is the number of its writer, the number of that writer's write, and filling. Which key a write goes to follows from these two numbers (it
looks random), so whoever reads a value knows whether some write of that key wrote it, once it is known how many writes that writer began.
"""

import random
import struct
from collections.abc import Mapping

from msgspec import Struct

HEAD = struct.Struct(">HQ")
PRELOADER = 0
"""The writer of the values that are there from the beginning; its write number i goes to key i."""

_PHASES = 7
_SHARED_SEED = 6


def key_of(writer: int, number: int, keys: int) -> int:
    """Which of ``keys`` keys the write goes to."""
    if writer == PRELOADER:
        return number
    mixed = ((number * 0x9E3779B1) ^ (writer * 0x85EBCA6B)) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 0x2C1B3C6D) & 0xFFFFFFFF
    return ((mixed ^ (mixed >> 13)) * keys) >> 32


class Values:
    """Makes and checks values of ``size`` bytes (10 at least) for ``keys`` keys. All processes make the same of the same numbers.

    The filling of one write is a part of the same random bytes as that of the next, begun elsewhere: a value put together of two writes is found out.
    """

    def __init__(self, size: int, keys: int) -> None:
        if size < HEAD.size:
            raise ValueError(
                f"values have {HEAD.size} bytes at least, to tell who wrote them; {size} were asked for"
            )
        self.size = size
        self._keys = keys
        filling = size - HEAD.size
        source = random.Random(_SHARED_SEED).randbytes(filling + _PHASES)
        self._fillings = [memoryview(source)[phase : phase + filling] for phase in range(_PHASES)]

    def make(self, writer: int, number: int) -> bytes:
        """The value of that write."""
        return b"".join((HEAD.pack(writer, number), self._fillings[(writer + number) % _PHASES]))

    def writer_of(self, value: bytes, key: int) -> tuple[int, int] | None:
        """Writer and number of the write of ``key`` that this value is of; None if no write of that key can have written it."""
        if len(value) != self.size:
            return None
        writer, number = HEAD.unpack_from(value)
        if key_of(writer, number, self._keys) != key or not value.endswith(
            self._fillings[(writer + number) % _PHASES]
        ):
            return None
        return writer, number


class Begun(Struct):
    """``writes``: by writer, how many writes it began; ``seen``: the highest number of a write of that writer that was read."""

    writes: dict[int, int] = {}
    seen: dict[int, int] = {}

    def add(self, other: "Begun") -> None:
        """Take in what another process knows."""
        for writer, writes in other.writes.items():
            self.writes[writer] = max(writes, self.writes.get(writer, 0))
        for writer, number in other.seen.items():
            self.seen[writer] = max(number, self.seen.get(writer, -1))

    def unwritten(self) -> Mapping[int, int]:
        """By writer, a number that was read and that it never got to. Empty, if nothing was made up."""
        return {
            writer: number
            for writer, number in self.seen.items()
            if number >= self.writes.get(writer, 0)
        }
