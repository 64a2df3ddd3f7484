"""From a history that contradicts itself to few operations of it that still do.

What may be left out is reads, and writes that none of the reads left can have got its value from: because all reads of the value ended before the
write was invoked, or because one of the writes left surely lies between the write and all of them. Then the operations left contradict each
other whatever the rest of the history is. The last write of a value before it was read stays in any case, lest it looked as if there was none.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from math import inf
from operator import attrgetter

from ares.testing.verify.history import Event
from ares.testing.verify.register import is_write, response, written

Test = Callable[[Sequence[Event]], bool]
"""Whether operations contradict each other."""

_WINDOW = 32


def shrink(events: Iterable[Event], contradicts: Test, reached: float = inf) -> list[Event]:
    """Operations out of contradictory ``events``, by time of invocation, that contradict each other, but not with a read less.

    ``reached``: the contradiction is likely to be found in what was invoked until then.
    """
    return _Shrinking(sorted(events, key=attrgetter("invoked")), contradicts).run(reached)


class _Shrinking:
    """Operations are known here by their place in the history."""

    def __init__(self, events: list[Event], contradicts: Test) -> None:
        self._events = events
        self._contradicts = contradicts
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
            if self._contradicts(self._at(stretch)):
                return stretch
            size *= 2
        return list(range(len(self._events)))

    def _without_chunks(self, found: list[int], size: int) -> list[int]:
        start = 0
        while start < len(found):
            rest = self._with_writes([*found[:start], *found[start + size :]])
            if len(rest) < len(found) and self._contradicts(self._at(rest)):
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
        sure = sorted((event for event in self._at(places) if is_write(event) and event.outcome == "ok"), key=response)
        over = [response(write) for write in sure]
        latest = list(accumulate((write.invoked for write in sure), max, initial=-inf))  # the last to be invoked of the first n writes to end
        wanted = set(places)
        for value, own in reads.items():
            writes = self._writes.get(value, [])
            hidden = latest[bisect_left(over, own[0].invoked)]  # a write that ended before this lies before another one, and that before all reads
            ended = max(map(response, own))
            wanted.update(place for place in writes[bisect_left(writes, hidden, key=self._response) :] if self._events[place].invoked <= ended)
            if value is not None:
                first = min(map(response, own))
                wanted.update([place for place in writes if self._events[place].invoked <= first][-1:])
        return sorted(wanted)

    def _response(self, place: int) -> float:
        return response(self._events[place])

    def _at(self, places: Iterable[int]) -> list[Event]:
        return [self._events[place] for place in places]
