"""The Lists of a configuration in Python, the reference of the port (ares/replica/port.py)."""

from collections.abc import Sequence
from itertools import islice
from typing import cast

from sortedcontainers import SortedDict

from ares.dap.version_list import Entry, VersionList
from ares.model.identity import KEY_BYTES_MAX, ObjectName, is_object_name
from ares.model.messages import Element, ListedObject
from ares.model.tag import TAG_ZERO, Tag
from ares.replica.facts import ConfigurationUsage, put_bytes, trimmed_bytes
from ares.replica.port import PAGE_CHARACTERS_MAX, PutEffect

NAME_CHARACTERS_SURE = KEY_BYTES_MAX // 4
"""Length up to which a name needs no check: a character takes at most four bytes."""


class PythonObjectTable:
    """The Lists in a dictionary; only this class and the compiled core change them.

    Without a journal, ``usage`` is None, and places are not recorded.
    """

    def __init__(self, capacity: int, usage: ConfigurationUsage | None = None) -> None:
        self.usage = usage
        self.elements = 0
        self.bytes = 0
        self.lists: SortedDict[ObjectName, VersionList] = SortedDict()
        self.following: set[ObjectName] = set()
        """Objects with a put after nextC."""
        self._capacity = capacity
        self._dropped: list[SortedDict[ObjectName, VersionList] | set[ObjectName]] = []

    def __len__(self) -> int:
        return len(self.lists)

    # -- reading -----------------------------------------------------------------------------------

    def get(self, object: ObjectName) -> VersionList | None:
        return self.lists.get(object)

    def newest(self, object: ObjectName) -> Tag | None:
        versions = self.lists.get(object)
        return None if versions is None else versions.newest

    def version(self, object: ObjectName, tag: Tag) -> Entry | None:
        versions = self.lists.get(object)
        position = None if versions is None else versions.position(tag)
        return None if versions is None or position is None else versions.entries[position]

    def trimmed(self, object: ObjectName) -> tuple[Tag, int] | None:
        versions = self.lists.get(object)
        return None if versions is None else (versions.trimmed, versions.trimmed_place)

    def is_below(self, object: ObjectName, tag: Tag) -> bool:
        versions = self.lists.get(object)
        return (
            versions is not None
            and len(versions.entries) == self._capacity
            and tag < versions.entries[-1][0]
        )

    def follows(self, object: ObjectName) -> bool:
        return object in self.following

    def names(self, after: ObjectName | None, limit: int) -> Sequence[ObjectName]:
        return list(islice(self.lists.irange(after, inclusive=(False, True)), limit))

    def at_place(
        self, place: int, after: ObjectName | None, limit: int
    ) -> tuple[Sequence[ObjectName], ObjectName | None]:
        names = self.names(after, limit)
        found = [name for name in names if self.lists[name].is_at(place)]
        return found, names[-1] if names else None

    def page(self, after: str, prefix: str, limit: int) -> tuple[tuple[ListedObject, ...], bool]:
        first = ObjectName(max(after, prefix))
        page: list[ListedObject] = []
        characters = 0
        for name in self.lists.irange(first, inclusive=(first != after, True)):
            if not name.startswith(prefix):
                break
            if not 0 < len(name) <= NAME_CHARACTERS_SURE and not is_object_name(name):
                continue
            characters += len(name)
            if len(page) == limit or characters > PAGE_CHARACTERS_MAX:
                return tuple(page), True
            versions = self.lists[name]
            page.append(ListedObject(name, versions.newest, versions.deleted))
        return tuple(page), False

    # -- changes -----------------------------------------------------------------------------------

    def put(
        self,
        object: ObjectName,
        tag: Tag,
        element: Element,
        place: int = 0,
        follows: bool = False,
    ) -> PutEffect:
        if follows:
            self.following.add(object)
        versions = self._list(object)
        trimmed, usage = versions.trimmed, self.usage
        lost = versions.put(tag, element, self._capacity, place)
        if lost is not None and lost[0] is tag:
            if versions.trimmed == trimmed:
                return PutEffect.NONE
            self._record_trimmed(object, versions, place, trimmed)
            return PutEffect.TRIMMED
        size = element.size
        if lost is None:
            self.elements += 1
            self.bytes += size
            if usage is not None:
                usage.add(place, put_bytes(object, size))
            return PutEffect.STORED
        lost_size = lost[1].size
        self.bytes += size - lost_size
        if usage is not None:
            usage.exchange(lost[2], put_bytes(object, lost_size), place, put_bytes(object, size))
            if versions.trimmed != trimmed:
                self._record_trimmed(object, versions, lost[2], trimmed)
        return PutEffect.STORED

    def trim(self, object: ObjectName, tag: Tag, place: int) -> None:
        versions = self._list(object)
        before = versions.trimmed
        if tag >= before:
            versions.trimmed = tag
            self._record_trimmed(object, versions, place, before)

    def move(self, object: ObjectName, tag: Tag, element: Element, place: int) -> None:
        versions = self.lists.get(object)
        position = None if versions is None else versions.position(tag)
        if versions is None or position is None:
            return
        _, old, old_place = versions.entries[position]
        if self.usage is not None:
            self.usage.exchange(
                old_place, put_bytes(object, old.size), place, put_bytes(object, element.size)
            )
        versions.entries[position] = (tag, element, place)
        self.bytes += element.size - old.size

    def move_trimmed(self, object: ObjectName, place: int) -> None:
        versions = self.lists.get(object)
        if versions is not None:
            self._record_trimmed(object, versions, place, versions.trimmed)

    def replace(self, object: ObjectName, tag: Tag, element: Element) -> None:
        versions = self.lists.get(object)
        position = None if versions is None else versions.position(tag)
        if versions is not None and position is not None:
            _, old, place = versions.entries[position]
            versions.entries[position] = (tag, element, place)
            self.bytes += element.size - old.size

    def forget(self, object: ObjectName) -> Sequence[int]:
        self.following.discard(object)
        versions = self.lists.pop(object, None)
        if versions is None:
            return ()
        places = [entry[2] for entry in versions.entries]
        for _, element, place in versions.entries:
            size = element.size
            self.elements -= 1
            self.bytes -= size
            if self.usage is not None:
                self.usage.add(place, -put_bytes(object, size))
        if versions.trimmed != TAG_ZERO:
            places.append(versions.trimmed_place)
            if self.usage is not None:
                self.usage.add(versions.trimmed_place, -trimmed_bytes(object))
        return places

    def clear(self) -> None:
        self.elements = self.bytes = 0
        self._dropped += [self.lists, self.following]
        self.lists = SortedDict()
        self.following = set()

    def release(self, limit: int) -> bool:
        while self._dropped:
            dropped = self._dropped[-1]
            take = dropped.pop if isinstance(dropped, set) else dropped.popitem
            for _ in range(min(limit, len(dropped))):
                take()
                limit -= 1
            if dropped:
                return True
            self._dropped.pop()
        return False

    def _list(self, object: ObjectName) -> VersionList:
        versions = self.lists.get(object)
        if versions is None:
            versions = self.lists[object] = VersionList()
        return versions

    def _record_trimmed(
        self, object: ObjectName, versions: VersionList, place: int, before: Tag
    ) -> None:
        """Record ``place`` as the journal's place of the highest dropped tag.

        Until now the journal held ``before``.
        """
        if self.usage is None:
            return
        bytes = trimmed_bytes(object)
        if before != TAG_ZERO:
            self.usage.exchange(versions.trimmed_place, bytes, place, bytes)
        else:
            self.usage.add(place, bytes)
        versions.trimmed_place = place

    # -- a start -----------------------------------------------------------------------------------

    def begin_loading(self) -> None:
        self.lists = cast("SortedDict[ObjectName, VersionList]", dict(self.lists))

    def end_loading(self) -> None:
        self.lists = SortedDict(self.lists)
