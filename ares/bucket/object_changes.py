"""The changes of objects: put, copy, delete, tags, and batches of these."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ares.bucket.bucket_state import BucketState
from ares.bucket.command_results import CommandOutcome, CommandResult
from ares.bucket.commands import (
    CopyObject,
    CopySource,
    DeleteObject,
    ItemOperation,
    ObjectBatch,
    OfObject,
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


class _Judgement(NamedTuple):
    """The outcome of an item by a state, the bytes added, and the newest version of the key."""

    outcome: CommandOutcome
    growth: int = 0
    current: ObjectEntry | None = None

    @property
    def holds(self) -> bool:
        return self.outcome is CommandOutcome.DONE


def change_objects(state: BucketState, batch: ObjectBatch) -> CommandResult:
    """Apply the items of a batch, each by the state after the earlier items.

    An atomic batch is judged as a whole by the state before the batch. The items are independent:
    the judgement holds while they are applied. A quota must have room for the sum of additions and
    deletions: a rename needs no room.
    """
    if batch.atomic:
        judged = _judged_together(state, batch.items)
        if not all(judgement.holds for judgement in judged):
            state.lose(own_blobs(batch))
            verdicts = tuple(CommandResult(judgement.outcome) for judgement in judged)
            return CommandResult(CommandOutcome.BATCH_FAILED, items=verdicts)
        results = [
            _change(state, item, index, judgement.current)
            for index, (item, judgement) in enumerate(zip(batch.items, judged, strict=True))
        ]
    else:
        results = [change_object(state, item, index) for index, item in enumerate(batch.items)]
    return CommandResult(CommandOutcome.DONE, items=tuple(results))


def change_object(state: BucketState, item: ItemOperation, index: int = 0) -> CommandResult:
    """Apply an item if the conditions hold; otherwise the new blob is garbage."""
    judgement = _judged(state, item)
    verdict = judgement.outcome
    if judgement.holds:
        verdict = over_quota(state.bucket(item.bucket), judgement.growth)
    if verdict is not CommandOutcome.DONE:
        state.lose(own_blobs(item))
        return CommandResult(verdict)
    return _change(state, item, index, judgement.current)


def _judged_together(state: BucketState, items: Sequence[ItemOperation]) -> list[_Judgement]:
    """Return the judgement of each item; a bucket must have room for the growth by all items."""
    judged = [_judged(state, item) for item in items]
    growths: Counter[str] = Counter()
    for item, judgement in zip(items, judged, strict=True):
        growths[item.bucket] += judgement.growth
    return [
        judgement
        if not judgement.holds or judgement.growth <= 0
        else judgement._replace(outcome=over_quota(state.bucket(item.bucket), growths[item.bucket]))
        for item, judgement in zip(items, judged, strict=True)
    ]


def _change(
    state: BucketState, item: ItemOperation, index: int, current: ObjectEntry | None
) -> CommandResult:
    """Apply an item that was judged by this state. ``current``: the newest version of the key."""
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
            return _delete(state, item, version, current)
    state.use(entry.content)
    return add_version(state, item.bucket, item.key, entry, current)


def _judged(state: BucketState, item: ItemOperation) -> _Judgement:
    """Judge an item by the present state, which is not changed; the quota is not judged."""
    bucket = state.bucket(item.bucket)
    if bucket is None:
        return _Judgement(CommandOutcome.NO_SUCH_BUCKET)
    current = state.newest(item.bucket, item.key)
    if isinstance(item, DeleteObject | SetTags):
        named = item.version is not None or item.null
        entry = current
        if named:
            entry = state.chosen(item.bucket, item.key, item.version, item.null)
        if isinstance(item, SetTags):
            absent = entry is None or entry.marker
            verdict = CommandOutcome.NO_SUCH_KEY if absent else judge(item.conditions, entry)
            return _Judgement(verdict)
        if item.superseded and entry == current:
            return _Judgement(CommandOutcome.CONDITION_FAILED)
        gone = entry if named else _replaced(state, bucket, item, current)
        lost = -gone.size if gone is not None else 0
        return _Judgement(judge(item.conditions, entry), lost, current)
    verdict = judge(item.conditions, current)
    if verdict is not CommandOutcome.DONE:
        return _Judgement(verdict)
    if isinstance(item, CopyObject):
        source = judged_source(state, item.source)
        if not isinstance(source, ObjectEntry):
            return _Judgement(source)
        size = source.size
    else:
        size = piece_of(item.content).length
    replaced = _replaced(state, bucket, item, current)
    growth = size - (0 if replaced is None else replaced.size)
    return _Judgement(CommandOutcome.DONE, growth, current)


def _replaced(
    state: BucketState, bucket: BucketEntry, item: OfObject, current: ObjectEntry | None
) -> ObjectEntry | None:
    """Return the version that the next version of a key replaces: the null version, if any."""
    if bucket.versioning is Versioning.ON:
        return None
    return state.null_entry(item.bucket, item.key, current)


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


def _delete(
    state: BucketState, item: DeleteObject, version: Version, current: ObjectEntry | None
) -> CommandResult:
    """Remove a named version; without a name, remove the object or add a deletion."""
    bucket = state.bucket(item.bucket)
    assert bucket is not None, "the bucket was judged at this position"
    named = item.version is not None or item.null
    if not named and bucket.versioning is not Versioning.OFF:
        marker = ObjectEntry(version, 0, "", state.ms, marker=True)
        return add_version(state, item.bucket, item.key, marker, current)
    entry = current
    if named:
        entry = state.chosen(item.bucket, item.key, item.version, item.null)
    if entry is None:
        return CommandResult(CommandOutcome.DONE)
    state.remove_entry(item.bucket, item.key, entry)
    objects = bucket.objects
    if entry == current:
        objects += _counts(state.newest(item.bucket, item.key)) - _counts(current)
    bucket = replace(
        bucket,
        versions=bucket.versions - 1,
        bytes=bucket.bytes - entry.size,
        objects=objects,
    )
    state.set_bucket(item.bucket, bucket)
    return told(entry)


def add_version(
    state: BucketState, name: str, key: str, entry: ObjectEntry, current: ObjectEntry | None
) -> CommandResult:
    """Make ``entry`` the newest version of a key, in place of a null version or above all.

    ``current``: the newest version until now. The caller counted the use of the content, before an
    old use goes: an object copied onto itself keeps the bytes.
    """
    bucket, replaced = state.bucket(name), None
    assert bucket is not None, "the bucket was judged at this position"
    if bucket.versioning is Versioning.ON:
        older = None
        if current is not None:
            older = current.version if current.null else current.null_version
        entry = replace(entry, null=False, null_version=older)
    else:
        entry = replace(entry, null=True, null_version=None)
        replaced = state.null_entry(name, key, current)
        if replaced is not None:
            state.remove_entry(name, key, replaced)
    state.set_entry(name, key, entry)
    bucket = replace(
        bucket,
        versions=bucket.versions + (replaced is None),
        bytes=bucket.bytes + entry.size - (0 if replaced is None else replaced.size),
        objects=bucket.objects + _counts(entry) - _counts(current),
    )
    state.set_bucket(name, bucket)
    return told(entry)


def _counts(newest: ObjectEntry | None) -> int:
    """Return 1 for a key with an object, by the newest version."""
    return newest is not None and not newest.marker


def told(entry: ObjectEntry) -> CommandResult:
    """Return the result that tells of an entry."""
    return CommandResult(
        *(CommandOutcome.DONE, entry.version, entry.etag, entry.size, entry.ms),
        null=entry.null,
        marker=entry.marker,
    )
