"""One client of a load generator: it asks, waits for the answer, checks it, and asks again until its time is over."""

import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from experiments.bench.values import Begun, Values, key_of

_DRAWS = 1024


class Record:
    """What the clients of one process went through: ``operations`` as (begin, end, whether it read) by the machine's monotonic clock; troubles."""

    def __init__(self) -> None:
        self.operations: list[tuple[float, float, bool]] = []
        self.begun = Begun()
        self.troubles: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()


class Loop(Protocol):
    """Call :meth:`ask` for what to ask, then :meth:`answered` or :meth:`failed`, and so on until :meth:`ask` says None."""

    def ask(self) -> tuple[str, bytes | None] | None:
        """A key, and the value to write or None to read it; None when it is over."""

    def answered(self, value: bytes | None = None) -> None:
        """The operation is done; ``value``: what a read found."""

    def failed(self, why: str) -> None:
        """The operation came to nothing, or may have."""


class ClosedLoop:
    """The :class:`Loop` of one client, until ``end_s``. ``keys``: all, by number; shared by the clients of a process.

    ``writer`` is this client's own number; no other client of the store has it, in this process or another, before or after.
    """

    def __init__(self, writer: int, read_share: float, keys: Sequence[str], values: Values, record: Record, end_s: float) -> None:
        rng = random.Random(writer)
        self._reads = [rng.random() < read_share for _ in range(_DRAWS)]
        self._numbers = [rng.randrange(len(keys)) for _ in range(_DRAWS)]
        self._keys = keys
        self._writer, self._values, self._record, self._end_s = writer, values, record, end_s
        self._count = self._written = 0
        self._reading: int | None = None
        self._began_s = 0.0
        record.begun.writes[writer] = 0

    def ask(self) -> tuple[str, bytes | None] | None:
        self._began_s = time.perf_counter()
        if self._began_s >= self._end_s:
            return None
        draw = self._count % _DRAWS
        self._count += 1
        if self._reads[draw]:
            self._reading = self._numbers[draw]
            return self._keys[self._reading], None
        self._reading = None
        number = self._written
        self._written += 1
        self._record.begun.writes[self._writer] = self._written
        value = self._values.make(self._writer, number)
        self._began_s = time.perf_counter()
        return self._keys[key_of(self._writer, number, len(self._keys))], value

    def answered(self, value: bytes | None = None) -> None:
        ended_s = time.perf_counter()
        reading = self._reading
        self._record.operations.append((self._began_s, ended_s, reading is not None))
        if reading is None:
            return
        found = None if value is None else self._values.writer_of(value, reading)
        if found is None:
            self._record.wrong[f"a read of {self._keys[reading]} returned what no write of it wrote: {_shown(value)}"] += 1
            return
        writer, number = found
        if number > self._record.begun.seen.get(writer, -1):
            self._record.begun.seen[writer] = number

    def failed(self, why: str) -> None:
        self._record.troubles[why] += 1


def _shown(value: bytes | None) -> str:
    return "nothing" if value is None else f"{value[:16].hex()}... ({len(value)} bytes)"
