"""The part of a file system for fsspec that files and objects of buckets share.

Files have names, and directories exist through the files in them.
"""

import asyncio
import contextlib
import errno
import os
import weakref
from datetime import UTC, datetime
from typing import Any, ClassVar

from fsspec.asyn import AsyncFileSystem, _run_coros_in_chunks, get_loop, sync_wrapper

from ares.filesystem.cluster_connection import ClusterConnection
from ares.filesystem.file_entries import canonical, directory_entry
from ares.filesystem.open_file import ClusterFile
from ares.filesystem.os_errors import with_os_errors
from ares.model.errors import ObjectNotFound

READ_RETRIES_MAX = 20


class TreeFileSystem(AsyncFileSystem):
    """A tree of files in a cluster; subclasses look up, list and delete files."""

    file_type: ClassVar[type[ClusterFile]]
    _pid: int

    def __init__(self, connection: ClusterConnection, **options: Any) -> None:
        super().__init__(**options)
        self._connection = connection
        weakref.finalize(self, self._connection.close_soon).atexit = False

    async def _file_entry(self, path: str) -> dict[str, Any]:
        """Return the entry of a file. Raises :class:`ares.ObjectNotFound`."""
        raise NotImplementedError

    async def _is_directory(self, path: str) -> bool:
        """Return whether a path is a directory with files, or a bucket."""
        raise NotImplementedError

    async def _found(
        self, path: str, depth: int | None, withdirs: bool, detail: bool, prefix: str = ""
    ) -> dict[str, Any]:
        """Return the directory's entries by name, in order; with ``detail`` entries of files."""
        raise NotImplementedError

    async def _delete(self, path: str) -> None:
        """Delete a file. Raises :class:`ares.ObjectNotFound`."""
        raise NotImplementedError

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
                return await self._file_entry(path)
        if not path or await self._is_directory(path):
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
            info = await self._info(path)
            entries = {path: info} if info["type"] == "file" else {}
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

    # -- changes -----------------------------------------------------------------------------------

    @with_os_errors
    async def _rm_file(self, path: str, **_: Any) -> None:
        path = self._strip_protocol(path)
        try:
            await self._delete(path)
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
        if not files and not [root for root in found if await self._isdir(root)]:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        await self._many([self._rm_file(name) for name in sorted(files)], FileNotFoundError)

    @with_os_errors
    async def _rmdir(self, path: str) -> None:
        """Do nothing for a directory without files: an empty directory is an absent directory."""
        path = self._strip_protocol(path)
        if await self._is_directory(path):
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
    ) -> ClusterFile:
        return self.file_type(
            self,
            self._connection,
            path,
            mode,
            block_size=block_size,
            autocommit=autocommit,
            cache_options=cache_options,
            **options,
        )
