"""Fragmented files as users hold them (CoARESF).

Two guarantees, chosen when a file is first written. By default a file is *shared*: many may write it at once; writes of different blocks all
prevail, of two that change the same block one does and the other one is told; each block is linearizable, and a read of the file while others write
it is not a snapshot. An *atomic* file is replaced as a whole: a reader sees one put or another, never half of one, and of two puts over one version
one is told.
"""

import asyncio
import os
import secrets
import stat
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar

import msgspec
from msgspec import Struct

from ares.client.file_writer import FileWriter
from ares.client.local_copy import Assembled, LocalCopy, Replacing, content_of_bytes, content_of_file
from ares.fragment.block import BlockIds, Genesis, genesis_name
from ares.fragment.collect import GRACE_S, fm_collect, fm_remove
from ares.fragment.divide import Content, Sizes
from ares.fragment.read import FileProgress, FileState, Nowhere, fm_read, fm_read_range, read_genesis
from ares.fragment.replace import fm_put
from ares.fragment.report import WHOLE_FILE, Conflict, WriteReport
from ares.fragment.shared_memory import Blocks
from ares.fragment.update import fm_update
from ares.model.configuration import Configuration
from ares.model.errors import BadInput, ObjectNotFound
from ares.model.tag import TAG_ZERO, Tag
from ares.operation.effects import Operation
from ares.reconfig.mover import Progress
from ares.reconfig.reconfigure import Reconfigured

if TYPE_CHECKING:
    from ares.client.store import ObjectStore

Result = TypeVar("Result")
Data = bytes | bytearray | memoryview | str | os.PathLike[str]
OnProgress = Callable[[FileProgress], None]

WHOLE_RETRIES_MAX = 20


class FileStat(Struct, frozen=True):
    """``blocks`` counts those that hold data. ``modified_s``: seconds since the epoch by the clock of the client that last wrote the genesis
    block."""

    name: str
    domain: str
    size_bytes: int
    blocks: int
    atomic: bool
    modified_s: int
    version: Tag


class File:
    """One file; use as ``async with store.file(name) as f``. Nothing is asked of the cluster before it is needed.

    ``state`` is the file as this object last read or wrote it, the base of its next write: what others changed since counts as a conflict where this
    one changes it, too. ``timeout_s`` bounds a standstill of an operation, not the whole of it. Operations raise :class:`ObjectNotFound` for a file
    that is not there, and what :class:`ares.client.store.ObjectStore` raises.
    """

    def __init__(self, name: str, locate: "Callable[[bool], Awaitable[ObjectStore]]", atomic: bool, sizes: Sizes) -> None:
        genesis_name(name)
        if not isinstance(atomic, bool) or not isinstance(sizes, Sizes):
            raise BadInput(f"a file is atomic or not (bool), with blocks of Sizes; not {atomic!r}, {sizes!r}")
        self.name = name
        self.state: FileState | None = None
        self._locate = locate
        self._atomic = atomic
        self._sizes = sizes
        self._ids = BlockIds(secrets.randbits(64))
        self._assembled: Assembled | None = None

    async def __aenter__(self) -> "File":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._assembled = None

    async def read(self, *, progress: OnProgress | None = None, timeout_s: float | None = None) -> bytes:
        """The whole file. Reading an unchanged file again moves no data; that content stays in memory as long as this object is open."""
        assembled = Assembled(self._assembled)
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
        """Bring the file at ``path`` up to date, wholly or not at all; whether anything had to change. Only what differs from it moves.

        ``replacing`` is called with the descriptor of the file that is there, if it is to be replaced; what it raises ends this, and nothing changes.
        """
        if not isinstance(path, str | os.PathLike):
            raise BadInput(f"a local file is named by its path, not by {type(path).__name__}")
        genesis, _ = await self._run("read", lambda blocks: read_genesis(blocks, self.name, self.state), timeout_s=timeout_s)
        copy = LocalCopy(Path(path), genesis.sizes, replacing)
        try:
            await asyncio.to_thread(copy.open)
            state = await self._load(copy, "read", progress, timeout_s)
            changed = copy.finish()
            self.state = state
            return changed
        finally:
            copy.close()

    async def write(self, data: Data, *, mine: bool = False, progress: OnProgress | None = None, timeout_s: float | None = None) -> WriteReport:
        """Make the file hold ``data``: bytes, or the path of a local file. Only what differs from :attr:`state` moves.

        The report tells the conflicts: what of ``data`` did not get in because others changed it since; with ``mine`` it is written over theirs.
        """
        for _ in range(WHOLE_RETRIES_MAX):
            base = self.state or await self._base(timeout_s)
            with _opened(data) as source:
                content = await asyncio.to_thread(source, base.genesis.sizes)
                report, state = await self._write(base, content, mine, progress, timeout_s)
            self.state = state if state.tag != TAG_ZERO else None
            if not (mine and any(conflict.why in WHOLE_FILE for conflict in report.conflicts)):
                break
            self.state = None
        return report

    def writer(self, *, mine: bool = False, timeout_s: float | None = None) -> FileWriter:
        """For content that comes into being as it is written: ``async with file.writer() as w: await w.write(piece)``.

        The file is replaced as a whole when the writer closes, and is atomic then, whatever it was before. Over :attr:`state`, or else over what is
        there at the first ``write``; if somebody put it meanwhile, that is a conflict in the report and nothing changes, unless ``mine``.
        """
        return FileWriter(self, self._locate, self._sizes, mine, timeout_s)

    def acknowledge(self, conflicts: Iterable[Conflict]) -> None:
        """Take the versions of ``conflicts`` for seen: the next write goes over exactly those, and is a conflict again where there are newer ones."""
        seen = {conflict.block: conflict.version for conflict in conflicts if conflict.version is not None}
        if self.state is not None:
            self.state = msgspec.structs.replace(self.state, parts=tuple(seen.get(part.id, part) for part in self.state.parts))

    async def stat(self, *, timeout_s: float | None = None) -> FileStat:
        """Size, version and kind, without reading the content; blocks that others changed since the last read are looked at.

        Leaves :attr:`state` as it is: whoever asks how large a file is has not seen what others changed in it.
        """
        state = await self._load(Nowhere(), "stat", None, timeout_s)
        used, genesis = sum(1 for part in state.parts if part.length), state.genesis
        store = await self._locate(False)
        return FileStat(self.name, store.name, state.length, used, genesis.atomic, genesis.modified_s, state.tag)

    async def snapshot(self, *, timeout_s: float | None = None) -> FileState:
        """The file as it is now, without its content, for :meth:`read_range`; it becomes :attr:`state`."""
        self.state = await self._load(Nowhere(), "stat", None, timeout_s)
        return self.state

    async def read_range(self, state: FileState, start: int, stop: int, *, timeout_s: float | None = None) -> bytes:
        """Bytes ``start`` to ``stop`` (exclusive) of the file as it was at ``state``. Raises :class:`ares.FileChanged` if those are
        gone."""
        if not isinstance(state, FileState) or not isinstance(start, SupportsIndex) or not isinstance(stop, SupportsIndex):
            raise BadInput("a range is of a FileState, as snapshot gives it, from one whole number to another")
        return await self._run("read", lambda blocks: fm_read_range(blocks, self.name, state, start, stop), timeout_s=timeout_s)

    async def delete(self, *, timeout_s: float | None = None) -> None:
        """Delete the file and its blocks. Raises :class:`ObjectNotFound`."""
        await self._run("deletion", lambda blocks: fm_remove(blocks, self.name, self._ids, int(time.time())), queue=True, timeout_s=timeout_s)
        self.state = self._assembled = None

    async def collect(self, grace_s: int = GRACE_S, *, timeout_s: float | None = None) -> int:
        """Delete blocks of this file's domain that no file names and that are older than ``grace_s``; how many that were."""
        if not isinstance(grace_s, int) or grace_s < 0:
            raise BadInput(f"blocks are kept for a whole number of seconds, 0 or more, not {grace_s!r}; nothing was deleted")
        return await self._run("collection", lambda blocks: fm_collect(blocks, int(time.time()), grace_s), timeout_s=timeout_s)

    async def reconfigure(
        self, configuration: Configuration, *, progress: Callable[[Progress], None] | None = None, timeout_s: float | None = None
    ) -> Reconfigured:
        """fm-reconfig: move the domain of the file, with one decision and one pass over its blocks; readers and writers go on meanwhile."""
        store = await self._locate(False)
        return await store.reconfigure(configuration, progress=progress, timeout_s=timeout_s)

    async def _load(self, sink: Any, label: str, progress: OnProgress | None, timeout_s: float | None) -> FileState:
        known = self.state
        return await self._run(label, lambda blocks: fm_read(blocks, self.name, known, sink), progress=progress, timeout_s=timeout_s)

    async def _base(self, timeout_s: float | None) -> FileState:
        """The file as it is now, or one that is to be made."""
        try:
            await self._locate(True)
            return await self._run("stat", lambda blocks: fm_read(blocks, self.name, None, Nowhere()), timeout_s=timeout_s)
        except ObjectNotFound:
            return FileState(Genesis(self._ids.life(self.name), self._atomic, self._sizes, None, ()), TAG_ZERO, ())

    async def _write(
        self, base: FileState, content: Content, mine: bool, progress: OnProgress | None, timeout_s: float | None
    ) -> tuple[WriteReport, FileState]:
        now_s = int(time.time())
        if base.genesis.atomic:
            return await self._run(
                "put", lambda blocks: fm_put(blocks, self.name, base, content, self._ids, now_s, overwrite=mine), True, progress, timeout_s
            )
        return await self._run(
            "put", lambda blocks: fm_update(blocks, self.name, base, content, self._ids, now_s, mine=mine), True, progress, timeout_s
        )

    async def _run(
        self,
        label: str,
        make: Callable[[Blocks], Operation[Result]],
        queue: bool = False,
        progress: OnProgress | None = None,
        timeout_s: float | None = None,
    ) -> Result:
        """``queue``: writes of one file by one client run one after the other."""
        store = await self._locate(False)
        key = genesis_name(self.name) if queue else None
        return await store.run_on_blocks(make, f"{label} of file {self.name!r}", key, progress, timeout_s)


@contextmanager
def _opened(data: Data) -> Iterator[Callable[[Sizes], Content]]:
    """What cuts ``data`` into chunks. Raises :class:`BadInput` for a file that cannot be read."""
    if isinstance(data, bytes | bytearray | memoryview):
        yield lambda sizes: content_of_bytes(data, sizes)
        return
    if not isinstance(data, str | os.PathLike):
        raise BadInput(f"a file's content is bytes, or the path of a local file, not {type(data).__name__}")
    try:
        file = os.open(data, os.O_RDONLY | os.O_NONBLOCK)  # a pipe is refused, not waited for
    except OSError as error:
        raise BadInput(f"{os.fspath(data)} cannot be read: {error.strerror}; nothing was sent") from error
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise BadInput(f"{os.fspath(data)} is not a regular file; nothing was sent")
        yield lambda sizes: content_of_file(file, os.fspath(data), sizes)
    finally:
        os.close(file)
