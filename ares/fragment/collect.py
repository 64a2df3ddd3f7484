"""What takes blocks away: collecting those that no file names any more, and deleting files; and the fence that both need.

A writer that dies between making blocks and publishing them, or that is overtaken while it publishes, leaves blocks that nobody points to. They take
space and do no harm. The collector empties those that are older than a grace period: far longer than a put may take between making a block and
publishing it.

It must reckon with the write that was to publish them: a part of it may lie at a server that no quorum of the collector's met, and be found and
completed by a reader at any later time. Therefore the genesis block is fenced first, also that of a file which was never there. Blocks of a shared
file are published by other blocks, too, which are not fenced: so a block is emptied and keeps its pointer, and such a chain leads on.

Nothing is emptied because a listing says that a file is absent. A client that makes a file has its genesis block mentioned before it is written;
every one that is mentioned is read. A block of which the collection knows no file was made by a put that died before it could publish anything.

A file is deleted by a tombstone for its genesis block, which makes the file absent at once; then its blocks follow.

The fence
---------

How a collection or a removal keeps what lies about of dead puts from coming back, without ever undoing the put of a client that lives.

A put that died may have left its version of the genesis block at a server that no quorum met. Any reader may find and complete it, however much
later: so before its blocks are emptied, the genesis block is *fenced*, written over itself under a tag above every one that a dead put can have used.
A removal's tombstone is such a fence as well.

Coverable writes alone cannot keep a fence from undoing a put: both may be over one version at the same time, and the fence has the higher tag. Two
more things do. Every file has a *mark*, an object that is never there and whose tag counts only. And every put has a young block when it publishes,
one that no list names yet.

- A put makes a block (of its content, or see :func:`announce`) and, when a quorum has it, reads the mark while it looks at the genesis block: a
  write ``beside`` the mark. It publishes under a number above the mark's. To try once more, after others published, it makes another block.
- A fence (:func:`advance_mark` and what follows) moves the mark to a number m, FENCE_AHEAD above the mark and the genesis block, and, when a quorum
  has it, lists the blocks of the file. With a young one among those that no list names it gives up. Otherwise it writes the genesis block under
  exactly m, over the version that it read after the mark.

*No fence undoes a put whose blocks are young.* Let m be on its way to a quorum while the put reads the mark. Either the put finds m, or a higher one:
then its tag is above m, and the fence below it was never the latest again. Or it does not: then m was not complete when that read began, so the
fence lists the blocks after the put's block was complete, and finds it (or finds the put published, and its version is what the fence is over).
The version of such a put is therefore never replaced by an older list, not even for a moment. Several fences at once may have different marks or the
same number; the argument holds for each: the put is above every mark that was complete.

*Nothing of a put that died before the fence began comes back.* It read a version x and a mark m' that were complete then (a mark is read, not only
asked for: one that a dead fence left at a server is completed before anybody relies on it). So m is FENCE_AHEAD or more above both. The put's tag is
two above the higher of them for its first attempt, and one more for each further attempt whose outcome it did not learn. So it would take a million
attempts over one version to reach m.

*A removal deletes no block of a put that stands.* It announces itself, moves the mark and writes a tombstone like a put. One that stands instead, or
lands later, looked at the genesis block before the tombstone was complete (or it would have found it), and had a young block by then. The removal
lists the blocks after the tombstone is complete, finds that one, and deletes nothing (:func:`fm_remove`).

*A hint hides nothing.* What is written for convenience (a new hint in the genesis block of a shared file) has the number right above its version, and
whatever publishes something over that version at the same time is two above it.

What is old is told by the clocks of clients, so the grace must exceed the longest put and the difference of the clocks.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

from ares.fragment.block import (
    BLOCK_NAMES,
    GENESIS_NAMES,
    Block,
    BlockId,
    BlockIds,
    block_name,
    block_prefix,
    decode_block,
    encode_block,
    genesis_name,
    lives_prefix,
    mark_name,
    name_digest,
    parse_block_name,
)
from ares.fragment.divide import SIZE_MAX
from ares.fragment.read import FileProgress, FileState, Sink, fm_read, read_genesis
from ares.fragment.shared_memory import (
    DELETIONS_MAX,
    RETRIES_MAX,
    Blocks,
    Pace,
    all_names,
    create_block,
    effect,
    write_genesis,
)
from ares.model.errors import BadBlock, DecodeFailed, FileChanged, ObjectNotFound
from ares.model.identity import ObjectName
from ares.model.tag import TAG_ZERO, Tag
from ares.operation.effects import Operation, Report, Together

GRACE_S = 24 * 3600
"""A put that takes longer than this to publish its blocks must not run beside a collection."""

FENCE_AHEAD = 1 << 20
"""More than the attempts that a client makes to write one version. Tags have room for 2^28 fences of a file (docs/limits.md)."""


def announce(
    blocks: Blocks, file: BlockId, id: BlockId, now_s: int, removal: bool = False
) -> Operation[None]:
    """Make an empty block for a put that has made no other, or for a ``removal``, whose block points to the file."""
    yield from create_block(blocks, file, id, now_s, b"", file if removal else None)


def advance_mark(blocks: Blocks, file: str, version: Tag) -> Operation[int]:
    """Move the mark of a file whose genesis block is at ``version``; the number m of the fence."""
    return (yield from blocks.advance(mark_name(file), version.number, FENCE_AHEAD)).number


class Orphan(Struct, frozen=True):
    """A block that no list names, without its data: its pointer, version, age and length.

    ``announces``: it is the empty block of :func:`announce`, and not one that a collection emptied.
    """

    next: BlockId | None
    tag: Tag
    created_s: int
    length: int
    announces: bool


UNREADABLE = Orphan(None, TAG_ZERO, 1 << 64, 0, False)
"""What this release cannot read may be young, and is left alone."""


def look_at_orphan(blocks: Blocks, name: ObjectName) -> Operation[Orphan | None]:
    """None for a block that is absent by now."""
    try:
        found = yield from blocks.read(name)
        if not isinstance(found.value, bytes):
            return None
        block = decode_block(found.value, name)
    except (BadBlock, DecodeFailed):
        return UNREADABLE
    return Orphan(
        block.next,
        found.tag,
        block.created_s,
        len(block.data),
        not len(block.data) and block.base == TAG_ZERO,
    )


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
        """Take the names of all blocks; what only looks like one is left alone."""
        for name in found:
            with suppress(BadBlock):
                life, _ = parse_block_name(name)
                if life not in self._lives:
                    self._of_name[life.creator].append(life)
                self._lives[life].append(name)

    def look_at_file(self, file: str) -> Operation[None]:
        """Find out which blocks the file has, and which of the others need a fence."""
        current: BlockId | None = None
        try:
            state = yield from self._state(file)
        except (BadBlock, DecodeFailed):  # its blocks stay
            with suppress(ObjectNotFound):  # removed meanwhile: another time
                current = (yield from read_genesis(self._blocks, file))[0].file
            self._take_lives(file, current)
            return
        current = state.genesis.file if state is not None else None
        named = _named(state)
        orphans = {
            life: [name for name in names if name not in named]
            for life, names in self._take_lives(file, current)
        }
        if state is not None and not state.genesis.atomic:
            self._alone += orphans.pop(state.genesis.file, [])
        others = [name for names in orphans.values() for name in names]
        if others:
            self._behind_fence.append((file, current, others))

    def _state(self, file: str) -> Operation[FileState | None]:
        """None for a file that is absent."""
        try:
            return (yield from fm_read(self._blocks, file, None, Sink()))
        except ObjectNotFound:
            return None

    def _take_lives(
        self, file: str, current: BlockId | None
    ) -> list[tuple[BlockId, list[ObjectName]]]:
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

    def _collect_behind_fence(
        self, file: str, life: BlockId | None, names: Sequence[ObjectName]
    ) -> Operation[None]:
        """Blocks of the file that its list does not name, if there is anything to do and nobody is putting the file."""
        orphans: dict[ObjectName, Orphan] = {}
        old = yield from self._are_old(names, orphans)
        if not old or not any(orphan.length or orphan.announces for orphan in orphans.values()):
            return
        if (yield from self._fence(file, life, orphans)):
            yield Together(
                (self._empty(name, orphan) for name, orphan in orphans.items()), self._pace.window
            )

    def _fence(
        self, file: str, life: BlockId | None, orphans: dict[ObjectName, Orphan]
    ) -> Operation[bool]:
        """Fence the genesis block, unless somebody may be about to write it; the head of this module has why the order is this one."""
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
        old = yield from self._are_old(
            [name for name in there if name not in named and name not in orphans], orphans
        )
        if not old or any(name in named for name in orphans):
            return False
        genesis = (
            msgspec.structs.replace(state.genesis, parts=state.parts, base=state.tag)
            if state is not None
            else None
        )
        covered = yield from write_genesis(
            self._blocks, file, genesis, state.tag if state is not None else None, number
        )
        return covered.changed

    def _are_old(
        self, names: Sequence[ObjectName], orphans: dict[ObjectName, Orphan]
    ) -> Operation[bool]:
        """Look at these blocks, too; whether all of ``orphans`` are old. One that nobody here can read may be young."""
        looks: dict[ObjectName, Orphan | None] = {}

        def look(name: ObjectName) -> Operation[None]:
            looks[name] = yield from self._look(name)

        yield Together(map(look, names), self._pace.window)
        orphans |= {name: orphan for name in names if (orphan := looks[name]) is not None}
        return all(orphan.created_s <= self._before_s for orphan in orphans.values())

    def _look(self, name: ObjectName) -> Operation[Orphan | None]:
        self._looked += 1
        self._total = max(self._total, self._looked)
        yield Report(FileProgress("collect", self._looked, self._total, 0, 0))
        orphan = yield from look_at_orphan(self._blocks, name)
        if orphan is not None and orphan is not UNREADABLE:
            self._pace.done(0.0, orphan.length)
        return orphan

    def _empty(self, name: ObjectName, orphan: Orphan) -> Operation[None]:
        """An announcement is of no use any more; a block keeps its pointer."""
        if orphan.announces:
            yield from self._blocks.delete(name)
        elif orphan.length:
            empty = Block(orphan.next, orphan.tag, orphan.created_s, b"")
            covered = yield from self._blocks.write(name, encode_block(empty), orphan.tag)
            self.emptied += covered.changed


def _named(state: FileState | None) -> set[ObjectName]:
    """The blocks that a file has, and those that it had a moment ago."""
    if state is None:
        return set()
    ids = [*(part.id for part in state.parts), *(id for id, _ in state.genesis.retired)]
    return {block_name(state.genesis.file, id) for id in ids}


def fm_remove(blocks: Blocks, file: str, ids: BlockIds, now_s: int) -> Operation[None]:
    """Delete a file: it is gone at once, then its blocks follow. Raises :class:`ObjectNotFound`. ``now_s``: seconds since the epoch.

    The tombstone is a fence: no put that died before brings the file back. And it is announced like a put, so that no other fence undoes it. If the
    file's list cannot be decoded, nobody knows which blocks are its own: they are left to collection.
    """
    removed = False
    for _ in range(RETRIES_MAX):
        try:
            with effect(removed):
                state = yield from _removable(blocks, file)
                yield from announce(blocks, state.genesis.file, ids.next(), now_s, removal=True)
                yield from advance_mark(blocks, file, state.tag)
        except DecodeFailed:
            yield from blocks.delete(genesis_name(file))
            return
        except ObjectNotFound:
            if removed:
                return
            raise
        covered = yield from write_genesis(blocks, file, None, state.tag)
        if not covered.changed:
            continue
        removed = True
        with effect(
            True,
            "the file is deleted; what is left of its blocks takes space until it is collected",
        ):
            gone = yield from _remove_rest(blocks, file, state, now_s)
        if gone:
            return
    raise FileChanged(file)


def _removable(blocks: Blocks, file: str) -> Operation[FileState]:
    """The file and its blocks, as far as they can be read."""
    try:
        return (yield from fm_read(blocks, file, None, Sink()))
    except BadBlock:
        genesis, tag = yield from read_genesis(blocks, file)
        return FileState(genesis, tag, genesis.parts)


def _remove_rest(blocks: Blocks, file: str, state: FileState, now_s: int) -> Operation[bool]:
    """Delete the blocks of a file that is gone; False if it is not, since a write at the same time stands instead of the tombstone.

    Such a write may also land later. It looked at the genesis block before the tombstone was complete, and had a young block by then that the removed
    list does not name. So with such a block around nothing is deleted, and the write finds all that it lists; collection sees to what is left.
    """
    life = state.genesis.file
    if (yield from _is_there(blocks, file, life)):
        return False
    names = yield from all_names(blocks.names, block_prefix(life))
    own, beside = _named(state), []

    def look(name: ObjectName) -> Operation[None]:
        orphan = yield from look_at_orphan(blocks, name)
        of_removal = orphan is not None and orphan.announces and orphan.next == life
        if orphan is not None and orphan.created_s > now_s - GRACE_S and not of_removal:
            beside.append(name)

    yield Together((look(name) for name in names if name not in own), DELETIONS_MAX)
    if not beside:
        yield Together((blocks.delete(name) for name in names), DELETIONS_MAX)
    return not (yield from _is_there(blocks, file, life))


def _is_there(blocks: Blocks, file: str, life: BlockId) -> Operation[bool]:
    """Whether the file still is the one that was to go."""
    try:
        genesis, _ = yield from read_genesis(blocks, file)
    except ObjectNotFound:
        return False
    return genesis.file == life
