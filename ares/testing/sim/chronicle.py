"""What clients did with files: every operation on a file, and below it every coverable operation on a block, with what it was told."""

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct, field

from ares.dap.primitives import Found
from ares.fragment.block import GENESIS_NAMES, Genesis, block_name, decode_block, decode_genesis
from ares.fragment.divide import digest
from ares.fragment.read import FileState
from ares.fragment.report import WriteReport
from ares.fragment.shared_memory import Blocks
from ares.model.identity import ObjectName
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import TOMBSTONE, WITHHELD, Answered, Value
from ares.objects.coverable import Covered
from ares.operation.effects import Operation
from ares.reconfig.view import View
from ares.testing.sim.invariants import PromiseBroken
from ares.testing.sim.world import World
from ares.testing.verify.history import Event, Pair


class BlockOperation(Struct, eq=False):
    """One operation on a block. ``base``: the version that a write was given, or covered. ``tag``: what it was told.

    ``responded`` is None as long as it is under way, and for ever if its client died: a write may take effect then or not.
    """

    name: ObjectName
    invoked: float
    writes: bool
    value: Value | None
    base: Tag | None
    responded: float | None = None
    tag: Tag | None = None
    withheld: bool = False


class FileOperation(Struct, eq=False):
    """One operation on a file. ``wanted``: what a put is to leave, over ``base``, from ``began`` on. ``state`` and ``content``: what there was in the
    end. ``names``: the blocks that were left after a collection.

    ``responded`` is None for operations whose client died.
    """

    client: str
    kind: Literal["get", "put", "remove", "collect"]
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
        """The writes that took place for certain."""
        return (block for block in self.blocks if block.writes and block.tag is not None)

    def describe(self) -> str:
        """One line for a person."""
        told = "nothing there" if self.content is None else f"{len(self.content)} bytes"
        if self.report is not None:
            told = f"{self.report.describe()}: {', '.join(f'{c.length} bytes at {c.offset}: {c.why}' for c in self.report.conflicts) or 'done'}"
        return f"{self.client} {self.kind} {self.file}, {told}"


class FileChronicle:
    """``values``: of every version of a block that anybody saw or wrote; None for a tombstone. ``dead``: clients that go on with nothing."""

    def __init__(self) -> None:
        self.operations: list[FileOperation] = []
        self.dead: set[str] = set()
        self.values: dict[tuple[ObjectName, Tag], Value] = {}

    def puts_under_way(self) -> Iterator[float]:
        """When the puts and removals began that may still publish something."""
        for operation in self.operations:
            if operation.kind in ("put", "remove") and operation.responded is None and operation.client not in self.dead:
                yield operation.began

    def learn(self, name: ObjectName, tag: Tag, value: Value) -> None:
        """A version has one value."""
        if self.values.setdefault((name, tag), value) != value:
            raise PromiseBroken(f"version {tag} of {name!r} has two values")

    def data(self, name: ObjectName, tag: Tag) -> bytes | None:
        """What a version of a block holds, if anybody knows."""
        value = self.values.get((name, tag))
        return bytes(decode_block(value, name).data) if isinstance(value, bytes) else None

    def content(self, state: FileState) -> bytes | None:
        """The file as it was at ``state``, if anybody knows."""
        data = [self.data(block_name(state.genesis.file, part.id), part.tag) for part in state.parts]
        return None if None in data else b"".join(piece for piece in data if piece is not None)

    def genesis(self, name: ObjectName, tag: Tag) -> Genesis | None:
        """The genesis block at a version, if that is one and anybody knows it."""
        value = self.values.get((name, tag))
        return decode_genesis(value, name) if isinstance(value, bytes) and name.startswith(GENESIS_NAMES) else None

    def geneses(self) -> Iterator[tuple[ObjectName, Tag, Genesis]]:
        """Every version of every genesis block."""
        for name, tag in self.values:
            genesis = self.genesis(name, tag)
            if genesis is not None:
                yield name, tag, genesis

    def lineage(self, name: ObjectName, tag: Tag) -> list[Tag]:
        """The versions that one was built on, itself first, as far as they are known."""
        tags: list[Tag] = []
        while (value := self.values.get((name, tag))) is not None and tag not in tags:
            tags.append(tag)
            if not isinstance(value, bytes):
                break
            tag = decode_genesis(value, name).base if name.startswith(GENESIS_NAMES) else decode_block(value, name).base
        return tags

    def follows(self, name: ObjectName, tag: Tag, earlier: Tag) -> bool | None:
        """Whether a version was built on an ``earlier`` one, directly or not; None if nobody knows."""
        lineage = self.lineage(name, tag)
        if earlier in lineage:
            return True
        oldest = self.values.get((name, lineage[-1])) if lineage else None
        created = isinstance(oldest, bytes) and (name.startswith(GENESIS_NAMES) or decode_block(oldest, name).base == TAG_ZERO)
        return False if created or (lineage and lineage[-1] < earlier) else None

    def events(self) -> Iterator[Event]:
        """The history of every block. Reads of a version whose value nobody knows say nothing."""
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
        kind: Literal["read", "write", "delete"] = "read" if not block.writes else "delete" if value is TOMBSTONE else "write"
        said = digest(value)[:8].hex() if isinstance(value, bytes) else None
        outcome: Literal["ok", "unknown"] = "ok" if block.responded is not None else "unknown"
        return Event(client, kind, block.name, said, block.invoked, block.responded, outcome, pair(block.tag), pair(block.base))


def pair(tag: Tag | None) -> Pair | None:
    """As histories have it."""
    return None if tag is None else (tag.number, tag.writer)


class Recorder(Blocks):
    """The blocks of a domain, writing down what ``operation`` does there."""

    def __init__(self, view: View, operation: FileOperation, chronicle: FileChronicle, world: World) -> None:
        super().__init__(view)
        self._operation = operation
        self._chronicle = chronicle
        self._world = world

    def read(self, name: ObjectName, held: Tag | None = None) -> Operation[Found]:
        begun = self._begin(name, False, None, None)
        found = yield from super().read(name, held)
        self._end(begun, found.tag, found.value)
        return found

    def create(self, name: ObjectName, value: bytes) -> Operation[Tag]:
        begun = self._begin(name, True, value, TAG_ZERO)
        tag = yield from super().create(name, value)
        self._end(begun, tag, value)
        return tag

    def write(self, name: ObjectName, value: Value, version: Tag | None, *, number: int = 0, beside: ObjectName | None = None) -> Operation[Covered]:
        begun = self._begin(name, True, value, version)
        covered = yield from super().write(name, value, version, number=number, beside=beside)
        if covered.changed:
            begun.base = covered.base if version is None else version
            if begun.base is not None and begun.base.number == 0:
                begun.base = TAG_ZERO
        else:
            begun.writes = False
            begun.base = version if not number else None  # a fence that came too late is a read, whatever the version
        self._end(begun, covered.tag, covered.value)
        return covered

    def delete(self, name: ObjectName) -> Operation[None]:
        begun = self._begin(name, True, TOMBSTONE, None)
        yield from super().delete(name)
        begun.responded = self._world.now

    def _begin(self, name: ObjectName, writes: bool, value: Value | None, base: Tag | None) -> BlockOperation:
        begun = BlockOperation(name, self._world.now, writes, value, base)
        self._operation.blocks.append(begun)
        return begun

    def _end(self, begun: BlockOperation, tag: Tag, value: Answered) -> None:
        tag = tag if tag.number else TAG_ZERO  # what was only mentioned was never written
        begun.responded, begun.tag = self._world.now, tag
        if value is WITHHELD:
            begun.withheld = True
        elif tag != TAG_ZERO:
            self._chronicle.learn(begun.name, tag, value)
