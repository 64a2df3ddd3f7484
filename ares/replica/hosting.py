"""What a server keeps for one configuration: the objects, nextC (Alg. 4), and where its journal tells of them (ares/replica/facts.py).

After gc-config the whole table of objects goes, tags included, where the paper keeps every tag with an empty value: the server answers with no
tags and the finalized successor, which has everything that completed here and which every client must visit anyway. Keeping the tags would
leak memory with every reconfiguration. A server that has collected acknowledges put-data without storing, as published (Alg. 4:18).
"""

from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any, cast

from sortedcontainers import SortedDict

from ares.dap.list import Versions, capacity
from ares.model.codec import DETACHED_BYTES_MIN
from ares.model.configuration import Configuration, Successor, advance
from ares.model.element import hollow, intact, is_hollow, is_in_crumbs
from ares.model.errors import AresError, BadInput
from ares.model.identity import KEY_BYTES_MAX, NO_CALL, ObjectName, fits, is_object_name
from ares.model.messages import (
    LEFT,
    LEFT_NAMED_MAX,
    PAGE_OBJECTS_MAX,
    Ack,
    CollectConfig,
    DataReply,
    Element,
    Finalize,
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
from ares.replica.facts import (
    Account,
    Fact,
    Key,
    Pointed,
    Share,
    TagsTrimmed,
    pointed_bytes,
    put_bytes,
)

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
    ``share``: what of the journal this configuration needs; None for a server that keeps everything in memory. ``pointed_place``: where
    :meth:`pointed` is told; None when it is nowhere yet.
    ``note_final`` is told of every configuration that is known to be finalized from here: the successor, or this one.
    ``carried``: how many values were asked for by those that carry a successor: movers, not users.
    ``answers``: what takes each kind of request and returns its reply. A table: looking at one class after the other takes longer than answering.

    It remembers of which objects something came after nextC (``_following``), so that it can say of the others that all they have was here before:
    who moves data from here finds that, since its requests install nextC. Where the order is not known, as after a restart, nothing is said.
    """

    def __init__(
        self,
        configuration: Configuration,
        position: int,
        clock: Clock = no_clock,
        share: Share | None = None,
        note_final: Callable[[Configuration], None] = lambda configuration: None,
    ) -> None:
        self.configuration = configuration
        self.successor: Successor | None = None
        self.collected = False
        self.finalized = False
        self._note_final = note_final
        self.bytes = 0
        self.elements = 0
        self.carried = 0
        self.pointed_place: int | None = None
        self._pointed_bytes = 0
        self._journaled = share is not None
        self._share = share or Share(Account())
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
            Finalize: self.finalize,
        }

    @property
    def objects(self) -> Mapping[ObjectName, Versions]:
        """The versions held, by object; for looking at."""
        return self._objects

    def install(self, successor: Successor) -> None:
        """Move nextC (put-config, or carried by a request: rule R1). Raises :class:`ares.model.configuration.ConflictingSuccessor`."""
        self.successor = advance(self.configuration, self.successor, successor)
        if self.successor.finalized:
            self._note_final(self.successor.configuration)

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

    def finalize(self, request: Finalize) -> Ack:
        self.mark_finalized()
        return Ack(request.call, self.successor)

    def mark_finalized(self) -> None:
        """It holds everything that completed before it: it may be named (rule R21)."""
        self.finalized = True
        self._note_final(self.configuration)

    def get_tag(self, request: GetTag) -> TagReply:
        """Raises :class:`BadInput` for what can be no object's name, unless it is there: an earlier release stored any."""
        versions = self._objects.get(request.object)
        if versions is None and not 0 < len(request.object) <= NAME_CHARACTERS_SURE:
            check_name(request.object)
        return TagReply(
            request.call, versions.newest if versions is not None else TAG_ZERO, self.successor
        )

    def get_data(self, request: GetData) -> DataReply:
        """Raises what :meth:`get_tag` does, and :meth:`learn`."""
        if request.successor is not None:
            self.carried += 1
            self.learn(request.successor)
        versions = self._objects.get(request.object)
        if versions is None:
            if not 0 < len(request.object) <= NAME_CHARACTERS_SURE:
                check_name(request.object)
            return DataReply(request.call, (), -1, TAG_ZERO, None, self.successor)
        tag, element, _ = versions.entries[0]
        length = element.length
        wanted: Element | None = element
        if request.wanted is not None:
            tag, wanted = request.wanted, versions.element(request.wanted)
        if (
            wanted is None
            or (self.successor is not None and self.successor.finalized)
            or (not request.element and wanted.size > INLINE_BYTES_MAX)
            or (request.held is not None and tag <= request.held)
            or (self._journaled and not self.is_sound(request.object, tag, wanted))
        ):
            wanted = None
        preceding = self._order_known and request.object not in self._following
        return DataReply(
            request.call,
            versions.tags(),
            length,
            versions.trimmed,
            wanted,
            self.successor,
            preceding,
        )

    def is_sound(self, object: ObjectName, tag: Tag, element: Element) -> bool:
        """Whether the element held under ``tag`` is what was sealed; otherwise it counts as missing. Asked where there is a journal: its mapped data
        may have rotted, and is looked at every time. What is in memory is trusted: clients verify it anyway."""
        if element.size < DETACHED_BYTES_MIN:
            return not is_hollow(element)
        self._share.account.verified_bytes += element.size
        sound = intact(self.configuration.id, object, tag, element)
        if not sound:
            self._found_damaged(object, tag)
        return sound

    def _found_damaged(self, object: ObjectName, tag: Tag) -> None:
        versions = self._objects.get(object)
        position = versions.position(tag) if versions is not None else None
        if versions is None or position is None or is_hollow(versions.entries[position][1]):
            return
        _, element, place = versions.entries[position]
        self.move(PutData(NO_CALL, self.configuration.id, object, tag, hollow(element)), place)
        self._share.account.suspects[place] = None

    def put_data(self, request: PutData) -> Ack:
        """Raises what :meth:`put` does."""
        self.put(request)
        return Ack(request.call, self.successor)

    def put(self, put: PutData, place: int = 0, checked: bool = False) -> Fact | None:
        """Store an element that the journal is to tell at ``place``.

        Raises :class:`BadElement` or :class:`BadInput`, unless it was ``checked`` before; nothing is stored then. Returns what changed: the put when
        it is stored, the tag when it only raised ``trimmed``, None when nothing changed. Nothing is kept for a collected configuration, nor of t0:
        (t0, v0) is in every List without being stored.
        """
        object, tag, element = put.object, put.tag, put.element
        size = element.size
        if not checked:
            if not 0 < len(object) <= NAME_CHARACTERS_SURE:
                check_name(object)
            if (
                element.index != self._element_index
                or not LEFT <= element.length <= size * self.configuration.k
                or (len(element.parts) > 1 and is_in_crumbs(element))
                or not intact(put.configuration, object, tag, element)
            ):
                raise BadElement(
                    f"element {element.index} of {object!r} does not fit its checksum, its parts or this server; it was not stored"
                )
            if tag.number > NUMBER_FLOOR:
                self._check_number(object, tag)
        if self.collected or tag == TAG_ZERO:
            return None
        if self.successor is not None:
            self._following.add(object)
        versions = self._objects.get(object)
        if versions is None:
            versions = self._objects[object] = Versions()
        trimmed = versions.trimmed
        lost = versions.put(tag, element, self._capacity, place)
        if element.length == LEFT:
            self._left[object] = None
        if lost is None:
            self.elements += 1
            self.bytes += size
            if self._journaled:
                self._share.add(place, put_bytes(object, size))
            return put
        if lost[0] is tag:
            return self._not_kept(put, versions, place, trimmed)
        lost_size = lost[1].size
        self.bytes += size - lost_size
        if self._journaled:
            self._share.exchange(
                lost[2], put_bytes(object, lost_size), place, put_bytes(object, size)
            )
            if versions.trimmed != trimmed:
                self._share.tell_trimmed(object, versions, lost[2], trimmed)
        return put

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

    def _not_kept(self, put: PutData, versions: Versions, place: int, trimmed: Tag) -> Fact | None:
        """The version is held already, which repairs it if it is hollow, or it is older than all that are held."""
        position = versions.position(put.tag)
        if position is None:
            if versions.trimmed == trimmed:
                return None
            self._share.tell_trimmed(put.object, versions, place, trimmed)
            return TagsTrimmed(put.configuration, put.object, put.tag)
        if not is_hollow(versions.entries[position][1]):
            return None
        self._share.account.repaired += 1
        self.move(put, place)
        return put

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
        self._share.clear()
        if self.pointed_place is not None:
            self._share.add(self.pointed_place, self._pointed_bytes)

    def list_objects(self, request: ListObjects) -> ObjectsReply:
        """Raises :class:`BadInput`. What can be no object's name is passed over: an earlier release stored any, and nobody can read it."""
        if not fits(request.after, KEY_BYTES_MAX) or not fits(request.prefix, KEY_BYTES_MAX):
            raise BadInput(
                f"a listing begins after a name, and with a prefix, of at most {KEY_BYTES_MAX} bytes"
            )
        if request.successor is not None:
            self.learn(request.successor)
        limit = min(max(request.limit, 1), PAGE_OBJECTS_MAX)
        after = max(request.after, request.prefix)
        page: list[Listed] = []
        characters = 0
        for name in self._objects.irange(
            ObjectName(after), inclusive=(after != request.after, True)
        ):
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
        return Hosted(
            self.configuration,
            len(self._objects),
            self.bytes,
            self.collected,
            self.successor,
            len(left),
            tuple(left[:LEFT_NAMED_MAX]),
        )

    def left_behind(self) -> list[ObjectName]:
        """The objects, in order, whose newest version here says that a move left them behind."""
        objects = self._objects
        self._left = {
            name: None
            for name in self._left
            if name in objects
            and objects[name].entries
            and objects[name].entries[0][1].length == LEFT
        }
        return sorted(self._left)

    # -- the journal ----------------------------------------------------------------------------------------------------

    def pointed(self) -> Pointed:
        """The fact that tells all of this configuration but the objects."""
        return Pointed(self.configuration, self.successor, self.collected, self.finalized)

    def is_told_by(self, fact: Pointed) -> bool:
        """Whether it is the latest: an earlier release leaves out that the configuration is finalized, which stays true."""
        return (fact.successor, fact.collected) == (self.successor, self.collected)

    def point_from(self, place: int) -> None:
        """What the journal tells of this configuration is at ``place`` from now on."""
        if self.pointed_place is not None:
            self._share.add(self.pointed_place, -self._pointed_bytes)
        self.pointed_place, self._pointed_bytes = (
            place,
            pointed_bytes(self.configuration, self.successor),
        )
        self._share.add(place, self._pointed_bytes)

    def knows(self, object: ObjectName, tag: Tag) -> bool:
        """Whether a put of ``tag`` would change nothing: it is held with its data, or was dropped and would be again."""
        versions = self._objects.get(object)
        if (
            self.collected
            or versions is None
            or not versions.entries
            or tag > versions.entries[0][0]
        ):
            return self.collected
        element = versions.element(tag)
        if element is not None:
            return not is_hollow(element)
        return (
            tag <= versions.trimmed
            and len(versions.entries) == self._capacity
            and tag < versions.entries[-1][0]
        )

    def move(self, fact: PutData | TagsTrimmed, place: int) -> None:
        """``fact``, which is held, is told at ``place`` from now on; of a put, the element is held as it is there."""
        object, tag = fact.object, fact.tag
        versions = self._objects.get(object)
        if versions is None:
            return
        if isinstance(fact, TagsTrimmed):
            self._share.tell_trimmed(object, versions, place, versions.trimmed)
            return
        position = versions.position(tag)
        if position is not None:
            _, old, old_place = versions.entries[position]
            self._share.exchange(
                old_place, put_bytes(object, old.size), place, put_bytes(object, fact.element.size)
            )
            versions.entries[position] = (tag, fact.element, place)
            self.bytes += fact.element.size - old.size
        self._note(fact)

    def replace(self, put: PutData) -> None:
        """Hold the same element where it is in memory now."""
        versions = self._objects.get(put.object)
        position = versions.position(put.tag) if versions is not None else None
        if versions is not None and position is not None:
            versions.entries[position] = (put.tag, put.element, versions.entries[position][2])

    def restore(self, fact: PutData | TagsTrimmed, place: int) -> None:
        """Join what the journal tells at ``place``, the last of several: the others may be about to go, and of an element either the one before was
        copied when it was seen to be intact, or it had rotted, and this says so or repairs it."""
        object, tag = fact.object, fact.tag
        versions = self._objects.get(object)
        if isinstance(fact, PutData):
            if versions is not None and versions.position(tag) is not None:
                self.move(fact, place)
            else:
                self.put(fact, place, checked=True)
                self._note(fact)
        elif not self.collected:
            if versions is None:
                versions = self._objects[object] = Versions()
            before = versions.trimmed
            if tag >= before:
                versions.trimmed = tag
                self._share.tell_trimmed(object, versions, place, before)

    def _note(self, put: PutData) -> None:
        if is_hollow(put.element):
            self._share.account.hollows[put.configuration, put.object, put.tag] = None

    def begin_restoring(self) -> None:
        """Keep names in no order until :meth:`restored`: a million are put in order at once much faster than one by one."""
        self._objects = cast("SortedDict[ObjectName, Versions]", dict(self._objects))

    def restored(self) -> None:
        """Every fact was given: serve from now on. Facts come in any order, so nobody knows what was here before nextC."""
        self._order_known = self.successor is None
        self._objects = SortedDict(self._objects)

    def held_at(
        self, place: int, readable: Container[Key] | None
    ) -> Iterator[PutData | TagsTrimmed | None]:
        """What is held of the facts at ``place``, from memory; see :meth:`ares.replica.replica.Replica.held_at`."""
        id = self.configuration.id
        for object in list(self._objects):
            yield None
            versions = self._objects.get(object)
            if versions is None:
                continue
            if versions.trimmed_place == place and versions.trimmed != TAG_ZERO:
                yield TagsTrimmed(id, object, versions.trimmed)
            for tag, element, its_place in list(versions.entries):
                if its_place == place:
                    is_mapped = element.size >= DETACHED_BYTES_MIN
                    lost = readable is not None and is_mapped and (id, object, tag) not in readable
                    yield PutData(NO_CALL, id, object, tag, hollow(element) if lost else element)


def check_name(name: ObjectName) -> None:
    """Raises :class:`BadInput` for what can be no object's name."""
    if not is_object_name(name):
        raise BadInput(f"the name of an object has 1 to {KEY_BYTES_MAX} bytes of UTF-8")
