"""The file system for fsspec; ares/filesystem/__init__.py has the guarantees of each call.

A file's name is its path, and a directory is a common prefix of file names.
"""

import asyncio
import contextlib
import errno
import functools
import io
import os
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from fsspec.asyn import AsyncFileSystem, _run_coros_in_chunks, get_loop, sync, sync_wrapper
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.spec import AbstractBufferedFile
from msgspec import structs
from msgspec.msgpack import encode

from ares.client.connect import connect, settings_of
from ares.client.domain import checked_timeout
from ares.client.file import File, FileWriter
from ares.client.manager import Manager
from ares.client.store import ObjectStore
from ares.cluster.settings import Settings
from ares.fragment.divide import digest
from ares.fragment.read import FileState
from ares.fragment.report import WriteReport
from ares.model.errors import (
    AresError,
    BadInput,
    ConsensusUnavailable,
    DomainNotFound,
    FileChanged,
    ObjectNotFound,
    Unavailable,
)
from ares.model.tag import TAG_ZERO
from ares.model.units import MIB
from ares.platform.environment import CLUSTER_VARIABLE

READ_RETRIES_MAX = 20
PUT_RETRIES_MAX = 20

# -- the way to a cluster, and the errors that programs expect of a file system -------------------

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_left_open: list[Manager] = []
"""Connections of event loops that ended first.

If they were collected, ZeroMQ would wait for ever for sockets collected with them.
"""


class ClusterConnection:
    """The connection to a cluster.

    ``domain``: the domain of the files; None: each file is a domain of its own. ``create``: make
    that domain if it is missing.
    """

    def __init__(
        self, cluster: str | Path | None, domain: str | None, create: bool, timeout_s: float | None
    ) -> None:
        if timeout_s is not None:
            checked_timeout(timeout_s)
        self._cluster = cluster
        self._domain = domain
        self._create = create
        self._timeout_s = timeout_s
        self._manager: Manager | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    async def file(self, name: str) -> File:
        """Return the file, atomic if it is made here. Raises :class:`DomainNotFound`."""
        if self._domain is None:
            return (await self._connected()).file(name, atomic=True)
        return ObjectStore.file(await self._store(self._domain), name, atomic=True)

    async def names(self, prefix: str) -> Sequence[str]:
        """Return the files whose names start with ``prefix`` and are possible paths, in order."""
        if self._domain is None:
            found = await (await self._connected()).files(prefix)
        else:
            found = await ObjectStore.files(await self._store(self._domain), prefix)
        return [name for name in found if "" not in name.split("/")]

    async def close(self) -> None:
        """Close the open connection; the next operation connects again."""
        manager, self._manager = self._manager, None
        if manager is not None:
            await manager.close()

    def close_soon(self) -> None:
        """Run ``close`` from any thread and without waiting.

        A connection of a parent process or of an ended event loop stays open.
        """
        manager, loop, self._manager = self._manager, self._loop, None
        if manager is None or loop is None:
            return
        if self._pid == os.getpid() and loop.is_running():
            asyncio.run_coroutine_threadsafe(manager.close(), loop)
        else:
            _left_open.append(manager)

    async def _connected(self) -> Manager:
        loop = asyncio.get_running_loop()
        if self._manager is None or self._loop is not loop:
            self.close_soon()
            self._manager, self._loop, self._pid = (
                await connect(self._settings()),
                loop,
                os.getpid(),
            )
        return self._manager

    async def _store(self, domain: str) -> ObjectStore:
        manager = await self._connected()
        try:
            return await manager.domain(domain)
        except DomainNotFound:
            if not self._create:
                raise
        store, _ = await manager.create_domain(domain)
        return store

    def _settings(self) -> Settings:
        cluster = self._cluster or os.environ.get(CLUSTER_VARIABLE)
        if not cluster:
            raise BadInput(
                f"which cluster? Give the storage option cluster=FILE or set {CLUSTER_VARIABLE}"
            )
        settings = settings_of(cluster)
        if self._timeout_s is None:
            return settings
        return structs.replace(
            settings, client=structs.replace(settings.client, timeout_s=self._timeout_s)
        )


ERROR_NUMBERS: dict[type[AresError], int] = {
    ObjectNotFound: errno.ENOENT,
    DomainNotFound: errno.ENOENT,
    FileChanged: errno.ESTALE,
    Unavailable: errno.EHOSTUNREACH,
    ConsensusUnavailable: errno.EHOSTUNREACH,
    AresError: errno.EIO,
}
"""Error numbers, the first matching class wins.

ETIMEDOUT is not used: fsspec takes a TimeoutError for its own, and drops the text.
"""


def as_os_error(error: AresError) -> Exception:
    """Return the error for a program that uses files.

    This is an OSError of the class for its number, or the ValueError in a BadInput.
    """
    if isinstance(error, BadInput):
        return error
    return OSError(
        next(number for kind, number in ERROR_NUMBERS.items() if isinstance(error, kind)),
        str(error),
    )


def as_local_error(error: BadInput) -> Exception:
    """Return the OSError behind an error about a local file."""
    return (
        OSError(error.__cause__.errno, str(error))
        if isinstance(error.__cause__, OSError)
        else error
    )


def with_os_errors(
    method: Callable[Parameters, Awaitable[Result]],
) -> Callable[Parameters, Coroutine[Any, Any, Result]]:
    """Return the method with its errors translated."""

    @functools.wraps(method)
    async def translated(*arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
        try:
            return await method(*arguments, **named)
        except AresError as error:
            raise as_os_error(error) from error

    return translated


# -- open files, and whole puts from any source of content -----------------------------------------

OPEN_MODES = ("rb", "wb", "ab", "xb")

UPLOAD_BYTES = 4 * MIB
DOWNLOAD_BYTES = 16 * MIB
"""Bytes read at a time: from a local file; from the cluster, with many blocks side by side."""

Pieces = AsyncGenerator[bytes, None]


def file_entry(path: str, state: FileState) -> dict[str, Any]:
    """Return fsspec's entry for a file.

    ``mtime`` and ``created`` in seconds since the epoch; ``version`` changes with every change of
    the content.
    """
    genesis = state.genesis
    version = str(state.tag)
    if not genesis.atomic:  # the blocks of such a file change without its genesis block
        version += f"-{digest(encode([(part.id, part.tag) for part in state.parts])).hex()}"
    times = {"created": float(genesis.modified_s), "mtime": float(genesis.modified_s)}
    return {
        "name": path,
        "size": state.length,
        "type": "file",
        "atomic": genesis.atomic,
        "version": version,
        **times,
    }


def directory_entry(path: str) -> dict[str, Any]:
    """Return fsspec's entry for a directory, which has only a name."""
    return {"name": path, "size": 0, "type": "directory"}


class AresFile(AbstractBufferedFile):
    """An open file: ``rb`` reads the file as of its opening; the other modes write.

    ``snapshot``: the state to read. Writes are invisible before ``close``. Leaving a ``with`` block
    by an exception discards the writes.
    """

    def __init__(
        self,
        fs: Any,
        connection: ClusterConnection,
        path: str,
        mode: str,
        *,
        snapshot: FileState | None = None,
        **options: Any,
    ) -> None:
        if mode not in OPEN_MODES:
            raise io.UnsupportedOperation(
                f"mode {mode!r} is not supported, only {', '.join(OPEN_MODES)}: a file is read, or "
                "replaced as a whole"
            )
        written = 0
        if mode == "rb":
            self._file, self._state = sync(fs.loop, _pinned, connection, path, snapshot)
            self._details = file_entry(path, self._state)
            options["size"] = self._state.length
        else:
            self._writer, written = sync(fs.loop, with_os_errors(writer_of), connection, path, mode)
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
        """Publish the written content; a transaction may end before the file is closed."""
        if not self.forced:
            self.flush(force=True)
        report: WriteReport = self._wait(self._writer.close)
        if report.conflicts:
            raise exists(self.path) if self.mode == "xb" else stale(self.path, report)

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


def _reopened(
    fs: Any, path: str, block_size: int, cache_type: str, snapshot: FileState, loc: int
) -> Any:
    file = fs.open(path, "rb", block_size=block_size, cache_type=cache_type, snapshot=snapshot)
    file.seek(loc)
    return file


@with_os_errors
async def _pinned(
    connection: ClusterConnection, path: str, snapshot: FileState | None
) -> tuple[File, FileState]:
    file = await connection.file(path)
    return file, snapshot or await file.snapshot()


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
    raise stale(path, report)


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


def exists(path: str) -> FileExistsError:
    """Return the error for a file made before by another client."""
    return FileExistsError(errno.EEXIST, "it exists already, and nothing was changed", path)


def stale(path: str, report: WriteReport) -> OSError:
    """Return the error for an unpublished put."""
    return OSError(
        errno.ESTALE,
        f"{report.conflicts[0].why}; none of the written bytes are stored, write them again",
        path,
    )


# -- the file system -------------------------------------------------------------------------------


class AresFileSystem(AsyncFileSystem):
    """Files of a cluster.

    Storage options: ``cluster``, the path of the cluster file (default: ``ARES_CLUSTER``);
    ``domain``, the domain of the files (default: each file is a domain of its own, with a
    configuration of its own, and making a domain takes the consensus service; many small files
    belong together in a domain); ``create``: make that domain if it is missing; ``timeout_s``, the
    longest standstill (default: the cluster file's); and the options of fsspec.

    Errors are OSErrors: FileNotFoundError, FileExistsError, ESTALE when a file changed since its
    opening, EHOSTUNREACH when too few servers answer; ValueError for an impossible file name. A
    program with its own event loop (``asynchronous=True``) awaits :meth:`aclose` before the loop
    ends. A file system inherited by a forked process or unpickled in another process connects
    again.
    """

    protocol = "ares"
    _pid: int

    def __init__(
        self,
        cluster: str | Path | None = None,
        domain: str | None = None,
        create: bool = False,
        timeout_s: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._connection = ClusterConnection(cluster, domain, create, timeout_s)
        weakref.finalize(self, self._connection.close_soon).atexit = False

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        stripped = super()._strip_protocol(path)
        return stripped if isinstance(stripped, list) else canonical(stripped)

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """Return the event loop, a new one in a child process.

        A child process has none of its parent's threads.
        """
        if self._pid != os.getpid():
            self._pid, self._loop = os.getpid(), None if self.asynchronous else get_loop()
        loop: asyncio.AbstractEventLoop | None = self._loop
        return loop

    async def aclose(self) -> None:
        """Close the connection; a later use connects again."""
        await self._connection.close()

    # -- information
    # -----------------------------------------------------------------------------------

    @with_os_errors
    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        if path:
            with contextlib.suppress(ObjectNotFound):
                file = await self._connection.file(path)
                return file_entry(path, await file.snapshot())
        if not path or await self._connection.names(below(path)):
            return directory_entry(path)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    async def _isfile(self, path: str) -> bool:
        return await self._is(path, "file")

    async def _isdir(self, path: str) -> bool:
        return await self._is(path, "directory")

    async def _is(self, path: str, kind: str) -> bool:
        """Return whether the path has this kind; an unknown answer is an error, not a no."""
        try:
            return bool((await self._info(path))["type"] == kind)
        except FileNotFoundError:
            return False

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        entries = await self._found(path, 1, True, detail)
        if path and not entries:
            entries = {path: await self._info(path)}
        return list(entries.values()) if detail else list(entries)

    async def _find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        prefix: str = "",
        **_: Any,
    ) -> Any:
        """Find files with a single listing, however deep the tree.

        ``prefix``: a prefix of the names within ``path``.
        """
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        path = self._strip_protocol(path)
        entries = await self._found(path, maxdepth, withdirs, detail, prefix)
        if path and entries and withdirs:
            entries = {path: directory_entry(path)} | entries
        if path and not entries and not prefix and await self._isfile(path):
            entries = {path: await self._info(path)}
        return entries if detail else list(entries)

    @with_os_errors
    async def _found(
        self, path: str, depth: int | None, withdirs: bool, detail: bool, prefix: str = ""
    ) -> dict[str, Any]:
        """Return the directory's entries by name, in order; with ``detail`` entries of files.

        Files deleted during the call are left out.
        """
        names = await self._connection.names(below(path) + prefix)
        files = within(names, path, depth)
        entries: dict[str, Any] = dict.fromkeys(files)
        if detail:
            infos = await self._many([self._info(name) for name in files], FileNotFoundError)
            entries = {info["name"]: info for info in infos if info["type"] == "file"}
        if withdirs:
            entries = {
                name: directory_entry(name) for name in directories(names, path, depth)
            } | entries
        return dict(sorted(entries.items()))

    async def _many(self, coroutines: list[Any], *forgive: type[Exception]) -> list[Any]:
        """Return the results of the coroutines, without failures of the kinds in ``forgive``."""
        results = await _run_coros_in_chunks(
            coroutines, batch_size=self.batch_size, nofiles=True, return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, forgive):
                raise result
        return [result for result in results if not isinstance(result, BaseException)]

    async def _modified(self, path: str) -> datetime:
        """Return the time of the put, by the clock of the putting client.

        A put makes a new file: this is its time of creation, too.
        """
        info = await self._info(path)
        if info["type"] == "directory":
            raise IsADirectoryError(errno.EISDIR, "a directory has no time of its own", path)
        return datetime.fromtimestamp(info["mtime"], UTC)

    modified = sync_wrapper(_modified)
    created = sync_wrapper(_modified)

    def ukey(self, path: str) -> str:
        """Return the version of the content: another put, another version."""
        return str(self.info(path)["version"])

    def checksum(self, path: str) -> int:
        """Return :meth:`ukey` as a number."""
        return int.from_bytes(self.ukey(path).encode())

    # -- reading -----------------------------------------------------------------------------------

    @with_os_errors
    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        file = await self._connection.file(self._strip_protocol(path))
        if start is None and end is None:
            return await file.read()
        for _attempt in range(READ_RETRIES_MAX):
            with contextlib.suppress(FileChanged):
                return await self._cat_range(file, start, end)
        return await self._cat_range(file, start, end)

    async def _cat_range(self, file: File, start: int | None, end: int | None) -> bytes:
        state = await file.snapshot()
        first, stop, _step = slice(start, end).indices(state.length)
        return await file.read_range(state, first, stop)

    @with_os_errors
    async def _get_file(
        self, rpath: str, lpath: str, callback: Any = DEFAULT_CALLBACK, **_: Any
    ) -> None:
        path = self._strip_protocol(rpath)
        file = await self._connection.file(path)
        try:
            callback.set_size((await file.snapshot()).length)
        except ObjectNotFound:
            if not await self._isdir(path):
                raise
            os.makedirs(lpath, exist_ok=True)
            return
        try:
            await file.read_into(
                lpath, progress=lambda progress: callback.absolute_update(progress.done_bytes)
            )
        except BadInput as error:
            raise as_local_error(error) from error

    # -- writing -----------------------------------------------------------------------------------

    async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        await self._put_whole(path, lambda: once(value), mode)

    async def _put_file(
        self,
        lpath: str,
        rpath: str,
        mode: str = "overwrite",
        callback: Any = DEFAULT_CALLBACK,
        **_: Any,
    ) -> None:
        if not await asyncio.to_thread(os.path.isdir, lpath):
            await self._put_whole(rpath, lambda: pieces_of_local(lpath, callback), mode)

    @with_os_errors
    async def _cp_file(self, path1: str, path2: str, **_: Any) -> None:
        """Copy a file, all of it from a single version; a directory has no content to copy."""
        file = await self._connection.file(self._strip_protocol(path1))
        try:
            state = await file.snapshot()
        except ObjectNotFound:
            if await self._isdir(path1):
                return
            raise
        await self._put_whole(path2, lambda: pieces_of_snapshot(file, state), "overwrite")

    @with_os_errors
    async def _put_whole(self, path: str, pieces: Callable[[], Pieces], mode: str) -> None:
        await replace(self._connection, self._strip_protocol(path), pieces, mode == "create")

    @with_os_errors
    async def _rm_file(self, path: str, **_: Any) -> None:
        path = self._strip_protocol(path)
        file = await self._connection.file(path)
        try:
            await file.delete()
        except ObjectNotFound:
            if await self._isdir(path):
                raise IsADirectoryError(
                    errno.EISDIR, "it is a directory: nothing was deleted, say recursive=True", path
                ) from None
            raise

    async def _rm(
        self,
        path: Any,
        recursive: bool = False,
        batch_size: int | None = None,
        maxdepth: int | None = None,
        **_: Any,
    ) -> None:
        """Remove files; with ``recursive``, the files within.

        A file deleted concurrently by another client counts as removed.
        """
        found = await self._expand_path(path, maxdepth=maxdepth)
        if not recursive:
            await self._many([self._rm_file(name) for name in found])
            return
        files = {name for root in found for name in await self._find(root, maxdepth=maxdepth)}
        files |= {root for root in found if root not in files and await self._isfile(root)}
        if not files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        await self._many([self._rm_file(name) for name in sorted(files)], FileNotFoundError)

    @with_os_errors
    async def _rmdir(self, path: str) -> None:
        """Do nothing for a directory without files: an empty directory is an absent directory."""
        path = self._strip_protocol(path)
        if await self._connection.names(below(path)):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)

    rmdir = sync_wrapper(_rmdir)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **options: Any,
    ) -> AresFile:
        return AresFile(
            self,
            self._connection,
            path,
            mode,
            block_size=block_size,
            autocommit=autocommit,
            cache_options=cache_options,
            **options,
        )


# -- names -----------------------------------------------------------------------------------------


def canonical(path: str) -> str:
    """Return the name for ``path``: without empty segments, "" for the root."""
    return "/".join(segment for segment in path.split("/") if segment)


def below(directory: str) -> str:
    """Return the prefix of all names in ``directory``."""
    return f"{directory}/" if directory else ""


def within(names: Iterable[str], directory: str, depth: int | None) -> list[str]:
    """Return the ``names`` in ``directory`` at most ``depth`` levels down, in order.

    Depth 1: directly in the directory.
    """
    start = len(below(directory))
    return sorted(name for name in names if depth is None or name.count("/", start) < depth)


def directories(names: Iterable[str], directory: str, depth: int | None) -> list[str]:
    """Return the directories on the way to ``names``, at most ``depth`` levels down, in order."""
    start, found = len(below(directory)), set()
    for name in names:
        parents = name[start:].split("/")[:-1][:depth]
        found |= {name[:start] + "/".join(parents[:level]) for level in range(1, len(parents) + 1)}
    return sorted(found)
