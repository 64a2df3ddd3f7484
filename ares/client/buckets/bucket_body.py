"""The data of a put, from bytes, a file or a stream, as chunks with a common size."""

import asyncio
import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from pathlib import Path
from typing import BinaryIO, Protocol, runtime_checkable

from ares.bucket.index_records import BLOB_CHUNK_BYTES, OBJECT_BYTES_MAX
from ares.model.errors import BadInput


@runtime_checkable
class Readable(Protocol):
    """A file opened for reading bytes."""

    def read(self, size: int, /) -> bytes: ...


ByteSource = (
    bytes | bytearray | memoryview | str | os.PathLike[str] | Readable
    | AsyncIterable[bytes] | Iterable[bytes]
)  # fmt: skip


_STREAM_END = object()
"""The mark after the last part of an iterable."""


class Body:
    """The data of a put. ``repeatable``: the chunks can be taken again from the beginning.

    ``size``: the number of bytes; None if unknown. Bytes are a value, text and paths name a local
    file, and a file or an iterable is read as far as the put has room. Raises :class:`BadInput`.
    """

    def __init__(self, data: ByteSource) -> None:
        self._data = data
        self.size: int | None = None
        if isinstance(data, bytes | bytearray | memoryview):
            self._data = memoryview(data).cast("B")
            self.size = len(self._data)
        elif isinstance(data, str | os.PathLike):
            self._data = Path(data)
            self.size = _size_of_file(self._data)
        elif not isinstance(data, Readable | AsyncIterable | Iterable):
            raise BadInput(
                "data is bytes, the path of a file, an open file, or an iterable of bytes, not "
                f"{type(data).__name__}; nothing was sent"
            )
        self.repeatable = isinstance(self._data, memoryview | Path)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield chunks of BLOB_CHUNK_BYTES, and a last one with 1 byte or more."""
        if isinstance(self._data, memoryview):
            for start in range(0, len(self._data), BLOB_CHUNK_BYTES):
                yield bytes(self._data[start : start + BLOB_CHUNK_BYTES])
            return
        kept, taken = bytearray(), 0
        async for part in self._parts():
            taken += len(part)
            if taken > OBJECT_BYTES_MAX:
                raise BadInput("an object has at most 5 TiB, and the data has more")
            if not kept and len(part) == BLOB_CHUNK_BYTES:
                yield bytes(part)
                continue
            view = memoryview(part).cast("B")
            while len(view):
                room = BLOB_CHUNK_BYTES - len(kept)
                kept += view[:room]
                view = view[room:]
                if len(kept) == BLOB_CHUNK_BYTES:
                    yield bytes(kept)
                    kept.clear()
        if kept:
            yield bytes(kept)

    async def _parts(self) -> AsyncIterator[bytes]:
        """Yield the parts of a stream as they come."""
        data = self._data
        if isinstance(data, Path):
            with await asyncio.to_thread(_opened, data) as file:
                async for part in _read(file):
                    yield part
        elif isinstance(data, AsyncIterable):
            async for part in data:
                yield _checked(part)
        elif isinstance(data, Readable):
            async for part in _read(data):
                yield part
        else:
            assert isinstance(data, Iterable), "checked at the beginning"
            parts = iter(data)
            while (given := await asyncio.to_thread(next, parts, _STREAM_END)) is not _STREAM_END:
                yield _checked(given)


async def _read(file: Readable) -> AsyncIterator[bytes]:
    while part := _checked(await asyncio.to_thread(file.read, BLOB_CHUNK_BYTES)):
        yield part


def _checked(part: object) -> bytes:
    """Return a part of a stream; None is no end: a file that does not block has no bytes yet."""
    if not isinstance(part, bytes | bytearray | memoryview):
        raise BadInput(f"the parts of data are bytes, not {type(part).__name__}")
    return bytes(part)


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}; nothing was sent") from error


def _size_of_file(path: Path) -> int | None:
    """Return the size of a regular file; None for a pipe or a device."""
    try:
        return path.stat().st_size if path.is_file() else None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}; nothing was sent") from error
