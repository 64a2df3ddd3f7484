"""What is in a shared file in the end: the versions that led to it, and the tokens of every put.

Every block tells which version it was written over, so the version that stands in the end has a *lineage*, back to the creation of the block. A
version outside of it was replaced by a write over the same version at the same time (weak coverability), which its writer could not see in every
case: where a put lost one like that without being told, nothing is judged but the chain.

- Whatever the lineage of a block in the file ever pointed to, once it was published, is in the file.
- A token that a put without conflicts brought, and that no such put took out, is in the file once; one that such a put took out is not. Tokens in
  blocks that a put touched which had conflicts, or whose client died, may have got in, moved or gone or not; so may those in blocks that two puts
  changed in the same way.
"""

from collections import Counter
from collections.abc import Iterator

from ares.fragment.block import BlockId, block_name, decode_block, genesis_name
from ares.fragment.read import FileState
from ares.model.identity import ObjectName
from ares.model.tag import TAG_ZERO, Tag
from ares.testing.sim.chronicle import Chronicle, FileOperation
from ares.testing.sim.content import TOKEN_BYTES, tokens_of
from ares.testing.sim.files import content_of
from ares.testing.sim.invariants import Violation


def judge_end(chronicle: Chronicle, file: str) -> None:
    """Judge a file by the last get of it. Raises :class:`Violation`."""
    gets = [operation for operation in chronicle.operations if operation.file == file and operation.kind == "get" and operation.responded is not None]
    if not gets or gets[-1].state is None or gets[-1].state.genesis.atomic:
        return
    last = gets[-1].state
    lineages = {name: chronicle.lineage(name, tag) for name, tag in _standing(file, last)}
    _judge_pointers(chronicle, last, lineages)
    puts = [operation for operation in chronicle.operations if operation.file == file and operation.wanted is not None]
    removed = any(operation.file == file and operation.kind == "remove" for operation in chronicle.operations)
    if not removed and not any(_lost_unseen(put, lineages) or _went_over_others(put) for put in puts):
        _judge_tokens(chronicle, puts, gets[-1].content or b"")


def _standing(file: str, state: FileState) -> Iterator[tuple[ObjectName, Tag]]:
    yield genesis_name(file), state.tag
    for part in state.parts:
        yield block_name(state.genesis.file, part.id), part.tag


def _judge_pointers(chronicle: Chronicle, last: FileState, lineages: dict[ObjectName, list[Tag]]) -> None:
    """No pointer of a lineage leads out of the file."""
    reached = {part.id for part in last.parts}
    makers = {(block.name, block.tag): operation for operation in chronicle.operations for block in operation.writes}
    for name, lineage in lineages.items():
        creator = makers.get((name, lineage[-1])) if lineage else None
        published = True
        for newer, tag in zip([None, *lineage], lineage, strict=False):
            published = published and (newer is None or creator is None or makers.get((name, newer), creator) is not creator)
            pointer = _pointer(chronicle, name, tag, last)
            if published and pointer is not None and pointer not in reached:
                raise Violation(f"version {tag} of {name!r} pointed to {pointer}, which is not in the file any more")


def _pointer(chronicle: Chronicle, name: ObjectName, tag: Tag, last: FileState) -> BlockId | None:
    value = chronicle.values.get((name, tag))
    if not isinstance(value, bytes):
        return None
    genesis = chronicle.genesis(name, tag)
    if genesis is not None:
        return genesis.first if genesis.file == last.genesis.file else None
    return decode_block(value, name).next


def _lost_unseen(put: FileOperation, lineages: dict[ObjectName, list[Tag]]) -> bool:
    """Whether something that the put published, and does not know to be lost, does not stand in the end."""
    if put.report is None or put.base is None:
        return False
    refused = {conflict.block for conflict in put.report.conflicts}
    published = {block_name(put.base.genesis.file, part.id) for part in put.base.parts if part.id not in refused}
    if None not in refused:
        published.add(genesis_name(put.file))
    newest = {block.name: block.tag for block in put.writes if block.name in published}
    return any(tag not in lineages.get(name, []) for name, tag in newest.items())


def _went_over_others(put: FileOperation) -> bool:
    """Whether it may have covered versions that its client had not seen."""
    if not put.mine or put.base is None:
        return False
    seen: set[tuple[ObjectName, Tag | None]] = {(block_name(put.base.genesis.file, part.id), part.tag) for part in put.base.parts}
    seen |= {(genesis_name(put.file), put.base.tag)}
    seen |= {(block.name, block.tag) for block in put.writes}
    return put.responded is None or any(block.base != TAG_ZERO and (block.name, block.base) not in seen for block in put.writes)


def _judge_tokens(chronicle: Chronicle, puts: list[FileOperation], content: bytes) -> None:
    brought: set[bytes] = set()
    taken: set[bytes] = set()
    unsure: set[bytes] = set()
    touched: set[BlockId] = set()
    states: list[FileState] = []
    for put in puts:
        assert put.base is not None
        assert put.wanted is not None
        seen = chronicle.content(put.base)
        if seen is None:
            return
        before, after = set(tokens_of(seen)), set(tokens_of(put.wanted))
        states.append(put.base)
        if put.report is None or put.report.conflicts:
            unsure |= (before ^ after) | _in_new_chunks(put.base, put.wanted)
            touched |= _touched(put.base, put.wanted)
        else:
            brought |= after - before
            taken |= before - after
            touched |= _found_as_wanted(put)
            states.extend([put.state] if put.state is not None else [])
    for state in states:
        unsure |= _in_blocks(chronicle, state, touched)
    there = Counter(tokens_of(content))
    for token in sorted(brought - unsure):
        count, due = there[token], token not in taken
        if count != due:
            raise Violation(f"token {token!r} is in the file {count} times, and should be there {'once' if due else 'no more'}")


def _in_new_chunks(base: FileState, wanted: bytes) -> set[bytes]:
    known = {part.digest for part in base.parts}
    new = [chunk for chunk in content_of(wanted).chunks if chunk.digest not in known]
    return {token for chunk in new for token in _around(wanted, chunk.offset, chunk.length)}


def _touched(base: FileState, wanted: bytes) -> set[BlockId]:
    """Blocks that a put was to change."""
    kept = {chunk.digest for chunk in content_of(wanted).chunks}
    return {part.id for part in base.parts if part.digest not in kept}


def _found_as_wanted(put: FileOperation) -> set[BlockId]:
    """Blocks that somebody else had changed as this put was to: no conflict, though what it moved from there the other may have deleted."""
    assert put.base is not None
    assert put.state is not None
    known = {(part.id, part.tag) for part in put.base.parts}
    own = {(block.name, block.tag) for block in put.writes}
    file = put.state.genesis.file
    return {part.id for part in put.state.parts if (part.id, part.tag) not in known and (block_name(file, part.id), part.tag) not in own}


def _in_blocks(chronicle: Chronicle, state: FileState, ids: set[BlockId]) -> set[bytes]:
    """The tokens that the file had at least a byte of in one of these blocks."""
    content, offset, found = chronicle.content(state) or b"", 0, set()
    for part in state.parts:
        if part.id in ids:
            found |= _around(content, offset, part.length)
        offset += part.length
    return found


def _around(content: bytes, offset: int, length: int) -> set[bytes]:
    return set(tokens_of(content[max(offset - TOKEN_BYTES + 1, 0) : offset + length + TOKEN_BYTES - 1]))
