"""Parts of a file, as it was at one moment."""

from collections.abc import Iterator

from ares.fragment.block import Part
from ares.fragment.pace import Pace
from ares.fragment.read import BlockGone, FileState, see_block
from ares.fragment.shared_memory import Blocks
from ares.model.errors import FileChanged
from ares.operation.effects import Operation, Together


def fm_read_range(blocks: Blocks, file: str, state: FileState, start: int, stop: int) -> Operation[bytes]:
    """Bytes ``start`` to ``stop`` (exclusive) of the file as ``state`` has it; less behind its end.

    Raises :class:`FileChanged` if a block that this takes was changed or deleted since: then there is no such content any more.
    """
    pieces: dict[int, memoryview] = {}
    pace = Pace(state.genesis.sizes.avg)

    def fetch(position: int, part: Part, offset: int) -> Operation[None]:
        try:
            seen = yield from see_block(blocks, state.genesis, part.id, part, True)
        except BlockGone as gone:
            raise FileChanged(file) from gone
        if seen.data is None or seen.part.tag != part.tag:
            raise FileChanged(file)
        pieces[position] = seen.data[max(start - offset, 0) : stop - offset]
        pace.done(0.0, part.length)

    yield Together((fetch(*place) for place in _overlapping(state, start, stop)), pace.window)
    return b"".join(pieces[position] for position in sorted(pieces))


def _overlapping(state: FileState, start: int, stop: int) -> Iterator[tuple[int, Part, int]]:
    """Position, block and offset of what shares bytes with the range."""
    offset = 0
    for position, part in enumerate(state.parts):
        if part.length and offset < stop and offset + part.length > start:
            yield position, part, offset
        offset += part.length
