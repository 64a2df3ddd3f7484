"""Linearizability of read/write registers, judged from outside: by invocations, responses and values alone, never by tags.

A history is linearizable if and only if that of every key is (Herlihy and Wing), so each key is judged for itself. Operation A comes before B if it
responded before B was invoked; at the same time is no order. Values written once are judged in n log n steps (register.py); if a key's reads
return values that were written more than once, such as "absent" after two deletes, an exact search follows (search.py), and if its budget is
spent the key is *undecided*.

A history that contradicts itself is made smaller, to few operations of it that still do. What may be left out is reads, and writes that none of the
reads left can have got its value from: because all reads of the value ended before the write was invoked, or because one of the writes left surely
lies between the write and all of them. Then the operations left contradict each other whatever the rest of the history is. The last write of a
value before it was read stays in any case, lest it looked as if there was none.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from math import inf
from operator import attrgetter

from ares.testing.verify.history import Event, HistoryReport, UndecidedKey, Violation
from ares.testing.verify.register import (
    Contradiction,
    Register,
    by_key,
    conflicts,
    contradiction,
    is_write,
    named,
    response,
    written,
    zones_of,
)
from ares.testing.verify.search import Search

STATES_MAX = 500_000
"""How many states the search looks at for a key, unless told otherwise."""

_SHRINKING_STATES_MAX = 20_000
_WINDOW = 32


def check(events: Iterable[Event], states_max: int = STATES_MAX) -> HistoryReport:
    """Judge a history; each violation names few operations that contradict each other by themselves.

    ``states_max`` bounds the search on a key with repeated values. Raises :class:`ares.BadInput` if a completed operation has no
    response.
    """
    keys = by_key(events)
    violations: list[Violation] = []
    undecided: list[UndecidedKey] = []
    for key, own in keys.items():
        for finding in _judge(own, states_max):
            if isinstance(finding, Contradiction):
                violations.append(finding.on(key))
            else:
                undecided.append(UndecidedKey(key, finding))
    return HistoryReport(
        sum(map(len, keys.values())), len(keys), tuple(violations), tuple(undecided)
    )


def _judge(events: Sequence[Event], states_max: int) -> Iterator[Contradiction | str]:
    """Contradictions on one key, or why there is no saying."""
    register = Register(events)
    unexplained = list(register.unexplained())
    if unexplained:
        yield from unexplained
        wrong = {read for found in unexplained for read in found.events if read.operation == "read"}
        register = Register(event for event in events if event not in wrong)
    zones = zones_of(register)
    overlapping = list(conflicts(zones))
    for one, other in overlapping:
        yield _explained(shrink(one.events | other.events))
    if unexplained or overlapping or not register.repeated:
        return
    search = Search(register, zones)
    match search.run(states_max):
        case False:
            yield _explained(shrink(events, search.reached))
        case None:
            values = ", ".join(map(named, register.repeated[:3])) + (
                ", ..." if len(register.repeated) > 3 else ""
            )
            yield f"{states_max} states of the search did not tell; read and more than once written (or initial): {values}"


def _polynomial(register: Register) -> Iterator[Contradiction]:
    yield from register.unexplained()
    for one, other in conflicts(zones_of(register)):
        yield contradiction(one, other)


def _contradictory(events: Sequence[Event]) -> bool:
    """Whether there surely is no linearization."""
    register = Register(events)
    if any(_polynomial(register)):
        return True
    return (
        bool(register.repeated)
        and Search(register, zones_of(register)).run(_SHRINKING_STATES_MAX) is False
    )


def _explained(events: Sequence[Event]) -> Contradiction:
    """The contradiction of few events, in words."""
    why = next(
        (found.why for found in _polynomial(Register(events))),
        "no order of these operations explains every read",
    )
    return Contradiction(why, tuple(events))


def shrink(events: Iterable[Event], reached: float = inf) -> list[Event]:
    """Operations out of contradictory ``events``, by time of invocation, that contradict each other, but not with a read less.

    ``reached``: the contradiction is likely to be found in what was invoked until then.
    """
    return _Shrinking(sorted(events, key=attrgetter("invoked"))).run(reached)


class _Shrinking:
    """Operations are known here by their place in the history."""

    def __init__(self, events: list[Event]) -> None:
        self._events = events
        self._writes: dict[str | None, list[int]] = {}  # by value, in the order of their responses
        for place, event in enumerate(events):
            if is_write(event) and event.outcome != "failed":
                self._writes.setdefault(written(event), []).append(place)
        for places in self._writes.values():
            places.sort(key=self._response)

    def run(self, reached: float) -> list[Event]:
        found = self._narrow(bisect_right(self._events, reached, key=attrgetter("invoked")))
        size = max(len(found) // 2, 1)
        while True:
            smaller = self._without_chunks(found, size)
            if size == 1 and len(smaller) == len(found):
                return self._at(found)
            found, size = smaller, max(size // 2, 1)

    def _narrow(self, stop: int) -> list[int]:
        """The shortest stretch before ``stop`` that is contradictory, tried in powers of two; everything if none is."""
        size = _WINDOW
        while size < 2 * stop:
            stretch = self._with_writes(range(max(stop - size, 0), stop))
            if _contradictory(self._at(stretch)):
                return stretch
            size *= 2
        return list(range(len(self._events)))

    def _without_chunks(self, found: list[int], size: int) -> list[int]:
        start = 0
        while start < len(found):
            rest = self._with_writes([*found[:start], *found[start + size :]])
            if len(rest) < len(found) and _contradictory(self._at(rest)):
                found = rest
            else:
                start += size
        return found

    def _with_writes(self, places: Sequence[int]) -> list[int]:
        """The operations, and the writes that a read among them may have got its value from."""
        reads: dict[str | None, list[Event]] = {}
        for event in self._at(places):
            if event.operation == "read" and event.outcome == "ok":
                reads.setdefault(event.value, []).append(event)
        sure = sorted(
            (event for event in self._at(places) if is_write(event) and event.outcome == "ok"),
            key=response,
        )
        over = [response(write) for write in sure]
        latest = list(
            accumulate((write.invoked for write in sure), max, initial=-inf)
        )  # the last to be invoked of the first n writes to end
        wanted = set(places)
        for value, own in reads.items():
            writes = self._writes.get(value, [])
            hidden = latest[
                bisect_left(over, own[0].invoked)
            ]  # a write that ended before this lies before another one, and that before all reads
            ended = max(map(response, own))
            wanted.update(
                place
                for place in writes[bisect_left(writes, hidden, key=self._response) :]
                if self._events[place].invoked <= ended
            )
            if value is not None:
                first = min(map(response, own))
                wanted.update(
                    [place for place in writes if self._events[place].invoked <= first][-1:]
                )
        return sorted(wanted)

    def _response(self, place: int) -> float:
        return response(self._events[place])

    def _at(self, places: Iterable[int]) -> list[Event]:
        return [self._events[place] for place in places]
