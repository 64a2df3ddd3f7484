"""Were the promises about files kept? Judged by what clients were told, after the blocks were judged one by one (ares/testing/sim/run.py).

Of shared files, over and above the coverability of every block:

- a *get* returns blocks as somebody wrote them whole, at versions that it was told while it ran, linked one to the next, each once;
- a *list* of blocks, in a genesis block or in what a client remembers, never lies about the versions that it names;
- a *put* covers only versions that its client had seen, unless it is to go over others' changes (``mine``); what it does not report as a conflict
  got in, and was not overtaken by a version that was there when it looked again;
- what came of it all in the end is judged in ares/testing/sim/lineage.py.

Atomic files are registers of whole contents: gets and publications are linearizable, so every get returns the content of one put, and a put that
reports a conflict without having published is never seen. After a collection with nothing under way every block that a file names is there, and no
other.
"""

from collections.abc import Iterator
from typing import Literal

from ares.fragment.block import Genesis, Part, block_name, decode_block, genesis_name
from ares.fragment.divide import digest
from ares.fragment.read import FileState, builds_on
from ares.fragment.report import WHOLE_FILE
from ares.model.identity import ObjectName
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import TOMBSTONE, Mark
from ares.testing.sim.chronicle import BlockOperation, Chronicle, FileOperation, pair
from ares.testing.sim.files import content_of
from ares.testing.sim.invariants import Violation
from ares.testing.sim.lineage import judge_end
from ares.testing.sim.scenarios import ATOMIC
from ares.testing.verify.history import Event
from ares.testing.verify.linearizability import check
from ares.testing.verify.tag_order import check_tags


def judge_files(chronicle: Chronicle) -> None:
    """Raises :class:`Violation`."""
    if not chronicle.operations:
        return
    for name, tag, genesis in chronicle.geneses():
        _judge_list(chronicle, FileState(genesis, tag, genesis.parts), f"the list in version {tag} of {name!r}")
    ended = [operation for operation in chronicle.operations if operation.responded is not None]
    for operation in ended:
        state = operation.state
        if state is not None and state.tag != TAG_ZERO:
            _judge_list(chronicle, state, f"the state after {operation.describe()}")
            _judge_genesis(chronicle, operation, state)
            if operation.kind == "get":
                _judge_get(chronicle, operation, state)
        if operation.kind == "put" and not operation.file.startswith(ATOMIC):
            _judge_put(chronicle, operation)
    _judge_registers(chronicle)
    _judge_collections(chronicle)
    for file in sorted({operation.file for operation in ended if operation.file}):
        judge_end(chronicle, file)


# -- gets and lists -----------------------------------------------------------------------------------------------------------


def _judge_list(chronicle: Chronicle, state: FileState, what: str) -> None:
    """Every block is described as it was at that version, as far as anybody knows that."""
    for part in state.parts:
        name = block_name(state.genesis.file, part.id)
        value = chronicle.values.get((name, part.tag))
        if isinstance(value, Mark):
            raise Violation(f"{what} names block {part.id} at version {part.tag}, which deleted it")
        if value is not None:
            block = decode_block(value, name)
            if (part.length, part.digest, part.next) != (len(block.data), digest(block.data), block.next):
                raise Violation(f"{what} does not describe block {part.id} as it was at version {part.tag}")


def _judge_genesis(chronicle: Chronicle, operation: FileOperation, state: FileState) -> None:
    there = chronicle.genesis(genesis_name(operation.file), state.tag)
    if there is not None and (there.file, there.first, there.atomic) != (state.genesis.file, state.genesis.first, state.genesis.atomic):
        raise Violation(f"{operation.describe()}: its genesis block is not that of version {state.tag}")


def _judge_get(chronicle: Chronicle, operation: FileOperation, state: FileState) -> None:
    what = operation.describe()
    told = {(block.name, block.tag) for block in operation.blocks}
    if (genesis_name(operation.file), state.tag) not in told:
        raise Violation(f"{what}: it did not look at the genesis block")
    if not state.genesis.atomic:
        for part in state.parts:
            if (block_name(state.genesis.file, part.id), part.tag) not in told:
                raise Violation(f"{what}: nobody told it that block {part.id} is at version {part.tag}")
        _judge_links(state, what)
    content = chronicle.content(state)
    if content is not None and content != operation.content:
        raise Violation(f"{what}: the content is not that of the blocks")


def _judge_links(state: FileState, what: str) -> None:
    links = [state.genesis.first, *(part.next for part in state.parts)]
    if links != [*(part.id for part in state.parts), None] or len(set(links)) != len(links):
        raise Violation(f"{what}: the chain of blocks is broken")


# -- puts of shared files -----------------------------------------------------------------------------------------------------


def _judge_put(chronicle: Chronicle, operation: FileOperation) -> None:
    assert operation.base is not None
    assert operation.report is not None
    assert operation.wanted is not None
    for block in operation.writes:
        if not operation.mine and not _had_seen(chronicle, operation, operation.base, block):
            raise Violation(f"{operation.describe()}: it covered version {block.base} of {block.name!r}, which it had not seen")
    if any(conflict.why in WHOLE_FILE for conflict in operation.report.conflicts):
        return
    _judge_report(operation, operation.base, operation.wanted)
    refused = {conflict.block for conflict in operation.report.conflicts}
    for part in operation.base.parts:
        if part.id not in refused:
            _judge_look(chronicle, operation, block_name(operation.base.genesis.file, part.id))
    made = operation.state is not None and operation.state.genesis.file == operation.base.genesis.file
    if made and operation.base.tag == TAG_ZERO and None not in refused:
        _judge_look(chronicle, operation, genesis_name(operation.file))


def _had_seen(chronicle: Chronicle, operation: FileOperation, base: FileState, block: BlockOperation) -> bool:
    """Whether the version that a write covered is of the client's last look at the file, or of the same put.

    Of a genesis block of a shared file only the first pointer matters: others may have written a new hint.
    """
    if block.base in (None, TAG_ZERO) or any(own.name == block.name and own.tag == block.base for own in operation.writes):
        return True
    if block.name == genesis_name(operation.file):
        over = chronicle.genesis(block.name, block.base) if block.base is not None else None
        return base.tag in (TAG_ZERO, block.base) or over is None or (over.file, over.first) == (base.genesis.file, base.genesis.first)
    return any(block_name(base.genesis.file, part.id) == block.name and part.tag == block.base for part in base.parts)


def _judge_report(operation: FileOperation, base: FileState, wanted: bytes) -> None:
    """What is not told as a conflict is in the blocks that the put left."""
    assert operation.report is not None
    assert operation.state is not None
    conflicts = operation.report.conflicts
    before = {part.digest for part in base.parts if part.length}
    chunks = content_of(wanted).chunks
    there = {part.digest for part in operation.state.parts}
    for chunk in chunks:
        told = any(c.offset <= chunk.offset and chunk.offset + chunk.length <= c.offset + c.length for c in conflicts)
        if not told and chunk.digest not in there and not (operation.mine and chunk.digest in before):
            raise Violation(f"{operation.describe()}: {chunk.length} bytes at {chunk.offset} did not get in, and are not told as a conflict")
    after, left = {chunk.digest for chunk in chunks}, {part.id: part.digest for part in operation.state.parts}
    refused = {conflict.block for conflict in conflicts}
    for part in base.parts:
        if part.length and part.digest not in after and left.get(part.id) == part.digest and part.id not in refused:
            raise Violation(f"{operation.describe()}: block {part.id} was to go and is there, and that is not told as a conflict")


def _judge_look(chronicle: Chronicle, operation: FileOperation, name: ObjectName) -> None:
    """Whoever wrote a block looked at it once more, and a version that stood there instead of the write was told.

    Versions only tell the one that they were written over: behind two of them one cannot see.
    """
    own = [block for block in operation.writes if block.name == name]
    if not own:
        return
    last = own[-1]
    assert last.responded is not None
    assert last.tag is not None
    looks = [block for block in operation.blocks if block.name == name and not block.writes and block.invoked >= last.responded]
    if not looks:
        raise Violation(f"{operation.describe()}: it did not look again at {name!r}")
    seen = looks[-1].tag
    if seen is not None and chronicle.follows(name, seen, last.tag) is False and not builds_on(chronicle.lineage(name, seen)[1], last.tag):
        raise Violation(f"{operation.describe()}: {name!r} was overtaken by {seen}, which does not build on {last.tag}, and that is not told")


# -- atomic files -------------------------------------------------------------------------------------------------------------


def _judge_registers(chronicle: Chronicle) -> None:
    events = list(_register_events(chronicle))
    report = check(events)
    if not report.ok:
        raise Violation("; ".join(violation.describe() for violation in report.violations) or "the history of a file could not be judged")
    for violation in check_tags(events)[:1]:
        raise Violation(violation.describe())


def _register_events(chronicle: Chronicle) -> Iterator[Event]:
    """Publications and gets of atomic files; values are named after the puts."""
    names: dict[bytes, str] = {}
    for number, operation in enumerate(chronicle.operations):
        if operation.wanted is not None:
            names[operation.wanted] = f"{operation.client}'s content {number}"
    for operation in chronicle.operations:
        if not operation.file.startswith(ATOMIC):
            continue
        if operation.kind == "get" and operation.responded is not None:
            content, tag = operation.content, operation.state.tag if operation.state is not None else None
            value = None if content is None else names.get(content, f"what nobody put: {content[:40]!r}")
            yield Event(operation.client, "read", operation.file, value, operation.began, operation.responded, tag=pair(tag))
        for block in operation.blocks:
            if block.writes and block.name == genesis_name(operation.file):  # a collection's fence has no file: it must change nothing
                published = operation.wanted is not None and block.value is not TOMBSTONE  # a put may have to withdraw what it published
                value = names.get(operation.wanted) if published and operation.wanted is not None else None
                kind: Literal["write", "delete"] = "write" if value is not None else "delete"
                outcome: Literal["ok", "unknown"] = "ok" if block.responded is not None else "unknown"
                yield Event(operation.client, kind, operation.file, value, block.invoked, block.responded, outcome, pair(block.tag))


# -- collections --------------------------------------------------------------------------------------------------------------


def _judge_collections(chronicle: Chronicle) -> None:
    """Before and after the last collection the files are the same, and no block that none of them names holds data."""
    places = [place for place, operation in enumerate(chronicle.operations) if operation.kind == "collect" and operation.responded is not None]
    if not places:
        return
    before, collection, after = chronicle.operations[: places[-1]], chronicle.operations[places[-1]], chronicle.operations[places[-1] + 1 :]
    uncertain = {block.name for operation in chronicle.operations for block in operation.blocks if block.writes and block.responded is None}
    there = set(collection.names)
    named: set[ObjectName] = set()
    for file in sorted({operation.file for operation in after}):
        was = [operation for operation in before if operation.file == file and operation.kind == "get"][-1]
        now = next(operation for operation in after if operation.file == file)
        changed = {name for name, _ in _versions(was) ^ _versions(now)} - {genesis_name(file)}  # which is written over itself, as a fence
        if changed and not changed & uncertain:
            raise Violation(f"{file!r} was changed by a collection")
        for operation in (was, now):
            named |= {name for name, _ in _versions(operation)}
            if operation.state is not None:
                named |= {block_name(operation.state.genesis.file, id) for id, _ in operation.state.genesis.retired}
    left = sorted(there - named - uncertain)
    if left:
        raise Violation(f"no file names {left[0]!r} (and {len(left) - 1} others), and a collection left it")


def _versions(operation: FileOperation) -> set[tuple[ObjectName, Tag]]:
    if operation.state is None:
        return set()
    genesis: Genesis = operation.state.genesis
    parts: tuple[Part, ...] = operation.state.parts
    return {(genesis_name(operation.file), operation.state.tag), *((block_name(genesis.file, part.id), part.tag) for part in parts)}
