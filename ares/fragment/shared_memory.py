"""The shared memory under a fragmented file: coverable objects by name (CoBFS calls it the DSMM, and asks no more of it than this).

Here it is CoARES over one domain; tests put a dictionary in its place.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from ares.dap.primitives import Found
from ares.fragment.block import GENESIS_NAMES
from ares.model.errors import ObjectNotFound, Uncertain
from ares.model.identity import DomainName, ObjectName
from ares.model.tag import Tag
from ares.model.value import Value
from ares.objects.coverable import Covered, advance, create, cvr_read, cvr_write, mention
from ares.objects.operations import delete
from ares.objects.survey import list_mentioned, list_objects
from ares.operation.effects import Operation, Together
from ares.reconfig.view import View

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

    def write(self, name: ObjectName, value: Value, version: Tag | None, *, number: int = 0, beside: ObjectName | None = None) -> Operation[Covered]:
        """A coverable write over ``version`` (None: over nothing): under exactly ``number``, or above the numbers of the object ``beside``."""

    def mention(self, name: ObjectName) -> Operation[None]:
        """Make a name known to listings, and change nothing."""

    def advance(self, name: ObjectName, floor: int, by: int) -> Operation[Tag]:
        """Put the tag of an object that is never there ``by`` above its latest number and above ``floor``."""

    def delete(self, name: ObjectName) -> Operation[None]:
        """Make the object absent, whatever its version; it may be so already."""

    def names(self, prefix: str, after: str) -> Operation[tuple[list[ObjectName], str | None]]:
        """A page of the objects that are there, and the cursor of the next one (None: that was all)."""

    def mentioned(self, prefix: str, after: str) -> Operation[tuple[list[ObjectName], str | None]]:
        """The same of all names of which anybody knows a version, also those of objects that are absent."""


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

    def write(self, name: ObjectName, value: Value, version: Tag | None, *, number: int = 0, beside: ObjectName | None = None) -> Operation[Covered]:
        return cvr_write(self._view, name, value, version, number, beside)

    def mention(self, name: ObjectName) -> Operation[None]:
        return mention(self._view, name)

    def advance(self, name: ObjectName, floor: int, by: int) -> Operation[Tag]:
        return advance(self._view, name, floor, by)

    def delete(self, name: ObjectName) -> Operation[None]:
        try:
            yield from delete(self._view, name)
        except ObjectNotFound:
            return

    def names(self, prefix: str, after: str) -> Operation[tuple[list[ObjectName], str | None]]:
        return list_objects(self._view, after, prefix)

    def mentioned(self, prefix: str, after: str) -> Operation[tuple[list[ObjectName], str | None]]:
        page = yield from list_mentioned(self._view, after, prefix)
        return list(page.newest), page.after


def drop_blocks(blocks: Blocks, names: Iterable[ObjectName]) -> Operation[None]:
    """Delete blocks that nothing points to. As soon as one cannot be reached the rest is left for collection (ares/fragment/collect.py)."""
    try:
        yield Together((blocks.delete(name) for name in names), DELETIONS_MAX)
    except Uncertain:
        return


def all_names(page: Callable[[str, str], Operation[tuple[list[ObjectName], str | None]]], prefix: str) -> Operation[list[ObjectName]]:
    """Every name of a listing, which ``page`` gives page by page."""
    names: list[ObjectName] = []
    after: str | None = ""
    while after is not None:
        some, after = yield from page(prefix, after)
        names.extend(some)
    return names


def list_files(blocks: Blocks, prefix: str = "") -> Operation[list[str]]:
    """The names of the files of the domain that start with ``prefix``, in order."""
    names = yield from all_names(blocks.names, GENESIS_NAMES + prefix)
    return [name.removeprefix(GENESIS_NAMES) for name in names]
