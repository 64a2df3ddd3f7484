"""What a server keeps for one configuration: the objects, and nextC (Alg. 4).

After gc-config the whole table of objects goes, tags included, where the paper keeps every tag with an empty value: the server answers with no
tags and the finalized successor, which has everything that completed here and which every client must visit anyway. Keeping the tags would
leak memory with every reconfiguration. A server that has collected acknowledges put-data without storing, as published (Alg. 4:18).
"""

from collections.abc import Callable, Mapping
from typing import Any

from sortedcontainers import SortedDict

from ares.dap.list import Versions, capacity
from ares.model.configuration import Configuration, Successor, advance
from ares.model.element import intact, is_in_crumbs
from ares.model.errors import AresError, BadInput
from ares.model.identity import KEY_BYTES_MAX, ObjectName, fits, is_object_name
from ares.model.messages import (
    LEFT,
    LEFT_NAMED_MAX,
    PAGE_OBJECTS_MAX,
    Ack,
    CollectConfig,
    DataReply,
    Element,
    GetData,
    GetTag,
    Hosted,
    Keyed,
    Listed,
    ListObjects,
    ObjectsReply,
    PutData,
    ReadConfig,
    Reply,
    TagReply,
    WriteConfig,
)
from ares.model.tag import NUMBER_FLOOR, TAG_ZERO, Tag, number_max

INLINE_BYTES_MAX = 8 * 1024
"""An element of up to this many bytes comes with every get-data answer, asked for or not."""

PAGE_CHARACTERS_MAX = 128 * 1024
"""Of the names on a page; a character takes at most four bytes."""

NAME_CHARACTERS_SURE = KEY_BYTES_MAX // 4
"""A name of up to so many need not be looked at: a character takes at most four bytes."""

Clock = Callable[[], float]
"""Says how many seconds have passed since 1970."""


def no_clock() -> float:
    """For a server that has none."""
    return 0.0


class BadElement(AresError):
    """An element that does not belong at this server, is not what was sealed, or whose tag is none that a client gets to by writing."""


class Hosting:
    """State and answers for one configuration.

    ``clock`` bounds the numbers of tags (:func:`ares.model.tag.number_max`), and nothing else: it can make a server refuse, and never makes it
    forget.
    ``answers``: what takes each kind of request and returns its reply. A table: looking at one class after the other takes longer than answering.

    It remembers of which objects something came after nextC (``_following``), so that it can say of the others that all they have was here before:
    who moves data from here finds that, since its requests install nextC. Where the order is not known, as after a restart, nothing is said.
    """

    verifies = False
    """Memory is trusted: who reads verifies anyway."""

    def __init__(self, configuration: Configuration, position: int, clock: Clock = no_clock) -> None:
        self.configuration = configuration
        self.successor: Successor | None = None
        self.collected = False
        self.bytes = 0
        self.elements = 0
        self._element_index = position if configuration.dap == "ec" else 0
        self._capacity = capacity(configuration)
        self._objects: SortedDict[ObjectName, Versions] = SortedDict()
        self._following: set[ObjectName] = set()
        self._clock = clock
        self._left: dict[ObjectName, None] = {}
        self._order_known = True
        self.answers: dict[type[Keyed], Callable[[Any], Reply]] = {
            GetTag: self.get_tag,
            GetData: self.get_data,
            PutData: self.put_data,
            ReadConfig: self.read_config,
            WriteConfig: self.write_config,
            ListObjects: self.list_objects,
            CollectConfig: self.collect,
        }

    @property
    def objects(self) -> Mapping[ObjectName, Versions]:
        """The versions held, by object; for looking at."""
        return self._objects

    def install(self, successor: Successor) -> None:
        """Move nextC (put-config, or carried by a request: rule R1). Raises :class:`ares.model.configuration.ConflictingSuccessor`."""
        self.successor = advance(self.configuration, self.successor, successor)

    def read_config(self, request: ReadConfig) -> Ack:
        return Ack(request.call, self.successor)

    def learn(self, successor: Successor) -> None:
        """:meth:`install`, for what a client told. Raises :class:`BadInput`, too, for more than servers keep."""
        if successor != self.successor:
            successor.configuration.check_bounds()
        self.install(successor)

    def write_config(self, request: WriteConfig) -> Ack:
        self.learn(request.successor)
        return Ack(request.call, self.successor)

    def get_tag(self, request: GetTag) -> TagReply:
        """Raises :class:`BadInput` for what can be no object's name, unless it is there: an earlier release stored any."""
        versions = self._objects.get(request.object)
        if versions is None and not 0 < len(request.object) <= NAME_CHARACTERS_SURE:
            check_name(request.object)
        return TagReply(request.call, versions.newest if versions is not None else TAG_ZERO, self.successor)

    def get_data(self, request: GetData) -> DataReply:
        """Raises what :meth:`get_tag` does, and :meth:`learn`."""
        if request.successor is not None:
            self.learn(request.successor)
        versions = self._objects.get(request.object)
        if versions is None:
            if not 0 < len(request.object) <= NAME_CHARACTERS_SURE:
                check_name(request.object)
            return DataReply(request.call, (), -1, TAG_ZERO, None, self.successor)
        tag, element = versions.entries[0]
        length = element.length
        wanted: Element | None = element
        if request.wanted is not None:
            tag, wanted = request.wanted, versions.element(request.wanted)
        if (
            wanted is None
            or (self.successor is not None and self.successor.finalized)
            or (not request.element and wanted.size > INLINE_BYTES_MAX)
            or (request.held is not None and tag <= request.held)
            or (self.verifies and not self.is_sound(request.object, tag, wanted))
        ):
            wanted = None
        preceding = self._order_known and request.object not in self._following
        return DataReply(request.call, versions.tags(), length, versions.trimmed, wanted, self.successor, preceding)

    def is_sound(self, object: ObjectName, tag: Tag, element: Element) -> bool:
        """Whether the element held under ``tag`` is what was sealed; otherwise it counts as missing. Asked where a hosting ``verifies``."""
        return True

    def put_data(self, request: PutData) -> Ack:
        """Raises :class:`BadElement` or :class:`BadInput`; nothing is stored then. (t0, v0) is in every List without being stored."""
        object, tag, element = request.object, request.tag, request.element
        if not 0 < len(object) <= NAME_CHARACTERS_SURE:
            check_name(object)
        if (
            element.index != self._element_index
            or not LEFT <= element.length <= element.size * self.configuration.k
            or (len(element.parts) > 1 and is_in_crumbs(element))
            or not intact(request.configuration, object, tag, element)
        ):
            raise BadElement(f"element {element.index} of {object!r} does not fit its checksum, its parts or this server; it was not stored")
        if tag.number > NUMBER_FLOOR:
            self._check_number(object, tag)
        self.keep(object, tag, element)
        return Ack(request.call, self.successor)

    def _check_number(self, object: ObjectName, tag: Tag) -> None:
        """Raises :class:`BadElement` for a number that nobody gets to by writing, by this server's clock.

        What is one above a version that is held is taken all the same. So an object that an earlier release, or a server whose clock was ahead, let
        somebody put under such a tag can be written and deleted; and nobody gets further by that than by so many writes.
        """
        held = self._objects.get(object)
        highest = number_max(self._clock())
        if tag.number > highest and (held is None or tag.number > held.newest.number + 1):
            raise BadElement(
                f"the tag {tag} is beyond {highest}, to which no object gets by being written; it was not stored, and what is held stays. "
                "Was the tag made by hand, or is a clock wrong?"
            )

    def keep(self, object: ObjectName, tag: Tag, element: Element) -> None:
        """Store an element that was checked; nothing is kept for a collected configuration, nor of t0."""
        if self.collected or tag == TAG_ZERO:
            return
        if self.successor is not None:
            self._following.add(object)
        versions = self._objects.get(object)
        if versions is None:
            versions = self._objects[object] = self._versions(object)
        before = len(versions.entries)
        self.bytes += versions.put(tag, element, self._capacity)
        if element.length == LEFT:
            self._left[object] = None
        self.elements += len(versions.entries) - before

    def _versions(self, object: ObjectName) -> Versions:
        """For an object of which nothing was held."""
        return Versions()

    def collect(self, request: CollectConfig) -> Ack:
        """gc-config (Alg. 4:36-42): only a finalized successor lets go of data."""
        self.learn(request.successor)
        if self.successor is not None and self.successor.finalized:
            self.let_go()
        return Ack(request.call, self.successor)

    def let_go(self) -> None:
        """Be collected: drop every object, and keep none from now on."""
        self.collected = True
        self.bytes = self.elements = 0
        self._objects.clear()
        self._following.clear()
        self._left.clear()

    def list_objects(self, request: ListObjects) -> ObjectsReply:
        """Raises :class:`BadInput`. What can be no object's name is passed over: an earlier release stored any, and nobody can read it."""
        if not fits(request.after, KEY_BYTES_MAX) or not fits(request.prefix, KEY_BYTES_MAX):
            raise BadInput(f"a listing begins after a name, and with a prefix, of at most {KEY_BYTES_MAX} bytes")
        if request.successor is not None:
            self.learn(request.successor)
        limit = min(max(request.limit, 1), PAGE_OBJECTS_MAX)
        after = max(request.after, request.prefix)
        page: list[Listed] = []
        characters = 0
        for name in self._objects.irange(ObjectName(after), inclusive=(after != request.after, True)):
            if not name.startswith(request.prefix):
                break
            if not 0 < len(name) <= NAME_CHARACTERS_SURE and not is_object_name(name):
                continue
            characters += len(name)
            if len(page) == limit or characters > PAGE_CHARACTERS_MAX:
                return ObjectsReply(request.call, tuple(page), True, self.successor)
            versions = self._objects[name]
            page.append(Listed(name, versions.newest, versions.deleted))
        return ObjectsReply(request.call, tuple(page), False, self.successor)

    def describe(self) -> Hosted:
        left = self.left_behind()
        return Hosted(self.configuration, len(self._objects), self.bytes, self.collected, self.successor, len(left), tuple(left[:LEFT_NAMED_MAX]))

    def left_behind(self) -> list[ObjectName]:
        """The objects, in order, whose newest version here says that a move left them behind."""
        objects = self._objects
        self._left = {name: None for name in self._left if name in objects and objects[name].entries and objects[name].entries[0][1].length == LEFT}
        return sorted(self._left)


def check_name(name: ObjectName) -> None:
    """Raises :class:`BadInput` for what can be no object's name."""
    if not is_object_name(name):
        raise BadInput(f"the name of an object has 1 to {KEY_BYTES_MAX} bytes of UTF-8")
