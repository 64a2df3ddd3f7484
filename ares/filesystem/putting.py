"""Putting files whole, from wherever their content comes."""

import asyncio
import errno
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from ares.client.file import File, FileWriter
from ares.filesystem.cluster_connection import Connection
from ares.fragment.divide import MIB
from ares.fragment.read import FileState
from ares.fragment.report import WriteReport
from ares.model.errors import ObjectNotFound
from ares.model.tag import TAG_ZERO

LOCAL_BYTES = 4 * MIB
COPY_BYTES = 16 * MIB
"""What is read at a time: from a local file; from the cluster, where many blocks come side by side."""

RETRIES_MAX = 20

Pieces = AsyncGenerator[bytes, None]


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


async def replace(connection: Connection, path: str, pieces: Callable[[], Pieces], exclusive: bool) -> None:
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


async def replacing(connection: Connection, path: str) -> FileWriter:
    """Over whatever is there."""
    return (await connection.file(path)).writer(mine=True)


async def creating(connection: Connection, path: str) -> FileWriter:
    """Over nothing. Raises :class:`FileExistsError`."""
    writer = (await connection.file(path)).writer()
    if (await writer.begin()).tag != TAG_ZERO:
        raise exists(path)
    return writer


async def appending(connection: Connection, path: str) -> tuple[FileWriter, int]:
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
