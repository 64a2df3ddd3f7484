"""Reads of objects: GET and HEAD with ranges, parts and conditions, and the attributes.

A read is registered with the session in the step that looks at the index, which is at the tail of
the request's look. A chunk that cannot be found cuts the connection: a client sees no short
success.
"""

from collections.abc import AsyncIterator
from typing import NamedTuple

from ares.bucket.bucket_state import BucketState
from ares.bucket.index_records import PART_NUMBER_MAX, BucketEntry, ObjectEntry, Versioning
from ares.bucket.lifecycle.object_tags import decode_tags
from ares.client.buckets.bucket_index import BucketIndex
from ares.client.buckets.bucket_values import decode_metadata, info_of, shown_version
from ares.client.buckets.found_object import FoundObject, ObjectReading
from ares.gateway.actions.gateway_services import (
    GatewayCall,
    HeaderLines,
    position_headers,
)
from ares.gateway.actions.version_values import (
    OWN_VERSION_HEADER,
    VERSION_HEADER,
    NamedVersion,
    expiration_headers,
    named_version,
    present_entry,
    version_name,
)
from ares.gateway.s3.answer_documents import quoted_etag
from ares.gateway.s3.exchange import HttpResponse
from ares.gateway.s3.object_headers import response_overrides, shown_headers
from ares.gateway.s3.request_conditions import ShownVersion, check_read_conditions, range_applies
from ares.gateway.s3.request_numbers import ByteRange, asked_range, number_of
from ares.gateway.s3.s3_dates import http_date
from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.gateway.signing.checksums import decode_checksum

CHECKSUM_MODE = "x-amz-checksum-mode"
PARTS_COUNT_HEADER = "x-amz-mp-parts-count"


class ReadPlan(NamedTuple):
    """The bytes that answer a read. ``status``: 206 for a range or a part."""

    status: int
    range: ByteRange
    headers: HeaderLines


async def get_object(call: GatewayCall) -> HttpResponse:
    """Answer with an object, a range or a part, read as the connection takes the bytes."""
    named = named_version(call.query("versionId"))

    async def find(index: BucketIndex, _: bool) -> HttpResponse:
        await call.look.verify(index)
        reading = ObjectReading(index, call.buckets.blobs, call.timeout_s)
        try:
            return await _found(call, named, reading)
        except BaseException:
            reading.close()
            raise

    return await call.buckets.in_session(find, call.timeout_s)


async def _found(call: GatewayCall, named: NamedVersion, reading: ObjectReading) -> HttpResponse:
    """Answer by the present index, in which the read is registered."""
    state = reading.index.state
    bucket = call.bucket_in(state)
    entry = present_entry(state, call.bucket, call.key, named)
    plan, headers = _planned(call, state, bucket, entry)
    headers += expiration_headers(state, call.bucket, call.key, entry)
    first, length = plan.range.first, plan.range.length
    reading.begin(entry, first, length)
    info = info_of(call.key, entry, state.position)
    found = FoundObject(call.bucket, info, length, reading)
    if in_index(entry):
        return HttpResponse(plan.status, headers, await found.read())
    return HttpResponse(plan.status, headers, _streamed(found))


def in_index(entry: ObjectEntry) -> bool:
    """Return whether the index itself has the data of a version."""
    return entry.content.blob is None and entry.content.content is None


async def _streamed(found: FoundObject) -> AsyncIterator[bytes]:
    async with found:
        async for chunk in found.chunks():
            yield chunk


async def head_object(call: GatewayCall) -> HttpResponse:
    """Answer with the headers of GET."""
    state = await call.verified()
    entry = present_entry(state, call.bucket, call.key, named_version(call.query("versionId")))
    plan, headers = _planned(call, state, call.bucket_in(state), entry)
    headers += expiration_headers(state, call.bucket, call.key, entry)
    return HttpResponse(plan.status, headers)


def _planned(
    call: GatewayCall, state: BucketState, bucket: BucketEntry, entry: ObjectEntry
) -> tuple[ReadPlan, HeaderLines]:
    """Return the bytes that answer a read, and all headers.

    Raises :class:`S3Error` if a condition does not hold, and for a range without bytes.
    """
    request = call.request.http.headers
    version = shown_version(entry.version)
    shown = ShownVersion(entry.etag, entry.ms, version)
    named = [
        ("ETag", quoted_etag(entry.etag)),
        ("Last-Modified", http_date(entry.ms)),
        (OWN_VERSION_HEADER, version),
        *position_headers(state).items(),
    ]
    if bucket.versioning is not Versioning.OFF or not entry.null:
        named.append((VERSION_HEADER, version_name(entry.version, entry.null)))
    check_read_conditions(request, shown, dict(named))
    plan = _plan(call, state, entry, range_applies(request, shown))
    overrides = response_overrides(call.request.query)
    if overrides and call.caller.anonymous:
        raise S3Error(S3Code.InvalidRequest, "A request without a key cannot override headers.")
    headers = [
        *named,
        ("Accept-Ranges", "bytes"),
        ("Content-Length", str(plan.range.length)),
        *plan.headers,
        *shown_headers(decode_metadata(entry.metadata), overrides),
    ]
    if tags := decode_tags(entry.tags):
        headers.append(("x-amz-tagging-count", str(len(tags))))
    if call.header(CHECKSUM_MODE).upper() == "ENABLED" and plan.status == 200:
        headers += checksum_headers(entry.checksum)
    return plan, headers


def _plan(call: GatewayCall, state: BucketState, entry: ObjectEntry, ranged: bool) -> ReadPlan:
    """Return the bytes that a read asks for: a part, a range, or all."""
    part, wanted = call.query("partNumber"), call.header("range")
    if part:
        if wanted:
            raise S3Error(S3Code.InvalidRequest, "A read has a range or a partNumber, not both.")
        number = number_of(part, "partNumber", 1, PART_NUMBER_MAX)
        return _part_plan(state, entry, number)
    asked = asked_range(wanted, entry.size) if wanted and ranged else None
    if asked is None:
        return ReadPlan(200, ByteRange(0, entry.size), [])
    return ReadPlan(206, asked, [("Content-Range", asked.content_range(entry.size))])


def _part_plan(state: BucketState, entry: ObjectEntry, number: int) -> ReadPlan:
    """Return the bytes of a part; an object without parts is its first part."""
    sizes = state.part_sizes(entry) or [entry.size]
    if number > len(sizes):
        raise S3Error(S3Code.InvalidPartNumber)
    part = ByteRange(sum(sizes[: number - 1]), sizes[number - 1])
    headers = [(PARTS_COUNT_HEADER, str(entry.parts))] if entry.parts else []
    if part.length:
        headers.append(("Content-Range", part.content_range(entry.size)))
    return ReadPlan(206 if part.length else 200, part, headers)


def checksum_headers(encoded: bytes) -> HeaderLines:
    """Return the headers with the checksum of an object; none without a checksum."""
    checksum = decode_checksum(encoded)
    if checksum is None or not checksum.value:
        return []
    return [
        (checksum.algorithm.header, checksum.value),
        ("x-amz-checksum-type", checksum.kind.value),
    ]
