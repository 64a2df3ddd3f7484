"""Copies of elements for configurations which are not decided yet (rule R24).

A mover copies ahead: it brings elements to the servers of the configuration that it will propose.
A server holds these copies beside its state, under the id of that configuration. No reply about an
object shows a copy, no listing counts it, and no fact of it is journaled. After the decision the
mover names the versions that it found in the old configuration, and the server makes a copy of
exactly such a version its own (:meth:`ares.replica.replica.Replica.adopt`).

A lost copy costs time only: the mover moves the object as if there had been no copy. Copies are
therefore kept in memory, bounded in bytes, and dropped early: after AHEAD_HELD_S without a request
about their configuration, when another configuration takes the place, and when theirs, or a later
one, is finalized. Without room they give way to copies for another configuration after
AHEAD_IDLE_S: a live mover keeps its room, and a dead mover does not hold up the others.

The server tells for how long it has had copies for a configuration. Movers that take turns thereby
share the time of the phase.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

from ares.model.configuration import Configuration
from ares.model.element import Element, is_in_crumbs
from ares.model.identity import (
    CONFIGURATION_ID_BYTES,
    ConfigurationId,
    DomainName,
    ObjectName,
    is_object_name,
)
from ares.model.messages import PutAhead
from ares.model.tag import Tag
from ares.replica.facts import CHARACTER_BYTES_MAX

AHEAD_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of all copies at a server."""

AHEAD_ENTRY_BYTES = 512
"""Bytes counted for a copy beside its data and name: the memory of its entry and parts."""

AHEAD_CONFIGURATIONS_MAX = 16
"""Configurations with copies at a server."""

AHEAD_HELD_S = 120.0
"""Seconds from the last request about a configuration until its copies are dropped."""

AHEAD_IDLE_S = 5.0
"""Seconds from the last request about a configuration until its copies give way to others."""


class _Copies(Struct, eq=False):
    """The copies for a configuration at a place.

    ``began_at``, ``asked_at``: the times of the first copy, and of the last request about them.
    """

    domain: DomainName
    index: int
    began_at: float
    asked_at: float
    elements: dict[ObjectName, tuple[Tag, Element, int]] = {}
    """Tag, element and counted bytes of the copy of each object."""
    bytes: int = 0


class AheadCopies:
    """The copies at a server.

    ``clock``: seconds. Its steps make a server forget copies, or movers end their copies early.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._of: dict[ConfigurationId, _Copies] = {}

    @property
    def bytes(self) -> int:
        """Return the bytes counted for all copies."""
        return sum(copies.bytes for copies in self._of.values())

    def hold(self, put: PutAhead) -> bool:
        """Hold a copy, in place of a copy of a lower version; return False without room.

        A late copy of a lower version is of no use, and counts as held. An element is verified when
        it is adopted. Only its memory counts here.
        """
        element = put.element
        if (
            len(put.configuration) != CONFIGURATION_ID_BYTES
            or not is_object_name(put.object)
            or is_in_crumbs(element)
        ):
            return False
        self.expire()
        copies = self._of.get(put.configuration)
        if copies is not None and (copies.domain, copies.index) != (put.domain, put.index):
            return False
        size = _bytes_of(put.object, element)
        before = None if copies is None else copies.elements.get(put.object)
        if before is not None and before[0] > put.tag:
            return True
        more = size - (0 if before is None else before[2])
        if not self._make_room(put.configuration, more):
            return False
        now = self._clock()
        if copies is None:
            copies = self._of[put.configuration] = _Copies(put.domain, put.index, now, now)
        copies.elements[put.object] = (put.tag, element, size)
        copies.bytes += more
        copies.asked_at = now
        return True

    def _make_room(self, id: ConfigurationId, more: int) -> bool:
        """Return whether ``more`` bytes have room; copies for idle configurations give way."""
        now = self._clock()
        others = AHEAD_CONFIGURATIONS_MAX - (id not in self._of)
        while len(self._of) > others or self.bytes + more > AHEAD_BYTES_MAX:
            idle = [
                other
                for other, copies in self._of.items()
                if other != id and abs(now - copies.asked_at) >= AHEAD_IDLE_S
            ]
            if not idle:
                return False
            del self._of[min(idle, key=lambda other: self._of[other].asked_at)]
        return True

    def copying_s(self, id: ConfigurationId) -> float:
        """Return the seconds since the first copy for a configuration; 0 without copies."""
        copies = self._of.get(id)
        return 0.0 if copies is None else max(0.0, self._clock() - copies.began_at)

    def take(self, id: ConfigurationId, object: ObjectName, tag: Tag) -> Element | None:
        """Return and drop the copy of exactly this version, or return None."""
        copies = self._of.get(id)
        held = None if copies is None else copies.elements.get(object)
        if copies is None or held is None or held[0] != tag:
            return None
        del copies.elements[object]
        copies.bytes -= held[2]
        return held[1]

    def drop_names(self, domain: DomainName, names: Iterable[ObjectName]) -> None:
        """Drop the copies of these objects for all configurations of ``domain``."""
        for copies in self._of.values():
            if copies.domain == domain:
                for name in names:
                    held = copies.elements.pop(name, None)
                    copies.bytes -= 0 if held is None else held[2]

    def touch(self, id: ConfigurationId) -> None:
        """Take note of a request about a configuration."""
        copies = self._of.get(id)
        if copies is not None:
            copies.asked_at = self._clock()

    def keep_only(self, configuration: Configuration) -> None:
        """Drop the copies for other configurations at the place of ``configuration``."""
        place = configuration.domain, configuration.index
        self._drop(
            lambda id, copies: (copies.domain, copies.index) == place and id != configuration.id
        )

    def drop_until(self, final: Configuration) -> None:
        """Drop the copies of the domain up to the place of ``final``, which is finalized."""
        self._drop(lambda _, copies: copies.domain == final.domain and copies.index <= final.index)

    def expire(self) -> None:
        """Drop the copies of configurations without a request for AHEAD_HELD_S."""
        now = self._clock()
        self._drop(lambda _, copies: abs(now - copies.asked_at) > AHEAD_HELD_S)

    def _drop(self, unwanted: Callable[[ConfigurationId, _Copies], bool]) -> None:
        for id in [id for id, copies in self._of.items() if unwanted(id, copies)]:
            del self._of[id]


def _bytes_of(object: ObjectName, element: Element) -> int:
    return element.size + CHARACTER_BYTES_MAX * len(object) + AHEAD_ENTRY_BYTES
