"""The commands of the index, as entries of the log: a byte for the level, then MessagePack.

Every number, text and list is bounded while decoding. An entry with an error is no command,
for every process alike; a new field or kind therefore takes a new level.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated

import msgspec
from blake3 import blake3
from msgspec import Meta, Struct, structs

from ares.bucket.index_records import (
    BATCH_ITEMS_MAX,
    OPEN_BLOBS_MAX,
    PART_NUMBER_MAX,
    Blob,
    BucketKey,
    BucketName,
    Bytes,
    Checksum,
    Content,
    Digest,
    Etag,
    Metadata,
    Milliseconds,
    PartNumber,
    Tags,
    Version,
    Versioning,
)
from ares.model.identity import KEY_BYTES_MAX, fits
from ares.model.numbers import Count, Number, Position

COMMAND_LEVEL = 1
"""The highest level of commands known to this release."""

PARTITIONS_MAX = 1024
UNSETTLED_MAX = 65_536
"""Numbers of a session from the lowest unsettled number on."""

INVOCATION_ID_BYTES_MAX = 64
REQUEST_PRINT_BYTES, ETAG_PRINT_BYTES = 16, 8
"""Bytes of a request's print without its etag, and of the etag behind these."""

_OF_AN_ATTEMPT: Sequence[str] = ("content", "checksum")
_OF_A_PUT: Sequence[str] = (*_OF_AN_ATTEMPT, "etag")
"""Fields in which the attempts of a request differ, or which they tell last."""

ETAGS_MAX = 16
COLLECTED_MAX = 10_000
BUCKET_CONFIGURATION_BYTES_MAX = 65_536
CONFIGURATION_NAMES = ("acl", "cors", "keys", "lifecycle", "policy", "tags")
"""Configurations of a bucket, which the fold keeps as bytes."""

Etags = Annotated[tuple[Etag, ...], Meta(max_length=ETAGS_MAX)]
Level = Annotated[int, Meta(ge=1, le=255)]


class Conditions(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """Conditions on the newest version of a key, or on a named version; all must hold.

    ``version`` is free of ABA, which an etag is not. ``etags_out``: the etag is none of these.
    ``tags``: the digest of the tags, which change within a version.
    """

    absent: bool = False
    present: bool = False
    etags: Etags = ()
    etags_out: Etags = ()
    version: Version | None = None
    size: Bytes | None = None
    modified_after_ms: Milliseconds | None = None
    modified_until_ms: Milliseconds | None = None
    tags: Digest | None = None


UNCONDITIONAL = Conditions()


class IndexOperation(Struct, frozen=True, array_like=True, tag=True, forbid_unknown_fields=True):
    """Base of the operations in commands."""


# -- sessions and the index itself -----------------------------------------------------------------


class OpenSession(IndexOperation, frozen=True, tag=1):
    """Begin a session; the position of this command is the number."""

    level: Level


class Beat(IndexOperation, frozen=True, tag=2):
    """Tell the digest at a position, and give promises.

    ``reading_from``: the oldest position that a read may need. Of the blobs below ``blobs_from``,
    later commands name ``open_blobs`` alone.
    """

    position: Position
    digest: Digest
    reading_from: Position
    blobs_from: Number
    open_blobs: Annotated[tuple[Number, ...], Meta(max_length=OPEN_BLOBS_MAX)] = ()


class EndSession(IndexOperation, frozen=True, tag=3):
    """End the session ``of``, unless a command of it came after position ``last``."""

    of: Position
    last: Position


class Collected(IndexOperation, frozen=True, tag=4):
    """Forget garbage after the drop of names, and take unused shared contents apart."""

    blobs: Annotated[tuple[Blob, ...], Meta(max_length=COLLECTED_MAX)]


class KeepSnapshot(IndexOperation, frozen=True, tag=5):
    """Keep a snapshot of the rows at ``position``: the stored ``blob``."""

    position: Position
    digest: Digest
    blob: Blob


class RaiseLevel(IndexOperation, frozen=True, tag=6):
    """Put a level in force, if every live session knows the level."""

    level: Level


# -- buckets ---------------------------------------------------------------------------------------


class CreateBucket(IndexOperation, frozen=True, tag=16):
    """Create a bucket, unless the name is taken."""

    bucket: BucketName
    owner: Annotated[str, Meta(max_length=256)] = ""


class DeleteBucket(IndexOperation, frozen=True, tag=17):
    """Delete a bucket without versions and without uploads."""

    bucket: BucketName


class SetBucket(IndexOperation, frozen=True, tag=18):
    """Change the versioning, the quota or a configuration; None leaves it. Empty bytes remove."""

    bucket: BucketName
    versioning: Versioning | None = None
    quota: Count | None = None
    name: str = ""
    configuration: Annotated[bytes, Meta(max_length=BUCKET_CONFIGURATION_BYTES_MAX)] | None = None

    def __post_init__(self) -> None:
        """Check the name of the configuration."""
        if self.name not in CONFIGURATION_NAMES and (self.name or self.configuration is not None):
            raise ValueError(f"no configuration of a bucket is called {self.name!r}")


# -- objects ---------------------------------------------------------------------------------------


class OfObject(IndexOperation, frozen=True):
    """Base of operations on an object: it is named by a bucket and a key."""

    bucket: BucketName
    key: BucketKey

    def __post_init__(self) -> None:
        """Check the key's length in bytes."""
        if not fits(self.key, KEY_BYTES_MAX):
            raise ValueError("a key longer than an object's name may be")


class CopySource(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """An object to copy from: never a blob. ``null``: its null version."""

    bucket: BucketName
    key: BucketKey
    version: Version | None = None
    null: bool = False
    conditions: Conditions = UNCONDITIONAL


class PutObject(OfObject, frozen=True, tag=32):
    """Make a new version of an object."""

    content: Content
    etag: Etag
    conditions: Conditions = UNCONDITIONAL
    metadata: Metadata = b""
    checksum: Checksum = b""
    tags: Tags = b""


class CopyObject(OfObject, frozen=True, tag=33):
    """Copy without bytes. ``metadata``, ``tags``: in place of the source's, unless None."""

    source: CopySource
    conditions: Conditions = UNCONDITIONAL
    metadata: Metadata | None = None
    tags: Tags | None = None


class DeleteObject(OfObject, frozen=True, tag=34):
    """Delete the newest version, or a named version. ``null``: the null version.

    ``superseded``: only a version with a newer one.
    """

    version: Version | None = None
    null: bool = False
    conditions: Conditions = UNCONDITIONAL
    superseded: bool = False


class SetTags(OfObject, frozen=True, tag=35):
    """Set the tags of a version, which stays the same version."""

    tags: Tags
    version: Version | None = None
    null: bool = False
    conditions: Conditions = UNCONDITIONAL


ItemOperation = PutObject | CopyObject | DeleteObject | SetTags


class ObjectBatch(IndexOperation, frozen=True, tag=36):
    """Several operations in one command. ``atomic``: all or none, by the state before the batch."""

    items: Annotated[tuple[ItemOperation, ...], Meta(min_length=1, max_length=BATCH_ITEMS_MAX)]
    atomic: bool = False

    def __post_init__(self) -> None:
        """Check that no item of an atomic batch depends on an earlier item."""
        changed: set[tuple[str, str]] = set()
        for item in self.items if self.atomic else ():
            source = item.source if isinstance(item, CopyObject) else item
            if {(item.bucket, item.key), (source.bucket, source.key)} & changed:
                raise ValueError("an item of an atomic batch depends on an earlier item")
            changed.add((item.bucket, item.key))


# -- multipart uploads -----------------------------------------------------------------------------


class BeginUpload(OfObject, frozen=True, tag=48):
    """Begin a multipart upload."""

    metadata: Metadata = b""
    tags: Tags = b""
    checksum: Checksum = b""


class OfUpload(OfObject, frozen=True):
    """Base of operations on an upload."""

    upload: Version


class PutPart(OfUpload, frozen=True, tag=49):
    """Set a part of an upload, in place of an earlier one with its number."""

    part: PartNumber
    content: Content
    etag: Etag
    checksum: Checksum = b""


class CopyPart(OfUpload, frozen=True, tag=50):
    """Make a part of the ``length`` bytes from ``first`` on; 0 stands for all bytes.

    Without an ``etag`` the part gets an etag of the source and of the range.
    """

    part: PartNumber
    source: CopySource
    etag: Etag = ""
    first: Bytes = 0
    length: Bytes = 0


class NamedPart(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """A part as the client that completes the upload knows it."""

    part: PartNumber
    etag: Etag


class CompleteUpload(OfUpload, frozen=True, tag=51):
    """Make the named parts an object, and end the upload."""

    parts: Annotated[tuple[NamedPart, ...], Meta(min_length=1, max_length=PART_NUMBER_MAX)]
    etag: Etag
    conditions: Conditions = UNCONDITIONAL
    checksum: Checksum = b""


class AbortUpload(OfUpload, frozen=True, tag=52):
    """End an upload without an object."""


UpkeepOperation = OpenSession | Beat | EndSession | Collected | KeepSnapshot | RaiseLevel
"""Operations that may be repeated: their results are not remembered."""

ChangingOperation = (
    CreateBucket | DeleteBucket | SetBucket | ItemOperation | ObjectBatch
    | BeginUpload | PutPart | CopyPart | CompleteUpload | AbortUpload
)  # fmt: skip


class Command(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An operation of a session. ``number``: its number in the session, taken at the append.

    ``lowest``: the session's lowest number whose command is not settled. ``invocation``: the id
    that a client's library gives to all attempts of a request.
    """

    session: Position
    number: Number
    lowest: Number
    ms: Milliseconds
    operation: UpkeepOperation | ChangingOperation
    partition: Annotated[int, Meta(ge=0, lt=PARTITIONS_MAX)] = 0
    invocation: Annotated[bytes, Meta(max_length=INVOCATION_ID_BYTES_MAX)] = b""

    def __post_init__(self) -> None:
        """Check the number against the lowest number."""
        if not 0 <= self.number - self.lowest < UNSETTLED_MAX:
            raise ValueError(f"number {self.number}, and {self.lowest} is not settled")


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Command)


def encode_command(command: Command) -> bytes:
    """Return the entry of the log with the command."""
    return bytes([COMMAND_LEVEL]) + _encoder.encode(command)


def decode_command(entry: bytes) -> Command | None:
    """Return the command of level 1 in an entry; None if there is none."""
    if entry[:1] != b"\x01":
        return None
    try:
        return _decoder.decode(memoryview(entry)[1:])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


Operation = UpkeepOperation | ChangingOperation


def own_blobs(operation: Operation) -> Iterator[Blob]:
    """Yield the blobs that an operation names: they must be new, and of its own session."""
    if isinstance(operation, KeepSnapshot):
        yield operation.blob
    for item in operation.items if isinstance(operation, ObjectBatch) else (operation,):
        if isinstance(item, PutObject | PutPart) and isinstance(item.content, Blob):
            yield item.content


def request_print(invocation: bytes, operation: ChangingOperation) -> bytes:
    """Return bytes for a request, equal for its attempts alone; none without an invocation.

    All attempts of a request have the kind, the bucket, the key, the conditions, and the etag or
    the upload in common, in any session; not the blob. The etag of a put may be known at the end of
    the data only: all else gives the first :data:`REQUEST_PRINT_BYTES`, and the etag the bytes
    behind these, which are missing while it is empty.
    """
    if not invocation:
        return b""
    etag, left_out = "", _OF_AN_ATTEMPT
    if isinstance(operation, PutObject | PutPart):
        etag, left_out = operation.etag, _OF_A_PUT
    common = [invocation, _common(operation, left_out)]
    request = blake3(_encoder.encode(common)).digest(REQUEST_PRINT_BYTES)
    return request + blake3(etag.encode()).digest(ETAG_PRINT_BYTES) if etag else request


def _common(value: object, left_out: Sequence[str] = _OF_AN_ATTEMPT) -> object:
    """Return the fields that attempts have in common, without defaults at their end.

    ``left_out``: fields of the value itself. The kinds have their numbers, not the names of
    classes: releases must agree on the bytes.
    """
    if isinstance(value, tuple):
        return list(map(_common, value))
    if not isinstance(value, Struct):
        return value
    kind = value.__struct_config__.tag
    fields: list[object] = [] if kind is None else [kind]
    told = len(fields)
    for name, default in _fields(type(value)):
        found = getattr(value, name)
        common = name not in left_out
        fields.append(_common(found) if common else None)
        if common and found != default:
            told = len(fields)
    return fields[:told]


@cache
def _fields(kind: type[Struct]) -> Sequence[tuple[str, object]]:
    """Return names and defaults: msgspec works them out anew, for a third of the time of a put."""
    return [(field.name, field.default) for field in structs.fields(kind)]
