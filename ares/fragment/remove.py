"""Deleting files: the genesis block first, which makes the file absent at once, then its blocks."""

from ares.fragment.block import BlockId, BlockIds, block_name, block_prefix, decode_block, genesis_name, mark_name
from ares.fragment.collect import GRACE_S
from ares.fragment.fencing import advance_mark, announce, announces_put
from ares.fragment.read import FileState, Nowhere, fm_read, read_genesis
from ares.fragment.replace import RETRIES_MAX
from ares.fragment.shared_memory import DELETIONS_MAX, Blocks, all_names
from ares.model.errors import BadBlock, DecodeFailed, FileChanged, ObjectNotFound, Uncertain
from ares.model.identity import ObjectName
from ares.model.value import TOMBSTONE
from ares.operation.effects import Operation, Together


def fm_remove(blocks: Blocks, file: str, ids: BlockIds, now_s: int) -> Operation[None]:
    """Delete a file: it is gone at once, then its blocks follow. Raises :class:`ObjectNotFound`. ``now_s``: seconds since the epoch.

    The tombstone is a fence: no put that died before brings the file back. And it is announced like a put, so that no other fence undoes it
    (ares/fragment/fencing.py). If its list cannot be decoded, nobody knows which blocks are its own: they are left to collection.
    """
    removed = False
    for _ in range(RETRIES_MAX):
        try:
            state = yield from _state(blocks, file)
            yield from announce(blocks, state.genesis.file, ids.next(), now_s, removal=True)
            yield from advance_mark(blocks, file, state.tag)
        except DecodeFailed:
            yield from blocks.delete(genesis_name(file))
            return
        except ObjectNotFound:
            if removed:
                return
            raise
        except Uncertain as error:
            error.may_have_taken_effect = removed
            raise
        covered = yield from blocks.write(genesis_name(file), TOMBSTONE, state.tag, beside=mark_name(file))
        if not covered.changed:
            continue
        removed = True
        try:
            gone = yield from _remove_rest(blocks, file, state, now_s)
        except Uncertain as error:
            error.may_have_taken_effect = True
            error.advice = "the file is deleted; what is left of its blocks takes space until it is collected"
            raise
        if gone:
            return
    raise FileChanged(file)


def _state(blocks: Blocks, file: str) -> Operation[FileState]:
    """The file and its blocks, as far as they can be read."""
    try:
        state = yield from fm_read(blocks, file, None, Nowhere())
    except BadBlock:
        genesis, tag = yield from read_genesis(blocks, file)
        state = FileState(genesis, tag, genesis.parts)
    return state


def _remove_rest(blocks: Blocks, file: str, state: FileState, now_s: int) -> Operation[bool]:
    """Delete the blocks of a file that is gone; False if it is not, since a write at the same time stands instead of the tombstone.

    Such a write may also land later. It looked at the genesis block before the tombstone was complete, and had a young block by then that the removed
    list does not name. So with such a block around nothing is deleted, and the write finds all that it lists; collection sees to what is left.
    """
    life = state.genesis.file
    there = yield from _is_there(blocks, file, life)
    if there:
        return False
    names = yield from all_names(blocks.names, block_prefix(life))
    own = {block_name(life, id) for id in (*(part.id for part in state.parts), *(id for id, _ in state.genesis.retired))}
    beside: list[ObjectName] = []

    def look(name: ObjectName) -> Operation[None]:
        try:
            found = yield from blocks.read(name)
            if not isinstance(found.value, bytes):
                return
            block = decode_block(found.value, name)
            if block.created_s > now_s - GRACE_S and announces_put(block, life):
                beside.append(name)
        except (BadBlock, DecodeFailed):  # as young as any, for all that is known
            beside.append(name)

    yield Together((look(name) for name in names if name not in own), DELETIONS_MAX)
    if not beside:
        yield Together((blocks.delete(name) for name in names), DELETIONS_MAX)
    there = yield from _is_there(blocks, file, life)
    return not there


def _is_there(blocks: Blocks, file: str, life: BlockId) -> Operation[bool]:
    """Whether the file still is the one that was to go."""
    try:
        genesis, _ = yield from read_genesis(blocks, file)
    except ObjectNotFound:
        return False
    return genesis.file == life
