"""Deletions: of an object, of a version, and of up to a thousand objects by a document."""

from collections.abc import Iterator, Sequence

from ares.bucket.bucket_state import BucketState
from ares.bucket.command_results import CommandResult
from ares.bucket.commands import DeleteObject, ObjectBatch
from ares.gateway.actions.error_table import outcome_error
from ares.gateway.actions.gateway_services import GatewayCall, told
from ares.gateway.actions.version_values import (
    MARKER_HEADER,
    VERSION_HEADER,
    named_version,
    version_headers,
    version_name,
)
from ares.gateway.s3.answer_documents import DeletionOutcome, deleted_objects
from ares.gateway.s3.exchange import HttpResponse
from ares.gateway.s3.request_conditions import write_conditions
from ares.gateway.s3.request_documents import Deletion, deletions

DELETIONS_BYTES_MAX = 512 * 1024
"""Bytes of the keys in a batch: the batch is an entry of the log."""


async def delete_object(call: GatewayCall) -> HttpResponse:
    """Delete an object, or a version for ever; an absent object is deleted already."""
    given = call.query("versionId")
    conditions = write_conditions(call.request.http.headers)
    operation = DeleteObject(call.bucket, call.key, *named_version(given), conditions)
    answer = await call.change(operation)
    state, result = answer.index.state, answer.result
    headers = version_headers(state.bucket(call.bucket), result)
    if result.version is None and given:
        headers.append((VERSION_HEADER, given))
    if result.marker:
        headers.append((MARKER_HEADER, "true"))
    return told(state, headers, status=204)


async def delete_objects(call: GatewayCall) -> HttpResponse:
    """Delete the objects of a document, in a single command if the log's entry has room.

    Each deletion has its own outcome.
    """
    wanted = deletions(await call.document())
    done: list[tuple[Deletion, CommandResult]] = []
    state: BucketState | None = None
    for some in _batches(wanted.items):
        items = tuple(
            DeleteObject(call.bucket, each.key, *named_version(each.version_id), each.conditions)
            for each in some
        )
        answer = await call.change(ObjectBatch(items))
        state = answer.index.state
        done += zip(some, answer.result.items, strict=True)
    state = state or await call.verified()
    outcomes = [_outcome(*each) for each in done]
    return told(state, body=deleted_objects(outcomes, wanted.quiet))


def _outcome(item: Deletion, result: CommandResult) -> DeletionOutcome:
    """Return the outcome of a deletion for the document."""
    error = None if result.done else outcome_error(result.outcome)
    marker = version_name(result.version, result.null) if result.marker else ""
    return DeletionOutcome(item.key, item.version_id, marker, error)


def _batches(items: Sequence[Deletion]) -> Iterator[Sequence[Deletion]]:
    """Yield the items in batches whose keys fit into an entry of the log."""
    batch: list[Deletion] = []
    size = 0
    for item in items:
        length = len(item.key.encode())
        if batch and size + length > DELETIONS_BYTES_MAX:
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += length
    if batch:
        yield batch
