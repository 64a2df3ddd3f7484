"""The parsing of a request: the bucket, the key, the query, the operation.

The path is percent-encoded UTF-8, and nothing else happens to it: a key may have ``//``, ``..`` and
``+``. The work is linear in the bytes of the request, and these are bounded first.
"""

import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote_to_bytes

from msgspec import Struct, structs

from ares.bucket.index_records import BUCKET_NAME_PATTERN
from ares.gateway.s3.answered_headers import check_answered
from ares.gateway.s3.exchange import Headers, HttpRequest, S3Operation, S3Request
from ares.gateway.s3.operation_routes import operation_of
from ares.gateway.s3.s3_errors import S3Code, S3Error, bad_argument
from ares.model.identity import KEY_BYTES_MAX

HEADER_SECTION_BYTES_MAX = 32_768
HEADERS_MAX = 256
QUERY_BYTES_MAX = 16_384
QUERY_FIELDS_MAX = 128
URL_PATH_BYTES_MAX = 4096
"""Bytes of a path: each byte of the longest key encoded, with a bucket."""

COPY_SOURCE = "x-amz-copy-source"
RENAME_SOURCE = "x-amz-rename-source"

_SIGNATURE_FIELDS = {
    f"x-amz-{name}"
    for name in (
        *("algorithm", "credential", "date", "expires", "signedheaders", "signature"),
        *("security-token", "content-sha256"),
    )
}
"""Fields of a presigned URL with the signature itself."""

_REPEATED = ("events",)
"""Fields that a query may have several times: the values are joined by a comma."""

_BUCKET_NAME = re.compile(BUCKET_NAME_PATTERN)
_NEW_NAME_REFUSED = re.compile(
    r"[0-9]+(?:\.[0-9]+){3}|.*\.\..*|.*\.-.*|.*-\..*|(?:xn--|sthree-|amzn-s3-demo-).*"
    r"|.*(?:-s3alias|--ol-s3|\.mrap|--x-s3|--table-s3)"
)
"""Names of S3's rules for new buckets: no address, no empty label, no reserved begin or end."""

_HOST_PORT = re.compile(r":[0-9]*\Z")
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


class ObjectSource(Struct, frozen=True):
    """An object to copy from. ``version_id``: a version, ``null``, or empty for the newest."""

    bucket: str
    key: str
    version_id: str = ""


def parse_request(http: HttpRequest, domain_names: Sequence[str], request_id: str) -> S3Request:
    """Return the request in S3's terms. Raises :class:`S3Error`.

    ``domain_names``: names of the service; a host below one of them begins with a bucket. The
    request in the result has the headers, too, that a presigned URL carries in its query.
    """
    _check_bounds(http)
    query = parsed_query(http.raw_query)
    if not http.raw_path.startswith(b"/"):
        raise S3Error(S3Code.InvalidURI)
    bucket = bucket_of_host(http.headers.get("host"), domain_names)
    path = http.raw_path[1:]
    if not bucket:
        name, _, path = path.partition(b"/")
        bucket = _decoded(name)
    key = _decoded(path)
    if key and not bucket:
        raise S3Error(S3Code.InvalidBucketName)
    http = _with_hoisted(http, query)
    operation = operation_of(http.method, bucket, key, query, COPY_SOURCE in http.headers)
    request = S3Request(http, operation, bucket, key, query, request_id)
    if bucket:
        check_bucket(bucket)
    if operation is S3Operation.CREATE_BUCKET and _NEW_NAME_REFUSED.fullmatch(bucket):
        raise S3Error(S3Code.InvalidBucketName)
    if key:
        check_key(key)
    _check_fields(request)
    check_answered(http.method, operation, http.headers)
    return request


def _check_bounds(http: HttpRequest) -> None:
    raw = http.headers.raw
    if len(raw) > HEADERS_MAX or sum(len(n) + len(v) for n, v in raw) > HEADER_SECTION_BYTES_MAX:
        raise S3Error(S3Code.RequestHeaderSectionTooLarge)
    if len(http.raw_query) > QUERY_BYTES_MAX:
        raise S3Error(S3Code.RequestHeaderSectionTooLarge, "The query is too long.")
    if len(http.raw_path) > URL_PATH_BYTES_MAX:
        raise S3Error(S3Code.KeyTooLongError)


def _with_hoisted(http: HttpRequest, query: Mapping[str, str]) -> HttpRequest:
    """Return the request with the headers that a presigned URL carries in its query.

    The signature of the URL covers the query, not these headers: verify the request as received.
    """
    hoisted = tuple(
        (name.lower().encode(), value.encode())
        for name, value in query.items()
        if name.lower().startswith("x-amz-") and name.lower() not in _SIGNATURE_FIELDS
    )
    return structs.replace(http, headers=Headers(http.headers.raw + hoisted)) if hoisted else http


def _check_fields(request: S3Request) -> None:
    """Check fields that several operations have, and the kind of a form."""
    query, operation = request.query, request.operation
    if query.get("versionId") == "":
        raise bad_argument("versionId", "", "a version has a name")
    if operation is S3Operation.LIST_OBJECTS_V2 and query["list-type"] != "2":
        raise bad_argument("list-type", query["list-type"], "it is 2 or absent")
    media = request.http.headers.get("content-type").partition(";")[0].strip().lower()
    if operation is S3Operation.POST_OBJECT and media != "multipart/form-data":
        raise S3Error(S3Code.MethodNotAllowed, headers={"Allow": "DELETE, GET, HEAD, PUT"})


def parsed_query(raw: bytes) -> dict[str, str]:
    """Return the decoded fields of a query; ``+`` is a space.

    Raises :class:`S3Error` for a broken escape, too many fields, and a field with two values.
    """
    if not raw:
        return {}
    fields = raw.split(b"&", QUERY_FIELDS_MAX)
    if len(fields) > QUERY_FIELDS_MAX:
        raise S3Error(S3Code.InvalidURI, "The query has too many fields.")
    query: dict[str, str] = {}
    for field in fields:
        if not field:
            continue
        name, value = (_decoded(part.replace(b"+", b" ")) for part in field.partition(b"=")[::2])
        if name not in query:
            query[name] = value
        elif name in _REPEATED:
            query[name] += f",{value}"
        else:
            raise bad_argument(name[:100], value, "a field of the query has one value")
    return query


def bucket_of_host(host: str, domain_names: Sequence[str]) -> str:
    """Return the bucket in the name of a host; none if the host is no name below a domain."""
    name = _HOST_PORT.sub("", host.lower()).removesuffix(".")
    for domain in sorted(domain_names, key=len, reverse=True):
        if name == domain:
            return ""
        if name.endswith(f".{domain}"):
            return name.removesuffix(f".{domain}")
    return ""


def _decoded(raw: bytes) -> str:
    """Return percent-encoded UTF-8 as text. Raises InvalidURI."""
    if b"%" in raw:
        if _BROKEN_ESCAPE.search(raw):
            raise S3Error(S3Code.InvalidURI)
        raw = unquote_to_bytes(raw)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise S3Error(S3Code.InvalidURI, "A key is text in UTF-8, percent-encoded.") from None


def check_bucket(bucket: str) -> None:
    """Raise InvalidBucketName for no name of a bucket."""
    if _BUCKET_NAME.match(bucket) is None:
        raise S3Error(S3Code.InvalidBucketName, fields={"BucketName": bucket[:100]})


def check_key(key: str) -> None:
    """Raise KeyTooLongError for a key of more bytes than an index takes."""
    if len(key.encode()) > KEY_BYTES_MAX:
        raise S3Error(S3Code.KeyTooLongError, fields={"MaxSizeAllowed": str(KEY_BYTES_MAX)})


# -- sources of copies -----------------------------------------------------------------------------


def copy_source(headers: Headers) -> ObjectSource:
    """Return the source of a copy: ``/bucket/key``, percent-encoded, with ``?versionId=``."""
    return _source(headers.get(COPY_SOURCE), COPY_SOURCE)


def rename_source(headers: Headers, bucket: str) -> ObjectSource:
    """Return the source of RenameObject, in the same bucket: ``/key``, percent-encoded."""
    told = headers.get(RENAME_SOURCE)
    found = _source(f"/{bucket}/{told.removeprefix('/')}", RENAME_SOURCE)
    if found.version_id:
        raise bad_argument(RENAME_SOURCE, told, "the newest version of an object is renamed")
    return found


def _source(told: str, header: str) -> ObjectSource:
    path, asked, query = told.removeprefix("/").encode("latin-1").partition(b"?versionId=")
    version_id = _decoded(query)
    bucket, _, key = (_decoded(path)).partition("/")
    if not bucket or not key or (asked and not version_id):
        raise bad_argument(header, told, "it is of the form bucket/key, percent-encoded")
    check_bucket(bucket)
    check_key(key)
    return ObjectSource(bucket, key, version_id)
