"""Facts: what of a replica must outlast its process, each true for ever.

A fact is an element stored, the highest tag dropped from a List, or what is known of a configuration. Joining is all there is: tags, pointers and
collections only move forward (protocol section 14), so the state is the same in whatever order facts are joined and however often one is repeated.
Requests that change nothing leave no fact: what clients send again fills no disk.
"""

import msgspec
from msgspec import Struct

from ares.model.configuration import Configuration, Successor
from ares.model.identity import ConfigurationId, ObjectName
from ares.model.messages import PutData
from ares.model.tag import Tag


class Pointed(Struct, frozen=True, array_like=True, tag=128):
    """A configuration that this server hosts, and all that it knows of it but the objects: nextC, and whether it was collected."""

    configuration: Configuration
    successor: Successor | None
    collected: bool


class Trimmed(Struct, frozen=True, array_like=True, gc=False, tag=129):
    """The highest tag that was dropped from an object's List, when its element is not kept."""

    configuration: ConfigurationId
    object: ObjectName
    tag: Tag


Fact = PutData | Pointed | Trimmed

_PUT_BYTES = 80
_TRIMMED_BYTES = 48
_PUT_BYTES_MAX = 176
_PART_BYTES_MAX = 16
_POINTED_BYTES_MAX = 64
_CHARACTER_BYTES_MAX = 4
_encode = msgspec.msgpack.Encoder().encode


def put_bytes(object: ObjectName, data_bytes: int) -> int:
    """What an element takes in a journal, about; for the account of what is still needed, see ares/replica/places.py."""
    return _PUT_BYTES + len(object) + data_bytes


def trimmed_bytes(object: ObjectName) -> int:
    """What :class:`Trimmed` takes in a journal, about."""
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
            return _PUT_BYTES_MAX + _CHARACTER_BYTES_MAX * len(fact.object) + _PART_BYTES_MAX * len(parts) + size
        case Trimmed():
            return _PUT_BYTES_MAX + _CHARACTER_BYTES_MAX * len(fact.object)
        case Pointed():
            return pointed_bytes(fact.configuration, fact.successor)
