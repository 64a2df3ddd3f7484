"""A found object, and the reading of the data."""

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

from ares.bucket.bucket_requests import SessionEnded
from ares.bucket.bucket_session import BucketSession
from ares.bucket.index_records import ObjectEntry
from ares.client.buckets.blob_store import CHUNKS_AT_ONCE, BlobStore, DataPart, parts_of
from ares.client.buckets.bucket_errors import ChunkLost
from ares.client.buckets.bucket_index import BucketIndex
from ares.client.buckets.bucket_values import ObjectInfo
from ares.model.errors import LeftBehind, ObjectNotFound


class ObjectReading:
    """A read registered with the session: the blobs of the read's position stay until the end.

    The end is the last byte, :meth:`close`, or the end of this object in memory.
    """

    def __init__(self, index: BucketIndex, blobs: BlobStore, timeout_s: float) -> None:
        self.index = index
        self.session = index.session
        self.timeout_s = timeout_s
        self._blobs = blobs
        self._parts: Iterator[DataPart] = iter(())
        self._ahead: deque[tuple[DataPart, asyncio.Future[bytes] | None]] = deque()
        self._end = self._registered()

    def _registered(self) -> "weakref.finalize[..., ObjectReading]":
        """Register the read with the session, from the present index."""
        self._read = self.session.begin_read()
        end = weakref.finalize(
            self, _end_read, asyncio.get_running_loop(), self.session, self._read
        )
        end.atexit = False
        return end

    def renew(self) -> None:
        """Begin again, from the present index."""
        self.close()
        self._end = self._registered()

    def begin(self, entry: ObjectEntry, first: int, length: int) -> None:
        """Begin with the bytes from ``first`` on: fetch the first chunk."""
        self._parts = parts_of(self.index.state.leaves(entry.content, first, length))
        self._fetch_ahead(1)

    def _fetch_ahead(self, chunks: int) -> None:
        while len(self._ahead) < chunks and (part := next(self._parts, None)) is not None:
            fetch = None
            if part.name:
                fetch = asyncio.ensure_future(self._blobs.fetch(part, self.timeout_s))
            self._ahead.append((part, fetch))

    async def take(self) -> tuple[DataPart, bytes] | None:
        """Return the next part; None after the last part, which ends the read.

        Raises :class:`ares.ObjectNotFound` if the chunk is missing, and :class:`ares.SessionEnded`
        if the session ended this read for its age.
        """
        self.check_open()
        self._fetch_ahead(CHUNKS_AT_ONCE)
        if not self._ahead:
            self.close()
            return None
        part, fetch = self._ahead[0]
        if fetch is None:
            data = part.data[part.start : part.stop]
        else:
            await asyncio.wait((fetch,))  # a caller who gives up may come again
            data = fetch.result()
        self._ahead.popleft()
        return part, data

    def check_open(self) -> None:
        """Raise :class:`ares.SessionEnded`, each time, if the session ended this read."""
        if self._end.alive and not self.session.goes_on(self._read):
            self._give_up_parts()
            raise SessionEnded(_READ_ENDED)

    def close(self) -> None:
        """End the read; idempotent."""
        self._give_up_parts()
        self._end()

    def _give_up_parts(self) -> None:
        self._parts = iter(())
        while self._ahead:
            fetch = self._ahead.popleft()[1]
            if fetch is not None and not fetch.cancel() and not fetch.cancelled():
                fetch.exception()


_READ_ENDED = (
    "this read of an object was ended, for it stood still for 15 minutes, or began a million "
    "entries of the log ago: open reads keep data and results at all processes. Nothing is lost: "
    "get the object again"
)


def _end_read(loop: asyncio.AbstractEventLoop, session: BucketSession, read: int) -> None:
    """End a read on the event loop; memory may be freed in any thread."""
    with suppress(RuntimeError):  # the loop is closed, and the session with it
        loop.call_soon_threadsafe(session.end_read, read)


class FoundObject:
    """An object, or a range of bytes of an object, found by ``get``. The data is read once.

    ``length``: the bytes of the range. Use as ``async with``, or read to the end: until the end the
    servers keep the version's data, also when the object is overwritten or deleted.
    """

    def __init__(self, bucket: str, info: ObjectInfo, length: int, reading: ObjectReading) -> None:
        self.bucket = bucket
        self.info = info
        self.length = length
        self._reading = reading

    @property
    def version(self) -> str:
        return self.info.version

    @property
    def etag(self) -> str:
        return self.info.etag

    @property
    def size(self) -> int:
        """Return the bytes of the whole object."""
        return self.info.size

    @property
    def position(self) -> int:
        return self.info.position

    async def __aenter__(self) -> "FoundObject":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.chunks()

    async def read(self) -> bytes:
        """Return the bytes not read yet.

        Raises :class:`ares.ChunkLost`, and :class:`ares.SessionEnded` if the data may be gone
        because this process was taken for dead, or because nothing was read for 15 minutes: get the
        object again.
        """
        parts = [part async for part in self.chunks()]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the bytes in chunks of 8 MiB at most. Raises the errors of :meth:`read`."""
        while True:
            try:
                taken = await self._reading.take()
            except (ObjectNotFound, LeftBehind) as missing:
                raise await self._reason(missing) from missing
            if taken is None:
                return
            yield taken[1]

    async def _reason(self, missing: ObjectNotFound | LeftBehind) -> ChunkLost | SessionEnded:
        """Return the reason of a missing chunk: the session has ended, or the chunk is lost."""
        reading = self._reading
        await reading.index.verified(reading.timeout_s)  # which raises the end of the session
        reading.check_open()
        self._reading.close()
        return ChunkLost(self.bucket, self.info.key, missing.object)

    async def close(self) -> None:
        """Give up the data not read; idempotent."""
        self._reading.close()
