"""The records of the index: entries of objects, uploads, sessions, buckets, places of blobs.

A record is a row's value. The fields are in the order of their bytes: a field is added at the end,
with a default.
"""

import enum
from typing import Annotated

from msgspec import Meta, Struct

from ares.model.identity import KEY_BYTES_MAX
from ares.model.numbers import INSTANT_MAX, Count, Number, Position

BUCKET_NAME_PATTERN = r"\A[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\Z"
INDEX_DATA_BYTES_MAX = 3072
"""Bytes of an object kept in the index itself."""

BLOB_CHUNK_BYTES = 8 * 1024**2
CONTENT_LEVELS_MAX = 64
OPEN_BLOBS_MAX = 64
"""Open blobs that a beat can list."""

ETAG_CHARACTERS_MAX = 64
OBJECT_METADATA_BYTES_MAX = 8192
TAGS_BYTES_MAX = 16_384
CHECKSUM_BYTES_MAX = 256
BATCH_ITEMS_MAX = 1000
PART_NUMBER_MAX = 10_000
OBJECT_BYTES_MAX = 5 * 1024**4
LEFTOVERS_AT_ONCE = 1000
"""Parts of ended uploads, or pieces of unused contents, that a command drops: it bounds a turn."""

UPLOADED_PART_BYTES_MIN = 5 * 1024**2
"""Bytes of a part, except for the last part of an object."""

BucketName = Annotated[str, Meta(pattern=BUCKET_NAME_PATTERN)]
BucketKey = Annotated[str, Meta(min_length=1, max_length=KEY_BYTES_MAX)]
Etag = Annotated[str, Meta(max_length=ETAG_CHARACTERS_MAX)]
Metadata = Annotated[bytes, Meta(max_length=OBJECT_METADATA_BYTES_MAX)]
Tags = Annotated[bytes, Meta(max_length=TAGS_BYTES_MAX)]
Checksum = Annotated[bytes, Meta(max_length=CHECKSUM_BYTES_MAX)]
Bytes = Annotated[int, Meta(ge=0, le=OBJECT_BYTES_MAX)]
Milliseconds = Annotated[int, Meta(ge=0, le=INSTANT_MAX * 1000)]
PartNumber = Annotated[int, Meta(ge=1, le=PART_NUMBER_MAX)]
Index = Annotated[int, Meta(ge=0, lt=BATCH_ITEMS_MAX)]
Digest = Annotated[bytes, Meta(min_length=16, max_length=16)]


class Version(
    Struct, frozen=True, array_like=True, order=True, gc=False, forbid_unknown_fields=True
):
    """The position of a command and the index in its batch: a name used once, ever."""

    position: Position
    index: Index = 0


class Blob(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """The name and the length of data in the domain of blobs.

    The name is the session and a number of the session's counter of blobs.
    """

    session: Position
    counter: Number
    length: Annotated[int, Meta(ge=1, le=OBJECT_BYTES_MAX)]

    @property
    def chunks(self) -> int:
        """Return the number of chunks: all but the last have :data:`BLOB_CHUNK_BYTES`."""
        return -(-self.length // BLOB_CHUNK_BYTES)


InlineData = Annotated[bytes, Meta(max_length=INDEX_DATA_BYTES_MAX)]
Content = InlineData | Blob
"""The content of a command: the bytes themselves, or a new blob."""


class Piece(Struct, frozen=True, array_like=True, gc=False):
    """``length`` bytes from ``start`` on, of a blob or of a shared content; or ``data`` itself."""

    length: Bytes
    blob: Blob | None = None
    start: Bytes = 0
    data: InlineData = b""
    content: Version | None = None

    def cut(self, first: int, length: int) -> "Piece":
        """Return ``length`` bytes of the piece from ``first`` on."""
        if self.blob is None and self.content is None:
            return Piece(length, data=self.data[first : first + length])
        if not length:
            return EMPTY_PIECE
        return Piece(length, self.blob, self.start + first, b"", self.content)


EMPTY_PIECE = Piece(0)


def piece_of(content: bytes | Blob) -> Piece:
    """Return all of a command's content as a piece."""
    if isinstance(content, Blob):
        return Piece(content.length, content)
    return Piece(len(content), data=content)


class ObjectEntry(Struct, frozen=True, array_like=True, gc=False):
    """A version of an object. ``parts``: their number, for an object of a multipart upload.

    ``null``: made while the bucket kept no versions.

    ``marker``: a deletion. ``null_version``: the older null version of the key, if one was there
    when this entry was made, and may be gone now.
    """

    version: Version
    size: Bytes
    etag: Etag
    ms: Milliseconds
    content: Piece = EMPTY_PIECE
    metadata: Metadata = b""
    checksum: Checksum = b""
    tags: Tags = b""
    parts: Annotated[int, Meta(ge=0, le=PART_NUMBER_MAX)] = 0
    null: bool = False
    marker: bool = False
    null_version: Version | None = None


class UploadEntry(Struct, frozen=True, array_like=True, gc=False):
    """A multipart upload under way. The id is the version of the command that began the upload.

    ``part_bytes``: of the parts.
    """

    ms: Milliseconds
    metadata: Metadata
    tags: Tags
    checksum: Checksum
    part_bytes: Count = 0


class EndedUpload(Struct, frozen=True, array_like=True, gc=False):
    """An upload that ended with more parts than a command drops.

    ``taken``: the parts whose contents an object took over.
    """

    taken: tuple[PartNumber, ...] = ()


class PartEntry(Struct, frozen=True, array_like=True, gc=False):
    """A part of an upload."""

    size: Bytes
    etag: Etag
    ms: Milliseconds
    content: Piece
    checksum: Checksum = b""


class Versioning(enum.IntEnum):
    """The versions that a bucket keeps."""

    OFF = 0
    ON = 1
    SUSPENDED = 2


class BucketEntry(Struct, frozen=True, array_like=True, gc=False):
    """A bucket. ``quota``: most bytes, 0 for no bound.

    The counters are exact. ``objects``: keys with a newest version that is no deletion;
    ``versions``: all versions, deletions included; ``bytes`` of these; ``uploads`` under way, and
    ``part_bytes`` of their parts.
    """

    ms: Milliseconds
    owner: Annotated[str, Meta(max_length=256)] = ""
    versioning: Versioning = Versioning.OFF
    quota: Count = 0
    objects: Count = 0
    versions: Count = 0
    bytes: Count = 0
    uploads: Count = 0
    part_bytes: Count = 0


class SessionEntry(Struct, frozen=True, array_like=True, gc=False):
    """A live session. ``last``: the position of its last command.

    ``lowest``: the lowest number that is not settled. ``reading_from``: no read of the session
    needs an index older than this position. ``level``: the highest known level of commands. No
    command of the session names a blob below ``blobs_from`` that is not in ``open_blobs``.
    ``result_bytes``: of the remembered results.
    """

    last: Position
    lowest: Number
    reading_from: Position
    level: Annotated[int, Meta(ge=1, le=255)]
    blobs_from: Number = 1
    open_blobs: tuple[Number, ...] = ()
    result_bytes: Count = 0

    def may_name(self, counter: int) -> bool:
        """Return whether a later command of the session may name its blob ``counter``."""
        return counter >= self.blobs_from or counter in self.open_blobs


class ContentPlace(Struct, frozen=True, array_like=True, gc=False):
    """The uses of a blob, or of a shared content, by entries, parts, contents and snapshots.

    ``garbage``: the position of the command that took the last use, or never gave one. ``depth``:
    levels of contents below a shared content.
    """

    uses: Count
    garbage: Position | None = None
    depth: int = 0


class SnapshotEntry(Struct, frozen=True, array_like=True, gc=False):
    """A kept snapshot of the rows at ``position``."""

    position: Position
    digest: Digest
    blob: Blob


class IndexTotals(Struct, frozen=True, array_like=True, gc=False):
    """The largest time of a command, shown to people; the level in force; entries not decoded.

    ``invocation_bytes``: of remembered results of invocations.
    """

    clock_ms: Milliseconds = 0
    level: Annotated[int, Meta(ge=1, le=255)] = 1
    malformed: Count = 0
    invocation_bytes: Count = 0
