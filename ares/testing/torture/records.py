"""Messages between the processes of a torture run, as JSON lines; timelines; and written values.

Clients take times from CLOCK_MONOTONIC, which all processes of a machine share. In a timeline,
times are seconds since the run began.
"""

import hashlib
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Generic, Literal, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ares.model.configuration import Algorithm, Configuration
from ares.model.errors import AresError
from ares.model.identity import DEFAULT_DOMAIN, ServerId
from ares.reconfig.mover import Transfer
from ares.testing.verify.history import Event
from ares.testing.verify.log_history import LogEvent

Seen = TypeVar("Seen", Event, LogEvent)


class TortureFailed(AresError):
    """The run itself could not be carried out; the cluster's correctness is not in question."""


class RecordedOperation(Struct, Generic[Seen], frozen=True, omit_defaults=True):
    """An operation on an object or on a log.

    The record has the event of the history, the time when the client stopped waiting, and the
    error, if any. ``abandoned``: the client left by itself, after a moment, as a dying client does.
    This is no failure of the cluster.
    """

    event: Seen
    ended: float
    error: str = ""
    abandoned: bool = False


Record = RecordedOperation[Event]
LogRecorded = RecordedOperation[LogEvent]


class Counts(Struct, frozen=True):
    """The counts of a client process; ``errors``: failed operations, abandoned ones excepted."""

    operations: int = 0
    errors: int = 0


Stage = Literal[
    "read-config", "copy-ahead", "update-config", "finalize-config", "gc-config", "seal", "fetch"
]


class Wish(Struct, frozen=True):
    """A reconfiguration to try. ``fresh``: by a client that knows only the cluster file.

    ``dies_in``: the reconfigurer kills itself (-9) at the ``dies_after``-th report of this stage.
    ``transfer``: of objects. ``ahead``: whether most are copied before the decision.
    """

    number: int
    dap: Algorithm
    servers: tuple[ServerId, ...]
    k: int = 1
    delta: int = 0
    fresh: bool = False
    dies_in: Stage | None = None
    dies_after: int = 1
    domain: str = DEFAULT_DOMAIN
    transfer: Transfer = "client"
    ahead: bool = False

    def configuration(self) -> Configuration:
        if self.dap == "ec":
            return Configuration.ec(self.servers, self.k, self.delta)
        return (
            Configuration.abd(self.servers)
            if self.dap == "abd"
            else Configuration.chain(self.servers)
        )


class WishBegun(Struct, frozen=True, tag="begun"):
    """The wish's servers answered and a place is sought: from now on the wish may be decided."""


class WishInstalled(Struct, frozen=True, tag="done"):
    """``configuration`` is finalized.

    ``announced``: the consensus service names this configuration, or a later one, to lost clients.
    """

    configuration: Configuration
    ours: bool
    moved: int
    announced: bool


class WishDeclined(Struct, frozen=True, tag="refused"):
    """A server of the wish did not answer: no proposal was made."""

    error: str


class WishFailed(Struct, frozen=True, tag="failed"):
    """The wish may be decided nevertheless, now or later."""

    error: str


class WishKilled(Struct, frozen=True, tag="killed"):
    """The reconfigurer was killed, by itself or the nemesis; ``begun``: the wish may be decided."""

    begun: bool


Reply = WishBegun | WishInstalled | WishDeclined | WishFailed
Outcome = WishInstalled | WishDeclined | WishFailed | WishKilled

encoder = msgspec.json.Encoder()
_record_decoder = msgspec.json.Decoder(Record)
_log_decoder = msgspec.json.Decoder(LogRecorded)


def send_to_parent(message: Counts | Reply) -> None:
    """Report to the parent process."""
    sys.stdout.buffer.write(encoder.encode(message) + b"\n")
    sys.stdout.buffer.flush()


def load_records(paths: Iterable[Path], origin: float) -> list[Record]:
    """Return every record of the files, in the order of invocation, with times since ``origin``.

    A line that is cut off is skipped: its client was killed during the write.
    """
    return _in_order(map(_record_decoder.decode, _lines(paths)), origin)


def load_log_records(paths: Iterable[Path], origin: float) -> list[LogRecorded]:
    """Return the records of a log, as :func:`load_records` does.

    Pieces of a follower that came together stay in their order.
    """
    return _in_order(map(_log_decoder.decode, _lines(paths)), origin)


def _lines(paths: Iterable[Path]) -> Iterator[bytes]:
    return (
        line
        for path in paths
        for line in path.read_bytes().splitlines(keepends=True)
        if line.endswith(b"\n")
    )


def _in_order(
    records: Iterable[RecordedOperation[Seen]], origin: float
) -> list[RecordedOperation[Seen]]:
    return sorted(
        (_since(origin, record) for record in records), key=lambda record: record.event.invoked
    )


def _since(origin: float, record: RecordedOperation[Seen]) -> RecordedOperation[Seen]:
    event = record.event
    responded = None if event.responded is None else event.responded - origin
    return replace(
        record,
        event=replace(event, invoked=event.invoked - origin, responded=responded),
        ended=record.ended - origin,
    )


def value_of(name: str, size_bytes: int) -> bytes:
    """Return the value called ``name``; all bytes follow from the name.

    The value has at least as many bytes as the name.
    """
    head = f"{name} ".encode()
    return head + hashlib.shake_128(head).digest(max(size_bytes - len(head), 0))


def name_of(value: bytes) -> str:
    """Return the name of ``value``; for unknown bytes, a name that no client wrote."""
    name = value.partition(b" ")[0].decode(errors="replace")
    return (
        name
        if value_of(name, len(value)) == value
        else f"damaged:{hashlib.blake2b(value, digest_size=8).hexdigest()}"
    )


State = Literal["up", "dead", "stopped", "partitioned"]


class Moment(Struct, frozen=True):
    """An event of a run. ``fault``: the nemesis caused it."""

    at: float
    kind: str
    target: str
    detail: str = ""
    fault: bool = False


class Spell(Struct, frozen=True):
    """A period of a process in a single state; ``life`` counts starts from 1."""

    target: str
    state: State
    life: int
    begin: float
    end: float


class Reign(Struct, frozen=True):
    """A configuration, with the begin and the end of its reconfiguration.

    ``wished``: the begin of the attempt (``None``: unseen); ``finalized``: the reported end.
    """

    index: int
    text: str
    wished: float | None
    finalized: float


class Timeline:
    """An append-only timeline; the run begins at creation: ``origin``, on CLOCK_MONOTONIC."""

    def __init__(self) -> None:
        self.origin = time.monotonic()
        self.end = 0.0
        self.marks: list[Moment] = []
        self.reigns: list[Reign] = []
        self.spells: list[Spell] = []  # in the order of their ends
        self._now: dict[str, tuple[State, int, float]] = {}

    def now(self) -> float:
        """Return the seconds since the run began."""
        return time.monotonic() - self.origin

    def mark(self, kind: str, target: str, detail: str = "", *, fault: bool = False) -> None:
        self.marks.append(Moment(self.now(), kind, target, detail, fault))

    def state(self, target: ServerId, state: State, *, new_life: bool = False) -> None:
        """Note the new state of a process."""
        now = self.now()
        _, life, _ = self._now.get(target, (state, 0, now))
        self._close(target, now)
        self._now[target] = (state, life + new_life, now)

    def reigns_now(self, configuration: Configuration, wished: float | None) -> None:
        """Note a finalized configuration."""
        if not self.reigns or configuration.index > self.reigns[-1].index:
            self.reigns.append(
                Reign(configuration.index, configuration.describe(), wished, self.now())
            )

    def close(self) -> None:
        """Close all open periods: the end of the timeline."""
        self.end = self.now()
        for target in list(self._now):
            self._close(target, self.end)

    @property
    def faults(self) -> Counter[str]:
        return Counter(mark.kind for mark in self.marks if mark.fault)

    def troubled(self) -> list[tuple[float, float]]:
        """Return the times with some process not up: disjoint intervals in order."""
        merged: list[tuple[float, float]] = []
        for begin, end in sorted(
            (spell.begin, spell.end) for spell in self.spells if spell.state != "up"
        ):
            if merged and begin <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((begin, end))
        return merged

    def _close(self, target: str, now: float) -> None:
        if target in self._now:
            state, life, since = self._now.pop(target)
            self.spells.append(Spell(target, state, life, since, now))
