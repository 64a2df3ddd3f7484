"""Deleting files, and collecting blocks that no file names any more.

A writer that dies between making blocks and publishing them, or that is overtaken while it publishes, leaves blocks that nobody points to. They take
space and do no harm. The collector deletes those that are older than a grace period: far longer than a put may take between making a block and
publishing it.
"""

from ares.effects import Operation, Report, Together
from ares.errors import BadBlock, FileChanged, ObjectNotFound, Uncertain
from ares.fragment.block import BLOCK_NAMES, GENESIS_NAMES, Genesis, block_name, block_prefix, decode_block, genesis_name
from ares.fragment.division import SIZE_MAX
from ares.fragment.memory import DELETIONS_MAX, Blocks
from ares.fragment.pace import Pace
from ares.fragment.publishing import RETRIES_MAX
from ares.fragment.reading import FileProgress, Nowhere, fm_read, read_genesis
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
            newer = yield from _remove_rest(blocks, file, genesis)
        except Uncertain as error:
            error.may_have_taken_effect = True
            error.advice = "the file is deleted; what is left of its blocks takes space until it is collected"
            raise
        if newer is None:
            return
        genesis, tag = newer
    raise FileChanged(file)


def _remove_rest(blocks: Blocks, file: str, gone: Genesis) -> Operation[tuple[Genesis, Tag] | None]:
    """Delete the blocks of a file that is gone. If it is not, since a write at the same time stands instead of the tombstone: the file as it is."""
    try:
        genesis, tag = yield from read_genesis(blocks, file)
        if genesis.file == gone.file:
            return genesis, tag
    except ObjectNotFound:
        pass
    names = yield from _all_names(blocks, block_prefix(gone.file))
    yield Together((blocks.delete(name) for name in names), DELETIONS_MAX)
    return None


def fm_collect(blocks: Blocks, now_s: int, grace_s: int = GRACE_S) -> Operation[int]:
    """Delete the blocks of the domain that no file names and that are older than ``grace_s``; how many that were.

    ``now_s``: seconds since the epoch. Blocks carry the clock of the client that made them, so ``grace_s`` must exceed the difference of the clocks,
    too. Blocks of a file that cannot be read stay. Raises :class:`BadBlock` for a genesis block that is not readable: nothing is known of its file.
    """
    found = yield from _all_names(blocks, BLOCK_NAMES)
    files = yield from list_files(blocks)
    named: set[ObjectName] = set()
    damaged: list[str] = []
    for file in files:
        try:
            state = yield from fm_read(blocks, file, None, Nowhere())
        except ObjectNotFound:
            continue
        except BadBlock:
            genesis, _ = yield from read_genesis(blocks, file)
            damaged.append(block_prefix(genesis.file))
            continue
        ids = [*(part.id for part in state.parts), *(id for id, _ in state.genesis.retired)]
        named.update(block_name(state.genesis.file, id) for id in ids)
    orphans = [name for name in found if name not in named and not name.startswith(tuple(damaged))]
    collector = _Collector(blocks, now_s - grace_s, len(orphans))
    yield Together((collector.look(name) for name in orphans), collector.pace.window)
    return collector.deleted


class _Collector:
    def __init__(self, blocks: Blocks, before_s: int, total: int) -> None:
        self.deleted = 0
        self.pace = Pace(SIZE_MAX, SIZE_MAX)
        self._blocks = blocks
        self._before_s = before_s
        self._total = total
        self._looked = 0

    def look(self, name: ObjectName) -> Operation[None]:
        found = yield from self._blocks.read(name)
        if isinstance(found.value, bytes):
            self.pace.done(0.0, len(found.value))
            if _created_s(found.value, name) <= self._before_s:
                covered = yield from self._blocks.write(name, TOMBSTONE, found.tag)
                self.deleted += covered.changed
        self._looked += 1
        yield Report(FileProgress("collect", self._looked, self._total, 0, 0))


def _all_names(blocks: Blocks, prefix: str) -> Operation[list[ObjectName]]:
    names: list[ObjectName] = []
    after: str | None = ""
    while after is not None:
        page, after = yield from blocks.names(prefix, after)
        names.extend(page)
    return names


def _created_s(value: bytes, name: str) -> float:
    """Infinity for what is no block that this release can read: let it be."""
    try:
        return decode_block(value, name).created_s
    except BadBlock:
        return float("inf")
