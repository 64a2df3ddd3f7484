"""The comparison of chunkings counts the blocks that a put moves."""

import random

from ares.fragment.divide import CHUNKINGS
from experiments.chunkings import EDIT_KINDS, SMALL_SIZES, _divided, _moved, chunkings
from experiments.measuring import Table


def test_moved_blocks_are_the_blocks_of_the_edited_data_alone():
    data = random.Random(1).randbytes(200_000)
    for name in CHUNKINGS:
        before = _divided(data, SMALL_SIZES, name)
        assert sum(length for length, _ in before) == len(data)
        assert _moved(before, before) == []
        assert len(_moved([], before)) == len(before) > 20
        for edit in EDIT_KINDS.values():
            moved = _moved(before, _divided(edit(data, 100_000), SMALL_SIZES, name))
            assert 1 <= len(moved) <= 5
            assert max(moved) <= SMALL_SIZES.max


def test_both_chunkings_are_in_the_table(capsys):
    chunkings(Table(), 200_000, 1)
    told = capsys.readouterr().out
    assert told.count("Cutting") == 2
    assert told.count("time of the cuts, Rabin : FastCDC") == 2
    for name in CHUNKINGS:
        assert told.count(f"1 byte inserted: blocks moved, {name}") == 2
