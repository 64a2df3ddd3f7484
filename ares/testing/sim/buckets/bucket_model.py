"""A model of buckets beside the fold: dictionaries with the bytes themselves.

The model shares no rule with the fold, and has no pieces, no blobs and no counters. The model
judges a command by the state before, and tells the outcome.
"""

from copy import deepcopy
from typing import NamedTuple

from ares.bucket.command_results import CommandOutcome
from ares.bucket.commands import (
    AbortUpload,
    BeginUpload,
    CompleteUpload,
    Conditions,
    CopyObject,
    CopyPart,
    CopySource,
    CreateBucket,
    DeleteBucket,
    DeleteObject,
    ItemOperation,
    ObjectBatch,
    Operation,
    PutObject,
    PutPart,
    SetBucket,
    SetTags,
)
from ares.bucket.index_records import Version, Versioning

MODEL_PART_BYTES_MIN = 4
"""Bytes of a part, except the last, in this scenario."""

MODEL_BOUNDS = {"part_bytes_min": MODEL_PART_BYTES_MIN, "leftovers_at_once": 1}
"""Bounds of all folds of this scenario: each end of an upload with two parts leaves a part."""


class ModelVersion(NamedTuple):
    """A version of a key. ``data``: None for a deletion."""

    version: Version
    etag: str
    data: bytes | None
    null: bool
    tags: bytes = b""


class _Upload(NamedTuple):
    key: str
    parts: dict[int, tuple[str, bytes]]


class ModelBucket:
    """A bucket. ``keys``: the versions of each key, the newest first."""

    def __init__(self) -> None:
        self.versioning = Versioning.OFF
        self.quota = 0
        self.keys: dict[str, list[ModelVersion]] = {}
        self.uploads: dict[Version, _Upload] = {}

    @property
    def size(self) -> int:
        """Return the bytes of all versions and parts."""
        versions = [each.data for versions in self.keys.values() for each in versions]
        parts = [part for upload in self.uploads.values() for _, part in upload.parts.values()]
        return sum(len(data) for data in [*versions, *parts] if data)

    def newest(self, key: str) -> ModelVersion | None:
        """Return the newest version of a key, unless it is a deletion."""
        versions = self.keys.get(key, [])
        return versions[0] if versions and versions[0].data is not None else None

    def add(self, key: str, version: ModelVersion) -> None:
        """Add a version, in place of the null version unless the bucket keeps versions."""
        keeps = self.versioning is Versioning.ON
        there = self.keys.pop(key, [])
        kept = [each for each in there if keeps or not each.null]
        self.keys[key] = [version._replace(null=not keeps), *kept]

    def remove(self, key: str, version: ModelVersion) -> None:
        rest = [each for each in self.keys.pop(key) if each != version]
        if rest:
            self.keys[key] = rest

    def fits(self, before: int) -> bool:
        """Return whether the bytes are within the quota, or not more than before."""
        return not self.quota or self.size <= max(self.quota, before)


def holds(conditions: Conditions, there: ModelVersion | None) -> CommandOutcome:
    """Return the outcome of this scenario's conditions for a version."""
    if there is None:
        return (
            CommandOutcome.NO_SUCH_KEY
            if conditions.present or conditions.etags
            else CommandOutcome.DONE
        )
    failed = conditions.absent or (conditions.etags and there.etag not in conditions.etags)
    return CommandOutcome.CONDITION_FAILED if failed else CommandOutcome.DONE


class BucketModel:
    """All buckets. ``contents``: the bytes of each etag that a put brings."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        self.buckets: dict[str, ModelBucket] = {}
        self._contents = contents

    def newest(self, bucket: str, key: str) -> ModelVersion | None:
        there = self.buckets.get(bucket)
        return None if there is None else there.newest(key)

    def apply(self, position: int, operation: Operation) -> list[CommandOutcome]:
        """Apply an operation; return its outcome, and then the outcomes of a batch's items."""
        if isinstance(operation, CreateBucket):
            taken = operation.bucket in self.buckets
            self.buckets.setdefault(operation.bucket, ModelBucket())
            return [CommandOutcome.BUCKET_EXISTS if taken else CommandOutcome.DONE]
        if isinstance(operation, ObjectBatch):
            return self._batch(position, operation)
        bucket = self.buckets.get(getattr(operation, "bucket", ""))
        if bucket is None:
            uploads = isinstance(operation, PutPart | CopyPart | CompleteUpload | AbortUpload)
            return [CommandOutcome.NO_SUCH_UPLOAD if uploads else CommandOutcome.NO_SUCH_BUCKET]
        match operation:
            case DeleteBucket():
                empty = not bucket.keys and not bucket.uploads
                if empty:
                    del self.buckets[operation.bucket]
                return [CommandOutcome.DONE if empty else CommandOutcome.BUCKET_NOT_EMPTY]
            case SetBucket():
                if operation.versioning is not None:
                    bucket.versioning = operation.versioning
                bucket.quota = bucket.quota if operation.quota is None else operation.quota
                return [CommandOutcome.DONE]
            case BeginUpload():
                bucket.uploads[Version(position)] = _Upload(operation.key, {})
                return [CommandOutcome.DONE]
            case PutPart() | CopyPart() | CompleteUpload() | AbortUpload():
                return [self._upload(position, operation, bucket)]
            case PutObject() | CopyObject() | DeleteObject() | SetTags():
                return [self._item(Version(position), operation)]
        raise AssertionError(f"no operation of a bucket: {operation}")

    # -- items -------------------------------------------------------------------------------------

    def _item(self, version: Version, item: ItemOperation, bounded: bool = True) -> CommandOutcome:
        """Apply an item, unless its bucket has no room."""
        before = deepcopy(self.buckets.get(item.bucket))
        outcome = self._changed(version, item)
        bucket = self.buckets.get(item.bucket)
        if bounded and bucket is not None and before is not None and not bucket.fits(before.size):
            self.buckets[item.bucket] = before
            return CommandOutcome.OVER_QUOTA
        return outcome

    def _changed(self, version: Version, item: ItemOperation) -> CommandOutcome:
        bucket = self.buckets.get(item.bucket)
        if bucket is None:
            return CommandOutcome.NO_SUCH_BUCKET
        there = bucket.newest(item.key)
        if isinstance(item, DeleteObject | SetTags):
            versions = bucket.keys.get(item.key, [])
            nulls = [each for each in versions if each.null]
            named = (nulls if item.null else versions)[:1]
            there = named[0] if named and named[0].data is not None else None
            if isinstance(item, SetTags) and there is None:
                return CommandOutcome.NO_SUCH_KEY
        outcome = holds(item.conditions, there)
        if outcome is not CommandOutcome.DONE:
            return outcome
        match item:
            case PutObject():
                data = self._contents[item.etag]
                bucket.add(item.key, ModelVersion(version, item.etag, data, True, item.tags))
            case CopyObject():
                source = self._source(item.source)
                if not isinstance(source, ModelVersion):
                    return source
                bucket.add(item.key, source._replace(version=version))
            case SetTags() if there is not None:
                at = bucket.keys[item.key].index(there)
                bucket.keys[item.key][at] = there._replace(tags=item.tags)
            case DeleteObject() if item.null or bucket.versioning is Versioning.OFF:
                for each in named:
                    bucket.remove(item.key, each)
            case _:
                bucket.add(item.key, ModelVersion(version, "", None, True))
        return CommandOutcome.DONE

    def _source(self, source: CopySource) -> ModelVersion | CommandOutcome:
        there = self.newest(source.bucket, source.key)
        if there is None:
            return CommandOutcome.NO_SUCH_SOURCE
        outcome = holds(source.conditions, there)
        return there if outcome is CommandOutcome.DONE else outcome

    def _batch(self, position: int, batch: ObjectBatch) -> list[CommandOutcome]:
        """Apply the items in turn. An atomic batch with a failure leaves the state before it."""
        before = deepcopy(self.buckets)
        outcomes = [
            self._item(Version(position, index), item, not batch.atomic)
            for index, item in enumerate(batch.items)
        ]
        if not batch.atomic:
            return [CommandOutcome.DONE, *outcomes]
        full = [
            name
            for name, bucket in self.buckets.items()
            if name in before and not bucket.fits(before[name].size)
        ]
        if full or any(outcome is not CommandOutcome.DONE for outcome in outcomes):
            self.buckets = before
            return [CommandOutcome.BATCH_FAILED]
        return [CommandOutcome.DONE, *outcomes]

    # -- uploads -----------------------------------------------------------------------------------

    def _upload(
        self,
        position: int,
        operation: PutPart | CopyPart | CompleteUpload | AbortUpload,
        bucket: ModelBucket,
    ) -> CommandOutcome:
        upload = bucket.uploads.get(operation.upload)
        if upload is None or upload.key != operation.key:
            return CommandOutcome.NO_SUCH_UPLOAD
        if isinstance(operation, AbortUpload):
            del bucket.uploads[operation.upload]
            return CommandOutcome.DONE
        if isinstance(operation, CompleteUpload):
            return self._complete(position, operation, bucket, upload)
        if isinstance(operation, CopyPart):
            source = self._source(operation.source)
            if not isinstance(source, ModelVersion):
                return source
            whole = source.data or b""
            end = operation.first + operation.length if operation.length else len(whole)
            if end > len(whole) or operation.first > len(whole):
                return CommandOutcome.BAD_RANGE
            data = whole[operation.first : end]
        else:
            data = self._contents[operation.etag]
        before, old = bucket.size, upload.parts.get(operation.part)
        upload.parts[operation.part] = operation.etag, data
        if bucket.fits(before):
            return CommandOutcome.DONE
        del upload.parts[operation.part]
        if old is not None:
            upload.parts[operation.part] = old
        return CommandOutcome.OVER_QUOTA

    def _complete(
        self, position: int, operation: CompleteUpload, bucket: ModelBucket, upload: _Upload
    ) -> CommandOutcome:
        found: list[bytes] = []
        for named in operation.parts:
            etag, data = upload.parts.get(named.part, ("", b""))
            if etag != named.etag:
                return CommandOutcome.BAD_PART
            found.append(data)
        if any(len(data) < MODEL_PART_BYTES_MIN for data in found[:-1]):
            return CommandOutcome.PART_TOO_SMALL
        outcome = holds(operation.conditions, bucket.newest(operation.key))
        if outcome is CommandOutcome.DONE:
            data = b"".join(found)
            made = ModelVersion(Version(position), operation.etag, data, True)
            bucket.add(operation.key, made)
            del bucket.uploads[operation.upload]
        return outcome
