"""A check of a log's history, by positions, entries and times only.

See docs/log.md, "What must hold". The log is a register that holds its own length: an append at p
of k entries takes the length from p to p + k, tail() reads the length, a read of an entry shows a
length above the entry's position, and an empty read the contrary. Hence each operation gives the
least length *after* the operation (``least``) and the greatest length *before* (``most``). If the
``most`` of operation A is less than the ``least`` of operation B, A must come first; a begin of A
after the end of B makes this impossible. A history is right exactly if no such pair exists, entries
and positions fit, and appends of unknown outcome can fill the positions not named by any operation.
(tests/verify compares this with the definition.)

An append of unknown outcome whose entry was read counts as an append that never ended, at its
place. An unread append of unknown outcome may fill unnamed positions. These positions are given out
in order, the first invoked append to the first position. This is exact if each of these appends has
a single entry; of larger appends the entries are counted.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import NamedTuple

from ares.model.errors import BadInput
from ares.testing.verify.log_history import LogEvent, LogReport, LogViolation


class Bounds(NamedTuple):
    """The length of the log: at most ``most`` before the operation, at least ``least`` after."""

    most: float
    least: int
    invoked: float
    responded: float
    event: LogEvent


class _Contradiction(NamedTuple):
    why: str
    events: tuple[LogEvent, ...]


def check_log(events: Iterable[LogEvent]) -> LogReport:
    """Judge a history. Raises :class:`BadInput` if two appends brought the same entry."""
    logs: dict[str, list[LogEvent]] = defaultdict(list)
    for event in events:
        logs[event.log].append(event)
    violations = [LogViolation(log, *found) for log, own in logs.items() for found in _judge(own)]
    return LogReport(sum(map(len, logs.values())), len(logs), tuple(violations))


def _judge(events: Sequence[LogEvent]) -> Iterator[_Contradiction]:
    log = _Log(events)
    bounds = log.bounds()
    found = list(log.contradictions)
    if not found:
        found = [*_disordered(bounds), *_out_of_turn(log), *_gaps(events), *_untrimmed(events)]
        if not found:
            found = list(_unfilled(log, bounds))
    yield from found[:1000]


class _Log:
    """The known places of appends in a log.

    ``starts``: the appends known to be in the log, by position. ``unread``: the appends of unknown
    outcome with entries never read.
    """

    def __init__(self, events: Sequence[LogEvent]) -> None:
        self.contradictions: list[_Contradiction] = []
        self._events = events
        self._brought: dict[str, tuple[LogEvent, int]] = {}
        self.starts: dict[int, LogEvent] = {}
        self._placed: dict[int, int] = {}
        for event in events:
            if event.operation == "append":
                self._bring(event)
        for event in events:
            if event.operation == "append" and event.outcome == "ok" and event.position is not None:
                self._place(event, event.position, event)
        for event in events:
            if event.operation in ("read", "follow") and event.outcome == "ok":
                self._look_at(event)
        unknown = [e for e in events if e.operation == "append" and e.outcome == "unknown"]
        self.unread = [event for event in unknown if id(event) not in self._placed]
        self.unread.sort(key=lambda event: event.invoked)
        self.order = sorted(self.starts)
        last = -1
        for position in self.order:
            if position < last:
                self._contradict(
                    f"two appends overlap at position {position}", self.starts[position]
                )
            last = max(last, position + len(self.starts[position].entries))

    def _contradict(self, why: str, *events: LogEvent) -> None:
        self.contradictions.append(_Contradiction(why, events))

    def _bring(self, event: LogEvent) -> None:
        for offset, entry in enumerate(event.entries):
            if entry in self._brought:
                raise BadInput(
                    f"entry {entry[:80]!r} of log {event.log[:80]!r} was appended twice; entries "
                    "name their append, so each is given once"
                )
            self._brought[entry] = (event, offset)

    def _place(self, append: LogEvent, position: int, seen_by: LogEvent) -> None:
        placed = self._placed.setdefault(id(append), position)
        held = self.starts.setdefault(position, append)
        if placed != position:
            self._contradict(
                f"an append is at position {placed} and at {position}", append, seen_by
            )
        elif held is not append:
            self._contradict(f"position {position} belongs to two appends", held, append, seen_by)

    def _look_at(self, read: LogEvent) -> None:
        for index, entry in enumerate(read.entries):
            append, offset = self._brought.get(entry, (None, 0))
            position = (read.position or 0) + index
            if append is None:
                self._contradict(f"{entry[:80]!r} was read, and no append stored it", read)
            elif append.outcome == "failed":
                self._contradict(
                    f"{entry[:80]!r} was read, although its append failed", append, read
                )
            else:
                self._place(append, position - offset, read)

    def position_of(self, append: LogEvent) -> int | None:
        """Return the position of the append, if known."""
        return self._placed.get(id(append))

    def around(self, position: int) -> tuple[int, int]:
        """Return the begin and end of the append at the position, or of the position alone."""
        index = bisect_left(self.order, position + 1) - 1
        if index >= 0:
            begin = self.order[index]
            end = begin + len(self.starts[begin].entries)
            if position < end:
                return begin, end
        return position, position + 1

    def bounds(self) -> list[Bounds]:
        bounds = []
        for event in self._events:
            ended = inf if event.responded is None else event.responded
            if event.operation == "append":
                place = self.position_of(event)
                if place is not None:
                    bounds.append(
                        Bounds(place, place + len(event.entries), event.invoked, ended, event)
                    )
                elif event.outcome == "failed" and event.at is not None:
                    bounds.append(
                        Bounds(inf, self.around(event.at)[1], event.invoked, ended, event)
                    )
            elif event.outcome != "ok" or event.position is None:
                continue
            elif event.operation == "tail":
                begin, _ = self.around(event.position)
                if begin != event.position:
                    self._contradict(
                        f"tail() told {event.position}, which is inside an append",
                        event,
                        self.starts[begin],
                    )
                bounds.append(Bounds(event.position, event.position, event.invoked, ended, event))
            elif event.entries:
                bounds.append(
                    Bounds(
                        inf,
                        self.around(event.position + len(event.entries) - 1)[1],
                        event.invoked,
                        ended,
                        event,
                    )
                )
            elif event.operation == "read" and event.trimmed is None:
                bounds.append(
                    Bounds(self.around(event.position)[0], 0, event.invoked, ended, event)
                )
            elif event.trimmed is not None or event.operation == "trim":
                bounds.append(
                    Bounds(
                        inf,
                        event.trimmed if event.trimmed is not None else event.position,
                        event.invoked,
                        ended,
                        event,
                    )
                )
        return bounds


def _disordered(bounds: Sequence[Bounds]) -> Iterator[_Contradiction]:
    """Yield pairs of operations in the wrong order.

    The second operation must come first, and began after the first had ended.
    """
    before = sorted((bound for bound in bounds if bound.most < inf), key=lambda bound: bound.most)
    latest: list[Bounds] = []  # per n: the last to begin among the first n
    for bound in before:
        latest.append(bound if not latest or bound.invoked > latest[-1].invoked else latest[-1])
    mosts = [bound.most for bound in before]
    reported = set()
    for bound in bounds:
        index = bisect_left(mosts, bound.least) - 1
        if (
            index >= 0
            and latest[index].invoked > bound.responded
            and id(latest[index].event) not in reported
        ):
            late = latest[index]
            reported.add(id(late.event))
            why = (
                f"{late.event.client}'s {late.event.operation} says that the log had at most "
                f"{late.most:g} entries, and began after "
            )
            yield _Contradiction(
                f"{why}{bound.event.client}'s {bound.event.operation} had ended, when it had at "
                f"least {bound.least}",
                (bound.event, late.event),
            )


def _out_of_turn(log: _Log) -> Iterator[_Contradiction]:
    """Yield appends of a client out of the order of invocation."""
    last: dict[str, tuple[int, LogEvent]] = {}
    for event in sorted(log.starts.values(), key=lambda event: event.invoked):
        place = log.position_of(event)
        assert place is not None
        earlier = last.get(event.client)
        if earlier is not None and earlier[0] > place and earlier[1].invoked < event.invoked:
            yield _Contradiction(
                "appends of one client are not in the order in which it made them",
                (earlier[1], event),
            )
        if earlier is None or earlier[0] < place:
            last[event.client] = (place, event)


def _gaps(events: Sequence[LogEvent]) -> Iterator[_Contradiction]:
    """Yield pieces of a follower with a gap or overlap."""
    last: dict[str, LogEvent] = {}
    for event in events:
        if event.operation == "follow" and event.outcome == "ok" and event.entries:
            earlier = last.get(event.client)
            if (
                earlier is not None
                and (earlier.position or 0) + len(earlier.entries) != event.position
            ):
                yield _Contradiction("a follower skipped entries, or went back", (earlier, event))
            last[event.client] = event


def _untrimmed(events: Sequence[LogEvent]) -> Iterator[_Contradiction]:
    """Yield operations with a report of a trim never asked for."""
    trims = sorted(
        (event for event in events if event.operation == "trim" and event.position is not None),
        key=lambda event: event.invoked,
    )
    highest: list[int] = []
    for event in trims:
        highest.append(max(event.position or 0, highest[-1] if highest else 0))
    for event in events:
        if event.trimmed is not None and event.responded is not None:
            index = bisect_left(trims, event.responded, key=lambda trim: trim.invoked) - 1
            if event.trimmed > (highest[index] if index >= 0 else 0):
                yield _Contradiction(
                    f"trimmed up to {event.trimmed}, which no trim had asked for", (event,)
                )


def _unfilled(log: _Log, bounds: Sequence[Bounds]) -> Iterator[_Contradiction]:
    """Yield a position in the log without a possible append in time."""
    needing = sorted(bounds, key=lambda bound: -bound.least)
    holes = _holes(log, needing[0].least if needing else 0)
    free = [event for event in log.unread for _ in event.entries]
    index, first = 0, None
    # Holes, last first, each with the first operation to end that needs the hole.
    checked: list[tuple[int, Bounds]] = []
    for hole in reversed(holes):
        while index < len(needing) and needing[index].least > hole:
            first = (
                needing[index]
                if first is None or needing[index].responded < first.responded
                else first
            )
            index += 1
        assert first is not None
        checked.append((hole, first))
    for number, (hole, bound) in enumerate(reversed(checked)):
        if number >= len(free) or free[number].invoked > bound.responded:
            yield _Contradiction(
                f"nothing was appended in time that can be at position {hole}", (bound.event,)
            )
            return


def _holes(log: _Log, upto: int) -> list[int]:
    """Return the positions below ``upto`` outside all appends known to be in the log."""
    holes: list[int] = []
    position = 0
    for start in log.order:
        holes.extend(range(position, min(start, upto)))
        position = max(position, start + len(log.starts[start].entries))
        if len(holes) > 10_000_000:
            break
    holes.extend(range(position, min(upto, position + 10_000_000)))
    return holes
