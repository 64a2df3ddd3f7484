"""What became of a write of a file."""

from msgspec import Struct

from ares.fragment.block import BlockId, Part

DELETED_MEANWHILE = "the file was deleted meanwhile"
REPLACED_MEANWHILE = "the whole file was replaced by another put meanwhile"
MADE_MEANWHILE = "somebody else made a file of this name meanwhile"
CHANGED_MEANWHILE = "somebody else changed it since it was last read here"
OVERTAKEN = "a write that ran at the same time over the same version stands instead"


class Conflict(Struct, frozen=True):
    """``length`` bytes at ``offset`` of the writer's content that did not get in, or stand no more.

    ``theirs``: the newer content of that block; None when there is none, because the file was deleted, replaced as a whole or made by somebody else.
    ``block``: whose write it was; None for the genesis block (what was to be put before everything else). ``version``: the block as ``theirs`` has
    it: a client that has seen it may write over it next (:func:`ares.client.file.File.acknowledge`).
    """

    offset: int
    length: int
    why: str
    theirs: bytes | None = None
    block: BlockId | None = None
    version: Part | None = None

    @property
    def whole_file(self) -> bool:
        """Whether it concerns the file, and not a block of it."""
        return self.why in (MADE_MEANWHILE, REPLACED_MEANWHILE, DELETED_MEANWHILE)


class WriteReport(Struct, frozen=True):
    """Counts of blocks, and of bytes that were sent as content.

    ``merged``: blocks that others changed and this writer did not; they stay as the others made them, so the file is not what the writer has.
    """

    kept: int
    modified: int
    inserted: int
    deleted: int
    moved_bytes: int
    merged: int = 0
    conflicts: tuple[Conflict, ...] = ()

    def describe(self) -> str:
        """One line for a person."""
        told = f"{self.kept} blocks kept, {self.modified} modified, {self.inserted} inserted, {self.deleted} deleted"
        if self.merged:
            told += f"; {self.merged} changed by others, kept as they are"
        return told + (f"; {len(self.conflicts)} in conflict" if self.conflicts else "")
