"""Contents of files and edits of them, as hypothesis draws them; and what an edit means block by block."""

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
    """Bytes from ``start`` to ``start + gone`` (in thousandths of the content) become ``brought``."""

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


class Wish(NamedTuple):
    """What a writer wants of one block: its content (None: as it is), and what is to come behind it."""

    own: bytes | None
    behind: tuple[bytes, ...]


def wishes(base: FileState, data: bytes) -> dict[int, Wish]:
    """By index of the block (GENESIS: before all): what an update from ``base`` to ``data`` writes."""
    wanted = content(data)
    found = match(
        [(part.length, part.digest) for part in base.parts],
        [(chunk.length, chunk.digest) for chunk in wanted.chunks],
    )
    return {
        edit.block: Wish(
            b""
            if edit.empty
            else None
            if edit.chunk is None
            else bytes(wanted.load(wanted.chunks[edit.chunk])),
            tuple(bytes(wanted.load(chunk)) for chunk in wanted.chunks[slice(*edit.insert)]),
        )
        for edit in found.edits
    }


def carried_out(old: list[bytes], wished: dict[int, Wish]) -> bytes:
    """The content of blocks ``old`` after that."""
    blocks = []
    for index in range(GENESIS, len(old)):
        wish = wished.get(index, Wish(None, ()))
        if index != GENESIS:
            blocks.append(old[index] if wish.own is None else wish.own)
        blocks.extend(wish.behind)
    return b"".join(blocks)
