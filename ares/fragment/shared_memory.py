"""The shared memory under a fragmented file: coverable objects by name.

CoBFS calls this memory the DSMM, and needs no more operations. The module also limits the blocks
under way (:class:`Pace`), and completes errors about files (:func:`effect`).
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from ares.dap.primitives import DataResult
from ares.engine.adaptive_window import AdaptiveWindow
from ares.engine.effects import Now, Operation, Together
from ares.fragment.block import (
    GENESIS_NAMES,
    Block,
    BlockId,
    BlockIds,
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
from ares.reconfig.view import View
from ares.registers.coverable import CoverableResult, advance, create, cvr_read, cvr_write, mention
from ares.registers.operations import delete
from ares.registers.survey import list_mentioned, list_objects

RETRIES_MAX = 100
"""Repetitions of a write over concurrent changes; at each repetition some client's write made
progress.
"""

DELETIONS_MAX = 32
"""Deletions under way at once; they move no data."""

Result = TypeVar("Result")
Page = tuple[list[ObjectName], str | None]
"""Names, and the cursor of the next page (None: no more pages)."""


class FileTarget(NamedTuple):
    """A file to write."""

    blocks: "Blocks"
    file: str
    ids: BlockIds
    now_s: int
    """Seconds since the epoch."""


class Blocks:
    """CoARES over the domain of a view. Tests put a dictionary in its place."""

    def __init__(self, view: View) -> None:
        self._view = view

    @property
    def domain(self) -> DomainName:
        """Return the domain's name for messages to a person."""
        return self._view.domain

    def read(self, name: ObjectName, held: Tag | None = None) -> Operation[DataResult]:
        """Return the latest version; its value is WITHHELD if the version is ``held``."""
        return cvr_read(self._view, name, held)

    def create(self, name: ObjectName, value: bytes) -> Operation[Tag]:
        """Store the first version of a name which no other client uses."""
        return create(self._view, name, value)

    def write(
        self,
        name: ObjectName,
        value: Value,
        version: Tag | None,
        *,
        number: int = 0,
        beside: ObjectName | None = None,
    ) -> Operation[CoverableResult]:
        """Run a coverable write over ``version`` (None: over an absent object).

        The write takes exactly ``number``, or a number above the numbers of the object ``beside``.
        """
        return cvr_write(self._view, name, value, version, number, beside)

    def mention(self, name: ObjectName) -> Operation[None]:
        """Make a name known to listings, without any other change."""
        return mention(self._view, name)

    def advance(self, name: ObjectName, floor: int, by: int) -> Operation[Tag]:
        """Put the tag of an always absent object ``by`` above its latest and above ``floor``."""
        return advance(self._view, name, floor, by)

    def delete(self, name: ObjectName) -> Operation[None]:
        """Make the object absent, whatever its version; an absent object stays absent."""
        try:
            yield from delete(self._view, name)
        except ObjectNotFound:
            return

    def names(self, prefix: str, after: str) -> Operation[Page]:
        """Return a page of the present objects."""
        return list_objects(self._view, after, prefix)

    def mentioned(self, prefix: str, after: str) -> Operation[Page]:
        """Return a page of all names with a version at any server, including absent objects."""
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
    """Make a block of the file, invisible to all readers yet."""
    return blocks.create(block_name(file, id), encode_block(Block(next, TAG_ZERO, now_s, data)))


def write_genesis(
    blocks: Blocks, file: str, genesis: Genesis | None, version: Tag | None, number: int = 0
) -> Operation[CoverableResult]:
    """Run a coverable write of the genesis block, under exactly ``number`` or above the mark.

    ``genesis`` None: write a tombstone. The mark: see ares/fragment/collect.py.
    """
    value: Value = TOMBSTONE if genesis is None else encode_genesis(genesis)
    return blocks.write(
        genesis_name(file),
        value,
        version,
        number=number,
        beside=None if number else mark_name(file),
    )


def drop_blocks(blocks: Blocks, names: Iterable[ObjectName]) -> Operation[None]:
    """Delete blocks without any pointer to them.

    After the first unreachable block the rest is left for collection (ares/fragment/collect.py).
    """
    try:
        yield Together((blocks.delete(name) for name in names), DELETIONS_MAX)
    except Uncertain:
        return


def all_names(
    page: Callable[[str, str], Operation[Page]], prefix: str
) -> Operation[list[ObjectName]]:
    """Return every name of a listing, which ``page`` gives page by page."""
    names: list[ObjectName] = []
    after: str | None = ""
    while after is not None:
        some, after = yield from page(prefix, after)
        names.extend(some)
    return names


def list_files(blocks: Blocks, prefix: str = "") -> Operation[list[str]]:
    """Return the names of the domain's files which start with ``prefix``, in order."""
    names = yield from all_names(blocks.names, GENESIS_NAMES + prefix)
    return [name.removeprefix(GENESIS_NAMES) for name in names]


@contextmanager
def effect(possible: bool, advice: str | None = None) -> Iterator[None]:
    """Complete an :class:`Uncertain` error from within the block.

    The error says whether the file may have changed, and the remedy.
    """
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
WINDOW_BYTES_MAX = 24 * 1024 * 1024
"""Bytes of data on its way; erasure coding and transport queues multiply them by about three."""

SURGE_BYTES_MAX = 128 * 1024 * 1024
"""Absolute limit of data on its way.

Reached when all of many blocks turn out to have changed, although few changes were expected.
"""

SLOW_BLOCK_S = 0.4
SLOW_BLOCK_FACTOR = 6.0
BLOCK_SIZES_REMEMBERED = 8


class Pace:
    """The number of blocks under way at once.

    ``window()`` is called by :class:`ares.engine.effects.Together`; ``done`` is called for every
    block. The number is bounded in bytes, hence a file of any size moves through little memory. The
    number is adaptive, because a window that fills a fast network drowns a slow network, where
    every block is late and is sent again. While blocks come back quickly the window grows by one
    block for each window of them; when a block takes much longer than the quickest, the window
    shrinks by a quarter (the idea of TCP Vegas).

    ``expected_bytes``: expected bytes of a block's move (0: most likely none); ``largest_bytes``:
    the most bytes of a block's move.
    """

    def __init__(self, expected_bytes: int = 0, largest_bytes: int = 0) -> None:
        self._most = (
            max(WINDOW_MIN, SURGE_BYTES_MAX // largest_bytes) if largest_bytes else WINDOW_MAX
        )
        self._size = float(expected_bytes)
        first = WINDOW_FIRST if expected_bytes else WINDOW_MAX
        self._window = AdaptiveWindow(first, WINDOW_MIN, WINDOW_MAX)
        self._quickest_s = float("inf")

    def window(self) -> int:
        fits = WINDOW_BYTES_MAX / self._size if self._size else WINDOW_MAX
        return int(max(WINDOW_MIN, min(self._window.size, fits, self._most)))

    def timed(self, operation: Operation[Result], moved_bytes: int) -> Operation[Result]:
        """Run an operation that moves a block of so many bytes, and return its result."""
        started = yield Now()
        result = yield from operation
        ended = yield Now()
        self.done(ended - started, moved_bytes)
        return result

    def done(self, seconds: float, moved_bytes: int) -> None:
        """Record a block that took ``seconds`` and moved ``moved_bytes`` (0: already known)."""
        self._size += (
            (moved_bytes - self._size) / BLOCK_SIZES_REMEMBERED
            if moved_bytes < self._size
            else moved_bytes - self._size
        )
        if moved_bytes:
            self._quickest_s = min(self._quickest_s, seconds)
        self._window.count_end(
            seconds > SLOW_BLOCK_S and seconds > SLOW_BLOCK_FACTOR * self._quickest_s
        )
