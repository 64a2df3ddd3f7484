"""``ares-bucket://BUCKET/KEY`` for fsspec; docs/api-buckets.md has the guarantees of each call."""

import asyncio
import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fsspec.asyn import sync, sync_wrapper
from fsspec.callbacks import DEFAULT_CALLBACK

from ares.client.buckets.bucket_body import ByteSource
from ares.client.buckets.bucket_errors import BucketNotFound, PreconditionFailed
from ares.client.buckets.bucket_values import ObjectInfo
from ares.client.runner import unreported
from ares.filesystem.bucket_file import BucketFile, object_at
from ares.filesystem.cluster_connection import ClusterConnection
from ares.filesystem.file_entries import (
    below,
    canonical,
    directories,
    directory_entry,
    object_entry,
    within,
)
from ares.filesystem.os_errors import as_local_error, exists, with_os_errors
from ares.filesystem.tree_system import READ_RETRIES_MAX, TreeFileSystem
from ares.model.errors import BadInput, ObjectNotFound
from ares.platform.replacement import Replacement


class AresBucketFileSystem(TreeFileSystem):
    """Objects of the buckets of a cluster; the buckets are the directories of the root.

    Storage options: ``cluster``, the path of the cluster file (default: ``ARES_CLUSTER``);
    ``timeout_s``, the longest standstill (default: the cluster file's); and the options of fsspec.
    Errors and connections are those of :class:`AresFileSystem`.
    """

    protocol = "ares-bucket"
    file_type = BucketFile

    def __init__(
        self, cluster: str | Path | None = None, timeout_s: float | None = None, **options: Any
    ) -> None:
        super().__init__(ClusterConnection(cluster, None, False, timeout_s), **options)

    # -- information -------------------------------------------------------------------------------

    async def _file_entry(self, path: str) -> dict[str, Any]:
        bucket, key = await object_at(self._connection, path)
        return object_entry(path, await bucket.stat(key))

    async def _is_directory(self, path: str) -> bool:
        name, _, key = path.partition("/")
        bucket = await self._connection.bucket(name)
        if not key:
            await bucket.info()
            return True
        return bool([entry async for entry in bucket.list(below(key), limit=1)])

    @with_os_errors
    async def _found(
        self, path: str, depth: int | None, withdirs: bool, detail: bool, prefix: str = ""
    ) -> dict[str, Any]:
        """Return the directory's entries by name, in order; a page of a thousand is exact."""
        if not path:
            return await self._found_in_buckets(depth, withdirs, detail, prefix)
        objects: dict[str, Any] = {}
        name, _, key = path.partition("/")
        with suppress(BucketNotFound):
            bucket = await self._connection.bucket(name)
            delimiter = "/" if depth == 1 else ""
            async for entry in bucket.list(below(key) + prefix, delimiter=delimiter):
                found = f"{name}/{entry.key}"
                if canonical(found) == found.removesuffix("/"):
                    objects[found] = entry
        files = within([found for found in objects if not found.endswith("/")], path, depth)
        entries = {found: object_entry(found, objects[found]) for found in files}
        if withdirs:
            entries = {
                found: directory_entry(found) for found in directories(objects, path, depth)
            } | entries
        return dict(sorted(entries.items()))

    async def _found_in_buckets(
        self, depth: int | None, withdirs: bool, detail: bool, prefix: str
    ) -> dict[str, Any]:
        manager = await self._connection.connected()
        names = [name for name in await manager.buckets() if name.startswith(prefix)]
        entries = {name: directory_entry(name) for name in names} if withdirs else {}
        if depth != 1:
            for name in names:
                entries |= await self._found(name, depth and depth - 1, withdirs, detail)
        return dict(sorted(entries.items()))

    # -- reading -----------------------------------------------------------------------------------

    @with_os_errors
    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        path = self._strip_protocol(path)
        bucket, key = await object_at(self._connection, path)
        if start is None and end is None:
            async with await bucket.get(key) as found:
                return await found.read()
        for _attempt in range(READ_RETRIES_MAX):
            info = await bucket.stat(key)
            first, stop, _step = slice(start, end).indices(info.size)
            with suppress(ObjectNotFound):  # replaced between the two calls
                async with await bucket.get(
                    key, version=info.version, start=first, length=max(stop - first, 0)
                ) as found:
                    return await found.read()
        raise OSError(errno.ESTALE, "the object is replaced all the time: read it whole", path)

    @with_os_errors
    async def _get_file(
        self, rpath: str, lpath: str, callback: Any = DEFAULT_CALLBACK, **_: Any
    ) -> None:
        path = self._strip_protocol(rpath)
        try:
            bucket, key = await object_at(self._connection, path)
            found = await bucket.get(key)
        except ObjectNotFound:
            if not await self._isdir(path):
                raise
            os.makedirs(lpath, exist_ok=True)
            return
        async with found:
            callback.set_size(found.length)
            new = Replacement(Path(await asyncio.to_thread(os.path.realpath, lpath)))
            try:
                async for chunk in found:
                    await asyncio.to_thread(new.write, chunk)
                    callback.relative_update(len(chunk))
                new.finish()
            finally:
                new.discard()

    # -- writing -----------------------------------------------------------------------------------

    @with_os_errors
    async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        await self._put_whole(path, value, mode, unreported)

    @with_os_errors
    async def _put_file(
        self,
        lpath: str,
        rpath: str,
        mode: str = "overwrite",
        callback: Any = DEFAULT_CALLBACK,
        **_: Any,
    ) -> None:
        if await asyncio.to_thread(os.path.isdir, lpath):
            return
        callback.set_size(await asyncio.to_thread(os.path.getsize, lpath))
        try:
            stored = await self._put_whole(rpath, Path(lpath), mode, callback.absolute_update)
        except BadInput as error:
            raise as_local_error(error) from error
        callback.absolute_update(stored.size)

    async def _put_whole(
        self, path: str, data: ByteSource, mode: str, progress: Callable[[int], None]
    ) -> ObjectInfo:
        path = self._strip_protocol(path)
        bucket, key = await object_at(self._connection, path)
        try:
            return await bucket.put(key, data, if_absent=mode == "create", progress=progress)
        except PreconditionFailed as failed:
            raise exists(path) from failed

    @with_os_errors
    async def _cp_file(self, path1: str, path2: str, **_: Any) -> None:
        """Copy an object without its bytes; a directory has no content to copy."""
        source = self._strip_protocol(path1)
        try:
            bucket, key = await object_at(self._connection, source)
            to, target = await object_at(self._connection, self._strip_protocol(path2))
            await bucket.copy(key, target, bucket=to)
        except ObjectNotFound:
            if not await self._isdir(source):
                raise

    def mv(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        **options: Any,
    ) -> None:
        """Move an object as one change; copy and delete a directory, a pattern or a list."""
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if recursive or isinstance(source, list) or not self.isfile(source):
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **options)
            return
        if str(path2).endswith("/") or self.isdir(target):
            target = f"{target}/{source.rpartition('/')[2]}"
        sync(self.loop, self._mv_file, source, target)

    @with_os_errors
    async def _mv_file(self, path1: str, path2: str) -> None:
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if source != target:
            bucket, key = await object_at(self._connection, source)
            to, name = await object_at(self._connection, target)
            await bucket.move(key, name, bucket=to)

    async def _delete(self, path: str) -> None:
        bucket, key = await object_at(self._connection, path)
        await bucket.delete(key)

    # -- buckets -----------------------------------------------------------------------------------

    @with_os_errors
    async def _mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Make a bucket; a directory in a bucket exists through its objects."""
        path = self._strip_protocol(path)
        if path and "/" not in path:
            manager = await self._connection.connected()
            await manager.create_bucket(path)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        try:
            await self._mkdir(path)
        except FileExistsError:
            if not exist_ok:
                raise

    @with_os_errors
    async def _rmdir(self, path: str) -> None:
        """Delete an empty bucket, and do nothing for a directory without objects."""
        path = self._strip_protocol(path)
        if "/" not in path:
            manager = await self._connection.connected()
            await manager.delete_bucket(path)
        else:
            await super()._rmdir(path)

    rmdir = sync_wrapper(_rmdir)
