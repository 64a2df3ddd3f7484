"""Writing an atomic file from its beginning to its end while its content comes into being.

``File.write`` wants the whole content at hand. Here it is pushed in pieces of any size: blocks leave as they fill, few at a time, and the one
coverable write that publishes the list of all of them comes last (ares/fragment/replace.py). Until then nobody sees anything of it.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ares.fragment.block import BlockIds, Genesis, genesis_name
from ares.fragment.divide import MIB, Chunk, Divider, Sizes, digest
from ares.fragment.read import FileState, read_genesis
from ares.fragment.replace import Put
from ares.fragment.report import WriteReport
from ares.fragment.shared_memory import Blocks
from ares.model.errors import BadInput, ObjectNotFound, Uncertain
from ares.model.tag import TAG_ZERO
from ares.operation.effects import Operation

if TYPE_CHECKING:
    from ares.client.file import File
    from ares.client.store import ObjectStore

PIECE_BYTES = 4 * MIB
"""What is cut into chunks at a time, in a thread."""

ABANDON_S = 5.0
"""How long a standstill may last while blocks that nobody will use are deleted; collection finds them anyway."""

Result = TypeVar("Result")


class FileWriter:
    """One put of a whole file, in pieces; see :meth:`ares.client.file.File.writer`.

    Nothing is visible before :meth:`close`, which publishes everything at once. As ``async with``, an exception aborts instead. An operation that
    fails gives up the whole: nothing is published then (only an :class:`Uncertain` error of ``close`` may leave that open, and says so). One call
    at a time. Holds a few dozen MiB, however long the file.

    ``report``: what :meth:`close` returned.
    """

    def __init__(self, file: "File", locate: "Callable[[bool], Awaitable[ObjectStore]]", sizes: Sizes, mine: bool, timeout_s: float | None) -> None:
        self.report: WriteReport | None = None
        self._file = file
        self._locate = locate
        self._sizes = sizes
        self._mine = mine
        self._timeout_s = timeout_s
        self._put: Put | None = None
        self._divider = Divider(sizes)
        self._position = self._offset = 0
        self._under_way: set[asyncio.Task[None]] = set()
        self._ended = False

    async def __aenter__(self) -> "FileWriter":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            await self.close()
        else:
            await self.abort()

    async def begin(self) -> FileState:
        """Look at the file that is to be replaced, and return it (at tag t0: there is none); the first ``write`` does it otherwise."""
        self._check()
        return (await self._begun()).base

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Add ``data`` to the end. Waits while many blocks are on their way. Raises what :class:`ares.client.store.ObjectStore` raises."""
        self._check()
        if not isinstance(data, bytes | bytearray | memoryview):
            raise BadInput(f"a file's content is bytes, not {type(data).__name__}; nothing of it was taken")
        view = memoryview(data).cast("B")
        try:
            put = await self._begun()
            for start in range(0, len(view), PIECE_BYTES):
                piece = bytes(view[start : start + PIECE_BYTES])
                await self._send(put, await asyncio.to_thread(self._cut, piece))
        except BaseException as error:
            await self._give_up(error)
            raise

    async def close(self) -> WriteReport:
        """Publish the file. A conflict in the report means that it was not: somebody replaced, made or deleted the file meanwhile.

        With ``mine`` that only happens when the file was deleted, or replaced over a quarter of an hour, with blocks of this put: write it again.
        """
        if self.report is not None:
            return self.report
        self._check()
        try:
            put = await self._begun()
            await self._send(put, await asyncio.to_thread(self._cut, None))
            await self._room_for(put, 0)
        except BaseException as error:
            await self._give_up(error)
            raise
        await self._publish(put)
        assert self.report is not None
        return self.report

    async def abort(self) -> None:
        """Publish nothing, and delete the blocks that were made; idempotent, and without effect after ``close``."""
        if self._ended:
            return
        self._ended = True
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        await self._abandon()

    def _check(self) -> None:
        if self._ended:
            raise BadInput(f"this writer of file {self._file.name!r} was closed, or has given up; begin with a new one")

    async def _begun(self) -> Put:
        if self._put is None:
            name, base, sizes = self._file.name, self._file.state, self._sizes
            self._store = await self._locate(True)
            self._put = await self._run("put", lambda blocks: _begin(blocks, name, base, sizes))
            self._divider = Divider(self._put.genesis.sizes)
        return self._put

    def _cut(self, piece: bytes | None) -> list[tuple[bytes, bytes]]:
        """The chunks that are complete with ``piece`` (None: that was all), and their digests."""
        chunks = self._divider.finish() if piece is None else self._divider.feed(piece)
        return [(chunk, digest(chunk)) for chunk in chunks]

    async def _send(self, put: Put, chunks: list[tuple[bytes, bytes]]) -> None:
        for data, found in chunks:
            await self._room_for(put, 1)
            chunk = Chunk(self._offset, len(data), found)
            self._under_way.add(asyncio.create_task(self._place(put, self._position, chunk, data)))
            self._position += 1
            self._offset += len(data)

    async def _room_for(self, put: Put, more: int) -> None:
        """Wait until so many blocks may leave (0: until all have arrived). Raises what one of them failed with."""
        while self._under_way and (not more or len(self._under_way) + more > put.pace.window()):
            done, self._under_way = await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
            for error in [task.exception() for task in done]:
                if error is not None:
                    raise error

    async def _place(self, put: Put, position: int, chunk: Chunk, data: bytes) -> None:
        await self._run("put", lambda _: put.place(position, chunk, lambda _: data))

    async def _publish(self, put: Put) -> None:
        """What fails here is over, too; the blocks go unless the list of them may have been published."""
        self._ended = True
        put.now_s = int(time.time())
        try:
            report, state = await self._run("put", lambda _: put.publish(self._mine), queue=True)
        except Uncertain as error:
            if not error.may_have_taken_effect:
                await self._abandon()
            raise
        if not report.conflicts:
            self._file.state = state
        self.report = report

    async def _give_up(self, error: BaseException) -> None:
        if isinstance(error, Uncertain):
            error.may_have_taken_effect = False
        await self.abort()

    async def _abandon(self) -> None:
        put = self._put
        if put is None:
            return
        try:
            await self._run("end of a put", lambda _: put.abandon(), timeout_s=ABANDON_S)
        except Uncertain:
            return  # whoever collects finds them

    async def _run(self, label: str, make: Callable[[Blocks], Operation[Result]], *, queue: bool = False, timeout_s: float | None = None) -> Result:
        key = genesis_name(self._file.name) if queue else None
        what = f"{label} of file {self._file.name!r}"
        return await self._store.run_on_blocks(make, what, key, timeout_s=timeout_s or self._timeout_s)


def _begin(blocks: Blocks, file: str, base: FileState | None, sizes: Sizes) -> Operation[Put]:
    """A put over ``base``, or over what is there now. Of a file that is not atomic nothing but the genesis block matters."""
    ids, now_s = BlockIds(secrets.randbits(64)), int(time.time())
    if base is None:
        try:
            genesis, tag = yield from read_genesis(blocks, file)
            base = FileState(msgspec.structs.replace(genesis, parts=()), tag, genesis.parts)
        except ObjectNotFound:
            base = FileState(Genesis(ids.life(file), True, sizes, None, ()), TAG_ZERO, ())
    return Put(blocks, file, base, ids, now_s)
