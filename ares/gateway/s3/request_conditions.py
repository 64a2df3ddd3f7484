"""Conditions in headers: for the fold's commands, and for reads.

Dates in headers are whole seconds; an object's time within the second counts as the second.
"""

from collections.abc import Mapping

from msgspec import Struct, structs

from ares.bucket.commands import ETAGS_MAX, Conditions
from ares.bucket.index_records import ETAG_CHARACTERS_MAX, OBJECT_BYTES_MAX, Version
from ares.client.buckets.bucket_values import parsed_version
from ares.gateway.s3.exchange import Headers
from ares.gateway.s3.request_numbers import number_of
from ares.gateway.s3.s3_dates import ms_of_iso_date, seconds_of_http_date
from ares.gateway.s3.s3_errors import S3Code, S3Error, bad_argument
from ares.model.errors import BadInput

IF_VERSION = "x-ares-if-version"
IF_SIZE = "x-amz-if-match-size"
IF_MODIFIED = "x-amz-if-match-last-modified-time"
CONDITION_HEADERS = (
    *("if-match", "if-none-match", "if-modified-since", "if-unmodified-since"),
    *(IF_VERSION, IF_SIZE, IF_MODIFIED),
)
"""The conditions of a change."""

COPY_SOURCE_PREFIX = "x-amz-copy-source-"
RENAME_SOURCE_PREFIX = "x-amz-rename-source-"

_SECOND_MS = 1000
_NO_ETAG = "-"
"""An etag without an object, in place of impossible etags."""


class ShownVersion(Struct, frozen=True):
    """A version of an object as the conditions of reads see it."""

    etag: str
    modified_ms: int
    version: str


def write_conditions(headers: Headers) -> Conditions:
    """Return the conditions of a change of an object.

    Raises NotImplemented for both If-Match and If-None-Match, as S3 does, and InvalidArgument for
    a condition that cannot be read: a change without its condition would destroy data.
    """
    if "if-match" in headers and "if-none-match" in headers:
        raise S3Error(
            S3Code.NotImplemented,
            "A change has If-Match or If-None-Match, not both.",
            fields={"Header": "If-Match, If-None-Match"},
        )
    found = _conditions(headers, "")
    if IF_VERSION in headers:
        found = structs.replace(found, version=_version(headers.get(IF_VERSION)))
    return with_exact(found, _told(headers, IF_SIZE), _told(headers, IF_MODIFIED))


def condition_name(headers: Headers) -> str:
    """Return the name of the etag's condition of a change, as a document tells it, or ""."""
    return next((name for name in ("If-None-Match", "If-Match") if name.lower() in headers), "")


def source_conditions(headers: Headers, prefix: str = COPY_SOURCE_PREFIX) -> Conditions:
    """Return the conditions of the source of a copy, or of a renaming."""
    return _conditions(headers, prefix)


def with_exact(conditions: Conditions, size: str | None, modified: str | None) -> Conditions:
    """Return the conditions with an exact size and an exact second of the last change."""
    if size is not None:
        exact = number_of(size, "Size", 0, OBJECT_BYTES_MAX)
        conditions = structs.replace(conditions, size=exact)
    if modified is not None:
        first = _second(modified) * _SECOND_MS
        after, until = conditions.modified_after_ms or 0, conditions.modified_until_ms
        last = first + _SECOND_MS - 1
        conditions = structs.replace(
            conditions,
            modified_after_ms=max(first - 1, after),
            modified_until_ms=last if until is None else min(last, until),
        )
    return conditions


def matching_etag(text: str) -> Conditions:
    """Return the condition of an etag, as a document has it."""
    return Conditions(present=text == "*", etags=_etags(text, strong=True))


def _conditions(headers: Headers, prefix: str) -> Conditions:
    """Return the conditions of the four headers of HTTP. A date yields to an etag beside it."""
    match, others = _told(headers, f"{prefix}if-match"), _told(headers, f"{prefix}if-none-match")
    since = _told(headers, f"{prefix}if-modified-since") if others is None else None
    until = _told(headers, f"{prefix}if-unmodified-since") if match is None else None
    return Conditions(
        absent=others == "*",
        present=match == "*",
        etags=() if match is None else _etags(match, strong=True),
        etags_out=() if others is None else _etags(others, strong=False),
        modified_after_ms=None if since is None else _end_of_second(since),
        modified_until_ms=None if until is None else _end_of_second(until),
    )


def _told(headers: Headers, name: str) -> str | None:
    return headers.get(name) if name in headers else None


def _etags(text: str, strong: bool) -> tuple[str, ...]:
    """Return the etags of a list. ``strong``: weak etags match no object; else as if strong."""
    if text == "*":
        return ()
    found = [part.strip(" \t") for part in text.split(",", ETAGS_MAX)]
    etags = []
    for part in found if len(found) <= ETAGS_MAX else [""]:
        weak = part.startswith("W/")
        told = part.removeprefix("W/")
        if len(told) > 1 and told[0] == told[-1] == '"':
            told = told[1:-1]
        if not told or '"' in told or "," in told:
            raise bad_argument("ETag", text, "a condition is '*', or at most 16 etags")
        possible = len(told) <= ETAG_CHARACTERS_MAX and not (weak and strong)
        etags.append(told if possible else _NO_ETAG)
    return tuple(etags)


def _second(text: str) -> int:
    found = seconds_of_http_date(text)
    if found is None:
        iso = ms_of_iso_date(text)
        if iso is None:
            raise bad_argument("Date", text, "a date of a condition is one of HTTP, after 1970")
        found = iso // _SECOND_MS
    return found


def _end_of_second(text: str) -> int:
    return _second(text) * _SECOND_MS + _SECOND_MS - 1


def _version(text: str) -> Version:
    try:
        return parsed_version(text)
    except BadInput as error:
        raise bad_argument(IF_VERSION, text, "a version is as x-amz-version-id tells it") from error


# -- reads -----------------------------------------------------------------------------------------


def check_read_conditions(
    headers: Headers, shown: ShownVersion, answer_headers: Mapping[str, str]
) -> None:
    """Raise NotModified or PreconditionFailed unless the conditions of a read hold.

    A date yields to an etag beside it, and a date that cannot be read is no condition (RFC 9110,
    section 13.2.2). ``answer_headers``: of the answer 304.
    """
    modified = shown.modified_ms // _SECOND_MS
    match, others = _told(headers, "if-match"), _told(headers, "if-none-match")
    if match is not None:
        if match != "*" and shown.etag not in _etags(match, strong=True):
            raise _failed("If-Match")
    elif modified > _date(headers, "if-unmodified-since", modified):
        raise _failed("If-Unmodified-Since")
    if IF_VERSION in headers and headers.get(IF_VERSION) != shown.version:
        raise _failed(IF_VERSION)
    if others is not None:
        if others == "*" or shown.etag in _etags(others, strong=False):
            raise S3Error(S3Code.NotModified, headers=answer_headers)
    elif modified <= _date(headers, "if-modified-since", -1):
        raise S3Error(S3Code.NotModified, headers=answer_headers)


def range_applies(headers: Headers, shown: ShownVersion) -> bool:
    """Return whether ``Range`` is to be honoured: the version is that of ``If-Range``, if any."""
    told = _told(headers, "if-range")
    if told is None:
        return True
    date = seconds_of_http_date(told)
    if date is not None:
        return date == shown.modified_ms // _SECOND_MS
    return told == f'"{shown.etag}"'


def _date(headers: Headers, name: str, default: int) -> int:
    found = seconds_of_http_date(headers.get(name))
    return default if found is None else found


def _failed(condition: str) -> S3Error:
    return S3Error(S3Code.PreconditionFailed, fields={"Condition": condition})
