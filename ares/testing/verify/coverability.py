"""Coverability of versioned objects, judged by the versions that clients were told (N. Nicolaou, A. Fernandez Anta, C. Georgiou, "CoVerability:
consistent versioning"; CoARES). Versions are tags, so their order is that of tags; objects that nobody gave a base are not judged.

What is demanded of the operations on an object, where *changed* writes are those that made a version:

- *validity*: a version belongs to one write and one value; nobody is told a version that no write made. The initial version, zero, is "absent";
- *continuity*: the base of a changed write is the initial version or one made by a write that was invoked before this one responded;
- *evolution*: a new version is higher than its base. Numbers may be skipped: a write of unknown outcome spends its number;
- *consolidation*: if a version was told before an operation was invoked, the operation is told no lower one; if it is a changed write, its base is no
  lower and its version is higher. So of two changed writes over one base none comes before the other, and none loses to one that came before it;
- *unchanged* writes are told a higher version than their base, made by a write that was invoked before they responded.

This is as much as a register can promise whose changed writes look (the base is the latest version) and later put (the latest version becomes
the higher of the two), each at one moment of their interval. *Sketch:* let a version be the latest from its start to that of the next higher one. The
looks, puts and reads bound every start from below by invocations and from above by responses; starts in the order of versions exist if and only if no
lower bound of a version exceeds an upper bound of the same or a higher one. Each such pair breaks one of the properties above.

Weak coverability allows concurrent changed writes over one base: these *forks* are told, and no violation.

Validity and the order of what was told are those of tags (tag_order.py); if all operations tell versions, they make the order of versions a
linearization of the values. Where some do not, linearizability.py says more.

A write that does not tell its version (mostly of unknown outcome) is known by its value: if it is the only such write of the value, and readers were
told one version that nobody else made, it made that one. Where more than one write may have made a version, only the number of them is judged.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from msgspec import Struct, structs

from ares.testing.verify.history import Event, HistoryReport, Pair, Violation, shown
from ares.testing.verify.register import Contradiction, by_key, is_write, named, response, written
from ares.testing.verify.tag_order import ZERO, check_tags


class Unexplained(NamedTuple):
    """A version that ``event`` shows and that no write is left to have made.

    ``others``: the only write that there was, and what shows that it made another version.
    """

    version: Pair
    event: Event
    others: tuple[Event, ...] = ()


def is_changed(event: Event) -> bool:
    """Whether this is a coverable write that made a version."""
    return (
        is_write(event)
        and event.base is not None
        and (event.tag is not None or event.outcome == "ok")
    )


class VersionHistory:
    """The operations on one object that count, with the versions that are known or can be told.

    ``made``: the write of each version; ``told``: for each version, the first operation to end that returned it; ``silent``: writes whose version is
    unknown; ``ownerless``: versions told that no write can have made.
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
        self.told = earliest(
            (event.tag, event) for event in counted if event.tag is not None and not is_write(event)
        )
        self.silent = [event for event in counted if event.tag is None and is_write(event)]
        self.ownerless: list[Unexplained] = []
        self._origins: dict[Event, tuple[Event, Event]] = {}
        linked = self._link()
        self.operations = [linked.get(event, event) for event in counted] if linked else counted

    def _link(self) -> dict[Event, Event]:
        """Writes that do not tell their version, with the one that readers were told with their value."""
        wanted: dict[str | None, dict[Pair, Event]] = {}
        for version, event in self.told.items():
            if version in self.made or version == ZERO:
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
        """The events as the history has them, by time of invocation, and with a write that does not tell its version the read that does."""
        found = {origin for event in events for origin in self._origins.get(event, (event,))}
        return tuple(sorted(found, key=lambda event: event.invoked))


def earliest(shown: Iterable[tuple[Pair, Event]]) -> dict[Pair, Event]:
    """For each version the event that ended first."""
    found: dict[Pair, Event] = {}
    for version, event in shown:
        if version not in found or response(event) < response(found[version]):
            found[version] = event
    return found


def unexplained(wanted: Mapping[Pair, Event], writes: Sequence[Event]) -> Iterator[Unexplained]:
    """Versions for which there is no write left that was invoked before the event that shows the version had ended."""
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
    """Versions that concurrent writes made over one base.

    ``lost``: those that the latest version does not descend from, so that what they wrote may be in no version that follows. A plain write counts as
    a descendant of the version below its own.
    """

    key: str
    base: Pair
    versions: tuple[Pair, ...]
    lost: tuple[Pair, ...]

    def describe(self) -> str:
        return f"key {self.key!r}: {_listed(self.versions)} over {shown(self.base)}; lost: {_listed(self.lost)}"


class CoverabilityReport(HistoryReport, frozen=True):
    """The outcome of a check; ``operations`` and ``keys`` count those of coverable objects. ``unjudged``: completed operations of unknown version."""

    forks: tuple[Fork, ...] = ()
    unjudged: int = 0


def check_coverability(events: Iterable[Event]) -> CoverabilityReport:
    """Judge the objects that have an operation with a base; each violation names few operations."""
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
    """What is at odds. The last event of a contradiction is the one at fault: it is told once, and what it says is no evidence against others."""
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
    """Versions that were returned and that no write had made."""
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
            yield Contradiction(f"{why}, {_nobodys(others)}", (*others, event))
    for version, event in versions.told.items():
        if version in versions.made and response(event) < versions.made[version].invoked:
            why = f"{_subject(event)} returned version {shown(version)} before the write of it was invoked"
            yield Contradiction(why, (versions.made[version], event))


def _devolving(_: VersionHistory, sound: Sequence[Event]) -> Iterator[Contradiction]:
    """Evolution; and unchanged writes that were not told a newer version."""
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
    """Changed writes whose base no write had made."""
    unowned: dict[Event, Pair] = {}
    for event in filter(is_changed, sound):
        base = event.base
        assert base is not None
        did = f"{_subject(event)} covered version {shown(base)}"
        if (write := versions.made.get(base)) is not None:
            if response(event) < write.invoked:
                yield Contradiction(f"{did} before the write of it was invoked", (write, event))
        elif base == ZERO or base in versions.told:
            continue
        elif (failed := versions.failed.get(base)) is not None:
            yield Contradiction(f"{did}, whose write failed without effect", (failed, event))
        else:
            unowned[event] = base
    for base, event, others in unexplained(
        earliest((base, event) for event, base in unowned.items()), versions.silent
    ):
        yield Contradiction(
            f"{_subject(event)} covered version {shown(base)}, {_nobodys(others)}", (*others, event)
        )


def _nobodys(others: tuple[Event, ...]) -> str:
    return "which no write is left to have made" if others else "which no write made"


def _stale(_: VersionHistory, sound: Sequence[Event]) -> Iterator[Contradiction]:
    """Consolidation: changed writes over a base that was known not to be the latest before they were invoked."""
    ended = sorted(
        ((event.tag, event) for event in sound if event.tag is not None),
        key=lambda told: response(told[1]),
    )
    over = [response(event) for _, event in ended]
    highest = list(accumulate(ended, _higher))
    for event in filter(is_changed, sound):
        count = bisect_left(over, event.invoked)
        if count and event.base is not None and event.base < highest[count - 1][0]:
            version, earlier = highest[count - 1]
            why = f"{_subject(event)} covered version {shown(event.base)}, although {shown(version)} was known before it began"
            yield Contradiction(why, (earlier, event))


def _higher(one: tuple[Pair, Event], other: tuple[Pair, Event]) -> tuple[Pair, Event]:
    return one if one[0] >= other[0] else other


def _forks(key: str, versions: VersionHistory) -> Iterator[Fork]:
    """Bases with more than one version over them that certainly came to be."""
    seen = {*versions.told, *(event.base for event in versions.operations if is_changed(event))}
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
    """The latest version, and what it descends from."""
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
    """Who did what, in a sentence."""
    return f"{event.client}'s {'unchanged write' if event.base is not None and not is_write(event) else event.operation}"


def _listed(tags: Iterable[Pair]) -> str:
    return ", ".join(map(shown, tags)) or "none"
