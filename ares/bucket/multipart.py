"""The changes of multipart uploads."""

from collections.abc import Sequence
from itertools import pairwise

from msgspec.structs import replace

from ares.bucket.bucket_state import BucketState
from ares.bucket.command_results import CommandOutcome, CommandResult
from ares.bucket.commands import (
    BeginUpload,
    CompleteUpload,
    CopyPart,
    NamedPart,
    OfUpload,
    PutPart,
    own_blobs,
)
from ares.bucket.conditions import judge
from ares.bucket.index_records import (
    OBJECT_BYTES_MAX,
    PIECES_MAX,
    BucketEntry,
    ObjectEntry,
    PartEntry,
    Piece,
    UploadEntry,
    Version,
)
from ares.bucket.object_changes import add_version, judged_source, over_quota, size_of
from ares.bucket.row_keys import part_number_of_row, part_row, upload_row

UPLOADED_PART_BYTES_MIN = 5 * 1024 * 1024
"""Bytes of a part, except for the last part of an object."""

COPIED_PIECES_MAX = 1024
"""Pieces of a part that is a copy: a short command makes a row of at most so many."""


def begin_upload(state: BucketState, operation: BeginUpload) -> CommandResult:
    """Begin an upload, whose id is the version of this command."""
    bucket = state.bucket(operation.bucket)
    if bucket is None:
        return CommandResult(CommandOutcome.NO_SUCH_BUCKET)
    upload, ms = Version(state.position), state.totals.clock_ms
    entry = UploadEntry(ms, operation.metadata, operation.tags, operation.checksum)
    state.put_record(upload_row(operation.bucket, operation.key, upload), entry)
    state.set_bucket(operation.bucket, replace(bucket, uploads=bucket.uploads + 1))
    return CommandResult(CommandOutcome.DONE, upload, ms=ms)


def change_upload(state: BucketState, operation: OfUpload) -> CommandResult:
    """Apply an operation on an upload, if the upload is there; otherwise its blobs are garbage."""
    bucket = state.bucket(operation.bucket)
    upload = state.upload(operation.bucket, operation.key, operation.upload)
    if bucket is None or upload is None:
        outcome = CommandOutcome.NO_SUCH_UPLOAD
    else:
        match operation:
            case PutPart():
                part = PartEntry(
                    *(size_of(operation.pieces), operation.etag, state.totals.clock_ms),
                    *(operation.pieces, operation.checksum),
                )
                outcome = _put_part(state, operation, bucket, part)
            case CopyPart():
                outcome = _copy_part(state, operation, bucket)
            case CompleteUpload():
                return _complete(state, operation, bucket, upload)
            case _:  # AbortUpload
                _end(state, operation, bucket)
                outcome = CommandOutcome.DONE
    if outcome is not CommandOutcome.DONE and isinstance(operation, PutPart):
        state.lose(own_blobs(operation))
    etag = operation.etag if isinstance(operation, PutPart | CopyPart) else ""
    return CommandResult(outcome, operation.upload, etag=etag, ms=state.totals.clock_ms)


def _put_part(
    state: BucketState, operation: PutPart | CopyPart, bucket: BucketEntry, part: PartEntry
) -> CommandOutcome:
    """Set a part, in place of an earlier one with its number."""
    row = part_row(operation.upload, operation.part)
    known = state.record(row, PartEntry)
    growth = part.size - (0 if known is None else known.size)
    outcome = (
        over_quota(bucket, growth) if part.size <= OBJECT_BYTES_MAX else CommandOutcome.TOO_LARGE
    )
    if outcome is CommandOutcome.DONE:
        state.use(part.pieces)
        if known is not None:
            state.give_up(known.pieces)
        state.put_record(row, part)
        state.set_bucket(operation.bucket, replace(bucket, part_bytes=bucket.part_bytes + growth))
    return outcome


def _copy_part(state: BucketState, operation: CopyPart, bucket: BucketEntry) -> CommandOutcome:
    source = judged_source(state, operation.source)
    if not isinstance(source, ObjectEntry):
        return source
    length = operation.length or source.size - operation.first
    if operation.first + length > source.size or length < 0:
        return CommandOutcome.BAD_RANGE
    pieces = cut_pieces(source.pieces, operation.first, length)
    if len(pieces) > COPIED_PIECES_MAX:
        return CommandOutcome.TOO_MANY_PIECES
    part = PartEntry(length, operation.etag, state.totals.clock_ms, pieces)
    return _put_part(state, operation, bucket, part)


def cut_pieces(pieces: Sequence[Piece], first: int, length: int) -> tuple[Piece, ...]:
    """Return the ``length`` bytes from ``first`` on as pieces of the same blobs."""
    found, end, at = [], first + length, 0
    for piece in pieces:
        begin, until = max(first - at, 0), min(end - at, piece.length)
        if begin < until:
            data = piece.data[begin:until]
            start = piece.start + begin if piece.blob is not None else 0
            found.append(Piece(until - begin, piece.blob, start, data))
        at += piece.length
    return tuple(found)


def _complete(
    state: BucketState, operation: CompleteUpload, bucket: BucketEntry, upload: UploadEntry
) -> CommandResult:
    """Make the named parts an object; parts that are not named become garbage."""
    there = {part_number_of_row(row): part for row, part in state.parts(operation.upload)}
    outcome = _judged_parts(operation.parts, there)
    if outcome is CommandOutcome.DONE:
        current = state.newest(operation.bucket, operation.key)
        outcome = judge(operation.conditions, current)
    if outcome is not CommandOutcome.DONE:
        return CommandResult(outcome)
    chosen = [there[named.part] for named in operation.parts]
    pieces = tuple(piece for part in chosen for piece in part.pieces)
    entry = ObjectEntry(
        Version(state.position), sum(part.size for part in chosen), operation.etag,
        state.totals.clock_ms, pieces, upload.metadata, operation.checksum or upload.checksum,
        upload.tags, tuple(part.size for part in chosen),
    )  # fmt: skip
    result = add_version(state, operation.bucket, operation.key, entry)
    after = state.bucket(operation.bucket)
    assert after is not None, "the bucket was looked up at this position"
    _end(state, operation, after)
    return result


def _judged_parts(named: Sequence[NamedPart], there: dict[int, PartEntry]) -> CommandOutcome:
    numbers = [part.part for part in named]
    if any(first >= second for first, second in pairwise(numbers)):
        return CommandOutcome.BAD_PART_ORDER
    chosen = [there.get(part.part) for part in named]
    pieces = size = 0
    for part, wanted in zip(chosen, named, strict=True):
        if part is None or part.etag != wanted.etag:
            return CommandOutcome.BAD_PART
        if part.size < UPLOADED_PART_BYTES_MIN and wanted is not named[-1]:
            return CommandOutcome.PART_TOO_SMALL
        pieces, size = pieces + len(part.pieces), size + part.size
    if size > OBJECT_BYTES_MAX:
        return CommandOutcome.TOO_LARGE
    return CommandOutcome.TOO_MANY_PIECES if pieces > PIECES_MAX else CommandOutcome.DONE


def _end(state: BucketState, operation: OfUpload, bucket: BucketEntry) -> None:
    """Remove an upload and its parts; a blob that no object uses is garbage."""
    size = 0
    for row, part in state.parts(operation.upload):
        size += part.size
        state.give_up(part.pieces)
        state.delete(row)
    state.delete(upload_row(operation.bucket, operation.key, operation.upload))
    bucket = replace(bucket, uploads=bucket.uploads - 1, part_bytes=bucket.part_bytes - size)
    state.set_bucket(operation.bucket, bucket)
