"""Deleting files, and collecting blocks that no file names any more.

A writer that dies between making blocks and publishing them, or that is overtaken while it publishes, leaves blocks that nobody points to. They take
space and do no harm. The collector empties those that are older than a grace period: far longer than a put may take between making a block and
publishing it.

It must reckon with the write that was to publish them: a part of it may lie at a server that no quorum of the collector's met, and be found and
completed by a reader at any later time. Therefore a block is emptied and keeps its pointer, so that such a chain of a shared file leads on; and the
list of an atomic file is fenced first: written twice over itself, under tags that are above that of every write over an earlier version, so that what
lies about somewhere can never be the latest. (A first put that died is over nothing, and cannot be fenced: if it is found later it has nothing that
anybody was promised.) A removal is fenced likewise.
"""

import msgspec

from ares.effects import Operation, Report, Together
from ares.errors import BadBlock, FileChanged, ObjectNotFound, Uncertain
from ares.fragment.block import (
    BLOCK_NAMES,
    GENESIS_NAMES,
    Block,
    Genesis,
    block_name,
    block_prefix,
    decode_block,
    encode_block,
    encode_genesis,
    genesis_name,
)
from ares.fragment.division import SIZE_MAX
from ares.fragment.memory import DELETIONS_MAX, Blocks
from ares.fragment.pace import Pace
from ares.fragment.publishing import RETRIES_MAX
from ares.fragment.reading import FileProgress, FileState, Nowhere, fm_read, read_genesis
from ares.identity import ObjectName
from ares.tag import Tag
from ares.value import TOMBSTONE

GRACE_S = 24 * 3600
"""A put that takes longer than this to publish its blocks must not run beside a collection."""


def list_files(blocks: Blocks, prefix: str = "") -> Operation[list[str]]:
    """The names of the files of the domain that start with ``prefix``, in order."""
    names = yield from _all_names(blocks, GENESIS_NAMES + prefix)
    return [name.removeprefix(GENESIS_NAMES) for name in names]


def fm_remove(blocks: Blocks, file: str) -> Operation[None]:
    """Delete a file: it is gone at once, then its blocks follow. Raises :class:`ObjectNotFound`."""
    genesis, tag = yield from read_genesis(blocks, file)
    for _ in range(RETRIES_MAX):
        covered = yield from blocks.write(genesis_name(file), TOMBSTONE, tag)
        if not covered.changed:
            genesis, tag = yield from read_genesis(blocks, file)
            continue
        try:
            yield from blocks.write(genesis_name(file), TOMBSTONE, covered.tag)  # the fence
            newer = yield from _remove_rest(blocks, file, genesis)
        except Uncertain as error:
            error.may_have_taken_effect = True
            error.advice = "the file is deleted; what is left of its blocks takes space until it is collected"
            raise
        if newer is None:
            return
        genesis, tag = newer
    raise FileChanged(file)


def _fence(blocks: Blocks, file: str, state: FileState) -> Operation[bool]:
    """Write the genesis block twice over itself: the second tag has a number that no write over this version or an earlier one can have taken.

    False if somebody else wrote it meanwhile.
    """
    name = genesis_name(file)
    value = encode_genesis(msgspec.structs.replace(state.genesis, parts=state.parts, base=state.tag))
    once = yield from blocks.write(name, value, state.tag)
    if not once.changed:
        return False
    twice = yield from blocks.write(name, value, once.tag)
    return twice.changed


def _remove_rest(blocks: Blocks, file: str, gone: Genesis) -> Operation[tuple[Genesis, Tag] | None]:
    """Delete the blocks of a file that is gone. If it is not, since a write at the same time stands instead of the tombstone: the file as it is.

    Such a write may land while the blocks are being deleted, hence the second look; one that lands later sees that they are
    (ares/fragment/publishing.py).
    """
    there = yield from _alive(blocks, file, gone)
    if there is None:
        names = yield from _all_names(blocks, block_prefix(gone.file))
        yield Together((blocks.delete(name) for name in names), DELETIONS_MAX)
        there = yield from _alive(blocks, file, gone)
    return there


def _alive(blocks: Blocks, file: str, gone: Genesis) -> Operation[tuple[Genesis, Tag] | None]:
    """The file, if it still is the one that was to go."""
    try:
        genesis, tag = yield from read_genesis(blocks, file)
    except ObjectNotFound:
        return None
    return (genesis, tag) if genesis.file == gone.file else None


def fm_collect(blocks: Blocks, now_s: int, grace_s: int = GRACE_S) -> Operation[int]:
    """Empty the blocks of the domain that no file names and that are older than ``grace_s``; how many that were.

    ``now_s``: seconds since the epoch. Blocks carry the clock of the client that made them, so ``grace_s`` must exceed the difference of the clocks,
    too. Blocks of a file that cannot be read stay. Raises :class:`BadBlock` for a genesis block that is not readable: nothing is known of its file.
    """
    found = yield from _all_names(blocks, BLOCK_NAMES)
    files = yield from list_files(blocks)
    named: set[ObjectName] = set()
    spared: list[str] = []
    for file in files:
        try:
            state = yield from fm_read(blocks, file, None, Nowhere())
        except ObjectNotFound:
            continue
        except BadBlock:
            genesis, _ = yield from read_genesis(blocks, file)
            spared.append(block_prefix(genesis.file))
            continue
        ids = [*(part.id for part in state.parts), *(id for id, _ in state.genesis.retired)]
        own = {block_name(state.genesis.file, id) for id in ids}
        named |= own
        if state.genesis.atomic and any(name.startswith(block_prefix(state.genesis.file)) and name not in own for name in found):
            fenced = yield from _fence(blocks, file, state)
            if not fenced:
                spared.append(block_prefix(state.genesis.file))  # somebody is putting it: another time
    orphans = [name for name in found if name not in named and not name.startswith(tuple(spared))]
    collector = _Collector(blocks, now_s - grace_s, len(orphans))
    yield Together((collector.look(name) for name in orphans), collector.pace.window)
    return collector.emptied


class _Collector:
    def __init__(self, blocks: Blocks, before_s: int, total: int) -> None:
        self.emptied = 0
        self.pace = Pace(SIZE_MAX, SIZE_MAX)
        self._blocks = blocks
        self._before_s = before_s
        self._total = total
        self._looked = 0

    def look(self, name: ObjectName) -> Operation[None]:
        found = yield from self._blocks.read(name)
        if isinstance(found.value, bytes):
            self.pace.done(0.0, len(found.value))
            block = _readable(found.value, name)
            if block is not None and len(block.data) and block.created_s <= self._before_s:
                empty = Block(block.next, found.tag, block.created_s, b"")
                covered = yield from self._blocks.write(name, encode_block(empty), found.tag)
                self.emptied += covered.changed
        self._looked += 1
        yield Report(FileProgress("collect", self._looked, self._total, 0, 0))


def _all_names(blocks: Blocks, prefix: str) -> Operation[list[ObjectName]]:
    names: list[ObjectName] = []
    after: str | None = ""
    while after is not None:
        page, after = yield from blocks.names(prefix, after)
        names.extend(page)
    return names


def _readable(value: bytes, name: str) -> Block | None:
    """The block; None for what is none that this release can read: let it be."""
    try:
        return decode_block(value, name)
    except BadBlock:
        return None
