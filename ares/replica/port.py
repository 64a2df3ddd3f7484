"""The Lists of a configuration at a server (Alg. 4:3), behind a port.

:class:`ares.replica.object_table.PythonObjectTable` is the reference. Each implementation passes
the same tests (tests/unit/test_object_table.py), and counts the same bytes in the journal's account
(ares/replica/facts.py).
"""

import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from ares.dap.version_list import Entry, VersionList
from ares.model.identity import ConfigurationId, ObjectName
from ares.model.messages import Element, ListedObject
from ares.model.tag import Tag
from ares.replica.facts import ConfigurationUsage

PAGE_CHARACTERS_MAX = 128 * 1024
"""Characters of the names on a page; a character takes at most four bytes."""

NAMES_AT_ONCE = 1000
"""Names that :func:`lists_of` takes at a time."""


class PutEffect(enum.IntEnum):
    """The effect of a put on a List."""

    NONE = 0
    """The version is held already, or is older than all held versions and a dropped version."""

    TRIMMED = 1
    """The version is older than all held versions; its tag is now the highest dropped tag."""

    STORED = 2
    """The version is held now; the lowest version beyond the capacity was dropped."""


class ObjectTable(Protocol):
    """The Lists of a configuration, by object.

    A List which :meth:`get` returns is for reading, and may change with the table. To get a List
    may take time for each of its versions. Only the thread of the event loop uses a table, and
    nothing that a table calls uses the table.
    """

    @property
    def usage(self) -> ConfigurationUsage | None:
        """Return the configuration's part of the journal's account; None without a journal."""

    @property
    def elements(self) -> int:
        """Return the number of versions held."""

    @property
    def bytes(self) -> int:
        """Return the bytes of all data held."""

    def __len__(self) -> int: ...

    # -- reading -----------------------------------------------------------------------------------

    def get(self, object: ObjectName) -> VersionList | None:
        """Return the List of ``object``, or None if the table never had a version of it."""

    def newest(self, object: ObjectName) -> Tag | None:
        """Return the highest tag of the List (t0 if the List is empty), or None without a List."""

    def version(self, object: ObjectName, tag: Tag) -> Entry | None:
        """Return the held version with this tag."""

    def trimmed(self, object: ObjectName) -> tuple[Tag, int] | None:
        """Return the highest dropped tag (t0 if none) and its place, or None without a List."""

    def is_below(self, object: ObjectName, tag: Tag) -> bool:
        """Return whether the List is full, and ``tag`` is lower than all its tags."""

    def follows(self, object: ObjectName) -> bool:
        """Return whether a put of ``object`` came with ``follows``."""

    def names(self, after: ObjectName | None, limit: int) -> Sequence[ObjectName]:
        """Return the first ``limit`` names after a name, in order; None: from the first name."""

    def at_place(
        self, place: int, after: ObjectName | None, limit: int
    ) -> tuple[Sequence[ObjectName], ObjectName | None]:
        """Look for records at ``place`` of the journal among the next ``limit`` names.

        Returns the objects with a record there, and the last of the names; None after the last
        name of the table. ``after``: as of :meth:`names`.
        """

    def page(self, after: str, prefix: str, limit: int) -> tuple[tuple[ListedObject, ...], bool]:
        """Return objects after a name, in order, and whether more follow.

        The names have the prefix; impossible names are passed over. A page ends at ``limit``
        objects or at PAGE_CHARACTERS_MAX.
        """

    # -- changes -----------------------------------------------------------------------------------

    def put(
        self,
        object: ObjectName,
        tag: Tag,
        element: Element,
        place: int = 0,
        follows: bool = False,
    ) -> PutEffect:
        """Insert a version, journaled at ``place``, and drop the lowest beyond the capacity.

        ``follows``: the put came after nextC.
        """

    def trim(self, object: ObjectName, tag: Tag, place: int) -> None:
        """Take note of a dropped tag, which the journal has at ``place``.

        The effect is that of a put of a lower version than all held versions.
        """

    def move(self, object: ObjectName, tag: Tag, element: Element, place: int) -> None:
        """Replace the element of a held version, whose record is at ``place`` now."""

    def move_trimmed(self, object: ObjectName, place: int) -> None:
        """Record ``place`` as the place of the highest dropped tag."""

    def replace(self, object: ObjectName, tag: Tag, element: Element) -> None:
        """Hold the same element of a held version at its new address in memory."""

    def forget(self, object: ObjectName) -> Sequence[int]:
        """Forget the List of ``object``, as if the table never had a version of it.

        Returns the places of its records in the journal, each at least once; empty without a List.
        """

    def clear(self) -> None:
        """Drop all Lists; :meth:`release` frees their memory.

        The journal's account is left to the caller: it costs a step for each place.
        """

    def release(self, limit: int) -> bool:
        """Free ``limit`` dropped Lists and marks; return whether more are left."""

    # -- a start -----------------------------------------------------------------------------------

    def begin_loading(self) -> None:
        """Keep names unordered until :meth:`end_loading`.

        Ordering a million names at once is much faster than one by one.
        """

    def end_loading(self) -> None:
        """Order the names."""


class NewTable(Protocol):
    """A way to make the table of a configuration."""

    def __call__(self, capacity: int, usage: ConfigurationUsage | None, /) -> ObjectTable:
        """Return an empty table of Lists with at most ``capacity`` versions.

        ``usage``: the configuration's part of the journal's account; None without a journal.
        """


class BatchReplay(Protocol):
    """The join of a journal's batch without objects for its facts."""

    def __call__(
        self,
        hosted: Mapping[ConfigurationId, Any],
        body: memoryview,
        place: int,
        only: ConfigurationId | None = None,
        /,
    ) -> Sequence[ConfigurationId] | None:
        """Join the facts of the encoded batch ``body`` at ``place``, as a replica restores them.

        ``only``: the configuration whose facts are joined; None: all configurations in ``hosted``.
        Returns the configurations that are not in ``hosted``, whose facts are passed over. Returns
        None, without effect, for a batch with an unusual fact.
        """


class RunReplay(Protocol):
    """The join of batches in a row, as they are in a journal's segment."""

    def __call__(
        self,
        hosted: Mapping[ConfigurationId, Any],
        frames: memoryview,
        salt: int,
        sequence: int,
        place: int,
        /,
    ) -> tuple[int, int]:
        """Join the batches at the begin of ``frames``, the first with number ``sequence``.

        Ends before a batch that is damaged, or for which :class:`BatchReplay` does not return an
        empty result. Returns the bytes and the number of the joined batches.
        """


def lists_of(table: ObjectTable) -> Iterator[tuple[ObjectName, VersionList]]:
    """Yield every object and its List, in the order of names."""
    after = None
    while names := table.names(after, NAMES_AT_ONCE):
        for name in names:
            versions = table.get(name)
            if versions is not None:
                yield name, versions
        after = names[-1]
