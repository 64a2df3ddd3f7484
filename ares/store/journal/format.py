"""The bytes of a journal's segments, and the readable part of a torn segment.

No I/O: all functions work on memory. A segment is a row of frames, each aligned to 8 bytes:

    prefix   magic (8 bytes) | sequence u64 | synced u64 | body bytes u32 | parts u32 | check u64
    table    length of each part, u64
    body     MessagePack
    parts    the data of large elements, one after another; padded with zeros to 8 bytes

``check`` is XXH3-64 over the rest of the prefix, the table and the body; seeded, for the head with
the segment's number and for further frames with a random salt given in the head, hence no data of a
client can pass for a frame. Parts are not covered: each element carries its own seal
(ares/model/element.py), hence a restart need not read them. Three kinds of frames: the *head*
(once, first), *batches* of facts (numbered without gaps), and the *mark*, which has no content
except ``synced``; the next batch is written over the mark.

``synced``: the number of the last batch that was durable when this frame was written. Batches up to
that number may have been acknowledged: a missing or broken batch among them is damage. A broken
batch after them is the normal trace of a crash.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import cast

import msgspec
from msgspec import Struct
from xxhash import xxh3_64, xxh3_64_intdigest

from ares.model.codec import DETACHED_BYTES_MIN, Encoded, encode_array
from ares.model.element import intact
from ares.model.errors import AresError
from ares.model.identity import ConfigurationId, ObjectName
from ares.model.messages import ELEMENT_PARTS_MAX, Element, Message, PutData
from ares.model.tag import Tag
from ares.replica.facts import ConfigurationRecord, TagsTrimmed
from ares.sharedlog.log_facts import EncodedFact
from ares.store.port import Stored

JOURNAL_FORMAT = 1
SEGMENT_MAGIC = b"ares-seg"
BATCH_MAGIC = b"ares-bat"
MARK_MAGIC = b"ares-mrk"
ALIGNMENT = 8

_prefix = struct.Struct("<8sQQII")
_check = struct.Struct("<Q")
BATCH_PREFIX_BYTES = _prefix.size + _check.size
BATCH_FRAME_BYTES_MAX = BATCH_PREFIX_BYTES + 64
"""Most bytes of a batch beside its facts."""

LARGE_BODY_BYTES = 16 * 1024
"""Bytes of a body from which a check copies nothing."""

LONG_BODY_BYTES, FACTS_AT_ONCE = 256 * 1024, 1000
"""Bytes of a body whose facts are decoded at once, and facts of a longer body decoded at once."""

LOOKED_AT_SHARE = 16
"""Limit of a search for frames, as a multiple of the bytes present: real frames do not overlap."""

Buffer = bytes | memoryview


class Damage(AresError):
    """A segment lacks durable bytes, or cannot be read."""


class UnknownFormat(Damage):
    """A segment was written by an unknown release."""


class Head(Struct, frozen=True, array_like=True):
    """The first frame: the owner of the journal.

    ``first``: number of the segment's first batch. ``salt``: seed of its further frames.
    ``earlier``: (number, bytes) of every segment that existed before it.
    """

    format: int
    cluster: bytes
    server: str
    identity: str
    number: int
    salt: int
    first: int
    earlier: tuple[tuple[int, int], ...]


class Batch(Struct, frozen=True, array_like=True):
    """Facts that become durable together.

    ``discarded``: segments that may be gone once this batch is durable.
    """

    facts: list[Stored]
    discarded: tuple[int, ...] = ()


class _UnreadBatch(Struct, frozen=True, array_like=True):
    facts: msgspec.Raw
    discarded: tuple[int, ...] = ()


class _RawBatch(Struct, frozen=True, array_like=True):
    facts: list[msgspec.Raw]


class _LogBatch(Struct, frozen=True, array_like=True):
    facts: list[EncodedFact]


class Frame(Struct, frozen=True):
    """A frame with a correct check, from ``start`` to ``end`` of its segment.

    ``parts`` are (start, end) of the data.
    """

    magic: bytes
    sequence: int
    synced: int
    start: int
    end: int
    body: memoryview
    parts: tuple[tuple[int, int], ...]


class _EarlierElement(Struct, frozen=True, array_like=True, gc=False):
    """An element in any number of parts.

    Earlier releases took more than ELEMENT_PARTS_MAX, and their acknowledged elements must be found
    again.
    """

    index: int
    length: int
    checksum: int
    parts: tuple[bytes, ...]
    frame: int = -1


class _EarlierPut(Message, frozen=True, tag=3):
    configuration: ConfigurationId
    object: ObjectName
    tag: Tag
    element: _EarlierElement


class _EarlierBatch(Struct, frozen=True, array_like=True):
    facts: list[_EarlierPut | ConfigurationRecord | TagsTrimmed]
    discarded: tuple[int, ...] = ()


_BATCH_FIELDS, _FILLED_FIELDS, _EMPTY, _FILLER = b"\x92", b"\x93", b"\x90", 0xC6
_filler = struct.Struct(">BI")
_encode = msgspec.msgpack.Encoder().encode
_decode_head = msgspec.msgpack.Decoder(Head).decode
_decode_batch = msgspec.msgpack.Decoder(Batch).decode
_decode_unread_batch = msgspec.msgpack.Decoder(_UnreadBatch).decode
_decode_raw_batch = msgspec.msgpack.Decoder(_RawBatch).decode
_decode_log_batch = msgspec.msgpack.Decoder(_LogBatch).decode
_decode_earlier = msgspec.msgpack.Decoder(_EarlierBatch).decode


# -- writing ---------------------------------------------------------------------------------------


def encode_frame(
    magic: bytes, sequence: int, synced: int, seed: int, body: bytes, parts: Sequence[Buffer] = ()
) -> list[Buffer]:
    """Return the buffers of a frame, in order."""
    prefix = _prefix.pack(magic, sequence, synced, len(body), len(parts))
    if not parts:
        return [
            b"".join(
                (prefix, _checked(prefix, b"", body, seed), body, bytes(-len(body) % ALIGNMENT))
            )
        ]
    table = struct.pack(f"<{len(parts)}Q", *map(len, parts))
    check = _checked(prefix, table, body, seed)
    padding = bytes(-(len(body) + sum(map(len, parts))) % ALIGNMENT)
    return [prefix + check + table + body, *parts, padding]


def encode_head(head: Head) -> list[Buffer]:
    return encode_frame(SEGMENT_MAGIC, 0, 0, head.number, _encode(head))


def encode_mark(synced: int, salt: int) -> list[Buffer]:
    return encode_frame(MARK_MAGIC, 0, synced, salt, b"")


def encode_batch(
    sequence: int,
    synced: int,
    salt: int,
    facts: Sequence[Stored | Encoded],
    discarded: Sequence[int] = (),
    large: bool = True,
) -> list[Buffer]:
    """Return the frame of a :class:`Batch`; parts of large elements are own buffers, never copied.

    ``large``: the facts may have large elements.
    """
    parts: list[Buffer] = []
    if large:
        facts = [
            _without_data(fact, parts)
            if type(fact) is PutData and fact.element.size >= DETACHED_BYTES_MIN
            else fact
            for fact in facts
        ]
    return encode_frame(
        BATCH_MAGIC,
        sequence,
        synced,
        salt,
        _BATCH_FIELDS + encode_array(facts) + _encode(discarded),
        parts,
    )


def encode_filled(
    sequence: int, salt: int, batches: Sequence[Sequence[Stored]], size: int
) -> list[bytes] | None:
    """Return batches from ``sequence`` on, of ``size`` bytes in all, or None if they need more.

    The last batch has a filler, which every release passes over.
    """
    frames = [
        b"".join(encode_batch(number, sequence - 1, salt, facts, large=False))
        for number, facts in enumerate(batches[:-1], sequence)
    ]
    body = encode_array(batches[-1]) + _EMPTY
    left = size - sum(map(len, frames)) - BATCH_PREFIX_BYTES - 1 - len(body)
    if left < 0:
        return None
    if left < ALIGNMENT:
        body = _BATCH_FIELDS + body
    else:
        filler = left - _filler.size
        body = _FILLED_FIELDS + body + _filler.pack(_FILLER, filler) + bytes(filler)
    last = sequence + len(frames)
    return [*frames, b"".join(encode_frame(BATCH_MAGIC, last, sequence - 1, salt, body))]


def _without_data(put: PutData, parts: list[Buffer]) -> PutData:
    """Return the form of a large put in the body; its data join ``parts``."""
    element, first = put.element, len(parts)
    parts.extend(element.parts)
    empty = Element(
        element.index, element.length, element.checksum, (b"",) * len(element.parts), first
    )
    return msgspec.structs.replace(put, element=empty)


def _checked(prefix: bytes, table: Buffer, body: Buffer, seed: int) -> bytes:
    if len(body) < LARGE_BODY_BYTES:
        return _check.pack(xxh3_64_intdigest(b"".join((prefix, table, body)), seed))
    check = xxh3_64(prefix, seed)  # some releases of xxhash release the interpreter at each step
    check.update(table)
    check.update(body)
    return _check.pack(check.intdigest())


# -- reading ---------------------------------------------------------------------------------------


def metadata_bytes(prefix: Buffer) -> int:
    """Return the bytes of prefix, table and body of the frame with this prefix.

    Any number, if the prefix belongs to no frame.
    """
    _, _, _, body_bytes, count = _prefix.unpack_from(prefix)
    return BATCH_PREFIX_BYTES + 8 * cast(int, count) + cast(int, body_bytes)


def parse_frame(view: memoryview, start: int, seed: int, size: int | None = None) -> Frame | None:
    """Return the frame at ``start`` of a segment, or None without a frame with a correct check.

    ``size``: the size of the segment, if ``view`` may lack the parts.
    """
    table_start = start + BATCH_PREFIX_BYTES
    if table_start > len(view):
        return None
    magic, sequence, synced, body_bytes, count = _prefix.unpack_from(view, start)
    body_start = table_start + 8 * count
    if magic not in (SEGMENT_MAGIC, BATCH_MAGIC, MARK_MAGIC) or body_start + body_bytes > len(view):
        return None
    body = view[body_start : body_start + body_bytes]
    check = _checked(
        bytes(view[start : start + _prefix.size]), view[table_start:body_start], body, seed
    )
    if check != view[start + _prefix.size : table_start]:
        return None
    parts, end = [], body_start + body_bytes
    for length in struct.unpack_from(f"<{count}Q", view, table_start):
        parts.append((end, end + length))
        end += length
    end += -end % ALIGNMENT
    return (
        Frame(magic, sequence, synced, start, end, body, tuple(parts))
        if end <= (len(view) if size is None else size)
        else None
    )


def decode_head(frame: Frame) -> Head:
    """Return the head in a frame.

    Raises :class:`Damage`, for a format unknown to this release, too.
    """
    try:
        head = _decode_head(frame.body)
    except msgspec.MsgspecError as error:
        raise Damage(f"its head is not readable by this release: {error}") from error
    if head.format != JOURNAL_FORMAT:
        raise UnknownFormat(
            f"it has format {head.format} and this release knows {JOURNAL_FORMAT}: use the "
            "release that wrote it, or a newer one"
        )
    return head


def decode_batch(frame: Frame, view: memoryview) -> Batch:
    """Return the batch in a frame; the parts of its large elements are views into the segment.

    Raises :class:`Damage`.
    """
    batch = decode_body(frame)
    facts = batch.facts
    for position, fact in enumerate(facts):
        if type(fact) is PutData and fact.element.frame != -1:
            spans = detached(frame, fact)
            if len(spans) > ELEMENT_PARTS_MAX:
                # an earlier release took it; the parts lie in sequence
                spans = ((spans[0][0], spans[-1][1]),)
            facts[position] = attach(fact, [view[begin:end] for begin, end in spans])
    return batch


def facts_of(frame: Frame, view: memoryview) -> Iterator[Stored]:
    """Yield the facts of :func:`decode_batch`, decoded FACTS_AT_ONCE at a time in a long batch.

    A commit after a stall of the disk may have hundreds of thousands of facts. Raises
    :class:`Damage`.
    """
    if len(frame.body) <= LONG_BODY_BYTES:
        yield from decode_batch(frame, view).facts
        return
    try:
        facts = _decode_raw_batch(frame.body).facts
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Damage(f"batch {frame.sequence} is not readable by this release: {error}") from error
    for first in range(0, len(facts), FACTS_AT_ONCE):
        body = _BATCH_FIELDS + _encode(facts[first : first + FACTS_AT_ONCE]) + _EMPTY
        part = msgspec.structs.replace(frame, body=memoryview(body))
        yield from decode_batch(part, view).facts


def decode_body(frame: Frame) -> Batch:
    """Return the batch in a frame without the data of large elements. Raises :class:`Damage`."""
    try:
        try:
            return _decode_batch(frame.body)
        except msgspec.ValidationError:
            earlier = _decode_earlier(frame.body)
            return Batch(
                [_today(fact) if isinstance(fact, _EarlierPut) else fact for fact in earlier.facts],
                earlier.discarded,
            )
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Damage(f"batch {frame.sequence} is not readable by this release: {error}") from error


def discarded_by(frame: Frame) -> tuple[int, ...]:
    """Return the discarded segments that the batch names, without its facts. Raises Damage."""
    try:
        return _decode_unread_batch(frame.body).discarded
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Damage(f"batch {frame.sequence} is not readable by this release: {error}") from error


def decode_log_batch(frame: Frame) -> Sequence[EncodedFact]:
    """Return the facts of a log in a frame, with undecoded records. Raises :class:`Damage`."""
    try:
        return _decode_log_batch(frame.body).facts
    except msgspec.MsgspecError as error:
        raise Damage(f"batch {frame.sequence} is not readable by this release: {error}") from error


def _today(put: _EarlierPut) -> PutData:
    """Return the put in today's form.

    A small element in too many parts comes in a single part: its seal is the same. The data of a
    large element is not in the body.
    """
    element, parts = put.element, put.element.parts
    if element.frame == -1 and len(parts) > ELEMENT_PARTS_MAX:
        parts = (b"".join(parts),)
    whole = Element(element.index, element.length, element.checksum, parts, element.frame)
    return PutData(put.call, put.configuration, put.object, put.tag, whole)


def detached(frame: Frame, put: PutData) -> tuple[tuple[int, int], ...]:
    """Return the spans of a large element's data. Raises :class:`Damage`."""
    first, count = put.element.frame, len(put.element.parts)
    own = frame.parts[first : first + count] if first >= 0 else ()
    if len(own) != count:
        raise Damage(f"batch {frame.sequence} lacks data of {put.object!r}")
    return own


def attach(put: PutData, parts: Sequence[memoryview]) -> PutData:
    """Return ``put`` with its element's data from ``parts``.

    They are views, which serve as bytes wherever parts are used.
    """
    element = put.element
    whole = Element(
        element.index, element.length, element.checksum, cast(tuple[bytes, ...], tuple(parts))
    )
    return msgspec.structs.replace(put, element=whole)


def mapped(facts: Sequence[Stored], view: memoryview, start: int) -> Iterator[PutData]:
    """Yield the large elements among ``facts``, with data from ``view``.

    The batch's parts begin at ``start``.
    """
    for fact in facts:
        if type(fact) is PutData and fact.element.size >= DETACHED_BYTES_MIN:
            element, parts = fact.element, []
            for part in element.parts:
                parts.append(view[start : start + len(part)])
                start += len(part)
            yield attach(fact, parts)


def walk(view: memoryview, start: int, salt: int, sequence: int) -> Iterator[Frame]:
    """Yield the batches from ``start`` on, up to the end of the row or a break.

    ``sequence``: the first batch's number.
    """
    while (
        (frame := parse_frame(view, start, salt)) is not None
        and frame.magic == BATCH_MAGIC
        and frame.sequence == sequence
    ):
        yield frame
        start, sequence = frame.end, sequence + 1


def durable_before(view: memoryview, start: int, salt: int) -> int:
    """Return the highest ``synced`` of all readable frames from ``start`` on.

    A client's data may look like the beginnings of many long frames inside each other: the short
    frames are read first, and no more than LOOKED_AT_SHARE times the bytes present.
    """
    highest = 0
    data = bytes(view[start:])
    begins: list[tuple[int, int]] = []
    at = data.find(b"ares-")
    while at != -1:
        if (
            at % ALIGNMENT == 0
            and at + BATCH_PREFIX_BYTES <= len(data)
            and (size := metadata_bytes(view[start + at :])) <= len(data) - at
        ):
            begins.append((size, at))
        at = data.find(b"ares-", at + 1)
    left = LOOKED_AT_SHARE * len(data)
    for size, at in sorted(begins):
        left -= size
        if left < 0:
            break
        frame = parse_frame(view, start + at, salt)
        if frame is not None:
            highest = max(highest, frame.synced)
    return highest


def kept_of_torn(
    view: memoryview, start: int, salt: int, sequence: int
) -> tuple[list[Frame], int, int]:
    """Return the batches to keep of the segment written last.

    These are all acknowledged batches, cut where the rest breaks. Returns them with the end of the
    certainly durable batches and the end of the kept batches. Raises :class:`Damage` when a batch
    is not whole although a later frame says that it was durable.
    """
    frames = list(walk(view, start, salt, sequence))
    end = frames[-1].end if frames else start
    durable = max(
        durable_before(view, end, salt), max((frame.synced for frame in frames), default=0)
    )
    if durable >= sequence + len(frames):
        raise Damage(
            f"batch {sequence + len(frames)} is not readable, and the batches up to {durable} "
            "were durable"
        )
    sure = max((frame.end for frame in frames if frame.sequence <= durable), default=start)
    for position, frame in enumerate(frames):
        if frame.sequence > durable and not _whole(decode_batch(frame, view)):
            return frames[:position], sure, frame.start
    return frames, sure, end


def _whole(batch: Batch) -> bool:
    """Return whether the data of every large element is as sealed.

    The data of small elements is in the body.
    """
    puts = [
        fact
        for fact in batch.facts
        if type(fact) is PutData and fact.element.size >= DETACHED_BYTES_MIN
    ]
    return all(intact(put.configuration, put.object, put.tag, put.element) for put in puts)
