"""Facts: what of a replica must outlast its process, each true for ever.

A fact is an element stored, the highest tag dropped from a List, or what is known of a configuration. Joining is all there is: tags, pointers and
collections only move forward (docs/protocol.md, Invariants), so the state is the same in whatever order facts are joined, and however often one is
repeated.
Requests that change nothing leave no fact: what clients send again fills no disk.

Where the facts are in the journal is known, so that what is no longer needed can be given back. A *place* is a number that the journal chose (its
segment). The account counts the bytes at each place that are still needed: about, which is all that choosing what to compact takes; what is really
needed is asked of the versions themselves (ares/dap/list.py), each of which knows its place.

An element that rotted is *hollow* (ares/model/element.py): its tag stays in the List, where it counts, its data is missing. It is quarantined until
somebody puts the same version again.
"""

import msgspec
from msgspec import Struct

from ares.dap.list import Versions
from ares.model.configuration import Configuration, Successor
from ares.model.identity import ConfigurationId, ObjectName
from ares.model.messages import PutData
from ares.model.tag import TAG_ZERO, Tag


class Pointed(Struct, frozen=True, array_like=True, tag=128):
    """A configuration that this server hosts, and all that it knows of it but the objects: nextC, and whether it was collected.

    ``finalized``: the server was told that it is (rule R21).
    """

    configuration: Configuration
    successor: Successor | None
    collected: bool
    finalized: bool = False


class TagsTrimmed(Struct, frozen=True, array_like=True, gc=False, tag=129):
    """The highest tag that was dropped from an object's List, when its element is not kept."""

    configuration: ConfigurationId
    object: ObjectName
    tag: Tag


Fact = PutData | Pointed | TagsTrimmed

_PUT_BYTES = 80
_TRIMMED_BYTES = 48
_PUT_BYTES_MAX = 176
_PART_BYTES_MAX = 16
_POINTED_BYTES_MAX = 64
_CHARACTER_BYTES_MAX = 4
_encode = msgspec.msgpack.Encoder().encode


def put_bytes(object: ObjectName, data_bytes: int) -> int:
    """What an element takes in a journal, about; for the account of what is still needed."""
    return _PUT_BYTES + len(object) + data_bytes


def trimmed_bytes(object: ObjectName) -> int:
    """What :class:`TagsTrimmed` takes in a journal, about."""
    return _TRIMMED_BYTES + len(object)


def pointed_bytes(*contents: Configuration | Successor | None) -> int:
    """What a :class:`Pointed` of these contents takes at most."""
    return _POINTED_BYTES_MAX + sum(len(_encode(content)) for content in contents)


def fact_bytes_max(fact: Fact) -> int:
    """What a fact takes in a journal at most."""
    match fact:
        case PutData():
            parts = fact.element.parts
            size = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
            return (
                _PUT_BYTES_MAX
                + _CHARACTER_BYTES_MAX * len(fact.object)
                + _PART_BYTES_MAX * len(parts)
                + size
            )
        case TagsTrimmed():
            return _PUT_BYTES_MAX + _CHARACTER_BYTES_MAX * len(fact.object)
        case Pointed():
            return pointed_bytes(fact.configuration, fact.successor)


# -- places -----------------------------------------------------------------------------------------------------------

Key = tuple[ConfigurationId, ObjectName, Tag]
"""Names a version's element at this server."""


class Account:
    """``live``: bytes of the journal still needed, about, by place; ``died``: bytes no longer needed, ever counted up.

    ``hollows``: every element that is held hollow and is missed, and some that were; ``repaired``: how many were put again. ``suspects``: places
    whose elements were found damaged by looking at them; ``verified_bytes``: what was looked at for it.
    """

    def __init__(self) -> None:
        self.live: dict[int, int] = {}
        self.died = 0
        self.hollows: dict[Key, None] = {}
        self.repaired = 0
        self.suspects: dict[int, None] = {}
        self.verified_bytes = 0


class Share:
    """One configuration's part of the account: collecting it costs a step for each place and not for each object."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self._live: dict[int, int] = {}

    def add(self, place: int, bytes: int) -> None:
        """More at a place; less when ``bytes`` is negative."""
        self._live[place] = self._live.get(place, 0) + bytes
        live = self.account.live
        live[place] = live.get(place, 0) + bytes
        if bytes < 0:
            self.account.died -= bytes

    def exchange(self, old_place: int, old_bytes: int, place: int, bytes: int) -> None:
        """What took ``old_bytes`` at ``old_place`` is no longer needed, and something at ``place`` is: mostly the same one."""
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

    def tell_trimmed(self, object: ObjectName, versions: Versions, place: int, before: Tag) -> None:
        """The journal tells at ``place`` what ``versions`` of ``object`` dropped; until now it told ``before``."""
        bytes = trimmed_bytes(object)
        if before != TAG_ZERO:
            self.exchange(versions.trimmed_place, bytes, place, bytes)
        else:
            self.add(place, bytes)
        versions.trimmed_place = place
