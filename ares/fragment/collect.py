"""The removal of blocks: collection of orphans, deletion of files, and the fence needed by both.

A writer that dies between making blocks and publishing them, or is overtaken while publishing,
leaves blocks without any pointer to them. They take space and do no harm. The collector empties
such blocks older than a grace period, which is far longer than a put may take between making a
block and publishing the block.

The collector must consider the write that was to publish the blocks: a part of the write may lie at
a server outside every quorum of the collector, and may be found and completed by a reader at any
later time. The genesis block is therefore fenced first, even for a file which was never there.
Blocks of a shared file are published by other blocks, too, which are not fenced: an emptied block
therefore keeps its pointer, and such a chain leads on.

No block is emptied because a listing shows a file as absent. A client that makes a file has its
genesis block mentioned before the write; the collector reads every mentioned genesis block. A block
without a file known to the collection was made by a put that died before any publication.

A file is deleted by a tombstone for its genesis block, which makes the file absent at once; its
blocks follow.

The fence ---------

The fence keeps the remains of dead puts from coming back in a collection or a removal, without ever
undoing the put of a living client.

A put that died may have left its version of the genesis block at a server outside every quorum. Any
reader may find and complete this version, however much later. Before the put's blocks are emptied,
the genesis block is therefore *fenced*: written over itself under a tag above every tag that a dead
put can have used. A removal's tombstone is such a fence as well.

Coverable writes alone cannot keep a fence from undoing a put: both may be over the same version at
the same time, and the fence has the higher tag. Two more means do. Every file has a *mark*, an
object which is always absent and whose tag alone counts. And every put has a young block when it
publishes, a block which no list names yet.

- A put makes a block (of its content, or see :func:`announce`) and, when a quorum has the block,
  reads the mark while it reads the genesis block: a write ``beside`` the mark. The put publishes
  under a number above the mark's. For a further attempt, after other puts published, the put makes
  another block.
- A fence (:func:`advance_mark` and the following steps) moves the mark to a number m, FENCE_AHEAD
  above the mark and the genesis block, and, when a quorum has the mark, lists the blocks of the
  file. If a block outside every list is young, the fence gives up. Otherwise the fence writes the
  genesis block under exactly m, over the version which it read after the mark.

*No fence undoes a put whose blocks are young.* Let m be on its way to a quorum while the put reads
the mark. Either the put finds m, or a higher number: in this case its tag is above m, and the fence
below it was never the latest again. Or the put finds neither: m was not complete when the put's
read began, hence the fence lists the blocks after the put's block was complete, and finds the block
(or finds the put published, and the put's version is the version under the fence). The version of
such a put is therefore never replaced by an older list, not even for a moment. Several concurrent
fences may have different marks or the same number; the argument holds for each: the put is above
every complete mark.

*No version of a put that died before the fence began comes back.* The put read a version x and a
mark m' which were complete at that time (a mark is read, not only asked for: a mark which a dead
fence left at a server is completed before any put relies on it). Hence m is FENCE_AHEAD or more
above both. The put's tag is two above the higher of them for its first attempt, and one more for
each further attempt with an unknown outcome. It would take a million attempts over the same version
to reach m.

*A removal deletes no block of a standing put.* The removal announces itself, moves the mark and
writes a tombstone like a put. A put that stands instead, or lands later, read the genesis block
before the tombstone was complete (or it would have found the tombstone), and had a young block by
this time. The removal lists the blocks after the tombstone is complete, finds the young block, and
deletes no block (:func:`fm_remove`).

*A hint hides no publication.* A convenience write (a new hint in the genesis block of a shared
file) has the number right above its version; a concurrent publication over the same version has a
number two above the version.

Ages are told by the clocks of clients, hence the grace must exceed the longest put and the
difference of the clocks.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

from ares.engine.effects import Operation, Report, Together
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
from ares.fragment.divide import CHUNK_SIZE_MAX
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

COLLECT_GRACE_S = 24 * 3600
"""Grace period in seconds; a put which takes longer to publish must not run beside a collection."""

FENCE_AHEAD = 1 << 20
"""Step of the mark, above any client's number of attempts to write over the same version.

Tags have room for 2^28 fences of a file (docs/limits.md).
"""


def announce(
    blocks: Blocks, file: BlockId, id: BlockId, now_s: int, removal: bool = False
) -> Operation[None]:
    """Make an empty block for a put without new blocks, or for a ``removal``.

    The block of a removal points to the file.
    """
    yield from create_block(blocks, file, id, now_s, b"", file if removal else None)


def advance_mark(blocks: Blocks, file: str, version: Tag) -> Operation[int]:
    """Move the mark of a file with its genesis block at ``version``; return the fence's m."""
    return (yield from blocks.advance(mark_name(file), version.number, FENCE_AHEAD)).number


class Orphan(Struct, frozen=True):
    """A block named in no list, without its data: its pointer, version, age and length.

    ``announces``: the block is the empty block of :func:`announce`, not a block emptied by a
    collection.
    """

    next: BlockId | None
    tag: Tag
    created_s: int
    length: int
    announces: bool


UNREADABLE = Orphan(None, TAG_ZERO, 1 << 64, 0, False)
"""The entry of a block which this release cannot read: perhaps young, and left alone."""


def look_at_orphan(blocks: Blocks, name: ObjectName) -> Operation[Orphan | None]:
    """Return the block as an orphan, or None if the block is absent by now."""
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


def fm_collect(blocks: Blocks, now_s: int, grace_s: int = COLLECT_GRACE_S) -> Operation[int]:
    """Empty the blocks which no file names, older than ``grace_s``; return their number.

    ``now_s``: seconds since the epoch. Blocks carry the clock of the client that made them, hence
    ``grace_s`` must exceed the difference of the clocks, too. Unreadable blocks stay, and so do
    blocks of an unreadable file and, where a fence is needed, blocks of a file with a put under
    way. Raises :class:`BadBlock` or :class:`ares.DecodeFailed` for an unreadable genesis block: its
    file is unknown until a client removes the file.
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
    """A collection under way.

    ``emptied``: number of emptied blocks. ``_lives``: names of blocks by life; the names listed by
    files are removed as the files are read.
    """

    def __init__(self, blocks: Blocks, before_s: int) -> None:
        self.emptied = 0
        self._blocks = blocks
        self._before_s = before_s
        self._pace = Pace(CHUNK_SIZE_MAX, CHUNK_SIZE_MAX)
        self._lives: defaultdict[BlockId, list[ObjectName]] = defaultdict(list)
        self._of_name: defaultdict[int, list[BlockId]] = defaultdict(list)
        self._alone: list[ObjectName] = []
        self._behind_fence: list[tuple[str, BlockId | None, list[ObjectName]]] = []
        self._looked = self._total = 0

    def sort(self, found: Iterable[ObjectName]) -> None:
        """Take the names of all blocks; names which only resemble a block's are left alone."""
        for name in found:
            with suppress(BadBlock):
                life, _ = parse_block_name(name)
                if life not in self._lives:
                    self._of_name[life.creator].append(life)
                self._lives[life].append(name)

    def look_at_file(self, file: str) -> Operation[None]:
        """Find the blocks of the file, and the further blocks that need a fence."""
        current: BlockId | None = None
        try:
            state = yield from self._state(file)
        except (BadBlock, DecodeFailed):  # its blocks stay
            with suppress(ObjectNotFound):  # removed in between: another time
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
        """Return the file's state, or None for an absent file."""
        try:
            return (yield from fm_read(self._blocks, file, None, Sink()))
        except ObjectNotFound:
            return None

    def _take_lives(
        self, file: str, current: BlockId | None
    ) -> list[tuple[BlockId, list[ObjectName]]]:
        """Return the lives of the file, each with its blocks."""
        lives = dict.fromkeys(self._of_name.pop(name_digest(file), []))
        if current is not None:
            lives[current] = None
        return [(life, self._lives.pop(life, [])) for life in lives]

    def collect(self) -> Operation[None]:
        """Empty the old blocks; blocks of files, behind a fence."""
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
        """Empty unlisted old blocks of a file, unless a client is putting the file."""
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
        """Fence the genesis block, unless a client may be about to write it.

        The module's docstring gives the reason for the order of the steps.
        """
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
        """Look at these blocks, too; return whether all of ``orphans`` are old.

        A block unreadable by this release may be young.
        """
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
        """Delete an announcement, which has no more use; empty a block but keep its pointer."""
        if orphan.announces:
            yield from self._blocks.delete(name)
        elif orphan.length:
            empty = Block(orphan.next, orphan.tag, orphan.created_s, b"")
            covered = yield from self._blocks.write(name, encode_block(empty), orphan.tag)
            self.emptied += covered.changed


def _named(state: FileState | None) -> set[ObjectName]:
    """Return the names of the blocks of a file, and of the blocks retired lately."""
    if state is None:
        return set()
    ids = [*(part.id for part in state.parts), *(id for id, _ in state.genesis.retired)]
    return {block_name(state.genesis.file, id) for id in ids}


def fm_remove(blocks: Blocks, file: str, ids: BlockIds, now_s: int) -> Operation[None]:
    """Delete a file: the file is gone at once, the blocks follow.

    ``now_s``: seconds since the epoch. The tombstone is a fence: no put that died before brings the
    file back. The removal is announced like a put, hence no fence undoes the removal. If the file's
    list cannot be decoded, the file's blocks are unknown and left to collection. Raises
    :class:`ObjectNotFound`.
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
            "the file is deleted; the rest of its blocks takes space until a collection",
        ):
            gone = yield from _remove_rest(blocks, file, state, now_s)
        if gone:
            return
    raise FileChanged(file)


def _removable(blocks: Blocks, file: str) -> Operation[FileState]:
    """Return the file and its blocks, as far as they can be read."""
    try:
        return (yield from fm_read(blocks, file, None, Sink()))
    except BadBlock:
        genesis, tag = yield from read_genesis(blocks, file)
        return FileState(genesis, tag, genesis.parts)


def _remove_rest(blocks: Blocks, file: str, state: FileState, now_s: int) -> Operation[bool]:
    """Delete the blocks of a removed file; return False if a concurrent write stands instead.

    Such a write may also land later. The write read the genesis block before the tombstone was
    complete, and had a young block by this time which the removed list does not name. With such a
    block present no block is deleted, and the write finds all its listed blocks; collection sees to
    the rest.
    """
    life = state.genesis.file
    if (yield from _is_there(blocks, file, life)):
        return False
    names = yield from all_names(blocks.names, block_prefix(life))
    own, beside = _named(state), []

    def look(name: ObjectName) -> Operation[None]:
        orphan = yield from look_at_orphan(blocks, name)
        of_removal = orphan is not None and orphan.announces and orphan.next == life
        if orphan is not None and orphan.created_s > now_s - COLLECT_GRACE_S and not of_removal:
            beside.append(name)

    yield Together((look(name) for name in names if name not in own), DELETIONS_MAX)
    if not beside:
        yield Together((blocks.delete(name) for name in names), DELETIONS_MAX)
    return not (yield from _is_there(blocks, file, life))


def _is_there(blocks: Blocks, file: str, life: BlockId) -> Operation[bool]:
    """Return whether the file still is the life to be removed."""
    try:
        genesis, _ = yield from read_genesis(blocks, file)
    except ObjectNotFound:
        return False
    return genesis.file == life
