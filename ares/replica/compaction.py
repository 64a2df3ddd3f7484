"""Which place of a journal to give back, and what of it to keep (pure; ares/server/reclaiming.py does it).

A place is worth it when at least half of it is dead: then copying what lives costs no more than was gained, so everything that is ever copied is no
more than what clients wrote. What lives is known about, never less than half of what it takes: after a place was copied it is not chosen again at
once.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from ares.replica.facts import Fact, fact_bytes_max
from ares.replica.replica import Replica


class CompactionLimits(Struct, frozen=True):
    """``look_bytes``: so much must die before places are looked at again. A turn of the event loop looks at ``slice_bytes`` or ``slice_facts``."""

    look_bytes: int = 1024 * 1024
    slice_bytes: int = 1024 * 1024
    slice_facts: int = 1000


USUAL = CompactionLimits()

DEAD_SHARE_MIN = 0.5


def choose(places: Mapping[int, int], live: Mapping[int, int]) -> int | None:
    """The place, of ``places`` with their bytes, of which the largest part is dead; None if none is worth it."""
    best = max(
        places, key=lambda place: _dead_share(places[place], live.get(place, 0)), default=None
    )
    return best if best is not None and is_worth_it(places[best], live.get(best, 0)) else None


def is_worth_it(bytes: int, live: int) -> bool:
    """Whether to give back a place of ``bytes``, of which ``live`` are alive."""
    return _dead_share(bytes, live) >= DEAD_SHARE_MIN


def _dead_share(bytes: int, live: int) -> float:
    return 1 - live / bytes if bytes else 1.0


class Compaction:
    """What survives of one place, a slice at a time. Two steps for each slice: look at it, then move it to where it was journaled again.

    ``facts``: of the place, as its file has them or as they are held (a None among them is a step that found nothing).
    """

    def __init__(
        self,
        replica: Replica,
        place: int,
        facts: Iterator[Fact | None],
        limits: CompactionLimits = USUAL,
    ) -> None:
        self.place = place
        self._limits = limits
        self._replica = replica
        self._facts = facts
        self._slice: list[Fact] = []
        self.ended = False

    def look(self) -> int:
        """Room that the next slice takes at most; 0 if nothing of it survives. Asked again before it was moved, it is the same slice."""
        if not self._slice and not self.ended:
            self._advance()
        self._slice = [
            kept
            for fact in self._slice
            if (kept := self._replica.surviving(fact, self.place)) is not None
        ]
        return sum(map(fact_bytes_max, self._slice))

    def _advance(self) -> None:
        bytes = 0
        for count, fact in enumerate(self._facts, 1):
            if fact is not None:
                self._slice.append(fact)
                bytes += fact_bytes_max(fact)
            if bytes >= self._limits.slice_bytes or count >= self._limits.slice_facts:
                return
        self.ended = True

    def move(self, place: int) -> list[Fact]:
        """The slice, to be journaled at ``place``: the replica counts on it from now on."""
        for fact in self._slice:
            self._replica.move(fact, place)
        moved, self._slice = self._slice, []
        return moved
