"""The choice of a journal's place to give back, and of the facts to keep.

Pure; ares/server/space_reclaimer.py does the work. A place qualifies when at least half of its
bytes are dead: copying the live half costs no more than the gain, hence all copied bytes together
never exceed the bytes written by clients. The live bytes are known approximately, but never below
half of their real size: a place just copied is not chosen again at once.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from ares.replica.facts import Fact, fact_bytes_max
from ares.replica.replica import Replica


class CompactionLimits(Struct, frozen=True):
    """The limits of a compaction.

    ``look_bytes``: bytes that must die before places are examined again. A turn of the event loop
    examines ``slice_bytes`` or ``slice_facts``.
    """

    look_bytes: int = 1024 * 1024
    slice_bytes: int = 1024 * 1024
    slice_facts: int = 1000


USUAL_COMPACTION = CompactionLimits()

DEAD_SHARE_MIN = 0.5


def choose(places: Mapping[int, int], live: Mapping[int, int]) -> int | None:
    """Return the place with the largest dead share, or None if no place qualifies.

    ``places`` and ``live`` map places to their bytes.
    """
    best = max(
        places, key=lambda place: _dead_share(places[place], live.get(place, 0)), default=None
    )
    return best if best is not None and is_worth_it(places[best], live.get(best, 0)) else None


def is_worth_it(bytes: int, live: int) -> bool:
    """Return whether to give back a place of ``bytes``, of which ``live`` are alive."""
    return _dead_share(bytes, live) >= DEAD_SHARE_MIN


def _dead_share(bytes: int, live: int) -> float:
    return 1 - live / bytes if bytes else 1.0


class Compaction:
    """The surviving facts of a place, a slice at a time.

    Each slice takes two steps: look at the slice, and move the slice to the place where it was
    journaled again. ``facts``: the facts of the place, as its file has them or as they are held
    (None stands for a step without a fact).
    """

    def __init__(
        self,
        replica: Replica,
        place: int,
        facts: Iterator[Fact | None],
        limits: CompactionLimits = USUAL_COMPACTION,
    ) -> None:
        self.place = place
        self._limits = limits
        self._replica = replica
        self._facts = facts
        self._slice: list[Fact] = []
        self.ended = False

    def look(self) -> int:
        """Return the most bytes that the next slice takes; 0 if no fact of the slice survives.

        Until the slice is moved, the next call looks at the same slice.
        """
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
        """Return the slice, to be journaled at ``place``; the replica counts on this."""
        for fact in self._slice:
            self._replica.move(fact, place)
        moved, self._slice = self._slice, []
        return moved
