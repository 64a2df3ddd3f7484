"""The changes of multipart uploads."""

from collections.abc import Sequence
from itertools import pairwise

from blake3 import blake3
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
    CONTENT_LEVELS_MAX,
    OBJECT_BYTES_MAX,
    BucketEntry,
    ObjectEntry,
    PartEntry,
    UploadEntry,
    Version,
    piece_of,
)
from ares.bucket.object_changes import add_version, judged_source, over_quota
from ares.bucket.row_keys import part_row, upload_row


def begin_upload(state: BucketState, operation: BeginUpload) -> CommandResult:
    """Begin an upload; the version of this command is the id."""
    bucket = state.bucket(operation.bucket)
    if bucket is None:
        return CommandResult(CommandOutcome.NO_SUCH_BUCKET)
    upload, ms = Version(state.position), state.ms
    entry = UploadEntry(ms, operation.metadata, operation.tags, operation.checksum)
    state.put_record(upload_row(operation.bucket, operation.key, upload), entry)
    state.set_bucket(operation.bucket, replace(bucket, uploads=bucket.uploads + 1))
    return CommandResult(CommandOutcome.DONE, upload, ms=ms)


def change_upload(state: BucketState, operation: OfUpload) -> CommandResult:
    """Apply an operation on an upload, if the upload exists; otherwise the new blob is garbage."""
    bucket = state.bucket(operation.bucket)
    upload = state.upload(operation.bucket, operation.key, operation.upload)
    etag, size = "", 0
    if bucket is None or upload is None:
        outcome = CommandOutcome.NO_SUCH_UPLOAD
    else:
        match operation:
            case PutPart() | CopyPart():
                part = _part(state, operation)
                if isinstance(part, PartEntry):
                    outcome = _put_part(state, operation, bucket, upload, part)
                    etag, size = part.etag, part.size
                else:
                    outcome = part
            case CompleteUpload():
                return _complete(state, operation, bucket, upload)
            case _:  # AbortUpload
                _end(state, operation, bucket, upload)
                outcome = CommandOutcome.DONE
    if outcome is not CommandOutcome.DONE and isinstance(operation, PutPart):
        state.lose(own_blobs(operation))
    return CommandResult(outcome, operation.upload, etag, size, state.ms)


def _part(state: BucketState, operation: PutPart | CopyPart) -> PartEntry | CommandOutcome:
    """Return the part, or the outcome without a part."""
    if isinstance(operation, PutPart):
        content = piece_of(operation.content)
        return PartEntry(content.length, operation.etag, state.ms, content, operation.checksum)
    source, first = judged_source(state, operation.source), operation.first
    if not isinstance(source, ObjectEntry):
        return source
    length = operation.length or source.size - first
    if first + length > source.size or length < 0:
        return CommandOutcome.BAD_RANGE
    etag = operation.etag or copied_etag(source, first, length)
    checksum = source.checksum if _is_whole(source, length) else b""
    return PartEntry(length, etag, state.ms, source.content.cut(first, length), checksum)


def _is_whole(source: ObjectEntry, length: int) -> bool:
    """Return whether the etag and the checksum of an object are those of its ``length`` bytes."""
    return length == source.size and not source.parts


def copied_etag(source: ObjectEntry, first: int, length: int) -> str:
    """Return the etag of a part made of a range: the MD5 if known, else as many digits."""
    if _is_whole(source, length):
        return source.etag
    version = source.version
    of_range = f"{source.etag} {version.position}.{version.index} {first} {length}"
    return blake3(of_range.encode()).hexdigest(16)


def _put_part(
    state: BucketState,
    operation: PutPart | CopyPart,
    bucket: BucketEntry,
    upload: UploadEntry,
    part: PartEntry,
) -> CommandOutcome:
    """Set a part, in place of an earlier part with the number."""
    row = part_row(operation.upload, operation.part)
    known = state.record(row, PartEntry)
    growth = part.size - (0 if known is None else known.size)
    outcome = over_quota(bucket, growth)
    if outcome is CommandOutcome.DONE:
        state.use(part.content)
        if known is not None:
            state.give_up(known.content)
        state.put_record(row, part)
        begun = replace(upload, part_bytes=upload.part_bytes + growth)
        state.put_record(upload_row(operation.bucket, operation.key, operation.upload), begun)
        state.set_bucket(operation.bucket, replace(bucket, part_bytes=bucket.part_bytes + growth))
    return outcome


def _complete(
    state: BucketState, operation: CompleteUpload, bucket: BucketEntry, upload: UploadEntry
) -> CommandResult:
    """Make an object of the named parts, and give up the rest."""
    numbers = [named.part for named in operation.parts]
    there = state.parts(operation.upload, numbers)
    outcome = _judged_parts(state, operation.parts, there)
    current = state.newest(operation.bucket, operation.key)
    if outcome is CommandOutcome.DONE:
        outcome = judge(operation.conditions, current)
    if outcome is not CommandOutcome.DONE:
        return CommandResult(outcome)
    chosen = [there[named.part] for named in operation.parts]
    pieces = tuple(part.content for part in chosen)
    version = Version(state.position)
    content = pieces[0] if len(pieces) == 1 else state.share(version, pieces)
    entry = ObjectEntry(
        *(version, content.length, operation.etag, state.ms, content),
        *(upload.metadata, operation.checksum or upload.checksum, upload.tags),
        len(chosen),
    )
    result = add_version(state, operation.bucket, operation.key, entry, current)
    after = state.bucket(operation.bucket)
    assert after is not None, "the bucket was looked up at this position"
    _end(state, operation, after, upload, numbers)
    return result


def _judged_parts(
    state: BucketState, named: Sequence[NamedPart], there: dict[int, PartEntry]
) -> CommandOutcome:
    numbers = [part.part for part in named]
    if any(first >= second for first, second in pairwise(numbers)):
        return CommandOutcome.BAD_PART_ORDER
    chosen = [there.get(part.part) for part in named]
    size = 0
    for part, wanted in zip(chosen, named, strict=True):
        if part is None or part.etag != wanted.etag:
            return CommandOutcome.BAD_PART
        if part.size < state.part_bytes_min and wanted is not named[-1]:
            return CommandOutcome.PART_TOO_SMALL
        size += part.size
        if len(named) > 1 and state.depth(part.content) >= CONTENT_LEVELS_MAX:
            return CommandOutcome.TOO_NESTED
    return CommandOutcome.TOO_LARGE if size > OBJECT_BYTES_MAX else CommandOutcome.DONE


def _end(
    state: BucketState,
    operation: OfUpload,
    bucket: BucketEntry,
    upload: UploadEntry,
    taken: Sequence[int] = (),
) -> None:
    """End an upload. An object takes over the uses of the parts ``taken``."""
    state.delete(upload_row(operation.bucket, operation.key, operation.upload))
    part_bytes = bucket.part_bytes - upload.part_bytes
    bucket = replace(bucket, uploads=bucket.uploads - 1, part_bytes=part_bytes)
    state.set_bucket(operation.bucket, bucket)
    state.end_parts(operation.upload, taken)
