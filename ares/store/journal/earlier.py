"""Batches with elements in more parts than are taken today: earlier releases took any number, and what they acknowledged must be found again."""

from typing import NamedTuple

import msgspec
from msgspec import Struct

from ares.model.identity import ConfigurationId, ObjectName
from ares.model.messages import PARTS_MAX, Element, Message, PutData
from ares.model.tag import Tag
from ares.replica.facts import Fact, Pointed, Trimmed


class _Element(Struct, frozen=True, array_like=True, gc=False):
    index: int
    length: int
    checksum: int
    parts: tuple[bytes, ...]
    frame: int = -1


class _Put(Message, frozen=True, tag=3):
    configuration: ConfigurationId
    object: ObjectName
    tag: Tag
    element: _Element


class _Batch(Struct, frozen=True, array_like=True):
    facts: list[_Put | Pointed | Trimmed]
    discarded: tuple[int, ...] = ()


class Earlier(NamedTuple):
    """What :class:`ares.store.journal.format.Batch` has."""

    facts: list[Fact]
    discarded: tuple[int, ...]


_decode = msgspec.msgpack.Decoder(_Batch).decode


def decode_earlier(body: bytes | memoryview) -> Earlier:
    """The batch of a frame with this body, whatever the number of parts. Small elements in too many come in one, which their seal does not tell
    apart; the data of large ones is not in the body. Raises msgspec.MsgspecError, ValueError or RecursionError."""
    batch = _decode(body)
    return Earlier([_today(fact) if isinstance(fact, _Put) else fact for fact in batch.facts], batch.discarded)


def _today(put: _Put) -> PutData:
    element, parts = put.element, put.element.parts
    if element.frame == -1 and len(parts) > PARTS_MAX:
        parts = (b"".join(parts),)
    whole = Element(element.index, element.length, element.checksum, parts, element.frame)
    return PutData(put.call, put.configuration, put.object, put.tag, whole)
