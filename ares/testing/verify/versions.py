"""The versions of one coverable object: which write made which, as far as a history tells.

A write that does not tell its version (mostly of unknown outcome) is known by its value: if it is the only such write of the value, and readers were
told one version that nobody else made, it made that one. Where more than one write may have made a version, only the number of them is judged.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from ares.testing.verify.history import Event, Pair
from ares.testing.verify.register import is_write, response, written
from ares.testing.verify.tag_order import ZERO


class Unexplained(NamedTuple):
    """A version that ``event`` shows and that no write is left to have made.

    ``others``: the only write that there was, and what shows that it made another version.
    """

    version: Pair
    event: Event
    others: tuple[Event, ...] = ()


def is_changed(event: Event) -> bool:
    """Whether this is a coverable write that made a version."""
    return is_write(event) and event.base is not None and (event.tag is not None or event.outcome == "ok")


class Versions:
    """The operations on one object that count, with the versions that are known or can be told.

    ``made``: the write of each version; ``told``: for each version, the first operation to end that returned it; ``silent``: writes whose version is
    unknown; ``ownerless``: versions told that no write can have made.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        counted = [event for event in events if event.outcome == "ok" or (event.outcome == "unknown" and is_write(event))]
        self.made = {event.tag: event for event in counted if event.tag is not None and is_write(event)}
        self.failed = {event.tag: event for event in events if event.outcome == "failed" and event.tag is not None and is_write(event)}
        self.told = earliest((event.tag, event) for event in counted if event.tag is not None and not is_write(event))
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
            yield Unexplained(version, event, (writes[0], explained[0]) if len(writes) == len(explained) == 1 else ())
