"""Histories: what clients asked and what they were told, one JSON object a line.

    {"client":"w1","operation":"write","key":"k","value":"w1-17","invoked":1.25,"responded":1.31,"outcome":"ok","tag":[4,9]}

``value`` is the value or a digest of it, null for absent (a delete, or a read that found nothing). ``outcome``: ``ok``; ``failed``: certainly
without effect; ``unknown``: a write or delete that may have taken effect, now or at any later time, and a read that said nothing. Times are
seconds of one clock.
``tag`` is for the separate check of tag order only; linearizability is judged without it.
"""

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec
from msgspec import Struct

from ares.errors import BadInput

Operation = Literal["read", "write", "delete"]
Outcome = Literal["ok", "failed", "unknown"]


class Event(Struct, frozen=True, omit_defaults=True):
    """One operation of one client on one key; ``responded`` is None unless the outcome is ok or failed."""

    client: str
    operation: Operation
    key: str
    value: str | None
    invoked: float
    responded: float | None
    outcome: Outcome = "ok"
    tag: tuple[int, int] | None = None

    def describe(self) -> str:
        """One line for a person."""
        end = "?" if self.responded is None else f"{self.responded:.6f}"
        return f"[{self.invoked:.6f} .. {end}] {self.client} {self.operation} {self.key!r} {self.value!r} {self.outcome}"


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)


def dump(events: Iterable[Event]) -> bytes:
    """The events as JSON lines."""
    return b"".join(_encoder.encode(event) + b"\n" for event in events)


def load(text: bytes, name: str) -> list[Event]:
    """The events in JSON lines. Raises :class:`BadInput` naming the line of ``name`` that is none."""
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
                raise BadInput(f"{name}:{number}: exactly the operations of unknown outcome have no response")
            yield event
