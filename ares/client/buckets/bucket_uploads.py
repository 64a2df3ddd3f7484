"""Multipart uploads: an object in parts, which several processes may send at the same time."""

import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING

from ares.bucket.bucket_listing import PAGE_RESULTS_MAX, list_parts
from ares.bucket.command_results import CommandOutcome
from ares.bucket.commands import AbortUpload, CompleteUpload, CopyPart, NamedPart, PutPart
from ares.bucket.index_records import PART_NUMBER_MAX, UploadEntry, Version
from ares.client.buckets.bucket_body import ByteSource
from ares.client.buckets.bucket_errors import BucketNotFound, KeyNotFound, UploadNotFound
from ares.client.buckets.bucket_index import BucketIndex
from ares.client.buckets.bucket_values import (
    ObjectInfo,
    PartInfo,
    UploadInfo,
    check_range,
    checked_part,
    conditions_of,
    copy_source,
    info_of_upload,
    parsed_version,
)
from ares.client.buckets.index_changes import (
    ChangeAnswer,
    check_object_outcome,
    check_outcome,
    info_of_made,
)
from ares.client.domain import checked_timeout
from ares.client.runner import unreported
from ares.model.errors import BadInput

if TYPE_CHECKING:
    from ares.client.buckets.buckets import Buckets


class BucketUpload:
    """A multipart upload of an object. ``id``: its name, for other processes.

    Parts have numbers from 1 to 10,000, and 5 MiB or more, except for the last one. A part replaces
    an earlier part with its number. The object appears with :meth:`complete`, at once. The parts
    take room until :meth:`complete` or :meth:`abort`. Methods raise :class:`ares.UploadNotFound`
    after these, and the errors of :class:`ares.Bucket`.
    """

    def __init__(
        self, bucket: str, key: str, id: str, buckets: "Buckets", timeout_s: float
    ) -> None:
        self.bucket = bucket
        self.key = key
        self.id = id
        self._upload = parsed_version(id)
        self._buckets = buckets
        self._timeout_s = timeout_s

    def __repr__(self) -> str:
        return f"<upload {self.id} of {self.key!r} in bucket {self.bucket!r}>"

    async def put(
        self,
        number: int,
        data: ByteSource,
        *,
        progress: Callable[[int], None] | None = None,
        timeout_s: float | None = None,
    ) -> PartInfo:
        """Store ``data``, as :meth:`ares.Bucket.put` takes it, as the part ``number``."""
        operation = PutPart(*self._names(), checked_part(number), b"", "")
        answer = await self._buckets.put(
            operation, data, self._timeout(timeout_s), progress=progress or unreported
        )
        check_outcome(answer, self.bucket, self.key)
        return self._part(answer, number)

    async def copy(  # noqa: PLR0913  # public interface
        self,
        number: int,
        key: str,
        *,
        bucket: str | None = None,
        version: str | None = None,
        start: int = 0,
        length: int | None = None,
        timeout_s: float | None = None,
    ) -> PartInfo:
        """Make the part ``number`` of ``length`` bytes of an object; no bytes move.

        ``bucket``: of the object ``key``, by default this bucket. Raises
        :class:`ares.ObjectNotFound` without the object, and :class:`ares.ChangeRefused` if it has
        not as many bytes.
        """
        check_range(start, length)
        if start < 0 or length == 0:
            raise BadInput("a part has 1 byte or more, from a first byte on; nothing was sent")
        source = copy_source(bucket or self.bucket, key, version)
        operation = CopyPart(
            *(*self._names(), checked_part(number), source), first=start, length=length or 0
        )
        answer = await self._buckets.give(operation, self._timeout(timeout_s))
        if answer.result.outcome is CommandOutcome.NO_SUCH_SOURCE:
            raise KeyNotFound(key, source.bucket)
        check_outcome(answer, self.bucket, self.key)
        return self._part(answer, number)

    def _part(self, answer: ChangeAnswer, number: int) -> PartInfo:
        result = answer.result
        return PartInfo(number, result.etag, result.size, result.ms)

    async def parts(self, *, timeout_s: float | None = None) -> AsyncIterator[PartInfo]:
        """Yield the parts, by their numbers."""
        last: int | None = 0
        while last is not None:
            index = await self._buckets.verified(self._timeout(timeout_s))
            self._present(index)
            found = list_parts(index.state, self._upload, last)
            last = found[-1][0] if len(found) == PAGE_RESULTS_MAX else None
            for number, part in found:
                yield PartInfo(number, part.etag, part.size, part.ms)

    async def complete(
        self,
        parts: Sequence[PartInfo] | None = None,
        *,
        if_absent: bool = False,
        if_version: str | None = None,
        if_etag: str | None = None,
        timeout_s: float | None = None,
    ) -> ObjectInfo:
        """Make the parts an object, in their order, and end the upload; other parts are dropped.

        ``parts``: as :meth:`put` and :meth:`copy` returned them, by default all parts. The
        conditions are those of :meth:`ares.Bucket.put`; if one does not hold the upload goes on.
        Raises :class:`ares.ChangeRefused` if a part was replaced, or is too small.
        """
        conditions = conditions_of(if_absent, if_version, if_etag)
        if parts is None:
            parts = [part async for part in self.parts(timeout_s=timeout_s)]
        named = tuple(NamedPart(checked_part(part.number), part.etag) for part in parts)
        if not 1 <= len(named) <= PART_NUMBER_MAX:
            raise BadInput("an object has 1 to 10,000 parts; nothing was changed")
        operation = CompleteUpload(
            *(*self._names(), named, multipart_etag(named)), conditions=conditions
        )
        answer = await self._buckets.give(operation, self._timeout(timeout_s))
        check_object_outcome(answer, self.bucket, self.key, conditions)
        return info_of_made(answer, self.bucket, self.key)

    async def abort(self, *, timeout_s: float | None = None) -> None:
        """End the upload without an object, and drop the parts."""
        answer = await self._buckets.give(AbortUpload(*self._names()), self._timeout(timeout_s))
        check_outcome(answer, self.bucket, self.key)

    async def info(self, *, timeout_s: float | None = None) -> UploadInfo:
        """Return the begin and the metadata of the upload."""
        index = await self._buckets.verified(self._timeout(timeout_s))
        return info_of_upload(self.key, self._upload, self._present(index))

    def _present(self, index: BucketIndex) -> UploadEntry:
        if index.state.bucket(self.bucket) is None:
            raise BucketNotFound(self.bucket)
        begun = index.state.upload(self.bucket, self.key, self._upload)
        if begun is None:
            raise UploadNotFound(self.bucket, self.key, self.id)
        return begun

    def _names(self) -> tuple[str, str, Version]:
        return self.bucket, self.key, self._upload

    def _timeout(self, timeout_s: float | None) -> float:
        return self._timeout_s if timeout_s is None else checked_timeout(timeout_s)


def multipart_etag(parts: Sequence[NamedPart]) -> str:
    """Return the etag of an object of parts: the MD5 of their MD5s, and their number.

    Raises :class:`BadInput` if the etag of a part is no MD5 in hexadecimal digits.
    """
    digest = hashlib.md5(usedforsecurity=False)
    for part in parts:
        if len(part.etag) != 2 * digest.digest_size:
            raise BadInput(f"no part has the etag {part.etag!r}; nothing was changed")
        try:
            digest.update(bytes.fromhex(part.etag))
        except ValueError as error:
            raise BadInput(f"no part has the etag {part.etag!r}; nothing was changed") from error
    return f"{digest.hexdigest()}-{len(parts)}"
