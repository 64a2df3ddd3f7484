"""A client of a load generator: sends a request, checks the answer, and repeats until the end.

In a closed loop the client sends the next request after the last answer; in an open loop, when an
operation is due and a client is free.
"""

import math
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from experiments.bench.patterns import Pattern
from experiments.bench.values import BegunWrites, Values

Asked = tuple[str, bytes | None]
"""A key, and the value to write or None to read."""


class Record:
    """The events of all clients of a process.

    ``operations`` are (due, begin, end, whether a read) by the machine's monotonic clock. In a
    closed loop an operation is due when it begins.
    """

    def __init__(self) -> None:
        self.operations: list[tuple[float, float, float, bool]] = []
        self.begun = BegunWrites()
        self.troubles: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()


class ClientLoop(Protocol):
    """A source of operations.

    The caller repeats :meth:`ask` and one of :meth:`answered` and :meth:`failed` until :meth:`ask`
    returns None.
    """

    def ask(self) -> Asked | float | None:
        """Return an operation, seconds after which to call again, or None at the end."""

    def answered(self, value: bytes | None = None) -> None:
        """Record the end of the operation; ``value`` is the result of a read."""

    def failed(self, why: str) -> None:
        """Record an operation that failed, or may have failed."""


class LoopWork(NamedTuple):
    """The work of the clients of a process, and the record of their operations."""

    pattern: Pattern
    keys: Sequence[str]
    """All keys by number."""

    values: Values
    record: Record
    end_s: float
    begin_s: float = 0.0
    most: float = math.inf
    """Number of operations from ``begin_s`` on after which a client ends before ``end_s``."""

    written: int | None = None
    """Number of the first keys with a value from the beginning, by default all keys.

    A read of any other key may find no value.
    """

    clients: int = 1
    """Number of the clients of all processes, which take turns in the numbers of insertions."""


class ClosedLoop:
    """The :class:`ClientLoop` of a client, until the end of ``work`` or a number of operations.

    ``writer`` is the number of this client; no other client of the store has this number, in any
    process, before or after. A scan or a modification has several steps, and counts once: from its
    first request to its last answer. A modification counts as a write.
    """

    def __init__(self, writer: int, work: LoopWork) -> None:
        self._keys, self._writer, self._values = work.keys, writer, work.values
        self._draw, self._record = work.pattern.draw, work.record
        self._begin_s, self._end_s, self._left = work.begin_s, work.end_s, work.most
        self._always_there = len(work.keys) if work.written is None else work.written
        self._there, self._clients = self._always_there, work.clients
        self._written = self._inserted = 0
        self._reading: int | None = None
        self._unread = range(0)
        self._modified: int | None = None
        self._began_s = 0.0
        self._due_s: float | None = None
        work.record.begun.writes[writer] = 0

    def ask(self) -> Asked | None:
        if (step := self._step()) is not None:
            return step
        self._began_s = time.perf_counter()
        if self._began_s >= self._end_s or self._left <= 0:
            return None
        self._left -= self._began_s >= self._begin_s
        return self._chosen()

    @property
    def has_done_all(self) -> bool:
        """Return whether the client has begun all its operations."""
        return self._left <= 0

    def _chosen(self) -> Asked:
        kind, number, length = self._draw(self._there)
        if kind in ("update", "insert"):
            asked = self._write(number if kind == "update" else self._insertion())
            self._began_s = time.perf_counter()
            return asked
        if kind == "scan":
            self._unread = range(number + 1, min(number + length, self._there))
        elif kind == "modify":
            self._modified = number
        self._reading = number
        return self._keys[number], None

    def _step(self) -> Asked | None:
        """Return the next step of an operation that is under way."""
        if self._unread:
            self._reading, self._unread = self._unread[0], self._unread[1:]
            return self._keys[self._reading], None
        if self._modified is None:
            return None
        number, self._modified = self._modified, None
        return self._write(number)

    def _write(self, number: int) -> Asked:
        value = self._values.make(self._writer, self._written, number)
        self._written += 1
        self._record.begun.writes[self._writer] = self._written
        self._reading = None
        return self._keys[number], value

    def _insertion(self) -> int:
        """Return the record of an insertion; without room, the records begin again.

        The clients insert side by side. Records of the last turn may not be there yet.
        """
        first, room = self._always_there, len(self._keys) - self._always_there
        turn = self._inserted * self._clients
        self._inserted += 1
        self._there = max(self._there, min(first + turn, len(self._keys)))
        return first + (turn + self._writer % self._clients) % room

    def answered(self, value: bytes | None = None) -> None:
        ended_s = time.perf_counter()
        reading = self._reading
        if not self._unread and self._modified is None:
            due_s = self._began_s if self._due_s is None else self._due_s
            self._record.operations.append((due_s, self._began_s, ended_s, reading is not None))
        if reading is None or (value is None and reading >= self._always_there):
            return
        found = None if value is None else self._values.writer_of(value, reading)
        if found is None:
            what = f"a value that no write stored: {_shown(value)}"
            self._record.wrong[f"a read of {self._keys[reading]} returned {what}"] += 1
            return
        writer, number = found
        if number > self._record.begun.seen.get(writer, -1):
            self._record.begun.seen[writer] = number

    def failed(self, why: str) -> None:
        self._unread, self._modified = range(0), None
        self._record.troubles[why] += 1


class Arrivals:
    """Times of due operations: a Poisson process of ``per_s`` from ``begin_s`` to ``end_s``.

    The times are in order, and each is taken once.
    """

    def __init__(self, per_s: float, begin_s: float, end_s: float, seed: object) -> None:
        self._times = _poisson(per_s, begin_s, end_s, random.Random(f"{seed}"))

    def take(self) -> float | None:
        """Return the next time, or `None` at the end."""
        return next(self._times, None)

    def left(self) -> int:
        """Take all remaining times, and return their number."""
        return sum(1 for _ in self._times)


def _poisson(per_s: float, begin_s: float, end_s: float, chance: random.Random) -> Iterator[float]:
    at_s = begin_s + chance.expovariate(per_s)
    while at_s < end_s:
        yield at_s
        at_s += chance.expovariate(per_s)


class OpenLoop(ClosedLoop):
    """A client among several that serve the same ``arrivals``: a free client takes the next.

    No operation begins after ``end_s``. ``missed`` says that an operation was due and did not
    begin.
    """

    def __init__(self, arrivals: Arrivals, writer: int, work: LoopWork) -> None:
        super().__init__(writer, work)
        self._arrivals = arrivals
        self._taken_s: float | None = None
        self.missed = 0

    def ask(self) -> Asked | float | None:  # type: ignore[override]
        if (step := self._step()) is not None:
            return step
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
