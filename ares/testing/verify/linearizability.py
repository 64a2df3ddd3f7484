"""Linearizability of read/write registers, judged by invocations, responses and values alone.

Tags are never used. A history is linearizable if and only if the history of every key is (Herlihy
and Wing), therefore each key is judged separately. Operation A comes before B if A responded before
B was invoked; equal times give no order. Values written once are judged in n log n steps
(register.py). If a key's reads return values written more than once, such as "absent" after two
deletes, an exact search follows (search.py); if the budget is spent the key is *undecided*.

A contradictory history is reduced to few operations, still contradictory. Two kinds of operations
may be left out: reads, and writes that cannot have given any remaining read its value. The latter
holds if all reads of the value ended before the write was invoked, or if a remaining write surely
lies between the write and all these reads. With only such omissions, the remaining operations are
contradictory with any rest of the history. The last write of a value before the first read stays in
any case, or the value would seem never written.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from math import inf
from operator import attrgetter

from ares.testing.verify.history import Event, HistoryReport, UndecidedKey, Violation
from ares.testing.verify.register import (
    Contradiction,
    RegisterHistory,
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
"""The default limit of visited states in the search for a key."""

_SHRINKING_STATES_MAX = 20_000
_WINDOW = 32


def check(events: Iterable[Event], states_max: int = STATES_MAX) -> HistoryReport:
    """Judge a history; each violation names few operations, contradictory by themselves.

    ``states_max`` bounds the search on a key with repeated values. Raises :class:`ares.BadInput` if
    a completed operation has no response.
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
    """Yield the contradictions on a key, or the reason why the key is undecided."""
    register = RegisterHistory(events)
    unexplained = list(register.unexplained())
    if unexplained:
        yield from unexplained
        wrong = {read for found in unexplained for read in found.events if read.operation == "read"}
        register = RegisterHistory(event for event in events if event not in wrong)
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
            yield (
                f"{states_max} states of the search did not tell; read and more than once "
                f"written (or initial): {values}"
            )


def _polynomial(register: RegisterHistory) -> Iterator[Contradiction]:
    yield from register.unexplained()
    for one, other in conflicts(zones_of(register)):
        yield contradiction(one, other)


def _contradictory(events: Sequence[Event]) -> bool:
    """Return whether the events certainly have no linearization."""
    register = RegisterHistory(events)
    if any(_polynomial(register)):
        return True
    return (
        bool(register.repeated)
        and Search(register, zones_of(register)).run(_SHRINKING_STATES_MAX) is False
    )


def _explained(events: Sequence[Event]) -> Contradiction:
    """Return the contradiction of few events, in words."""
    why = next(
        (found.why for found in _polynomial(RegisterHistory(events))),
        "no order of these operations explains every read",
    )
    return Contradiction(why, tuple(events))


def shrink(events: Iterable[Event], reached: float = inf) -> list[Event]:
    """Reduce contradictory ``events`` while the contradiction stays.

    No remaining read can be left out without losing the contradiction. Returns the events by time
    of invocation. ``reached``: a time; the contradiction is likely among operations invoked up to
    this time.
    """
    return _Shrinking(sorted(events, key=attrgetter("invoked"))).run(reached)


class _Shrinking:
    """The reduction of a history; an operation is known by the place in the history."""

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
        """Return the shortest contradictory range of places before ``stop``.

        Lengths are powers of two; without such a range, all places are returned.
        """
        size = _WINDOW
        while size < 2 * stop:
            places = self._with_writes(range(max(stop - size, 0), stop))
            if _contradictory(self._at(places)):
                return places
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
        """Return the places, and the writes that may have given a read among them the value."""
        reads: dict[str | None, list[Event]] = {}
        for event in self._at(places):
            if event.operation == "read" and event.outcome == "ok":
                reads.setdefault(event.value, []).append(event)
        sure = sorted(
            (event for event in self._at(places) if is_write(event) and event.outcome == "ok"),
            key=response,
        )
        over = [response(write) for write in sure]
        # per n: the latest invocation among the first n writes to end
        latest = list(accumulate((write.invoked for write in sure), max, initial=-inf))
        wanted = set(places)
        for value, own in reads.items():
            writes = self._writes.get(value, [])
            # A write that ended earlier lies before another write that ended before all reads.
            hidden = latest[bisect_left(over, own[0].invoked)]
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
