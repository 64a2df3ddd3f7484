"""fm-read: a fragmented file from its first block to its last.

See CoBFS, "read"; ARES II section 3, Extension 2. The pointers in the blocks are the truth. But
following them one by one would take a round for each block. All *expected* blocks, from the
reader's memory or from the hint in the genesis block, are therefore asked for at once, and the
chain is verified afterwards by the pointers that arrived; unexpected blocks are fetched as the
chain leads to them. An unchanged remembered block costs a comparison of tags and moves no data.

An atomic file has no chain: its genesis block lists every block, its blocks never change, and a
reader that finds a block gone has been overtaken by another put and begins again. Such a read is a
snapshot. The read of a file with mutable blocks is no snapshot; it is consistent block by block
(fragmented coverability).
"""

from collections.abc import Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

from ares.engine.effects import Now, Operation, Report, Together
from ares.fragment.block import (
    BlockId,
    Genesis,
    KnownBlock,
    block_name,
    decode_block,
    decode_genesis,
    genesis_name,
)
from ares.fragment.divide import digest
from ares.fragment.shared_memory import Blocks, Pace
from ares.model.errors import BadBlock, FileChanged, ObjectNotFound
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import WITHHELD

RESTARTS_MAX = 100
"""Replacements of an atomic file under a reader; at each of them some client's put made progress.
"""


class FileState(Struct, frozen=True, array_like=True):
    """A file as last seen: its genesis block at version ``tag``, and every block in order."""

    genesis: Genesis
    tag: Tag
    parts: tuple[KnownBlock, ...]

    @property
    def length(self) -> int:
        """Return the bytes of the file."""
        return sum(part.length for part in self.parts)


def builds_on(base: Tag, version: Tag) -> bool:
    """Return whether a version written over ``base`` followed ``version``, as far as known.

    Of two versions written over the same version the later stands, and the earlier is not in its
    successors.
    """
    return base == version or base.number > version.number


class FileProgress(Struct, frozen=True):
    """The progress of a file's operation.

    ``done`` of ``total`` blocks (the expected number); ``moved_bytes`` came or went over the
    network, ``done_bytes`` includes data known before.
    """

    stage: str
    done: int
    total: int
    done_bytes: int
    moved_bytes: int


class Sink:
    """The receiver of a file; this one serves a reader interested in the blocks' versions only.

    ``begin`` is called before the first block and whenever all blocks have to be taken again;
    ``take`` follows for every block, in order. ``wanted``: whether the data of a block is wanted
    even if the block is unchanged; otherwise ``take`` gets None for the data.
    """

    def begin(self, expected_bytes: int) -> None:
        return

    def wanted(self, part: KnownBlock) -> bool:
        return False

    def take(self, part: KnownBlock, data: memoryview | None) -> None:
        return


def read_genesis(
    blocks: Blocks, file: str, known: FileState | None = None
) -> Operation[tuple[Genesis, Tag]]:
    """Return the genesis block and its version.

    Raises :class:`ObjectNotFound` for a file that was never written, or was deleted.
    """
    name = genesis_name(file)
    held = known.tag if known is not None and known.tag != TAG_ZERO else None
    found = yield from blocks.read(name, held)
    if known is not None and found.value is WITHHELD:
        return msgspec.structs.replace(known.genesis, parts=known.parts), known.tag
    if not isinstance(found.value, bytes):
        raise ObjectNotFound(file, blocks.domain)
    return decode_genesis(found.value, name), found.tag


def fm_read(blocks: Blocks, file: str, known: FileState | None, sink: Sink) -> Operation[FileState]:
    """Give every block to ``sink``; return the state of the file as read.

    ``known``: the file as remembered by the reader, if at all.
    """
    for _ in range(RESTARTS_MAX):
        genesis, tag = yield from read_genesis(blocks, file, known)
        expected = _expected(genesis, tag, known)
        sink.begin(sum(part.length for part in expected))
        chain = BlockList(blocks, genesis, expected, sink)
        try:
            yield from chain.follow()
        except BlockGone as gone:
            _, now = yield from read_genesis(blocks, file)
            if now == tag:
                raise BadBlock(
                    gone.name,
                    "the block is gone, although the file still lists it; delete the file and put "
                    "it again",
                ) from gone
            known = None
        else:
            return FileState(genesis, tag, tuple(chain.parts))
    raise BadBlock(
        genesis_name(file),
        f"the file was replaced {RESTARTS_MAX} times while it was being read; nothing was lost, "
        "try again",
    )


def _expected(genesis: Genesis, tag: Tag, known: FileState | None) -> Sequence[KnownBlock]:
    """Return the blocks to ask for at once.

    These are the hint or the manifest, with newer blocks from the reader's memory.
    """
    if genesis.atomic or known is None or known.genesis.file != genesis.file:
        return genesis.parts
    if known.tag == tag:
        return known.parts
    remembered = {part.id: part for part in known.parts}
    hinted = {part.id for part in genesis.parts}
    merged = [
        max(part, remembered.get(part.id, part), key=lambda version: version.tag)
        for part in genesis.parts
    ]
    return merged if all(part.id in hinted for part in known.parts) else known.parts


class BlockGone(Exception):
    """Internal: a block listed by the file is absent (now)."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class ReadBlock(Struct, frozen=True):
    """A block as read.

    ``data`` is None for an unchanged block whose data was not wanted.
    """

    part: KnownBlock
    data: memoryview | None


def see_block(
    blocks: Blocks, genesis: Genesis, id: BlockId, known: KnownBlock | None, wanted: bool
) -> Operation[ReadBlock]:
    """Read a block.

    Raises :class:`BlockGone` if the block is absent, or (atomic files) differs from the manifest.
    """
    name = block_name(genesis.file, id)
    found = yield from blocks.read(name, None if known is None or wanted else known.tag)
    if known is not None and found.value is WITHHELD:
        return ReadBlock(known, None)
    if not isinstance(found.value, bytes) or (
        genesis.atomic and known is not None and known.tag != found.tag
    ):
        raise BlockGone(name)
    block = decode_block(found.value, name)
    data = memoryview(block.data)
    if known is not None and known.tag == found.tag:
        return ReadBlock(known, data)
    return ReadBlock(KnownBlock(id, found.tag, len(data), digest(data), block.next), data)


class BlockList:
    """A walk along a file.

    ``parts``: the blocks seen, in order; all blocks after ``follow``.
    """

    def __init__(
        self, blocks: Blocks, genesis: Genesis, expected: Sequence[KnownBlock], sink: Sink
    ) -> None:
        self.parts: list[KnownBlock] = []
        self._blocks = blocks
        self._genesis = genesis
        self._expected = expected
        self._sink = sink
        lengths = [part.length for part in expected if sink.wanted(part)]
        self._pace = Pace(sum(lengths) // max(1, len(lengths)), genesis.sizes.max)
        self._awaited = {part.id for part in expected}
        self._arrived: dict[BlockId, ReadBlock] = {}
        self._listed: dict[int, ReadBlock] = {}
        self._visited: set[BlockId] = set()
        self._cursor = genesis.first
        self._leading = False
        self._done_bytes = self._moved_bytes = 0

    def follow(self) -> Operation[None]:
        """Walk to the end."""
        if self._genesis.atomic:
            yield Together(
                (self._read_listed(*entry) for entry in enumerate(self._expected)),
                self._pace.window,
                ordered=True,
            )
        else:
            yield Together(
                (self._read_linked(part) for part in self._expected),
                self._pace.window,
                ordered=True,
            )
            self._awaited.clear()
            yield from self._take_along_chain()

    def _read_listed(self, position: int, part: KnownBlock) -> Operation[None]:
        """Read a block of a manifest, which may name a block in several positions.

        The block never changes: an unwanted block need not be read.
        """
        if self._sink.wanted(part):
            self._listed[position] = yield from self._see(part.id, part)
        else:
            self._listed[position] = ReadBlock(part, None)
        while (seen := self._listed.pop(len(self.parts), None)) is not None:
            yield self._take(seen)

    def _read_linked(self, part: KnownBlock) -> Operation[None]:
        with suppress(BlockGone):  # only expected: the walk finds out whether its absence matters
            self._arrived[part.id] = yield from self._see(part.id, part)
        self._awaited.discard(part.id)
        yield from self._take_along_chain()

    def _see(self, id: BlockId, known: KnownBlock | None) -> Operation[ReadBlock]:
        started = yield Now()
        seen = yield from see_block(
            self._blocks, self._genesis, id, known, known is not None and self._sink.wanted(known)
        )
        ended = yield Now()
        self._pace.done(ended - started, 0 if seen.data is None else len(seen.data))
        return seen

    def _take_along_chain(self) -> Operation[None]:
        """Pass on the arrived blocks, as far as the pointers lead; a single walker at a time."""
        if self._leading:
            return
        self._leading = True
        while self._cursor is not None and (
            self._cursor in self._arrived or self._cursor not in self._awaited
        ):
            id = self._cursor
            if id in self._visited:
                raise BadBlock(
                    block_name(self._genesis.file, id),
                    "the chain of blocks leads back to it; delete the file and put it again",
                )
            seen = self._arrived.pop(id, None)
            if seen is None:
                seen = yield from self._see(id, None)
            self._visited.add(id)
            self._cursor = seen.part.next
            yield self._take(seen)
        self._leading = False

    def _take(self, seen: ReadBlock) -> Report:
        self.parts.append(seen.part)
        self._sink.take(seen.part, seen.data)
        self._done_bytes += seen.part.length
        self._moved_bytes += 0 if seen.data is None else len(seen.data)
        total = max(len(self._expected), len(self.parts))
        return Report(
            FileProgress("read", len(self.parts), total, self._done_bytes, self._moved_bytes)
        )


def fm_read_range(
    blocks: Blocks, file: str, state: FileState, start: int, stop: int
) -> Operation[bytes]:
    """Return bytes ``start`` to ``stop`` (exclusive) of the file at ``state``; fewer at its end.

    Raises :class:`FileChanged` if a needed block was changed or deleted since: this content does
    not exist any more.
    """
    pieces: dict[int, memoryview] = {}
    pace = Pace(state.genesis.sizes.avg)

    def fetch(position: int, part: KnownBlock, offset: int) -> Operation[None]:
        try:
            seen = yield from see_block(blocks, state.genesis, part.id, part, True)
        except BlockGone as gone:
            raise FileChanged(file) from gone
        if seen.data is None or seen.part.tag != part.tag:
            raise FileChanged(file)
        pieces[position] = seen.data[max(start - offset, 0) : stop - offset]
        pace.done(0.0, part.length)

    fetches, offset = [], 0
    for position, part in enumerate(state.parts):
        if part.length and offset < stop and offset + part.length > start:
            fetches.append(fetch(position, part, offset))
        offset += part.length
    yield Together(iter(fetches), pace.window)
    return b"".join(pieces[position] for position in sorted(pieces))
