"""From operations that contradict each other to few of them that still do.

Not everything can be left out: without a write, the reads of its value cannot be explained, and nothing is wrong with them. What may be left out,
since a history without it that contradicts itself does so with it as well, is reads, and writes that no read left can have got its value from:
because all reads of the value ended before the write was invoked, or because another write surely lies between the write and all of them. The last
such write of a value stays nevertheless, lest it looked as if nobody had written it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import inf
from operator import attrgetter

from ares.verify.history import Event
from ares.verify.register import is_write, response, written

Test = Callable[[Sequence[Event]], bool]
"""Whether operations contradict each other."""

_WINDOW = 32


def shrink(events: Sequence[Event], contradicts: Test, reached: float = inf) -> list[Event]:
    """A part of contradictory ``events``, by time of invocation, that is contradictory too, and no longer if one read more is left out.

    ``reached``: the contradiction is likely to be found in what was invoked until then.
    """
    found = _narrow(sorted(events, key=attrgetter("invoked")), contradicts, reached)
    size = max(len(found) // 2, 1)
    while True:
        smaller = _without_chunks(found, size, contradicts)
        if size == 1 and len(smaller) == len(found):
            return found
        found, size = smaller, max(size // 2, 1)


def _narrow(events: list[Event], contradicts: Test, reached: float) -> list[Event]:
    """The shortest time before ``reached`` that is contradictory, tried in powers of two."""
    stop = bisect_right(events, reached, key=attrgetter("invoked"))
    until = _without(events, stop, len(events))
    size = _WINDOW
    while size < stop:
        window = _without(until, 0, len(until) - size)
        if contradicts(window):
            return window
        size *= 2
    return until if contradicts(until) else events


def _without_chunks(events: list[Event], size: int, contradicts: Test) -> list[Event]:
    start = 0
    while start < len(events):
        rest = _without(events, start, start + size)
        if len(rest) < len(events) and contradicts(rest):
            events = rest
        else:
            start += size
    return events


def _without(events: list[Event], start: int, stop: int) -> list[Event]:
    """The events less those from ``start`` to ``stop``, but with the writes among these that a read left may have got its value from."""
    begun: dict[str | None, float] = {}  # of the reads left, by value: the earliest invocation, and the latest response
    ended: dict[str | None, float] = {}
    for event in events[:start] + events[stop:]:
        if event.operation == "read" and event.outcome == "ok":
            begun[event.value] = min(begun.get(event.value, inf), event.invoked)
            ended[event.value] = max(ended.get(event.value, -inf), response(event))

    def in_time(event: Event) -> bool:
        return is_write(event) and event.outcome != "failed" and event.invoked <= ended.get(written(event), -inf)

    last: dict[str | None, float] = {}
    for write in filter(in_time, events):
        last[written(write)] = max(last.get(written(write), -inf), response(write))
    sure = sorted((event for event in events if is_write(event) and event.outcome == "ok"), key=response)
    over = [response(write) for write in sure]
    latest = list(accumulate((write.invoked for write in sure), max, initial=-inf))  # the last to be invoked of the first n writes to end

    def needed(event: Event) -> bool:
        if not in_time(event):
            return False
        value = written(event)
        hidden = latest[bisect_left(over, begun[value])]  # what ended before lies before another write, and that before all reads of the value
        return response(event) >= (hidden if value is None else min(hidden, last[value]))

    return [*events[:start], *filter(needed, events[start:stop]), *events[stop:]]
