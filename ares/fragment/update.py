"""fm-update: write what changed of a file with mutable blocks (CoBFS, "write"; ARES II section 3, Extension 2).

The new content, cut into chunks, is matched against the blocks that the writer last saw. A changed chunk is one coverable write of its block; a run
of new chunks becomes blocks that nobody can see until one coverable write of their predecessor points to the first; a chunk that is gone leaves an
empty block, which stays linked and is used again. A coverable write that comes back unchanged means that somebody else changed that block since:
nothing is overwritten, and the caller is told (a :class:`Conflict`); with ``mine`` it is repeated over the newer version. Different blocks never get
in each other's way.

A writer that dies leaves the file in its old state, or in a partly new one, block by block; what nobody points to is collected
(ares/fragment/collect.py).
"""

from collections.abc import Iterator

import msgspec

from ares.fragment.block import (
    Block,
    BlockId,
    BlockIds,
    Genesis,
    Part,
    block_name,
    decode_block,
    decode_genesis,
    encode_block,
    genesis_name,
    mark_name,
)
from ares.fragment.divide import digest
from ares.fragment.edits import GENESIS, Content, Draft
from ares.fragment.fencing import announce
from ares.fragment.match import Edit, match
from ares.fragment.pace import Pace
from ares.fragment.read import BlockGone, FileProgress, FileState, see_block
from ares.fragment.report import CHANGED_MEANWHILE, DELETED_MEANWHILE, MADE_MEANWHILE, REPLACED_MEANWHILE
from ares.fragment.shared_memory import Blocks
from ares.model.errors import Uncertain
from ares.model.tag import TAG_ZERO
from ares.objects.coverable import Covered
from ares.operation.effects import Now, Operation, Report, Together

RETRIES_MAX = 100
"""How often ``mine`` writes over newer versions of one block; each time somebody else's write made progress."""


class Update:
    """One update, phase by phase. ``base``: the file as the writer last saw it, with tag t0 if it is to be made. ``now_s``: seconds since the epoch.

    ``merged``: blocks that others changed and this writer did not. ``unused``: blocks that were made and that nobody can see. ``announced``: the
    empty one of a file without any.
    """

    def __init__(self, blocks: Blocks, file: str, base: FileState, content: Content, ids: BlockIds, now_s: int, mine: bool) -> None:
        self.blocks = blocks
        self.file = file
        self.base = base
        self.content = content
        self.genesis = base.genesis
        self._ids = ids
        self._now_s = now_s
        self.mine = mine
        self.merged = self.moved_bytes = 0
        self.unused: list[Part] = []
        self.announced: list[BlockId] = []
        self._done = self._done_bytes = 0
        matching = match([(part.length, part.digest) for part in base.parts], [(chunk.length, chunk.digest) for chunk in content.chunks])
        kept = {old: content.chunks[new] for old, new in matching.kept}
        edits = {edit.block: edit for edit in matching.edits}
        if base.tag == TAG_ZERO:
            edits.setdefault(GENESIS, Edit(GENESIS, None, False, (0, 0)))
        self.drafts = {
            edit.block: Draft(edit, base, content, [ids.next() for _ in range(*edit.insert)], kept.get(edit.block)) for edit in edits.values()
        }
        sizes = [chunk.length for draft in self.drafts.values() for chunk in draft.new_chunks]
        self._pace = Pace(max(sizes, default=base.genesis.sizes.avg))
        self._total = len(sizes) + len(self.drafts)

    # -- new blocks ---------------------------------------------------------------------------------------------------------

    def create_runs(self) -> Operation[None]:
        """Make the new blocks, which nobody can see yet. Of a file that is to be made, collections must know the name before it is published."""
        try:
            yield Together(self._creations(), self._pace.window)
        except Uncertain as error:
            error.may_have_taken_effect = False
            raise

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
        id, chunk, following = draft.ids[position], draft.new_chunks[position], draft.next_in_run(position)
        value = encode_block(Block(following, TAG_ZERO, self._now_s, self.content.load(chunk)))
        started = yield Now()
        tag = yield from self.blocks.create(block_name(self.genesis.file, id), value)
        ended = yield Now()
        self._pace.done(ended - started, chunk.length)
        draft.run[position] = Part(id, tag, chunk.length, chunk.digest, following)
        yield self._moved(chunk.length)

    def _relink(self, draft: Draft) -> Operation[None]:
        """What follows the run is another block now: write its last block anew, which nobody can see yet."""
        position = len(draft.ids) - 1
        last = draft.run[position]
        if last.next == draft.following:
            return
        value = encode_block(Block(draft.following, last.tag, self._now_s, self.content.load(draft.new_chunks[position])))
        covered = yield from self.blocks.write(block_name(self.genesis.file, last.id), value, last.tag)
        draft.run[position] = Part(last.id, covered.tag, last.length, last.digest, draft.following)

    # -- publishing ---------------------------------------------------------------------------------------------------------

    def publish(self) -> Operation[None]:
        """Write every block that changes, or gets something new behind it."""
        try:
            yield Together((self.publish_again(draft) for draft in self.drafts.values()), self._pace.window)
        except Uncertain as error:
            error.may_have_taken_effect = True
            error.advice = "some blocks of the file may have their new content, others not: put it again"
            raise

    def publish_again(self, draft: Draft) -> Operation[None]:
        """Write the block over the version that is known of it; over newer ones, too, where that is wanted."""
        for _ in range(RETRIES_MAX):
            data = self._data(draft)
            value = draft.encoded(data, self._now_s) if draft.part is not None else draft.encoded_genesis(self.genesis, self.hint(draft), self._now_s)
            started = yield Now()
            mark = mark_name(self.file) if draft.part is None else None  # what the list publishes has been made: ares/fragment/fencing.py
            covered = yield from self.blocks.write(draft.name(self.file, self.genesis), value, draft.version, beside=mark)
            ended = yield Now()
            self._pace.done(ended - started, len(data))
            if covered.changed:
                id = draft.part.id if draft.part is not None else self.genesis.file
                draft.written = Part(id, covered.tag, len(data), digest(data), draft.next)
                yield self._moved(len(data))
                return
            there = yield from self._is_there(draft, covered)
            if there:
                return
            self._learn(draft, covered)
            if draft.conflict is not None:
                return
            if draft.ids:
                yield from self._relink(draft)
        draft.refuse(f"others changed it {RETRIES_MAX} times meanwhile")

    def publish_over(self, draft: Draft, newer: Covered) -> Operation[None]:
        """A write over the same version replaced ours: write over it, too. The run is made anew, since others may have seen and changed the old
        one."""
        self._learn(draft, newer)
        if draft.conflict is not None:
            return
        draft.ids = [self._ids.next() for _ in draft.ids]
        draft.run.clear()
        for position in range(len(draft.ids)):
            yield from self._create(draft, position)
        yield from self.publish_again(draft)

    def _is_there(self, draft: Draft, covered: Covered) -> Operation[bool]:
        """Whether what is there is what was to be written: by an earlier attempt whose outcome nobody was told, or as somebody else's same edit."""
        if not isinstance(covered.value, bytes):
            return False
        if draft.part is None:
            genesis = decode_genesis(covered.value, draft.name(self.file, self.genesis))
            same, next = genesis.file == self.genesis.file and not genesis.atomic and bool(draft.ids), genesis.first
            written = Part(genesis.file, covered.tag, 0, digest(b""), next)
        else:
            block = decode_block(covered.value, draft.name(self.file, self.genesis))
            next = block.next
            written = Part(draft.part.id, covered.tag, len(block.data), digest(block.data), next)
            same = written.digest == digest(self._data(draft))
        if not same:
            return False
        run = yield from self._run_from(next, draft)
        if run is None:
            return False
        self.unused.extend(draft.run.values())
        draft.ids, draft.run = [part.id for part in run], dict(enumerate(run))
        draft.written = written
        return True

    def _run_from(self, first: BlockId | None, draft: Draft) -> Operation[list[Part] | None]:
        """The blocks from ``first`` on, if they are what the run of the draft was to be, and nothing else."""
        run: list[Part] = []
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

    def _data(self, draft: Draft) -> bytes | memoryview:
        if draft.content is not None:
            return self.content.load(draft.content)
        if draft.kept_data is not None:
            return draft.kept_data
        return self.content.load(draft.kept_chunk) if draft.kept_chunk is not None else b""

    def _learn(self, draft: Draft, covered: Covered) -> None:
        """A newer version is there: go on over it, or see that there is a conflict."""
        if not isinstance(covered.value, bytes):
            draft.refuse(DELETED_MEANWHILE)
        elif draft.part is None:
            self._learn_genesis(draft, covered.value)
        else:
            block = decode_block(covered.value, draft.name(self.file, self.genesis))
            if not self.mine:
                draft.refuse(CHANGED_MEANWHILE, covered.tag, block)
            self.merged += draft.following != block.next
            draft.following = block.next
            if draft.content is None and not draft.empties:
                draft.kept_data = bytes(block.data)
        draft.version = covered.tag

    def _learn_genesis(self, draft: Draft, value: bytes) -> None:
        """Somebody else's hint is no obstacle; somebody else's file is one."""
        newer = decode_genesis(value, draft.name(self.file, self.genesis))
        if draft.version is None:
            draft.refuse(MADE_MEANWHILE)
        elif newer.file != self.genesis.file or newer.atomic:
            draft.refuse(REPLACED_MEANWHILE)
        elif newer.first != draft.following and not self.mine:
            draft.refuse(CHANGED_MEANWHILE)
        else:
            self.merged += draft.following != newer.first
            self.genesis, draft.following = newer, newer.first

    def _moved(self, length: int) -> Report:
        self.moved_bytes += length
        self._done += 1
        return Report(FileProgress("write", self._done, self._total, self.moved_bytes, self.moved_bytes))

    # -- what is there now --------------------------------------------------------------------------------------------------

    def genesis_as_written(self) -> Genesis:
        """The genesis block as this writer knows it, without its hint."""
        own = self.drafts.get(GENESIS)
        if own is None or not own.done:
            return msgspec.structs.replace(self.base.genesis, parts=())
        return msgspec.structs.replace(self.genesis, first=own.next, parts=(), modified_s=self._now_s)

    def hint(self, publishing: Draft | None = None) -> tuple[Part, ...]:
        """The chain as this writer knows it, with what is published, or being published."""
        parts: list[Part] = []
        for position in range(GENESIS, len(self.base.parts)):
            draft = self.drafts.get(position)
            done = draft is not None and (draft.done or draft is publishing)
            if position != GENESIS:
                parts.append(draft.written if draft is not None and draft.done and draft.written is not None else self.base.parts[position])
            if draft is not None and done:
                parts.extend(draft.created())
        return tuple(parts)
