"""The buckets of a cluster for a client: the first call opens the index.

The next call after the end of a life of the index opens another life. A change was not made if the
session ended before the command was folded; the change is made again in the next session, under the
same id. All folds know the id: no change is made twice.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ares.bucket.bucket_requests import SessionEnded
from ares.bucket.bucket_state import rows_between
from ares.bucket.commands import (
    ChangingOperation,
    CreateBucket,
    DeleteBucket,
    PutObject,
    PutPart,
)
from ares.bucket.fold import BrokenIndex, BucketFold
from ares.bucket.memory_table import MemoryTable
from ares.bucket.port import RowTable, RowTableFailed, Saved
from ares.bucket.row_keys import BUCKET_ROWS, after
from ares.client.buckets.blob_store import BlobStore
from ares.client.buckets.bucket_body import Body, ByteSource
from ares.client.buckets.bucket_domains import open_bucket_domains
from ares.client.buckets.bucket_errors import (
    BucketNotFound,
    ChangeUncertain,
    IndexBehind,
    IndexStopped,
    RowsDistrusted,
    is_uncertain,
)
from ares.client.buckets.bucket_index import BucketIndex
from ares.client.buckets.bucket_values import BucketInfo, SweepReport, checked_bucket
from ares.client.buckets.index_changes import (
    INVOCATION_BYTES,
    ChangeAnswer,
    ChangeAttempt,
    ClientRequest,
    DataPut,
    check_outcome,
)
from ares.client.buckets.upkeep.bucket_expiry import BucketExpiry
from ares.client.buckets.upkeep.bucket_snapshots import BucketSnapshots
from ares.client.buckets.upkeep.index_upkeep import IndexUpkeep
from ares.client.domain_directory import DomainDirectory
from ares.client.runner import unreported
from ares.client.shared_log import Log
from ares.model.errors import AresError, ConnectionClosed

SESSION_ATTEMPTS = 3
"""Sessions in which work is tried."""

OPENING_ATTEMPTS = 5
"""Lives of the index that one call begins, of which the last one is opened."""

OPENED_AGAIN = (SessionEnded, IndexBehind, RowTableFailed, BrokenIndex)
"""Ends of an opening after which another one is tried."""

Result = TypeVar("Result")


class Buckets:
    """The buckets of a cluster. ``log`` and ``blobs`` are set when the index is first opened."""

    def __init__(self, directory: DomainDirectory, open_table: Callable[[], RowTable]) -> None:
        self._directory = directory
        self._open_table = open_table
        self._table: RowTable = MemoryTable()
        self._fold: BucketFold | None = None
        self._index: BucketIndex | None = None
        self._opening = asyncio.Lock()
        self._closed = False
        self._distrust: AresError | None = None
        self.distrusted = 0
        """Number of times that rows of this process differed from rows of other processes."""

        self.log: Log
        self.blobs: BlobStore

    async def index(self, timeout_s: float) -> BucketIndex:
        """Return the index, with a session not known to have ended.

        Raises :class:`ares.BucketsMissing`.
        """
        if self._index is None or self._index.failure is not None:
            async with self._opening:
                if self._closed:
                    raise ConnectionClosed(begun=False)
                if self._index is None or self._index.failure is not None:
                    self._index = await self._open(self._index, timeout_s)
        return self._index

    async def _open(self, last: BucketIndex | None, timeout_s: float) -> BucketIndex:
        """Open a life of the index; the fold stays if the session alone has ended."""
        log, blobs, domain = await open_bucket_domains(self._directory, timeout_s)
        self.log, self.blobs = log, BlobStore(blobs)
        snapshots = BucketSnapshots(BlobStore(domain))
        failure = None if last is None else last.failure
        if isinstance(failure, RowsDistrusted) and failure is not self._distrust:
            if failure.snapshot is not None:
                await snapshots.doubt(failure.snapshot, timeout_s)
            self._distrust = failure
            self.distrusted += 1
        for left in reversed(range(OPENING_ATTEMPTS)):
            if self._fold is None or not isinstance(failure, SessionEnded):
                self._fold = None
                self._fold = await self._new_fold(snapshots, failure, timeout_s)
            index = BucketIndex(log, self._fold)
            if last is not None:
                index.unnamed = last.unnamed
            try:
                await index.open(timeout_s)
                break
            except BaseException as failed:
                if not isinstance(index.failure, SessionEnded | None) or isinstance(
                    failed, BrokenIndex
                ):
                    self._fold = None  # an entry may be half applied
                index.fail(IndexStopped("it was not opened"))
                if left and not self._closed and isinstance(failed, OPENED_AGAIN):
                    failure = failed
                    continue
                if self._closed:
                    self._table.close()
                raise
        IndexUpkeep(index, self.blobs).begin()
        index.begin(snapshots.keep_up(index), "snapshots of the index of buckets")
        index.begin(BucketExpiry(index).keep_up(), "expiry of objects in buckets")
        return index

    async def _new_fold(
        self, snapshots: BucketSnapshots, failure: AresError | None, timeout_s: float
    ) -> BucketFold:
        """Return a fold of the rows in the file, or of a snapshot's rows if the log lacks more.

        ``failure``: the end of the last life. A file that failed once may fail at each save. Rows
        that differed twice from those of others begin anew, though they have their digest: a fault
        that is mended may have made them. Then so do the 4th, 8th, ...: if the others are wrong,
        the fold of a whole snapshot helps nobody.
        """
        self._table.close()
        if isinstance(failure, RowTableFailed):
            self._open_table = MemoryTable
        first = failure.first if isinstance(failure, IndexBehind) else 0
        opening = asyncio.get_running_loop().run_in_executor(None, self._open_table)
        try:
            self._table = table = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unused)
            raise
        try:
            often = self.distrusted > 1 and self.distrusted.bit_count() == 1
            if isinstance(failure, RowsDistrusted) and often:
                table.clear()
                table.save(Saved(0, 0))
            if table.saved().position < max(first, 1):
                loaded = await snapshots.load(table, first, timeout_s)
                if not loaded and first > 0:
                    raise IndexStopped(f"its log begins at {first}, and there is no snapshot")
            return BucketFold(table)
        except RowTableFailed as failed:
            return await self._new_fold(snapshots, failed, timeout_s)

    async def close(self) -> None:
        """End the session; idempotent."""
        self._closed = True
        if self._index is not None:
            await self._index.close()
        self._table.close()

    # -- work in a session -------------------------------------------------------------------------

    async def in_session(
        self,
        work: Callable[[BucketIndex, bool], Awaitable[Result]],
        timeout_s: float,
        repeatable: bool = True,
    ) -> Result:
        """Return the result of ``work``, done again in another session if need be.

        ``work`` gets the index, and whether this is the first attempt.
        """
        attempt = 1
        while True:
            index = await self.index(timeout_s)
            try:
                return await work(index, attempt == 1)
            except (SessionEnded, IndexStopped, BrokenIndex, RowTableFailed):
                if attempt == SESSION_ATTEMPTS or not repeatable or self._closed:
                    raise
            attempt += 1

    async def verified(self, timeout_s: float) -> BucketIndex:
        """Return the index at a tail of the log, asked for after the begin of this call."""

        async def verify(index: BucketIndex, _: bool) -> BucketIndex:
            await index.verified(timeout_s)
            return index

        return await self.in_session(verify, timeout_s)

    async def changed(
        self,
        change: Callable[[ChangeAttempt], Awaitable[ChangeAnswer]],
        timeout_s: float,
        repeatable: bool = True,
        request: ClientRequest | None = None,
    ) -> ChangeAnswer:
        """Make a change; all attempts have the same id, hence the change is made once.

        ``request``: of a sender that gives the id, and that may have tried before. An error is
        uncertain if that of any attempt is.
        """
        request = request or ClientRequest(secrets.token_bytes(INVOCATION_BYTES), 1)
        uncertain = False

        async def attempt(index: BucketIndex, first: bool) -> ChangeAnswer:
            nonlocal uncertain
            first = first and request.attempt == 1
            try:
                return await change(ChangeAttempt(index, request.invocation, first, timeout_s))
            except AresError as error:
                uncertain = uncertain or is_uncertain(error)
                raise

        try:
            return await self.in_session(attempt, timeout_s, repeatable)
        except AresError as error:
            if uncertain and not is_uncertain(error):
                story = f"a first attempt had no answer, and another one failed ({error})"
                raise ChangeUncertain(story) from error
            raise

    async def give(
        self,
        operation: ChangingOperation,
        timeout_s: float,
        request: ClientRequest | None = None,
    ) -> ChangeAnswer:
        """Give a command without data to the log, and return the answer."""
        return await self.changed(
            lambda attempt: attempt.give(operation), timeout_s, request=request
        )

    async def put(
        self,
        operation: PutObject | PutPart,
        data: ByteSource,
        timeout_s: float,
        *,
        checksum: Callable[[], bytes] | None = None,
        progress: Callable[[int], None] = unreported,
        request: ClientRequest | None = None,
    ) -> ChangeAnswer:
        """Store data, as the content of ``operation``, and return the answer.

        The etag is the MD5 of the data. ``checksum`` is called after the end of the data. If
        ``data`` raises an exception, at its end too, the change is not made.
        """
        body = Body(data)
        await self.index(timeout_s)
        put = DataPut(operation, body, self.blobs, progress, checksum)
        return await self.changed(put.attempt, timeout_s, body.repeatable, request)

    async def sweep(self, timeout_s: float) -> SweepReport:
        """Drop garbage and litter now. ``timeout_s`` bounds a standstill of the log."""

        async def work(index: BucketIndex, _: bool) -> SweepReport:
            return await IndexUpkeep(index, self.blobs).sweep_once(timeout_s)

        return await self.in_session(work, timeout_s)

    # -- buckets -----------------------------------------------------------------------------------

    async def create(self, name: str, timeout_s: float) -> None:
        """Create a bucket. Raises :class:`ares.BucketExists`."""
        answer = await self.give(CreateBucket(checked_bucket(name)), timeout_s)
        check_outcome(answer, name)

    async def delete(self, name: str, timeout_s: float) -> None:
        """Delete an empty bucket. Raises :class:`ares.BucketNotEmpty`."""
        answer = await self.give(DeleteBucket(checked_bucket(name)), timeout_s)
        check_outcome(answer, name)

    async def info(self, name: str, timeout_s: float) -> BucketInfo:
        """Return a bucket's counts. Raises :class:`ares.BucketNotFound`."""
        index = await self.verified(timeout_s)
        entry = index.state.bucket(checked_bucket(name))
        if entry is None:
            raise BucketNotFound(name)
        return BucketInfo(name, entry.objects, entry.bytes, entry.ms, index.state.position)

    async def names(self, timeout_s: float) -> list[str]:
        """Return the names of all buckets, in order."""
        index = await self.verified(timeout_s)
        rows = rows_between(index.state.table, BUCKET_ROWS, after(BUCKET_ROWS))
        return [key[len(BUCKET_ROWS) :].decode() for key, _ in rows]


def _close_unused(opening: "asyncio.Future[RowTable]") -> None:
    """Close the table whose caller has given up: it would keep its file locked."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
