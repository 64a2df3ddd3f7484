"""A hosting that knows where in the journal each of its facts is (ares/replica/places.py)."""

from collections.abc import Container, Iterator
from typing import cast

from sortedcontainers import SortedDict

from ares.dap.list import Versions
from ares.model.codec import DETACHED_BYTES_MIN
from ares.model.configuration import Configuration
from ares.model.element import hollow, intact, is_hollow
from ares.model.identity import ObjectName
from ares.model.messages import LEFT, Element, PutData
from ares.model.tag import TAG_ZERO, Tag
from ares.replica.facts import Pointed, Trimmed, pointed_bytes, put_bytes
from ares.replica.hosting import Clock, Hosting, no_clock
from ares.replica.places import NO_CALL, Key, Ledger, PlacedVersions, Share


class PlacedHosting(Hosting):
    """A hosting whose facts have places. ``pointed_place``: where :meth:`pointed` is told; None when it is nowhere yet."""

    verifies = True

    def __init__(self, configuration: Configuration, position: int, ledger: Ledger, clock: Clock = no_clock) -> None:
        super().__init__(configuration, position, clock)
        self.pointed_place: int | None = None
        self._pointed_bytes = 0
        self._share = Share(ledger)

    def pointed(self) -> Pointed:
        return Pointed(self.configuration, self.successor, self.collected)

    def point_from(self, place: int) -> None:
        """What the journal tells of this configuration is at ``place`` from now on."""
        if self.pointed_place is not None:
            self._share.add(self.pointed_place, -self._pointed_bytes)
        self.pointed_place, self._pointed_bytes = place, pointed_bytes(self.configuration, self.successor)
        self._share.add(place, self._pointed_bytes)

    def placed(self, object: ObjectName) -> PlacedVersions | None:
        """The versions held of ``object``."""
        return cast(PlacedVersions | None, self._objects.get(object))

    def knows(self, object: ObjectName, tag: Tag) -> bool:
        """Whether a put of ``tag`` would change nothing."""
        versions = self._objects.get(object)
        if versions is None or not versions.entries or tag > versions.entries[0][0]:
            return self.collected
        return self.collected or cast(PlacedVersions, versions).knows(tag, self._capacity)

    def trim(self, object: ObjectName, tag: Tag) -> None:
        """Join the fact, at the present place, that ``tag`` was dropped."""
        if not self.collected:
            versions = self.placed(object)
            if versions is None:
                versions = self._objects[object] = self._versions(object)
            versions.trim(tag)

    def move(self, fact: PutData | Trimmed, place: int) -> None:
        """``fact`` is at ``place`` from now on."""
        versions = self.placed(fact.object)
        if versions is not None and isinstance(fact, PutData):
            self.bytes += versions.move(fact.tag, fact.element, place)
            self._note(fact)
        elif versions is not None:
            versions.move_trimmed(place)

    def restore(self, fact: PutData, place: int) -> None:
        """Join an element that the journal has at ``place``. Of several of one version the last counts: either the one before was copied when it was
        seen to be intact, or it had rotted, and this says so or repairs it."""
        if fact.object not in self._objects and not self.collected and fact.tag != TAG_ZERO:
            self._restore_first(fact, place)
            return
        versions = self.placed(fact.object)
        if versions is not None and versions.position(fact.tag) is not None:
            self.move(fact, place)
        else:
            self.keep(fact.object, fact.tag, fact.element)
            self._note(fact)

    def _restore_first(self, fact: PutData, place: int) -> None:
        """What :meth:`keep` would do, in half the time: a restart does it for nearly every fact."""
        object, element = fact.object, fact.element
        bytes, characters = element.size, len(object)
        versions = self._objects[object] = PlacedVersions(self._share, characters)
        versions.entries.append((fact.tag, element))
        versions.places.append(place)
        self.bytes += bytes
        self.elements += 1
        self._share.add(place, put_bytes(characters, bytes))
        if not bytes:
            self._note(fact)
            if element.length == LEFT:
                self._left[object] = None

    def begin_restoring(self) -> None:
        """Keep names in no order until :meth:`restored`: a million are put in order at once much faster than one by one."""
        self._objects = cast("SortedDict[ObjectName, Versions]", dict(self._objects))

    def restored(self) -> None:
        """Every fact was given: serve from now on. Facts come in any order, so nobody knows what was here before nextC."""
        self._order_known = self.successor is None
        self._objects = SortedDict(self._objects)

    def held_at(self, place: int, readable: Container[Key] | None) -> Iterator[PutData | Trimmed | None]:
        """What is held of the facts at ``place``, from memory; see :meth:`ares.replica.state.Outlasting.held_at`."""
        id = self.configuration.id
        for object in list(self._objects):
            yield None
            versions = self.placed(object)
            if versions is None:
                continue
            if versions.trimmed_place == place and versions.trimmed != TAG_ZERO:
                yield Trimmed(id, object, versions.trimmed)
            for (tag, element), its_place in zip(list(versions.entries), list(versions.places), strict=True):
                if its_place == place:
                    is_mapped = element.size >= DETACHED_BYTES_MIN
                    lost = readable is not None and is_mapped and (id, object, tag) not in readable
                    yield PutData(NO_CALL, id, object, tag, hollow(element) if lost else element)

    def is_sound(self, object: ObjectName, tag: Tag, element: Element) -> bool:
        """What is mapped may have rotted since, and is looked at every time. A small element is in memory, since it was written or found intact."""
        if element.size < DETACHED_BYTES_MIN:
            return not is_hollow(element)
        self._share.ledger.verified_bytes += element.size
        sound = intact(self.configuration.id, object, tag, element)
        if not sound:
            self._found_damaged(object, tag)
        return sound

    def _found_damaged(self, object: ObjectName, tag: Tag) -> None:
        versions = self.placed(object)
        position = versions.position(tag) if versions is not None else None
        if versions is None or position is None or is_hollow(versions.entries[position][1]):
            return
        place = versions.places[position]
        self.move(PutData(NO_CALL, self.configuration.id, object, tag, hollow(versions.entries[position][1])), place)
        self._share.ledger.suspects[place] = None

    def _note(self, put: PutData) -> None:
        if is_hollow(put.element):
            self._share.ledger.hollows[put.configuration, put.object, put.tag] = None

    def let_go(self) -> None:
        super().let_go()
        self._share.clear()
        if self.pointed_place is not None:
            self._share.add(self.pointed_place, self._pointed_bytes)

    def _versions(self, object: ObjectName) -> PlacedVersions:
        return PlacedVersions(self._share, len(object))
