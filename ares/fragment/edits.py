"""One edit of an update under way: a block (or the genesis block) to write, and the run of new blocks that this write publishes."""

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct

from ares.fragment.block import Block, BlockId, Genesis, Part, block_name, encode_block, encode_genesis, genesis_name
from ares.fragment.divide import Chunk, digest
from ares.fragment.match import Edit
from ares.fragment.read import FileState
from ares.fragment.report import Conflict
from ares.model.identity import ObjectName
from ares.model.tag import TAG_ZERO, Tag

GENESIS = -1
"""The place of the genesis block before the first block."""


class Content(Struct, frozen=True):
    """What a file is to hold: its chunks, and how to get the bytes of one (at most a window of chunks is asked for at a time)."""

    chunks: Sequence[Chunk]
    load: Callable[[Chunk], bytes | memoryview]

    @property
    def length(self) -> int:
        return sum(chunk.length for chunk in self.chunks)


class Draft:
    """``version`` and ``following``: what the write is to cover, and what follows the block there. ``ids``: of the run. ``content``: the chunk
    that the block is to hold, or None when it keeps the data it has, ``kept`` (the genesis block has no data).

    ``written``: the block after the write, once it took place. ``conflict``: why it did not, or stands no more.
    """

    def __init__(self, edit: Edit, base: FileState, content: Content, ids: Sequence[BlockId], kept: Chunk | None) -> None:
        self.block = edit.block
        self.empties = edit.empty
        self.content = content.chunks[edit.chunk] if edit.chunk is not None else None
        self.new_chunks = content.chunks[edit.insert[0] : edit.insert[1]]
        self.ids = ids
        self.run: dict[int, Part] = {}
        self.kept_chunk = kept
        self.kept_data: bytes | None = None
        self.written: Part | None = None
        self.conflict: Conflict | None = None
        self.part = base.parts[edit.block] if edit.block != GENESIS else None
        self.version: Tag | None = base.tag if base.tag != TAG_ZERO else None
        self.following = base.genesis.first
        if self.part is not None:
            self.version, self.following = self.part.tag, self.part.next

    def name(self, file: str, genesis: Genesis) -> ObjectName:
        """The object to write."""
        return genesis_name(file) if self.part is None else block_name(genesis.file, self.part.id)

    @property
    def next(self) -> BlockId | None:
        """What is to follow the block after the write."""
        return self.ids[0] if self.ids else self.following

    def next_in_run(self, position: int) -> BlockId | None:
        """What follows the new block at ``position`` of the run."""
        return self.ids[position + 1] if position + 1 < len(self.ids) else self.following

    @property
    def done(self) -> bool:
        return self.written is not None and self.conflict is None

    def extent(self) -> tuple[int, int]:
        """Offset and length, in the writer's content, of what this edit brings."""
        own = [chunk for chunk in (self.content, *self.new_chunks) if chunk is not None]
        if not own:
            return (self.kept_chunk.offset + self.kept_chunk.length, 0) if self.kept_chunk is not None else (0, 0)
        return own[0].offset, sum(chunk.length for chunk in own)

    def refuse(self, why: str, tag: Tag = TAG_ZERO, theirs: Block | None = None) -> None:
        """There is a conflict, with ``theirs`` at version ``tag`` if there is such a block."""
        offset, length = self.extent()
        if self.part is None or theirs is None:
            self.conflict = Conflict(offset, length, why, None, self.part.id if self.part is not None else None)
        else:
            data = bytes(theirs.data)
            version = Part(self.part.id, tag, len(data), digest(data), theirs.next)
            self.conflict = Conflict(offset, length, why, data, self.part.id, version)

    def encoded(self, data: bytes | memoryview, now_s: int) -> bytes:
        """The value of the block."""
        return encode_block(Block(self.next, self.version or TAG_ZERO, now_s, data))

    def encoded_genesis(self, genesis: Genesis, hint: tuple[Part, ...], now_s: int) -> bytes:
        """The value of the genesis block that publishes the run."""
        first = self.next
        return encode_genesis(msgspec.structs.replace(genesis, first=first, parts=hint, modified_s=now_s, base=self.version or TAG_ZERO))

    def created(self) -> list[Part]:
        """The run, in order."""
        return [self.run[position] for position in range(len(self.ids))]
