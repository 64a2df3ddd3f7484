"""nextC: the successor that a server knows of a configuration (Alg. 4:28-42), with rule R2.

    none -> (c', P) -> (c', F) -> (c'', F) with a higher index; never backwards

The published server takes any pending successor over another. A different configuration *at the same index* would mean two consensus
decisions for one index; it is refused, which keeps quorums safe even if the consensus service misbehaves (rule R2).
"""

from collections.abc import Collection, Iterable
from typing import Protocol

from ares.model.configuration import Configuration, Successor
from ares.model.errors import AresError


class ConflictingSuccessor(AresError):
    """Two different configurations for one index of one domain."""


def advance(own: Configuration, current: Successor | None, incoming: Successor) -> Successor:
    """The pointer after ``incoming`` arrives at a server of configuration ``own``.

    Raises :class:`ConflictingSuccessor` (R2, or a successor that cannot follow ``own`` at all).
    """
    new = incoming.configuration
    if new.index < 0 or new.cluster_id != own.cluster_id:
        raise ConflictingSuccessor(f"index {new.index} of {new.domain!r} was decided for another cluster")
    if new.domain != own.domain or new.index <= own.index or (not incoming.finalized and new.index != own.index + 1):
        raise ConflictingSuccessor(f"index {new.index} of {new.domain!r} cannot follow index {own.index} of {own.domain!r}")
    if current is None:
        return incoming
    old = current.configuration
    if new.index == old.index:
        if new != old and new.id != old.id:  # while data moves every request brings it, and a digest takes longer than looking
            raise ConflictingSuccessor(f"index {new.index} of {new.domain!r} is {old.id.hex()} here, not {new.id.hex()}")
        return max(current, incoming, key=lambda successor: successor.status)
    return incoming if incoming.finalized and new.index > old.index else current


def latest(successors: Iterable[Successor | None]) -> Successor | None:
    """find-next-config's choice (Alg. 2:1-11): the finalized one with the highest index, else a pending one, else none."""
    best: Successor | None = None
    for successor in successors:
        if successor is not None and (best is None or _rank(successor) > _rank(best)):
            best = successor
    return best


class Naming(Protocol):
    """A reply that tells of a successor, if its server knows one."""

    @property
    def successor(self) -> Successor | None: ...


def latest_named(replies: Collection[Naming]) -> Successor | None:
    """``latest`` of what these replies name; nearly always none."""
    for reply in replies:
        if reply.successor is not None:
            return latest([reply.successor for reply in replies])
    return None


def _rank(successor: Successor) -> tuple[int, int]:
    return (successor.status, successor.configuration.index)
