"""The requests to every store: the same keys, sizes, mix and number of clients for all.

The next operation comes from a plug-in (patterns.py).
"""

from msgspec import Struct

from ares.model.units import KIB, MIB
from experiments.bench.patterns import YCSB_MIXES

KEY_DIGITS = 13
RECORDS, RECORD_BYTES = 1000, 10 * 100
"""Records of a pattern, of ten fields of 100 bytes."""

KEYSPACE_BYTES_MAX = 64 * MIB
"""Largest size of all keys of a store, times the copies: large values have fewer than 1000 keys."""


class Workload(Struct, frozen=True):
    """A workload: each of ``clients`` has at most a single operation outstanding.

    ``keys`` is the number of keys; the first ``written`` have a value from the beginning (None:
    all). ``read_share`` is the share of reads of the pattern `even`. ``pattern`` is a name of
    :func:`experiments.bench.patterns.pattern_maker`.
    """

    clients: int
    value_bytes: int = 10
    keys: int = 1000
    read_share: float = 0.5
    written: int | None = None
    pattern: str = "even"

    @property
    def first_written(self) -> int:
        """Return the number of keys that are written beforehand."""
        return self.keys if self.written is None else self.written

    @property
    def name(self) -> str:
        """Return a name such as "10 B, 100 clients" or "YCSB A, 1000 B, 100 clients"."""
        words = [size_text(self.value_bytes), f"{self.clients} client{'s'[: self.clients - 1]}"]
        return ", ".join(words if self.pattern == "even" else [self.pattern, *words])

    @property
    def large(self) -> bool:
        """Return whether bytes a second say more than operations a second."""
        return self.value_bytes >= MIB

    def key(self, number: int) -> str:
        """Return a key of 24 bytes; every size of values has separate keys."""
        return f"{self.value_bytes:010d}-{number:0{KEY_DIGITS}d}"


def workload(clients: int, value_bytes: int = 10) -> Workload:
    """Return the bench's workload, with the bench's number of keys for that size."""
    return Workload(clients, value_bytes, min(1000, max(KEYSPACE_BYTES_MAX // value_bytes, 8)))


def patterned(pattern: str) -> Workload:
    """Return the workload of a pattern, on records of YCSB's size, with room for as many more."""
    return Workload(100, RECORD_BYTES, 2 * RECORDS, written=RECORDS, pattern=pattern)


def size_text(size: int) -> str:
    """Format a size such as 1 KiB."""
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


SMALL_WORKLOADS = tuple(workload(clients) for clients in (1, 32, 100, 256))
FULL_WORKLOADS = (*SMALL_WORKLOADS, workload(100, KIB), workload(5, MIB), workload(5, 8 * MIB))
QUICK_WORKLOADS = (workload(1), workload(100), workload(5, MIB))
YCSB_WORKLOADS = tuple(patterned(f"YCSB {name}") for name in YCSB_MIXES)
WARM_UP_WORKLOAD = workload(100)
