"""What the processes of a torture run tell each other, as JSON lines; and the values that clients write.

Clients take times from CLOCK_MONOTONIC, which all processes of a machine share.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ares.model.configuration import Algorithm, Configuration
from ares.model.errors import AresError
from ares.model.identity import ServerId
from ares.testing.verify.history import Event


class TortureFailed(AresError):
    """The run itself could not be carried out; that says nothing about the cluster's correctness."""


class Record(Struct, frozen=True, omit_defaults=True):
    """One operation: the event of the history, when the client stopped waiting for it, and the error if there was one.

    ``abandoned``: the client left by itself, after a moment, as a client that dies does. That is no failure of the cluster.
    """

    event: Event
    ended: float
    error: str = ""
    abandoned: bool = False


class Counts(Struct, frozen=True):
    """What one client process has done so far; ``errors`` counts the operations that failed for any reason but their client's own."""

    operations: int = 0
    errors: int = 0


Stage = Literal["read-config", "update-config", "finalize-config", "gc-config"]


class Wish(Struct, frozen=True):
    """A reconfiguration to be tried. ``fresh``: by a client that knows nothing but the cluster file.

    ``dies_in``: the reconfigurer kills itself (-9) when it reports that stage for the ``dies_after``-th time.
    """

    number: int
    dap: Algorithm
    servers: tuple[ServerId, ...]
    k: int = 1
    delta: int = 0
    fresh: bool = False
    dies_in: Stage | None = None
    dies_after: int = 1

    def configuration(self) -> Configuration:
        """What is wished for."""
        return Configuration.abd(self.servers) if self.dap == "abd" else Configuration.ec(self.servers, self.k, self.delta)


class Begun(Struct, frozen=True, tag="begun"):
    """The wish's servers answered and a place is looked for: from now on the wish may be decided."""


class Done(Struct, frozen=True, tag="done"):
    """``configuration`` is finalized. ``announced``: the consensus service names it, or a later one, to clients that are lost."""

    configuration: Configuration
    ours: bool
    moved: int
    announced: bool


class Refused(Struct, frozen=True, tag="refused"):
    """A server that the wish names did not answer: nothing was proposed."""

    error: str


class Failed(Struct, frozen=True, tag="failed"):
    """The wish may be decided nevertheless, now or later."""

    error: str


class Killed(Struct, frozen=True, tag="killed"):
    """The reconfigurer was killed, by itself or by the nemesis; ``begun``: the wish may be decided."""

    begun: bool


Reply = Begun | Done | Refused | Failed
Outcome = Done | Refused | Failed | Killed

encoder = msgspec.json.Encoder()
_record_decoder = msgspec.json.Decoder(Record)


def load_records(paths: Iterable[Path], origin: float) -> list[Record]:
    """Every record of the files, in the order of invocation, with times since ``origin``.

    A line that is cut off is none: its client was killed while it wrote.
    """
    lines = (line for path in paths for line in path.read_bytes().splitlines(keepends=True))
    records = [_record_decoder.decode(line) for line in lines if line.endswith(b"\n")]
    return sorted((_since(origin, record) for record in records), key=lambda record: record.event.invoked)


def _since(origin: float, record: Record) -> Record:
    event = record.event
    responded = None if event.responded is None else event.responded - origin
    return replace(record, event=replace(event, invoked=event.invoked - origin, responded=responded), ended=record.ended - origin)


def value_of(name: str, size_bytes: int) -> bytes:
    """The value called ``name``: all of its bytes, of which there are at least as many as the name has, follow from the name."""
    head = f"{name} ".encode()
    return head + hashlib.shake_128(head).digest(max(size_bytes - len(head), 0))


def name_of(value: bytes) -> str:
    """What ``value`` is called; of bytes that are no such value, a name that nobody wrote."""
    name = value.partition(b" ")[0].decode(errors="replace")
    return name if value_of(name, len(value)) == value else f"damaged:{hashlib.blake2b(value, digest_size=8).hexdigest()}"
