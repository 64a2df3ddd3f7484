"""Deleting files: the genesis block first, which makes the file absent at once, then its blocks."""

from ares.effects import Operation, Together
from ares.errors import DecodeFailed, FileChanged, ObjectNotFound, Uncertain
from ares.fragment.block import BlockIds, Genesis, block_prefix, genesis_name, mark_name
from ares.fragment.fencing import advance_mark, announce
from ares.fragment.memory import DELETIONS_MAX, Blocks, all_names
from ares.fragment.publishing import RETRIES_MAX
from ares.fragment.reading import read_genesis
from ares.tag import Tag
from ares.value import TOMBSTONE


def fm_remove(blocks: Blocks, file: str, ids: BlockIds, now_s: int) -> Operation[None]:
    """Delete a file: it is gone at once, then its blocks follow. Raises :class:`ObjectNotFound`. ``now_s``: seconds since the epoch.

    The tombstone is a fence: no put that died before brings the file back. And it is announced like a put, so that no other fence undoes it
    (ares/fragment/fencing.py). If its genesis block cannot be decoded, nobody knows which blocks are its own: they are left to collection.
    """
    try:
        genesis, tag = yield from read_genesis(blocks, file)
    except DecodeFailed:
        yield from blocks.delete(genesis_name(file))
        return
    for _ in range(RETRIES_MAX):
        yield from announce(blocks, genesis.file, ids.next(), now_s)
        yield from advance_mark(blocks, file, tag)
        covered = yield from blocks.write(genesis_name(file), TOMBSTONE, tag, beside=mark_name(file))
        if not covered.changed:
            genesis, tag = yield from read_genesis(blocks, file)
            continue
        try:
            newer = yield from _remove_rest(blocks, file, genesis)
        except Uncertain as error:
            error.may_have_taken_effect = True
            error.advice = "the file is deleted; what is left of its blocks takes space until it is collected"
            raise
        if newer is None:
            return
        genesis, tag = newer
    raise FileChanged(file)


def _remove_rest(blocks: Blocks, file: str, gone: Genesis) -> Operation[tuple[Genesis, Tag] | None]:
    """Delete the blocks of a file that is gone. If it is not, since a write at the same time stands instead of the tombstone: the file as it is.

    Such a write may land while the blocks are being deleted, hence the second look; one that lands later sees that they are
    (ares/fragment/publishing.py).
    """
    there = yield from _alive(blocks, file, gone)
    if there is None:
        names = yield from all_names(blocks.names, block_prefix(gone.file))
        yield Together((blocks.delete(name) for name in names), DELETIONS_MAX)
        there = yield from _alive(blocks, file, gone)
    return there


def _alive(blocks: Blocks, file: str, gone: Genesis) -> Operation[tuple[Genesis, Tag] | None]:
    """The file, if it still is the one that was to go."""
    try:
        genesis, tag = yield from read_genesis(blocks, file)
    except ObjectNotFound:
        return None
    return (genesis, tag) if genesis.file == gone.file else None
