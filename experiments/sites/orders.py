"""What the runner has the process of a client do, and what comes back. Both go through JSON, a line each."""

import random
import zlib
from typing import Literal

from msgspec import Struct

from experiments.sites.store import Parameters

MB = 1_000_000
_CHECK_BYTES = 4

Kind = Literal["put", "get", "modify", "scan"]


class Opening(Struct, frozen=True):
    """The first line that a worker is given: ``store`` is a name of stores.py."""

    store: str
    site: str
    parameters: Parameters


class Operation(Struct, frozen=True, omit_defaults=True):
    """``modify`` reads an object and writes it. ``scan`` reads all of ``names`` at once; the others have one name. ``size``: of what is written."""

    kind: Kind
    names: tuple[str, ...]
    size: int = 0


class Order(Struct, frozen=True, omit_defaults=True):
    """Operations for ``parallel`` lanes, each of which begins the next one when it has ended one.

    ``for_s``: begin again from the first one until so long has passed; ``pace_s``: a lane waits so long after each. ``timeout_s``: of an operation.
    ``known``: by which names objects are read that others wrote, where these differ from their own.
    """

    operations: tuple[Operation, ...]
    parallel: int = 1
    for_s: float = 0.0
    pace_s: float = 0.0
    timeout_s: float = 60.0
    known: dict[str, str] = {}


class Done(Struct, frozen=True, array_like=True):
    """An operation that ended: when it began by the machine's monotonic clock, how long it took, and why it failed if it did."""

    kind: Kind
    began_s: float
    took_s: float
    failed: str = ""

    @property
    def ended_s(self) -> float:
        return self.began_s + self.took_s


class Answer(Struct, frozen=True):
    """``seconds``: from the first operation's begin to the last one's end. ``known``: by which names objects that were put are read now."""

    seconds: float
    done: list[Done]
    known: dict[str, str] = {}


def value_of(size: int) -> bytes:
    """Bytes that no store can make smaller or take for others, and a reader can check."""
    body = random.randbytes(size - _CHECK_BYTES)
    return zlib.crc32(body).to_bytes(_CHECK_BYTES, "big") + body


def is_whole(value: bytes) -> bool:
    """Whether it is a value of :func:`value_of`."""
    return zlib.crc32(memoryview(value)[_CHECK_BYTES:]) == int.from_bytes(
        value[:_CHECK_BYTES], "big"
    )
