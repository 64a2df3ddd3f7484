"""Values that name their write, so that every read can be checked by any process.

A value is the number of the writer, the number of the write, the number of the key, and filling. A
reader therefore knows whether a write of that key wrote the value, given the number of writes that
the writer began.
"""

import random
import struct
from collections.abc import Mapping

from msgspec import Struct

VALUE_HEAD = struct.Struct(">HII")
PRELOADER = 0
"""Writer of the initial values; write number i goes to key i."""

_PHASES = 7
_SHARED_SEED = 6


class Values:
    """A maker and checker of values of ``size`` bytes (10 at least).

    All processes make the same value of the same numbers. The filling of each write is a part of
    the same random bytes, from another start: a value mixed from two writes is detected.
    """

    def __init__(self, size: int) -> None:
        if size < VALUE_HEAD.size:
            raise ValueError(
                f"values have {VALUE_HEAD.size} bytes at least, to name their writer; {size} "
                "were asked for"
            )
        self.size = size
        filling = size - VALUE_HEAD.size
        source = random.Random(_SHARED_SEED).randbytes(filling + _PHASES)
        self._fillings = [memoryview(source)[phase : phase + filling] for phase in range(_PHASES)]

    def make(self, writer: int, number: int, key: int) -> bytes:
        """Return the value of the write of this key."""
        return b"".join(
            (VALUE_HEAD.pack(writer, number, key), self._fillings[(writer + number) % _PHASES])
        )

    def writer_of(self, value: bytes, key: int) -> tuple[int, int] | None:
        """Return writer and number of the write of ``key`` with this value, or `None`.

        `None` means that no write of the key can have written the value.
        """
        if len(value) != self.size:
            return None
        writer, number, written = VALUE_HEAD.unpack_from(value)
        if written != key or not value.endswith(self._fillings[(writer + number) % _PHASES]):
            return None
        return writer, number


class BegunWrites(Struct):
    """The writes of each writer, and the writes seen by readers.

    ``writes`` has the number of writes begun, by writer; ``seen`` has the highest number of a write
    in a read value, by writer.
    """

    writes: dict[int, int] = {}
    seen: dict[int, int] = {}

    def add(self, other: "BegunWrites") -> None:
        """Add the knowledge of another process."""
        for writer, writes in other.writes.items():
            self.writes[writer] = max(writes, self.writes.get(writer, 0))
        for writer, number in other.seen.items():
            self.seen[writer] = max(number, self.seen.get(writer, -1))

    def unwritten(self) -> Mapping[int, int]:
        """Return, by writer, a number that was read and never begun.

        The result is empty if all reads are genuine.
        """
        return {
            writer: number
            for writer, number in self.seen.items()
            if number >= self.writes.get(writer, 0)
        }
