"""A server's state of a configuration: objects, nextC (Alg. 4), and places in the journal.

Places: see ares/replica/facts.py. After gc-config the whole table of objects goes, tags included,
where the paper keeps every tag with an empty value: the server answers without tags and with the
finalized successor, which has every version completed here and which every client must visit
anyway. Keeping the tags would leak memory with every reconfiguration. A server that has collected
acknowledges put-data without storing, as published (Alg. 4:18).
"""

from collections.abc import Callable, Container, Iterator
from itertools import islice
from typing import Any

from sortedcontainers import SortedDict

from ares.dap.version_list import capacity
from ares.model.codec import DETACHED_BYTES_MIN, FRAMES_MAX
from ares.model.configuration import Configuration, Successor, advance
from ares.model.element import hollow, intact, is_hollow, is_in_crumbs, sealed, too_large
from ares.model.errors import AresError, BadInput, WriteOnceRefusal
from ares.model.identity import (
    KEY_BYTES_MAX,
    NO_CALL,
    VALUE_BYTES_DEFAULT,
    ObjectName,
    fits,
    is_object_name,
    shown,
)
from ares.model.messages import (
    DELETED_LENGTH,
    LEFT_LENGTH,
    LEFT_NAMED_MAX,
    PAGE_OBJECTS_MAX,
    Ack,
    ChangedObjects,
    CollectConfig,
    ConfigurationReport,
    DataReply,
    Drop,
    Element,
    Finalize,
    GetAhead,
    GetData,
    GetTag,
    Keyed,
    ListEntry,
    ListObjects,
    ListReply,
    ObjectsReply,
    PutData,
    QueryList,
    ReadConfig,
    Reply,
    TagReply,
    WatchObjects,
    WriteConfig,
)
from ares.model.tag import NUMBER_FLOOR, TAG_ZERO, Tag, number_max
from ares.replica.dropped_names import DropRecords
from ares.replica.facts import (
    ConfigurationRecord,
    ConfigurationUsage,
    Fact,
    JournalUsage,
    Key,
    NamesDropped,
    TagsTrimmed,
    pointed_bytes,
)
from ares.replica.object_table import NAME_CHARACTERS_SURE, PythonObjectTable
from ares.replica.port import ObjectTable, PutEffect
from ares.replica.recent_changes import RecentChanges

INLINE_BYTES_MAX = 8 * 1024
"""Size up to which an element comes with every get-data answer, asked for or not."""

EXAMINED_AT_ONCE = 10
"""Objects examined for records at a place in a step of :meth:`ConfigurationState.held_at`."""

LEFT_SEEN_MAX = 1000
"""Objects left behind that a description looks at, besides the named objects."""

Clock = Callable[[], float]
"""Seconds since 1970."""


def no_clock() -> float:
    """Return 0, as the clock of a server without a clock."""
    return 0.0


class BadElement(AresError):
    """An element of another server, with a wrong seal, damaged, too large, or beyond all tags."""


class ConfigurationState:
    """State and answers for a configuration (Alg. 4:1-3).

    ``clock`` bounds the numbers of tags (:func:`ares.model.tag.number_max`), and has no other
    effect: the clock can make a server refuse, and never makes the server forget. ``objects``: the
    table of the versions held, empty at first; by default a table without a journal's account.
    ``share``: the configuration's part of that account. ``pointed_place``: the place of
    :meth:`pointed`; None while it has no place. ``note_final`` is called with every configuration
    known here to be finalized: the successor, or this configuration. ``carried``: number of values
    asked for by requests with a successor: movers, not users. ``answers``: the function for each
    kind of request, as a table: testing classes in sequence takes longer than answering.
    ``element_index``: index of the elements held here. ``capacity``: most versions of an object.
    ``order_known``: see below. ``value_bytes``: bytes of the largest new value taken from clients.
    ``changes``: the list for watches, which all configurations of a server share.

    The table remembers the objects with a put after nextC, and the server can say of the other
    objects that all their versions were here before: a mover finds these versions, because its
    requests install nextC. Where the order is not known, as after a restart, the server makes no
    such statement.
    """

    def __init__(
        self,
        configuration: Configuration,
        position: int,
        clock: Clock = no_clock,
        objects: ObjectTable | None = None,
        note_final: Callable[[Configuration], None] = lambda configuration: None,
        value_bytes: int = VALUE_BYTES_DEFAULT,
    ) -> None:
        self.configuration = configuration
        self.successor: Successor | None = None
        self.collected = False
        self.finalized = False
        self._note_final = note_final
        self.carried = 0
        self.pointed_place: int | None = None
        self._pointed_bytes = 0
        self.element_index = position if configuration.dap == "ec" else 0
        self.capacity = capacity(configuration)
        self.objects = PythonObjectTable(self.capacity) if objects is None else objects
        usage = self.objects.usage
        self._journaled = usage is not None
        self.share = ConfigurationUsage(JournalUsage()) if usage is None else usage
        self.drop_records = DropRecords(self.share)
        self._clock = clock
        self.changes = RecentChanges(lambda: 0)
        self.value_bytes = value_bytes
        self._left: SortedDict[ObjectName, None] = SortedDict()
        self._forgotten: SortedDict[ObjectName, None] = SortedDict()
        self._left_seen = ObjectName("")
        self.order_known = True
        self.answers: dict[type[Keyed], Callable[[Any], Reply]] = {
            GetTag: self.get_tag,
            GetData: self.get_data,
            GetAhead: self.get_ahead,
            PutData: self.put_data,
            ReadConfig: self.read_config,
            WriteConfig: self.write_config,
            ListObjects: self.list_objects,
            CollectConfig: self.collect,
            Finalize: self.finalize,
            QueryList: self.query_list,
            Drop: self.drop_names,
            WatchObjects: self.watch_objects,
        }

    def install(self, successor: Successor) -> None:
        """Move nextC (put-config, or carried by a request: rule R1).

        Raises :class:`ares.model.configuration.ConflictingSuccessor`.
        """
        self.successor = advance(self.configuration, self.successor, successor)
        if self.successor.finalized:
            self._note_final(self.successor.configuration)

    def read_config(self, request: ReadConfig) -> Ack:
        """Answer ReadConfig (Alg. 4:28-30)."""
        return Ack(request.call, self.successor)

    def learn(self, successor: Successor) -> None:
        """Install a client's successor as :meth:`install` does.

        Raises :class:`BadInput`, too, for a configuration larger than servers keep.
        """
        if successor != self.successor:
            successor.configuration.check_bounds()
        self.install(successor)

    def write_config(self, request: WriteConfig) -> Ack:
        """Answer WriteConfig (Alg. 4:31-35). Raises the errors of :meth:`learn`."""
        self.learn(request.successor)
        return Ack(request.call, self.successor)

    def finalize(self, request: Finalize) -> Ack:
        self.mark_finalized()
        return Ack(request.call, self.successor)

    def mark_finalized(self) -> None:
        """Record that this configuration is finalized, and may be named (rule R21).

        The configuration holds every version completed before it.
        """
        self.finalized = True
        self._note_final(self.configuration)

    def get_tag(self, request: GetTag) -> TagReply:
        """Answer GetTag (Alg. 4:4-7).

        Raises :class:`BadInput` for an impossible name, unless the object is present: an earlier
        release stored any name.
        """
        newest = self.objects.newest(request.object)
        if newest is None and not 0 < len(request.object) <= NAME_CHARACTERS_SURE:
            check_name(request.object)
        return TagReply(request.call, TAG_ZERO if newest is None else newest, self.successor)

    def get_data(self, request: GetData) -> DataReply:
        """Answer GetData (Alg. 4:8-15), with no element once the successor is finalized.

        Raises the errors of :meth:`get_tag` and of :meth:`learn`.
        """
        if request.successor is not None:
            self.carried += 1
            self.learn(request.successor)
        versions = self.objects.get(request.object)
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
        preceding = self.order_known and not self.objects.follows(request.object)
        return DataReply(
            request.call,
            versions.tags(),
            length,
            versions.trimmed,
            wanted,
            self.successor,
            preceding,
        )

    def get_ahead(self, request: GetAhead) -> DataReply:
        """Answer GetAhead as :meth:`get_data` does without a successor."""
        return self.get_data(
            GetData(
                request.call,
                request.configuration,
                request.object,
                request.element,
                request.wanted,
            )
        )

    def query_list(self, request: QueryList) -> ListReply:
        """Answer QueryList (Alg. 4:8-15), with no element once the successor is finalized.

        The elements stay in the answer to a request for the ``whole`` List. The version ``held`` by
        the client, and earlier versions, come without elements.

        Raises the errors of :meth:`get_tag`, of :meth:`learn` and of :meth:`_check_list`.
        """
        if request.successor is not None:
            self.carried += 1
            self.learn(request.successor)
        check_name(request.object)
        versions = self.objects.get(request.object)
        held = [] if versions is None else [(entry[0], entry[1]) for entry in versions.entries]
        if len(held) < self.capacity and not self.collected:
            none = sealed(
                self.configuration.id,
                request.object,
                TAG_ZERO,
                self.element_index,
                DELETED_LENGTH,
                (),
            )
            held.append((TAG_ZERO, none))
        withheld = not request.whole and self.successor is not None and self.successor.finalized
        newer = [entry for entry in held if request.held is None or entry[0] > request.held]
        sent = [] if withheld else newer
        self._check_list(request.object, sent)
        elements = dict(sent)
        entries = [ListEntry(tag, elements.get(tag)) for tag, _ in held]
        return ListReply(request.call, tuple(entries), self.successor)

    def _check_list(self, object: ObjectName, held: list[tuple[Tag, Element]]) -> None:
        """Raise :class:`BadInput` for a List of more data than the largest value.

        Raises :class:`BadElement` for a List with a damaged element: a List without this version
        says that the server never had the version.
        """
        elements = [element for _, element in held]
        size = sum(element.size for element in elements)
        parts = sum(len(element.parts) for element in elements)
        if size > self.value_bytes or parts >= FRAMES_MAX:
            raise BadInput(
                f"the List of {shown(object)} has {len(held)} elements of {size} bytes in all, and "
                f"a reply carries at most {self.value_bytes}: take a smaller delta"
            )
        sound = [not self._journaled or self.is_sound(object, *version) for version in held]
        if not all(sound):
            raise BadElement(
                f"{sound.count(False)} of the {len(held)} elements of {shown(object)} are damaged "
                "on this server's disk, and wait for their repair"
            )

    def is_sound(self, object: ObjectName, tag: Tag, element: Element) -> bool:
        """Return whether the element held under ``tag`` is as sealed; if not, treat it as missing.

        Called where the server has a journal: the journal's mapped data may have rotted, and is
        verified at every read. Data in memory is trusted: clients verify the data anyway.
        """
        if element.size < DETACHED_BYTES_MIN:
            return not is_hollow(element)
        self.share.account.verified_bytes += element.size
        sound = intact(self.configuration.id, object, tag, element)
        if not sound:
            self._found_damaged(object, tag)
        return sound

    def _found_damaged(self, object: ObjectName, tag: Tag) -> None:
        held = self.objects.version(object, tag)
        if held is None or is_hollow(held[1]):
            return
        _, element, place = held
        self.move(PutData(NO_CALL, self.configuration.id, object, tag, hollow(element)), place)
        self.share.account.suspects[place] = None

    def put_data(self, request: PutData) -> Ack:
        """Answer PutData (Alg. 4:16-27). Raises the errors of :meth:`put`."""
        self.put(request)
        return Ack(request.call, self.successor)

    def put(self, put: PutData, place: int = 0, checked: bool = False) -> Fact | None:
        """Store an element, journaled at ``place`` (Alg. 4:16-25).

        Raises :class:`BadElement` or :class:`BadInput`, unless the element was ``checked`` before;
        the element is not stored in this case. Returns the change: the put when it is stored, the
        tag when only ``trimmed`` rose, None without a change. A put of a held version repairs a
        hollow element. No element is kept for a collected configuration, nor for t0: (t0, v0) is in
        every List without being stored.
        """
        object, tag, element = put.object, put.tag, put.element
        if not checked:
            if not 0 < len(object) <= NAME_CHARACTERS_SURE:
                check_name(object)
            if element.length > self.value_bytes and not self._is_past(object, tag):
                raise BadElement(too_large(element.length, self.value_bytes))
            if (
                element.index != self.element_index
                or not LEFT_LENGTH <= element.length <= element.size * self.configuration.k
                or (len(element.parts) > 1 and is_in_crumbs(element))
                or not intact(put.configuration, object, tag, element)
            ):
                raise BadElement(
                    f"element {element.index} of {object!r} does not fit its checksum, its parts "
                    "or this server; it was not stored"
                )
            if tag.number > NUMBER_FLOOR:
                self._check_number(object, tag)
        if self.collected or tag == TAG_ZERO:
            return None
        if element.length == LEFT_LENGTH:
            self._left[object] = None
        effect = self.objects.put(object, tag, element, place, self.successor is not None)
        if effect == PutEffect.STORED:
            self.changes.note(put)
            return put
        if effect == PutEffect.TRIMMED:
            return TagsTrimmed(put.configuration, object, tag)
        held = self.objects.version(object, tag)
        if held is None or not is_hollow(held[1]):
            return None
        self.share.account.repaired += 1
        self.move(put, place)
        return put

    def drop_names(self, request: Drop) -> Ack:
        """Answer Drop. Raises the errors of :meth:`drop`."""
        self.drop(request)
        return Ack(request.call, self.successor)

    def drop(self, request: Drop, place: int = 0) -> NamesDropped | None:
        """Forget names, without a tombstone (rule R25).

        Returns the fact, to be journaled at ``place``, or None if no name was here. Raises
        :class:`WriteOnceRefusal` where names may be written again: an older write might come back.
        """
        if not self.configuration.write_once:
            raise WriteOnceRefusal(self.configuration.domain, False)
        places: set[int] = set()
        dropped = [name for name in request.names if self._forget(name, places)]
        if not dropped or not self._journaled:
            return None
        fact = NamesDropped(self.configuration.id, tuple(dropped), tuple(sorted(places)))
        self.drop_records.add(fact, place)
        return fact

    def _forget(self, name: ObjectName, places: set[int]) -> bool:
        """Forget a name; add the places of its records to ``places``."""
        forgotten = self.objects.forget(name)
        places.update(forgotten)
        self._left.pop(name, None)
        return bool(forgotten)

    def _is_past(self, object: ObjectName, tag: Tag) -> bool:
        """Return whether the version is held, with or without its data, or was replaced."""
        return self.objects.version(object, tag) is not None or self.objects.is_below(object, tag)

    def _check_number(self, object: ObjectName, tag: Tag) -> None:
        """Raise :class:`BadElement` for a number unreachable by writing, by this server's clock.

        A number just above a held version is accepted in any case. Hence an object which an earlier
        release, or a server with a fast clock, accepted under such a tag can be written and
        deleted; no client gains more by this than by as many writes.
        """
        newest = self.objects.newest(object)
        highest = number_max(self._clock())
        if tag.number > highest and (newest is None or tag.number > newest.number + 1):
            raise BadElement(
                f"the tag {tag} is beyond {highest}, which no sequence of writes reaches; it was "
                "not stored, and the stored version stays. Was the tag made by hand, or is a "
                "clock wrong?"
            )

    def collect(self, request: CollectConfig) -> Ack:
        """Answer gc-config (Alg. 4:36-43): only a finalized successor lets go of data."""
        self.learn(request.successor)
        if self.successor is not None and self.successor.finalized:
            self.let_go()
        return Ack(request.call, self.successor)

    def let_go(self) -> None:
        """Mark the configuration as collected: drop all objects, and keep none (Alg. 4:39-41).

        :meth:`release` frees their memory.
        """
        self.collected = True
        self.objects.clear()
        if self._left:
            self._forgotten, self._left = self._left, SortedDict()
        self.share.clear()
        self.drop_records.clear()
        if self.pointed_place is not None:
            self.share.add(self.pointed_place, self._pointed_bytes)

    def release(self, limit: int) -> bool:
        """Free ``limit`` dropped Lists and names left behind; return whether more are left."""
        for _ in range(min(limit, len(self._forgotten))):
            self._forgotten.popitem()
        return self.objects.release(limit) or bool(self._forgotten)

    def list_objects(self, request: ListObjects) -> ObjectsReply:
        """Answer ListObjects.

        Impossible names are passed over: an earlier release stored any name, and no client can read
        such an object. Raises :class:`BadInput`.
        """
        if not fits(request.after, KEY_BYTES_MAX) or not fits(request.prefix, KEY_BYTES_MAX):
            raise BadInput(
                f"a listing begins after a name, and with a prefix, of at most {KEY_BYTES_MAX} "
                "bytes"
            )
        if request.successor is not None:
            self.learn(request.successor)
        limit = min(max(request.limit, 1), PAGE_OBJECTS_MAX)
        page, more = self.objects.page(request.after, request.prefix, limit)
        return ObjectsReply(request.call, page, more, self.successor)

    def watch_objects(self, request: WatchObjects) -> ChangedObjects:
        """Answer WatchObjects, and begin the server's list of changes (rule R26).

        A watcher whose changes are not all here gets the listing, and every change from now on.
        Raises :class:`BadInput`.
        """
        after, prefix, position = request.after, request.prefix, request.position
        if not fits(prefix, KEY_BYTES_MAX) or not fits(after or "", KEY_BYTES_MAX):
            raise BadInput(f"a watch is of names of at most {KEY_BYTES_MAX} bytes")
        changes = self.changes
        changes.ask()
        if not changes.covers(request.epoch, position):
            after, position = "", changes.newest
        if after is None:
            position, objects = changes.since(position, self.configuration.id, prefix)
        else:
            objects, more = self.objects.page(after, prefix, PAGE_OBJECTS_MAX)
            after = objects[-1].name if more else None
        more = after is not None or position < changes.newest
        return ChangedObjects(
            request.call, changes.epoch, position, after, objects, more, self.successor
        )

    @property
    def bytes(self) -> int:
        """Return the bytes of all elements held."""
        return self.objects.bytes

    @property
    def elements(self) -> int:
        """Return the number of elements held."""
        return self.objects.elements

    def describe(self) -> ConfigurationReport:
        left, named = self.left_behind()
        return ConfigurationReport(
            self.configuration,
            len(self.objects),
            self.bytes,
            self.collected,
            self.successor,
            left,
            named,
        )

    def left_behind(self) -> tuple[int, tuple[ObjectName, ...]]:
        """Return the number of objects left behind, and the first names.

        The newest version of such an object is a mark. A call forgets replaced objects among the
        next LEFT_SEEN_MAX names, so the number is exact up to as many objects, and a little late
        beyond: a million marks must not cost a second for each description.
        """
        left = self._left
        seen = list(islice(left.irange(self._left_seen), LEFT_SEEN_MAX))
        self._left_seen = seen[-1] if len(seen) == LEFT_SEEN_MAX else ObjectName("")
        for name in [*seen, *islice(left, LEFT_NAMED_MAX)]:
            if not self._is_left_behind(name):
                left.pop(name, None)
        return len(left), tuple(filter(self._is_left_behind, islice(left, LEFT_NAMED_MAX)))

    def _is_left_behind(self, name: ObjectName) -> bool:
        newest = self.objects.newest(name)
        held = None if newest is None else self.objects.version(name, newest)
        return held is not None and held[1].length == LEFT_LENGTH

    # -- the journal -------------------------------------------------------------------------------

    def pointed(self) -> ConfigurationRecord:
        """Return the fact with all state of this configuration except the objects."""
        return ConfigurationRecord(
            self.configuration, self.successor, self.collected, self.finalized
        )

    def is_recorded_by(self, fact: ConfigurationRecord) -> bool:
        """Return whether ``fact`` is the latest.

        An earlier release leaves out that the configuration is finalized, which stays true.
        """
        return (fact.successor, fact.collected) == (self.successor, self.collected)

    def point_from(self, place: int) -> None:
        """Record ``place`` as the journal's place of :meth:`pointed`."""
        if self.pointed_place is not None:
            self.share.add(self.pointed_place, -self._pointed_bytes)
        self.pointed_place, self._pointed_bytes = (
            place,
            pointed_bytes(self.configuration, self.successor),
        )
        self.share.add(place, self._pointed_bytes)

    def knows(self, object: ObjectName, tag: Tag) -> bool:
        """Return whether a put of ``tag`` would change no state.

        The version is held with its data, or was dropped and would be dropped again.
        """
        held = self.objects.version(object, tag)
        if held is not None:
            return not is_hollow(held[1])
        return self.collected or (
            self.objects.is_below(object, tag) and tag <= self._trimmed(object)
        )

    def _trimmed(self, object: ObjectName) -> Tag:
        trimmed = self.objects.trimmed(object)
        return TAG_ZERO if trimmed is None else trimmed[0]

    def move(self, fact: PutData | TagsTrimmed | NamesDropped, place: int) -> None:
        """Record ``place`` as the journal's place of ``fact``, which is held or needed.

        The element of a put replaces the held element.
        """
        if isinstance(fact, NamesDropped):
            self.drop_records.add(fact, place)
            return
        if isinstance(fact, TagsTrimmed):
            self.objects.move_trimmed(fact.object, place)
            return
        self.objects.move(fact.object, fact.tag, fact.element, place)
        self._note(fact)

    def restore(self, fact: PutData | TagsTrimmed | NamesDropped, place: int) -> None:
        """Join a fact which the journal has at ``place``, the last of several copies.

        The places of the earlier copies may be about to go. An earlier copy of an element was
        copied when seen to be intact; or it had rotted, and this copy records the damage or repairs
        it.
        """
        if isinstance(fact, PutData):
            if self.objects.version(fact.object, fact.tag) is not None:
                self.move(fact, place)
            else:
                self.put(fact, place, checked=True)
                self._note(fact)
        elif isinstance(fact, NamesDropped):
            for name in fact.names:
                self._forget(name, set())
            if not self.collected:
                self.drop_records.add(fact, place)
        elif not self.collected:
            self.objects.trim(fact.object, fact.tag, place)

    def _note(self, put: PutData) -> None:
        if is_hollow(put.element):
            self.share.account.hollows[put.configuration, put.object, put.tag] = None

    def begin_restoring(self) -> None:
        """Expect facts, until :meth:`restored`."""
        self.objects.begin_loading()

    def restored(self) -> None:
        """End the restoring: every fact was given, serve from now on.

        Facts come in any order: the versions present before nextC are unknown.
        """
        self.order_known = self.successor is None
        self.objects.end_loading()

    def held_at(
        self, place: int, readable: Container[Key] | None
    ) -> Iterator[PutData | TagsTrimmed | None]:
        """Yield the held facts at ``place``, from memory.

        See :meth:`ares.replica.replica.Replica.held_at`.
        """
        found, after = self.objects.at_place(place, None, EXAMINED_AT_ONCE)
        while after is not None:
            yield None
            for object in found:
                yield from self._held_at(object, place, readable)
            found, after = self.objects.at_place(place, after, EXAMINED_AT_ONCE)

    def _held_at(
        self, object: ObjectName, place: int, readable: Container[Key] | None
    ) -> Iterator[PutData | TagsTrimmed]:
        id, versions = self.configuration.id, self.objects.get(object)
        if versions is None:
            return
        if versions.trimmed_place == place and versions.trimmed != TAG_ZERO:
            yield TagsTrimmed(id, object, versions.trimmed)
        for tag, element, its_place in list(versions.entries):
            if its_place == place:
                is_mapped = element.size >= DETACHED_BYTES_MIN
                lost = readable is not None and is_mapped and (id, object, tag) not in readable
                yield PutData(NO_CALL, id, object, tag, hollow(element) if lost else element)


def check_name(name: ObjectName) -> None:
    """Raise :class:`BadInput` for an impossible name of an object."""
    if not is_object_name(name):
        raise BadInput(f"the name of an object has 1 to {KEY_BYTES_MAX} bytes of UTF-8")
