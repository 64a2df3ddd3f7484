"""The blobs: data without changes, as chunks under names used once."""

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from ares.bucket.index_records import BLOB_CHUNK_BYTES, Blob, Piece
from ares.client.store import ObjectStore
from ares.engine.room import OBJECT_OPERATION_BYTES
from ares.model.identity import ObjectName, ServerId
from ares.registers.write_once import ServerNames, create, drop, fetch, list_names, members

CHUNKS_AT_ONCE = 4
"""Chunks under way of a put, and of a read: a bound of memory."""


class DataPart(NamedTuple):
    """A part of an object's data: a range of ``data``, or of the chunk ``name``."""

    name: str
    data: bytes
    start: int
    stop: int


def chunk_name(session: int, counter: int, chunk: int) -> ObjectName:
    return ObjectName(f"{session}/{counter}/{chunk}")


def chunk_names(blob: Blob) -> list[ObjectName]:
    return [chunk_name(blob.session, blob.counter, chunk) for chunk in range(blob.chunks)]


def blob_of_chunk(name: str) -> Blob | None:
    """Return a blob with the session and the counter in a name; None for a foreign name."""
    try:
        session, counter, chunk = map(int, name.split("/"))
    except ValueError:
        return None
    known = session >= 0 and counter >= 1 and name == chunk_name(session, counter, chunk)
    return Blob(session, counter, 1) if known else None


def parts_of(pieces: Iterable[Piece]) -> Iterator[DataPart]:
    """Yield the parts of a content, of one chunk at most each."""
    for piece in pieces:
        if piece.blob is None:
            yield DataPart("", piece.data, piece.start, piece.start + piece.length)
            continue
        at, end = piece.start, piece.start + piece.length
        while at < end:
            chunk, start = divmod(at, BLOB_CHUNK_BYTES)
            stop = min(BLOB_CHUNK_BYTES, start + end - at)
            yield DataPart(
                chunk_name(piece.blob.session, piece.blob.counter, chunk), b"", start, stop
            )
            at += stop - start


class BlobStore:
    """The domain of blobs. ``timeout_s`` of the methods bounds a standstill."""

    def __init__(self, domain: ObjectStore) -> None:
        self._domain = domain

    async def create(self, name: ObjectName, data: bytes, timeout_s: float | None) -> None:
        """Store a chunk at a quorum."""
        await self._domain.run(
            lambda view: create(view, name, data),
            "storing of a chunk",
            timeout_s=timeout_s,
            size=OBJECT_OPERATION_BYTES + len(data),
        )

    async def fetch(self, part: DataPart, timeout_s: float | None) -> bytes:
        """Return a part of a chunk. Raises :class:`ares.ObjectNotFound` without the chunk."""
        data = await self._domain.run(
            lambda view: fetch(view, ObjectName(part.name)),
            "fetch of a chunk",
            timeout_s=timeout_s,
            size=OBJECT_OPERATION_BYTES + part.stop,
        )
        return data if part.stop - part.start == len(data) else data[part.start : part.stop]

    async def drop(self, names: Sequence[ObjectName], timeout_s: float | None) -> None:
        """Drop names of which no process has a need."""
        if names:
            await self._domain.run(
                lambda view: drop(view, names), "drop of chunks", timeout_s=timeout_s
            )

    async def servers(self, timeout_s: float | None) -> Sequence[ServerId]:
        """Return the servers of the domain, asked now."""
        return await self._domain.run(members, "look at the servers", timeout_s=timeout_s)

    async def names(self, server: ServerId, after: str, timeout_s: float | None) -> ServerNames:
        """Return the next names at one server."""
        return await self._domain.run(
            partial(list_names, server=server, after=after), "list of chunks", timeout_s=timeout_s
        )


class BlobUpload:
    """The storing of a new blob. ``names``: the chunks that servers may have.

    ``length``, ``etag``: of the whole blob, with the MD5 in hexadecimal digits.
    """

    def __init__(self, blobs: BlobStore, session: int, counter: int) -> None:
        self._blobs = blobs
        self._session = session
        self._counter = counter
        self.names: list[ObjectName] = []
        self.length = 0
        self.etag = ""

    @property
    def blob(self) -> Blob:
        return Blob(self._session, self._counter, self.length)

    async def store(
        self, chunks: AsyncIterator[bytes], progress: Callable[[int], None], timeout_s: float | None
    ) -> None:
        """Store the chunks, each at a quorum in the end, some at a time.

        ``progress`` is called with the bytes at a quorum so far.
        """
        under_way: deque[tuple[asyncio.Future[None], int]] = deque()
        digest, stored = hashlib.md5(usedforsecurity=False), 0

        async def store_first() -> None:
            nonlocal stored
            await under_way[0][0]
            stored += under_way.popleft()[1]
            progress(stored)

        try:
            async for chunk in chunks:
                if len(under_way) >= CHUNKS_AT_ONCE:
                    await store_first()
                name = chunk_name(self._session, self._counter, len(self.names))
                self.names.append(name)
                self.length += len(chunk)
                create = self._blobs.create(name, chunk, timeout_s)
                under_way.append((asyncio.ensure_future(create), len(chunk)))
                await asyncio.to_thread(digest.update, chunk)
            while under_way:
                await store_first()
        finally:
            left = [future for future, _ in under_way]
            for future in left:
                future.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        self.etag = digest.hexdigest()
