"""One client of a load generator: it asks, waits for the answer, checks it, and asks again until its time is over.

In a closed loop it asks when it was answered; in an open one, when an operation is due and a client is free.
"""

import math
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from experiments.bench.values import Begun, Values, key_of

_DRAWS = 1024

Asked = tuple[str, bytes | None]
"""A key, and the value to write or None to read it."""


class Record:
    """What the clients of one process went through: ``operations`` as (due, begin, end, whether it read) by the machine's monotonic clock; troubles.

    In a closed loop an operation is due when it begins.
    """

    def __init__(self) -> None:
        self.operations: list[tuple[float, float, float, bool]] = []
        self.begun = Begun()
        self.troubles: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()


class Loop(Protocol):
    """Call :meth:`ask` for what to ask, then :meth:`answered` or :meth:`failed`, and so on until :meth:`ask` says None."""

    def ask(self) -> Asked | float | None:
        """What to ask; seconds after which to call again; None when it is over."""

    def answered(self, value: bytes | None = None) -> None:
        """The operation is done; ``value``: what a read found."""

    def failed(self, why: str) -> None:
        """The operation came to nothing, or may have."""


class ClosedLoop:
    """The :class:`Loop` of one client, until ``end_s`` or, if that comes first, ``most`` operations that begin from ``begin_s`` on. ``keys``: all, by
    number; shared by the clients of a process. ``written``: so many of them have a value from the beginning; a read of another may find none.

    ``writer`` is this client's own number; no other client of the store has it, in this process or another, before or after.
    """

    def __init__(
        self,
        writer: int,
        read_share: float,
        keys: Sequence[str],
        values: Values,
        record: Record,
        end_s: float,
        *,
        begin_s: float = 0.0,
        most: float = math.inf,
        written: int | None = None,
    ) -> None:
        rng = random.Random(writer)
        self._reads = [rng.random() < read_share for _ in range(_DRAWS)]
        self._numbers = [rng.randrange(len(keys)) for _ in range(_DRAWS)]
        self._keys = keys
        self._writer, self._values, self._record, self._end_s = writer, values, record, end_s
        self._begin_s, self._left = begin_s, most
        self._always_there = len(keys) if written is None else written
        self._count = self._written = 0
        self._reading: int | None = None
        self._began_s = 0.0
        self._due_s: float | None = None
        record.begun.writes[writer] = 0

    def ask(self) -> Asked | None:
        self._began_s = time.perf_counter()
        if self._began_s >= self._end_s or self._left <= 0:
            return None
        self._left -= self._began_s >= self._begin_s
        return self._chosen()

    @property
    def has_done_all(self) -> bool:
        """Whether it has asked for as many operations as it was to."""
        return self._left <= 0

    def _chosen(self) -> Asked:
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
        self._record.operations.append(
            (
                self._began_s if self._due_s is None else self._due_s,
                self._began_s,
                ended_s,
                reading is not None,
            )
        )
        if reading is None or (value is None and reading >= self._always_there):
            return
        found = None if value is None else self._values.writer_of(value, reading)
        if found is None:
            self._record.wrong[
                f"a read of {self._keys[reading]} returned what no write of it wrote: {_shown(value)}"
            ] += 1
            return
        writer, number = found
        if number > self._record.begun.seen.get(writer, -1):
            self._record.begun.seen[writer] = number

    def failed(self, why: str) -> None:
        self._record.troubles[why] += 1


class Arrivals:
    """When operations are due: a Poisson process of ``per_s`` from ``begin_s`` to ``end_s``. Times in order, each taken once."""

    def __init__(self, per_s: float, begin_s: float, end_s: float, seed: object) -> None:
        self._times = _poisson(per_s, begin_s, end_s, random.Random(f"{seed}"))

    def take(self) -> float | None:
        """The next one; None if there is none."""
        return next(self._times, None)

    def left(self) -> int:
        """How many nobody took; they are taken by this."""
        return sum(1 for _ in self._times)


def _poisson(per_s: float, begin_s: float, end_s: float, chance: random.Random) -> Iterator[float]:
    at_s = begin_s + chance.expovariate(per_s)
    while at_s < end_s:
        yield at_s
        at_s += chance.expovariate(per_s)


class OpenLoop(ClosedLoop):
    """One of the clients that serve the same ``arrivals``: whichever is free takes the next. None begins after ``end_s``; ``missed``: one was due and
    did not begin.
    """

    def __init__(self, arrivals: Arrivals, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._arrivals = arrivals
        self._taken_s: float | None = None
        self.missed = 0

    def ask(self) -> Asked | float | None:  # type: ignore[override]
        if self._taken_s is None:
            self._taken_s = self._arrivals.take()
        if self._taken_s is None:
            return None
        now_s = time.perf_counter()
        if now_s >= self._end_s:
            self.missed, self._taken_s = 1, None
            return None
        if now_s < self._taken_s:
            return self._taken_s - now_s
        self._due_s, self._began_s, self._taken_s = self._taken_s, now_s, None
        return self._chosen()


def _shown(value: bytes | None) -> str:
    return "nothing" if value is None else f"{value[:16].hex()}... ({len(value)} bytes)"
