"""Open files, and whole puts from any source of content."""

import asyncio
import io
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from fsspec.asyn import sync
from fsspec.spec import AbstractBufferedFile

from ares.client.file import File, FileWriter
from ares.filesystem.cluster_connection import ClusterConnection
from ares.filesystem.file_entries import file_entry
from ares.filesystem.os_errors import exists, stale, with_os_errors
from ares.fragment.read import FileState
from ares.fragment.report import WriteReport
from ares.model.errors import ObjectNotFound
from ares.model.tag import TAG_ZERO
from ares.model.units import MIB

PUT_RETRIES_MAX = 20

OPEN_MODES = ("rb", "wb", "ab", "xb")

UPLOAD_BYTES = 4 * MIB
DOWNLOAD_BYTES = 16 * MIB
"""Bytes read at a time: from a local file; from the cluster, with many blocks side by side."""

Pieces = AsyncGenerator[bytes, None]


class ClusterFile(AbstractBufferedFile):
    """An open file: ``rb`` reads the file as of its opening; the other modes write.

    ``snapshot``: the state to read. Writes are invisible before ``close``. Leaving a ``with`` block
    by an exception discards the writes. Subclasses read and write; they set ``_state``, the state
    to read, and ``_writer``.
    """

    _state: Any
    _writer: Any

    def __init__(
        self,
        fs: Any,
        connection: ClusterConnection,
        path: str,
        mode: str,
        *,
        snapshot: Any = None,
        **options: Any,
    ) -> None:
        if mode not in OPEN_MODES:
            raise io.UnsupportedOperation(
                f"mode {mode!r} is not supported, only {', '.join(OPEN_MODES)}: a file is read, or "
                "replaced as a whole"
            )
        written = 0
        if mode == "rb":
            self._details = sync(fs.loop, with_os_errors(self._pin), connection, path, snapshot)
            options["size"] = self._details["size"]
        else:
            written = sync(fs.loop, with_os_errors(self._begin), connection, path, mode)
        super().__init__(fs, path, mode, **options)
        self.loc = written

    async def _pin(self, connection: ClusterConnection, path: str, snapshot: Any) -> dict[str, Any]:
        """Set the state to read, and return its entry."""
        raise NotImplementedError

    async def _begin(self, connection: ClusterConnection, path: str, mode: str) -> int:
        """Set the writer, and return the length of the content that stays."""
        raise NotImplementedError

    async def _read(self, start: int, end: int) -> bytes:
        """Return bytes of the state to read."""
        raise NotImplementedError

    async def _publish(self) -> None:
        """Make the written content visible."""
        raise NotImplementedError

    def _wait(self, method: Any, *arguments: Any) -> Any:
        return sync(self.fs.loop, with_os_errors(method), *arguments)

    def _fetch_range(self, start: int, end: int) -> bytes:
        fetched: bytes = self._wait(self._read, start, end)
        return fetched

    def _upload_chunk(self, final: bool = False) -> None:
        self._wait(self._writer.write, self.buffer.getvalue())
        if final and self.autocommit:
            self.commit()

    def commit(self) -> None:
        """Publish the written content; a transaction may end before the file is closed."""
        if not self.forced:
            self.flush(force=True)
        self._wait(self._publish)

    def discard(self) -> None:
        """Drop the written content."""
        self.closed = True
        sync(self.fs.loop, self._writer.abort)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and self.writable():
            self.discard()
        else:
            self.close()

    def __reduce__(self) -> Any:
        """Let a reader continue in another process with the same content."""
        if self.mode != "rb":
            return super().__reduce__()
        return _reopened, (
            self.fs,
            self.path,
            self.blocksize,
            self.cache.name if self.cache else "none",
            self._state,
            self.loc,
        )


def _reopened(fs: Any, path: str, block_size: int, cache_type: str, snapshot: Any, loc: int) -> Any:
    file = fs.open(path, "rb", block_size=block_size, cache_type=cache_type, snapshot=snapshot)
    file.seek(loc)
    return file


class AresFile(ClusterFile):
    """An open file of blocks."""

    async def _pin(self, connection: ClusterConnection, path: str, snapshot: Any) -> dict[str, Any]:
        self._file = await connection.file(path)
        self._state = snapshot or await self._file.snapshot()
        return file_entry(path, self._state)

    async def _begin(self, connection: ClusterConnection, path: str, mode: str) -> int:
        self._writer, written = await writer_of(connection, path, mode)
        return written

    async def _read(self, start: int, end: int) -> bytes:
        return await self._file.read_range(self._state, start, end)

    async def _publish(self) -> None:
        report: WriteReport = await self._writer.close()
        if report.conflicts:
            raise (
                exists(self.path)
                if self.mode == "xb"
                else stale(self.path, report.conflicts[0].why)
            )


async def once(value: bytes) -> Pieces:
    """Yield the value in a single piece."""
    yield value


async def pieces_of_local(path: str, callback: Any) -> Pieces:
    """Yield the pieces of a local file; ``callback`` is fsspec's, for progress."""
    with await asyncio.to_thread(open, path, "rb") as file:
        callback.set_size(await asyncio.to_thread(file.seek, 0, 2))
        file.seek(0)
        while piece := await asyncio.to_thread(file.read, UPLOAD_BYTES):
            yield piece
            callback.absolute_update(file.tell())


async def pieces_of_snapshot(file: File, state: FileState) -> Pieces:
    """Yield the pieces of a file as of ``state``. Raises :class:`ares.FileChanged`."""
    for start in range(0, state.length, DOWNLOAD_BYTES):
        yield await file.read_range(state, start, start + DOWNLOAD_BYTES)


async def replace(
    connection: ClusterConnection, path: str, pieces: Callable[[], Pieces], exclusive: bool
) -> None:
    """Put the file; after a concurrent deletion, begin again with the first of ``pieces``.

    ``exclusive``: only if the file is absent. Raises :class:`FileExistsError`.
    """
    for _ in range(PUT_RETRIES_MAX):
        writer, _ = await writer_of(connection, path, "xb" if exclusive else "wb")
        async with writer, aclosing(pieces()) as source:
            async for piece in source:
                await writer.write(piece)
        report = await writer.close()
        if not report.conflicts:
            return
        if exclusive:
            raise exists(path)
    raise stale(path, report.conflicts[0].why)


async def writer_of(connection: ClusterConnection, path: str, mode: str) -> tuple[FileWriter, int]:
    """Return a writer for the file, with the length of its initial content.

    Mode wb replaces any content, xb an absent file only, ab continues the present content. Present
    blocks do not travel back. Raises :class:`FileExistsError`.
    """
    file = await connection.file(path)
    writer = file.writer(mine=mode == "wb")
    if mode == "xb" and (await writer.begin()).tag != TAG_ZERO:
        raise exists(path)
    if mode != "ab":
        return writer, 0
    try:
        state = await file.snapshot()
    except ObjectNotFound:
        await writer.begin()
        return writer, 0
    try:
        async with aclosing(pieces_of_snapshot(file, state)) as source:
            async for piece in source:
                await writer.write(piece)
    except BaseException:
        await writer.abort()
        raise
    return writer, state.length
