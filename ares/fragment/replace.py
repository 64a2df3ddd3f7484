"""fm-put: the write of an atomic file, seen whole or not at all.

The file's blocks are written once, under new ids, and a single coverable write of the genesis block
publishes the list of all of them. Chunks already in the file keep their blocks. Blocks dropped from
the list by a put stay for REPLACE_GRACE_S, for readers that follow the old list and for puts about
to reuse them; a later put deletes them.
"""

from collections.abc import Callable, Sequence
from itertools import chain

import msgspec

from ares.engine.effects import Now, Operation, Report, Together
from ares.fragment.block import (
    BlockId,
    Genesis,
    KnownBlock,
    block_name,
    decode_genesis,
    genesis_name,
)
from ares.fragment.collect import announce
from ares.fragment.divide import Chunk, Content
from ares.fragment.read import FileProgress, FileState, builds_on
from ares.fragment.report import (
    DELETED_MEANWHILE,
    MADE_MEANWHILE,
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
from ares.model.errors import Uncertain
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import WITHHELD
from ares.registers.coverable import CoverableResult

REPLACE_GRACE_S = 900
"""Grace period, far longer than any operation takes between its first and its last message."""


class AtomicPut:
    """A put of an atomic file.

    ``base``: the file to be replaced; its blocks are reused if it is atomic itself. ``now_s``:
    seconds since the epoch; a long put sets the field again before ``publish``.
    """

    def __init__(self, target: FileTarget, base: FileState) -> None:
        self._blocks, file, ids, self.now_s = target
        self._file = file
        self._ids = ids
        self.base = base
        self._fresh = base.tag == TAG_ZERO or not base.genesis.atomic
        self.genesis = (
            msgspec.structs.replace(base.genesis, atomic=True, file=ids.life(file))
            if self._fresh
            else base.genesis
        )
        self._reusable = {} if self._fresh else {part.digest: part for part in base.parts}
        self._created: set[BlockId] = set()
        self._announcements: list[BlockId] = []
        self._mentioned = base.tag != TAG_ZERO
        self._placed: dict[int, KnownBlock] = {}
        self._visible = False
        self.kept = self.inserted = self.moved_bytes = self.length = 0
        self.pace = Pace(base.genesis.sizes.avg)

    def place(
        self, position: int, chunk: Chunk, load: Callable[[Chunk], bytes | memoryview]
    ) -> Operation[None]:
        """Make sure that a block holds this chunk, the chunk at ``position``."""
        part = self._reusable.get(chunk.digest)
        self.length += chunk.length
        if part is not None:
            self.kept += 1
        else:
            id = self._ids.next()
            creation = create_block(self._blocks, self.genesis.file, id, self.now_s, load(chunk))
            tag = yield from self.pace.timed(creation, chunk.length)
            part = self._reusable[chunk.digest] = KnownBlock(id, tag, chunk.length, chunk.digest)
            self._created.add(id)
            self.inserted += 1
            self.moved_bytes += chunk.length
        self._placed[position] = part
        yield Report(
            FileProgress(
                "write", len(self._placed), len(self._placed), self.length, self.moved_bytes
            )
        )

    def mention(self) -> Operation[None]:
        """Announce the file to collections: before its publication, and as early as possible.

        See ares/fragment/collect.py.
        """
        if not self._mentioned:
            with effect(False):
                yield from self._blocks.mention(genesis_name(self._file))
            self._mentioned = True

    def publish(self, mine: bool) -> Operation[tuple[WriteReport, FileState]]:
        """Replace the list: with ``mine`` whatever list is published now, without only ``base``."""
        yield from self.mention()
        parts = tuple(self._placed[position] for position in range(len(self._placed)))
        # a kept base has its blocks only in ``parts``
        over = msgspec.structs.replace(self.base.genesis, parts=self.base.parts)
        version = self.base.tag if self.base.tag != TAG_ZERO else None
        for attempt in range(RETRIES_MAX):
            if attempt or not self._created:
                # collections must see the coming publication, even with all blocks listed
                id = self._ids.next()
                with effect(False):
                    yield from announce(self._blocks, self.genesis.file, id, self.now_s)
                self._created.add(id)
                self._announcements.append(id)
            genesis = self._successor(over, version, parts)
            covered = yield from self._write(genesis, version)
            if covered.changed:
                yield from self._drop_expired(over, genesis)
                return self._report(parts), FileState(
                    msgspec.structs.replace(genesis, parts=()), covered.tag, parts
                )
            version = None
            if isinstance(covered.value, bytes):
                version = covered.tag
                over = decode_genesis(covered.value, genesis_name(self._file))
                if over.atomic and _contents(over.parts) == _contents(parts):
                    # an earlier attempt with unknown outcome succeeded
                    yield from self.abandon()
                    return self._report(over.parts), FileState(
                        msgspec.structs.replace(over, parts=()), covered.tag, over.parts
                    )
            # only the version differs
            fenced = over == msgspec.structs.replace(
                self.base.genesis, parts=self.base.parts, base=over.base
            )
            if not (mine or fenced) or self._lost(over, version, parts):
                break
        yield from self.abandon()
        why = (
            MADE_MEANWHILE
            if self.base.tag == TAG_ZERO
            else DELETED_MEANWHILE
            if version is None
            else REPLACED_MEANWHILE
        )
        return WriteReport(
            0, 0, 0, 0, self.moved_bytes, 0, (Conflict(0, self.length, why),)
        ), self.base

    def _write(self, genesis: Genesis, version: Tag | None) -> Operation[CoverableResult]:
        """Publish, and look: both of two puts over the same version may be told of success.

        ``changed``: this put stands.
        """
        name = genesis_name(self._file)
        try:
            covered = yield from write_genesis(self._blocks, self._file, genesis, version)
            if not covered.changed:
                return covered
            self._visible = True
            found = yield from self._blocks.read(name, covered.tag)
        except Uncertain as error:
            error.may_have_taken_effect |= self._visible
            self._visible |= error.may_have_taken_effect
            error.advice = (
                "the file has its old content or its new one, whole: read it, or put it again"
            )
            raise
        stands = found.value is WITHHELD or found.tag == covered.tag
        if stands or (
            isinstance(found.value, bytes)
            and builds_on(decode_genesis(found.value, name).base, covered.tag)
        ):
            return covered
        return CoverableResult(False, found.tag, found.value)

    def _successor(
        self, over: Genesis, version: Tag | None, parts: tuple[KnownBlock, ...]
    ) -> Genesis:
        """Return the genesis block that replaces ``over``."""
        listed = {part.id for part in parts}
        retired: dict[BlockId, int] = {}
        if over.file == self.genesis.file:
            retired = {part.id: self.now_s for part in over.parts if part.id not in listed}
            retired |= {
                id: since_s
                for id, since_s in over.retired
                if id not in listed and self.now_s - since_s < REPLACE_GRACE_S
            }
        retired |= dict.fromkeys(self._announcements, self.now_s)
        return msgspec.structs.replace(
            self.genesis,
            first=None,
            parts=parts,
            retired=tuple(retired.items()),
            modified_s=self.now_s,
            base=version or TAG_ZERO,
        )

    def _lost(self, over: Genesis, version: Tag | None, parts: Sequence[KnownBlock]) -> bool:
        """Return whether a reused block may be deleted already, or the whole file was."""
        if self._fresh and not self._visible:
            return False
        if version is None or over.file != self.genesis.file:
            return True
        kept = {id for id, since_s in over.retired if self.now_s - since_s < REPLACE_GRACE_S / 2}
        there = {part.id for part in over.parts} | kept | self._created
        return any(part.id not in there for part in parts)

    def _drop_expired(self, over: Genesis, now: Genesis) -> Operation[None]:
        """Delete the blocks retired long ago.

        A block which cannot be deleted now is collected later (ares/fragment/collect.py).
        """
        if over.file != now.file:
            return
        still = {id for id, _ in now.retired} | {part.id for part in now.parts}
        yield from drop_blocks(
            self._blocks, [block_name(now.file, id) for id, _ in over.retired if id not in still]
        )

    def abandon(self) -> Operation[None]:
        """Delete the made blocks, unless a list with them was ever published, for its readers.

        Idempotent.
        """
        if self._visible:
            return
        created, self._created = sorted(self._created), set()
        yield from drop_blocks(self._blocks, [block_name(self.genesis.file, id) for id in created])

    def _report(self, parts: Sequence[KnownBlock]) -> WriteReport:
        dropped = (
            0
            if self._fresh
            else len({part.id for part in self.base.parts} - {part.id for part in parts})
        )
        return WriteReport(self.kept, 0, self.inserted, dropped, self.moved_bytes)


def _contents(parts: Sequence[KnownBlock]) -> list[tuple[int, bytes]]:
    return [(part.length, part.digest) for part in parts]


def fm_put(
    target: FileTarget, base: FileState, content: Content, *, mine: bool = False
) -> Operation[tuple[WriteReport, FileState]]:
    """Replace the file by ``content``, wholly or not at all.

    With ``mine`` other clients' concurrent puts are replaced; without, they are a conflict.
    ``base``: the file as the writer last saw it (tag t0: the file is to be made). The returned
    state is the file's present state.
    """
    put = AtomicPut(target, base)
    began = yield Now()
    placements = (
        put.place(position, chunk, content.load) for position, chunk in enumerate(content.chunks)
    )
    with effect(False):
        yield Together(chain([put.mention()], placements), put.pace.window)
    ended = yield Now()
    put.now_s += int(ended - began)
    return (yield from put.publish(mine))
