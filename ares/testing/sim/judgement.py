"""A check that the promises about files were kept, from the answers that clients got.

The blocks are judged separately before (ares/testing/sim/run.py). For shared files, beyond the
coverability of every block:

- a *get* returns whole blocks as written, at versions told during the get, linked in order, each
  once;
- a *list* of blocks, in a genesis block or in a client's memory, never lies about the named
  versions;
- a *put* covers only versions that the client had seen, unless the put may cover the changes of
  others (``mine``); every part not reported as a conflict got in, and was not overtaken by a
  version already present at the second look;
- the final content follows from the *lineages* of the blocks. Every block tells the version
  below, therefore the final version has a lineage, back to the creation of the block. A version
  outside the lineage was replaced by a concurrent write over the same version (weak
  coverability), which the writer could not see in every case: if a put lost a version this
  way without a report, only the chain is judged. Each pointer in the lineage of a block in the
  file, once published, points into the file. A token brought by a put without conflicts, and
  removed by no such put, is in the file once; a token removed by such a put is absent. Tokens
  in blocks touched by a put with conflicts, or by a dead client, may be in, moved, gone or
  not; likewise tokens in blocks that two puts changed in the same way.

Atomic files are registers of whole contents: gets and publications are linearizable, hence every
get returns the content of a single put, and a put that reports a conflict without publishing is
never seen. After a collection with no operation under way, every block named by a file exists, and
no further block.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from ares.fragment.block import BlockId, Genesis, KnownBlock, block_name, decode_block, genesis_name
from ares.fragment.divide import digest
from ares.fragment.read import FileState, builds_on
from ares.model.identity import ObjectName
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import TOMBSTONE, NoBytes
from ares.testing.sim.files import (
    TOKEN_BYTES,
    BlockOperation,
    FileChronicle,
    FileOperation,
    content_of,
    pair,
    tokens_of,
)
from ares.testing.sim.invariants import PromiseBroken
from ares.testing.sim.plan import ATOMIC_FILE
from ares.testing.verify.history import Event
from ares.testing.verify.linearizability import check
from ares.testing.verify.tag_order import check_tags


def judge_files(chronicle: FileChronicle) -> None:
    """Judge the files of a run. Raises :class:`PromiseBroken`."""
    if not chronicle.operations:
        return
    for name, tag, genesis in chronicle.geneses():
        _judge_list(
            chronicle,
            FileState(genesis, tag, genesis.parts),
            f"the list in version {tag} of {name!r}",
        )
    ended = [operation for operation in chronicle.operations if operation.responded is not None]
    for operation in ended:
        state = operation.state
        if state is not None and state.tag != TAG_ZERO:
            _judge_list(chronicle, state, f"the state after {operation.describe()}")
            _judge_genesis(chronicle, operation, state)
            if operation.kind == "get":
                _judge_get(chronicle, operation, state)
        if operation.kind == "put" and not operation.file.startswith(ATOMIC_FILE):
            _judge_put(chronicle, operation)
    judge_history(list(_register_events(chronicle)), "the history of a file could not be judged")
    _judge_collections(chronicle)
    for file in sorted({operation.file for operation in ended if operation.file}):
        judge_end(chronicle, file)


def judge_history(events: list[Event], undecided: str) -> None:
    """Check that the operations are linearizable, and in the order of their tags.

    Raises :class:`PromiseBroken`; ``undecided``: the message if the search gave up.
    """
    report = check(events)
    if not report.ok:
        raise PromiseBroken(
            "; ".join(violation.describe() for violation in report.violations) or undecided
        )
    if disordered := check_tags(events):
        raise PromiseBroken("; ".join(violation.describe() for violation in disordered[:3]))


# -- gets and lists --------------------------------------------------------------------------------


def _judge_list(chronicle: FileChronicle, state: FileState, what: str) -> None:
    """Check that every block is described as in the given version, as far as known."""
    for part in state.parts:
        name = block_name(state.genesis.file, part.id)
        value = chronicle.values.get((name, part.tag))
        if isinstance(value, NoBytes):
            raise PromiseBroken(
                f"{what} names block {part.id} at version {part.tag}, which deleted it"
            )
        if value is not None:
            block = decode_block(value, name)
            if (part.length, part.digest, part.next) != (
                len(block.data),
                digest(block.data),
                block.next,
            ):
                raise PromiseBroken(
                    f"{what} does not describe block {part.id} as it was at version {part.tag}"
                )


def _judge_genesis(chronicle: FileChronicle, operation: FileOperation, state: FileState) -> None:
    there = chronicle.genesis(genesis_name(operation.file), state.tag)
    if there is not None and (there.file, there.first, there.atomic) != (
        state.genesis.file,
        state.genesis.first,
        state.genesis.atomic,
    ):
        raise PromiseBroken(
            f"{operation.describe()}: its genesis block is not that of version {state.tag}"
        )


def _judge_get(chronicle: FileChronicle, operation: FileOperation, state: FileState) -> None:
    what = operation.describe()
    reported = {(block.name, block.tag) for block in operation.blocks}
    if (genesis_name(operation.file), state.tag) not in reported:
        raise PromiseBroken(f"{what}: it did not look at the genesis block")
    if not state.genesis.atomic:
        for part in state.parts:
            if (block_name(state.genesis.file, part.id), part.tag) not in reported:
                raise PromiseBroken(
                    f"{what}: no server told it that block {part.id} is at version {part.tag}"
                )
        _judge_links(state, what)
    content = chronicle.content(state)
    if content is not None and content != operation.content:
        raise PromiseBroken(f"{what}: the content is not that of the blocks")


def _judge_links(state: FileState, what: str) -> None:
    links = [state.genesis.first, *(part.next for part in state.parts)]
    if links != [*(part.id for part in state.parts), None] or len(set(links)) != len(links):
        raise PromiseBroken(f"{what}: the chain of blocks is broken")


# -- puts of shared files --------------------------------------------------------------------------


def _judge_put(chronicle: FileChronicle, operation: FileOperation) -> None:
    assert operation.base is not None
    assert operation.report is not None
    assert operation.wanted is not None
    for block in operation.writes:
        if not operation.mine and not _had_seen(chronicle, operation, operation.base, block):
            raise PromiseBroken(
                f"{operation.describe()}: it covered version {block.base} of {block.name!r}, "
                "which it had not seen"
            )
    if any(conflict.whole_file for conflict in operation.report.conflicts):
        return
    _judge_report(operation, operation.base, operation.wanted)
    refused = {conflict.block for conflict in operation.report.conflicts}
    for part in operation.base.parts:
        if part.id not in refused:
            _judge_look(chronicle, operation, block_name(operation.base.genesis.file, part.id))
    made = (
        operation.state is not None and operation.state.genesis.file == operation.base.genesis.file
    )
    if made and operation.base.tag == TAG_ZERO and None not in refused:
        _judge_look(chronicle, operation, genesis_name(operation.file))


def _had_seen(
    chronicle: FileChronicle, operation: FileOperation, base: FileState, block: BlockOperation
) -> bool:
    """Return whether the put covers a version that its client had seen.

    The covered version is of the client's last look at the file, or of the same put. In a genesis
    block of a shared file only the first pointer matters: another client may have written a new
    hint.
    """
    if block.base in (None, TAG_ZERO) or any(
        own.name == block.name and own.tag == block.base for own in operation.writes
    ):
        return True
    if block.name == genesis_name(operation.file):
        over = chronicle.genesis(block.name, block.base) if block.base is not None else None
        return (
            base.tag in (TAG_ZERO, block.base)
            or over is None
            or (over.file, over.first) == (base.genesis.file, base.genesis.first)
        )
    return any(
        block_name(base.genesis.file, part.id) == block.name and part.tag == block.base
        for part in base.parts
    )


def _judge_report(operation: FileOperation, base: FileState, wanted: bytes) -> None:
    """Check that every part not reported as a conflict is in the blocks that the put left."""
    assert operation.report is not None
    assert operation.state is not None
    conflicts = operation.report.conflicts
    before = {part.digest for part in base.parts if part.length}
    chunks = content_of(wanted, base.genesis.chunking).chunks
    there = {part.digest for part in operation.state.parts}
    for chunk in chunks:
        reported = any(
            c.offset <= chunk.offset and chunk.offset + chunk.length <= c.offset + c.length
            for c in conflicts
        )
        if (
            not reported
            and chunk.digest not in there
            and not (operation.mine and chunk.digest in before)
        ):
            raise PromiseBroken(
                f"{operation.describe()}: {chunk.length} bytes at {chunk.offset} did not get in, "
                "and are not told as a conflict"
            )
    after, left = (
        {chunk.digest for chunk in chunks},
        {part.id: part.digest for part in operation.state.parts},
    )
    refused = {conflict.block for conflict in conflicts}
    for part in base.parts:
        if (
            part.length
            and part.digest not in after
            and left.get(part.id) == part.digest
            and part.id not in refused
        ):
            raise PromiseBroken(
                f"{operation.describe()}: block {part.id} was to go and is there, and that is "
                "not told as a conflict"
            )


def _judge_look(chronicle: FileChronicle, operation: FileOperation, name: ObjectName) -> None:
    """Check the writer's second look: without a conflict, a later version builds on the write.

    A version names only the version below, hence the writer cannot see two versions far.
    """
    own = [block for block in operation.writes if block.name == name]
    if not own:
        return
    last = own[-1]
    assert last.responded is not None
    assert last.tag is not None
    looks = [
        block
        for block in operation.blocks
        if block.name == name and not block.writes and block.invoked >= last.responded
    ]
    if not looks:
        raise PromiseBroken(f"{operation.describe()}: it did not look again at {name!r}")
    seen = looks[-1].tag
    if (
        seen is not None
        and chronicle.follows(name, seen, last.tag) is False
        and not builds_on(chronicle.lineage(name, seen)[1], last.tag)
    ):
        raise PromiseBroken(
            f"{operation.describe()}: {name!r} was overtaken by {seen}, which does not build on "
            f"{last.tag}, and that is not told"
        )


# -- atomic files ----------------------------------------------------------------------------------


def _register_events(chronicle: FileChronicle) -> Iterator[Event]:
    """Yield publications and gets of atomic files; values are named after the puts."""
    names: dict[bytes, str] = {}
    for number, operation in enumerate(chronicle.operations):
        if operation.wanted is not None:
            names[operation.wanted] = f"{operation.client}'s content {number}"
    for operation in chronicle.operations:
        if not operation.file.startswith(ATOMIC_FILE):
            continue
        if operation.kind == "get" and operation.responded is not None:
            content, tag = (
                operation.content,
                operation.state.tag if operation.state is not None else None,
            )
            value = (
                None
                if content is None
                else names.get(content, f"content that no put stored: {content[:40]!r}")
            )
            yield Event(
                operation.client,
                "read",
                operation.file,
                value,
                operation.began,
                operation.responded,
                tag=pair(tag),
            )
        for block in operation.blocks:
            if block.writes and block.name == genesis_name(operation.file):
                # a collection's fence has no file: it must change nothing
                # a put may have to withdraw its publication
                published = operation.wanted is not None and block.value is not TOMBSTONE
                value = (
                    names.get(operation.wanted)
                    if published and operation.wanted is not None
                    else None
                )
                kind: Literal["write", "delete"] = "write" if value is not None else "delete"
                outcome: Literal["ok", "unknown"] = (
                    "ok" if block.responded is not None else "unknown"
                )
                yield Event(
                    operation.client,
                    kind,
                    operation.file,
                    value,
                    block.invoked,
                    block.responded,
                    outcome,
                    pair(block.tag),
                )


# -- collections -----------------------------------------------------------------------------------


def _judge_collections(chronicle: FileChronicle) -> None:
    """Check that the last collection left the files unchanged, and no data in unnamed blocks."""
    places = [
        place
        for place, operation in enumerate(chronicle.operations)
        if operation.kind == "collect" and operation.responded is not None
    ]
    if not places:
        return
    before, collection, after = (
        chronicle.operations[: places[-1]],
        chronicle.operations[places[-1]],
        chronicle.operations[places[-1] + 1 :],
    )
    uncertain = {
        block.name
        for operation in chronicle.operations
        for block in operation.blocks
        if block.writes and block.responded is None
    }
    there = set(collection.names)
    named: set[ObjectName] = set()
    for file in sorted({operation.file for operation in after}):
        was = [
            operation for operation in before if operation.file == file and operation.kind == "get"
        ][-1]
        now = next(operation for operation in after if operation.file == file)
        # the genesis block is written over itself, as a fence
        changed = {name for name, _ in _versions(was) ^ _versions(now)} - {genesis_name(file)}
        if changed and not changed & uncertain:
            raise PromiseBroken(f"{file!r} was changed by a collection")
        for operation in (was, now):
            named |= {name for name, _ in _versions(operation)}
            if operation.state is not None:
                named |= {
                    block_name(operation.state.genesis.file, id)
                    for id, _ in operation.state.genesis.retired
                }
    left = sorted(there - named - uncertain)
    if left:
        raise PromiseBroken(
            f"no file names {left[0]!r} (and {len(left) - 1} more), and a collection left it"
        )


def _versions(operation: FileOperation) -> set[tuple[ObjectName, Tag]]:
    if operation.state is None:
        return set()
    genesis: Genesis = operation.state.genesis
    parts: tuple[KnownBlock, ...] = operation.state.parts
    return {
        (genesis_name(operation.file), operation.state.tag),
        *((block_name(genesis.file, part.id), part.tag) for part in parts),
    }


# -- the lineage of a shared file ------------------------------------------------------------------


def judge_end(chronicle: FileChronicle, file: str) -> None:
    """Judge a file by the last get. Raises :class:`PromiseBroken`."""
    gets = [
        operation
        for operation in chronicle.operations
        if operation.file == file and operation.kind == "get" and operation.responded is not None
    ]
    if not gets or gets[-1].state is None or gets[-1].state.genesis.atomic:
        return
    last = gets[-1].state
    lineages = {name: chronicle.lineage(name, tag) for name, tag in _standing(file, last)}
    _judge_pointers(chronicle, last, lineages)
    puts = [
        operation
        for operation in chronicle.operations
        if operation.file == file and operation.wanted is not None
    ]
    removed = any(
        operation.file == file and operation.kind == "remove" for operation in chronicle.operations
    )
    if not removed and not any(
        _lost_unseen(put, lineages) or _went_over_others(put) for put in puts
    ):
        _judge_tokens(chronicle, puts, gets[-1].content or b"")


def _standing(file: str, state: FileState) -> Iterator[tuple[ObjectName, Tag]]:
    yield genesis_name(file), state.tag
    for part in state.parts:
        yield block_name(state.genesis.file, part.id), part.tag


def _judge_pointers(
    chronicle: FileChronicle, last: FileState, lineages: dict[ObjectName, list[Tag]]
) -> None:
    """Check that no pointer of a lineage leads out of the file."""
    reached = {part.id for part in last.parts}
    makers = {
        (block.name, block.tag): operation
        for operation in chronicle.operations
        for block in operation.writes
    }
    for name, lineage in lineages.items():
        creator = makers.get((name, lineage[-1])) if lineage else None
        published = True
        for newer, tag in zip([None, *lineage], lineage, strict=False):
            published = published and (
                newer is None
                or creator is None
                or makers.get((name, newer), creator) is not creator
            )
            pointer = _pointer(chronicle, name, tag, last)
            if published and pointer is not None and pointer not in reached:
                raise PromiseBroken(
                    f"version {tag} of {name!r} pointed to {pointer}, which is not in the file "
                    "any more"
                )


def _pointer(
    chronicle: FileChronicle, name: ObjectName, tag: Tag, last: FileState
) -> BlockId | None:
    value = chronicle.values.get((name, tag))
    if not isinstance(value, bytes):
        return None
    genesis = chronicle.genesis(name, tag)
    if genesis is not None:
        return genesis.first if genesis.file == last.genesis.file else None
    return decode_block(value, name).next


def _lost_unseen(put: FileOperation, lineages: dict[ObjectName, list[Tag]]) -> bool:
    """Return whether a publication of the put is missing at the end, unknown to the put."""
    if put.report is None or put.base is None:
        return False
    refused = {conflict.block for conflict in put.report.conflicts}
    published = {
        block_name(put.base.genesis.file, part.id)
        for part in put.base.parts
        if part.id not in refused
    }
    if None not in refused:
        published.add(genesis_name(put.file))
    newest = {block.name: block.tag for block in put.writes if block.name in published}
    return any(tag not in lineages.get(name, []) for name, tag in newest.items())


def _went_over_others(put: FileOperation) -> bool:
    """Return whether the put may have covered versions that the client had not seen."""
    if not put.mine or put.base is None:
        return False
    seen: set[tuple[ObjectName, Tag | None]] = {
        (block_name(put.base.genesis.file, part.id), part.tag) for part in put.base.parts
    }
    seen |= {(genesis_name(put.file), put.base.tag)}
    seen |= {(block.name, block.tag) for block in put.writes}
    return put.responded is None or any(
        block.base != TAG_ZERO and (block.name, block.base) not in seen for block in put.writes
    )


def _judge_tokens(chronicle: FileChronicle, puts: list[FileOperation], content: bytes) -> None:
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
            raise PromiseBroken(
                f"token {token!r} is in the file {count} times, and should be there "
                f"{'once' if due else 'no more'}"
            )


def _in_new_chunks(base: FileState, wanted: bytes) -> set[bytes]:
    known = {part.digest for part in base.parts}
    chunks = content_of(wanted, base.genesis.chunking).chunks
    new = [chunk for chunk in chunks if chunk.digest not in known]
    return {token for chunk in new for token in _around(wanted, chunk.offset, chunk.length)}


def _touched(base: FileState, wanted: bytes) -> set[BlockId]:
    """Return the blocks that a put was to change."""
    kept = {chunk.digest for chunk in content_of(wanted, base.genesis.chunking).chunks}
    return {part.id for part in base.parts if part.digest not in kept}


def _found_as_wanted(put: FileOperation) -> set[BlockId]:
    """Return the blocks that another client had changed exactly as this put wanted.

    They are no conflict, though the other client may have deleted parts that this put moved away.
    """
    assert put.base is not None
    assert put.state is not None
    known = {(part.id, part.tag) for part in put.base.parts}
    own = {(block.name, block.tag) for block in put.writes}
    file = put.state.genesis.file
    return {
        part.id
        for part in put.state.parts
        if (part.id, part.tag) not in known and (block_name(file, part.id), part.tag) not in own
    }


def _in_blocks(chronicle: FileChronicle, state: FileState, ids: set[BlockId]) -> set[bytes]:
    """Return the tokens of the file with at least a byte in the given blocks."""
    content, offset, found = chronicle.content(state) or b"", 0, set()
    for part in state.parts:
        if part.id in ids:
            found |= _around(content, offset, part.length)
        offset += part.length
    return found


def _around(content: bytes, offset: int, length: int) -> set[bytes]:
    return set(
        tokens_of(content[max(offset - TOKEN_BYTES + 1, 0) : offset + length + TOKEN_BYTES - 1])
    )
