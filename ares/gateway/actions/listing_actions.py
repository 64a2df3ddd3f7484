"""Listings of objects, versions and uploads: each page is exact at a position of the index."""

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from ares.bucket.bucket_listing import (
    ListedPage,
    ListRequest,
    list_objects,
    list_parts,
    list_uploads,
    list_versions,
)
from ares.bucket.bucket_state import BucketState, rows_between
from ares.bucket.index_records import PART_NUMBER_MAX
from ares.bucket.row_keys import BUCKET_ROWS, after
from ares.client.buckets.bucket_values import shown_version
from ares.gateway.access.grants import Caller
from ares.gateway.actions.gateway_services import GatewayCall, told
from ares.gateway.actions.multipart_actions import upload_of
from ares.gateway.actions.version_values import checksum_texts, named_version, version_name
from ares.gateway.s3.exchange import HttpResponse
from ares.gateway.s3.listing_documents import (
    ListedPart,
    ListedRow,
    ListedUpload,
    ListingFrame,
    PartsListing,
    listed_buckets,
    listed_objects,
    listed_objects_v2,
    listed_parts,
    listed_uploads,
    listed_versions,
)
from ares.gateway.s3.request_numbers import encodes_keys, listing_limit, number_of
from ares.gateway.s3.s3_errors import S3Code, S3Error, bad_argument
from ares.gateway.signing.checksums import ObjectChecksum, decode_checksum
from ares.model.identity import KEY_BYTES_MAX, fits

LISTED_BUCKETS_MAX = 10_000
TOKEN_CHARACTERS_MAX = 2048
"""Characters of a continuation token."""


class PageEnd(NamedTuple):
    """The end of a page, in a continuation token. ``behind``: ``after`` is a common prefix."""

    after: str
    behind: bool = False


_tokens = msgspec.msgpack.Decoder(PageEnd)


def encode_token(following: ListRequest) -> str:
    """Return the continuation token for the next page."""
    end = msgspec.msgpack.encode(PageEnd(following.after, following.behind))
    return base64.urlsafe_b64encode(end).decode()


def decode_token(token: str) -> PageEnd:
    """Return the end of the last page. Raises :class:`S3Error` for a token of another maker."""
    try:
        if len(token) > TOKEN_CHARACTERS_MAX:
            raise ValueError("a token is short")
        end = _tokens.decode(base64.b64decode(token, b"-_", validate=True))
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        why = "The continuation token provided is incorrect."
        raise S3Error(S3Code.InvalidArgument, why) from error
    return PageEnd(_checked("continuation-token", end.after), end.behind)


def _checked(name: str, text: str) -> str:
    """Return a text of the query no longer than a key."""
    if not fits(text, KEY_BYTES_MAX):
        raise bad_argument(name, text[:100], f"it has at most {KEY_BYTES_MAX} bytes")
    return text


def _wanted(call: GatewayCall, limit: str = "max-keys") -> ListRequest:
    """Return the request for the first page."""
    return ListRequest(
        call.bucket,
        _checked("prefix", call.query("prefix")),
        _checked("delimiter", call.query("delimiter")),
        limit=listing_limit(call.request.query, limit),
    )


def behind_marker(request: ListRequest, marker: str) -> ListRequest:
    """Return the request for a page behind a marker: a key, or a common prefix of this listing."""
    prefix, delimiter = request.prefix, request.delimiter
    at = marker.find(delimiter, len(prefix)) if delimiter and marker.startswith(prefix) else -1
    behind = at >= 0 and at + len(delimiter) == len(marker)
    return request._replace(after=marker, behind=behind)


def exact_page(state: BucketState, request: ListRequest) -> ListedPage:
    """Return a page of objects, the last one if no further result exists."""
    page = list_objects(state, request)
    if page.following is None:
        return page
    next_page = list_objects(state, page.following._replace(limit=1))
    more = next_page.results or next_page.following
    return page if more else ListedPage(page.results, None)


def _frame(
    call: GatewayCall, request: ListRequest, page: ListedPage, marks: Mapping[str, str]
) -> ListingFrame:
    """Return the frame of a page. ``marks``: the markers of this page and of the next."""
    return ListingFrame(
        *(request.bucket, request.prefix, request.delimiter, request.limit),
        truncated=page.following is not None,
        encoded=encodes_keys(call.request.query),
        prefixes=[each.key for each in page.results if each.is_prefix],
        marks=marks,
    )


def _objects(page: ListedPage, with_versions: bool = False) -> list[ListedRow]:
    """Return the objects, or the versions, of a page."""
    found = []
    for each in page.results:
        if each.entry is None:
            continue
        entry, version = each.entry, ""
        if with_versions:
            version = version_name(entry.version, entry.null)
        checksum = decode_checksum(entry.checksum)
        found.append(
            ListedRow(
                *(each.key, entry.ms, entry.etag, entry.size, version),
                *(each.latest, entry.marker),
                *checksum_names(checksum if checksum is not None and checksum.value else None),
            )
        )
    return found


def checksum_names(checksum: ObjectChecksum | None) -> tuple[str, str]:
    """Return the algorithm and the kind of a checksum, as documents have them."""
    return ("", "") if checksum is None else (checksum.algorithm.name, checksum.kind.value)


async def list_objects_v1(call: GatewayCall) -> HttpResponse:
    """List objects behind a marker, which is a key or a common prefix."""
    marker = _checked("marker", call.query("marker"))
    request = behind_marker(_wanted(call), marker)
    state = await call.verified()
    page = exact_page(state, request)
    marks = {"Marker": marker}
    if page.following is not None:
        marks["NextMarker"] = page.following.after
    return told(state, body=listed_objects(_frame(call, request, page, marks), _objects(page)))


async def list_objects_v2(call: GatewayCall) -> HttpResponse:
    """List objects behind a continuation token, or behind a text."""
    request, token = _wanted(call), call.query("continuation-token")
    start = _checked("start-after", call.query("start-after"))
    marks = {}
    if "continuation-token" in call.request.query:
        request = request._replace(**decode_token(token)._asdict())
        marks["ContinuationToken"] = token
    else:
        request = behind_marker(request, start)
    if start:
        marks["StartAfter"] = start
    state = await call.verified()
    page = exact_page(state, request)
    if page.following is not None:
        marks["NextContinuationToken"] = encode_token(page.following)
    owner = call.query("fetch-owner") == "true"
    frame = _frame(call, request, page, marks)
    return told(state, body=listed_objects_v2(frame, _objects(page), owner))


async def list_object_versions(call: GatewayCall) -> HttpResponse:
    """List versions and deletions, the newest of a key first."""
    request = _wanted(call)
    key, version = _checked("key-marker", call.query("key-marker")), call.query("version-id-marker")
    named = named_version(version)
    if version and not key:
        raise bad_argument("version-id-marker", version, "it needs a key-marker")
    state = await call.verified()
    request = behind_marker(request, key)
    if not named.is_newest:
        null = state.chosen(call.bucket, key, None, True) if named.null else None
        at = named.version if null is None else null.version
        request = request._replace(behind=False, version=at)
    page = list_versions(state, request)
    marks = {"KeyMarker": key, "VersionIdMarker": version}
    if page.following is not None:
        marks["NextKeyMarker"] = page.following.after
        if page.following.version is not None:
            marks["NextVersionIdMarker"] = shown_version(page.following.version)
    frame = _frame(call, request, page, marks)
    return told(state, body=listed_versions(frame, _objects(page, with_versions=True)))


async def list_multipart_uploads(call: GatewayCall) -> HttpResponse:
    """List the uploads under way."""
    request = _wanted(call, "max-uploads")
    key, marker = _checked("key-marker", call.query("key-marker")), call.query("upload-id-marker")
    upload = named_version(marker).version if key else None
    state = await call.verified()
    request = behind_marker(request, key)
    if upload is not None:
        request = request._replace(behind=False, version=upload)
    page = list_uploads(state, request)
    marks = {"KeyMarker": key, "UploadIdMarker": marker}
    if page.following is not None:
        marks["NextKeyMarker"] = page.following.after
        if page.following.version is not None:
            marks["NextUploadIdMarker"] = shown_version(page.following.version)
    uploads = [
        ListedUpload(
            *(each.key, shown_version(each.upload), each.begun.ms),
            *checksum_names(decode_checksum(each.begun.checksum)),
        )
        for each in page.results
        if each.upload is not None and each.begun is not None
    ]
    return told(state, body=listed_uploads(_frame(call, request, page, marks), uploads))


async def list_upload_parts(call: GatewayCall) -> HttpResponse:
    """List the parts of an upload, by their numbers."""
    upload, query = upload_of(call), call.request.query
    limit, marker = listing_limit(query, "max-parts"), call.query("part-number-marker")
    last = number_of(marker, "part-number-marker", 0, PART_NUMBER_MAX) if marker else 0
    state = await call.verified()
    begun = state.upload(call.bucket, call.key, upload)
    if begun is None:
        raise S3Error(S3Code.NoSuchUpload)
    found = list_parts(state, upload, last, limit + 1)
    parts = [
        ListedPart(number, part.ms, part.etag, part.size, checksum_texts(part.checksum))
        for number, part in found[:limit]
    ]
    page = PartsListing(
        *(call.bucket, call.key, shown_version(upload), limit, last),
        *(0 < limit < len(found), encodes_keys(query), parts),
        *checksum_names(decode_checksum(begun.checksum)),
    )
    return told(state, body=listed_parts(page))


def _bucket_names(state: BucketState, caller: Caller, first: str) -> Iterator[str]:
    """Yield names of buckets from ``first`` on, in order: all, or the ones within reach."""
    if caller.buckets:
        yield from sorted(name for name in set(caller.buckets) if name >= first)
        return
    for row, _ in rows_between(state.table, BUCKET_ROWS + first.encode(), after(BUCKET_ROWS)):
        yield row[len(BUCKET_ROWS) :].decode()


async def list_buckets(call: GatewayCall) -> HttpResponse:
    """List the buckets within reach of the caller."""
    prefix, token = call.query("prefix"), call.query("continuation-token")
    text = call.query("max-buckets")
    limit = number_of(text, "max-buckets", 1, LISTED_BUCKETS_MAX) if text else LISTED_BUCKETS_MAX
    last = decode_token(token).after if token else ""
    state = (await call.look.verified()).state
    found: list[tuple[str, int]] = []
    following, passed = "", 0
    for name in _bucket_names(state, call.caller, max(prefix, last)):
        if name == last:
            continue
        if not name.startswith(prefix):
            break
        if len(found) == limit or passed == LISTED_BUCKETS_MAX:
            following = encode_token(ListRequest("", after=last))
            break
        last, passed = name, passed + 1
        entry = state.bucket(name)
        if entry is not None and call.caller.sees(name):
            found.append((name, entry.ms))
    return told(state, body=listed_buckets(found, call.services.region, following))
