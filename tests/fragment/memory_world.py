"""Clients of fragmented files over a dictionary of coverable objects in memory.

A seed chooses the order. Every step of every operation takes a few ticks, so operations of several
clients interleave. A client may die or receive Unavailable at any of its steps; a write whose
second phase had begun may land all the same.
"""

import heapq
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from ares.client.local_copy import AssemblySink, content_of_bytes
from ares.engine.effects import Operation
from ares.engine.session import Session
from ares.fragment.block import (
    BlockId,
    BlockIds,
    Genesis,
    block_name,
    decode_block,
    decode_genesis,
    genesis_name,
)
from ares.fragment.divide import Content, Sizes
from ares.fragment.read import FileProgress, FileState, Sink, fm_read
from ares.fragment.replace import fm_put
from ares.fragment.report import WriteReport
from ares.fragment.shared_memory import FileTarget
from ares.fragment.update import fm_update
from ares.model.identity import ClientId, ObjectName
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import TOMBSTONE, Value

from .memory_blocks import TICK_S, MemoryBlocks

SIZES = Sizes(64, 256, 1024)
NAME = "f"

Version = tuple[Tag, Value]
ABSENT: Version = (TAG_ZERO, TOMBSTONE)


class Died(BaseException):
    """The death of a client, whose operations do not continue."""


class BlockWorld:
    """A world of clients and objects.

    With ``weak``, simultaneous writes over the same version all succeed, and the highest tag
    stands; otherwise a write is atomic. ``moved_bytes`` counts values in both directions;
    ``written`` has every value that an object ever had or should have had.
    """

    def __init__(self, seed: int = 0, *, weak: bool = False, ticks_max: int = 3) -> None:
        self.rng = random.Random(seed)
        self.weak = weak
        self.ticks_max = ticks_max
        self.now = 0.0
        self.now_s = 1_000_000
        self.moved_bytes = 0
        self.objects: dict[ObjectName, Version] = {}
        self.written: defaultdict[ObjectName, list[Value]] = defaultdict(list)
        self.clients: list[BlockClient] = []
        self._flights: list[tuple[float, int, Callable[[], None]]] = []
        self._posted = 0

    def client(self) -> "BlockClient":
        client = BlockClient(self, len(self.clients) + 1)
        self.clients.append(client)
        return client

    def latest(self, name: ObjectName) -> Version:
        return self.objects.get(name, ABSENT)

    def land(self, name: ObjectName, tag: Tag, value: Value) -> None:
        """Apply a put-data: a tag below the present tag has no effect."""
        self.written[name].append(value)
        if tag > self.latest(name)[0]:
            self.objects[name] = (tag, value)

    def post(self, ticks: int, action: Callable[[], None]) -> None:
        """Run ``action`` after `ticks`, whatever becomes of the client."""
        self._posted += 1
        heapq.heappush(self._flights, (self.now + ticks * TICK_S, self._posted, action))

    def ticks(self) -> int:
        return self.rng.randint(1, self.ticks_max)

    def advance(self) -> None:
        self.now += TICK_S
        while self._flights and self._flights[0][0] <= self.now:
            heapq.heappop(self._flights)[2]()
        for client in self.rng.sample(self.clients, len(self.clients)):
            client.tick()

    def settle(self) -> None:
        """Run until every living client is idle and no message is in flight."""
        for _ in range(1_000_000):
            if not self._flights and not any(client.busy for client in self.clients):
                return
            self.advance()
        raise AssertionError("an operation does not end")

    # -- the state, found without the code under test
    # ------------------------------------------------

    def genesis(self, file: str = NAME) -> Genesis | None:
        _, value = self.latest(genesis_name(file))
        return decode_genesis(value, file) if isinstance(value, bytes) else None

    def chain(self, file: str = NAME) -> list[tuple[BlockId, bytes]]:
        """Return every block of a file in order, by pointers or manifest.

        A cycle or a hole raises AssertionError.
        """
        genesis = self.genesis(file)
        assert genesis is not None, "no such file"
        if genesis.atomic:
            return [(part.id, self._block(genesis, part.id)[1]) for part in genesis.parts]
        blocks: dict[BlockId, bytes] = {}
        id = genesis.first
        while id is not None:
            assert id not in blocks, f"a cycle at {id}"
            following, blocks[id] = self._block(genesis, id)
            id = following
        return list(blocks.items())

    def _block(self, genesis: Genesis, id: BlockId) -> tuple[BlockId | None, bytes]:
        name = block_name(genesis.file, id)
        _, value = self.latest(name)
        assert isinstance(value, bytes), f"block {id} is gone"
        block = decode_block(value, name)
        return block.next, bytes(block.data)

    def content(self, file: str = NAME) -> bytes:
        return b"".join(data for _, data in self.chain(file))

    def names(self, prefix: str = "") -> list[ObjectName]:
        return sorted(
            name
            for name, (_, value) in self.objects.items()
            if name.startswith(prefix) and value is not TOMBSTONE
        )


class Running:
    """An operation and its outcome. ``died``: the outcome stays unknown."""

    def __init__(self) -> None:
        self.ended = self.died = False
        self.value: Any = None
        self.error: BaseException | None = None
        self.progress: list[FileProgress] = []

    def end(self, value: Any, error: BaseException | None) -> None:
        assert not self.ended, "an operation ended twice"
        self.ended, self.value, self.error = True, value, error

    def result(self) -> Any:
        assert self.ended, "it has not ended"
        if self.error is not None:
            raise self.error
        return self.value


class BlockClient:
    """A client, which dies or receives Unavailable at given steps.

    The steps ``die_at`` and ``fail_at`` are counted from 0.
    """

    def __init__(self, world: BlockWorld, number: int) -> None:
        self.world = world
        self.id = ClientId(number)
        self.ids = BlockIds(number)
        self.blocks: MemoryBlocks = MemoryBlocks(self)
        self.steps = 0
        self.die_at: int | None = None
        self.fail_at: int | None = None
        self.dead = False
        self._session = Session()
        self._pending: list[Running] = []

    @property
    def busy(self) -> bool:
        return not self.dead and self._session.busy

    def tick(self) -> None:
        if not self.dead:
            self._run(lambda: self._session.tick(self.world.now))

    def start(self, operation: Operation[Any]) -> Running:
        running = Running()
        self._pending.append(running)

        def begin() -> None:
            self._session.start(
                operation,
                "an operation",
                self.world.now,
                1e9,
                running.end,
                progress=running.progress.append,
            )

        self._run(begin)
        return running

    def _run(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Died:
            self.dead = True
            for running in self._pending:
                running.died = not running.ended

    def step(self) -> bool:
        """Count a step, and return whether it fails."""
        self.steps += 1
        if self.steps - 1 == self.die_at:
            raise Died
        return self.steps - 1 == self.fail_at

    # -- the operations under test -----------------------------------------------------------------

    def run(self, operation: Operation[Any]) -> Any:
        """Start an operation, and run the world until it has settled."""
        running = self.start(operation)
        self.world.settle()
        return running.result()

    def update(
        self, base: FileState, data: bytes, *, mine: bool = False, file: str = NAME
    ) -> Operation[tuple[WriteReport, FileState]]:
        return fm_update(
            FileTarget(self.blocks, file, self.ids, self.world.now_s),
            base,
            content(data),
            mine=mine,
        )

    def put(
        self, base: FileState, data: bytes, *, overwrite: bool = False, file: str = NAME
    ) -> Operation[tuple[WriteReport, FileState]]:
        return fm_put(
            FileTarget(self.blocks, file, self.ids, self.world.now_s),
            base,
            content(data),
            mine=overwrite,
        )

    def reading(
        self, known: FileState | None = None, before: AssemblySink | None = None, file: str = NAME
    ) -> Operation[tuple[bytes, FileState]]:
        sink = AssemblySink(before)
        state = yield from fm_read(self.blocks, file, known, sink)
        return sink.finish(), state

    def read(self, known: FileState | None = None, file: str = NAME) -> tuple[bytes, FileState]:
        return self.run(self.reading(known, file=file))

    def look(self, known: FileState | None = None, file: str = NAME) -> FileState:
        return self.run(fm_read(self.blocks, file, known, Sink()))

    def new(self, *, atomic: bool = False) -> FileState:
        """Return the base of a new file."""
        return FileState(Genesis(self.ids.life(NAME), atomic, SIZES, None, ()), TAG_ZERO, ())

    def make(self, data: bytes, *, atomic: bool = False, file: str = NAME) -> FileState:
        """Make the file."""
        operation = self.put if atomic else self.update
        report, state = self.run(operation(self.new(atomic=atomic), data, file=file))
        assert not report.conflicts
        return state


def content(data: bytes) -> Content:
    return content_of_bytes(data, SIZES)


def noise(seed: int, size: int) -> bytes:
    """Return content without repetition."""
    return random.Random(seed).randbytes(size)


def whole_chunks(seed: int, size: int) -> bytes:
    """Return noise of at most ``size`` bytes that ends at the end of a chunk.

    Following content is divided as if alone.
    """
    data = noise(seed, size)
    return data[: content(data).chunks[-1].offset]
