"""The shared memory under a fragmented file: coverable objects by name (CoBFS calls it the DSMM, and asks no more of it than this).

Here it is CoARES over one domain; tests put a dictionary in its place.
"""

from collections.abc import Iterable
from typing import Protocol

from ares.client.coverable import Covered, create, cvr_read, cvr_write
from ares.client.operations import delete
from ares.client.survey import list_objects
from ares.dap.client import Found
from ares.effects import Operation, Together
from ares.errors import ObjectNotFound, Uncertain
from ares.identity import DomainName, ObjectName
from ares.reconfig.view import View
from ares.tag import Tag
from ares.value import Value

DELETIONS_MAX = 32
"""Deletions under way at once; they move no data."""


class Blocks(Protocol):
    """``domain`` is for messages to a person."""

    @property
    def domain(self) -> DomainName: ...

    def read(self, name: ObjectName, held: Tag | None = None) -> Operation[Found]:
        """The latest version; its value is WITHHELD if it is ``held``."""

    def create(self, name: ObjectName, value: bytes) -> Operation[Tag]:
        """The first version of a name that nobody else uses."""

    def write(self, name: ObjectName, value: Value, version: Tag | None) -> Operation[Covered]:
        """A coverable write over ``version`` (None: over nothing)."""

    def delete(self, name: ObjectName) -> Operation[None]:
        """Make the object absent, whatever its version; it may be so already."""

    def names(self, prefix: str, after: str) -> Operation[tuple[list[ObjectName], str | None]]:
        """A page of the objects that are there, and the cursor of the next one (None: that was all)."""


class SharedMemory:
    """:class:`Blocks` over the domain of a view."""

    def __init__(self, view: View) -> None:
        self._view = view

    @property
    def domain(self) -> DomainName:
        return self._view.domain

    def read(self, name: ObjectName, held: Tag | None = None) -> Operation[Found]:
        return cvr_read(self._view, name, held)

    def create(self, name: ObjectName, value: bytes) -> Operation[Tag]:
        return create(self._view, name, value)

    def write(self, name: ObjectName, value: Value, version: Tag | None) -> Operation[Covered]:
        return cvr_write(self._view, name, value, version)

    def delete(self, name: ObjectName) -> Operation[None]:
        try:
            yield from delete(self._view, name)
        except ObjectNotFound:
            return

    def names(self, prefix: str, after: str) -> Operation[tuple[list[ObjectName], str | None]]:
        return list_objects(self._view, after, prefix)


def drop_blocks(blocks: Blocks, names: Iterable[ObjectName]) -> Operation[None]:
    """Delete blocks that nothing points to. As soon as one cannot be reached the rest is left for collection (ares/fragment/collection.py)."""
    try:
        yield Together((blocks.delete(name) for name in names), DELETIONS_MAX)
    except Uncertain:
        return
