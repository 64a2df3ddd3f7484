"""The server half of both DAPs: the versions of an object at a server (Alg. 4, "List").

ABD keeps 1 version, EC delta + 1 versions; beyond that the lowest tags are dropped. Otherwise the
two are the same. (t0, v0) is in every List without being stored.

``trimmed`` goes beyond the paper. As published, a List forgets *that* it dropped a tag. With more
than delta writers at once a reader can find an older tag at k servers while the newest completed
tag was dropped by some servers, and return the older version: a read that goes back. A server
therefore reports the highest tag it ever dropped, and ares/dap/decidable.py returns no version
which a dropped tag might supersede.
"""

from bisect import bisect_left

from ares.model.configuration import Configuration
from ares.model.messages import DELETED_LENGTH, Element
from ares.model.tag import TAG_ZERO, Tag

Entry = tuple[Tag, Element, int]
"""A version at a server: its tag, its element, and the place of its record in the server's journal.

The place is 0 where the server has no journal. The compiled core's table (core/src/table.rs) makes
these tuples whenever a List is read.
"""


def _descending(entry: Entry) -> tuple[int, int]:
    return (-entry[0].number, -entry[0].writer)


class VersionList:
    """The versions of an object at a server, newest first, at most the ``capacity`` of put.

    This is List of Alg. 4:3; (t0, v0) is in it without being stored.
    ``trimmed_place``: the place of the record of ``trimmed`` in the server's journal.
    """

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
        """Return whether the newest version is a tombstone.

        A never written object counts as deleted.
        """
        return not self.entries or self.entries[0][1].length == DELETED_LENGTH

    def tags(self) -> tuple[Tag, ...]:
        """Return the tags, newest first, without t0."""
        entries = self.entries
        return (entries[0][0],) if len(entries) == 1 else tuple([entry[0] for entry in entries])

    def position(self, tag: Tag) -> int | None:
        """Return the position of ``tag`` among the entries."""
        for position, entry in enumerate(self.entries):
            if entry[0] == tag:
                return position
        return None

    def is_at(self, place: int) -> bool:
        """Return whether the journal has a record of this List at ``place``."""
        return (self.trimmed_place == place and self.trimmed != TAG_ZERO) or any(
            entry[2] == place for entry in self.entries
        )

    def element(self, tag: Tag) -> Element | None:
        position = self.position(tag)
        return None if position is None else self.entries[position][1]

    def put(self, tag: Tag, element: Element, capacity: int, place: int = 0) -> Entry | None:
        """Insert a version and drop the lowest beyond ``capacity`` (put-data, Alg. 4:19-24).

        A dropped version leaves no pair behind (Alg. 4:25 is struck out), only ``trimmed``.
        Returns the entry that is not kept: None, an older entry, or the new entry, whose tag is in
        this case the very object given as ``tag``.
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
    """Return the number of versions a server keeps of an object: 1 (ABD), or delta + 1 (EC)."""
    return configuration.delta + 1
