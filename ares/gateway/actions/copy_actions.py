"""Copies and renamings: no bytes move, and the fold finds the source at the command's position."""

from ares.bucket.bucket_state import BucketState
from ares.bucket.command_results import CommandOutcome, CommandResult
from ares.bucket.commands import Conditions, CopyObject, CopySource, DeleteObject, ObjectBatch
from ares.gateway.actions.error_table import outcome_error
from ares.gateway.actions.gateway_services import GatewayCall, position_headers, told
from ares.gateway.actions.put_actions import checked_metadata, encoded_tags
from ares.gateway.actions.version_values import (
    made_headers,
    made_version,
    named_version,
    version_headers,
)
from ares.gateway.s3.answer_documents import copied_object, quoted_etag
from ares.gateway.s3.exchange import HttpResponse
from ares.gateway.s3.object_headers import replaces, stored_headers
from ares.gateway.s3.parsing import ObjectSource, copy_source, rename_source
from ares.gateway.s3.request_conditions import (
    RENAME_SOURCE_PREFIX,
    source_conditions,
    write_conditions,
)
from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.gateway.s3.s3_tags import header_tags

SOURCE_VERSION_HEADER = "x-amz-copy-source-version-id"

_ONTO_ITSELF = (
    "This copy request is illegal because it is trying to copy an object to itself without "
    "changing the object's metadata or tags."
)


async def copy_object(call: GatewayCall) -> HttpResponse:
    """Copy an object, with the metadata and the tags of the source or of the request."""
    headers = call.request.http.headers
    source = copy_source(headers)
    metadata = replaces(headers, "x-amz-metadata-directive")
    tags = replaces(headers, "x-amz-tagging-directive")
    itself = (source.bucket, source.key) == (call.bucket, call.key)
    if itself and not source.version_id and not metadata and not tags:
        raise S3Error(S3Code.InvalidRequest, _ONTO_ITSELF)
    operation = CopyObject(
        *(call.bucket, call.key, source_of(source, source_conditions(headers))),
        write_conditions(headers),
        metadata=checked_metadata(stored_headers(headers)) if metadata else None,
        tags=encoded_tags(header_tags(headers)) if tags else None,
    )
    answer = await call.answer(operation)
    state, result = answer.index.state, answer.result
    check_copied(state, result, source)
    told_headers = made_headers(state, call.bucket, call.key, result)
    if source.version_id:
        told_headers.append((SOURCE_VERSION_HEADER, source.version_id))
    made = None if result.version is None else state.entry(call.bucket, call.key, result.version)
    document = copied_object(made_version(result, b"" if made is None else made.checksum))
    return told(state, told_headers, document)


async def rename_object(call: GatewayCall) -> HttpResponse:
    """Rename an object at once: a copy and a deletion in an atomic command."""
    headers = call.request.http.headers
    source = rename_source(headers, call.bucket)
    if (source.bucket, source.key) == (call.bucket, call.key):
        raise S3Error(S3Code.InvalidRequest, "An object is not renamed to its own name.")
    conditions = source_conditions(headers, RENAME_SOURCE_PREFIX)
    copy = CopyObject(
        *(call.bucket, call.key, source_of(source, conditions)), write_conditions(headers)
    )
    batch = ObjectBatch((copy, DeleteObject(source.bucket, source.key)), atomic=True)
    answer = await call.answer(batch)
    state = answer.index.state
    for item in answer.result.items or (answer.result,):
        check_copied(state, item, source)
    result = answer.result.items[0]
    return told(
        state,
        [("ETag", quoted_etag(result.etag)), *version_headers(state.bucket(call.bucket), result)],
    )


def source_of(source: ObjectSource, conditions: Conditions) -> CopySource:
    """Return the source of a copy for the command: never a blob."""
    return CopySource(source.bucket, source.key, *named_version(source.version_id), conditions)


def check_copied(state: BucketState, result: CommandResult, source: ObjectSource) -> None:
    """Raise :class:`S3Error` for the outcome of a refused copy."""
    if result.done:
        return
    if result.outcome is CommandOutcome.NO_SUCH_SOURCE:
        code = S3Code.NoSuchVersion if source.version_id else S3Code.NoSuchKey
        if state.bucket(source.bucket) is None:
            code = S3Code.NoSuchBucket
        raise S3Error(code, headers=position_headers(state))
    raise outcome_error(result.outcome, state.position)
