"""Copies of elements for configurations which are not decided yet (rule R24).

A mover copies ahead: it brings elements to the servers of the configuration that it will propose.
A server holds these copies beside its state, under the id of that configuration. No reply about an
object shows a copy, no listing counts it, and no fact of it is journaled. After the decision the
mover names the versions that it found in the old configuration, and the server makes a copy of
exactly such a version its own (:meth:`ares.replica.replica.Replica.adopt`).

A lost copy costs time only: the mover moves the object as if there had been no copy. Copies are
therefore kept in memory, bounded in bytes, and dropped early: after AHEAD_HELD_S without a request
about their configuration, when another configuration takes the place, and when theirs, or a later
one, is finalized.
"""

from collections.abc import Callable

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
"""Configurations with copies at a server; one more takes the place of the longest unasked one."""

AHEAD_HELD_S = 120.0
"""Seconds from the last request about a configuration until its copies are dropped."""


class _Copies(Struct, eq=False):
    """The copies for a configuration at a place, and the time of the last request about them."""

    domain: DomainName
    index: int
    asked_at: float
    elements: dict[ObjectName, tuple[Tag, Element, int]] = {}
    """Tag, element and counted bytes of the copy of each object."""
    bytes: int = 0


class AheadCopies:
    """The copies at a server. ``clock``: seconds; its steps make a server forget, and only that."""

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
        if self.bytes + more > AHEAD_BYTES_MAX:
            return False
        if copies is None:
            if len(self._of) >= AHEAD_CONFIGURATIONS_MAX:
                del self._of[min(self._of, key=lambda id: self._of[id].asked_at)]
            copies = self._of[put.configuration] = _Copies(put.domain, put.index, 0.0)
        copies.elements[put.object] = (put.tag, element, size)
        copies.bytes += more
        copies.asked_at = self._clock()
        return True

    def take(self, id: ConfigurationId, object: ObjectName, tag: Tag) -> Element | None:
        """Return and drop the copy of exactly this version, or return None."""
        copies = self._of.get(id)
        held = None if copies is None else copies.elements.get(object)
        if copies is None or held is None or held[0] != tag:
            return None
        del copies.elements[object]
        copies.bytes -= held[2]
        return held[1]

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
