"""Matchings, which turn old blocks into exactly the new content.

A matching keeps as many blocks as possible, and writes no block twice.
"""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ares.fragment.match import GENESIS, Edit, Matching, match

MODES = {"exact": {}, "bounded": {"cells_max": 0}}
contents = st.sampled_from([b"", b"", b"a", b"b", b"cc", b"dd", b"e", b"fff"])
olds = st.lists(contents, max_size=12)
news = st.lists(contents.filter(len), max_size=12)


def described(blocks):
    return [(len(block), b"#" + block) for block in blocks]


def matched(old, new, **options):
    return match(described(old), described(new), **options)


def apply(old, matching, new):
    """Return the contents of the blocks after the edits, empty blocks included.

    Joined, they equal ``new`` joined.
    """
    edits = {edit.block: edit for edit in matching.edits}
    blocks = []
    for block in range(GENESIS, len(old)):
        edit = edits.get(block, Edit(block))
        if block != GENESIS:
            content = old[block] if edit.chunk is None else new[edit.chunk]
            blocks.append(b"" if edit.empty else content)
        blocks.extend(new[slice(*edit.insert)])
    return blocks


def flaws(old, new, matching):
    """Return the faults of a matching, in words."""
    found = []
    if b"".join(apply(old, matching, new)) != b"".join(new):
        found.append("content")
    blocks = [edit.block for edit in matching.edits]
    if blocks != sorted(set(blocks)) or not all(GENESIS <= block < len(old) for block in blocks):
        found.append("two edits of a block, or out of order")
    for edit in matching.edits:
        if edit == Edit(edit.block) or (
            edit.empty and (edit.chunk is not None or not old[edit.block])
        ):
            found.append("an edit that changes nothing")
        if edit.block == GENESIS and (edit.empty or edit.chunk is not None):
            found.append("content in the genesis block")
    kept = {block for block, _ in matching.kept}
    if any(old[block] != new[chunk] or not old[block] for block, chunk in matching.kept):
        found.append("unequal blocks kept")
    if any(a[0] >= b[0] or a[1] >= b[1] for a, b in pairwise(matching.kept)):
        found.append("kept out of order")
    if any(
        edit.block in kept and (edit.empty or edit.chunk is not None) for edit in matching.edits
    ):
        found.append("a kept block rewritten")
    placed = [chunk for _, chunk in matching.kept]
    placed += [
        chunk
        for edit in matching.edits
        for chunk in ([] if edit.chunk is None else [edit.chunk]) + list(range(*edit.insert))
    ]
    if sorted(placed) != list(range(len(new))):
        found.append("not every chunk exactly once")
    return found


def longest_common(old, new):
    """Compute the longest common subsequence by the textbook."""
    row = [0] * (len(new) + 1)
    for block in old:
        above, row = row, [0]
        for at, chunk in enumerate(new):
            row.append(above[at] + 1 if block == chunk else max(above[at + 1], row[at]))
    return row[-1]


@pytest.mark.parametrize("mode", MODES)
@given(old=olds, new=news)
def test_any_blocks_become_any_content(mode, old, new):
    matching = matched(old, new, **MODES[mode])
    assert flaws(old, new, matching) == []
    assert matching == matched(list(old), list(new), **MODES[mode])


@given(old=olds, new=news)
def test_as_much_as_possible_is_kept(old, new):
    assert len(matched(old, new).kept) == longest_common([block for block in old if block], new)


@given(old=st.permutations(range(12)), new=st.permutations(range(4, 16)))
def test_the_bounded_way_keeps_as_much_where_nothing_repeats(old, new):
    old, new = ([bytes([65 + number]) for number in numbers] for numbers in (old, new))
    assert len(matched(old, new, cells_max=0).kept) == longest_common(old, new)


@given(old=olds, new=news)
def test_no_block_is_inserted_while_an_empty_one_in_its_gap_is_left(old, new):
    matching = matched(old, new)
    edits = {edit.block: edit for edit in matching.edits}
    kept = [GENESIS, *(block for block, _ in matching.kept), len(old)]
    for before, after in pairwise(kept):
        gap = range(before + 1, after)
        if any(range(*edits[block].insert) for block in (before, *gap) if block in edits):
            assert all(block in edits and edits[block].chunk is not None for block in gap)


A, B, C, X, Y, Z = (letter.encode() for letter in "abcxyz")

CASES = {
    "nothing": ([], [], []),
    "nothing changed": ([A, B], [A, B], []),
    "a new file": ([], [X, Y], [Edit(GENESIS, insert=(0, 2))]),
    "all removed": ([A, B], [], [Edit(0, empty=True), Edit(1, empty=True)]),
    "one rewritten": ([A, B, C], [A, X, C], [Edit(1, 0 + 1)]),
    "inserted at the beginning": ([A, B], [X, A, B], [Edit(GENESIS, insert=(0, 1))]),
    "inserted after a kept block": ([A, B], [A, X, Y, B], [Edit(0, insert=(1, 3))]),
    "inserted at the end": ([A, B], [A, B, X], [Edit(1, insert=(2, 3))]),
    "removed in the middle": ([A, B, C], [A, C], [Edit(1, empty=True)]),
    "surplus chunks after the last that is rewritten": (
        [A, B, C],
        [A, X, Y, Z, C],
        [Edit(1, 1, insert=(2, 4))],
    ),
    "surplus blocks emptied": (
        [A, B, C, B],
        [X, B],
        [Edit(0, 0), Edit(1, empty=True), Edit(2, empty=True)],
    ),
    "empty blocks left alone": ([b"", A, b"", B, b""], [A, B], []),
    "an empty block used again": ([A, b"", B], [A, X, B], [Edit(1, 1)]),
    "an empty block used again at the beginning": ([b"", A], [X, A], [Edit(0, 0)]),
    "empty blocks used up, then inserted": (
        [A, b"", b"", B],
        [A, X, Y, Z, B],
        [Edit(1, 1), Edit(2, 2, insert=(3, 4))],
    ),
    "more empty blocks than chunks": ([A, b"", b"", B], [A, X, B], [Edit(1, 1)]),
    "a full block before an empty one, wherever they stand": ([b"", A], [X], [Edit(1, 0)]),
    "full and empty ones in order": ([A, b"", B], [X, Y, Z], [Edit(0, 0), Edit(1, 1), Edit(2, 2)]),
    "an empty block elsewhere is no help": ([b"", A, B], [A, X, B], [Edit(1, insert=(1, 2))]),
    "moved": ([A, B, C], [B, C, A], [Edit(0, empty=True), Edit(2, insert=(2, 3))]),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("old", "new", "edits"), CASES.values(), ids=CASES)
def test_edits_of_matched_blocks(mode, old, new, edits):
    assert matched(old, new, **MODES[mode]).edits == tuple(edits)


WRONG = [
    (Matching((Edit(0, 1),), ()), "content"),
    (Matching((Edit(1, 1), Edit(1, 1)), ((0, 0),)), "two edits of a block"),
    (Matching((Edit(0), Edit(1, 1)), ((0, 0),)), "an edit that changes nothing"),
    (Matching((Edit(GENESIS, 0), Edit(1, 1)), ((0, 0),)), "genesis"),
    (Matching((Edit(1, 1),), ((1, 0),)), "unequal blocks kept"),
    (Matching((Edit(1, 1),), ((0, 0), (0, 0))), "kept out of order"),
    (Matching((Edit(0, 0), Edit(1, 1)), ((0, 0),)), "a kept block rewritten"),
    (Matching((Edit(1, 1),), ()), "not every chunk exactly once"),
]


@pytest.mark.parametrize(("matching", "told"), WRONG)
def test_the_check_finds_what_is_wrong(matching, told):
    old, new = [A, B], [A, X]
    assert flaws(old, new, Matching((Edit(1, 1),), ((0, 0),))) == []
    assert any(told in flaw for flaw in flaws(old, new, matching))


def test_equal_digests_of_different_lengths_are_different():
    assert match([(1, b"#")], [(2, b"#")]).kept == ()


def edited(count, seed):
    """Return a file of ``count`` blocks and the file after a hundred edits of runs of blocks.

    Few digests repeat.
    """
    chance = random.Random(seed)
    old = [chance.randrange(count).to_bytes(4, "big") for _ in range(count)]
    new = list(old)
    for _ in range(100):
        at, removed = chance.randrange(len(new)), chance.randrange(3)
        new[at : at + removed] = [
            chance.randrange(count).to_bytes(4, "big") for _ in range(chance.randrange(3))
        ]
    return old, new


@pytest.mark.parametrize("mode", MODES)
def test_most_blocks_of_a_large_edited_file_are_kept(mode):
    old, new = edited(3000, 1)
    matching = matched(old, new, **MODES[mode])
    assert flaws(old, new, matching) == []
    assert len(matching.kept) > 2700


def test_the_bound_decides_by_what_is_left_after_the_ends():
    """Only X, B, X and B, X have partners in the middles.

    The second X of old has no partner if the first takes the only X of new.
    """
    old, new = [A, X, B, X, Y, C], [A, B, X, Z, C]
    exact = matched(old, new)
    assert len(exact.kept) == 4
    assert matched(old, new, cells_max=6) == exact
    assert len(matched(old, new, cells_max=5).kept) == 3
