"""Collecting blocks that no file names any more.

A writer that dies between making blocks and publishing them, or that is overtaken while it publishes, leaves blocks that nobody points to. They take
space and do no harm. The collector empties those that are older than a grace period: far longer than a put may take between making a block and
publishing it.

It must reckon with the write that was to publish them: a part of it may lie at a server that no quorum of the collector's met, and be found and
completed by a reader at any later time. Therefore the genesis block is fenced first (ares/fragment/fencing.py), also that of a file which was never
there. Blocks of a shared file are published by other blocks, too, which are not fenced: so a block is emptied and keeps its pointer, and such a chain
leads on.

Nothing is emptied because a listing says that a file is absent. Whoever makes a file has its genesis block mentioned before it is written; every one
that is mentioned is read. A block of which the collection knows no file was made by a put that died before it could publish anything.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from ares.fragment.block import (
    BLOCK_NAMES,
    GENESIS_NAMES,
    Block,
    BlockId,
    block_name,
    block_prefix,
    decode_block,
    encode_block,
    encode_genesis,
    genesis_name,
    lives_prefix,
    name_digest,
    parse_block_name,
)
from ares.fragment.divide import SIZE_MAX
from ares.fragment.fencing import advance_mark, is_announcement
from ares.fragment.pace import Pace
from ares.fragment.read import FileProgress, FileState, Nowhere, fm_read, read_genesis
from ares.fragment.shared_memory import Blocks, all_names
from ares.model.errors import BadBlock, DecodeFailed, ObjectNotFound
from ares.model.identity import ObjectName
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import TOMBSTONE, Value
from ares.operation.effects import Operation, Report, Together

GRACE_S = 24 * 3600
"""A put that takes longer than this to publish its blocks must not run beside a collection."""


class Orphan(Struct, frozen=True):
    """A block that no list names, without its data: its pointer, version and age, and what there is to do about it."""

    next: BlockId | None
    tag: Tag
    created_s: int
    holds_data: bool
    announces: bool


UNREADABLE = Orphan(None, TAG_ZERO, 1 << 64, False, False)
"""What this release cannot read may be young, and is let be."""


def fm_collect(blocks: Blocks, now_s: int, grace_s: int = GRACE_S) -> Operation[int]:
    """Empty the blocks of the domain that no file names and that are older than ``grace_s``; how many that were.

    ``now_s``: seconds since the epoch. Blocks carry the clock of the client that made them, so ``grace_s`` must exceed the difference of the clocks,
    too. Blocks that cannot be read stay, and those of a file that cannot be read; so do, where a fence is needed, those of a file with a put under
    way. Raises :class:`BadBlock` or :class:`ares.DecodeFailed` for a genesis block that is not readable: nothing is known of its file
    until somebody removes it.
    """
    collection = Collection(blocks, now_s - grace_s)
    found = yield from all_names(blocks.names, BLOCK_NAMES)
    collection.sort(found)
    names = yield from all_names(blocks.mentioned, GENESIS_NAMES)
    for file in [name.removeprefix(GENESIS_NAMES) for name in names]:
        yield from collection.look_at_file(file)
    yield from collection.collect()
    return collection.emptied


class Collection:
    """``emptied``: how many blocks. ``_lives``: names of blocks by life, of which what files name is taken out as the files are read."""

    def __init__(self, blocks: Blocks, before_s: int) -> None:
        self.emptied = 0
        self._blocks = blocks
        self._before_s = before_s
        self._pace = Pace(SIZE_MAX, SIZE_MAX)
        self._lives: defaultdict[BlockId, list[ObjectName]] = defaultdict(list)
        self._of_name: defaultdict[int, list[BlockId]] = defaultdict(list)
        self._alone: list[ObjectName] = []
        self._behind_fence: list[tuple[str, BlockId | None, list[ObjectName]]] = []
        self._looked = self._total = 0

    def sort(self, found: Iterable[ObjectName]) -> None:
        """Take the names of all blocks; what only looks like one is let be."""
        for name in found:
            try:
                life, _ = parse_block_name(name)
            except BadBlock:
                continue
            if life not in self._lives:
                self._of_name[life.creator].append(life)
            self._lives[life].append(name)

    def look_at_file(self, file: str) -> Operation[None]:
        """Find out which blocks the file has, and which of the others need a fence."""
        try:
            state = yield from self._state(file)
        except (BadBlock, DecodeFailed):
            try:
                genesis, _ = yield from read_genesis(self._blocks, file)
            except ObjectNotFound:  # removed meanwhile: another time
                self._take_lives(file, None)
            else:
                self._take_lives(file, genesis.file)
            return
        current = state.genesis.file if state is not None else None
        named = _named(state)
        orphans = {life: [name for name in names if name not in named] for life, names in self._take_lives(file, current)}
        if state is not None and not state.genesis.atomic:
            self._alone += orphans.pop(state.genesis.file, [])
        others = [name for names in orphans.values() for name in names]
        if others:
            self._behind_fence.append((file, current, others))

    def _state(self, file: str) -> Operation[FileState | None]:
        """None for a file that is absent."""
        try:
            state = yield from fm_read(self._blocks, file, None, Nowhere())
        except ObjectNotFound:
            return None
        return state

    def _take_lives(self, file: str, current: BlockId | None) -> list[tuple[BlockId, list[ObjectName]]]:
        """The lives that are the file's, and their blocks."""
        lives = dict.fromkeys(self._of_name.pop(name_digest(file), []))
        if current is not None:
            lives[current] = None
        return [(life, self._lives.pop(life, [])) for life in lives]

    def collect(self) -> Operation[None]:
        """Empty what is old; of files, behind a fence."""
        self._alone += [name for names in self._lives.values() for name in names]
        self._total = len(self._alone) + sum(len(names) for _, _, names in self._behind_fence)
        yield Together((self._collect_alone(name) for name in self._alone), self._pace.window)
        for file, life, names in self._behind_fence:
            yield from self._collect_behind_fence(file, life, names)

    def _collect_alone(self, name: ObjectName) -> Operation[None]:
        orphan = yield from self._look(name)
        if orphan is not None and orphan.created_s <= self._before_s:
            yield from self._empty(name, orphan)

    def _collect_behind_fence(self, file: str, life: BlockId | None, names: Sequence[ObjectName]) -> Operation[None]:
        """Blocks of the file that its list does not name, if there is anything to do and nobody is putting the file."""
        orphans: dict[ObjectName, Orphan] = {}
        old = yield from self._are_old(names, orphans)
        if not old or not any(orphan.holds_data or orphan.announces for orphan in orphans.values()):
            return
        fenced = yield from self._fence(file, life, orphans)
        if fenced:
            yield Together((self._empty(name, orphan) for name, orphan in orphans.items()), self._pace.window)

    def _fence(self, file: str, life: BlockId | None, orphans: dict[ObjectName, Orphan]) -> Operation[bool]:
        """Fence the genesis block, unless somebody may be about to write it; see ares/fragment/fencing.py for why the order is this one."""
        found = yield from self._blocks.read(genesis_name(file))
        number = yield from advance_mark(self._blocks, file, found.tag)
        there = yield from all_names(self._blocks.names, lives_prefix(file))
        if life is not None and life.creator != name_digest(file):
            there += yield from all_names(self._blocks.names, block_prefix(life))
        try:
            state = yield from self._state(file)
        except (BadBlock, DecodeFailed):
            return False
        named = _named(state)
        old = yield from self._are_old([name for name in there if name not in named and name not in orphans], orphans)
        if not old or any(name in named for name in orphans):
            return False
        value: Value = TOMBSTONE
        if state is not None:
            value = encode_genesis(msgspec.structs.replace(state.genesis, parts=state.parts, base=state.tag))
        covered = yield from self._blocks.write(genesis_name(file), value, state.tag if state is not None else None, number=number)
        return covered.changed

    def _are_old(self, names: Sequence[ObjectName], orphans: dict[ObjectName, Orphan]) -> Operation[bool]:
        """Look at these blocks, too; whether all of ``orphans`` are old. One that nobody here can read may be young."""
        looks: dict[ObjectName, Orphan | None] = {}

        def look(name: ObjectName) -> Operation[None]:
            looks[name] = yield from self._look(name)

        yield Together(map(look, names), self._pace.window)
        orphans |= {name: orphan for name in names if (orphan := looks[name]) is not None}
        return all(orphan.created_s <= self._before_s for orphan in orphans.values())

    def _look(self, name: ObjectName) -> Operation[Orphan | None]:
        """None for a block that is absent by now."""
        self._looked += 1
        self._total = max(self._total, self._looked)
        yield Report(FileProgress("collect", self._looked, self._total, 0, 0))
        try:
            found = yield from self._blocks.read(name)
            if not isinstance(found.value, bytes):
                return None
            self._pace.done(0.0, len(found.value))
            block = decode_block(found.value, name)
        except (BadBlock, DecodeFailed):
            return UNREADABLE
        return Orphan(block.next, found.tag, block.created_s, len(block.data) > 0, is_announcement(block))

    def _empty(self, name: ObjectName, orphan: Orphan) -> Operation[None]:
        """An announcement is of no use any more; a block keeps its pointer."""
        if orphan.announces:
            yield from self._blocks.delete(name)
        elif orphan.holds_data:
            empty = Block(orphan.next, orphan.tag, orphan.created_s, b"")
            covered = yield from self._blocks.write(name, encode_block(empty), orphan.tag)
            self.emptied += covered.changed


def _named(state: FileState | None) -> set[ObjectName]:
    """The blocks that a file has, and those that it had a moment ago."""
    if state is None:
        return set()
    ids = [*(part.id for part in state.parts), *(id for id, _ in state.genesis.retired)]
    return {block_name(state.genesis.file, id) for id in ids}
