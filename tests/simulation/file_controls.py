"""Negative controls for files: broken variants of ares/fragment (CoARESF).

The simulator must catch each variant.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from ares.engine.effects import Operation, Together
from ares.fragment import collect as collection
from ares.fragment import read as reading
from ares.fragment.block import block_name, parse_block_name
from ares.fragment.read import BlockGone, BlockList, FileState, ReadBlock, read_genesis
from ares.fragment.replace import AtomicPut
from ares.fragment.shared_memory import Blocks, drop_blocks
from ares.fragment.update import Update
from ares.model.errors import ObjectNotFound
from ares.model.identity import ClientId
from ares.model.tag import Tag
from ares.registers.coverable import CoverableResult
from tests.simulation.coverable_controls import unchecked_write


@contextmanager
def _all(*patches: Any) -> Iterator[None]:
    with ExitStack() as stack:
        for one in patches:
            stack.enter_context(one)
        yield


class Late:
    """Blocks that are created at ``flush``; their tags are returned at once."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._waiting: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blocks, name)

    def create(self, name: Any, value: bytes) -> Operation[Tag]:
        self._waiting.append(self._blocks.create(name, value))
        return Tag(1, ClientId(parse_block_name(name)[1].creator))
        yield

    def flush(self) -> Operation[None]:
        yield Together((_discard(creation) for creation in self._waiting), 100)


def _discard(creation: Operation[Tag]) -> Operation[None]:
    yield from creation


def files_written_without_a_look_at_versions() -> Any:
    """Write the blocks of a file over any latest version."""
    return patch("ares.fragment.shared_memory.cvr_write", unchecked_write)


def puts_that_go_over_what_nobody_saw() -> Any:
    """Make a put overwrite for all users as it should only for ``mine``."""
    learn = Update._learn

    def learn_and_go_on(self: Update, draft: Any, covered: CoverableResult) -> None:
        self.mine = True
        learn(self, draft, covered)

    return patch.object(Update, "_learn", learn_and_go_on)


def runs_published_before_they_are_there() -> Any:
    """Write the predecessor first, and the new blocks of its pointers later."""
    create_runs, publish = Update.create_runs, Update.publish

    def create_later(self: Update) -> Operation[None]:
        self.blocks, blocks = Late(self.blocks), self.blocks
        yield from create_runs(self)
        self.late, self.blocks = self.blocks, blocks

    def publish_first(self: Update) -> Operation[None]:
        yield from publish(self)
        yield from self.late.flush()

    return _all(
        patch.object(Update, "create_runs", create_later),
        patch.object(Update, "publish", publish_first),
    )


def overtaken_runs_that_are_deleted() -> Any:
    """Make an overtaken writer delete the run that it published.

    A third writer may be building on the run. This is too rare for the simulator:
    test_overtaken_runs.py.
    """

    def drop_orphans(self: Update) -> Operation[None]:
        parts = [
            part
            for draft in self.drafts.values()
            if draft.conflict is not None
            for part in draft.run.values()
        ]
        yield from drop_blocks(
            self.blocks, [block_name(self.genesis.file, part.id) for part in parts]
        )

    return patch.object(Update, "drop_orphans", drop_orphans)


def overtaken_writes_that_are_not_told() -> Any:
    """Make a writer believe that each version found is built upon the writer's own."""
    return patch("ares.fragment.update.builds_on", lambda base, version: True)


def conflicts_that_are_not_told() -> Any:
    """Leave conflicts out of the report."""
    report = Update.report
    return patch.object(
        Update, "report", lambda self: msgspec.structs.replace(report(self), conflicts=())
    )


def readers_that_do_not_ask() -> Any:
    """Make a reader trust remembered blocks."""
    see_block = reading.see_block

    def remember(
        blocks: Any, genesis: Any, id: Any, known: Any, wanted: bool
    ) -> Operation[ReadBlock]:
        if known is not None and not wanted:
            return ReadBlock(known, None)
        seen = yield from see_block(blocks, genesis, id, known, wanted)
        return seen

    return patch.object(reading, "see_block", remember)


def lists_published_before_their_blocks() -> Any:
    """Write an atomic file's list first, and the blocks later."""
    publish, init = AtomicPut.publish, AtomicPut.__init__

    def init_late(self: AtomicPut, blocks: Any, *arguments: Any) -> None:
        self.late = Late(blocks)
        init(self, self.late, *arguments)

    def publish_first(self: AtomicPut, overwrite: bool) -> Operation[Any]:
        result = yield from publish(self, overwrite)
        yield from self.late.flush()
        return result

    return _all(
        patch.object(AtomicPut, "__init__", init_late),
        patch.object(AtomicPut, "publish", publish_first),
    )


def retired_blocks_deleted_at_once() -> Any:
    """Delete at once the blocks that a put drops from the list of an atomic file.

    A reader of the old list, or a put that is about to use a block again, finds no block.
    """

    def drop_expired(self: AtomicPut, over: Any, now: Any) -> Operation[None]:
        listed = {part.id for part in now.parts}
        yield from drop_blocks(
            self._blocks,
            [block_name(now.file, part.id) for part in over.parts if part.id not in listed],
        )

    return patch.object(AtomicPut, "_drop_expired", drop_expired)


def readers_that_pass_over_what_is_gone() -> Any:
    """Delete retired blocks at once, and make a reader skip a deleted block."""
    see = BlockList._see

    def see_or_pass(self: BlockList, id: Any, known: Any) -> Operation[ReadBlock]:
        try:
            seen = yield from see(self, id, known)
        except BlockGone:
            return ReadBlock(known, memoryview(b""))
        return seen

    return _all(retired_blocks_deleted_at_once(), patch.object(BlockList, "_see", see_or_pass))


def collectors_that_believe_the_hint() -> Any:
    """Take the chain in the genesis block's hint for the true chain."""

    def read_hint(self: collection.Collection, file: str) -> Operation[FileState | None]:
        try:
            genesis, tag = yield from read_genesis(self._blocks, file)
        except ObjectNotFound:
            return None
        return FileState(genesis, tag, genesis.parts)

    return patch.object(collection.Collection, "_state", read_hint)


def collectors_that_leave_orphans() -> Any:
    """Never collect blocks of existing files."""
    return patch.object(collection.Collection, "sort", lambda self, found: None)


def puts_that_do_not_look_at_the_mark() -> Any:
    """Make a put publish under the next number, without a look at the fence's mark.

    This control and the next two need an order of messages that is too rare for the simulator:
    tests/protocol/test_fences.py.
    """
    write = Blocks.write

    def write_alone(
        self: Blocks, name: Any, value: Any, version: Any, *, number: int = 0, beside: Any = None
    ) -> Operation[CoverableResult]:
        return write(self, name, value, version, number=number)

    return patch.object(Blocks, "write", write_alone)


def fences_beside_young_blocks() -> Any:
    """Make a collection leave young blocks alone, and fence the file all the same."""
    are_old = collection.Collection._are_old

    def leave_the_young(
        self: collection.Collection, names: Any, orphans: dict[Any, Any]
    ) -> Operation[bool]:
        yield from are_old(self, names, orphans)
        for name in [name for name, orphan in orphans.items() if orphan.created_s > self._before_s]:
            del orphans[name]
        return True

    return patch.object(collection.Collection, "_are_old", leave_the_young)


def collections_without_a_fence() -> Any:
    """Empty the blocks of dead puts without a fence.

    A dead put's list at a server is found later.
    """

    def no_fence(
        self: collection.Collection, file: str, life: Any, orphans: Any
    ) -> Operation[bool]:
        return True
        yield

    return patch.object(collection.Collection, "_fence", no_fence)


FILE_CONTROLS: dict[str, tuple[Callable[[], Any], str]] = {
    "files written without a look at versions": (files_written_without_a_look_at_versions, "files"),
    "puts that go over what nobody saw": (puts_that_go_over_what_nobody_saw, "files"),
    "runs published before they are there": (runs_published_before_they_are_there, "files"),
    "overtaken writes that are not told": (overtaken_writes_that_are_not_told, "files"),
    "conflicts that are not told": (conflicts_that_are_not_told, "files"),
    "readers that do not ask": (readers_that_do_not_ask, "files"),
    "lists published before their blocks": (lists_published_before_their_blocks, "atomic"),
    "retired blocks deleted at once": (retired_blocks_deleted_at_once, "atomic"),
    "readers that pass over what is gone": (readers_that_pass_over_what_is_gone, "atomic"),
    "collectors that believe the hint": (collectors_that_believe_the_hint, "files"),
    "collectors that leave orphans": (collectors_that_leave_orphans, "files"),
}
"""Controls by name: the change, and the best scenario to show it."""
