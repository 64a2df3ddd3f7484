"""Headers that are kept with an object, and the headers by which an answer shows them.

The index keeps metadata as texts by name. ``content-type`` and its kin are kept under their own
names, ``x-amz-meta-color`` as ``color``: clients of ares see the same names.
"""

import base64
import re
from collections.abc import Mapping

from ares.bucket.index_records import OBJECT_METADATA_BYTES_MAX
from ares.gateway.s3.exchange import Headers
from ares.gateway.s3.s3_errors import S3Code, S3Error, bad_argument

STORED_HEADERS = {
    "cache-control": "Cache-Control",
    "content-disposition": "Content-Disposition",
    "content-encoding": "Content-Encoding",
    "content-language": "Content-Language",
    "content-type": "Content-Type",
    "expires": "Expires",
}
"""Headers kept with an object, by the names of the metadata."""

USER_METADATA_BYTES_MAX = 2048
SYSTEM_METADATA_BYTES_MAX = 3072
DEFAULT_CONTENT_TYPE = "binary/octet-stream"
METADATA_PREFIX = "x-amz-meta-"
AWS_CHUNKED = "aws-chunked"

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PLAIN = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
"""Values that HTTP takes as they are: Latin-1 without control characters."""

_OVERRIDE_PREFIX = "response-"
_DIRECTIVES = {"": False, "COPY": False, "REPLACE": True}


def stored_headers(headers: Headers) -> dict[str, str]:
    """Return the metadata to keep with an object.

    Raises MetadataTooLarge for more than 2 KiB of user metadata, as S3 does.
    """
    kept = {name: headers.get(name) for name in STORED_HEADERS if headers.get(name)}
    encoding = _without_chunks(kept.pop("content-encoding", ""))
    if encoding:
        kept["content-encoding"] = encoding
    own = {
        _kept_name(name.removeprefix(METADATA_PREFIX)): value
        for name, value in headers.with_prefix(METADATA_PREFIX).items()
        if name != METADATA_PREFIX
    }
    for name, value in (*kept.items(), *own.items()):
        if not _PLAIN.fullmatch(value):
            raise bad_argument(name, value, "a header has no control characters")
    if _bytes_of(own) > USER_METADATA_BYTES_MAX:
        maximum = {"MaxSizeAllowed": str(USER_METADATA_BYTES_MAX)}
        raise S3Error(S3Code.MetadataTooLarge, fields=maximum)
    if _bytes_of(kept) > SYSTEM_METADATA_BYTES_MAX:
        raise S3Error(S3Code.RequestHeaderSectionTooLarge)
    return kept | own


def _without_chunks(encoding: str) -> str:
    """Return a content encoding without that of the transfer of the request's body."""
    parts = (part.strip() for part in encoding.split(","))
    return ",".join(part for part in parts if part and part.lower() != AWS_CHUNKED)


def _kept_name(name: str) -> str:
    """Return the name under which the index keeps a name of user metadata."""
    collides = name in STORED_HEADERS or name.startswith(METADATA_PREFIX)
    return f"{METADATA_PREFIX}{name}" if collides else name


def _bytes_of(metadata: Mapping[str, str]) -> int:
    return sum(len(name.encode()) + len(value.encode()) for name, value in metadata.items())


def shown_headers(
    metadata: Mapping[str, str], overrides: Mapping[str, str] | None = None
) -> list[tuple[str, str]]:
    """Return the headers of an answer with an object's metadata.

    ``overrides``: from :func:`response_overrides`. Names that HTTP does not take, from clients of
    ares, are counted in ``x-amz-missing-meta``, as S3 does.
    """
    system, own, missing = {"content-type": DEFAULT_CONTENT_TYPE}, [], 0
    for name, value in metadata.items():
        if name in STORED_HEADERS:
            system[name] = value
        elif _TOKEN.fullmatch(name):
            shown = name if name.startswith(METADATA_PREFIX) else f"{METADATA_PREFIX}{name}"
            own.append((shown, _header_text(value)))
        else:
            missing += 1
    system |= overrides or {}
    found = [(STORED_HEADERS[name], _header_text(value)) for name, value in system.items()]
    counted = [("x-amz-missing-meta", str(missing))] if missing else []
    return found + own + counted


def _header_text(value: str) -> str:
    """Return a value as HTTP takes it, encoded by RFC 2047 if need be."""
    if _PLAIN.fullmatch(value):
        return value
    return f"=?UTF-8?B?{base64.b64encode(value.encode(errors='replace')).decode()}?="


def response_overrides(query: Mapping[str, str]) -> dict[str, str]:
    """Return the stored headers that a read replaces by ``response-...`` fields of the query."""
    found = {}
    for name in STORED_HEADERS:
        value = query.get(f"{_OVERRIDE_PREFIX}{name}", "")
        if value:
            if len(value) > OBJECT_METADATA_BYTES_MAX or not value.isprintable():
                raise bad_argument(name, value, "a header has no control characters")
            found[name] = value
    return found


def replaces(headers: Headers, directive: str) -> bool:
    """Return whether a copy replaces the metadata, or the tags, of its source."""
    told = headers.get(directive)
    if told not in _DIRECTIVES:
        raise bad_argument(directive, told, f"{directive} is COPY or REPLACE")
    return _DIRECTIVES[told]
