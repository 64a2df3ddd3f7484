"""The changes of objects: put, copy, delete, tags, and batches of these."""

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from ares.bucket.bucket_state import BucketState
from ares.bucket.command_results import CommandOutcome, CommandResult
from ares.bucket.commands import (
    CopyObject,
    CopySource,
    DeleteObject,
    ItemOperation,
    ObjectBatch,
    PutObject,
    SetTags,
    own_blobs,
)
from ares.bucket.conditions import judge
from ares.bucket.index_records import (
    BucketEntry,
    ObjectEntry,
    Version,
    Versioning,
    piece_of,
)
from ares.model.numbers import POSITION_MAX


def change_objects(state: BucketState, batch: ObjectBatch) -> CommandResult:
    """Apply the items of a batch, each by the state after the earlier items.

    An atomic batch is judged as a whole by the state before the batch. The items are independent:
    the judgement holds while they are applied. A quota must have room for the sum of additions and
    deletions: a rename needs no room.
    """
    if batch.atomic:
        verdicts = _judged_together(state, batch.items)
        if any(verdict is not CommandOutcome.DONE for verdict in verdicts):
            state.lose(own_blobs(batch))
            return CommandResult(
                CommandOutcome.BATCH_FAILED, items=tuple(map(CommandResult, verdicts))
            )
        results = [_change(state, item, index) for index, item in enumerate(batch.items)]
    else:
        results = [change_object(state, item, index) for index, item in enumerate(batch.items)]
    return CommandResult(CommandOutcome.DONE, items=tuple(results))


def change_object(state: BucketState, item: ItemOperation, index: int = 0) -> CommandResult:
    """Apply an item if the conditions hold; otherwise the new blob is garbage."""
    verdict, growth = _judged(state, item)
    if verdict is CommandOutcome.DONE:
        verdict = over_quota(state.bucket(item.bucket), growth)
    if verdict is not CommandOutcome.DONE:
        state.lose(own_blobs(item))
        return CommandResult(verdict)
    return _change(state, item, index)


def _judged_together(state: BucketState, items: Sequence[ItemOperation]) -> list[CommandOutcome]:
    """Return the outcome of each item; a bucket must have room for the growth by all items."""
    judged = [_judged(state, item) for item in items]
    growths: Counter[str] = Counter()
    for item, (_, growth) in zip(items, judged, strict=True):
        growths[item.bucket] += growth
    return [
        verdict
        if verdict is not CommandOutcome.DONE or growth <= 0
        else over_quota(state.bucket(item.bucket), growths[item.bucket])
        for item, (verdict, growth) in zip(items, judged, strict=True)
    ]


def _change(state: BucketState, item: ItemOperation, index: int) -> CommandResult:
    """Apply an item that was judged by this state."""
    version = Version(state.position, index)
    match item:
        case PutObject():
            content = piece_of(item.content)
            entry = ObjectEntry(
                version, content.length, item.etag, state.ms, content,
                item.metadata, item.checksum, item.tags,
            )  # fmt: skip
        case CopyObject():
            entry = _copy(state, item, version)
        case SetTags():
            entry = _existing(state, item)
            state.set_entry(item.bucket, item.key, replace(entry, tags=item.tags))
            return told(entry)
        case DeleteObject():
            return _delete(state, item, version)
    state.use(entry.content)
    return add_version(state, item.bucket, item.key, entry)


def _judged(state: BucketState, item: ItemOperation) -> tuple[CommandOutcome, int]:
    """Return the outcome of an item by the present state, and the bytes added.

    The state is not changed, and the quota is not judged.
    """
    bucket = state.bucket(item.bucket)
    if bucket is None:
        return CommandOutcome.NO_SUCH_BUCKET, 0
    if isinstance(item, DeleteObject | SetTags):
        entry = state.chosen(item.bucket, item.key, item.version, item.null)
        if isinstance(item, SetTags):
            absent = entry is None or entry.marker
            return CommandOutcome.NO_SUCH_KEY if absent else judge(item.conditions, entry), 0
        if item.superseded and entry == state.newest(item.bucket, item.key):
            return CommandOutcome.CONDITION_FAILED, 0
        named = item.version is not None or item.null
        gone = entry if named else _replaced(state, bucket, item.bucket, item.key)
        return judge(item.conditions, entry), -gone.size if gone is not None else 0
    current = state.newest(item.bucket, item.key)
    verdict = judge(item.conditions, current)
    if verdict is not CommandOutcome.DONE:
        return verdict, 0
    if isinstance(item, CopyObject):
        source = judged_source(state, item.source)
        if not isinstance(source, ObjectEntry):
            return source, 0
        size = source.size
    else:
        size = piece_of(item.content).length
    replaced = _replaced(state, bucket, item.bucket, item.key)
    return CommandOutcome.DONE, size - (0 if replaced is None else replaced.size)


def _replaced(state: BucketState, bucket: BucketEntry, name: str, key: str) -> ObjectEntry | None:
    """Return the version that the next version of a key replaces: the null version, if any."""
    return None if bucket.versioning is Versioning.ON else state.null_entry(name, key)


def over_quota(bucket: BucketEntry | None, growth: int) -> CommandOutcome:
    """Return OVER_QUOTA if the bucket has no room for ``growth`` more bytes.

    A bucket without a quota has room for as many bytes as the counters can tell.
    """
    if bucket is None or growth <= 0:
        return CommandOutcome.DONE
    used = bucket.bytes + bucket.part_bytes
    full = used + growth > (bucket.quota or POSITION_MAX)
    return CommandOutcome.OVER_QUOTA if full else CommandOutcome.DONE


def judged_source(state: BucketState, source: CopySource) -> ObjectEntry | CommandOutcome:
    """Return the entry to copy from, or the outcome without an entry."""
    entry = state.chosen(source.bucket, source.key, source.version, source.null)
    if entry is None or entry.marker:
        return CommandOutcome.NO_SUCH_SOURCE
    verdict = judge(source.conditions, entry)
    return entry if verdict is CommandOutcome.DONE else verdict


def _copy(state: BucketState, item: CopyObject, version: Version) -> ObjectEntry:
    source = judged_source(state, item.source)
    assert isinstance(source, ObjectEntry), "the source was judged at this position"
    return replace(
        source,
        version=version,
        ms=state.ms,
        metadata=source.metadata if item.metadata is None else item.metadata,
        tags=source.tags if item.tags is None else item.tags,
    )


def _existing(state: BucketState, item: SetTags) -> ObjectEntry:
    entry = state.chosen(item.bucket, item.key, item.version, item.null)
    assert entry is not None, "the entry was judged at this position"
    return entry


def _delete(state: BucketState, item: DeleteObject, version: Version) -> CommandResult:
    """Remove a named version; without a name, remove the object or add a deletion."""
    bucket = state.bucket(item.bucket)
    assert bucket is not None, "the bucket was judged at this position"
    if item.version is not None or item.null or bucket.versioning is Versioning.OFF:
        entry = state.chosen(item.bucket, item.key, item.version, item.null)
        if entry is None:
            return CommandResult(CommandOutcome.DONE)
        bucket = _without(state, item.bucket, item.key, bucket, entry)
        state.set_bucket(item.bucket, bucket)
        return told(entry)
    marker = ObjectEntry(version, 0, "", state.ms, marker=True)
    return add_version(state, item.bucket, item.key, marker)


def add_version(state: BucketState, name: str, key: str, entry: ObjectEntry) -> CommandResult:
    """Make ``entry`` the newest version of a key, in place of a null version or above all.

    The caller counted the use of the content, before an old use goes: an object copied onto itself
    keeps the bytes.
    """
    bucket, current = state.bucket(name), state.newest(name, key)
    assert bucket is not None, "the bucket was judged at this position"
    if bucket.versioning is Versioning.ON:
        older = None
        if current is not None:
            older = current.version if current.null else current.null_version
        entry = replace(entry, null=False, null_version=older)
    else:
        entry = replace(entry, null=True, null_version=None)
        replaced = state.null_entry(name, key)
        if replaced is not None:
            bucket = _without(state, name, key, bucket, replaced)
    there = state.newest(name, key)
    state.set_entry(name, key, entry)
    counted = there is not None and not there.marker
    bucket = replace(
        bucket,
        versions=bucket.versions + 1,
        bytes=bucket.bytes + entry.size,
        objects=bucket.objects + (not entry.marker) - counted,
    )
    state.set_bucket(name, bucket)
    return told(entry)


def _without(
    state: BucketState, name: str, key: str, bucket: BucketEntry, entry: ObjectEntry
) -> BucketEntry:
    """Remove a version, and return the bucket with its new counters."""
    before = state.newest(name, key)
    state.remove_entry(name, key, entry)
    later = state.newest(name, key)
    counted = before is not None and not before.marker
    counts = later is not None and not later.marker
    return replace(
        bucket,
        versions=bucket.versions - 1,
        bytes=bucket.bytes - entry.size,
        objects=bucket.objects + counts - counted,
    )


def told(entry: ObjectEntry) -> CommandResult:
    """Return the result that tells of an entry."""
    return CommandResult(
        *(CommandOutcome.DONE, entry.version, entry.etag, entry.size, entry.ms),
        null=entry.null,
        marker=entry.marker,
    )
