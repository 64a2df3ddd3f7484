"""Histories: the operations and replies of clients, a JSON object per line; and the check's report.

    {"client":"w1","operation":"write","key":"k","value":"w1-17","invoked":1.25,"responded":1.31,"outcome":"ok","tag":[4,9]}

``value`` is the value or a digest, null for absent (a delete, or a read that found no value).
``outcome``: ``ok``; ``failed``: certainly without effect; ``unknown``: a write or delete with a
possible effect, now or at any later time, or a read without a reply. Times are seconds of the same
clock. ``tag`` is for the separate checks of tag order and of coverability only; linearizability is
judged without tags.

Operations on coverable objects (CoARES) carry versions, which are tags:

    {"client":"w1","operation":"write","key":"k","value":"w1-17","invoked":1.25,"responded":1.31,"base":[3,2],"tag":[4,9]}

``base`` is the version given to a coverable write. A ``changed`` write is recorded as a write (or
delete), and ``tag`` is the new version. An ``unchanged`` write is recorded as a read with a base;
``value`` and ``tag`` are the returned latest value and version.
"""

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec
from msgspec import Struct

from ares.model.errors import BadInput

Operation = Literal["read", "write", "delete"]
Outcome = Literal["ok", "failed", "unknown"]
Pair = tuple[int, int]
"""A tag in a history: number and writer."""


def shown(tag: Pair) -> str:
    """Return a tag as text for a sentence."""
    return f"{tag[0]}.{tag[1]:x}"


class Event(Struct, frozen=True, omit_defaults=True):
    """An operation of a client on a key.

    ``responded`` is ``None`` unless the outcome is ok or failed.
    """

    client: str
    operation: Operation
    key: str
    value: str | None
    invoked: float
    responded: float | None
    outcome: Outcome = "ok"
    tag: Pair | None = None
    base: Pair | None = None

    def describe(self) -> str:
        end = "?" if self.responded is None else f"{self.responded:.6f}"
        over = "" if self.base is None else f" over {shown(self.base)}"
        made = (
            ""
            if self.base is None or self.tag is None
            else f" {'unchanged' if self.operation == 'read' else 'made'} {shown(self.tag)}"
        )
        return (
            f"[{self.invoked:.6f} .. {end}] {self.client} {self.operation} {self.key!r} "
            f"{self.value!r} {self.outcome}{over}{made}"
        )


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)


def dump(events: Iterable[Event]) -> bytes:
    return b"".join(_encoder.encode(event) + b"\n" for event in events)


def load(text: bytes, name: str) -> list[Event]:
    """Parse the events in JSON lines. Raises :class:`BadInput` with ``name`` and the bad line."""
    return list(_parsed(text, name))


def _parsed(text: bytes, name: str) -> Iterator[Event]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                event = _decoder.decode(line)
            except msgspec.MsgspecError as error:
                raise BadInput(f"{name}:{number}: not an event of a history: {error}") from error
            if event.responded is not None and event.responded < event.invoked:
                raise BadInput(f"{name}:{number}: responded before it was invoked")
            if (event.responded is None) != (event.outcome == "unknown"):
                raise BadInput(
                    f"{name}:{number}: exactly the operations of unknown outcome have no response"
                )
            yield event


class Violation(Struct, frozen=True):
    """Contradictory operations on a key: not all can have happened as recorded.

    ``events`` are few, by time of invocation.
    """

    key: str
    why: str
    events: tuple[Event, ...]

    def describe(self) -> str:
        """Return the contradiction and the operations, a line each."""
        return "\n".join(
            [f"key {self.key!r}: {self.why}", *(f"  {event.describe()}" for event in self.events)]
        )


class UndecidedKey(Struct, frozen=True):
    """A key found neither right nor wrong."""

    key: str
    why: str

    def describe(self) -> str:
        return f"key {self.key!r}: undecided: {self.why}"


class HistoryReport(Struct, frozen=True):
    """The outcome of a check; ``operations`` counts the events, ``keys`` the different keys."""

    operations: int
    keys: int
    violations: tuple[Violation, ...] = ()
    undecided: tuple[UndecidedKey, ...] = ()

    @property
    def ok(self) -> bool:
        """Return whether every key was decided, and found right."""
        return not self.violations and not self.undecided
