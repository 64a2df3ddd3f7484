"""The return of space, and the leaving of damaged places: a slice between two commits.

ares/replica/compaction.py decides which facts to keep.

A place is *damaged* when the file differs in any byte from the written content: the live facts are
journaled again, from memory, and the place is given up. In this way a store heals before a restart
would have to refuse the store. A fact with damage in memory, too, is journaled hollow, and waits
for a repair from other servers (ares/server/scrub.py).

All facts of a damaged place may be alive, and the spare holds only the live facts of a place worth
giving back. Until a damaged place is worth the work, a copy takes room which clients' data might
take. A place waiting for room blocks no second place: giving back places makes room.
"""

import enum
import logging
from collections.abc import Container

from ares.model.errors import StoreDamaged
from ares.replica.compaction import (
    USUAL_COMPACTION,
    Compaction,
    CompactionLimits,
    choose,
    is_worth_it,
)
from ares.replica.facts import fact_bytes_max
from ares.replica.replica import Replica
from ares.store.port import Journal, Key, Use

log = logging.getLogger(__name__)


class ReclaimStep(enum.Enum):
    """The result of a step.

    NOTHING: no work. LOOKED: the step looked, and more is left to look at. APPENDED: facts must be
    committed before the next step.
    """

    NOTHING = enum.auto()
    LOOKED = enum.auto()
    APPENDED = enum.auto()


class SpaceReclaimer:
    """The reclaiming of space in ``journal``, the source of ``replica``'s facts.

    ``lacks_room``: a place could not be given back because the disk is full. Set whenever a step
    did no work while damaged places are left.
    """

    def __init__(
        self, replica: Replica, journal: Journal, limits: CompactionLimits = USUAL_COMPACTION
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
        """Return the number of damaged places not yet left."""
        return len(self._damaged)

    def leave(self, place: int, readable: Container[Key] | None = None) -> None:
        """Note that ``place`` is damaged. ``readable``: see ares.store.port.ExaminationResult."""
        if place not in self._damaged:
            log.error(
                "place %d of the store is damaged; its live records are journaled again from "
                "memory",
                place,
            )
        if self._damaged.get(place) is None:
            self._damaged[place] = readable
        if self._compaction is not None and self._compaction.place == place:
            self._compaction = None
        if self._waiting is not None and self._waiting.place == place:
            self._waiting = None

    def look_again(self) -> None:
        """Look for places to give back at the next step, even if few facts died since."""
        self._looked_at_died = self._replica.account.died - self._limits.look_bytes

    def step(self) -> ReclaimStep:
        """Do a slice of work, if a place is to be given back.

        Call this method while no commit is under way: every earlier slice must be durable. Raises
        OSError.
        """
        if self._compaction is None and not self._damaged and not self._may_be_worth_it:
            self.lacks_room = False
            return ReclaimStep.NOTHING
        compaction = self._compaction or self._chosen()
        if compaction is None:
            return self._sealed()
        self._compaction = compaction
        try:
            room = compaction.look()
        except StoreDamaged as error:
            log.error("a place of the store differs from the written data: %s", error)
            self.leave(compaction.place)
            return ReclaimStep.LOOKED
        if room:
            return self._copy(compaction, room)
        if not compaction.ended:
            return ReclaimStep.LOOKED
        self._journal.discard(compaction.place)
        self._replica.give_back(compaction.place)
        self._damaged.pop(compaction.place, None)
        self._compaction = None
        self.lacks_room = self.lacks_room and bool(self._damaged)
        self.look_again()
        return ReclaimStep.APPENDED

    def _copy(self, compaction: Compaction, room: int) -> ReclaimStep:
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
        return ReclaimStep.APPENDED

    def _wait(self, compaction: Compaction) -> ReclaimStep:
        """Wait for room for the next slice: the disk is full.

        If the place is damaged, look once for an undamaged place, and not again until the disk had
        room.
        """
        lacked_room, self.lacks_room = self.lacks_room, True
        if compaction.place not in self._damaged:
            return ReclaimStep.NOTHING
        self._compaction, self._waiting = None, compaction
        if lacked_room:
            return ReclaimStep.NOTHING
        self.look_again()
        return ReclaimStep.LOOKED

    def _chosen(self) -> Compaction | None:
        """Return the work on the next place to give back.

        A damaged place closed for appends comes first, followed by a place worth the work; in the
        opposite order while the disk is full.
        """
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
        """Return whether enough facts died since the last look to look again."""
        return self._replica.account.died - self._looked_at_died >= self._limits.look_bytes

    def _sealed(self) -> ReclaimStep:
        """Close damaged places for appends."""
        self.lacks_room = False
        for place in list(self._damaged):
            if place not in self._journal.durable():
                del self._damaged[place]  # the place was given back since
            elif self._journal.seal(place):
                return ReclaimStep.APPENDED
            else:
                self.lacks_room = True
        return ReclaimStep.NOTHING
