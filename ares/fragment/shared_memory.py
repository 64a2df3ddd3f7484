"""The shared memory under a fragmented file: coverable objects by name (CoBFS calls it the DSMM, and asks no more of it than this).

Also how many blocks are under way at once (:class:`Pace`), and what a failure says of a file (:func:`effect`).
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ares.dap.primitives import Found
from ares.fragment.block import (
    GENESIS_NAMES,
    Block,
    BlockId,
    Genesis,
    block_name,
    encode_block,
    encode_genesis,
    genesis_name,
    mark_name,
)
from ares.model.errors import ObjectNotFound, Uncertain
from ares.model.identity import DomainName, ObjectName
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import TOMBSTONE, Value
from ares.objects.coverable import Covered, advance, create, cvr_read, cvr_write, mention
from ares.objects.operations import delete
from ares.objects.survey import list_mentioned, list_objects
from ares.operation.effects import Now, Operation, Together
from ares.reconfig.view import View

RETRIES_MAX = 100
"""How often a write is repeated over what others wrote meanwhile; each time somebody's write made progress."""

DELETIONS_MAX = 32
"""Deletions under way at once; they move no data."""

Result = TypeVar("Result")
Page = tuple[list[ObjectName], str | None]
"""Names, and the cursor of the next page (None: that was all)."""


class Blocks:
    """CoARES over the domain of a view. Tests put a dictionary in its place."""

    def __init__(self, view: View) -> None:
        self._view = view

    @property
    def domain(self) -> DomainName:
        """For messages to a person."""
        return self._view.domain

    def read(self, name: ObjectName, held: Tag | None = None) -> Operation[Found]:
        """The latest version; its value is WITHHELD if it is ``held``."""
        return cvr_read(self._view, name, held)

    def create(self, name: ObjectName, value: bytes) -> Operation[Tag]:
        """The first version of a name that nobody else uses."""
        return create(self._view, name, value)

    def write(
        self,
        name: ObjectName,
        value: Value,
        version: Tag | None,
        *,
        number: int = 0,
        beside: ObjectName | None = None,
    ) -> Operation[Covered]:
        """A coverable write over ``version`` (None: over nothing): under exactly ``number``, or above the numbers of the object ``beside``."""
        return cvr_write(self._view, name, value, version, number, beside)

    def mention(self, name: ObjectName) -> Operation[None]:
        """Make a name known to listings, and change nothing."""
        return mention(self._view, name)

    def advance(self, name: ObjectName, floor: int, by: int) -> Operation[Tag]:
        """Put the tag of an object that is never there ``by`` above its latest number and above ``floor``."""
        return advance(self._view, name, floor, by)

    def delete(self, name: ObjectName) -> Operation[None]:
        """Make the object absent, whatever its version; it may be so already."""
        try:
            yield from delete(self._view, name)
        except ObjectNotFound:
            return

    def names(self, prefix: str, after: str) -> Operation[Page]:
        """A page of the objects that are there."""
        return list_objects(self._view, after, prefix)

    def mentioned(self, prefix: str, after: str) -> Operation[Page]:
        """The same of all names of which any server knows a version, also those of objects that are absent."""
        page = yield from list_mentioned(self._view, after, prefix)
        return list(page.newest), page.after


def create_block(
    blocks: Blocks,
    file: BlockId,
    id: BlockId,
    now_s: int,
    data: bytes | memoryview,
    next: BlockId | None = None,
) -> Operation[Tag]:
    """Make a block of the file, which nobody can see yet."""
    return blocks.create(block_name(file, id), encode_block(Block(next, TAG_ZERO, now_s, data)))


def write_genesis(
    blocks: Blocks, file: str, genesis: Genesis | None, version: Tag | None, number: int = 0
) -> Operation[Covered]:
    """A coverable write of the genesis block (None: of a tombstone), under exactly ``number`` or above the mark (ares/fragment/collect.py)."""
    value: Value = TOMBSTONE if genesis is None else encode_genesis(genesis)
    return blocks.write(
        genesis_name(file),
        value,
        version,
        number=number,
        beside=None if number else mark_name(file),
    )


def drop_blocks(blocks: Blocks, names: Iterable[ObjectName]) -> Operation[None]:
    """Delete blocks that nothing points to. As soon as one cannot be reached the rest is left for collection (ares/fragment/collect.py)."""
    try:
        yield Together((blocks.delete(name) for name in names), DELETIONS_MAX)
    except Uncertain:
        return


def all_names(
    page: Callable[[str, str], Operation[Page]], prefix: str
) -> Operation[list[ObjectName]]:
    """Every name of a listing, which ``page`` gives page by page."""
    names: list[ObjectName] = []
    after: str | None = ""
    while after is not None:
        some, after = yield from page(prefix, after)
        names.extend(some)
    return names


def list_files(blocks: Blocks, prefix: str = "") -> Operation[list[str]]:
    """The names of the files of the domain that start with ``prefix``, in order."""
    names = yield from all_names(blocks.names, GENESIS_NAMES + prefix)
    return [name.removeprefix(GENESIS_NAMES) for name in names]


@contextmanager
def effect(possible: bool, advice: str | None = None) -> Iterator[None]:
    """An :class:`Uncertain` error from within says whether the file may have changed, and what to do then."""
    try:
        yield
    except Uncertain as error:
        error.may_have_taken_effect = possible
        if advice is not None:
            error.advice = advice
        raise


WINDOW_FIRST = 16
WINDOW_MAX = 96
WINDOW_MIN = 2
BYTES_MAX = 24 * 1024 * 1024
"""Of data on its way; erasure coding and the queues of the transport multiply it by about three."""

SURGE_BYTES_MAX = 128 * 1024 * 1024
"""Of data on its way at the very most, when all of many blocks turn out to have changed that were looked at in the belief that few had."""

SLOW_S = 0.4
SLOW_FACTOR = 6.0
MEMORY = 8


class Pace:
    """How many blocks are under way at once: ``window()`` is what :class:`ares.operation.effects.Together` asks; ``done`` is told of every block.

    Bounded in bytes, so that a file of any size moves through little memory; and adaptive, since a window that fills a fast network drowns a slow
    one, where every block is then late and is sent again. While blocks come back quickly the window grows by one for each window of them; when one
    takes much longer than the quickest, it shrinks by a quarter (the idea is that of TCP Vegas).

    ``expected_bytes``: what a block will move (0: most likely nothing); ``largest_bytes``: what it may move at most.
    """

    def __init__(self, expected_bytes: int = 0, largest_bytes: int = 0) -> None:
        self._most = (
            max(WINDOW_MIN, SURGE_BYTES_MAX // largest_bytes) if largest_bytes else WINDOW_MAX
        )
        self._size = float(expected_bytes)
        self._window = float(WINDOW_FIRST if expected_bytes else WINDOW_MAX)
        self._quickest_s = float("inf")
        self._since_shrunk = 0

    def window(self) -> int:
        fits = BYTES_MAX / self._size if self._size else WINDOW_MAX
        return int(max(WINDOW_MIN, min(self._window, fits, self._most)))

    def timed(self, operation: Operation[Result], moved_bytes: int) -> Operation[Result]:
        """The result of an operation that moves a block of so many bytes."""
        started = yield Now()
        result = yield from operation
        ended = yield Now()
        self.done(ended - started, moved_bytes)
        return result

    def done(self, seconds: float, moved_bytes: int) -> None:
        """A block took ``seconds`` and moved so many bytes (0: it was known already)."""
        self._size += (
            (moved_bytes - self._size) / MEMORY
            if moved_bytes < self._size
            else moved_bytes - self._size
        )
        self._since_shrunk += 1
        if moved_bytes:
            self._quickest_s = min(self._quickest_s, seconds)
        if seconds > SLOW_S and seconds > SLOW_FACTOR * self._quickest_s:
            if self._since_shrunk >= self._window:
                self._window = max(WINDOW_MIN, self._window * 0.75)
                self._since_shrunk = 0
        else:
            self._window = min(WINDOW_MAX, self._window + 1 / self._window)
