"""A key's operations as a read/write register, arranged by value; a check of values written once.

A delete writes ``None``, "absent", which is also the initial value. Operations without meaning for
the order are left out: failed operations, and reads of unknown outcome. A write of unknown outcome
may take effect at any time after its invocation, or never: such a write counts as not responded.

The check of values written once is polynomial, by zones (Gibbons and Korach, "Testing shared
memories", SIAM J. Comput. 26(4), 1997).

If a value was written once, the write and the reads of the value form a cluster: they are adjacent
in every linearization, the write first. Hence clusters are put in order as a whole, and cluster A
must precede B if and only if some operation of A ended before some operation of B began: if
``A.ended``, the earliest response in A, is less than ``B.begun``, the latest invocation in B. In
short, a cluster is like an operation invoked at ``begun`` and responding at ``ended``, except for
the possible case ``ended < begun``: in this case the register held the value all the time between
the two, the *forward zone* of the cluster. Otherwise the time from ``begun`` to ``ended`` is the
*backward zone*: the whole cluster can take place at any moment inside.

*An order exists if and only if no two clusters must mutually precede*: never A.ended < B.begun and
B.ended < A.begun. Two forward zones must mutually precede if they overlap, a forward and a backward
zone if the latter lies within the former; two backward zones never. Why pairs suffice: in a
shortest cycle A1 -> A2 -> ... -> Ak -> A1 of "must precede" without a pair, A(i).ended <
A(i+1).begun, and A(i+1).begun <= A(i+2).ended since A(i+2) need not precede A(i+1); hence
A(i).ended < A(i+2).ended all the way round, which is absurd.

Within a cluster, the write can come first unless a read ended before the write was invoked
(:meth:`RegisterHistory.unexplained` reports the case).

A write of unknown outcome ends when the first of the reads ends, since the write has taken effect
by this time; an unread write is left out. The initial value was written before every operation:
this cluster ended at minus infinity.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from operator import attrgetter
from typing import NamedTuple

from ares.model.errors import BadInput
from ares.testing.verify.history import Event, Violation


class Contradiction(NamedTuple):
    """Operations without any possible order, and the reason."""

    why: str
    events: tuple[Event, ...]

    def on(self, key: str) -> Violation:
        """Return the contradiction as a violation on ``key``."""
        return Violation(key, self.why, tuple(sorted(self.events, key=lambda event: event.invoked)))


def by_key(events: Iterable[Event]) -> dict[str, list[Event]]:
    """Return the events of each key, in the order given."""
    keys: dict[str, list[Event]] = {}
    for event in events:
        keys.setdefault(event.key, []).append(event)
    return keys


def response(event: Event) -> float:
    """Return the time of the response, or infinity if unknown.

    Any later-begun operation comes after this operation.
    """
    return inf if event.outcome == "unknown" or event.responded is None else event.responded


def is_write(event: Event) -> bool:
    """Return whether the operation changes the register."""
    return event.operation != "read"


def written(event: Event) -> str | None:
    """Return the value left by a write or delete."""
    return None if event.operation == "delete" else event.value


def named(value: str | None) -> str:
    """Return a value as text for a sentence."""
    return "absent" if value is None else repr(value) if len(value) <= 40 else f"{value[:40]!r}..."


class RegisterHistory:
    """The operations on a key, arranged by value.

    ``writes``: writes with a certain or possible effect. ``reads``: returned reads. Raises
    :class:`BadInput` if an ended operation, successful or failed, has no response.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.writes: dict[str | None, list[Event]] = {}
        self.reads: dict[str | None, list[Event]] = {}
        self._failed: dict[str | None, Event] = {}
        for event in events:
            if event.outcome != "unknown" and event.responded is None:
                raise BadInput(
                    f"not an event of a history: outcome {event.outcome}, and no response: "
                    f"{event.describe()}"
                )
            if is_write(event) and event.outcome == "failed":
                self._failed.setdefault(written(event), event)
            elif is_write(event):
                self.writes.setdefault(written(event), []).append(event)
            elif event.outcome == "ok":
                self.reads.setdefault(event.value, []).append(event)

    def is_repeated(self, value: str | None) -> bool:
        """Return whether the value was read and has two or more writes.

        The initial value counts as a write.
        """
        return value in self.reads and len(self.writes.get(value, ())) + (value is None) > 1

    @property
    def repeated(self) -> list[str | None]:
        return [value for value in self.reads if self.is_repeated(value)]

    def unexplained(self) -> Iterator[Contradiction]:
        """Yield reads of a value that no write can have left.

        The value was never written, or every write was invoked after the read had ended.
        """
        for value, reads in self.reads.items():
            if value is None:
                continue
            if value not in self.writes:
                failed = self._failed.get(value)
                why = (
                    "and no write stored it"
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
    """The cluster of a value, or of a single unreadable write.

    ``write`` is ``None`` for the initial value; ``first`` is the operation with the response at
    ``ended``, ``last`` the operation with the invocation at ``begun``.
    """

    value: str | None
    ended: float
    begun: float
    write: Event | None
    first: Event | None
    last: Event

    @property
    def events(self) -> set[Event]:
        """The defining operations of the zone."""
        return {event for event in (self.write, self.first, self.last) if event is not None}


def zones_of(register: RegisterHistory) -> list[Zone]:
    """Return the zones of all unrepeated values, and of the writes of values never read."""
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
    """Yield pairs of clusters with mutual precedence.

    Some pair is yielded if any exists, and each cluster is in at most a single pair. Hence a stale
    read is reported once, not again with every value written in the meantime.
    """
    apart: list[Zone] = []  # forward zones, one after the other
    for zone in sorted(
        (zone for zone in zones if zone.ended < zone.begun), key=attrgetter("ended")
    ):
        if apart and zone.ended < apart[-1].begun:
            yield apart.pop(), zone
        else:
            apart.append(zone)
    reported = set()
    for zone in zones:
        index = bisect_left(apart, zone.begun, key=attrgetter("ended")) - 1
        if (
            zone.begun <= zone.ended
            and index >= 0
            and zone.ended < apart[index].begun
            and index not in reported
        ):
            reported.add(index)
            yield apart[index], zone


def contradiction(one: Zone, other: Zone) -> Contradiction:
    """Return the conflict of two zones in words, with the causing operations."""
    if other.first is None:
        one, other = other, one
    why = (
        f"{named(one.value)} must come before {named(other.value)} ({_before(one, other)}) and "
        f"after it ({_before(other, one)})"
    )
    return Contradiction(why, tuple(one.events | other.events))


def _before(one: Zone, other: Zone) -> str:
    """Return why the first cluster must precede the second."""
    if one.first is None:
        return "as it was from the start"
    return (
        f"{one.first.client}'s {one.first.operation} ended before {other.last.client}'s "
        f"{other.last.operation} began"
    )
