"""The file system for fsspec; ares/filesystem/__init__.py has the guarantees of each call."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fsspec.callbacks import DEFAULT_CALLBACK

from ares.client.file import File
from ares.filesystem.cluster_connection import ClusterConnection
from ares.filesystem.file_entries import (
    below,
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
from ares.filesystem.tree_system import READ_RETRIES_MAX, TreeFileSystem
from ares.model.errors import BadInput, FileChanged, ObjectNotFound


class AresFileSystem(TreeFileSystem):
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
    file_type = AresFile

    def __init__(
        self,
        cluster: str | Path | None = None,
        domain: str | None = None,
        create: bool = False,
        timeout_s: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(ClusterConnection(cluster, domain, create, timeout_s), **options)

    # -- information -------------------------------------------------------------------------------

    async def _file_entry(self, path: str) -> dict[str, Any]:
        file = await self._connection.file(path)
        return file_entry(path, await file.snapshot())

    async def _is_directory(self, path: str) -> bool:
        return bool(await self._connection.names(below(path)))

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

    async def _delete(self, path: str) -> None:
        file = await self._connection.file(path)
        await file.delete()

    @with_os_errors
    async def _put_whole(self, path: str, pieces: Callable[[], Pieces], mode: str) -> None:
        await replace(self._connection, self._strip_protocol(path), pieces, mode == "create")
