"""A file that is open: fsspec's buffers over a snapshot, or over a writer that publishes when it is closed."""

import io
from types import TracebackType
from typing import Any

from fsspec.asyn import sync
from fsspec.spec import AbstractBufferedFile

from ares.client.file import File, FileWriter
from ares.filesystem.cluster_connection import Connection
from ares.filesystem.entries import file_entry
from ares.filesystem.os_errors import with_os_errors
from ares.filesystem.putting import appending, creating, exists, replacing, stale
from ares.fragment.read import FileState
from ares.fragment.report import WriteReport

MODES = ("rb", "wb", "ab", "xb")


class AresFile(AbstractBufferedFile):
    """``rb`` reads the file as it was when it was opened (``snapshot``: as it was then). The others write: nothing shows before ``close``.

    Leaving a ``with`` block by an exception discards what was written.
    """

    def __init__(self, fs: Any, connection: Connection, path: str, mode: str, *, snapshot: FileState | None = None, **options: Any) -> None:
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

    def _fetch_range(self, start: int, end: int) -> bytes:
        fetched: bytes = sync(self.fs.loop, _read, self._file, self._state, start, end)
        return fetched

    def _upload_chunk(self, final: bool = False) -> None:
        sync(self.fs.loop, _write, self._writer, self.buffer.getvalue())
        if final and self.autocommit:
            self.commit()

    def commit(self) -> None:
        """Publish what was written; a transaction may end before the file is closed."""
        if not self.forced:
            self.flush(force=True)
        report: WriteReport = sync(self.fs.loop, _close, self._writer)
        if report.conflicts:
            raise exists(self.path) if self.mode == "xb" else stale(self.path, report)

    def discard(self) -> None:
        """Publish nothing."""
        self.closed = True
        sync(self.fs.loop, self._writer.abort)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
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
async def _pinned(connection: Connection, path: str, snapshot: FileState | None) -> tuple[File, FileState]:
    file = await connection.file(path)
    return file, snapshot or await file.snapshot()


@with_os_errors
async def _writer(connection: Connection, path: str, mode: str) -> tuple[FileWriter, int]:
    if mode == "ab":
        return await appending(connection, path)
    return await (creating(connection, path) if mode == "xb" else replacing(connection, path)), 0


@with_os_errors
async def _read(file: File, state: FileState, start: int, end: int) -> bytes:
    return await file.read_range(state, start, end)


@with_os_errors
async def _write(writer: FileWriter, data: bytes) -> None:
    await writer.write(data)


@with_os_errors
async def _close(writer: FileWriter) -> WriteReport:
    return await writer.close()
