"""Files of a cluster as fsspec sees them: what `info` says of one, an open one, and putting one whole from wherever its content comes."""

import asyncio
import errno
import io
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from fsspec.asyn import sync
from fsspec.spec import AbstractBufferedFile
from msgspec.msgpack import encode

from ares.client.file import File, FileWriter
from ares.filesystem.access import ClusterConnection, with_os_errors
from ares.fragment.divide import MIB, digest
from ares.fragment.read import FileState
from ares.fragment.report import WriteReport
from ares.model.errors import ObjectNotFound
from ares.model.tag import TAG_ZERO

MODES = ("rb", "wb", "ab", "xb")

LOCAL_BYTES = 4 * MIB
COPY_BYTES = 16 * MIB
"""What is read at a time: from a local file; from the cluster, where many blocks come side by side."""

RETRIES_MAX = 20

Pieces = AsyncGenerator[bytes, None]


def file_entry(path: str, state: FileState) -> dict[str, Any]:
    """``mtime`` and ``created`` in seconds since the epoch; ``version`` changes with every change of the content."""
    genesis = state.genesis
    version = str(state.tag)
    if not genesis.atomic:  # its blocks change without it
        version += f"-{digest(encode([(part.id, part.tag) for part in state.parts])).hex()}"
    times = {"created": float(genesis.modified_s), "mtime": float(genesis.modified_s)}
    return {"name": path, "size": state.length, "type": "file", "atomic": genesis.atomic, "version": version, **times}


def directory_entry(path: str) -> dict[str, Any]:
    """It has nothing but a name."""
    return {"name": path, "size": 0, "type": "directory"}


class AresFile(AbstractBufferedFile):
    """``rb`` reads the file as it was when it was opened (``snapshot``: as it was then). The others write: nothing shows before ``close``.

    Leaving a ``with`` block by an exception discards what was written.
    """

    def __init__(self, fs: Any, connection: ClusterConnection, path: str, mode: str, *, snapshot: FileState | None = None, **options: Any) -> None:
        if mode not in MODES:
            raise io.UnsupportedOperation(f"mode {mode!r} is not supported, only {', '.join(MODES)}: a file is read, or replaced as a whole")
        written = 0
        if mode == "rb":
            self._file, self._state = sync(fs.loop, _pinned, connection, path, snapshot)
            self._details = file_entry(path, self._state)
            options["size"] = self._state.length
        else:
            self._writer, written = sync(fs.loop, _writer, connection, path, mode)
        super().__init__(fs, path, mode, **options)
        self.loc = written

    def _wait(self, method: Any, *arguments: Any) -> Any:
        return sync(self.fs.loop, with_os_errors(method), *arguments)

    def _fetch_range(self, start: int, end: int) -> bytes:
        fetched: bytes = self._wait(self._file.read_range, self._state, start, end)
        return fetched

    def _upload_chunk(self, final: bool = False) -> None:
        self._wait(self._writer.write, self.buffer.getvalue())
        if final and self.autocommit:
            self.commit()

    def commit(self) -> None:
        """Publish what was written; a transaction may end before the file is closed."""
        if not self.forced:
            self.flush(force=True)
        report: WriteReport = self._wait(self._writer.close)
        if report.conflicts:
            raise exists(self.path) if self.mode == "xb" else stale(self.path, report)

    def discard(self) -> None:
        """Publish nothing."""
        self.closed = True
        sync(self.fs.loop, self._writer.abort)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and self.writable():
            self.discard()
        else:
            self.close()

    def __reduce__(self) -> Any:
        """A reader goes on elsewhere with the same content."""
        if self.mode != "rb":
            return super().__reduce__()
        return _reopened, (self.fs, self.path, self.blocksize, self.cache.name if self.cache else "none", self._state, self.loc)


def _reopened(fs: Any, path: str, block_size: int, cache_type: str, snapshot: FileState, loc: int) -> Any:
    file = fs.open(path, "rb", block_size=block_size, cache_type=cache_type, snapshot=snapshot)
    file.seek(loc)
    return file


@with_os_errors
async def _pinned(connection: ClusterConnection, path: str, snapshot: FileState | None) -> tuple[File, FileState]:
    file = await connection.file(path)
    return file, snapshot or await file.snapshot()


@with_os_errors
async def _writer(connection: ClusterConnection, path: str, mode: str) -> tuple[FileWriter, int]:
    if mode == "ab":
        return await appending(connection, path)
    return await (creating(connection, path) if mode == "xb" else replacing(connection, path)), 0


async def once(value: bytes) -> Pieces:
    """All in one."""
    yield value


async def pieces_of_local(path: str, callback: Any) -> Pieces:
    """A local file; ``callback`` is fsspec's, for progress."""
    with await asyncio.to_thread(open, path, "rb") as file:
        callback.set_size(await asyncio.to_thread(file.seek, 0, 2))
        file.seek(0)
        while piece := await asyncio.to_thread(file.read, LOCAL_BYTES):
            yield piece
            callback.absolute_update(file.tell())


async def pieces_of_snapshot(file: File, state: FileState) -> Pieces:
    """A file of the cluster as it was at ``state``. Raises :class:`ares.FileChanged`."""
    for start in range(0, state.length, COPY_BYTES):
        yield await file.read_range(state, start, start + COPY_BYTES)


async def replace(connection: ClusterConnection, path: str, pieces: Callable[[], Pieces], exclusive: bool) -> None:
    """Put the file. A put that was overtaken by a deletion begins again, with the ``pieces`` from the first.

    ``exclusive``: only if it is not there. Raises :class:`FileExistsError`.
    """
    for _ in range(RETRIES_MAX):
        writer = await (creating(connection, path) if exclusive else replacing(connection, path))
        async with writer, aclosing(pieces()) as source:
            async for piece in source:
                await writer.write(piece)
        report = await writer.close()
        if not report.conflicts:
            return
        if exclusive:
            raise exists(path)
    raise stale(path, report)


async def replacing(connection: ClusterConnection, path: str) -> FileWriter:
    """Over whatever is there."""
    return (await connection.file(path)).writer(mine=True)


async def creating(connection: ClusterConnection, path: str) -> FileWriter:
    """Over nothing. Raises :class:`FileExistsError`."""
    writer = (await connection.file(path)).writer()
    if (await writer.begin()).tag != TAG_ZERO:
        raise exists(path)
    return writer


async def appending(connection: ClusterConnection, path: str) -> tuple[FileWriter, int]:
    """Over what is there, and beginning with it: how much that is. Blocks that are there do not travel back."""
    file = await connection.file(path)
    writer = file.writer()
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


def exists(path: str) -> FileExistsError:
    """Somebody made the file before."""
    return FileExistsError(errno.EEXIST, "it exists already, and nothing was changed", path)


def stale(path: str, report: WriteReport) -> OSError:
    """The put was not published."""
    return OSError(errno.ESTALE, f"{report.conflicts[0].why}; nothing of what was written is there, write it again", path)
