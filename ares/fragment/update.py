"""fm-update: the write of a file's changes into mutable blocks.

See CoBFS, "write"; ARES II section 3, Extension 2. The new content, cut into chunks, is matched
against the blocks which the writer last saw. A changed chunk is a coverable write of its block; a
run of new chunks becomes blocks, invisible until a coverable write of their predecessor points to
the first of them; a removed chunk leaves an empty block, which stays linked and is used again. A
coverable write which comes back unchanged means that another client changed the block since: the
update overwrites no data, and reports the conflict to the caller (a :class:`Conflict`); with
``mine`` the write is repeated over the newer version. Writes of different blocks never disturb each
other.

Coverability is weak: of two concurrent writes over the same version both may be told of success.
Every written block is therefore read once more; if the present version does not build on ours, ours
was replaced unseen, which is a conflict, too. (A write still on its way after this look can replace
a block silently: excluding this takes consensus.) The same look finds other clients' changes
elsewhere, and whether the file is present.

A writer that dies leaves the file in its old state, or in a partly new state, block by block;
blocks without a pointer are collected (ares/fragment/collect.py).
"""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext

import msgspec

from ares.engine.effects import Operation, Report, Together
from ares.fragment.block import (
    Block,
    BlockId,
    Genesis,
    KnownBlock,
    block_name,
    decode_block,
    decode_genesis,
    encode_block,
    genesis_name,
)
from ares.fragment.collect import announce
from ares.fragment.divide import Chunk, Content, digest
from ares.fragment.match import GENESIS, Edit, match
from ares.fragment.read import (
    BlockGone,
    FileProgress,
    FileState,
    Sink,
    builds_on,
    fm_read,
    see_block,
)
from ares.fragment.report import (
    CHANGED_MEANWHILE,
    DELETED_MEANWHILE,
    MADE_MEANWHILE,
    OVERTAKEN,
    REPLACED_MEANWHILE,
    Conflict,
    WriteReport,
)
from ares.fragment.shared_memory import (
    RETRIES_MAX,
    FileTarget,
    Pace,
    create_block,
    drop_blocks,
    effect,
    write_genesis,
)
from ares.model.errors import ObjectNotFound, Uncertain
from ares.model.identity import ObjectName
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import TOMBSTONE, WITHHELD
from ares.registers.coverable import CoverableResult

HINT_STALE_BLOCKS = 16
"""Insertions after which the hint in the genesis block is written again.

With a stale hint, readers without knowledge of the file find new blocks one by one.
"""


def fm_update(
    target: FileTarget, base: FileState, content: Content, *, mine: bool = False
) -> Operation[tuple[WriteReport, FileState]]:
    """Write ``content`` to the file where it differs from ``base``.

    ``base``: the file as the writer last saw it (tag t0: the file is to be made). ``mine``: write
    over other clients' changes of the same blocks, too. The returned state is the base of the next
    update: where a conflict occurred, or other clients changed a block and this writer did not, the
    state is as before. An :class:`Uncertain` error says whether blocks may have been changed.
    """
    while True:
        update = Update(target, base, content, mine)
        yield from update.create_runs()
        yield from update.publish()
        yield from update.look_again()
        yield from update.drop_orphans()
        if not mine or base.tag != TAG_ZERO or update.drafts[GENESIS].conflict is None:
            break  # otherwise the file was to be made, and another client made it in between
        try:
            base = yield from fm_read(target.blocks, target.file, None, Sink())
        except ObjectNotFound:
            # made and deleted again: its maker may still be deleting the blocks of that life
            base = msgspec.structs.replace(
                base,
                genesis=msgspec.structs.replace(base.genesis, file=target.ids.life(target.file)),
            )
        if base.genesis.atomic:
            break
    tag = yield from update.refresh_hint()
    return update.report(), FileState(update.genesis_as_written(), tag, update.hint())


class Draft:
    """An edit under way: a block (or the genesis block) to write, with the run of new blocks.

    The write publishes the run. ``version`` and ``following``: the version to be covered, and the
    block after this block at that version. ``ids``: the ids of the run. ``content``: the chunk for
    the block, or None when the block keeps its data (the genesis block has no data):
    ``kept_chunk``, or ``kept_data`` if other clients changed it. ``written``: the block after the
    write, once the write took place. ``conflict``: the reason why the write failed, or stands no
    more.
    """

    def __init__(
        self,
        edit: Edit,
        base: FileState,
        content: Content,
        ids: Sequence[BlockId],
        kept: Chunk | None,
    ) -> None:
        self.empties = edit.empty
        self.content = content.chunks[edit.chunk] if edit.chunk is not None else None
        self.new_chunks = content.chunks[edit.insert[0] : edit.insert[1]]
        self.ids = ids
        self.run: dict[int, KnownBlock] = {}
        self.kept_chunk = kept
        self.kept_data: bytes | None = None
        self.written: KnownBlock | None = None
        self.conflict: Conflict | None = None
        self.part = base.parts[edit.block] if edit.block != GENESIS else None
        self.version: Tag | None = base.tag if base.tag != TAG_ZERO else None
        self.following = base.genesis.first
        if self.part is not None:
            self.version, self.following = self.part.tag, self.part.next

    @property
    def next(self) -> BlockId | None:
        """Return the block that follows after the write."""
        return self.ids[0] if self.ids else self.following

    @property
    def stands(self) -> KnownBlock | None:
        """Return the written block, if the write took place and was not overtaken."""
        return self.written if self.conflict is None else None

    def refuse(self, why: str, tag: Tag = TAG_ZERO, theirs: Block | None = None) -> None:
        """Record a conflict, with ``theirs`` at version ``tag`` if such a block exists."""
        own = [chunk for chunk in (self.content, *self.new_chunks) if chunk is not None]
        offset, length = own[0].offset if own else 0, sum(chunk.length for chunk in own)
        if not own and self.kept_chunk is not None:
            offset = self.kept_chunk.offset + self.kept_chunk.length
        if self.part is None or theirs is None:
            self.conflict = Conflict(
                offset, length, why, None, self.part.id if self.part is not None else None
            )
        else:
            data = bytes(theirs.data)
            version = KnownBlock(self.part.id, tag, len(data), digest(data), theirs.next)
            self.conflict = Conflict(offset, length, why, data, self.part.id, version)


class Update:
    """An update, phase by phase.

    ``base``: the file as the writer last saw it, with tag t0 if the file is to be made. ``now_s``:
    seconds since the epoch. ``merged``: blocks changed by other clients and not by this writer.
    ``unused``: blocks made and invisible to all readers. ``announced``: the empty block of a file
    without any new block.
    """

    def __init__(self, target: FileTarget, base: FileState, content: Content, mine: bool) -> None:
        self.blocks, self.file, ids, self._now_s = target
        self.base = base
        self.content = content
        self.genesis = base.genesis
        self._ids = ids
        self.mine = mine
        self.merged = self.moved_bytes = 0
        self.unused: list[KnownBlock] = []
        self.announced: list[BlockId] = []
        self._done = {"write": 0, "check": 0}
        self._block_gone = False
        self._file_gone: Conflict | None = None
        matching = match(
            [(part.length, part.digest) for part in base.parts],
            [(chunk.length, chunk.digest) for chunk in content.chunks],
        )
        kept = {old: content.chunks[new] for old, new in matching.kept}
        edits = {edit.block: edit for edit in matching.edits}
        if base.tag == TAG_ZERO:
            edits.setdefault(GENESIS, Edit(GENESIS))
        self.drafts = {
            edit.block: Draft(
                edit, base, content, [ids.next() for _ in range(*edit.insert)], kept.get(edit.block)
            )
            for edit in edits.values()
        }
        sizes = [chunk.length for draft in self.drafts.values() for chunk in draft.new_chunks]
        self._pace = Pace(max(sizes, default=base.genesis.sizes.avg))
        self._total = len(sizes) + len(self.drafts)

    # -- new blocks --------------------------------------------------------------------------------

    def create_runs(self) -> Operation[None]:
        """Make the new blocks, invisible to all readers yet.

        Collections must know the name of a new file before its publication.
        """
        with effect(False):
            yield Together(self._creations(), self._pace.window)

    def _creations(self) -> Iterator[Operation[None]]:
        if self.base.tag == TAG_ZERO:
            yield self.blocks.mention(genesis_name(self.file))
            if not any(draft.ids for draft in self.drafts.values()):
                self.announced.append(self._ids.next())
                yield announce(self.blocks, self.genesis.file, self.announced[-1], self._now_s)
        for draft in self.drafts.values():
            for position in range(len(draft.ids)):
                yield self._create(draft, position)

    def _create(self, draft: Draft, position: int) -> Operation[None]:
        id, chunk = draft.ids[position], draft.new_chunks[position]
        following = draft.ids[position + 1] if position + 1 < len(draft.ids) else draft.following
        creation = create_block(
            self.blocks, self.genesis.file, id, self._now_s, self.content.load(chunk), following
        )
        tag = yield from self._pace.timed(creation, chunk.length)
        draft.run[position] = KnownBlock(id, tag, chunk.length, chunk.digest, following)
        yield self._progress("write", self._total, chunk.length)

    def _relink(self, draft: Draft) -> Operation[None]:
        """Write the last block of the run again, if another block follows the run now.

        The block is invisible to all readers yet.
        """
        position = len(draft.ids) - 1
        last = draft.run[position]
        if last.next == draft.following:
            return
        value = encode_block(
            Block(
                draft.following,
                last.tag,
                self._now_s,
                self.content.load(draft.new_chunks[position]),
            )
        )
        covered = yield from self.blocks.write(
            block_name(self.genesis.file, last.id), value, last.tag
        )
        draft.run[position] = KnownBlock(
            last.id, covered.tag, last.length, last.digest, draft.following
        )

    # -- publishing --------------------------------------------------------------------------------

    def publish(self) -> Operation[None]:
        """Write every block that changes, or gets a new successor."""
        with effect(
            True,
            "some blocks of the file may have their new content, and the rest the old "
            "content: put it again",
        ):
            yield Together(
                (self._publish(draft) for draft in self.drafts.values()), self._pace.window
            )

    def _publish(self, draft: Draft) -> Operation[None]:
        """Write the block over its known version; over newer versions, too, if wanted."""
        for _ in range(RETRIES_MAX):
            data = self._data(draft)
            covered = yield from self._pace.timed(self._write(draft, data), len(data))
            if covered.changed:
                id = draft.part.id if draft.part is not None else self.genesis.file
                draft.written = KnownBlock(id, covered.tag, len(data), digest(data), draft.next)
                yield self._progress("write", self._total, len(data))
                return
            if (yield from self._is_there(draft, covered)):
                return
            self._learn(draft, covered)
            if draft.conflict is not None:
                return
            if draft.ids:
                yield from self._relink(draft)
        draft.refuse(f"other clients changed it {RETRIES_MAX} times meanwhile")

    def _publish_over(self, draft: Draft, newer: CoverableResult) -> Operation[None]:
        """Write over a concurrent write which replaced ours, with a new run.

        The run is new because other clients may have seen and changed the old run.
        """
        self._learn(draft, newer)
        if draft.conflict is not None:
            return
        draft.ids = [self._ids.next() for _ in draft.ids]
        draft.run.clear()
        for position in range(len(draft.ids)):
            yield from self._create(draft, position)
        yield from self._publish(draft)

    def _name(self, draft: Draft) -> ObjectName:
        return (
            genesis_name(self.file)
            if draft.part is None
            else block_name(self.genesis.file, draft.part.id)
        )

    def _data(self, draft: Draft) -> bytes | memoryview:
        if draft.content is None and draft.kept_data is not None:
            return draft.kept_data
        chunk = draft.content or draft.kept_chunk
        return self.content.load(chunk) if chunk is not None else b""

    def _write(self, draft: Draft, data: bytes | memoryview) -> Operation[CoverableResult]:
        """Write the block with ``data``, or the genesis block that publishes the run.

        The run has been made before (ares/fragment/collect.py).
        """
        base = draft.version or TAG_ZERO
        if draft.part is not None:
            return self.blocks.write(
                self._name(draft),
                encode_block(Block(draft.next, base, self._now_s, data)),
                draft.version,
            )
        genesis = msgspec.structs.replace(
            self.genesis,
            first=draft.next,
            parts=self.hint(draft),
            modified_s=self._now_s,
            base=base,
        )
        return write_genesis(self.blocks, self.file, genesis, draft.version)

    def _is_there(self, draft: Draft, covered: CoverableResult) -> Operation[bool]:
        """Return whether the present block equals the block to be written.

        An earlier attempt with an unknown outcome may have written it, or another client made the
        same edit.
        """
        if not isinstance(covered.value, bytes):
            return False
        if draft.part is None:
            genesis = decode_genesis(covered.value, self._name(draft))
            same, next = (
                genesis.file == self.genesis.file and not genesis.atomic and bool(draft.ids),
                genesis.first,
            )
            written = KnownBlock(genesis.file, covered.tag, 0, digest(b""), next)
        else:
            block = decode_block(covered.value, self._name(draft))
            next = block.next
            written = KnownBlock(
                draft.part.id, covered.tag, len(block.data), digest(block.data), next
            )
            same = written.digest == digest(self._data(draft))
        run = (yield from self._run_from(next, draft)) if same else None
        if run is None:
            return False
        self.unused.extend(draft.run.values())
        draft.ids, draft.run = [part.id for part in run], dict(enumerate(run))
        draft.written = written
        return True

    def _run_from(self, first: BlockId | None, draft: Draft) -> Operation[list[KnownBlock] | None]:
        """Return the blocks from ``first`` on if they equal the draft's planned run, else None."""
        run: list[KnownBlock] = []
        for chunk in draft.new_chunks:
            if first is None:
                return None
            try:
                seen = yield from see_block(self.blocks, self.genesis, first, None, True)
            except BlockGone:
                return None
            if seen.part.digest != chunk.digest:
                return None
            run.append(seen.part)
            first = seen.part.next
        return run if first == draft.following else None

    def _learn(self, draft: Draft, covered: CoverableResult) -> None:
        """Take note of a newer version: continue over the version, or record a conflict."""
        if not isinstance(covered.value, bytes):
            draft.refuse(DELETED_MEANWHILE)
        elif draft.part is None:
            self._learn_genesis(draft, covered.value)
        else:
            block = decode_block(covered.value, self._name(draft))
            if not self.mine:
                draft.refuse(CHANGED_MEANWHILE, covered.tag, block)
            self.merged += draft.following != block.next
            draft.following = block.next
            if draft.content is None and not draft.empties:
                draft.kept_data = bytes(block.data)
        draft.version = covered.tag

    def _learn_genesis(self, draft: Draft, value: bytes) -> None:
        """Take note of a newer genesis block.

        Another client's hint is no obstacle; another client's file is an obstacle.
        """
        newer = decode_genesis(value, self._name(draft))
        if draft.version is None:
            draft.refuse(MADE_MEANWHILE)
        elif newer.file != self.genesis.file or newer.atomic:
            draft.refuse(REPLACED_MEANWHILE)
        elif newer.first != draft.following and not self.mine:
            draft.refuse(CHANGED_MEANWHILE)
        else:
            self.merged += draft.following != newer.first
            self.genesis, draft.following = newer, newer.first

    def _progress(self, stage: str, total: int, length: int = 0) -> Report:
        """Count a finished block which moved ``length`` bytes."""
        self.moved_bytes += length
        self._done[stage] += 1
        return Report(
            FileProgress(stage, self._done[stage], total, self.moved_bytes, self.moved_bytes)
        )

    # -- one more look -----------------------------------------------------------------------------

    def look_again(self) -> Operation[None]:
        """Read every written block, every other known block, and the genesis block."""
        unseen = (
            "the file was written, but whether it is the current version could not be read: read "
            "it, or put it again"
        )
        with effect(True, unseen) if self.drafts else nullcontext():
            yield Together(self._looks(), Pace(0, self.genesis.sizes.max).window)
            yield from self._look_at_genesis()

    def _looks(self) -> Iterator[Operation[None]]:
        for position, part in enumerate(self.base.parts):
            draft = self.drafts.get(position)
            if draft is None:
                yield self._look_at_other(part)
            elif draft.stands is not None:
                yield self._look_at_own(draft)

    def _look_at_other(self, part: KnownBlock) -> Operation[None]:
        found = yield from self.blocks.read(block_name(self.genesis.file, part.id), part.tag)
        self._block_gone |= found.value is TOMBSTONE
        self.merged += found.value is not WITHHELD and found.tag != part.tag
        yield self._progress("check", len(self.base.parts))

    def _look_at_own(self, draft: Draft) -> Operation[None]:
        for _ in range(RETRIES_MAX):
            assert draft.written is not None, "only what was written is looked at"
            name, tag = self._name(draft), draft.written.tag
            found = yield from self.blocks.read(name, tag)
            if found.value is WITHHELD or found.tag == tag:
                break
            if not isinstance(found.value, bytes):
                self._block_gone = True
                break
            block = decode_block(found.value, name)
            if builds_on(block.base, tag):
                break
            if not self.mine:
                draft.refuse(OVERTAKEN, found.tag, block)
                break
            yield from self._publish_over(draft, CoverableResult(False, found.tag, found.value))
            if draft.conflict is not None:
                break
        yield self._progress("check", len(self.base.parts))

    def _look_at_genesis(self) -> Operation[None]:
        name, draft = genesis_name(self.file), self.drafts.get(GENESIS)
        for _ in range(RETRIES_MAX):
            known = self.base.tag if draft is None or draft.written is None else draft.written.tag
            found = yield from self.blocks.read(name, known)
            genesis = decode_genesis(found.value, name) if isinstance(found.value, bytes) else None
            if genesis is not None and genesis.file != self.genesis.file:
                made = (
                    draft is not None
                    and draft.conflict is not None
                    and draft.conflict.why == MADE_MEANWHILE
                )
                return self._lose_all(MADE_MEANWHILE if made else REPLACED_MEANWHILE)
            if draft is not None and draft.conflict is not None and draft.conflict.whole_file:
                return self._lose_all(draft.conflict.why)
            if self._block_gone or found.value is TOMBSTONE:
                return self._lose_all(DELETED_MEANWHILE)
            if genesis is None or found.tag == known:
                return None
            if (
                draft is None
                or draft.written is None
                or draft.conflict is not None
                or builds_on(genesis.base, known)
            ):
                break
            yield from self._publish_over(draft, CoverableResult(False, found.tag, found.value))
        if genesis is not None and (draft is None or draft.stands is not None):
            self.merged += genesis.first != (
                self.base.genesis.first if draft is None else draft.next
            )
        return None

    def _lose_all(self, why: str) -> None:
        """Record that the file is gone, or (some block is gone) about to go."""
        for draft in self.drafts.values():
            draft.refuse(why)
        self._file_gone = Conflict(0, self.content.length, why)

    # -- the end -----------------------------------------------------------------------------------

    def drop_orphans(self) -> Operation[None]:
        """Delete new blocks that were never published.

        Blocks of an overtaken write stay for the collector: a third writer may be about to build on
        it.
        """
        unseen = [
            draft
            for draft in self.drafts.values()
            if draft.conflict is not None and draft.written is None
        ]
        parts = [*(part for draft in unseen for part in draft.run.values()), *self.unused]
        ids = [*(part.id for part in parts), *self.announced]
        yield from drop_blocks(self.blocks, [block_name(self.genesis.file, id) for id in ids])

    def refresh_hint(self) -> Operation[Tag]:
        """Return the genesis block's version known to the writer; a new version for a poor hint.

        The new version's number is below the number of any concurrent publication over the same
        version (``beside`` a mark), hence the hint hides no publication.
        """
        own = self.drafts.get(GENESIS)
        if own is not None and own.stands is not None:
            return own.stands.tag
        known = self.base.tag
        inserted = sum(len(draft.ids) for draft in self.drafts.values() if draft.stands is not None)
        if inserted < HINT_STALE_BLOCKS or self._file_gone is not None:
            return known
        genesis = msgspec.structs.replace(self.genesis, parts=self.hint(), base=known)
        try:
            covered = yield from write_genesis(
                self.blocks, self.file, genesis, known, known.number + 1
            )
        except Uncertain:
            return known  # only a hint
        return covered.tag if covered.changed else known

    def hint(self, publishing: Draft | None = None) -> tuple[KnownBlock, ...]:
        """Return the chain as this writer knows it, with the blocks of ``publishing``."""
        parts: list[KnownBlock] = []
        for position in range(GENESIS, len(self.base.parts)):
            draft = self.drafts.get(position)
            written = draft.stands if draft is not None else None
            if position != GENESIS:
                parts.append(written or self.base.parts[position])
            if draft is not None and (written is not None or draft is publishing):
                parts.extend(draft.run[place] for place in range(len(draft.ids)))
        return tuple(parts)

    def genesis_as_written(self) -> Genesis:
        """Return the genesis block as this writer knows it, without its hint."""
        own = self.drafts.get(GENESIS)
        if own is None or own.stands is None:
            return msgspec.structs.replace(self.base.genesis, parts=())
        return msgspec.structs.replace(
            self.genesis, first=own.next, parts=(), modified_s=self._now_s
        )

    def report(self) -> WriteReport:
        """Return the outcome of the update."""
        drafts, gone = self.drafts.values(), self._file_gone
        done = [draft for draft in drafts if draft.stands is not None]
        touched = sum(
            1
            for draft in drafts
            if draft.part is not None
            and draft.part.length
            and (draft.content is not None or draft.empties)
        )
        used = sum(1 for part in self.base.parts if part.length)
        conflicts = (
            [gone]
            if gone is not None
            else [draft.conflict for draft in drafts if draft.conflict is not None]
        )
        return WriteReport(
            kept=used - touched if gone is None else 0,
            modified=sum(1 for draft in done if draft.content is not None),
            inserted=sum(len(draft.ids) for draft in done),
            deleted=sum(1 for draft in done if draft.empties),
            moved_bytes=self.moved_bytes,
            merged=self.merged if gone is None else 0,
            conflicts=tuple(sorted(conflicts, key=lambda conflict: conflict.offset)),
        )
