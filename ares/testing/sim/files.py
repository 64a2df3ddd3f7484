"""A simulated client's files: the real fm_read, fm_update, fm_put, fm_remove and fm_collect.

Each operation works over the client's last view of the file. A file is atomic if the name begins
with ATOMIC_FILE, else shared. As with real clients, the base of a put is the state after the last
get or put, and the content is the client's copy, whether or not all of it is in the file.

A chronicle has every operation on a file, with every coverable operation on a block below, and the
answers.
"""

import re
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec
from msgspec import Struct, field

from ares.client.chunking import CUTS
from ares.dap.primitives import DataResult
from ares.engine.effects import Operation
from ares.fragment.block import (
    BLOCK_NAMES,
    GENESIS_NAMES,
    BlockIds,
    Genesis,
    KnownBlock,
    block_name,
    decode_block,
    decode_genesis,
    new_genesis,
)
from ares.fragment.collect import fm_collect, fm_remove
from ares.fragment.divide import CHUNKINGS, Content, Sizes, digest, divide
from ares.fragment.read import FileState, Sink, fm_read
from ares.fragment.replace import fm_put
from ares.fragment.report import WriteReport
from ares.fragment.shared_memory import Blocks, FileTarget
from ares.fragment.update import fm_update
from ares.model.errors import ObjectNotFound
from ares.model.identity import ObjectName
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import TOMBSTONE, WITHHELD, Answered, Value
from ares.reconfig.view import View
from ares.registers.coverable import CoverableResult
from ares.testing.sim.invariants import PromiseBroken
from ares.testing.sim.plan import ATOMIC_FILE, ContentChange, SimStep
from ares.testing.sim.world import SimWorld
from ares.testing.verify.history import Event, Pair

FILE_SIZES = Sizes(64, 256, 1024)
EPOCH_S = 1_000_000
SECONDS_PER_S = 20
"""The speed of the clients' clocks: fast, for blocks of different ages. Retired blocks stay 45 s.
"""

TOKEN_BYTES = 16
"""Size of a token. A file is made of tokens, each written by a single put, to trace every piece."""

FIRST_TOKENS = 90
"""Extra tokens of a put that makes or rewrites a file: about eight blocks."""

_token = re.compile(rb"<[0-9a-f]{14}>")
Kind = Literal["get", "put", "remove", "collect"]


class BlockOperation(Struct, eq=False):
    """An operation on a block.

    ``base``: the version that a write was given, or covered. ``tag``: the version in the answer.
    ``responded`` is ``None`` while the operation is under way, and for ever if the client died: a
    write may take effect after that or not.
    """

    name: ObjectName
    invoked: float
    writes: bool
    value: Value | None
    base: Tag | None
    responded: float | None = None
    tag: Tag | None = None


class FileOperation(Struct, eq=False):
    """An operation on a file.

    ``wanted``: the content that a put is to leave, over ``base``, from ``began`` on. ``state`` and
    ``content``: the final state. ``names``: the blocks left after a collection. ``responded`` is
    ``None`` for operations of dead clients.
    """

    client: str
    kind: Kind
    file: str
    began: float
    mine: bool = False
    responded: float | None = None
    base: FileState | None = None
    wanted: bytes | None = None
    report: WriteReport | None = None
    state: FileState | None = None
    content: bytes | None = None
    names: list[ObjectName] = field(default_factory=list)
    blocks: list[BlockOperation] = field(default_factory=list)

    @property
    def writes(self) -> Iterator[BlockOperation]:
        """The writes that certainly took place."""
        return (block for block in self.blocks if block.writes and block.tag is not None)

    def describe(self) -> str:
        outcome = "nothing there" if self.content is None else f"{len(self.content)} bytes"
        if self.report is not None:
            found = self.report.conflicts
            conflicts = ", ".join(f"{c.length} bytes at {c.offset}: {c.why}" for c in found)
            outcome = f"{self.report.describe()}: {conflicts or 'done'}"
        return f"{self.client} {self.kind} {self.file}, {outcome}"


class FileChronicle:
    """All operations on files in a run.

    ``values``: the value of every version of a block ever seen or written; ``None`` for a
    tombstone. ``dead``: clients that will do no more.
    """

    def __init__(self) -> None:
        self.operations: list[FileOperation] = []
        self.dead: set[str] = set()
        self.values: dict[tuple[ObjectName, Tag], Value] = {}

    def puts_under_way(self) -> Iterator[float]:
        """Yield the start times of puts and removals that may still publish."""
        for operation in self.operations:
            if (
                operation.kind in ("put", "remove")
                and operation.responded is None
                and operation.client not in self.dead
            ):
                yield operation.began

    def learn(self, name: ObjectName, tag: Tag, value: Value) -> None:
        """Note the value of a version; every version has a single value."""
        if self.values.setdefault((name, tag), value) != value:
            raise PromiseBroken(f"version {tag} of {name!r} has two values")

    def data(self, name: ObjectName, tag: Tag) -> bytes | None:
        """Return the data of a version of a block, if known."""
        value = self.values.get((name, tag))
        return bytes(decode_block(value, name).data) if isinstance(value, bytes) else None

    def content(self, state: FileState) -> bytes | None:
        """Return the content of the file at ``state``, if known."""
        data = [
            self.data(block_name(state.genesis.file, part.id), part.tag) for part in state.parts
        ]
        return None if None in data else b"".join(piece for piece in data if piece is not None)

    def genesis(self, name: ObjectName, tag: Tag) -> Genesis | None:
        """Return the genesis block at a version, if known."""
        value = self.values.get((name, tag))
        return (
            decode_genesis(value, name)
            if isinstance(value, bytes) and name.startswith(GENESIS_NAMES)
            else None
        )

    def geneses(self) -> Iterator[tuple[ObjectName, Tag, Genesis]]:
        """Yield every version of every genesis block."""
        for name, tag in self.values:
            genesis = self.genesis(name, tag)
            if genesis is not None:
                yield name, tag, genesis

    def lineage(self, name: ObjectName, tag: Tag) -> list[Tag]:
        """Return the version and the known versions below, newest first."""
        tags: list[Tag] = []
        while (value := self.values.get((name, tag))) is not None and tag not in tags:
            tags.append(tag)
            if not isinstance(value, bytes):
                break
            tag = (
                decode_genesis(value, name).base
                if name.startswith(GENESIS_NAMES)
                else decode_block(value, name).base
            )
        return tags

    def follows(self, name: ObjectName, tag: Tag, earlier: Tag) -> bool | None:
        """Return whether a version was built on ``earlier``, directly or not.

        Returns ``None`` if this is unknown.
        """
        lineage = self.lineage(name, tag)
        if earlier in lineage:
            return True
        oldest = self.values.get((name, lineage[-1])) if lineage else None
        created = isinstance(oldest, bytes) and (
            name.startswith(GENESIS_NAMES) or decode_block(oldest, name).base == TAG_ZERO
        )
        return False if created or (lineage and lineage[-1] < earlier) else None

    def events(self) -> Iterator[Event]:
        """Yield the history of every block; reads of a version of unknown value are left out."""
        for operation in self.operations:
            for block in operation.blocks:
                event = self._event(operation.client, block)
                if event is not None:
                    yield event

    def _event(self, client: str, block: BlockOperation) -> Event | None:
        value = block.value
        if not block.writes and block.tag is not None:
            if block.tag != TAG_ZERO and (block.name, block.tag) not in self.values:
                return None
            value = self.values.get((block.name, block.tag), TOMBSTONE)
        kind: Literal["read", "write", "delete"] = (
            "read" if not block.writes else "delete" if value is TOMBSTONE else "write"
        )
        digest_shown = digest(value)[:8].hex() if isinstance(value, bytes) else None
        outcome: Literal["ok", "unknown"] = "ok" if block.responded is not None else "unknown"
        return Event(
            client,
            kind,
            block.name,
            digest_shown,
            block.invoked,
            block.responded,
            outcome,
            pair(block.tag),
            pair(block.base),
        )


def pair(tag: Tag | None) -> Pair | None:
    """Return a tag in the form of histories."""
    return None if tag is None else (tag.number, tag.writer)


class Recorder(Blocks):
    """The blocks of a domain; every operation on them is recorded in ``operation``."""

    def __init__(
        self, view: View, operation: FileOperation, chronicle: FileChronicle, world: SimWorld
    ) -> None:
        super().__init__(view)
        self._operation = operation
        self._chronicle = chronicle
        self._world = world

    def read(self, name: ObjectName, held: Tag | None = None) -> Operation[DataResult]:
        begun = self._begin(name, False, None, None)
        found = yield from super().read(name, held)
        self._end(begun, found.tag, found.value)
        return found

    def create(self, name: ObjectName, value: bytes) -> Operation[Tag]:
        begun = self._begin(name, True, value, TAG_ZERO)
        tag = yield from super().create(name, value)
        self._end(begun, tag, value)
        return tag

    def write(
        self,
        name: ObjectName,
        value: Value,
        version: Tag | None,
        *,
        number: int = 0,
        beside: ObjectName | None = None,
    ) -> Operation[CoverableResult]:
        begun = self._begin(name, True, value, version)
        covered = yield from super().write(name, value, version, number=number, beside=beside)
        if covered.changed:
            begun.base = covered.base if version is None else version
            if begun.base is not None and begun.base.number == 0:
                begun.base = TAG_ZERO
        else:
            begun.writes = False
            # a fence that came too late is a read, whatever the version
            begun.base = version if not number else None
        self._end(begun, covered.tag, covered.value)
        return covered

    def delete(self, name: ObjectName) -> Operation[None]:
        begun = self._begin(name, True, TOMBSTONE, None)
        yield from super().delete(name)
        begun.responded = self._world.now

    def _begin(
        self, name: ObjectName, writes: bool, value: Value | None, base: Tag | None
    ) -> BlockOperation:
        begun = BlockOperation(name, self._world.now, writes, value, base)
        self._operation.blocks.append(begun)
        return begun

    def _end(self, begun: BlockOperation, tag: Tag, value: Answered) -> None:
        # a tag without a number was only mentioned, never written
        tag = tag if tag.number else TAG_ZERO
        begun.responded, begun.tag = self._world.now, tag
        if value is not WITHHELD and tag != TAG_ZERO:
            self._chronicle.learn(begun.name, tag, value)


class FileCopy(Struct, frozen=True):
    """A client's copy of a file: the base state, the content, and the blocks of the last get."""

    state: FileState
    content: bytes
    blocks: dict[KnownBlock, bytes]


class BlockSink(Sink):
    """A sink that keeps the blocks, and wants the blocks not known ``before``."""

    def __init__(self, before: dict[KnownBlock, bytes]) -> None:
        self.blocks: list[tuple[KnownBlock, bytes]] = []
        self._before = before

    def begin(self, expected_bytes: int) -> None:
        self.blocks.clear()

    def wanted(self, part: KnownBlock) -> bool:
        return part not in self._before

    def take(self, part: KnownBlock, data: memoryview | None) -> None:
        self.blocks.append((part, self._before[part] if data is None else bytes(data)))


class Files:
    """The files of the client ``name``; ``number`` makes the client's blocks and tokens unique.

    Clients of odd numbers make files by Rabin fingerprints.
    """

    def __init__(
        self, name: str, number: int, view: View, world: SimWorld, chronicle: FileChronicle
    ) -> None:
        self._name = name
        self._number = number
        self._chunking = CHUNKINGS[number % len(CHUNKINGS)]
        self._view = view
        self._world = world
        self._chronicle = chronicle
        self._ids = BlockIds(number)
        self._puts = 0
        self._held: dict[str, FileCopy] = {}

    def operation(self, step: SimStep) -> Operation[FileOperation]:
        """Return the operation of a step of a plan."""
        match step.operation:
            case "put-file":
                return self._put(step)
            case "remove-file":
                return self._remove(step.key)
            case "collect-files":
                return self._collect()
            case _:
                return self._get(step.key)

    def _open(self, kind: Kind, file: str, mine: bool = False) -> tuple[FileOperation, Recorder]:
        operation = FileOperation(self._name, kind, file, self._world.now, mine)
        self._chronicle.operations.append(operation)
        return operation, Recorder(self._view, operation, self._chronicle, self._world)

    def _now_s(self) -> int:
        return _seconds(self._world.now)

    def _get(self, file: str) -> Operation[FileOperation]:
        operation, blocks = self._open("get", file)
        held = self._held.get(file)
        taken = BlockSink(held.blocks if held is not None else {})
        try:
            operation.state = yield from fm_read(
                blocks, file, held.state if held is not None else None, taken
            )
            operation.content = b"".join(data for _, data in taken.blocks)
            self._held[file] = FileCopy(operation.state, operation.content, dict(taken.blocks))
        except ObjectNotFound:
            self._held.pop(file, None)
        operation.responded = self._world.now
        return operation

    def _put(self, step: SimStep) -> Operation[FileOperation]:
        """Put a file. A client without a copy first gets the file; a missing file is made."""
        file, change = step.key, step.change
        assert change is not None, "a put changes something"
        if file not in self._held:
            yield from self._get(file)
        operation, blocks = self._open("put", file, step.mine)
        held = self._held.get(file)
        if held is None:
            genesis = new_genesis(
                self._ids.life(file), file.startswith(ATOMIC_FILE), FILE_SIZES, self._chunking
            )
            base = FileState(genesis, TAG_ZERO, ())
            held, change = FileCopy(base, b"", {}), msgspec.structs.replace(change, kind="rewrite")
        self._puts += 1
        put = self._puts
        wanted = apply(change, held.content, lambda count: make_tokens(self._number, put, count))
        operation.base, operation.wanted = held.state, wanted
        content = content_of(wanted, held.state.genesis.chunking)
        write = fm_put if held.state.genesis.atomic else fm_update
        report, state = yield from write(
            FileTarget(blocks, file, self._ids, self._now_s()), held.state, content, mine=step.mine
        )
        operation.report, operation.state, operation.responded = report, state, self._world.now
        if any(conflict.whole_file for conflict in report.conflicts):
            # another client replaced or made the file: the client has no copy of it
            self._held.pop(file, None)
        else:
            self._held[file] = FileCopy(state, wanted, held.blocks)
        return operation

    def _remove(self, file: str) -> Operation[FileOperation]:
        operation, blocks = self._open("remove", file)
        try:
            yield from fm_remove(blocks, file, self._ids, self._now_s())
        except ObjectNotFound:
            operation.kind = "get"
        self._held.pop(file, None)
        operation.responded = self._world.now
        return operation

    def _collect(self) -> Operation[FileOperation]:
        """Collect, with a grace just longer than the longest put under way.

        Puts of dead clients do not count.
        """
        operation, blocks = self._open("collect", "")
        now_s = self._now_s()
        oldest_s = _seconds(min(self._chronicle.puts_under_way(), default=self._world.now))
        yield from fm_collect(blocks, now_s, now_s - oldest_s + 1)
        after: str | None = ""
        while after is not None:
            page, after = yield from blocks.names(BLOCK_NAMES, after)
            for name in page:
                found = yield from blocks.read(name)
                if isinstance(found.value, bytes) and len(decode_block(found.value, name).data):
                    operation.names.append(name)
        operation.responded = self._world.now
        return operation


def content_of(data: bytes, chunking: str) -> Content:
    """Cut ``data`` into chunks."""
    cuts = CUTS[chunking]
    chunks = list(divide(lambda offset, count: data[offset : offset + count], FILE_SIZES, cuts))
    return Content(chunks, lambda chunk: data[chunk.offset : chunk.offset + chunk.length])


def _seconds(now: float) -> int:
    return EPOCH_S + int(now * SECONDS_PER_S)


def apply(change: ContentChange, content: bytes, new: Callable[[int], bytes]) -> bytes:
    """Return the changed content; ``new(count)`` gives tokens never written before."""
    start = int(change.at * (len(content) // TOKEN_BYTES)) * TOKEN_BYTES
    stop = start + change.tokens * TOKEN_BYTES
    match change.kind:
        case "replace":
            return content[:start] + new(change.tokens) + content[stop:]
        case "insert":
            return content[:start] + new(change.tokens) + content[start:]
        case "delete":
            return content[:start] + content[stop:]
        case "truncate":
            return content[:start]
        case "append":
            return content + new(change.tokens)
        case "rewrite":
            return new(FIRST_TOKENS + change.tokens)


def make_tokens(client: int, put: int, count: int) -> bytes:
    """Make ``count`` tokens of a client's put.

    Half of each token is a digest, for the rolling hash that cuts files.
    """
    names = (f"{client:02x}{put:02x}{number:03x}" for number in range(count))
    return b"".join(f"<{name}{digest(name.encode()).hex()[:7]}>".encode() for name in names)


def tokens_of(content: bytes) -> list[bytes]:
    return _token.findall(content)
