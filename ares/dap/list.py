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


def _descending(entry: tuple[Tag, Element]) -> tuple[int, int]:
    return (-entry[0].number, -entry[0].writer)


class Versions:
    """(tag, element) pairs, newest first, at most ``capacity``."""

    __slots__ = ("entries", "trimmed")

    def __init__(self) -> None:
        self.entries: list[tuple[Tag, Element]] = []
        self.trimmed = TAG_ZERO

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
        return (entries[0][0],) if len(entries) == 1 else tuple([tag for tag, _ in entries])

    def element(self, tag: Tag) -> Element | None:
        for held, element in self.entries:
            if held == tag:
                return element
        return None

    def put(self, tag: Tag, element: Element, capacity: int) -> int:
        """put-data (Alg. 4:16-25): insert, drop what is beyond ``capacity``; returns by how many bytes the stored data grew."""
        entries = self.entries
        if not entries or tag > entries[0][0]:
            entries.insert(0, (tag, element))
        elif self.element(tag) is not None:
            return 0
        else:
            entries.insert(bisect_left(entries, (-tag.number, -tag.writer), key=_descending), (tag, element))
        if len(entries) <= capacity:
            return element.size
        dropped, lost = entries.pop()
        if dropped > self.trimmed:
            self.trimmed = dropped
        return element.size - lost.size


def capacity(configuration: Configuration) -> int:
    """How many versions of an object a server keeps: one (ABD), or delta + 1 (EC)."""
    return configuration.delta + 1
