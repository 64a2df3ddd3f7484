"""Tags: the logical versions of a value, totally ordered (ARES II section 2, "Tags")."""

from msgspec import Struct

from ares.identity import ClientId


class Tag(Struct, frozen=True, order=True, array_like=True, gc=False):
    """tau = (ts, wid): ordered by ``number``, ties broken by ``writer``; unique to one write."""

    number: int
    writer: ClientId

    def __str__(self) -> str:
        return f"{self.number}.{self.writer:016x}"


TAG_ZERO = Tag(0, ClientId(0))
"""t0: the tag of an object that was never written."""
