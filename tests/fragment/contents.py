"""Contents of files and edits, as drawn by hypothesis, with their meaning for blocks."""

from typing import NamedTuple

from hypothesis import strategies as st

from ares.fragment.match import GENESIS, match
from ares.fragment.read import FileState

from .memory_world import content, noise

SIZE_MAX = 6000

seeds = st.integers(0, 10**6)
sizes = st.sampled_from([0, 1, 63, 64, 65, 255, 1023, 1024, 1025, 2500, 4000])


def _piece(seed: int, size: int, repeated: bool) -> bytes:
    return bytes([seed % 256]) * size if repeated else noise(seed, size)


pieces = st.builds(_piece, seeds, sizes, st.booleans())
contents = st.lists(pieces, max_size=3).map(b"".join)


class Change(NamedTuple):
    """A change of the bytes from ``start`` to ``start + gone`` to ``brought``.

    Positions are in thousandths of the content.
    """

    start: int
    gone: int
    brought: bytes

    def on(self, data: bytes) -> bytes:
        start = len(data) * self.start // 1000
        stop = len(data) * min(self.start + self.gone, 1000) // 1000
        return (data[:start] + self.brought + data[stop:])[: 4 * SIZE_MAX]


places = st.one_of(st.sampled_from([0, 500, 1000]), st.integers(0, 1000))
inserting = st.builds(Change, places, st.just(0), pieces)
replacing = st.builds(Change, places, st.integers(0, 300), pieces)
truncating = st.builds(Change, places, st.just(1000), st.just(b""))
changes = st.one_of(inserting, replacing, truncating)


class IntendedWrite(NamedTuple):
    """A writer's wish for a block: content (None: unchanged), and blocks to insert behind it."""

    own: bytes | None
    behind: tuple[bytes, ...]


def wishes(base: FileState, data: bytes) -> dict[int, IntendedWrite]:
    """Return the wishes of an update from ``base`` to ``data``, by index of the block.

    GENESIS stands for the place before all blocks.
    """
    wanted = content(data)
    found = match(
        [(part.length, part.digest) for part in base.parts],
        [(chunk.length, chunk.digest) for chunk in wanted.chunks],
    )
    return {
        edit.block: IntendedWrite(
            b""
            if edit.empty
            else None
            if edit.chunk is None
            else bytes(wanted.load(wanted.chunks[edit.chunk])),
            tuple(bytes(wanted.load(chunk)) for chunk in wanted.chunks[slice(*edit.insert)]),
        )
        for edit in found.edits
    }


def carried_out(old: list[bytes], wished: dict[int, IntendedWrite]) -> bytes:
    """Return the content of blocks ``old`` after the wishes."""
    blocks = []
    for index in range(GENESIS, len(old)):
        wish = wished.get(index, IntendedWrite(None, ()))
        if index != GENESIS:
            blocks.append(old[index] if wish.own is None else wish.own)
        blocks.extend(wish.behind)
    return b"".join(blocks)
