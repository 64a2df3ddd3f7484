"""The changes of the index by a client: attempts, each in a session, and errors of outcomes.

The steps have the order of ares/bucket/bucket_requests.py; the data is a stream.
"""

import hashlib
from collections.abc import AsyncIterator, Callable

from msgspec import Struct
from msgspec.structs import replace

from ares.bucket.bucket_requests import SessionEnded, early_failure
from ares.bucket.command_results import CommandOutcome, CommandResult
from ares.bucket.commands import (
    INVOCATION_ID_BYTES_MAX,
    UNCONDITIONAL,
    ChangingOperation,
    Conditions,
    PutObject,
    PutPart,
    request_print,
)
from ares.bucket.index_records import INDEX_DATA_BYTES_MAX, Content
from ares.client.buckets.blob_store import BlobStore, BlobUpload
from ares.client.buckets.bucket_body import Body
from ares.client.buckets.bucket_errors import (
    BucketExists,
    BucketNotEmpty,
    BucketNotFound,
    ChangeRefused,
    ChangeUncertain,
    KeyNotFound,
    PreconditionFailed,
    UploadNotFound,
)
from ares.client.buckets.bucket_index import BucketIndex
from ares.client.buckets.bucket_values import (
    ObjectInfo,
    info_of,
    info_of_result,
    shown_version,
)
from ares.model.errors import BadInput

INVOCATION_BYTES = 16
"""Bytes of an id that a process gives to a change."""


class ClientRequest(Struct, frozen=True):
    """A request whose sender tries again by itself, through any process.

    ``invocation``: 1 to 64 bytes, common to all attempts at the request, and to no other request.
    ``attempt``: 1 for the first attempt. Only a first attempt may fail before its command: a later
    attempt could fail for the success of an earlier one.
    """

    invocation: bytes
    attempt: int = 1

    def __post_init__(self) -> None:
        """Check the fields. Raises :class:`BadInput`."""
        if not 1 <= len(self.invocation) <= INVOCATION_ID_BYTES_MAX or self.attempt < 1:
            raise BadInput("a request has an id of 1 to 64 bytes, and attempts from 1 on")


class ChangeAnswer(Struct, frozen=True):
    """The result of a change, and the index with the result."""

    index: BucketIndex
    result: CommandResult


class ChangeAttempt(Struct, frozen=True):
    """An attempt at a change. ``invocation``: the id of all attempts at the change.

    ``first``: no earlier attempt may have succeeded. A failure may be told before a command.
    """

    index: BucketIndex
    invocation: bytes
    first: bool
    timeout_s: float

    async def give(self, operation: ChangingOperation) -> ChangeAnswer:
        """Give a command without data to the log, unless an earlier attempt has a result."""
        session = self.index.session
        fingerprint = request_print(self.invocation, operation)
        check = session.begin_check(fingerprint)
        try:
            known = session.first_result(check, fingerprint)
            return ChangeAnswer(self.index, known or await self._commit(operation))
        finally:
            session.end_check(check)

    async def _commit(self, operation: ChangingOperation) -> CommandResult:
        result = await self.index.commit(operation, self.invocation, self.timeout_s)
        if result.outcome is CommandOutcome.FENCED:
            raise SessionEnded("the session ended before the change, which was not made")
        return result


class DataPut(Struct):
    """A put of an object or of a part. ``operation``: without content.

    The etag comes with the first attempt. ``checksum`` is called after the last chunk.
    """

    operation: PutObject | PutPart
    body: Body
    blobs: BlobStore
    progress: Callable[[int], None]
    checksum: Callable[[], bytes] | None = None

    async def attempt(self, attempt: ChangeAttempt) -> ChangeAnswer:
        """Store the data, and give the command to the log when all chunks are at a quorum."""
        index, session = attempt.index, attempt.index.session
        check = session.begin_check(request_print(attempt.invocation, self.operation))
        try:
            known = self._first_result(attempt, check)
            if known is None and attempt.first:
                known = await self._early_failure(attempt)
            if known is None:
                known = await self._stored(attempt, check)
            return ChangeAnswer(index, known)
        finally:
            session.end_check(check)

    async def _early_failure(self, attempt: ChangeAttempt) -> CommandResult | None:
        """Return a failure known before data moves."""
        index, operation = attempt.index, self.operation
        conditional = isinstance(operation, PutObject) and operation.conditions != UNCONDITIONAL
        if self._failure(index) is None and not conditional:
            return None
        await index.verified(attempt.timeout_s)
        failed = self._failure(index)
        return None if failed is None else CommandResult(failed)

    def _failure(self, index: BucketIndex) -> CommandOutcome | None:
        """Return the failure of the put at the index's position, if any."""
        state, operation = index.state, self.operation
        if state.bucket(operation.bucket) is None:
            return CommandOutcome.NO_SUCH_BUCKET
        if isinstance(operation, PutObject):
            return early_failure(index.session, operation)
        upload = state.upload(operation.bucket, operation.key, operation.upload)
        return CommandOutcome.NO_SUCH_UPLOAD if upload is None else None

    async def _stored(self, attempt: ChangeAttempt, check: int) -> CommandResult:
        """Store the data, small data in the command, and give the command to the log."""
        chunks = self.body.chunks()
        first = await anext(chunks, b"")
        if len(first) <= INDEX_DATA_BYTES_MAX:
            etag = hashlib.md5(first, usedforsecurity=False).hexdigest()
            operation = self._whole(etag, first)
            return self._first_result(attempt, check) or await attempt._commit(operation)
        return await self._stored_blob(attempt, check, _joined(first, chunks))

    async def _stored_blob(
        self, attempt: ChangeAttempt, check: int, chunks: AsyncIterator[bytes]
    ) -> CommandResult:
        index, session = attempt.index, attempt.index.session
        assert session.number is not None, "an open index has a session"
        counter = session.take_blob()
        upload = BlobUpload(self.blobs, session.number, counter)
        named = False
        try:
            await upload.store(chunks, self.progress, attempt.timeout_s)
            operation = self._whole(upload.etag, upload.blob)
            index.check_live()
            known = self._first_result(attempt, check)
            if known is not None:
                return known
            named = True
            return await attempt._commit(operation)
        finally:
            session.close_blob(counter)
            if not named:
                index.unnamed.append(upload.names)

    def _first_result(self, attempt: ChangeAttempt, check: int) -> CommandResult | None:
        """Return the result of an earlier attempt; None before the etag is known."""
        fingerprint = request_print(attempt.invocation, self.operation)
        return attempt.index.session.first_result(check, fingerprint)

    def _whole(self, etag: str, content: Content) -> PutObject | PutPart:
        """Return the operation with the content; the etag is the same in each attempt."""
        if self.operation.etag not in ("", etag):
            raise ChangeUncertain("the data changed between two attempts to send it")
        self.operation = replace(self.operation, etag=etag)
        checksum = self.operation.checksum if self.checksum is None else self.checksum()
        return replace(self.operation, content=content, checksum=checksum)


async def _joined(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in rest:
        yield chunk


def check_outcome(answer: ChangeAnswer, bucket: str, key: str = "") -> None:
    """Raise the error for the outcome of a change, unless the change is done.

    ``key``: of the object or of the upload which the change needs.
    """
    match answer.result.outcome:
        case CommandOutcome.DONE:
            return
        case CommandOutcome.NO_SUCH_BUCKET:
            raise BucketNotFound(bucket)
        case CommandOutcome.BUCKET_EXISTS:
            raise BucketExists(bucket)
        case CommandOutcome.BUCKET_NOT_EMPTY:
            raise BucketNotEmpty(bucket)
        case CommandOutcome.NO_SUCH_KEY | CommandOutcome.NO_SUCH_SOURCE:
            raise KeyNotFound(key, bucket)
        case CommandOutcome.NO_SUCH_UPLOAD:
            upload = answer.result.version
            raise UploadNotFound(bucket, key, shown_version(upload) if upload else "")
        case outcome:
            raise ChangeRefused(bucket, outcome)


def check_object_outcome(
    answer: ChangeAnswer, bucket: str, key: str, conditions: Conditions
) -> None:
    """Raise the error for the outcome of a change of an object with conditions."""
    outcome, state = answer.result.outcome, answer.index.state
    absent = outcome is CommandOutcome.NO_SUCH_KEY and conditions != UNCONDITIONAL
    if absent or outcome is CommandOutcome.CONDITION_FAILED:
        entry = None if absent else state.newest(bucket, key)
        there = None if entry is None or entry.marker else entry
        current = None if there is None else info_of(key, there, state.position)
        raise PreconditionFailed(bucket, key, current)
    check_outcome(answer, bucket, key)


def info_of_made(answer: ChangeAnswer, bucket: str, key: str) -> ObjectInfo:
    """Return the version made by a change, with its metadata unless it is gone already."""
    result, state = answer.result, answer.index.state
    assert result.version is not None, "the change made a version"
    entry = state.entry(bucket, key, result.version)
    if entry is not None:
        return info_of(key, entry, state.position)
    return info_of_result(key, result, {}, state.position, {})
