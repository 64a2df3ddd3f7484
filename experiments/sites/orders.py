"""Orders of the runner to the process of a client, and the answers. Both are JSON, a line each."""

import random
import zlib
from typing import Literal

from msgspec import Struct

from experiments.sites.site_store import Parameters

MB = 1_000_000
_CHECK_BYTES = 4

Kind = Literal["put", "get", "modify", "scan"]


class WorkerOpening(Struct, frozen=True):
    """The first line for a worker: ``store`` is a name of store_table.py."""

    store: str
    site: str
    parameters: Parameters


class Operation(Struct, frozen=True, omit_defaults=True):
    """An operation.

    ``modify`` reads an object and writes it. ``scan`` reads all of ``names`` at once; other
    operations have a single name. ``size`` is the size of written values.
    """

    kind: Kind
    names: tuple[str, ...]
    size: int = 0


class Order(Struct, frozen=True, omit_defaults=True):
    """Operations for ``parallel`` lanes; a lane begins its next operation after its last.

    With ``for_s``, the operations repeat until this time has passed; a lane waits ``pace_s`` after
    each. ``timeout_s`` is for an operation. ``known`` has the read names of objects of other users,
    if different from the objects' own names.
    """

    operations: tuple[Operation, ...]
    parallel: int = 1
    for_s: float = 0.0
    pace_s: float = 0.0
    timeout_s: float = 60.0
    known: dict[str, str] = {}


class FinishedOperation(Struct, frozen=True, array_like=True):
    """A finished operation: begin by the machine's monotonic clock, duration, and error if any."""

    kind: Kind
    began_s: float
    took_s: float
    failed: str = ""

    @property
    def ended_s(self) -> float:
        return self.began_s + self.took_s


class Answer(Struct, frozen=True):
    """The answer to an order.

    ``seconds`` is from the begin of the first operation to the end of the last. ``known`` has the
    new read names of written objects.
    """

    seconds: float
    done: list[FinishedOperation]
    known: dict[str, str] = {}


def value_of(size: int) -> bytes:
    """Return bytes that no store can compress or deduplicate, and a reader can check."""
    body = random.randbytes(size - _CHECK_BYTES)
    return zlib.crc32(body).to_bytes(_CHECK_BYTES, "big") + body


def is_whole(value: bytes) -> bool:
    """Return whether the bytes are a value of :func:`value_of`."""
    return zlib.crc32(memoryview(value)[_CHECK_BYTES:]) == int.from_bytes(
        value[:_CHECK_BYTES], "big"
    )
