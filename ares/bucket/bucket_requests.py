"""The requests on buckets, as generators of effects: what a process does for its users.

A process performs the effects. The order of the steps is the safety of the index:

- a check or a read comes after a look at the log's tail (:class:`Verify`);
- a command is given to the log after its chunks are at a quorum, never earlier;
- the answer is the fold's result at the command's position, never the append's acknowledgement;
- an early failure is told to the first attempt at a request only.
"""

from collections.abc import Generator
from typing import Any, NamedTuple

import msgspec

from ares.bucket.bucket_session import BucketSession
from ares.bucket.bucket_state import rows_between
from ares.bucket.command_results import CommandOutcome, CommandResult
from ares.bucket.commands import (
    BeginUpload,
    ChangingOperation,
    Collected,
    Command,
    CompleteUpload,
    Conditions,
    CopyObject,
    DeleteObject,
    KeepSnapshot,
    Operation,
    PutObject,
    SetTags,
    request_print,
)
from ares.bucket.conditions import judge
from ares.bucket.garbage import may_drop
from ares.bucket.index_records import Blob, ObjectEntry
from ares.bucket.row_keys import ROWS_END
from ares.model.errors import AresError

GARBAGE_AT_ONCE = 100


class SessionEnded(AresError):
    """The session of this process has ended. The request may have taken effect: send it again."""


class Verify(NamedTuple):
    """Wait until the index is at a tail of the log that was asked for after this moment."""


class StoreBlob(NamedTuple):
    """Store the blob's chunks under fresh names, all at a quorum."""

    blob: Blob
    data: bytes


class FetchBlob(NamedTuple):
    """Fetch a blob; the result is None if a chunk is missing."""

    blob: Blob


class Commit(NamedTuple):
    """Append the command, again if need be, until the index has its result."""

    command: Command


class DropBlob(NamedTuple):
    """Drop the blob's names at every server."""

    blob: Blob


class ListBlobs(NamedTuple):
    """List the names of all blobs at every server."""


class TrimLog(NamedTuple):
    """Trim the log below a position."""

    upto: int


Effect = Verify | StoreBlob | FetchBlob | Commit | DropBlob | ListBlobs | TrimLog
Steps = Generator[Effect, Any, "BucketAnswer"]


class BucketAnswer(NamedTuple):
    """The answer to a request. ``position``: the index had all entries of the log below it.

    ``early``: the answer was given without a command. ``data``: of a read.
    """

    result: CommandResult
    position: int
    early: bool = False
    entry: ObjectEntry | None = None
    data: bytes | None = None


class ChangeRequest(NamedTuple):
    """A request for a change. ``operation``: without the ``data``, which is stored first as a blob.

    With data the etag of ``operation`` is used after the data, which would tell it, is stored.
    ``attempt``: the number that the client's library gives to this attempt at the request.
    """

    operation: ChangingOperation
    data: bytes = b""
    ms: int = 0
    invocation: bytes = b""
    attempt: int = 1


def change(session: BucketSession, request: ChangeRequest) -> Steps:
    """Change the index by a command. All is settled when the answer is known or given up."""
    _check_live(session)
    counter = session.take_blob() if request.data else None
    operation = request.operation
    told = operation if counter is None else msgspec.structs.replace(operation, etag="")
    fingerprint = request_print(request.invocation, told)
    check = session.begin_check(fingerprint)
    try:
        known = session.first_result(check, fingerprint)
        if known is None and may_answer_early(request) and _conditions(request.operation):
            yield Verify()
            _check_live(session)
            known = session.first_result(check, fingerprint)  # it may have come meanwhile
            failed = None if known is not None else early_failure(session, request.operation)
            if failed is not None:
                return BucketAnswer(CommandResult(failed), session.state.position, True)
        if known is None and counter is not None:
            blob = session.blob(counter, len(request.data))
            operation = msgspec.structs.replace(operation, content=blob)
            yield StoreBlob(blob, request.data)
            _check_live(session)
            known = session.first_result(check, request_print(request.invocation, operation))
        if known is not None:
            return BucketAnswer(known, session.state.position)
        return (yield from _committed(session, operation, request.ms, request.invocation))
    finally:
        session.end_check(check)
        if counter is not None:
            session.close_blob(counter)


def _committed(
    session: BucketSession, operation: Operation, ms: int, invocation: bytes = b""
) -> Steps:
    """Give a command to the log, with a number from here to its answer."""
    number = session.take_number()
    try:
        result: CommandResult = yield Commit(session.command(number, operation, ms, invocation))
        return BucketAnswer(result, session.state.position)
    finally:
        session.settle(number)


def may_answer_early(request: ChangeRequest) -> bool:
    """Return whether a failure may be told before a command.

    A later attempt may fail for the success of an earlier one, whose command is still under way.
    """
    return request.attempt == 1 or not request.invocation


def _conditions(operation: ChangingOperation) -> Conditions | None:
    """Return the conditions of an operation; None without any."""
    if isinstance(operation, PutObject | CopyObject | DeleteObject | SetTags | CompleteUpload):
        conditions = operation.conditions
        return None if conditions == Conditions() else conditions
    return None


def early_failure(session: BucketSession, operation: ChangingOperation) -> CommandOutcome | None:
    """Return the failure of an operation's conditions at the index's position, if any."""
    conditions = _conditions(operation)
    if conditions is None or isinstance(operation, BeginUpload):
        return None
    target: Any = operation
    named = isinstance(operation, DeleteObject | SetTags)
    version, null = (target.version, target.null) if named else (None, False)
    entry = session.state.chosen(target.bucket, target.key, version, null)
    outcome = judge(conditions, entry)
    return None if outcome is CommandOutcome.DONE else outcome


def _check_live(session: BucketSession) -> None:
    if not session.is_live:
        raise SessionEnded("the session of this process has ended")


def get_object(session: BucketSession, bucket: str, key: str) -> Steps:
    """Read the newest version of an object.

    The read is registered in the step that looks at the index: a beat after this step keeps the
    blobs of this position.
    """
    yield Verify()
    _check_live(session)
    read = session.begin_read()
    try:
        position, entry = session.state.position, session.state.newest(bucket, key)
        if entry is None or entry.marker:
            return BucketAnswer(CommandResult(CommandOutcome.NO_SUCH_KEY), position, True)
        data = b""
        for piece in session.state.leaves(entry.content):
            found = piece.data
            if piece.blob is not None:
                fetched: bytes | None = yield FetchBlob(piece.blob)
                if fetched is None:
                    raise SessionEnded(f"a chunk of {bucket}/{key} is missing")
                found = fetched[piece.start : piece.start + piece.length]
            data += found
        return BucketAnswer(CommandResult(CommandOutcome.DONE), position, True, entry, data)
    finally:
        session.end_read(read)


# -- upkeep ----------------------------------------------------------------------------------------


def collect(session: BucketSession, ms: int) -> Steps:
    """Drop the oldest garbage that no process may need, and tell the index."""
    state = session.state
    found = [blob for _, blob in state.garbage(GARBAGE_AT_ONCE) if may_drop(state, blob)]
    if not found and not state.has_leftovers():
        return BucketAnswer(CommandResult(CommandOutcome.DONE), state.position, True)
    for blob in found:
        yield DropBlob(blob)
    _check_live(session)
    return (yield from _committed(session, Collected(tuple(found)), ms))


def sweep(session: BucketSession) -> Steps:
    """Drop every name that no process may need: the rest of commands that never came."""
    blobs = yield ListBlobs()
    for blob in blobs:
        if session.state.place(blob) is None and may_drop(session.state, blob):
            yield DropBlob(blob)
    return BucketAnswer(CommandResult(CommandOutcome.DONE), session.state.position, True)


_rows = msgspec.msgpack.Decoder(list[tuple[bytes, bytes]])


def keep_snapshot(session: BucketSession, ms: int) -> Steps:
    """Store the rows as they are now, read them back, tell the index, and trim the log."""
    _check_live(session)
    state, counter = session.state, session.take_blob()
    try:
        position, digest = state.position, state.digest.to_bytes(16)
        data = msgspec.msgpack.encode(list(rows_between(state.table, b"", ROWS_END)))
        blob = session.blob(counter, len(data))
        yield StoreBlob(blob, data)
        _check_live(session)
        if (yield FetchBlob(blob)) != data:
            raise SessionEnded("a snapshot was read back with other bytes")
        _check_live(session)
        answer = yield from _committed(session, KeepSnapshot(position, digest, blob), ms)
    finally:
        session.close_blob(counter)
    if answer.result.done and len(kept := session.state.snapshots()) > 1:
        yield TrimLog(kept[0].position)
    return answer


def rows_of_snapshot(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return the rows that :func:`keep_snapshot` stored. Raises msgspec's error for other bytes."""
    return _rows.decode(data)
