"""Fragmented files as users hold them (CoARESF).

A user chooses between two guarantees when a file is first written. By default a file is *shared*:
many clients may write at once. Writes of different blocks all prevail; of two writes that change
the same block one prevails, and the other writer is told. Each block is linearizable, and a read
during writes is not a snapshot. An *atomic* file is replaced as a whole: a reader sees one put or
another, never half of a put, and of two puts over the same version one writer is told.
"""

import asyncio
import os
import secrets
import stat
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import SupportsIndex, TypeVar

import msgspec
from msgspec import Struct

from ares.client.chunking import CUTS
from ares.client.domain import ObjectDomain
from ares.client.local_copy import (
    AssemblySink,
    LocalCopy,
    Replacing,
    content_of_bytes,
    content_of_file,
)
from ares.engine.effects import Operation
from ares.engine.jobs import OperationLabel
from ares.engine.room import OBJECT_OPERATION_BYTES, UNKNOWN_REPLY_BYTES
from ares.fragment.block import BlockIds, Genesis, genesis_name, new_genesis
from ares.fragment.collect import COLLECT_GRACE_S, fm_collect, fm_remove
from ares.fragment.divide import Chunk, Content, Divider, Sizes, checked_chunking, digest
from ares.fragment.read import FileProgress, FileState, Sink, fm_read, fm_read_range, read_genesis
from ares.fragment.replace import AtomicPut, fm_put
from ares.fragment.report import Conflict, WriteReport
from ares.fragment.shared_memory import WINDOW_BYTES_MAX, Blocks, FileTarget
from ares.fragment.update import fm_update
from ares.model.configuration import Configuration
from ares.model.errors import BadInput, ObjectNotFound, Uncertain
from ares.model.numbers import SECONDS_MAX, is_whole, shown_number
from ares.model.tag import TAG_ZERO, Tag
from ares.model.units import MIB
from ares.reconfig.mover import Progress
from ares.reconfig.reconfigure import ReconfigurationResult

Result = TypeVar("Result")
Data = bytes | bytearray | memoryview | str | os.PathLike[str]
OnProgress = Callable[[FileProgress], None]

WHOLE_RETRIES_MAX = 20

FILE_PIECE_BYTES = 4 * MIB
"""Bytes cut into chunks at a time, in a thread, by a writer."""

ABANDON_S = 5.0
"""Longest standstill while unused blocks are deleted; collection finds the remaining blocks."""


class FileStat(Struct, frozen=True):
    """Size, kind and version of a file. ``blocks``: the number of blocks with data.

    ``chunking``: the way in which the file is cut, "fastcdc" or "rabin". ``modified_s``: seconds
    since the epoch, by the clock of the last writer of the genesis block.
    """

    name: str
    domain: str
    size_bytes: int
    blocks: int
    atomic: bool
    chunking: str
    modified_s: int
    version: Tag


class File:
    """A file; use as ``async with store.file(name) as f``. The first operation asks the cluster.

    ``state`` is the file as this object last read or wrote it, the base of the next write. A change
    of another client since then counts as a conflict if this object changes the same part.
    ``timeout_s`` bounds a standstill of an operation, not the whole operation. Operations raise
    :class:`ObjectNotFound` for an absent file, and the errors of
    :class:`ares.client.store.ObjectStore`.
    """

    def __init__(
        self,
        name: str,
        locate: Callable[[bool], Awaitable[ObjectDomain]],
        atomic: bool,
        sizes: Sizes,
        chunking: str,
    ) -> None:
        """Make a file object. ``locate(make)`` returns the domain, and creates it if ``make``."""
        genesis_name(name)
        if not isinstance(atomic, bool) or not isinstance(sizes, Sizes):
            raise BadInput(
                f"a file is atomic or not (bool), with blocks of Sizes; not {atomic!r}, {sizes!r}"
            )
        self.name = name
        self.state: FileState | None = None
        self._locate = locate
        self._atomic = atomic
        self._sizes = sizes
        self._chunking = checked_chunking(chunking)
        self._ids = BlockIds(secrets.randbits(64))
        self._assembled: AssemblySink | None = None

    async def __aenter__(self) -> "File":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._assembled = None

    async def read(
        self, *, progress: OnProgress | None = None, timeout_s: float | None = None
    ) -> bytes:
        """Return the whole file.

        Reading an unchanged file again moves no data: the content stays in memory as long as this
        object is open.
        """
        assembled = AssemblySink(self._assembled)
        state = await self._load(assembled, "read", progress, timeout_s)
        self.state, self._assembled = state, assembled
        return assembled.finish()

    async def read_into(
        self,
        path: str | os.PathLike[str],
        *,
        replacing: Replacing | None = None,
        progress: OnProgress | None = None,
        timeout_s: float | None = None,
    ) -> bool:
        """Bring the local file at ``path`` up to date, wholly or not at all.

        Returns whether the file changed. Only differing parts move. ``replacing`` is called with
        the descriptor of the present file before it is replaced; an error of ``replacing`` ends the
        call, and the local file stays.
        """
        if not isinstance(path, str | os.PathLike):
            raise BadInput(f"a local file is named by its path, not by {type(path).__name__}")
        genesis, _ = await self._run(
            "stat", lambda blocks: read_genesis(blocks, self.name, self.state), timeout_s=timeout_s
        )
        copy = LocalCopy(Path(path), genesis.sizes, replacing, CUTS[genesis.chunking])
        try:
            await asyncio.to_thread(copy.open)
            state = await self._load(copy, "read", progress, timeout_s)
            changed = copy.finish()
            self.state = state
            return changed
        finally:
            copy.close()

    async def write(
        self,
        data: Data,
        *,
        mine: bool = False,
        progress: OnProgress | None = None,
        timeout_s: float | None = None,
    ) -> WriteReport:
        """Make the file hold ``data``: bytes, or the path of a local file.

        Only differences from :attr:`state` move. The report names the conflicts: parts of ``data``
        left out because another client changed them since. With ``mine`` these parts overwrite the
        other client's.
        """
        for _ in range(WHOLE_RETRIES_MAX):
            base = self.state or await self._base(timeout_s)
            with _opened(data) as source:
                content = await asyncio.to_thread(source, base.genesis)
                make = partial(self._write, base, content, mine)
                moving = sum(chunk.length for chunk in content.chunks)
                report, state = await self._run("put", make, True, progress, timeout_s, moving)
            self.state = state if state.tag != TAG_ZERO else None
            if not (mine and any(conflict.whole_file for conflict in report.conflicts)):
                break
            self.state = None
        return report

    def writer(self, *, mine: bool = False, timeout_s: float | None = None) -> "FileWriter":
        """Return a writer for content that is produced while it is written.

        Use as ``async with file.writer() as w: await w.write(piece)``. The file is replaced as a
        whole when the writer closes, and is atomic from then on, whatever it was before. The put
        goes over :attr:`state`, or else over the version found at the first ``write``. If another
        client put the file since, the report has a conflict and the file stays, unless ``mine``.
        """
        return FileWriter(self, mine, timeout_s)

    def acknowledge(self, conflicts: Iterable[Conflict]) -> None:
        """Count the versions of ``conflicts`` as seen.

        The next write goes over exactly these versions. Newer versions are a conflict again.
        """
        seen = {
            conflict.block: conflict.version
            for conflict in conflicts
            if conflict.version is not None
        }
        if self.state is not None:
            self.state = msgspec.structs.replace(
                self.state, parts=tuple(seen.get(part.id, part) for part in self.state.parts)
            )

    async def stat(self, *, timeout_s: float | None = None) -> FileStat:
        """Return size, version and kind, without reading the content.

        Blocks changed by other clients since the last read are looked at. :attr:`state` stays: a
        program which asks for the size of a file has not seen the changes of other clients.
        """
        state = await self._load(Sink(), "stat", None, timeout_s)
        used, genesis = sum(1 for part in state.parts if part.length), state.genesis
        store = await self._locate(False)
        return FileStat(
            self.name,
            store.name,
            state.length,
            used,
            genesis.atomic,
            genesis.chunking,
            genesis.modified_s,
            state.tag,
        )

    async def snapshot(self, *, timeout_s: float | None = None) -> FileState:
        """Return the present file without content, for :meth:`read_range`; set :attr:`state`."""
        self.state = await self._load(Sink(), "stat", None, timeout_s)
        return self.state

    async def read_range(
        self, state: FileState, start: int, stop: int, *, timeout_s: float | None = None
    ) -> bytes:
        """Return bytes ``start`` to ``stop`` (exclusive) of the file as of ``state``.

        Raises :class:`ares.FileChanged` if these bytes are gone.
        """
        if (
            not isinstance(state, FileState)
            or not isinstance(start, SupportsIndex)
            or not isinstance(stop, SupportsIndex)
        ):
            raise BadInput(
                "a range is of a FileState, as snapshot gives it, from one whole number to another"
            )
        return await self._run(
            "read",
            lambda blocks: fm_read_range(blocks, self.name, state, start, stop),
            timeout_s=timeout_s,
            moving=max(0, min(stop.__index__(), state.length) - max(start.__index__(), 0)),
        )

    async def delete(self, *, timeout_s: float | None = None) -> None:
        """Delete the file and all blocks of the file. Raises :class:`ObjectNotFound`."""
        await self._run(
            "deletion",
            lambda blocks: fm_remove(blocks, self.name, self._ids, int(time.time())),
            queue=True,
            timeout_s=timeout_s,
        )
        self.state = self._assembled = None

    async def collect(
        self, grace_s: int = COLLECT_GRACE_S, *, timeout_s: float | None = None
    ) -> int:
        """Delete blocks older than ``grace_s`` that no file of the domain names.

        Returns the number of deleted blocks.
        """
        if not is_whole(grace_s) or not 0 <= grace_s <= SECONDS_MAX:
            raise BadInput(
                f"blocks are kept for a whole number of seconds from 0 to {SECONDS_MAX:g}, "
                f"not {shown_number(grace_s)}; nothing was deleted"
            )
        return await self._run(
            "collection",
            lambda blocks: fm_collect(blocks, int(time.time()), grace_s),
            timeout_s=timeout_s,
        )

    async def reconfigure(
        self,
        configuration: Configuration,
        *,
        progress: Callable[[Progress], None] | None = None,
        timeout_s: float | None = None,
    ) -> ReconfigurationResult:
        """Move the domain of the file (fm-reconfig), with one decision and one pass.

        Readers and writers continue during the move.
        """
        store = await self._locate(False)
        return await store.reconfigure(configuration, progress=progress, timeout_s=timeout_s)

    async def _load(
        self, sink: Sink, label: str, progress: OnProgress | None, timeout_s: float | None
    ) -> FileState:
        known = self.state
        return await self._run(
            label,
            lambda blocks: fm_read(blocks, self.name, known, sink),
            progress=progress,
            timeout_s=timeout_s,
            moving=UNKNOWN_REPLY_BYTES,
        )

    async def _base(self, timeout_s: float | None) -> FileState:
        """Return the present file, or a file to be made."""
        try:
            await self._locate(True)
            return await self._run(
                "stat", lambda blocks: fm_read(blocks, self.name, None, Sink()), timeout_s=timeout_s
            )
        except ObjectNotFound:
            return self._new(self._atomic)

    def _new(self, atomic: bool) -> FileState:
        """Return the state of a file to be made."""
        life = self._ids.life(self.name)
        return FileState(new_genesis(life, atomic, self._sizes, self._chunking), TAG_ZERO, ())

    def _put(self, blocks: Blocks) -> Operation[AtomicPut]:
        """Return a put over :attr:`state`, or over the present file.

        Of a file that is not atomic only the genesis block matters.
        """
        base, target = self.state, self._target(blocks)
        if base is None:
            try:
                genesis, tag = yield from read_genesis(blocks, self.name)
                base = FileState(msgspec.structs.replace(genesis, parts=()), tag, genesis.parts)
            except ObjectNotFound:
                base = self._new(True)
        return AtomicPut(target, base)

    def _write(
        self, base: FileState, content: Content, mine: bool, blocks: Blocks
    ) -> Operation[tuple[WriteReport, FileState]]:
        write = fm_put if base.genesis.atomic else fm_update
        return write(self._target(blocks), base, content, mine=mine)

    def _target(self, blocks: Blocks) -> FileTarget:
        return FileTarget(blocks, self.name, self._ids, int(time.time()))

    async def _run(
        self,
        label: str,
        make: Callable[[Blocks], Operation[Result]],
        queue: bool = False,
        progress: OnProgress | None = None,
        timeout_s: float | None = None,
        moving: int = 0,
    ) -> Result:
        """Run an operation. With ``queue``, the writes of a file by one client run in turn.

        ``moving``: bytes of the blocks to be moved, of which WINDOW_BYTES_MAX move at a time.
        """
        store = await self._locate(False)
        key = genesis_name(self.name) if queue else None
        size = OBJECT_OPERATION_BYTES + min(moving, WINDOW_BYTES_MAX)
        return await store.run_on_blocks(
            make, OperationLabel(label, self.name, "file "), key, progress, timeout_s, size
        )


@contextmanager
def _opened(data: Data) -> Iterator[Callable[[Genesis], Content]]:
    """Yield the function which cuts ``data`` into the chunks of a file.

    Raises :class:`BadInput` for a file that cannot be read.
    """
    if isinstance(data, bytes | bytearray | memoryview):
        yield lambda genesis: content_of_bytes(data, genesis.sizes, CUTS[genesis.chunking])
        return
    if not isinstance(data, str | os.PathLike):
        raise BadInput(
            f"a file's content is bytes, or the path of a local file, not {type(data).__name__}"
        )
    try:
        file = os.open(data, os.O_RDONLY | os.O_NONBLOCK)  # a pipe is refused, not waited for
    except OSError as error:
        raise BadInput(
            f"{os.fspath(data)} cannot be read: {error.strerror}; nothing was sent"
        ) from error
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise BadInput(f"{os.fspath(data)} is not a regular file; nothing was sent")
        yield lambda genesis: content_of_file(
            file, os.fspath(data), genesis.sizes, CUTS[genesis.chunking]
        )
    finally:
        os.close(file)


class FileWriter:
    """A put of a whole file, in pieces of any size, while the content is produced.

    See :meth:`File.writer`. Blocks leave as they fill, few at a time. No change is visible before
    :meth:`close`: the coverable write which publishes the list of all blocks comes last
    (ares/fragment/replace.py). As ``async with``, an exception aborts the put instead. An operation
    that fails gives up the whole put: then nothing is published (only an :class:`Uncertain` error
    of ``close`` may leave this open, and says so). One call at a time. Holds a few dozen MiB for a
    file of any length.

    ``report``: the result of :meth:`close`.
    """

    def __init__(self, file: File, mine: bool, timeout_s: float | None) -> None:
        self.report: WriteReport | None = None
        self._file = file
        self._mine = mine
        self._timeout_s = timeout_s
        self._put: AtomicPut | None = None
        self._divider: Divider | None = None
        self._position = self._offset = 0
        self._under_way: set[asyncio.Task[None]] = set()
        self._ended = False

    async def __aenter__(self) -> "FileWriter":
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await (self.close() if error is None else self.abort())

    async def begin(self) -> FileState:
        """Look at the file to be replaced, and return its state (tag t0: the file is absent).

        Without this call the first ``write`` looks at the file.
        """
        self._check()
        return (await self._begun()).base

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Add ``data`` to the end. Wait while many blocks are on their way.

        Raises the errors of :class:`ares.client.store.ObjectStore`.
        """
        self._check()
        if not isinstance(data, bytes | bytearray | memoryview):
            raise BadInput(
                f"a file's content is bytes, not {type(data).__name__}; nothing of it was taken"
            )
        view = memoryview(data).cast("B")
        await self._send(
            bytes(view[start : start + FILE_PIECE_BYTES])
            for start in range(0, len(view), FILE_PIECE_BYTES)
        )

    async def close(self) -> WriteReport:
        """Publish the file and return the report.

        A conflict in the report means that the file was not published: another client replaced,
        made or deleted the file since the beginning. With ``mine`` a conflict occurs only if the
        file was deleted, or replaced over a quarter of an hour, with blocks of this put: write the
        file again.
        """
        if self.report is None:
            self._check()
            put = await self._send([None])
            self._ended = True
            put.now_s = int(time.time())
            try:
                report, state = await self._run(
                    "put", lambda _: put.publish(self._mine), queue=True
                )
            except Uncertain as error:
                if not error.may_have_taken_effect:
                    # otherwise the list of the blocks may have been published
                    await self._abandon()
                raise
            if not report.conflicts:
                self._file.state = state
            self.report = report
        return self.report

    async def abort(self) -> None:
        """Publish nothing, and delete the blocks that were made.

        Idempotent, and without effect after ``close``.
        """
        if self._ended:
            return
        self._ended = True
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        await self._abandon()

    def _check(self) -> None:
        if self._ended:
            raise BadInput(
                f"this writer of file {self._file.name!r} was closed, or has given up; begin "
                "with a new one"
            )

    async def _begun(self) -> AtomicPut:
        if self._put is None:
            await self._file._locate(True)
            self._put = await self._run("put", self._file._put)
            genesis = self._put.genesis
            self._divider = Divider(genesis.sizes, CUTS[genesis.chunking])
        return self._put

    async def _send(self, pieces: Iterable[bytes | None]) -> AtomicPut:
        """Send the blocks completed by these pieces. A failure gives up the whole put.

        None as a piece ends the content: the call waits until all blocks have arrived.
        """
        try:
            put = await self._begun()
            for piece in pieces:
                for data, found in await asyncio.to_thread(self._cut, piece):
                    await self._room_for(put, 1)
                    chunk = Chunk(self._offset, len(data), found)
                    self._under_way.add(
                        asyncio.create_task(self._place(put, self._position, chunk, data))
                    )
                    self._position += 1
                    self._offset += len(data)
                if piece is None:
                    await self._room_for(put, 0)
        except BaseException as error:
            if isinstance(error, Uncertain):
                error.may_have_taken_effect = False
            await self.abort()
            raise
        return put

    def _cut(self, piece: bytes | None) -> list[tuple[bytes, bytes]]:
        """Return the chunks completed by ``piece``, with digests."""
        assert self._divider is not None, "cutting comes after the beginning"
        chunks = self._divider.finish() if piece is None else self._divider.feed(piece)
        return [(chunk, digest(chunk)) for chunk in chunks]

    async def _room_for(self, put: AtomicPut, more: int) -> None:
        """Wait until ``more`` blocks may leave (0: until all blocks have arrived).

        Raises the error of a failed block.
        """
        while self._under_way and (not more or len(self._under_way) + more > put.pace.window()):
            done, self._under_way = await asyncio.wait(
                self._under_way, return_when=asyncio.FIRST_COMPLETED
            )
            for error in [task.exception() for task in done]:
                if error is not None:
                    raise error

    async def _place(self, put: AtomicPut, position: int, chunk: Chunk, data: bytes) -> None:
        await self._run(
            "put", lambda _: put.place(position, chunk, lambda _: data), moving=len(data)
        )

    async def _abandon(self) -> None:
        put = self._put
        if put is not None:
            with suppress(Uncertain):  # a collection finds the remaining blocks
                await self._run("end of a put", lambda _: put.abandon(), timeout_s=ABANDON_S)

    async def _run(
        self,
        label: str,
        make: Callable[[Blocks], Operation[Result]],
        *,
        queue: bool = False,
        timeout_s: float | None = None,
        moving: int = 0,
    ) -> Result:
        return await self._file._run(label, make, queue, None, timeout_s or self._timeout_s, moving)
