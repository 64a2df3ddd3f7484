"""Which place of a journal to give back, and what of it to keep (pure; ares/server/durable_host.py does it).

A place is worth it when at least half of it is dead: then copying what lives costs no more than was gained, so everything that is ever copied is no
more than what clients wrote. What lives is known about, never less than half of what it takes: after a place was copied it is not chosen again at
once.
"""

from collections.abc import Iterator, Mapping

from ares.server.facts import Fact, fact_bytes_max
from ares.server.state import Outlasting

SLICE_BYTES = 1024 * 1024
SLICE_FACTS = 1000
"""What is looked at in one turn of the event loop ends at either."""

DEAD_SHARE_MIN = 0.5


def choose(places: Mapping[int, int], live: Mapping[int, int]) -> int | None:
    """The place, of ``places`` with their bytes, of which the largest part is dead; None if none is worth it."""
    best = max(places, key=lambda place: _dead_share(places[place], live.get(place, 0)), default=None)
    return best if best is not None and _dead_share(places[best], live.get(best, 0)) >= DEAD_SHARE_MIN else None


def _dead_share(bytes: int, live: int) -> float:
    return 1 - live / bytes if bytes else 1.0


class Compaction:
    """What survives of one place, a slice at a time. Two steps for each slice: look at it, then move it to where it was journaled again."""

    def __init__(self, outlasting: Outlasting, place: int, facts: Iterator[Fact]) -> None:
        self.place = place
        self._outlasting = outlasting
        self._facts = facts
        self._slice: list[Fact] = []
        self.ended = False

    def look(self) -> int:
        """Room that the next slice takes at most; 0 if nothing of it survives. Asked again before it was moved, it is the same slice."""
        if not self._slice and not self.ended:
            self._advance()
        outlasting = self._outlasting
        self._slice = [kept for fact in self._slice if (kept := outlasting.surviving(fact, self.place)) is not None]
        return sum(map(fact_bytes_max, self._slice))

    def _advance(self) -> None:
        bytes = count = 0
        for fact in self._facts:
            self._slice.append(fact)
            bytes, count = bytes + fact_bytes_max(fact), count + 1
            if bytes >= SLICE_BYTES or count >= SLICE_FACTS:
                return
        self.ended = True

    def move(self, place: int) -> list[Fact]:
        """The slice, to be journaled at ``place``: the replica counts on it from now on."""
        for fact in self._slice:
            self._outlasting.move(fact, place)
        moved, self._slice = self._slice, []
        return moved
