"""Facts: the part of a replica which must outlast its process; each fact is true for ever.

A fact is a stored element, the highest tag dropped from a List, or the server's knowledge of a
configuration. Facts are only joined: tags, pointers and collections only move forward
(docs/protocol.md, Invariants), hence the state is the same for any order of facts and any
repetition of a fact. The exception are names dropped from a write-once domain (rule R25): a journal
gives its facts in the order of their writing, and a dropped name is never written again. Requests
without a change leave no fact: a client's repetitions fill no disk.

The places of the facts in the journal are known, hence unneeded places can be given back. A *place*
is a number chosen by the journal (its segment). The account counts the bytes still needed at each
place: approximately, which suffices for the choice of a place to compact. The exact need is known
from the versions themselves (ares/dap/version_list.py), each with its place.

A rotten element is *hollow* (ares/model/element.py): its tag stays in the List, where the tag
counts, without the data. The element is quarantined until a client puts the same version again.
"""

from collections.abc import Collection, Iterable

import msgspec
from msgspec import Struct

from ares.model.configuration import Configuration, Successor
from ares.model.identity import ConfigurationId, ObjectName
from ares.model.messages import PutData
from ares.model.tag import Tag


class ConfigurationRecord(Struct, frozen=True, array_like=True, tag=128):
    """A configuration hosted by this server, with all its state except the objects.

    The state is nextC, and whether the configuration was collected. ``finalized``: the server was
    told of the finalization (rule R21).
    """

    configuration: Configuration
    successor: Successor | None
    collected: bool
    finalized: bool = False


class TagsTrimmed(Struct, frozen=True, array_like=True, gc=False, tag=129):
    """The highest tag dropped from an object's List, when its element is not kept."""

    configuration: ConfigurationId
    object: ObjectName
    tag: Tag


class NamesDropped(Struct, frozen=True, array_like=True, gc=False, tag=130):
    """Names dropped from a write-once configuration, and the places of their other records.

    The fact is needed as long as one of ``places`` exists: a start would find the names there.
    """

    configuration: ConfigurationId
    names: tuple[ObjectName, ...]
    places: tuple[int, ...]


Fact = PutData | ConfigurationRecord | TagsTrimmed | NamesDropped

PUT_BYTES = 80
TRIMMED_BYTES = 48
DROPPED_NAME_BYTES = 4
PUT_BYTES_MAX = 176
PART_BYTES_MAX = 16
_POINTED_BYTES_MAX = 64
PLACE_BYTES_MAX = 9
CHARACTER_BYTES_MAX = 4
_encode = msgspec.msgpack.Encoder().encode


def put_bytes(object: ObjectName, data_bytes: int) -> int:
    """Return the bytes of an element in a journal, approximately, for the account."""
    return PUT_BYTES + len(object) + data_bytes


def trimmed_bytes(object: ObjectName) -> int:
    """Return the bytes of a :class:`TagsTrimmed` in a journal, approximately."""
    return TRIMMED_BYTES + len(object)


def dropped_bytes(names: Iterable[ObjectName]) -> int:
    """Return the bytes of a :class:`NamesDropped` in a journal, approximately."""
    return TRIMMED_BYTES + sum([DROPPED_NAME_BYTES + len(name) for name in names])


def pointed_bytes(*contents: Configuration | Successor | None) -> int:
    """Return the most bytes of a :class:`ConfigurationRecord` with these contents."""
    return _POINTED_BYTES_MAX + sum(len(_encode(content)) for content in contents)


def fact_bytes_max(fact: Fact) -> int:
    """Return the most bytes of a fact in a journal."""
    match fact:
        case PutData():
            parts = fact.element.parts
            size = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
            return (
                PUT_BYTES_MAX
                + CHARACTER_BYTES_MAX * len(fact.object)
                + PART_BYTES_MAX * len(parts)
                + size
            )
        case TagsTrimmed():
            return PUT_BYTES_MAX + CHARACTER_BYTES_MAX * len(fact.object)
        case NamesDropped():
            return dropped_bytes_max(fact.names) + PLACE_BYTES_MAX * len(fact.places)
        case ConfigurationRecord():
            return pointed_bytes(fact.configuration, fact.successor)


def dropped_bytes_max(names: Collection[ObjectName]) -> int:
    """Return the most bytes of a :class:`NamesDropped` without its places."""
    characters = sum(map(len, names))
    return PUT_BYTES_MAX + DROPPED_NAME_BYTES * len(names) + CHARACTER_BYTES_MAX * characters


# -- places ----------------------------------------------------------------------------------------

Key = tuple[ConfigurationId, ObjectName, Tag]
"""The name of a version's element at this server."""


class JournalUsage:
    """The account of a journal's bytes.

    ``live``: bytes still needed at each place, approximately; ``died``: bytes no longer needed,
    ever counted up. ``hollows``: every element held hollow and missed, and some former ones;
    ``repaired``: number of elements put again. ``suspects``: places with elements found damaged by
    a read; ``verified_bytes``: bytes read for this.
    """

    def __init__(self) -> None:
        self.live: dict[int, int] = {}
        self.died = 0
        self.hollows: dict[Key, None] = {}
        self.repaired = 0
        self.suspects: dict[int, None] = {}
        self.verified_bytes = 0


class ConfigurationUsage:
    """A configuration's part of the account.

    Collecting the configuration costs a step for each place, not for each object.
    """

    def __init__(self, account: JournalUsage) -> None:
        self.account = account
        self._live: dict[int, int] = {}

    def add(self, place: int, bytes: int) -> None:
        """Add bytes at a place; remove bytes when ``bytes`` is negative."""
        self._live[place] = self._live.get(place, 0) + bytes
        live = self.account.live
        live[place] = live.get(place, 0) + bytes
        if bytes < 0:
            self.account.died -= bytes

    def exchange(self, old_place: int, old_bytes: int, place: int, bytes: int) -> None:
        """Replace ``old_bytes`` at ``old_place`` by ``bytes`` at ``place``, mostly one element."""
        if place != old_place:
            self.add(place, bytes)
            self.add(old_place, -old_bytes)
            return
        if bytes != old_bytes:
            self._live[place] += bytes - old_bytes
            self.account.live[place] += bytes - old_bytes
        self.account.died += old_bytes

    def clear(self) -> None:
        for place, bytes in self._live.items():
            self.account.live[place] -= bytes
            self.account.died += bytes
        self._live.clear()
