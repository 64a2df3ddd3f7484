"""Giving space back, and leaving places that went bad: a slice between two commits (what to keep says ares/server/compaction.py).

A place is *damaged* when its file is not what was written, however little of it: what is alive there is journaled again, from memory, and the
place is given up. So a store heals before a restart would have to refuse it. What had rotted in memory, too, is journaled hollow, and waits to be
repaired from other servers (ares/server/scrubbing.py).
"""

import enum
import logging
from collections.abc import Container

from ares.errors import StoreDamaged
from ares.runtime.ports import Journal, Key, Use
from ares.server.compaction import USUAL, Compaction, Thrift, choose
from ares.server.state import Outlasting

log = logging.getLogger(__name__)


class Step(enum.Enum):
    """What a step did: nothing; it looked, and there is more to look at; it left something to commit before the next step."""

    NOTHING = enum.auto()
    LOOKED = enum.auto()
    APPENDED = enum.auto()


class Reclaiming:
    """Of ``journal``, whose facts made ``outlasting``. ``lacks_room``: the last step could not be done, for the disk is full."""

    def __init__(self, outlasting: Outlasting, journal: Journal, thrift: Thrift = USUAL) -> None:
        self.lacks_room = False
        self._outlasting = outlasting
        self._journal = journal
        self._thrift = thrift
        self._compaction: Compaction | None = None
        self._damaged: dict[int, Container[Key] | None] = {}
        self._looked_at_died = -thrift.look_bytes

    @property
    def damaged(self) -> int:
        """How many places went bad and are not left yet."""
        return len(self._damaged)

    def leave(self, place: int, readable: Container[Key] | None = None) -> None:
        """``place`` is damaged. ``readable``: see :class:`ares.runtime.ports.Verdict`."""
        if place not in self._damaged:
            log.error("place %d of the store is damaged; what is alive there is journaled again from memory", place)
        if self._damaged.get(place) is None:
            self._damaged[place] = readable
        if self._compaction is not None and self._compaction.place == place:
            self._compaction = None

    def look_again(self) -> None:
        """Look for what can be given back, however little died since the last time."""
        self._looked_at_died = self._outlasting.died - self._thrift.look_bytes

    def step(self) -> Step:
        """One slice, if there is a place to give back. Call it while no commit is under way, so that every slice before it is durable.

        Raises OSError.
        """
        compaction = self._compaction or self._chosen()
        if compaction is None:
            return self._sealed()
        self._compaction = compaction
        try:
            room = compaction.look()
        except StoreDamaged as error:
            log.error("a place of the store is not what was written: %s", error)
            self.leave(compaction.place)
            return Step.LOOKED
        if room:
            return self._copy(compaction, room)
        if not compaction.ended:
            return Step.LOOKED
        self._journal.discard(compaction.place)
        self._damaged.pop(compaction.place, None)
        self._compaction = None
        self.look_again()
        return Step.APPENDED

    def _copy(self, compaction: Compaction, room: int) -> Step:
        place = self._journal.reserve(room, Use.COMPACTION)
        self.lacks_room = place is None
        if place is None:
            return Step.NOTHING
        for fact in compaction.move(place):
            self._journal.append(fact)
        return Step.APPENDED

    def _chosen(self) -> Compaction | None:
        """A damaged place that nothing is appended to any more, else one that is worth it."""
        places = self._journal.places()
        for place, readable in self._damaged.items():
            if place in places:
                return Compaction(self._outlasting, place, self._outlasting.held_at(place, readable), self._thrift)
        if self._outlasting.died - self._looked_at_died < self._thrift.look_bytes:
            return None
        self._looked_at_died = self._outlasting.died
        worth = choose(places, self._outlasting.live)
        return None if worth is None else Compaction(self._outlasting, worth, self._journal.read(worth), self._thrift)

    def _sealed(self) -> Step:
        """See to it that nothing more is appended to damaged places."""
        for place in list(self._damaged):
            if place not in self._journal.durable():
                del self._damaged[place]  # it was given back meanwhile
            elif self._journal.seal(place):
                self.lacks_room = False
                return Step.APPENDED
            else:
                self.lacks_room = True
        return Step.NOTHING
