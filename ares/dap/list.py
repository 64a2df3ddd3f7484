"""The server half of both DAPs: the versions of one object at one server (Alg. 4, "List").

ABD keeps one version, EC delta + 1, and beyond that drops the lowest tags; otherwise they are the same. (t0, v0) is in every List without
being stored.

``trimmed`` goes beyond the paper. As published, a List forgets *that* it dropped a tag. With more than delta writers at once a reader can
then find an older tag at k servers while the newest completed one was dropped by some, and return it: a read that goes back. A server
therefore says the highest tag it ever dropped, and ares/dap/decidable.py returns nothing that a dropped tag might supersede.
"""

from bisect import bisect_left

from ares.model.configuration import Configuration
from ares.model.messages import DELETED, Element
from ares.model.tag import TAG_ZERO, Tag

Entry = tuple[Tag, Element, int]
"""A version that a server has: its tag, the element, and the place in the server's journal that tells it (0 where there is no journal).

The compiled core keeps small ones in a form of its own (core/src/table.rs), which is read as the tuple: each look makes new objects."""


def _descending(entry: Entry) -> tuple[int, int]:
    return (-entry[0].number, -entry[0].writer)


class Versions:
    """The entries, newest first, at most ``capacity``. ``trimmed_place``: the place in the server's journal that tells ``trimmed``."""

    __slots__ = ("entries", "trimmed", "trimmed_place")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.trimmed = TAG_ZERO
        self.trimmed_place = 0

    @property
    def newest(self) -> Tag:
        return self.entries[0][0] if self.entries else TAG_ZERO

    @property
    def deleted(self) -> bool:
        """Whether the newest version is a tombstone (a never written object counts as deleted)."""
        return not self.entries or self.entries[0][1].length == DELETED

    def tags(self) -> tuple[Tag, ...]:
        """Newest first, without t0."""
        entries = self.entries
        return (entries[0][0],) if len(entries) == 1 else tuple([entry[0] for entry in entries])

    def position(self, tag: Tag) -> int | None:
        """Where ``tag`` is among the entries."""
        for position, entry in enumerate(self.entries):
            if entry[0] == tag:
                return position
        return None

    def element(self, tag: Tag) -> Element | None:
        position = self.position(tag)
        return None if position is None else self.entries[position][1]

    def put(self, tag: Tag, element: Element, capacity: int, place: int = 0) -> Entry | None:
        """put-data (Alg. 4:16-25): insert, and drop what is beyond ``capacity``.

        Returns the entry that is not kept: none, an older one, or this one, whose tag is then the very object that was given.
        """
        entries, entry = self.entries, (tag, element, place)
        if not entries or tag > entries[0][0]:
            entries.insert(0, entry)
        elif self.position(tag) is not None:
            return entry
        else:
            entries.insert(bisect_left(entries, (-tag.number, -tag.writer), key=_descending), entry)
        if len(entries) <= capacity:
            return None
        lost = entries.pop()
        if lost[0] > self.trimmed:
            self.trimmed = lost[0]
        return lost


def capacity(configuration: Configuration) -> int:
    """How many versions of an object a server keeps: one (ABD), or delta + 1 (EC)."""
    return configuration.delta + 1
