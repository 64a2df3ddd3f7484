"""Giving space back, and leaving places that went bad: a slice between two commits (what to keep says ares/replica/compaction.py).

A place is *damaged* when its file is not what was written, however little of it: what is alive there is journaled again, from memory, and the
place is given up. So a store heals before a restart would have to refuse it. What had rotted in memory, too, is journaled hollow, and waits to be
repaired from other servers (ares/server/scrub.py).

All of a damaged place may be alive, and the spare holds only what survives of one worth giving back. Until it is worth that, room for it is what
clients' data might take; and one that waits for room is in nobody's way: giving back others is what makes room.
"""

import enum
import logging
from collections.abc import Container

from ares.model.errors import StoreDamaged
from ares.replica.compaction import USUAL, Compaction, CompactionLimits, choose, is_worth_it
from ares.replica.facts import fact_bytes_max
from ares.replica.replica import Replica
from ares.store.port import Journal, Key, Use

log = logging.getLogger(__name__)


class Reclaimed(enum.Enum):
    """What a step did: nothing; it looked, and there is more to look at; it left something to commit before the next step."""

    NOTHING = enum.auto()
    LOOKED = enum.auto()
    APPENDED = enum.auto()


class Reclaiming:
    """Of ``journal``, whose facts made ``replica``. ``lacks_room``: a place could not be given back, for the disk is full.

    Whenever a step did nothing and damaged places are left, it is set.
    """

    def __init__(
        self, replica: Replica, journal: Journal, limits: CompactionLimits = USUAL
    ) -> None:
        self.lacks_room = False
        self._replica = replica
        self._journal = journal
        self._limits = limits
        self._compaction: Compaction | None = None
        self._waiting: Compaction | None = None
        self._damaged: dict[int, Container[Key] | None] = {}
        self._looked_at_died = -limits.look_bytes

    @property
    def damaged(self) -> int:
        """How many places went bad and are not left yet."""
        return len(self._damaged)

    def leave(self, place: int, readable: Container[Key] | None = None) -> None:
        """``place`` is damaged. ``readable``: see :class:`ares.store.port.Verdict`."""
        if place not in self._damaged:
            log.error(
                "place %d of the store is damaged; what is alive there is journaled again from memory",
                place,
            )
        if self._damaged.get(place) is None:
            self._damaged[place] = readable
        if self._compaction is not None and self._compaction.place == place:
            self._compaction = None
        if self._waiting is not None and self._waiting.place == place:
            self._waiting = None

    def look_again(self) -> None:
        """Look for what can be given back, however little died since the last time."""
        self._looked_at_died = self._replica.account.died - self._limits.look_bytes

    def step(self) -> Reclaimed:
        """One slice, if there is a place to give back. Call it while no commit is under way, so that every slice before it is durable.

        Raises OSError.
        """
        if self._compaction is None and not self._damaged and not self._may_be_worth_it:
            self.lacks_room = False
            return Reclaimed.NOTHING
        compaction = self._compaction or self._chosen()
        if compaction is None:
            return self._sealed()
        self._compaction = compaction
        try:
            room = compaction.look()
        except StoreDamaged as error:
            log.error("a place of the store is not what was written: %s", error)
            self.leave(compaction.place)
            return Reclaimed.LOOKED
        if room:
            return self._copy(compaction, room)
        if not compaction.ended:
            return Reclaimed.LOOKED
        self._journal.discard(compaction.place)
        self._damaged.pop(compaction.place, None)
        self._compaction = None
        self.lacks_room = self.lacks_room and bool(self._damaged)
        self.look_again()
        return Reclaimed.APPENDED

    def _copy(self, compaction: Compaction, room: int) -> Reclaimed:
        left = compaction.place
        may_take_spare = is_worth_it(
            self._journal.places()[left], self._replica.account.live.get(left, 0)
        )
        place = self._journal.reserve(room, Use.COMPACTION if may_take_spare else Use.DATA)
        if place is None:
            return self._wait(compaction)
        if left in self._damaged or not self._damaged:
            self.lacks_room = False
        for fact in compaction.move(place):
            self._journal.append(fact, fact_bytes_max(fact))
        return Reclaimed.APPENDED

    def _wait(self, compaction: Compaction) -> Reclaimed:
        """There is no room for the next slice. Once, and not again until there was some, look for another place than a damaged one."""
        lacked_room, self.lacks_room = self.lacks_room, True
        if compaction.place not in self._damaged:
            return Reclaimed.NOTHING
        self._compaction, self._waiting = None, compaction
        if lacked_room:
            return Reclaimed.NOTHING
        self.look_again()
        return Reclaimed.LOOKED

    def _chosen(self) -> Compaction | None:
        """A damaged place that nothing is appended to any more, else one that is worth it; the other way round while there is no room."""
        places = self._journal.places()
        chosen = next((place for place in self._damaged if place in places), None)
        if (chosen is None or self.lacks_room) and self._may_be_worth_it:
            self._looked_at_died = self._replica.account.died
            worth = choose(places, self._replica.account.live)
            chosen = chosen if worth is None else worth
        if chosen is None:
            return None
        if self._waiting is not None and self._waiting.place == chosen:
            waiting, self._waiting = self._waiting, None
            return waiting
        is_damaged = chosen in self._damaged
        facts = (
            self._replica.held_at(chosen, self._damaged[chosen])
            if is_damaged
            else self._journal.read(chosen)
        )
        return Compaction(self._replica, chosen, facts, self._limits)

    @property
    def _may_be_worth_it(self) -> bool:
        """Whether so much died since the last time that it is time to look again."""
        return self._replica.account.died - self._looked_at_died >= self._limits.look_bytes

    def _sealed(self) -> Reclaimed:
        """See to it that nothing more is appended to damaged places."""
        self.lacks_room = False
        for place in list(self._damaged):
            if place not in self._journal.durable():
                del self._damaged[place]  # it was given back meanwhile
            elif self._journal.seal(place):
                return Reclaimed.APPENDED
            else:
                self.lacks_room = True
        return Reclaimed.NOTHING
