"""Where the facts of a replica are in its journal, so that what is no longer needed can be given back.

A *place* is a number that the journal chose (its segment). The ledger counts the bytes at each place that are still needed: about, which is all that
choosing what to compact takes; what is really needed is asked of the versions themselves.

An element that rotted is *hollow* (ares/model/element.py): its tag stays in the List, where it counts, its data is missing. It is quarantined until
somebody puts the same version again.
"""

from ares.dap.list import Versions
from ares.model.element import is_hollow
from ares.model.identity import CallId, ConfigurationId, ObjectName
from ares.model.messages import Element
from ares.model.tag import TAG_ZERO, Tag
from ares.replica.facts import put_bytes, trimmed_bytes

NO_CALL = CallId(0)
"""Of a put that nobody asked for: a fact that is journaled again."""

Key = tuple[ConfigurationId, ObjectName, Tag]
"""Names a version's element at this server."""


class Ledger:
    """``live``: bytes still needed, by place; ``died``: bytes no longer needed, ever. ``place``: where facts go now.

    ``stored``, ``passed``: the last put was kept, or only raised ``trimmed``. ``hollows``: every element that is held hollow, and some that were;
    ``repaired``: how many were put again. ``suspects``: places whose elements were found damaged by looking at them; ``verified_bytes``: what
    was looked at for it.
    """

    def __init__(self) -> None:
        self.live: dict[int, int] = {}
        self.died = 0
        self.place = 0
        self.stored = self.passed = False
        self.hollows: dict[Key, None] = {}
        self.repaired = 0
        self.suspects: dict[int, None] = {}
        self.verified_bytes = 0


class Share:
    """One configuration's part of the ledger: collecting it costs a step for each place and not for each object."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._live: dict[int, int] = {}

    def add(self, place: int, bytes: int) -> None:
        """More at a place; less when ``bytes`` is negative."""
        self._live[place] = self._live.get(place, 0) + bytes
        live = self.ledger.live
        live[place] = live.get(place, 0) + bytes
        if bytes < 0:
            self.ledger.died -= bytes

    def exchange(self, old_place: int, old_bytes: int, place: int, bytes: int) -> None:
        """What took ``old_bytes`` at ``old_place`` is no longer needed, and something at ``place`` is: mostly the same one."""
        if place != old_place:
            self.add(place, bytes)
            self.add(old_place, -old_bytes)
            return
        if bytes != old_bytes:
            self._live[place] += bytes - old_bytes
            self.ledger.live[place] += bytes - old_bytes
        self.ledger.died += old_bytes

    def clear(self) -> None:
        for place, bytes in self._live.items():
            self.ledger.live[place] -= bytes
            self.ledger.died += bytes
        self._live.clear()


class PlacedVersions(Versions):
    """Versions that know their places. ``trimmed_place``: where the fact is that tells ``trimmed``."""

    __slots__ = ("_name_characters", "_share", "places", "trimmed_place")

    def __init__(self, share: Share, name_characters: int) -> None:
        super().__init__()
        self.places: list[int] = []
        self.trimmed_place = 0
        self._share = share
        self._name_characters = name_characters

    def put(self, tag: Tag, element: Element, capacity: int) -> int:
        entries = self.entries
        if not entries or tag > entries[0][0]:
            return self._put_newest(tag, element, capacity)
        ledger = self._share.ledger
        held = self.position(tag)
        if held is None:
            return self._put_between(tag, element, capacity)
        if not is_hollow(entries[held][1]):
            return 0
        ledger.stored = True
        ledger.repaired += 1
        return self.move(tag, element, ledger.place)

    def _put_newest(self, tag: Tag, element: Element, capacity: int) -> int:
        """What nearly every put is, in the same words as the others and in half the time."""
        entries, places, share, characters = self.entries, self.places, self._share, self._name_characters
        ledger = share.ledger
        place, size = ledger.place, element.size
        ledger.stored = True
        entries.insert(0, (tag, element))
        places.insert(0, place)
        if len(entries) <= capacity:
            share.add(place, put_bytes(characters, size))
            return size
        dropped, lost = entries.pop()
        lost_place, lost_size, before = places.pop(), lost.size, self.trimmed
        share.exchange(lost_place, put_bytes(characters, lost_size), place, put_bytes(characters, size))
        if dropped > before:
            self.trimmed = dropped
            self._trimmed_at(lost_place, before)
        return size - lost_size

    def _put_between(self, tag: Tag, element: Element, capacity: int) -> int:
        entries, share, ledger = self.entries, self._share, self._share.ledger
        trimmed, last = self.trimmed, entries[-1] if len(entries) == capacity else None
        grown = super().put(tag, element, capacity)
        at = self.position(tag)
        if at is None:
            ledger.passed = self._trimmed_at(ledger.place, trimmed)
            return grown
        ledger.stored = True
        self.places.insert(at, ledger.place)
        share.add(ledger.place, self._bytes(element))
        if last is not None:
            place = self.places.pop()
            share.add(place, -self._bytes(last[1]))
            self._trimmed_at(place, trimmed)
        return grown

    def trim(self, tag: Tag) -> None:
        """Join the fact, at the present place, that ``tag`` was dropped. Told at several places, the last counts: the others may be about to go."""
        before = self.trimmed
        if tag >= before:
            self.trimmed = tag
            self._trimmed_at(self._share.ledger.place, before, moved=True)

    def position(self, tag: Tag) -> int | None:
        """Where ``tag`` is among the entries."""
        for position, (held, _) in enumerate(self.entries):
            if held == tag:
                return position
        return None

    def knows(self, tag: Tag, capacity: int) -> bool:
        """Whether a put of ``tag`` would change nothing: it is held with its data, or was dropped and would be again."""
        held = self.position(tag)
        if held is not None:
            return not is_hollow(self.entries[held][1])
        return tag <= self.trimmed and len(self.entries) == capacity and tag < self.entries[-1][0]

    def replace(self, tag: Tag, element: Element) -> None:
        """The same element, kept elsewhere in memory."""
        position = self.position(tag)
        if position is not None:
            self.entries[position] = (tag, element)

    def move(self, tag: Tag, element: Element, place: int) -> int:
        """The journal has the element of ``tag`` at ``place`` from now on, as ``element``; returns by how many bytes the data grew."""
        position = self.position(tag)
        if position is None:
            return 0
        old = self.entries[position][1]
        self._share.exchange(self.places[position], self._bytes(old), place, self._bytes(element))
        self.places[position] = place
        self.entries[position] = (tag, element)
        return element.size - old.size

    def move_trimmed(self, place: int) -> None:
        """The journal tells ``trimmed`` at ``place`` from now on."""
        self._trimmed_at(place, self.trimmed, moved=True)

    def _trimmed_at(self, place: int, before: Tag, moved: bool = False) -> bool:
        if self.trimmed == before and not moved:
            return False
        bytes = trimmed_bytes(self._name_characters)
        if before != TAG_ZERO:
            self._share.exchange(self.trimmed_place, bytes, place, bytes)
        else:
            self._share.add(place, bytes)
        self.trimmed_place = place
        return True

    def _bytes(self, element: Element) -> int:
        return put_bytes(self._name_characters, element.size)
