"""One key's operations as operations on a read/write register, arranged by value; and a check of values that were written once.

A delete writes None, "absent", which is also the initial value. What has no say is left out: failed operations, and reads of unknown outcome.
A write of unknown outcome may take effect at any time after its invocation, or never: it counts as a write that has not responded.

The check of values written once is polynomial, by zones (Gibbons and Korach, "Testing shared memories", SIAM J. Comput. 26(4), 1997).

If a value was written once, its write and the reads of it, a cluster, stand next to each other in every linearization: the write, then the reads.
So clusters are put in order as a whole, and cluster A must precede B if and only if some operation of A ended before some operation of B
began: if ``A.ended``, the earliest response in A, is less than ``B.begun``, the latest invocation in B. In short, a cluster is like one
operation invoked at ``begun`` that responds at ``ended``, except that ``ended < begun`` is possible: then the register held the value all the
time between the two, the *forward zone* of the cluster. Otherwise the time from ``begun`` to ``ended`` is its *backward zone*, in which the
whole cluster can take place at one moment.

*An order exists if and only if no two clusters must precede each other*, that is never A.ended < B.begun and B.ended < A.begun. For two forward
zones this says that they overlap, for a forward and a backward one that the latter lies within the former; for two backward ones it is
impossible. Why pairs suffice: in a shortest cycle A1 -> A2 -> ... -> Ak -> A1 of "must precede" without a pair, A(i).ended < A(i+1).begun, and
A(i+1).begun <= A(i+2).ended since A(i+2) need not precede A(i+1); so A(i).ended < A(i+2).ended all the way round, which is absurd.

Within a cluster, the write can come first unless a read ended before the write was invoked (:meth:`Register.unexplained` reports that).

What ends the write of unknown outcome is the first of its reads to end, since by then it has taken effect; unread, it is left out. The initial
value was written before everything: its cluster ended at minus infinity.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from operator import attrgetter
from typing import NamedTuple

from ares.model.errors import BadInput
from ares.testing.verify.history import Event, Violation


class Contradiction(NamedTuple):
    """Operations that no order explains, and why."""

    why: str
    events: tuple[Event, ...]

    def on(self, key: str) -> Violation:
        """As it is told of a key."""
        return Violation(key, self.why, tuple(sorted(self.events, key=lambda event: event.invoked)))


def by_key(events: Iterable[Event]) -> dict[str, list[Event]]:
    """The events of each key, in the order given."""
    keys: dict[str, list[Event]] = {}
    for event in events:
        keys.setdefault(event.key, []).append(event)
    return keys


def response(event: Event) -> float:
    """When the operation was over: an operation that begins later comes after it. Infinite if nobody knows."""
    return inf if event.outcome == "unknown" or event.responded is None else event.responded


def is_write(event: Event) -> bool:
    """Whether the operation changes the register."""
    return event.operation != "read"


def written(event: Event) -> str | None:
    """The value that a write or delete leaves."""
    return None if event.operation == "delete" else event.value


def named(value: str | None) -> str:
    """A value in a sentence."""
    return "absent" if value is None else repr(value) if len(value) <= 40 else f"{value[:40]!r}..."


class Register:
    """``writes`` and ``reads`` by value: writes that took or may take effect, and reads that returned.

    Raises :class:`BadInput` if an operation that ended, well or not, has no response.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.writes: dict[str | None, list[Event]] = {}
        self.reads: dict[str | None, list[Event]] = {}
        self._failed: dict[str | None, Event] = {}
        for event in events:
            if event.outcome != "unknown" and event.responded is None:
                raise BadInput(
                    f"not an event of a history: outcome {event.outcome}, and no response: {event.describe()}"
                )
            if is_write(event) and event.outcome == "failed":
                self._failed.setdefault(written(event), event)
            elif is_write(event):
                self.writes.setdefault(written(event), []).append(event)
            elif event.outcome == "ok":
                self.reads.setdefault(event.value, []).append(event)

    def is_repeated(self, value: str | None) -> bool:
        """Whether a read of the value may have got it from more than one write (the initial value counts as one)."""
        return value in self.reads and len(self.writes.get(value, ())) + (value is None) > 1

    @property
    def repeated(self) -> list[str | None]:
        return [value for value in self.reads if self.is_repeated(value)]

    def unexplained(self) -> Iterator[Contradiction]:
        """Reads of what was not there to be read: a value that nobody wrote, or whose every write was invoked after the read had ended."""
        for value, reads in self.reads.items():
            if value is None:
                continue
            if value not in self.writes:
                failed = self._failed.get(value)
                why = (
                    "and nobody wrote it"
                    if failed is None
                    else "although the only writes of it failed without effect"
                )
                for read in reads:
                    yield Contradiction(
                        f"{named(value)} was read, {why}",
                        (read,) if failed is None else (failed, read),
                    )
                continue
            first = min(self.writes[value], key=lambda write: write.invoked)
            for read in reads:
                if response(read) < first.invoked:
                    yield Contradiction(
                        f"{named(value)} was read before any write of it was invoked", (read, first)
                    )


class Zone(NamedTuple):
    """The cluster of a value, or of one write that nobody can have read.

    ``write`` is None for the initial value; ``first`` is the operation that ended at ``ended``, ``last`` the one that began at ``begun``.
    """

    value: str | None
    ended: float
    begun: float
    write: Event | None
    first: Event | None
    last: Event

    @property
    def events(self) -> set[Event]:
        """The operations that make the zone what it is."""
        return {event for event in (self.write, self.first, self.last) if event is not None}


def zones_of(register: Register) -> list[Zone]:
    """The zones of all values but the repeated ones, and of the writes of all values that were never read."""
    zones = []
    for value, writes in register.writes.items():
        if value not in register.reads:
            zones += [
                Zone(value, response(write), write.invoked, write, write, write)
                for write in writes
                if write.outcome == "ok"
            ]
        elif not register.is_repeated(value):
            operations = [*writes, *register.reads[value]]
            first, last = min(operations, key=response), _last(operations)
            zones.append(Zone(value, response(first), last.invoked, writes[0], first, last))
    if None in register.reads and None not in register.writes:
        last = _last(register.reads[None])
        zones.append(Zone(None, -inf, last.invoked, None, None, last))
    return zones


def _last(operations: Sequence[Event]) -> Event:
    return max(operations, key=lambda operation: operation.invoked)


def conflicts(zones: Sequence[Zone]) -> Iterator[tuple[Zone, Zone]]:
    """Pairs of clusters that must precede each other: at least one if there is any, and each cluster in at most one.

    So one stale read is told once, not again with every value written in the meantime.
    """
    apart: list[Zone] = []  # forward zones, one after the other
    for zone in sorted(
        (zone for zone in zones if zone.ended < zone.begun), key=attrgetter("ended")
    ):
        if apart and zone.ended < apart[-1].begun:
            yield apart.pop(), zone
        else:
            apart.append(zone)
    told = set()
    for zone in zones:
        index = bisect_left(apart, zone.begun, key=attrgetter("ended")) - 1
        if (
            zone.begun <= zone.ended
            and index >= 0
            and zone.ended < apart[index].begun
            and index not in told
        ):
            told.add(index)
            yield apart[index], zone


def contradiction(one: Zone, other: Zone) -> Contradiction:
    """The conflict of two zones in words, and the operations that make it."""
    if other.first is None:
        one, other = other, one
    why = f"{named(one.value)} must come before {named(other.value)} ({_before(one, other)}) and after it ({_before(other, one)})"
    return Contradiction(why, tuple(one.events | other.events))


def _before(one: Zone, other: Zone) -> str:
    """Why one cluster must precede the other."""
    if one.first is None:
        return "as it was from the start"
    return f"{one.first.client}'s {one.first.operation} ended before {other.last.client}'s {other.last.operation} began"
