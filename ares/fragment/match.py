"""The blocks of an edit: chunks of the new content matched against the blocks as last read.

See CoARESF, "Block identification". Blocks can be rewritten, emptied and inserted, never unlinked.
A longest common subsequence over the digests is kept; each gap between kept blocks is filled with
as few writes as possible.
"""

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Sequence

from msgspec import Struct
from rapidfuzz.distance import LCSseq

GENESIS = -1
"""Index of the genesis block, before all blocks."""

CELLS_MAX = 64 * 1024 * 1024 * 8
"""Limit of the library's matrix, a bit for each pair of an old and a new block.

64 MiB, some 23,000 blocks that all moved.
"""

Pair = tuple[int, int]
"""Index into old, index into new."""


class Edit(Struct, frozen=True, gc=False):
    """A write of the block ``block`` (an index into old, or GENESIS).

    ``chunk``: its new content, an index into new, or None: the block keeps its content, unless
    ``empty`` (deleted; the block stays linked). ``insert``: start and stop of the indexes into new
    which become blocks right after the block; (0, 0) for none.
    """

    block: int
    chunk: int | None = None
    empty: bool = False
    insert: tuple[int, int] = (0, 0)


class Matching(Struct, frozen=True):
    """The result of a match.

    ``edits`` by increasing block, at most one for each block, none for an unchanged block;
    ``kept``: (old, new) indexes of equal content.
    """

    edits: tuple[Edit, ...]
    kept: tuple[Pair, ...]


def match(
    old: Sequence[tuple[int, bytes]], new: Sequence[tuple[int, bytes]], cells_max: int = CELLS_MAX
) -> Matching:
    """Return the edits that turn blocks ``old`` into ``new``; both are (length in bytes, digest).

    The result is the same for the same arguments. Blocks of length 0 (deleted before) match no
    chunk; they are used for new content in their gap and otherwise left alone. The most possible
    blocks are kept while the matrix has at most ``cells_max`` cells, after equal ends and blocks of
    a single side are set aside. Beyond ``cells_max``, the first occurrence of a digest in old is
    only compared with its first in new, the second with the second and so on: linear memory, and
    still the maximum where no digest repeats.
    """
    kept = _kept(old, new, cells_max)
    edits: list[Edit] = []
    before: Pair = (GENESIS, -1)
    for after in [*kept, (len(old), len(new))]:
        edits.extend(_fill(old, range(before[0] + 1, after[0]), range(before[1] + 1, after[1])))
        before = after
    return Matching(tuple(edits), tuple(kept))


def _fill(old: Sequence[tuple[int, bytes]], blocks: range, chunks: range) -> Iterator[Edit]:
    """Yield the writes which replace the unkept ``blocks`` by ``chunks``, in order of blocks."""
    live = sum(old[block][0] > 0 for block in blocks)
    spare = len(chunks) - live
    wanted = iter(chunks)
    surplus = chunks[len(blocks) :]
    insert = (surplus.start, surplus.stop) if surplus else (0, 0)
    if surplus and not blocks:
        yield Edit(blocks.start - 1, insert=insert)
    for block in blocks:
        if not old[block][0]:
            if spare <= 0:
                continue
            spare -= 1
        chunk = next(wanted, None)
        yield Edit(block, chunk, chunk is None, insert if block == blocks[-1] else (0, 0))


def _kept(
    old: Sequence[tuple[int, bytes]], new: Sequence[tuple[int, bytes]], cells_max: int
) -> list[Pair]:
    """Return pairs of equal blocks, both indexes increasing."""
    olds = [block for block, (length, _) in enumerate(old) if length]
    news = [chunk for chunk, (length, _) in enumerate(new) if length]
    shorter = min(len(olds), len(news))
    head = next((n for n in range(shorter) if old[olds[n]] != new[news[n]]), shorter)
    shorter -= head
    tail = next((n for n in range(shorter) if old[olds[-1 - n]] != new[news[-1 - n]]), shorter)
    ends = len(olds) - tail, len(news) - tail
    middle = _common(
        [old[block] for block in olds[head : ends[0]]],
        [new[chunk] for chunk in news[head : ends[1]]],
        cells_max,
    )
    return [
        *zip(olds[:head], news[:head], strict=True),
        *((olds[head + a], news[head + b]) for a, b in middle),
        *zip(olds[ends[0] :], news[ends[1] :], strict=True),
    ]


def _common(old: Sequence[Hashable], new: Sequence[Hashable], cells_max: int) -> list[Pair]:
    """Return a common subsequence, as pairs of indexes."""
    numbers = {key: number for number, key in enumerate(dict.fromkeys(old))}
    shared = numbers.keys() & set(new)
    olds = [index for index, key in enumerate(old) if key in shared]
    news = [index for index, key in enumerate(new) if key in shared]
    a, b = [numbers[old[index]] for index in olds], [numbers[new[index]] for index in news]
    if len(a) * len(b) > cells_max:
        return [(olds[i], news[j]) for i, j in _by_occurrence(a, b)]
    # numbers, because the library compares hashes, and hashes of other values may collide
    runs = LCSseq.editops(a, b).as_matching_blocks()
    return [(olds[run.a + step], news[run.b + step]) for run in runs for step in range(run.size)]


def _by_occurrence(old: list[int], new: list[int]) -> list[Pair]:
    """Pair the n-th occurrence in old with the n-th in new; return a longest increasing sequence.

    The method is patience sorting.
    """
    places: dict[int, list[int]] = {}
    for place in range(len(new) - 1, -1, -1):
        places.setdefault(new[place], []).append(place)
    lowest: list[
        int
    ] = []  # by length: the lowest last place of an increasing sequence of that length
    last: list[Pair] = []  # its last pair
    previous: dict[Pair, Pair | None] = {}
    for index, number in enumerate(old):
        if places[number]:
            pair = (index, places[number].pop())
            length = bisect_left(lowest, pair[1])
            previous[pair] = last[length - 1] if length else None
            lowest[length : length + 1] = [pair[1]]
            last[length : length + 1] = [pair]
    chain: list[Pair] = []
    at = last[-1] if last else None
    while at is not None:
        chain.append(at)
        at = previous[at]
    return chain[::-1]
