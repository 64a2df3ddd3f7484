"""The file system for fsspec; ares/filesystem/__init__.py has the guarantees of each call."""

import asyncio
import contextlib
import errno
import os
import weakref
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fsspec.asyn import AsyncFileSystem, _run_coros_in_chunks, get_loop, sync_wrapper
from fsspec.callbacks import DEFAULT_CALLBACK

from ares.client.file import File
from ares.filesystem.cluster_connection import ClusterConnection
from ares.filesystem.file_entries import (
    below,
    canonical,
    directories,
    directory_entry,
    file_entry,
    within,
)
from ares.filesystem.open_file import (
    AresFile,
    Pieces,
    once,
    pieces_of_local,
    pieces_of_snapshot,
    replace,
)
from ares.filesystem.os_errors import as_local_error, with_os_errors
from ares.model.errors import BadInput, FileChanged, ObjectNotFound

READ_RETRIES_MAX = 20


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

    # -- information -------------------------------------------------------------------------------

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
