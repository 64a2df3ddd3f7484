"""The keys of the index's rows: a letter for the kind, and fields that keep their order as bytes.

Keys of objects are in the order of their bytes in UTF-8; the newest version comes first.
"""

from struct import Struct as Layout

from ares.bucket.index_records import Blob, Version

TOTALS_ROW = b"a"
BUCKET_ROWS = b"b"
CONFIGURATION_ROWS = b"c"
GARBAGE_CONTENT_ROWS = b"d"
CONTENT_ROWS = b"e"
BLOB_ROWS = b"f"
GARBAGE_ROWS = b"g"
CONTENT_PLACE_ROWS = b"h"
INVOCATION_ROWS = b"i"
INVOCATION_ORDER_ROWS = b"j"
SNAPSHOT_ROWS = b"m"
OBJECT_ROWS = b"o"
PART_ROWS = b"p"
ENDED_UPLOAD_ROWS = b"q"
RESULT_ROWS = b"r"
SESSION_ROWS = b"s"
UPLOAD_ROWS = b"u"

ROWS_END = b"\xff"
"""A key above all rows."""

_NEWEST = 2**64 - 1
_INDEX_TOP = 2**16 - 1
_number = Layout(">Q")
_pair = Layout(">QQ")
_version = Layout(">QH")
_part = Layout(">QHH")


def after(prefix: bytes) -> bytes:
    """Return the end of the keys with the prefix, which begins with the letter of a kind."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1])


def escaped(key: str) -> bytes:
    """Return the key's bytes in which a NUL is followed by 255: the terminator sorts below it."""
    return key.encode().replace(b"\0", b"\0\xff")


def unescaped(key: bytes) -> str:
    """Return the text of a key's bytes in a row."""
    return key.replace(b"\0\xff", b"\0").decode()


def bucket_row(bucket: str) -> bytes:
    return BUCKET_ROWS + bucket.encode()


def configuration_row(bucket: str, name: str = "") -> bytes:
    return CONFIGURATION_ROWS + bucket.encode() + b"\0" + name.encode()


def of_bucket(kind: bytes, bucket: str) -> bytes:
    """Return the prefix of the bucket's rows of a kind."""
    return kind + bucket.encode() + b"\0"


def of_key(kind: bytes, bucket: str, key: str) -> bytes:
    """Return the prefix of all rows of an object's key."""
    return of_bucket(kind, bucket) + escaped(key) + b"\0\0"


def behind_key(prefix: bytes) -> bytes:
    """Return the end of the rows with the prefix that :func:`of_key` gave."""
    return prefix[:-1] + b"\x01"


def object_row(bucket: str, key: str, version: Version) -> bytes:
    newest_first = _version.pack(_NEWEST - version.position, _INDEX_TOP - version.index)
    return of_key(OBJECT_ROWS, bucket, key) + newest_first


def upload_row(bucket: str, key: str, upload: Version) -> bytes:
    return of_key(UPLOAD_ROWS, bucket, key) + _version.pack(upload.position, upload.index)


VERSION_BYTES = _version.size
ROW_TAIL_BYTES = 2 + VERSION_BYTES
"""Bytes behind the key in the row of an object or of an upload."""


def key_of_row(row: bytes, kind: bytes, bucket: str) -> str:
    """Return the object's key in the row of an object or of an upload."""
    return unescaped(row[len(of_bucket(kind, bucket)) : -ROW_TAIL_BYTES])


def version_of_row(row: bytes) -> Version:
    """Return the upload, or the content, at the end of a row's key."""
    return Version(*_version.unpack(row[-VERSION_BYTES:]))


def parts_of(upload: Version) -> bytes:
    """Return the prefix of an upload's parts."""
    return PART_ROWS + _version.pack(upload.position, upload.index)


def part_row(upload: Version, number: int) -> bytes:
    return PART_ROWS + _part.pack(upload.position, upload.index, number)


def part_number_of_row(row: bytes) -> int:
    return int.from_bytes(row[-2:])


def ended_upload_row(upload: Version) -> bytes:
    """Return the row of an upload that ended, and has parts left."""
    return ENDED_UPLOAD_ROWS + _version.pack(upload.position, upload.index)


def blob_row(blob: Blob) -> bytes:
    return BLOB_ROWS + _pair.pack(blob.session, blob.counter)


def garbage_row(position: int, blob: Blob) -> bytes:
    return GARBAGE_ROWS + _number.pack(position) + _pair.pack(blob.session, blob.counter)


def content_row(content: Version) -> bytes:
    """Return the row of the pieces of a shared content."""
    return CONTENT_ROWS + _version.pack(content.position, content.index)


def content_place_row(content: Version) -> bytes:
    return CONTENT_PLACE_ROWS + _version.pack(content.position, content.index)


def garbage_content_row(position: int, content: Version) -> bytes:
    """Return the row of a shared content that nothing uses since the command at ``position``.

    The value has the pieces left of a content that is taken apart.
    """
    packed = _version.pack(content.position, content.index)
    return GARBAGE_CONTENT_ROWS + _number.pack(position) + packed


def position_of_row(row: bytes) -> int:
    """Return the number after the letter of the row."""
    number: int = _number.unpack_from(row, 1)[0]
    return number


def session_row(session: int) -> bytes:
    return SESSION_ROWS + _number.pack(session)


def result_row(session: int, number: int) -> bytes:
    return RESULT_ROWS + _pair.pack(session, number)


def invocation_row(fingerprint: bytes) -> bytes:
    return INVOCATION_ROWS + fingerprint


def invocation_order_row(position: int) -> bytes:
    return INVOCATION_ORDER_ROWS + _number.pack(position)


def snapshot_row(position: int) -> bytes:
    return SNAPSHOT_ROWS + _number.pack(position)
