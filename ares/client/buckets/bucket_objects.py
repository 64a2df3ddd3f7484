"""The objects of a bucket, as users hold them."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing

from msgspec.structs import replace

from ares.bucket.bucket_listing import (
    PAGE_RESULTS_MAX,
    ListRequest,
    list_objects,
    list_uploads,
    list_versions,
)
from ares.bucket.command_results import CommandOutcome
from ares.bucket.commands import (
    BeginUpload,
    CopyObject,
    DeleteObject,
    ObjectBatch,
    PutObject,
    SetBucket,
    SetTags,
)
from ares.bucket.index_records import ObjectEntry, Versioning
from ares.bucket.lifecycle.lifecycle_rules import (
    LifecycleRule,
    decode_lifecycle,
    encode_lifecycle,
)
from ares.client.buckets.bucket_body import ByteSource
from ares.client.buckets.bucket_errors import BucketNotFound, KeyNotFound
from ares.client.buckets.bucket_index import BucketIndex
from ares.client.buckets.bucket_uploads import BucketUpload
from ares.client.buckets.bucket_values import (
    BucketInfo,
    BucketSettings,
    CommonPrefix,
    ListedVersion,
    ObjectInfo,
    UploadInfo,
    check_range,
    checked_bucket,
    checked_object_key,
    checked_tags,
    checked_text,
    conditions_of,
    copy_source,
    info_of,
    info_of_listed,
    info_of_result,
    info_of_upload,
    info_of_version,
    named_version,
    shown_version,
    told_metadata,
)
from ares.client.buckets.bucket_watch import BucketChange, bucket_changes
from ares.client.buckets.buckets import Buckets
from ares.client.buckets.found_object import FoundObject, ObjectReading
from ares.client.buckets.index_changes import check_object_outcome, check_outcome, info_of_made
from ares.client.domain import checked_timeout
from ares.client.runner import unreported
from ares.model.errors import BadInput
from ares.model.numbers import POSITION_MAX, is_whole, shown_number
from ares.sharedlog.log_operations import check_position


class Bucket:
    """A bucket of objects, with conditional changes (docs/api-buckets.md).

    Each change has a place in the order of all changes, and the condition is judged at this place:
    of rivals with ``if_absent`` exactly one wins. Reads and listings have every change answered
    before they began. ``timeout_s`` (default: the cluster file's) bounds each standstill of a call.

    All methods raise :class:`ares.BucketNotFound`, :class:`ares.Unavailable` when too few servers
    answer in time, and :class:`ares.BadInput` before a message is sent. A change without
    an answer in time raises :class:`ares.ChangeUncertain`: the change may have been made, as may a
    cancelled change.
    """

    def __init__(self, name: str, buckets: Buckets, timeout_s: float) -> None:
        self.name = name
        self._buckets = buckets
        self._timeout_s = timeout_s

    def __repr__(self) -> str:
        return f"<bucket {self.name!r}>"

    # -- changes -----------------------------------------------------------------------------------

    async def put(  # noqa: PLR0913  # public interface
        self,
        key: str,
        data: ByteSource,
        *,
        if_absent: bool = False,
        if_version: str | None = None,
        if_etag: str | None = None,
        content_type: str | None = None,
        metadata: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        progress: Callable[[int], None] | None = None,
        timeout_s: float | None = None,
    ) -> ObjectInfo:
        """Store ``data`` as a new version of the object ``key``, and return the version.

        ``data``: bytes; text or a path, which name a local file; an open file; or an iterable or
        asynchronous iterable of bytes. Four chunks of 8 MiB are under way at a time. Conditions:
        the object is absent, or the newest version has the given name or etag; else
        :class:`ares.PreconditionFailed`. ``metadata``: text by name, 8 KiB at most. ``tags``:
        ten at most. ``progress`` is called with the bytes stored so far; data of up to 3 KiB is
        kept in the index at once. If ``data`` raises an exception, the object stays as it is.
        Raises :class:`ares.SessionEnded` if a stream, which cannot be read again, was interrupted.
        """
        conditions = conditions_of(if_absent, if_version, if_etag)
        told, encoded = told_metadata(content_type, metadata)
        operation = PutObject(
            *(self.name, checked_object_key(key), b"", "", conditions, encoded),
            tags=checked_tags(tags),
        )
        limit = self._timeout(timeout_s)
        answer = await self._buckets.put(operation, data, limit, progress=progress or unreported)
        check_object_outcome(answer, self.name, key, conditions)
        position = answer.index.state.position
        return info_of_result(key, answer.result, told, position, dict(tags or {}))

    async def delete(
        self,
        key: str,
        *,
        version: str | None = None,
        if_version: str | None = None,
        if_etag: str | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Delete an object, or remove one ``version``. A bucket with versions keeps the older ones.

        Raises :class:`ares.ObjectNotFound` for an absent object or version, and
        :class:`ares.PreconditionFailed` if a condition does not hold.
        """
        conditions = conditions_of(False, if_version, if_etag)
        operation = DeleteObject(
            *(self.name, checked_object_key(key), *named_version(version), conditions)
        )
        answer = await self._buckets.give(operation, self._timeout(timeout_s))
        check_object_outcome(answer, self.name, key, conditions)
        if answer.result.version is None:
            raise KeyNotFound(key, self.name)

    async def set_tags(
        self,
        key: str,
        tags: Mapping[str, str],
        *,
        version: str | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Set all tags of an object, or of one ``version``; the version stays the same.

        Raises :class:`ares.ObjectNotFound`.
        """
        operation = SetTags(
            *(self.name, checked_object_key(key), checked_tags(tags), *named_version(version))
        )
        answer = await self._buckets.give(operation, self._timeout(timeout_s))
        check_outcome(answer, self.name, key)

    async def copy(  # noqa: PLR0913  # public interface
        self,
        key: str,
        target: str,
        *,
        bucket: "str | Bucket | None" = None,
        version: str | None = None,
        if_absent: bool = False,
        if_version: str | None = None,
        if_etag: str | None = None,
        timeout_s: float | None = None,
    ) -> ObjectInfo:
        """Copy an object to the key ``target``, in this bucket or in ``bucket``; no bytes move.

        ``version``: copy this version, or fail. The conditions are about the target, as of
        :meth:`put`. Raises :class:`ares.ObjectNotFound` without the source.
        """
        to = self._target(bucket)
        conditions = conditions_of(if_absent, if_version, if_etag)
        source = copy_source(self.name, key, version)
        operation = CopyObject(to.name, checked_object_key(target), source, conditions)
        answer = await self._buckets.give(operation, self._timeout(timeout_s))
        if answer.result.outcome is CommandOutcome.NO_SUCH_SOURCE:
            raise KeyNotFound(key, self.name)
        check_object_outcome(answer, to.name, target, conditions)
        return info_of_made(answer, to.name, target)

    async def move(
        self,
        key: str,
        target: str,
        *,
        bucket: "str | Bucket | None" = None,
        if_absent: bool = False,
        timeout_s: float | None = None,
    ) -> ObjectInfo:
        """Move an object to the key ``target``, in this bucket or in ``bucket``; no bytes move.

        Every reader sees the object under exactly one key. Raises the errors of :meth:`copy`.
        """
        to = self._target(bucket)
        if (to.name, target) == (self.name, key):
            raise BadInput(f"an object is not moved onto itself: {key!r}; nothing was changed")
        conditions = conditions_of(if_absent, None, None)
        source = copy_source(self.name, key, None)
        copy = CopyObject(to.name, checked_object_key(target), source, conditions)
        batch = ObjectBatch((copy, DeleteObject(self.name, key)), atomic=True)
        answer = await self._buckets.give(batch, self._timeout(timeout_s))
        first = answer.result.items[0] if answer.result.items else answer.result
        if first.outcome is CommandOutcome.NO_SUCH_SOURCE:
            raise KeyNotFound(key, self.name)
        moved = replace(answer, result=first)
        check_object_outcome(moved, to.name, target, conditions)
        if answer.result.outcome is not CommandOutcome.DONE:
            second = replace(answer, result=answer.result.items[1])
            check_object_outcome(second, self.name, key, conditions)
        return info_of_made(moved, to.name, target)

    # -- multipart uploads -------------------------------------------------------------------------

    async def begin_upload(
        self,
        key: str,
        *,
        content_type: str | None = None,
        metadata: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> BucketUpload:
        """Begin an object that comes in parts, perhaps from several processes."""
        _, encoded = told_metadata(content_type, metadata)
        operation = BeginUpload(self.name, checked_object_key(key), encoded, checked_tags(tags))
        answer = await self._buckets.give(operation, self._timeout(timeout_s))
        check_outcome(answer, self.name, key)
        assert answer.result.version is not None, "an upload has an id"
        return self.upload(key, shown_version(answer.result.version))

    def upload(self, key: str, id: str) -> BucketUpload:
        """Return an upload that any process has begun. Its methods tell whether it is there."""
        checked_object_key(key)
        return BucketUpload(self.name, key, id, self._buckets, self._timeout_s)

    async def uploads(
        self, prefix: str = "", *, timeout_s: float | None = None
    ) -> AsyncIterator[UploadInfo]:
        """Yield the uploads under way of keys that begin with ``prefix``, in order."""
        following: ListRequest | None = ListRequest(self.name, checked_text(prefix))
        while following is not None:
            index = await self._buckets.verified(self._timeout(timeout_s))
            if index.state.bucket(self.name) is None:
                raise BucketNotFound(self.name)
            page = list_uploads(index.state, following)
            following = page.following
            for listed in page.results:
                assert listed.upload is not None, "without a delimiter there are uploads only"
                assert listed.begun is not None, "an upload has a begin"
                yield info_of_upload(listed.key, listed.upload, listed.begun)

    # -- reads -------------------------------------------------------------------------------------

    async def get(
        self,
        key: str,
        *,
        version: str | None = None,
        start: int = 0,
        length: int | None = None,
        timeout_s: float | None = None,
    ) -> FoundObject:
        """Find an object, and begin to read the object, or ``length`` bytes from ``start`` on.

        A negative ``start`` counts from the end. Raises :class:`ares.ObjectNotFound`. The data
        comes from the returned object: ``await found.read()``, or ``async for chunk in found``.
        """
        checked_object_key(key)
        check_range(start, length)
        limit = self._timeout(timeout_s)

        async def find(index: BucketIndex, _: bool) -> FoundObject:
            reading = ObjectReading(index, self._buckets.blobs, limit)
            try:
                return await self._found_object(reading, key, version, start, length)
            except BaseException:
                reading.close()
                raise

        return await self._buckets.in_session(find, limit)

    async def _found_object(
        self, reading: ObjectReading, key: str, version: str | None, start: int, length: int | None
    ) -> FoundObject:
        """Look at the tail; begin to read by the present entry at the same time."""
        index = reading.index
        ahead = self._entry(index, key, version)
        if ahead is not None:
            reading.begin(ahead, *byte_range(ahead.size, start, length))
        await index.verified(reading.timeout_s)
        entry = self._present(index, key, self._entry(index, key, version))
        first, count = byte_range(entry.size, start, length)
        if first > entry.size:
            raise BadInput(f"the range begins at {first}, behind the {entry.size} bytes of {key!r}")
        if ahead is None or entry.version != ahead.version:
            reading.renew()
            reading.begin(entry, first, count)
        return FoundObject(self.name, info_of(key, entry, index.state.position), count, reading)

    async def stat(
        self, key: str, *, version: str | None = None, timeout_s: float | None = None
    ) -> ObjectInfo:
        """Return version, size, etag and metadata. Raises :class:`ares.ObjectNotFound`."""
        index = await self._buckets.verified(self._timeout(timeout_s))
        found = self._present(index, key, self._entry(index, checked_object_key(key), version))
        return info_of(key, found, index.state.position)

    async def list(
        self,
        prefix: str = "",
        *,
        delimiter: str = "",
        after: str = "",
        limit: int | None = None,
        timeout_s: float | None = None,
    ) -> AsyncIterator[ObjectInfo | CommonPrefix]:
        """Yield the objects whose keys begin with ``prefix``, in the order of their bytes.

        ``delimiter``: keys with a delimiter behind the prefix are listed together, as a
        :class:`ares.CommonPrefix` up to the delimiter. ``after``: begin behind this key, or behind
        this common prefix. ``limit``: the most results. Each page of a thousand results is exact at
        a position, and has every change answered before the page.
        """
        left = checked_limit(limit)
        for text in (prefix, delimiter, after):
            checked_text(text)
        behind = bool(delimiter) and after.endswith(delimiter) and len(after) > len(prefix)
        following: ListRequest | None = ListRequest(self.name, prefix, delimiter, after, behind)
        while following is not None and left > 0:
            index = await self._buckets.verified(self._timeout(timeout_s))
            if index.state.bucket(self.name) is None:
                raise BucketNotFound(self.name)
            page = list_objects(index.state, following._replace(limit=min(left, PAGE_RESULTS_MAX)))
            position, following = index.state.position, page.following
            left -= len(page.results)
            for listed in page.results:
                yield info_of_listed(listed, position)

    async def versions(
        self, prefix: str = "", *, limit: int | None = None, timeout_s: float | None = None
    ) -> AsyncIterator[ListedVersion]:
        """Yield the versions of the keys that begin with ``prefix``, of each key the newest first.

        Deletions are among them. ``limit``: the most results. Each page of a thousand results is
        exact at a position.
        """
        left = checked_limit(limit)
        following: ListRequest | None = ListRequest(self.name, checked_text(prefix))
        while following is not None and left > 0:
            index = await self._buckets.verified(self._timeout(timeout_s))
            if index.state.bucket(self.name) is None:
                raise BucketNotFound(self.name)
            request = following._replace(limit=min(left, PAGE_RESULTS_MAX))
            page = list_versions(index.state, request)
            position, following = index.state.position, page.following
            left -= len(page.results)
            for listed in page.results:
                assert listed.entry is not None, "without a delimiter there are versions only"
                yield info_of_version(listed.key, listed.entry, listed.latest, position)

    async def settings(self, *, timeout_s: float | None = None) -> BucketSettings:
        """Return the versioning, the quota and the rules of expiry."""
        return self._settings(await self._buckets.verified(self._timeout(timeout_s)))

    async def set(
        self,
        *,
        versioning: bool | None = None,
        quota: int | None = None,
        lifecycle: Sequence[LifecycleRule] | None = None,
        timeout_s: float | None = None,
    ) -> BucketSettings:
        """Change the given settings in one step, and return all.

        ``versioning``: whether new versions leave older ones in place; False suspends it, and the
        versions that are there stay. ``quota``: the most bytes of all versions and parts, 0 for no
        bound. ``lifecycle``: the rules by which objects expire (:class:`ares.LifecycleRule`).
        """
        if quota is not None and (not is_whole(quota) or not 0 <= quota <= POSITION_MAX):
            raise BadInput(f"a quota is a number of bytes, not {shown_number(quota)}")
        if not isinstance(versioning, bool | None):
            raise BadInput(f"versioning is True or False, not {versioning!r}; nothing was sent")
        kept = {None: None, True: Versioning.ON, False: Versioning.OFF}[versioning]
        try:
            rules = None if lifecycle is None else encode_lifecycle(lifecycle)
        except (ValueError, TypeError, AttributeError) as error:
            raise BadInput(f"no bucket has such rules: {error}; nothing was sent") from error
        operation = SetBucket(self.name, kept, quota, "" if rules is None else "lifecycle", rules)
        answer = await self._buckets.give(operation, self._timeout(timeout_s))
        check_outcome(answer, self.name)
        return self._settings(answer.index)

    def _settings(self, index: BucketIndex) -> BucketSettings:
        entry = index.state.bucket(self.name)
        if entry is None:
            raise BucketNotFound(self.name)
        rules = decode_lifecycle(index.state.configuration(self.name, "lifecycle"))
        versioning = entry.versioning.name.lower()
        return BucketSettings(versioning, entry.quota, rules, index.state.position)

    async def info(self, *, timeout_s: float | None = None) -> BucketInfo:
        """Return the exact number of objects and of their bytes."""
        return await self._buckets.info(self.name, self._timeout(timeout_s))

    async def watch(
        self, prefix: str = "", *, since: int | None = None, timeout_s: float | None = None
    ) -> AsyncGenerator[BucketChange, None]:
        """Yield the changes of keys that begin with ``prefix``, in their order, without end.

        The first result is a mark, with the position where the watch begins: ``since``, or behind
        all changes answered before. A listing after this mark and the changes after it leave no
        object out. Each later change comes once; a change of several objects comes as a whole. A
        mark every few seconds moves the position on. ``since``: the position of an earlier result,
        of any process.

        Raises :class:`ares.WatchGap` if changes are too old to be told, and
        :class:`ares.BucketNotFound` after the last change of a deleted bucket.
        """
        if since is not None:
            check_position(since)
        changes = bucket_changes(
            *(self._buckets, self.name, checked_text(prefix), since, self._timeout(timeout_s))
        )
        async with aclosing(changes):
            async for change in changes:
                yield change

    # -- parts of these ----------------------------------------------------------------------------

    def _timeout(self, timeout_s: float | None) -> float:
        return self._timeout_s if timeout_s is None else checked_timeout(timeout_s)

    def _entry(self, index: BucketIndex, key: str, version: str | None) -> ObjectEntry | None:
        """Return the newest or the given version; None for an absent object."""
        entry = index.state.chosen(self.name, key, *named_version(version))
        return None if entry is None or entry.marker else entry

    def _present(self, index: BucketIndex, key: str, entry: ObjectEntry | None) -> ObjectEntry:
        if entry is not None:
            return entry
        if index.state.bucket(self.name) is None:
            raise BucketNotFound(self.name)
        raise KeyNotFound(key, self.name)

    def _target(self, bucket: "str | Bucket | None") -> "Bucket":
        if isinstance(bucket, Bucket):
            return bucket
        name = self.name if bucket is None else checked_bucket(bucket)
        return Bucket(name, self._buckets, self._timeout_s)


def byte_range(size: int, start: int, length: int | None) -> tuple[int, int]:
    """Return the first byte of a range of an object, and the number of bytes in the range."""
    first = max(size + start, 0) if start < 0 else start
    left = max(size - first, 0)
    return first, left if length is None else min(length, left)


def checked_limit(limit: int | None) -> int:
    """Return the most results of a listing. Raises :class:`BadInput`."""
    if limit is None:
        return 2**63
    if not is_whole(limit) or limit < 1:
        raise BadInput(f"a limit is a whole number from 1 on, not {shown_number(limit)}")
    return limit
