"""What is asked of every store: the same keys, sizes, mix and number of clients for all of them."""

from msgspec import Struct

KIB, MIB = 1024, 1024 * 1024
KEY_DIGITS = 13
KEYSPACE_BYTES_MAX = 64 * MIB
"""Of large values there are fewer keys than 1000: what a store keeps of them stays below so many bytes, times its copies."""


class Workload(Struct, frozen=True):
    """Each of ``clients`` has one operation outstanding at most.

    ``keys``: how many, of which the first ``written`` have a value from the beginning (None: all). ``read_share``: what part of the operations reads.
    """

    clients: int
    value_bytes: int = 10
    keys: int = 1000
    read_share: float = 0.5
    written: int | None = None

    @property
    def first_written(self) -> int:
        """How many keys are written beforehand."""
        return self.keys if self.written is None else self.written

    @property
    def name(self) -> str:
        """As in "10 B, 100 clients"."""
        return (
            f"{size_text(self.value_bytes)}, {self.clients} client{'s' if self.clients > 1 else ''}"
        )

    @property
    def large(self) -> bool:
        """Whether bytes a second say more than operations."""
        return self.value_bytes >= MIB

    def key(self, number: int) -> str:
        """24 bytes; every size of values has keys of its own."""
        return f"{self.value_bytes:010d}-{number:0{KEY_DIGITS}d}"


def workload(clients: int, value_bytes: int = 10) -> Workload:
    """The bench's own, with as many keys as it has of that size."""
    return Workload(clients, value_bytes, min(1000, max(KEYSPACE_BYTES_MAX // value_bytes, 8)))


def size_text(size: int) -> str:
    """As in 1 KiB."""
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


SMALL = tuple(workload(clients) for clients in (1, 32, 100, 256))
FULL = (*SMALL, workload(100, KIB), workload(5, MIB), workload(5, 8 * MIB))
QUICK = (workload(1), workload(100), workload(5, MIB))
FAULTED = workload(100)
"""What is asked while a replica is slow or gone."""
