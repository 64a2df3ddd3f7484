"""fm-update as a whole: make the new blocks, publish them, look once more, tidy up (ares/fragment/update.py has the phases).

Coverability is weak: of two writes that run at the same time over one version both may be told that they succeeded. So every written block is looked
at once more; if the version there does not build on ours, ours was replaced unseen, and that is a conflict, too. (A write that stays on its way
beyond that look can still replace one silently: ruling that out takes consensus.) The same look finds what others changed elsewhere, and whether the
file is there.
"""

from collections.abc import Iterator

import msgspec

from ares.fragment.block import BlockIds, Part, block_name, decode_block, decode_genesis, encode_genesis, genesis_name
from ares.fragment.edits import GENESIS, Content, Draft
from ares.fragment.pace import Pace
from ares.fragment.read import FileProgress, FileState, Nowhere, builds_on, fm_read
from ares.fragment.report import DELETED_MEANWHILE, MADE_MEANWHILE, OVERTAKEN, REPLACED_MEANWHILE, WHOLE_FILE, Conflict, WriteReport
from ares.fragment.shared_memory import Blocks, drop_blocks
from ares.fragment.update import RETRIES_MAX, Update
from ares.model.errors import ObjectNotFound, Uncertain
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import TOMBSTONE, WITHHELD
from ares.objects.coverable import Covered
from ares.operation.effects import Operation, Report, Together

HINT_STALE_BLOCKS = 16
"""After so many insertions the hint in the genesis block is written anew: readers who know nothing of the file find new blocks one by one otherwise.
"""


def fm_update(
    blocks: Blocks, file: str, base: FileState, content: Content, ids: BlockIds, now_s: int, *, mine: bool = False
) -> Operation[tuple[WriteReport, FileState]]:
    """Make the file hold ``content`` where that differs from ``base``, the file as the writer last saw it (tag t0: it is to be made).

    ``mine``: write over what others changed in the same blocks, too. The state returned is the base of the next update: where there was a conflict,
    or others changed a block that this writer did not, it is as before. ``now_s``: seconds since the epoch. An :class:`Uncertain` error says whether
    blocks may have been changed.
    """
    while True:
        update = Update(blocks, file, base, content, ids, now_s, mine)
        look = Look(update)
        yield from update.create_runs()
        yield from update.publish()
        yield from look.again()
        yield from look.drop_orphans()
        if not (mine and look.made_by_others):
            break
        try:
            base = yield from fm_read(blocks, file, None, Nowhere())
        except ObjectNotFound:  # made and deleted again: whoever did that may be deleting the blocks of that life of it yet
            base = msgspec.structs.replace(base, genesis=msgspec.structs.replace(base.genesis, file=ids.life(file)))
            continue
        if base.genesis.atomic:
            break
    tag = yield from look.refresh_hint()
    return look.report(), FileState(update.genesis_as_written(), tag, update.hint())


class Look:
    """The end of an update: what became of it."""

    def __init__(self, update: Update) -> None:
        self._update = update
        self._blocks = update.blocks
        self._checked = 0
        self._block_gone = False
        self._file_gone: Conflict | None = None

    @property
    def made_by_others(self) -> bool:
        """Whether the file was to be made, and somebody else did meanwhile."""
        own = self._update.drafts.get(GENESIS)
        return self._update.base.tag == TAG_ZERO and own is not None and own.conflict is not None

    def again(self) -> Operation[None]:
        """Look at every block that was written, at every other one that the writer knew, and at the genesis block."""
        try:
            yield Together(self._looks(), Pace(0, self._update.genesis.sizes.max).window)
            yield from self._look_at_genesis()
        except Uncertain as error:
            if self._update.drafts:
                error.may_have_taken_effect = True
                error.advice = "the file was written, but whether that stands could not be seen: read it, or put it again"
            raise

    def _looks(self) -> Iterator[Operation[None]]:
        for position, part in enumerate(self._update.base.parts):
            draft = self._update.drafts.get(position)
            if draft is None:
                yield self._look_at_other(part)
            elif draft.done:
                yield self._look_at_own(draft)

    def _look_at_other(self, part: Part) -> Operation[None]:
        found = yield from self._blocks.read(block_name(self._update.genesis.file, part.id), part.tag)
        self._block_gone |= found.value is TOMBSTONE
        self._update.merged += found.value is not WITHHELD and found.tag != part.tag
        yield self._looked()

    def _look_at_own(self, draft: Draft) -> Operation[None]:
        update = self._update
        for _ in range(RETRIES_MAX):
            assert draft.written is not None, "only what was written is looked at"
            name, tag = draft.name(update.file, update.genesis), draft.written.tag
            found = yield from self._blocks.read(name, tag)
            if found.value is WITHHELD or found.tag == tag:
                break
            if not isinstance(found.value, bytes):
                self._block_gone = True
                break
            block = decode_block(found.value, name)
            if builds_on(block.base, tag):
                break
            if not update.mine:
                draft.refuse(OVERTAKEN, found.tag, block)
                break
            yield from update.publish_over(draft, Covered(False, found.tag, found.value))
            if draft.conflict is not None:
                break
        yield self._looked()

    def _look_at_genesis(self) -> Operation[None]:
        update, name = self._update, genesis_name(self._update.file)
        draft = update.drafts.get(GENESIS)
        for _ in range(RETRIES_MAX):
            known = update.base.tag if draft is None or draft.written is None else draft.written.tag
            found = yield from self._blocks.read(name, known)
            genesis = decode_genesis(found.value, name) if isinstance(found.value, bytes) else None
            if genesis is not None and genesis.file != update.genesis.file:
                made = draft is not None and draft.conflict is not None and draft.conflict.why == MADE_MEANWHILE
                return self._lose_all(MADE_MEANWHILE if made else REPLACED_MEANWHILE)
            if draft is not None and draft.conflict is not None and draft.conflict.why in WHOLE_FILE:
                return self._lose_all(draft.conflict.why)
            if self._block_gone or found.value is TOMBSTONE:
                return self._lose_all(DELETED_MEANWHILE)
            if genesis is None or found.tag == known:
                return None
            if draft is None or draft.written is None or draft.conflict is not None or builds_on(genesis.base, known):
                break
            yield from update.publish_over(draft, Covered(False, found.tag, found.value))
        if genesis is not None and (draft is None or draft.done):
            update.merged += genesis.first != (update.base.genesis.first if draft is None else draft.next)
        return None

    def _lose_all(self, why: str) -> None:
        """The file is not there any more, or (some block is gone) is about to go."""
        for draft in self._update.drafts.values():
            draft.refuse(why)
        self._file_gone = Conflict(0, self._update.content.length, why)

    def _looked(self) -> Report:
        self._checked += 1
        total = len(self._update.base.parts)
        return Report(FileProgress("check", self._checked, total, self._update.moved_bytes, self._update.moved_bytes))

    def drop_orphans(self) -> Operation[None]:
        """Delete new blocks that were never published.

        Those of a write that took place and was overtaken stay for the collector: a third writer may be about to build on it.
        """
        unseen = [draft for draft in self._update.drafts.values() if draft.conflict is not None and draft.written is None]
        parts = [*(part for draft in unseen for part in draft.run.values()), *self._update.unused]
        ids = [*(part.id for part in parts), *self._update.announced]
        yield from drop_blocks(self._blocks, [block_name(self._update.genesis.file, id) for id in ids])

    def refresh_hint(self) -> Operation[Tag]:
        """The version of the genesis block that the writer knows; a new one if its hint had become poor.

        Its number is below that of whatever publishes something over the same version at the same time (``beside`` a mark), so it hides nothing.
        """
        update = self._update
        own = update.drafts.get(GENESIS)
        known = own.written.tag if own is not None and own.done and own.written is not None else update.base.tag
        inserted = sum(len(draft.ids) for draft in update.drafts.values() if draft.done)
        if inserted < HINT_STALE_BLOCKS or (own is not None and own.done) or self._file_gone is not None:
            return known
        genesis = msgspec.structs.replace(update.genesis, parts=update.hint(), base=known)
        try:
            covered = yield from self._blocks.write(genesis_name(update.file), encode_genesis(genesis), known, number=known.number + 1)
        except Uncertain:
            return known  # only a hint
        return covered.tag if covered.changed else known

    def report(self) -> WriteReport:
        """What became of it."""
        drafts = self._update.drafts.values()
        done = [draft for draft in drafts if draft.done]
        touched = sum(1 for draft in drafts if draft.part is not None and draft.part.length and (draft.content is not None or draft.empties))
        used = sum(1 for part in self._update.base.parts if part.length)
        conflicts = [self._file_gone] if self._file_gone is not None else [draft.conflict for draft in drafts if draft.conflict is not None]
        return WriteReport(
            kept=used - touched if self._file_gone is None else 0,
            modified=sum(1 for draft in done if draft.content is not None),
            inserted=sum(len(draft.ids) for draft in done),
            deleted=sum(1 for draft in done if draft.empties),
            moved_bytes=self._update.moved_bytes,
            merged=self._update.merged if self._file_gone is None else 0,
            conflicts=tuple(sorted(conflicts, key=lambda conflict: conflict.offset)),
        )
