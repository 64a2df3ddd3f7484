"""How a collection or a removal keeps what lies about of dead puts from coming back, without ever undoing the put of somebody alive.

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
lists the blocks after the tombstone is complete, finds that one, and deletes nothing (ares/fragment/remove.py).

*A hint hides nothing.* What is written for convenience (a new hint in the genesis block of a shared file) has the number right above its version, and
whatever publishes something over that version at the same time is two above it.

What is old is told by the clocks of clients, so the grace must exceed the longest put and the difference of the clocks.
"""

from ares.fragment.block import Block, BlockId, block_name, encode_block, mark_name
from ares.fragment.shared_memory import Blocks
from ares.model.tag import TAG_ZERO, Tag
from ares.operation.effects import Operation

FENCE_AHEAD = 1 << 20
"""More than the attempts that a client makes to write one version. Tags have room for 2^28 fences of a file (docs/limits.md)."""


def announce(blocks: Blocks, file: BlockId, id: BlockId, now_s: int, removal: bool = False) -> Operation[None]:
    """Make an empty block for a put that has made no other, or for a ``removal``, whose block points to the file."""
    yield from blocks.create(block_name(file, id), encode_block(Block(file if removal else None, TAG_ZERO, now_s, b"")))


def is_announcement(block: Block) -> bool:
    """Whether this is the empty block of :func:`announce`, and not one that a collection emptied."""
    return not len(block.data) and block.base == TAG_ZERO


def announces_put(block: Block, file: BlockId) -> bool:
    """Whether this block, which no list names, may be of a put that is about to publish."""
    return not is_announcement(block) or block.next != file


def advance_mark(blocks: Blocks, file: str, version: Tag) -> Operation[int]:
    """Move the mark of a file whose genesis block is at ``version``; the number m of the fence."""
    mark = yield from blocks.advance(mark_name(file), version.number, FENCE_AHEAD)
    return mark.number
