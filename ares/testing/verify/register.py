"""One key's operations as operations on a read/write register, arranged by value.

A delete writes None, "absent", which is also the initial value. What has no say is left out: failed operations, and reads of unknown outcome.
A write of unknown outcome may take effect at any time after its invocation, or never: it counts as a write that has not responded.
"""

from collections.abc import Iterable, Iterator
from math import inf
from typing import NamedTuple

from ares.model.errors import BadInput
from ares.testing.verify.history import Event


class Contradiction(NamedTuple):
    """Operations that no order explains, and why."""

    why: str
    events: tuple[Event, ...]


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
                raise BadInput(f"not an event of a history: outcome {event.outcome}, and no response: {event.describe()}")
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
        """The values that are repeated."""
        return [value for value in self.reads if self.is_repeated(value)]

    def unexplained(self) -> Iterator[Contradiction]:
        """Reads of what was not there to be read: a value that nobody wrote, or whose every write was invoked after the read had ended."""
        for value, reads in self.reads.items():
            if value is None:
                continue
            if value not in self.writes:
                for read in reads:
                    yield self._never_written(value, read)
                continue
            first = min(self.writes[value], key=lambda write: write.invoked)
            for read in reads:
                if response(read) < first.invoked:
                    yield Contradiction(f"{named(value)} was read before any write of it was invoked", (read, first))

    def _never_written(self, value: str, read: Event) -> Contradiction:
        if (failed := self._failed.get(value)) is not None:
            return Contradiction(f"{named(value)} was read, although the only writes of it failed without effect", (failed, read))
        return Contradiction(f"{named(value)} was read, and nobody wrote it", (read,))
