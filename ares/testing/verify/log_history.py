"""Histories of logs (docs/log.md, Histories).

A line (here folded) is a JSON object, with an operation and the reply to its client:

    {"client":"w1","operation":"append","log":"events","position":17,
     "entries":["w1-5","w1-6"],"invoked":1.25,"responded":1.31}

``entries`` are the entries or digests of them; each is appended once in a log, therefore they name
the append. Operations:

- ``append``: ``position`` is the position of the first entry. An append of unknown outcome may be
  in the log, now or later, and has no position; a ``failed`` append certainly is not. With ``at``,
  and ``failed``: the append did not get position ``at``, because another entry is at this place.
  Appends of one client stand in the order of their invocation: a client with a new name after an
  unknown outcome is recorded as another ``client``.
- ``read``: the entries from ``position`` on. Without entries: the position is empty. ``trimmed``:
  the position is below ``trimmed``, and gone.
- ``tail``: ``position`` is the next free position.
- ``follow``: as read, a line for each piece; the pieces of a client are consecutive, without a gap.
- ``trim``: positions below ``position`` may go.

Times are seconds of the same clock.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec import Struct

from ares.model.errors import BadInput
from ares.testing.verify.history import Outcome

LogOperation = Literal["append", "read", "tail", "follow", "trim"]


class LogEvent(Struct, frozen=True, omit_defaults=True):
    """An operation of a client on a log.

    ``responded`` is ``None`` exactly if the outcome is unknown.
    """

    client: str
    operation: LogOperation
    log: str
    position: int | None
    invoked: float
    responded: float | None
    entries: tuple[str, ...] = ()
    outcome: Outcome = "ok"
    at: int | None = None
    trimmed: int | None = None

    def describe(self) -> str:
        end = "?" if self.responded is None else f"{self.responded:.6f}"
        shown = ", ".join(self.entries[:3]) + (
            f", ... ({len(self.entries)})" if len(self.entries) > 3 else ""
        )
        place = "" if self.position is None else f" {self.position}"
        more = ("" if self.at is None else f" at {self.at}") + (
            "" if self.trimmed is None else f" trimmed {self.trimmed}"
        )
        return (
            f"[{self.invoked:.6f} .. {end}] {self.client} {self.operation}{place}{more} "
            f"[{shown}] {self.outcome}"
        )


class LogViolation(Struct, frozen=True):
    """Contradictory operations on a log: not all can have happened as recorded."""

    log: str
    why: str
    events: tuple[LogEvent, ...]

    def describe(self) -> str:
        """Return the contradiction and the operations, a line each."""
        return "\n".join(
            [f"log {self.log!r}: {self.why}", *(f"  {event.describe()}" for event in self.events)]
        )


class LogReport(Struct, frozen=True):
    """The outcome of a check."""

    operations: int
    logs: int
    violations: tuple[LogViolation, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.violations


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(LogEvent)


def dump_log(events: Iterable[LogEvent]) -> bytes:
    return b"".join(_encoder.encode(event) + b"\n" for event in events)


def is_log_history(text: bytes) -> bool:
    """Return whether the first line with content is of a log and not of keys."""
    first = next((line for line in text[: 1 << 20].splitlines() if line.strip()), b"")
    try:
        return "log" in msgspec.json.decode(first, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False


def load_log(text: bytes, name: str) -> list[LogEvent]:
    """Parse the events in JSON lines. Raises :class:`BadInput` with ``name`` and the bad line."""
    events = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                event = _decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise BadInput(f"{name}:{number}: not an event of a log: {error}") from error
            if wrong := _wrong(event):
                raise BadInput(f"{name}:{number}: {wrong}")
            events.append(event)
    return events


def _wrong(event: LogEvent) -> str:
    """Return why the event is invalid; empty for a valid event."""
    if event.responded is not None and event.responded < event.invoked:
        return "responded before it was invoked"
    if (event.responded is None) != (event.outcome == "unknown"):
        return "exactly the operations of unknown outcome have no response"
    if event.outcome == "ok" and event.position is None:
        return "an operation that ended well has a position"
    if any(
        position is not None and position < 0
        for position in (event.position, event.at, event.trimmed)
    ):
        return "a position below 0"
    if event.operation == "append" and not event.entries:
        return "an append has entries"
    return ""
