"""Coverability of versioned objects, judged by the versions in clients' replies.

See N. Nicolaou, A. Fernandez Anta, C. Georgiou, "CoVerability: consistent versioning"; CoARES.
Versions are tags, with the order of tags. Objects without any base are not judged.

The operations on an object must keep these properties; a *changed* write is a write that made a
version:

- *validity*: a version belongs to a single write and value; no client is told a version that no
  write made. The initial version, zero, is "absent";
- *continuity*: the base of a changed write is the initial version, or a version
  of a write invoked before the changed write responded;
- *evolution*: a new version is higher than the base. Numbers may be skipped: a write of unknown
  outcome spends a number;
- *consolidation*: if a version was told before an operation was invoked, the operation is told no
  lower version; if the operation is a changed write, the base is no lower and the version is
  higher. Hence two changed writes over the same base are concurrent, and neither loses to an
  earlier write;
- *unchanged* writes are told a higher version than their base, of a write invoked before they
  responded.

A register can promise exactly this if changed writes look (the base is the latest version) and
later put (the latest version becomes the higher of the two), each at one moment of their interval.
*Sketch:* let a version be the latest from its start to the start of the next higher version. The
looks, puts and reads bound every start from below by invocations and from above by responses;
starts in the order of versions exist if and only if no lower bound of a version exceeds an upper
bound of the same or a higher version. Each such pair breaks one of the properties above.

Weak coverability allows concurrent changed writes over the same base: these *forks* are reported,
and are no violation.

Validity and the order of told versions are the properties of tags (tag_order.py). If all operations
tell versions, these properties make the order of versions a linearization of the values. If some
operations do not, linearizability.py finds more.

A write without a told version (in most cases of unknown outcome) is known by the value: if the
value has a single such write, and readers were told a single version without a known write, this
write made the version. Where two or more writes may have made a version, only the number of writes
is judged.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from msgspec import Struct, structs

from ares.testing.verify.history import Event, HistoryReport, Pair, Violation, shown
from ares.testing.verify.register import Contradiction, by_key, is_write, named, response, written
from ares.testing.verify.tag_order import ZERO_TAG, check_tags


class Unexplained(NamedTuple):
    """A version shown by ``event`` although no write can have made the version.

    ``others``: the only candidate write, and the proof of a different version by this write.
    """

    version: Pair
    event: Event
    others: tuple[Event, ...] = ()


def is_changed(event: Event) -> bool:
    """Return whether the event is a coverable write with a new version."""
    return (
        is_write(event)
        and event.base is not None
        and (event.tag is not None or event.outcome == "ok")
    )


class VersionHistory:
    """The relevant operations on an object, with known or derived versions.

    ``made``: the write of each version. ``reported``: for each version, the first operation to end
    with this version. ``silent``: writes of unknown version. ``ownerless``: reported versions
    without a possible write.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        counted = [
            event
            for event in events
            if event.outcome == "ok" or (event.outcome == "unknown" and is_write(event))
        ]
        self.made = {
            event.tag: event for event in counted if event.tag is not None and is_write(event)
        }
        self.failed = {
            event.tag: event
            for event in events
            if event.outcome == "failed" and event.tag is not None and is_write(event)
        }
        self.reported = earliest(
            (event.tag, event) for event in counted if event.tag is not None and not is_write(event)
        )
        self.silent = [event for event in counted if event.tag is None and is_write(event)]
        self.ownerless: list[Unexplained] = []
        self._origins: dict[Event, tuple[Event, Event]] = {}
        linked = self._link()
        self.operations = [linked.get(event, event) for event in counted] if linked else counted

    def _link(self) -> dict[Event, Event]:
        """Map silent writes with a version known from a reader to copies with the version."""
        wanted: dict[str | None, dict[Pair, Event]] = {}
        for version, event in self.reported.items():
            if version in self.made or version == ZERO_TAG:
                continue
            if version in self.failed:
                self.ownerless.append(Unexplained(version, event))
            else:
                wanted.setdefault(event.value, {})[version] = event
        writes: dict[str | None, list[Event]] = {}
        for event in self.silent:
            writes.setdefault(written(event), []).append(event)
        linked = {}
        for value, versions in wanted.items():
            match list(versions.items()), writes.get(value, []):
                case [(version, read)], [write]:
                    linked[write] = self.made[version] = structs.replace(write, tag=version)
                    self._origins[self.made[version]] = (write, read)
                case _, candidates:
                    self.ownerless += unexplained(versions, candidates)
        self.silent = [event for event in self.silent if event not in linked]
        return linked

    def recorded(self, events: Iterable[Event]) -> tuple[Event, ...]:
        """Return the events as recorded, by time of invocation.

        For a write without a told version, the read with the version is added.
        """
        found = {origin for event in events for origin in self._origins.get(event, (event,))}
        return tuple(sorted(found, key=lambda event: event.invoked))


def earliest(shown: Iterable[tuple[Pair, Event]]) -> dict[Pair, Event]:
    """Return for each version the event that ended first."""
    found: dict[Pair, Event] = {}
    for version, event in shown:
        if version not in found or response(event) < response(found[version]):
            found[version] = event
    return found


def unexplained(wanted: Mapping[Pair, Event], writes: Sequence[Event]) -> Iterator[Unexplained]:
    """Yield the versions that no free write can have made.

    A write can make a version if the event with the version ended after the write's invocation.
    """
    invoked = sorted(write.invoked for write in writes)
    explained: list[Event] = []
    for version, event in sorted(wanted.items(), key=lambda item: response(item[1])):
        if len(explained) < bisect_right(invoked, response(event)):
            explained.append(event)
        else:
            yield Unexplained(
                version,
                event,
                (writes[0], explained[0]) if len(writes) == len(explained) == 1 else (),
            )


class Fork(Struct, frozen=True):
    """Versions of concurrent writes over the same base.

    ``lost``: versions outside the ancestry of the latest version; later versions may lack their
    content. A plain write counts as a descendant of the version below.
    """

    key: str
    base: Pair
    versions: tuple[Pair, ...]
    lost: tuple[Pair, ...]

    def describe(self) -> str:
        return (
            f"key {self.key!r}: {_listed(self.versions)} over {shown(self.base)}; lost: "
            f"{_listed(self.lost)}"
        )


class CoverabilityReport(HistoryReport, frozen=True):
    """The outcome of a check; ``operations`` and ``keys`` count coverable objects only.

    ``unjudged``: completed operations of unknown version.
    """

    forks: tuple[Fork, ...] = ()
    unjudged: int = 0


def check_coverability(events: Iterable[Event]) -> CoverabilityReport:
    """Judge the objects with a base in any operation; each violation names few operations."""
    keys = {
        key: own
        for key, own in by_key(events).items()
        if any(event.base is not None for event in own)
    }
    violations: list[Violation] = []
    forks: list[Fork] = []
    unjudged = 0
    for key, own in keys.items():
        versions = VersionHistory(own)
        violations += _violations(key, versions)
        forks += _forks(key, versions)
        unjudged += sum(
            event.outcome == "ok" and event.tag is None for event in versions.operations
        )
    return CoverabilityReport(
        sum(map(len, keys.values())), len(keys), tuple(violations), (), tuple(forks), unjudged
    )


def _violations(key: str, versions: VersionHistory) -> Iterator[Violation]:
    """Yield the violations of the rules.

    The last event of a contradiction is the event at fault: each fault is reported once, and later
    rules do not use the event as evidence against more events.
    """
    sound = versions.operations
    for rule in (_made_up, _devolving, _discontinuous, _stale):
        at_fault: set[Event] = set()
        for found in rule(versions, sound):
            if found.events[-1] not in at_fault:
                at_fault.add(found.events[-1])
                yield Violation(key, found.why, versions.recorded(found.events))
        if at_fault:
            sound = [event for event in sound if event not in at_fault]
    for violation in check_tags(sound):
        yield Violation(key, violation.why, versions.recorded(violation.events))


def _made_up(versions: VersionHistory, _: Sequence[Event]) -> Iterator[Contradiction]:
    """Yield the returned versions that no write made."""
    writes = {written(write): write for write in reversed(versions.made.values())}
    for version, event, others in versions.ownerless:
        why = f"{_subject(event)} returned version {shown(version)}"
        if (failed := versions.failed.get(version)) is not None:
            yield Contradiction(f"{why}, whose write failed without effect", (failed, event))
        elif (
            not others and (write := writes.get(event.value)) is not None and write.tag is not None
        ):
            yield Contradiction(
                f"{why} with {named(event.value)}, which was written as version {shown(write.tag)}",
                (write, event),
            )
        else:
            yield Contradiction(f"{why}, {_without_writer(others)}", (*others, event))
    for version, event in versions.reported.items():
        if version in versions.made and response(event) < versions.made[version].invoked:
            why = (
                f"{_subject(event)} returned version {shown(version)} before the write of it was "
                "invoked"
            )
            yield Contradiction(why, (versions.made[version], event))


def _devolving(_: VersionHistory, sound: Sequence[Event]) -> Iterator[Contradiction]:
    """Yield breaches of evolution, and unchanged writes without a newer version."""
    for event in sound:
        if event.base is not None and event.tag is not None and event.tag <= event.base:
            did = "made" if is_write(event) else "returned"
            than = (
                "the same as its base"
                if event.tag == event.base
                else f"lower than its base {shown(event.base)}"
            )
            yield Contradiction(
                f"{_subject(event)} {did} version {shown(event.tag)}, {than}", (event,)
            )


def _discontinuous(versions: VersionHistory, sound: Sequence[Event]) -> Iterator[Contradiction]:
    """Yield changed writes over a base that no write made."""
    unowned: dict[Event, Pair] = {}
    for event in filter(is_changed, sound):
        base = event.base
        assert base is not None
        did = f"{_subject(event)} covered version {shown(base)}"
        if (write := versions.made.get(base)) is not None:
            if response(event) < write.invoked:
                yield Contradiction(f"{did} before the write of it was invoked", (write, event))
        elif base == ZERO_TAG or base in versions.reported:
            continue
        elif (failed := versions.failed.get(base)) is not None:
            yield Contradiction(f"{did}, whose write failed without effect", (failed, event))
        else:
            unowned[event] = base
    for base, event, others in unexplained(
        earliest((base, event) for event, base in unowned.items()), versions.silent
    ):
        yield Contradiction(
            f"{_subject(event)} covered version {shown(base)}, {_without_writer(others)}",
            (*others, event),
        )


def _without_writer(others: tuple[Event, ...]) -> str:
    return "which no write is left to have made" if others else "which no write made"


def _stale(_: VersionHistory, sound: Sequence[Event]) -> Iterator[Contradiction]:
    """Yield breaches of consolidation.

    Before the changed write was invoked, a version above the base was known.
    """
    ended = sorted(
        ((event.tag, event) for event in sound if event.tag is not None),
        key=lambda pair: response(pair[1]),
    )
    over = [response(event) for _, event in ended]
    highest = list(accumulate(ended, _higher))
    for event in filter(is_changed, sound):
        count = bisect_left(over, event.invoked)
        if count and event.base is not None and event.base < highest[count - 1][0]:
            version, earlier = highest[count - 1]
            why = (
                f"{_subject(event)} covered version {shown(event.base)}, although "
                f"{shown(version)} was known before it began"
            )
            yield Contradiction(why, (earlier, event))


def _higher(one: tuple[Pair, Event], other: tuple[Pair, Event]) -> tuple[Pair, Event]:
    return one if one[0] >= other[0] else other


def _forks(key: str, versions: VersionHistory) -> Iterator[Fork]:
    """Yield the bases with two or more certain versions over them."""
    seen = {*versions.reported, *(event.base for event in versions.operations if is_changed(event))}
    made = {
        version: event
        for version, event in versions.made.items()
        if event.outcome == "ok" or version in seen
    }
    over: dict[Pair, list[Pair]] = {}
    for version, event in made.items():
        if event.base is not None:
            over.setdefault(event.base, []).append(version)
    kept = _ancestors(made)
    for base, rivals in sorted(over.items()):
        if len(rivals) > 1:
            yield Fork(
                key,
                base,
                tuple(sorted(rivals)),
                tuple(sorted(version for version in rivals if version not in kept)),
            )


def _ancestors(made: Mapping[Pair, Event]) -> set[Pair]:
    """Return the latest version and all ancestors."""
    order = sorted(made)
    ancestors = set()
    place = len(order) - 1
    while place >= 0:
        version = order[place]
        ancestors.add(version)
        base = made[version].base
        if base is None:
            place -= 1
        else:
            place = bisect_left(order, base) if base in made and base < version else -1
    return ancestors


def _subject(event: Event) -> str:
    """Return the client and the operation, as a part of a sentence."""
    unchanged = event.base is not None and not is_write(event)
    return f"{event.client}'s {'unchanged write' if unchanged else event.operation}"


def _listed(tags: Iterable[Pair]) -> str:
    return ", ".join(map(shown, tags)) or "none"
