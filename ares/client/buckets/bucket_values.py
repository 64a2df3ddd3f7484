"""Values of buckets as users hold them: versions, objects, common prefixes."""

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec
from msgspec import Struct, structs

from ares.bucket.bucket_listing import ListedKey
from ares.bucket.command_results import CommandResult
from ares.bucket.commands import Conditions, CopySource
from ares.bucket.index_records import (
    BATCH_ITEMS_MAX,
    BUCKET_NAME_PATTERN,
    OBJECT_METADATA_BYTES_MAX,
    PART_NUMBER_MAX,
    ObjectEntry,
    UploadEntry,
    Version,
)
from ares.bucket.lifecycle.lifecycle_rules import LifecycleRule
from ares.bucket.lifecycle.object_tags import decode_tags, encode_tags
from ares.model.errors import BadInput
from ares.model.identity import KEY_BYTES_MAX, ServerId, fits
from ares.model.numbers import POSITION_MAX, is_whole, shown_number

CONTENT_TYPE = "content-type"
"""Name of the metadata with the media type of an object."""

_SHOWN_VERSION = re.compile(r"([0-9]{1,19})(?:\.([0-9]{1,3}))?")
_encoder = msgspec.msgpack.Encoder(order="sorted")
_decoder = msgspec.msgpack.Decoder(dict[str, str])


class ObjectInfo(Struct, frozen=True):
    """A version of an object. ``version``: a name used once, ever.

    ``etag``: the MD5 of the content in hexadecimal digits. ``size``: in bytes. ``modified_ms``:
    milliseconds since 1970, the largest time that any client gave until then. ``position``: the
    position of the index in its log, at which this was found.
    """

    is_prefix: ClassVar[bool] = False

    key: str
    version: str
    etag: str
    size: int
    modified_ms: int
    metadata: Mapping[str, str]
    position: int
    tags: Mapping[str, str] = {}

    @property
    def content_type(self) -> str | None:
        return self.metadata.get(CONTENT_TYPE)


class ListedVersion(ObjectInfo, frozen=True):
    """A version in a list of versions. ``latest``: the newest of the key.

    ``deletion``: a mark that the object was deleted, without data.
    """

    latest: bool = False
    deletion: bool = False


class CommonPrefix(Struct, frozen=True):
    """A common beginning of keys in a listing, up to the delimiter."""

    is_prefix: ClassVar[bool] = True

    key: str


class BucketInfo(Struct, frozen=True):
    """A bucket and its exact counts. ``bytes``: of all objects. ``created_ms``: since 1970."""

    name: str
    objects: int
    bytes: int
    created_ms: int
    position: int


class SweepReport(Struct, frozen=True):
    """The work of a sweep. ``blobs``: of garbage that was dropped.

    ``sessions``: ended meanwhile, by their silence or by themselves. ``names``: of litter that was
    dropped, at all servers together. ``silent``: servers without an answer, whose litter stays.
    """

    sessions: int
    blobs: int
    names: int
    silent: tuple[ServerId, ...]


class UploadInfo(Struct, frozen=True):
    """A multipart upload under way. ``id``: a name used once, ever. ``begun_ms``: since 1970."""

    key: str
    id: str
    begun_ms: int
    metadata: Mapping[str, str]
    tags: Mapping[str, str]


class PartInfo(Struct, frozen=True):
    """A part of a multipart upload. ``size``: in bytes. ``modified_ms``: since 1970."""

    number: int
    etag: str
    size: int
    modified_ms: int


class BucketSettings(Struct, frozen=True):
    """The settings of a bucket. ``versioning``: "off", "on" or "suspended".

    ``quota``: the most bytes of all versions and parts, 0 for no bound. ``lifecycle``: the rules of
    expiry.
    """

    versioning: str
    quota: int
    lifecycle: Sequence[LifecycleRule]
    position: int


def info_of_upload(key: str, upload: Version, begun: UploadEntry) -> UploadInfo:
    metadata, tags = decode_metadata(begun.metadata), decode_tags(begun.tags)
    return UploadInfo(key, shown_version(upload), begun.ms, metadata, tags)


def info_of(key: str, entry: ObjectEntry, position: int) -> ObjectInfo:
    return ObjectInfo(
        *(key, shown_version(entry.version), entry.etag, entry.size, entry.ms),
        decode_metadata(entry.metadata),
        position,
        decode_tags(entry.tags),
    )


def info_of_version(key: str, entry: ObjectEntry, latest: bool, position: int) -> ListedVersion:
    info = structs.asdict(info_of(key, entry, position))
    return ListedVersion(**info, latest=latest, deletion=entry.marker)


def info_of_result(
    key: str,
    result: CommandResult,
    metadata: Mapping[str, str],
    position: int,
    tags: Mapping[str, str],
) -> ObjectInfo:
    """Return the version that a command made."""
    made = result.version
    version = "" if made is None else shown_version(made)
    return ObjectInfo(key, version, result.etag, result.size, result.ms, metadata, position, tags)


def info_of_listed(listed: ListedKey, position: int) -> ObjectInfo | CommonPrefix:
    if listed.entry is None:
        return CommonPrefix(listed.key)
    return info_of(listed.key, listed.entry, position)


def shown_version(version: Version) -> str:
    return f"{version.position}.{version.index}" if version.index else f"{version.position}"


def parsed_version(text: str) -> Version:
    """Return the version named by ``text``. Raises :class:`BadInput`."""
    found = _SHOWN_VERSION.fullmatch(text) if isinstance(text, str) else None
    if found is None or int(found[1]) > POSITION_MAX or int(found[2] or 0) >= BATCH_ITEMS_MAX:
        raise BadInput(
            f"a version is a text such as '17', as put and stat return it, not {text!r}; nothing "
            "was sent"
        )
    return Version(int(found[1]), int(found[2] or 0))


def named_version(text: str | None) -> tuple[Version | None, bool]:
    """Return the version named by ``text``, and whether it is the null version.

    "null" names the version that was made while the bucket kept no versions. Raises
    :class:`BadInput`.
    """
    if text == "null":
        return None, True
    return None if text is None else parsed_version(text), False


def copy_source(bucket: str, key: str, version: str | None) -> CopySource:
    """Return the source of a copy. Raises :class:`BadInput`."""
    return CopySource(checked_bucket(bucket), checked_object_key(key), *named_version(version))


def checked_part(number: int) -> int:
    """Return the number of a part. Raises :class:`BadInput`."""
    if not is_whole(number) or not 1 <= number <= PART_NUMBER_MAX:
        raise BadInput(
            f"a part has a number from 1 to 10,000, not {shown_number(number)}; nothing was sent"
        )
    return number


def told_metadata(
    content_type: str | None, metadata: Mapping[str, str] | None
) -> tuple[dict[str, str], bytes]:
    """Return metadata with the media type, and the bytes. Raises :class:`BadInput`."""
    told = dict(metadata or {})
    if content_type is not None:
        told[CONTENT_TYPE] = content_type
    return told, encode_metadata(told)


def encode_metadata(metadata: Mapping[str, str]) -> bytes:
    """Return the bytes of metadata. Raises :class:`BadInput`."""
    try:
        encoded = _encoder.encode(dict(metadata)) if metadata else b""
        decode_metadata(encoded)
    except (TypeError, ValueError, UnicodeEncodeError, msgspec.MsgspecError) as error:
        raise BadInput(f"metadata maps text to text: {error}; nothing was sent") from error
    if len(encoded) > OBJECT_METADATA_BYTES_MAX:
        raise BadInput(
            f"metadata has at most {OBJECT_METADATA_BYTES_MAX} bytes, not {len(encoded)}; nothing "
            "was sent"
        )
    return encoded


def checked_tags(tags: Mapping[str, str] | None) -> bytes:
    """Return the bytes of an object's tags. Raises :class:`BadInput`."""
    try:
        return encode_tags(tags or {})
    except (TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"an object has no such tags: {error}; nothing was sent") from error


def decode_metadata(encoded: bytes) -> Mapping[str, str]:
    return _decoder.decode(encoded) if encoded else {}


def checked_bucket(name: str) -> str:
    """Return the name of a bucket. Raises :class:`BadInput`."""
    if not isinstance(name, str) or re.search(BUCKET_NAME_PATTERN, name) is None:
        raise BadInput(
            "a bucket's name has 3 to 63 small letters, digits, dots and hyphens, and begins and "
            f"ends with a letter or a digit, unlike {name!r}; nothing was sent"
        )
    return name


def checked_object_key(key: str) -> str:
    """Return the key of an object. Raises :class:`BadInput`."""
    if not checked_text(key):
        raise BadInput("a key of an object has 1 byte or more; nothing was sent")
    return key


def checked_text(text: str) -> str:
    """Return a text as long as a key at most. Raises :class:`BadInput`."""
    if not isinstance(text, str):
        raise BadInput(
            f"a key, prefix or etag is text, not {type(text).__name__}; nothing was sent"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadInput("a key, prefix or etag is text in UTF-8; nothing was sent") from error
    if not fits(text, KEY_BYTES_MAX):
        raise BadInput(f"a key, prefix or etag has at most {KEY_BYTES_MAX} bytes; nothing was sent")
    return text


def conditions_of(absent: bool, version: str | None, etag: str | None) -> Conditions:
    """Return the conditions of a change. Raises :class:`BadInput` if no object can fulfil them."""
    if absent and (version, etag) != (None, None):
        raise BadInput("an absent object has no version and no etag; nothing was sent")
    etags = () if etag is None else (checked_text(etag),)
    wanted = None if version is None else parsed_version(version)
    return Conditions(absent=bool(absent), etags=etags, version=wanted)


def check_range(start: int, length: int | None) -> None:
    """Check a range of bytes. Raises :class:`BadInput`."""
    if not is_whole(start) or not (length is None or (is_whole(length) and length >= 0)):
        raise BadInput(
            "a range has a first byte and a length, whole numbers, not "
            f"{shown_number(start)}, {shown_number(length)}"
        )
