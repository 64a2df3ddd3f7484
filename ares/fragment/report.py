"""The outcome of a write of a file."""

from msgspec import Struct

from ares.fragment.block import BlockId, KnownBlock

DELETED_MEANWHILE = "the file was deleted meanwhile"
REPLACED_MEANWHILE = "the whole file was replaced by another put meanwhile"
MADE_MEANWHILE = "another client made a file of this name meanwhile"
CHANGED_MEANWHILE = "another client changed it since the last read here"
OVERTAKEN = "a write that ran at the same time over the same version stands instead"


class Conflict(Struct, frozen=True):
    """A part of the writer's content, ``length`` bytes at ``offset``, which is not in the file.

    The part was refused, or was replaced after the write. ``theirs``: the newer content of the
    block; None without such content, because the file was deleted, replaced as a whole or made by
    another client. ``block``: the block of the write; None for the genesis block (content before
    the first block). ``version``: the block with content ``theirs``: a client that has seen this
    version may write over it next (:func:`ares.client.file.File.acknowledge`).
    """

    offset: int
    length: int
    why: str
    theirs: bytes | None = None
    block: BlockId | None = None
    version: KnownBlock | None = None

    @property
    def whole_file(self) -> bool:
        """Return whether the conflict concerns the file, not a block of the file."""
        return self.why in (MADE_MEANWHILE, REPLACED_MEANWHILE, DELETED_MEANWHILE)


class WriteReport(Struct, frozen=True):
    """The numbers of blocks, and of bytes sent as content, of a write.

    ``merged``: blocks changed by other clients and not by this writer; they keep the other clients'
    content, hence the file differs from the writer's content.
    """

    kept: int
    modified: int
    inserted: int
    deleted: int
    moved_bytes: int
    merged: int = 0
    conflicts: tuple[Conflict, ...] = ()

    def describe(self) -> str:
        """Describe the report in a line for a person."""
        text = (
            f"{self.kept} blocks kept, {self.modified} modified, {self.inserted} inserted, "
            f"{self.deleted} deleted"
        )
        if self.merged:
            text += f"; {self.merged} changed by other clients, kept unchanged"
        return text + (f"; {len(self.conflicts)} in conflict" if self.conflicts else "")
