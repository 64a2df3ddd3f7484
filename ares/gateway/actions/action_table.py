"""The table of operations: the coroutine and the memory of each."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ares.bucket.bucket_state import BucketState
from ares.bucket.index_records import BLOB_CHUNK_BYTES
from ares.client.buckets.blob_store import CHUNKS_AT_ONCE
from ares.gateway.access.grants import Caller
from ares.gateway.access.request_look import RequestLook
from ares.gateway.actions import attribute_actions as attributes
from ares.gateway.actions import bucket_actions as buckets
from ares.gateway.actions import copy_actions as copies
from ares.gateway.actions import delete_actions as deletions
from ares.gateway.actions import get_actions as reads
from ares.gateway.actions import listing_actions as listings
from ares.gateway.actions import multipart_actions as multipart
from ares.gateway.actions import put_actions as puts
from ares.gateway.actions import watch_actions as watches
from ares.gateway.actions.error_table import s3_error
from ares.gateway.actions.gateway_services import (
    DOCUMENT_BYTES_MAX,
    GatewayCall,
    GatewayServices,
)
from ares.gateway.actions.version_values import named_version
from ares.gateway.s3.exchange import HttpResponse, S3Operation, S3Request
from ares.gateway.s3.request_conditions import condition_name
from ares.gateway.s3.request_numbers import asked_range
from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.gateway.signing.decoded_body import DecodedBody
from ares.model.errors import AresError

REQUEST_COST_BYTES = 64 * 1024
"""Memory of a request beside its data."""

LISTING_COST_BYTES = 4 * 1024**2
"""Memory of a page: a thousand keys of 1 KiB, as records and in a document."""

STREAM_COST_BYTES = (CHUNKS_AT_ONCE + 2) * BLOB_CHUNK_BYTES
"""Memory of a put: the chunks under way, the next chunk, and a copy."""

DOCUMENT_COPIES = 4
"""Memory of a parsed document, in its bytes."""

Cost = Callable[[S3Request, BucketState], int]


class ActionEntry(NamedTuple):
    """An operation. ``cost``: bytes of memory for the data."""

    action: Callable[[GatewayCall], Awaitable[HttpResponse]]
    cost: Cost


def _fixed(size: int) -> Cost:
    return lambda *_: size


def _document(request: S3Request, _: BucketState) -> int:
    """Return the cost of a request with a document."""
    length = request.http.content_length
    size = DOCUMENT_BYTES_MAX if length is None else min(length, DOCUMENT_BYTES_MAX)
    return DOCUMENT_COPIES * size


def _read(request: S3Request, state: BucketState) -> int:
    """Return the cost of a read of the present version."""
    try:
        named = named_version(request.query.get("versionId", ""))
        entry = state.chosen(request.bucket, request.key, *named)
        size = 0 if entry is None else entry.size
        asked = asked_range(request.http.headers.get("range"), size)
    except S3Error:  # the read has no data
        return 0
    return min(size if asked is None else asked.length, STREAM_COST_BYTES)


def _stream(request: S3Request, _: BucketState) -> int:
    """Return the cost of a request with a body for the store."""
    length = request.http.content_length
    return STREAM_COST_BYTES if length is None else min(2 * length, STREAM_COST_BYTES)


_plain, _page = _fixed(0), _fixed(LISTING_COST_BYTES)

ACTION_ENTRIES: dict[S3Operation, ActionEntry] = {
    S3Operation.LIST_BUCKETS: ActionEntry(listings.list_buckets, _page),
    S3Operation.CREATE_BUCKET: ActionEntry(buckets.create_bucket, _document),
    S3Operation.DELETE_BUCKET: ActionEntry(buckets.delete_bucket, _plain),
    S3Operation.HEAD_BUCKET: ActionEntry(buckets.head_bucket, _plain),
    S3Operation.LIST_OBJECTS: ActionEntry(listings.list_objects_v1, _page),
    S3Operation.LIST_OBJECTS_V2: ActionEntry(listings.list_objects_v2, _page),
    S3Operation.LIST_OBJECT_VERSIONS: ActionEntry(listings.list_object_versions, _page),
    S3Operation.LIST_MULTIPART_UPLOADS: ActionEntry(listings.list_multipart_uploads, _page),
    S3Operation.DELETE_OBJECTS: ActionEntry(deletions.delete_objects, _document),
    S3Operation.POST_OBJECT: ActionEntry(puts.post_object, _stream),
    S3Operation.GET_BUCKET_LOCATION: ActionEntry(buckets.get_bucket_location, _plain),
    S3Operation.GET_BUCKET_ACL: ActionEntry(buckets.get_bucket_acl, _plain),
    S3Operation.PUT_BUCKET_ACL: ActionEntry(buckets.put_bucket_acl, _document),
    S3Operation.GET_BUCKET_VERSIONING: ActionEntry(buckets.get_bucket_versioning, _plain),
    S3Operation.PUT_BUCKET_VERSIONING: ActionEntry(buckets.put_bucket_versioning, _document),
    S3Operation.GET_BUCKET_TAGGING: ActionEntry(attributes.get_bucket_tagging, _plain),
    S3Operation.PUT_BUCKET_TAGGING: ActionEntry(attributes.put_bucket_tagging, _document),
    S3Operation.DELETE_BUCKET_TAGGING: ActionEntry(attributes.delete_bucket_tagging, _plain),
    S3Operation.GET_BUCKET_CORS: ActionEntry(buckets.get_bucket_cors, _plain),
    S3Operation.PUT_BUCKET_CORS: ActionEntry(buckets.put_bucket_cors, _document),
    S3Operation.DELETE_BUCKET_CORS: ActionEntry(buckets.delete_bucket_cors, _plain),
    S3Operation.GET_BUCKET_LIFECYCLE: ActionEntry(buckets.get_bucket_lifecycle, _plain),
    S3Operation.PUT_BUCKET_LIFECYCLE: ActionEntry(buckets.put_bucket_lifecycle, _document),
    S3Operation.DELETE_BUCKET_LIFECYCLE: ActionEntry(buckets.delete_bucket_lifecycle, _plain),
    S3Operation.GET_OBJECT: ActionEntry(reads.get_object, _read),
    S3Operation.HEAD_OBJECT: ActionEntry(reads.head_object, _plain),
    S3Operation.PUT_OBJECT: ActionEntry(puts.put_object, _stream),
    S3Operation.COPY_OBJECT: ActionEntry(copies.copy_object, _plain),
    S3Operation.DELETE_OBJECT: ActionEntry(deletions.delete_object, _plain),
    S3Operation.RENAME_OBJECT: ActionEntry(copies.rename_object, _plain),
    S3Operation.GET_OBJECT_ATTRIBUTES: ActionEntry(attributes.get_object_attributes, _plain),
    S3Operation.GET_OBJECT_ACL: ActionEntry(attributes.get_object_acl, _plain),
    S3Operation.PUT_OBJECT_ACL: ActionEntry(attributes.put_object_acl, _document),
    S3Operation.GET_OBJECT_TAGGING: ActionEntry(attributes.get_object_tagging, _plain),
    S3Operation.PUT_OBJECT_TAGGING: ActionEntry(attributes.put_object_tagging, _document),
    S3Operation.DELETE_OBJECT_TAGGING: ActionEntry(attributes.delete_object_tagging, _plain),
    S3Operation.CREATE_MULTIPART_UPLOAD: ActionEntry(multipart.create_upload, _plain),
    S3Operation.UPLOAD_PART: ActionEntry(multipart.upload_part, _stream),
    S3Operation.UPLOAD_PART_COPY: ActionEntry(multipart.upload_part_copy, _plain),
    S3Operation.COMPLETE_MULTIPART_UPLOAD: ActionEntry(multipart.complete_upload, _document),
    S3Operation.ABORT_MULTIPART_UPLOAD: ActionEntry(multipart.abort_upload, _plain),
    S3Operation.LIST_PARTS: ActionEntry(listings.list_upload_parts, _page),
    S3Operation.WATCH: ActionEntry(watches.watch, _page),
    S3Operation.LISTEN_EVENTS: ActionEntry(watches.listen, _page),
}
"""The operations, except for PREFLIGHT: the rules of CORS answer."""


def cost_of(request: S3Request, state: BucketState) -> int:
    """Return the most bytes of memory of a request, with a read's answer.

    ``state``: the present index. A read of a later and larger version takes more.
    """
    entry = ACTION_ENTRIES.get(request.operation)
    return REQUEST_COST_BYTES + (0 if entry is None else entry.cost(request, state))


async def act(
    services: GatewayServices,
    request: S3Request,
    caller: Caller,
    look: RequestLook,
    body: DecodedBody | None,
) -> HttpResponse:
    """Return the answer to an admitted request. Raises :class:`S3Error`.

    An exception from the body of the answer cuts the connection.
    """
    entry = ACTION_ENTRIES.get(request.operation)
    if entry is None:
        raise S3Error(S3Code.NotImplemented)
    try:
        return await entry.action(GatewayCall(services, request, caller, look, body))
    except S3Error as error:
        name = condition_name(request.http.headers)
        if error.code is S3Code.PreconditionFailed and name:
            error.fields.setdefault("Condition", name)
        raise
    except AresError as error:
        raise s3_error(error, request.http.method not in ("GET", "HEAD")) from error
