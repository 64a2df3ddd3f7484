"""A simulated client's files: the real fm_read, fm_update, fm_put, fm_remove and fm_collect, each over what the client last saw of the file.

A file whose name begins with ATOMIC is atomic, others are shared. As with real clients, the base of a put is what the last get or put left behind,
and its content is what the client has, whether or not all of that is in the file.
"""

import re
from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec import Struct

from ares.fragment.block import BLOCK_NAMES, BlockIds, Genesis, Part, decode_block
from ares.fragment.collect import fm_collect, fm_remove
from ares.fragment.divide import Content, Sizes, digest, divide
from ares.fragment.read import FileState, fm_read
from ares.fragment.replace import fm_put
from ares.fragment.report import WHOLE_FILE
from ares.fragment.update import fm_update
from ares.model.errors import ObjectNotFound
from ares.model.tag import TAG_ZERO
from ares.operation.effects import Operation
from ares.reconfig.view import View
from ares.testing.sim.chronicle import FileChronicle, FileOperation, Recorder
from ares.testing.sim.plan import ATOMIC, Change, SimStep
from ares.testing.sim.world import World

SIZES = Sizes(64, 256, 1024)
EPOCH_S = 1_000_000
SECONDS_PER_S = 20
"""The clocks of clients go fast, so that a run has blocks of different ages. Retired blocks stay for 45 s of a run."""

Kind = Literal["get", "put", "remove", "collect"]


class FileCopy(Struct, frozen=True):
    """A client's copy of a file: what it is based on, what it holds, and the blocks of the last get."""

    state: FileState
    content: bytes
    blocks: dict[Part, bytes]


class BlockSink:
    """A sink that keeps the blocks, and wants those that it does not know ``before``."""

    def __init__(self, before: dict[Part, bytes]) -> None:
        self.blocks: list[tuple[Part, bytes]] = []
        self._before = before

    def begin(self, expected_bytes: int) -> None:
        self.blocks.clear()

    def wanted(self, part: Part) -> bool:
        return part not in self._before

    def take(self, part: Part, data: memoryview | None) -> None:
        self.blocks.append((part, self._before[part] if data is None else bytes(data)))


class Files:
    """The files of the client ``name``; ``number`` tells its blocks and tokens from others'."""

    def __init__(self, name: str, number: int, view: View, world: World, chronicle: FileChronicle) -> None:
        self._name = name
        self._number = number
        self._view = view
        self._world = world
        self._chronicle = chronicle
        self._ids = BlockIds(number)
        self._puts = 0
        self._held: dict[str, FileCopy] = {}

    def operation(self, step: SimStep) -> Operation[FileOperation]:
        """What a step of a plan does."""
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
            operation.state = yield from fm_read(blocks, file, held.state if held is not None else None, taken)
            operation.content = b"".join(data for _, data in taken.blocks)
            self._held[file] = FileCopy(operation.state, operation.content, dict(taken.blocks))
        except ObjectNotFound:
            self._held.pop(file, None)
        operation.responded = self._world.now
        return operation

    def _put(self, step: SimStep) -> Operation[FileOperation]:
        """A client without a copy gets one first; a file that is not there is made."""
        file, change = step.key, step.change
        assert change is not None, "a put changes something"
        if file not in self._held:
            yield from self._get(file)
        operation, blocks = self._open("put", file, step.mine)
        held = self._held.get(file)
        if held is None:
            base = FileState(Genesis(self._ids.life(file), file.startswith(ATOMIC), SIZES, None, ()), TAG_ZERO, ())
            held, change = FileCopy(base, b"", {}), msgspec.structs.replace(change, kind="rewrite")
        self._puts += 1
        put = self._puts
        wanted = apply(change, held.content, lambda count: make_tokens(self._number, put, count))
        operation.base, operation.wanted, content = held.state, wanted, content_of(wanted)
        if held.state.genesis.atomic:
            write = fm_put(blocks, file, held.state, content, self._ids, self._now_s(), overwrite=step.mine)
        else:
            write = fm_update(blocks, file, held.state, content, self._ids, self._now_s(), mine=step.mine)
        report, state = yield from write
        operation.report, operation.state, operation.responded = report, state, self._world.now
        if any(conflict.why in WHOLE_FILE for conflict in report.conflicts):  # another replaced or made the file: there is no copy of that here
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
        """With a grace just longer than the longest put under way; those of the dead are never waited for."""
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


def content_of(data: bytes) -> Content:
    """``data`` cut into chunks."""
    chunks = list(divide(lambda offset, count: data[offset : offset + count], SIZES))
    return Content(chunks, lambda chunk: data[chunk.offset : chunk.offset + chunk.length])


def _seconds(now: float) -> int:
    return EPOCH_S + int(now * SECONDS_PER_S)


TOKEN_BYTES = 16
"""Files are made of tokens, each written by one put, so that their content shows what became of every piece."""

FIRST_TOKENS = 90
"""How much more a put writes that makes a file, or rewrites it: some eight blocks."""


_token = re.compile(rb"<[0-9a-f]{14}>")


def apply(change: Change, content: bytes, new: Callable[[int], bytes]) -> bytes:
    """The changed content; ``new(count)`` gives tokens that nobody has written before."""
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
    """``count`` tokens of a client's put; half of each is a digest, for the sake of the rolling hash that cuts files."""
    names = (f"{client:02x}{put:02x}{number:03x}" for number in range(count))
    return b"".join(f"<{name}{digest(name.encode()).hex()[:7]}>".encode() for name in names)


def tokens_of(content: bytes) -> list[bytes]:
    """The whole tokens in it."""
    return _token.findall(content)
