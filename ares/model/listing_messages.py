"""Messages about many objects of a configuration: pages of a listing, and changes for watches."""

from typing import Annotated

from msgspec import Meta, Struct

from ares.model.configuration import Successor
from ares.model.identity import KEY_BYTES_MAX, ConfigurationId, ObjectName
from ares.model.message import Message, Spent, Trace
from ares.model.numbers import Count, Word
from ares.model.tag import Tag
from ares.model.work import CONFIGURATION_WORK, LISTED_WORK

PAGE_OBJECTS_MAX = 1000
"""Objects in a reply with many objects."""

NameText = Annotated[str, Meta(max_length=KEY_BYTES_MAX)]
"""A name or the begin of names, of any characters."""


class ListObjects(Message, frozen=True, tag=7):
    """A request for a page of a configuration's objects.

    The page holds at most ``limit`` names after ``after``, in order.
    """

    configuration: ConfigurationId
    after: str
    limit: Count
    prefix: str = ""
    successor: Successor | None = None
    trace: Trace = None

    @property
    def bulk(self) -> int:
        return 0 if self.successor is None else CONFIGURATION_WORK


class ListedObject(Struct, frozen=True, array_like=True, gc=False):
    """An object, its newest tag at this server, and whether that version is a tombstone."""

    name: ObjectName
    tag: Tag
    deleted: bool


class ObjectsReply(Message, frozen=True, tag=35):
    """The answer to :class:`ListObjects`.

    ``asked``: number of tags and values which users have asked of the server since its start, from
    which a mover sees the server's load; 0 from a release without this field.
    """

    objects: Annotated[tuple[ListedObject, ...], Meta(max_length=PAGE_OBJECTS_MAX)]
    more: bool
    successor: Successor | None
    spent: Spent | None = None
    asked: Count = 0

    @property
    def bulk(self) -> int:
        return sum([LISTED_WORK + len(listed.name) for listed in self.objects])


class WatchObjects(Message, frozen=True, tag=20):
    """A request for changes of the objects with a prefix, from a server's list of recent changes.

    The changes after ``position`` of the list ``epoch``. With ``after``: first the listing, a page
    of the names after ``after``. A server without all these changes begins with the first page, and
    tells the position from which its changes follow (rule R26).
    """

    configuration: ConfigurationId
    prefix: NameText
    epoch: Word
    position: Count
    after: NameText | None
    trace: Trace = None

    @property
    def bulk(self) -> int:
        return CONFIGURATION_WORK


class ChangedObjects(Message, frozen=True, tag=43):
    """The answer to :class:`WatchObjects`; the next request repeats its first three fields.

    ``objects``: versions that this server has, or had. ``more``: further versions are here already.
    """

    epoch: Word
    position: Count
    after: NameText | None
    objects: Annotated[tuple[ListedObject, ...], Meta(max_length=PAGE_OBJECTS_MAX)]
    more: bool
    successor: Successor | None
    spent: Spent | None = None

    @property
    def bulk(self) -> int:
        return sum([LISTED_WORK + len(listed.name) for listed in self.objects])
