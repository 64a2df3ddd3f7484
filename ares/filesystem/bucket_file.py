"""Open objects of buckets for fsspec: ranges of a version, and puts of streams."""

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from ares.client.buckets.bucket_body import ByteSource
from ares.client.buckets.bucket_errors import KeyNotFound, PreconditionFailed
from ares.client.buckets.bucket_objects import Bucket
from ares.client.buckets.bucket_values import ObjectInfo
from ares.filesystem.cluster_connection import ClusterConnection
from ares.filesystem.file_entries import object_entry
from ares.filesystem.open_file import ClusterFile
from ares.filesystem.os_errors import exists, stale
from ares.model.errors import ObjectNotFound


async def object_at(connection: ClusterConnection, path: str) -> tuple[Bucket, str]:
    """Return the bucket and the key of a path.

    Raises :class:`ares.ObjectNotFound` for a path without a key: a bucket is a directory.
    """
    name, _, key = path.partition("/")
    if not key:
        raise KeyNotFound("", name)
    return await connection.bucket(name), key


class ObjectWriter:
    """A put of an object whose content comes in pieces.

    ``present``: the object before, for mode ``ab``. A first piece alone is put as bytes, which can
    be sent again in another session; more pieces are a stream, with up to four chunks under way.
    """

    def __init__(self, bucket: Bucket, path: str, mode: str, present: ObjectInfo | None) -> None:
        self._bucket = bucket
        self._path = path
        self._key = path.partition("/")[2]
        self._mode = mode
        self._present = present
        self._first = b""
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue(1)
        self._put: asyncio.Future[None] | None = None

    async def write(self, piece: bytes) -> None:
        """Add a piece. Raises the error that ended the put."""
        if piece and not self._first:
            self._first = piece
        elif piece:
            await self._hand(piece)

    async def close(self) -> None:
        """End the content, and wait until the object has it."""
        if self._put is None and self._present is None:
            await self._stored(self._first)
        else:
            await (await self._hand(b""))

    async def abort(self) -> None:
        """Drop the content: before its end no command is given to the log."""
        if self._put is not None:
            self._put.cancel()
            await asyncio.gather(self._put, return_exceptions=True)

    async def _hand(self, piece: bytes) -> asyncio.Future[None]:
        """Hand a piece to the put, which is returned; b"" is the end."""
        if self._put is None:
            self._put = asyncio.ensure_future(self._stored(self._stream()))
        handed = asyncio.ensure_future(self._pieces.put(piece))
        try:
            await asyncio.wait((handed, self._put), return_when=asyncio.FIRST_COMPLETED)
        finally:
            handed.cancel()
        if self._put.done():
            self._put.result()
        return self._put

    async def _stream(self) -> AsyncIterator[bytes]:
        if self._present is not None:
            version = self._present.version
            async with await self._bucket.get(self._key, version=version) as found:
                async for chunk in found:
                    yield chunk
        piece = self._first
        while piece:
            yield piece
            piece = await self._pieces.get()

    async def _stored(self, data: ByteSource) -> None:
        present = self._present
        try:
            await self._bucket.put(
                self._key,
                data,
                if_absent=self._mode != "wb" and present is None,
                if_version=None if present is None else present.version,
                metadata=None if present is None else present.metadata,
            )
        except (ObjectNotFound, PreconditionFailed) as failed:
            if self._mode == "xb":
                raise exists(self._path) from failed
            raise stale(self._path, "the object was changed or deleted meanwhile") from failed


class BucketFile(ClusterFile):
    """An open object of a bucket: reads of a version replaced meanwhile are ESTALE."""

    async def _pin(self, connection: ClusterConnection, path: str, snapshot: Any) -> dict[str, Any]:
        self._bucket, self._key = await object_at(connection, path)
        self._state: ObjectInfo = snapshot or await self._bucket.stat(self._key)
        return object_entry(path, self._state)

    async def _begin(self, connection: ClusterConnection, path: str, mode: str) -> int:
        bucket, key = await object_at(connection, path)
        present = None
        if mode != "wb":
            with suppress(ObjectNotFound):
                present = await bucket.stat(key)
        if mode == "xb" and present is not None:
            raise exists(path)
        self._writer = ObjectWriter(bucket, path, mode, present)
        return 0 if present is None else present.size

    async def _read(self, start: int, end: int) -> bytes:
        version, length = self._state.version, max(end - start, 0)
        try:
            async with await self._bucket.get(
                self._key, version=version, start=start, length=length
            ) as found:
                return await found.read()
        except ObjectNotFound as gone:
            why = "the object was replaced or deleted since it was opened here: open it again"
            raise OSError(errno.ESTALE, why, self.path) from gone

    async def _publish(self) -> None:
        await self._writer.close()
