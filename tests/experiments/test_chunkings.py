"""The comparison of chunkings counts the blocks that a put moves."""

import random

import pytest

from ares.client.chunking import CUTS
from ares.fragment.divide import CHUNKINGS, FASTCDC, RABIN
from experiments.bench import chunkings
from experiments.bench.chunkings import EDIT_KINDS, SMALL_SIZES, _divided, _moved, compared


def test_moved_blocks_are_the_blocks_of_the_edited_data_alone():
    data = random.Random(1).randbytes(200_000)
    for name in CHUNKINGS:
        before = _divided(data, SMALL_SIZES, CUTS[name])
        assert sum(length for length, _ in before) == len(data)
        assert _moved(before, before) == []
        assert len(_moved([], before)) == len(before) > 20
        for edit in EDIT_KINDS.values():
            moved = _moved(before, _divided(edit(data, 100_000), SMALL_SIZES, CUTS[name]))
            assert 1 <= len(moved) <= 5
            assert max(moved) <= SMALL_SIZES.max


def test_chunkings_are_compared_by_the_same_figures(monkeypatch):
    monkeypatch.setattr(chunkings, "CHUNKING_ROUNDS", 1)
    found = dict(compared(SMALL_SIZES, 200_000))
    assert list(found) == [FASTCDC, RABIN, f"{RABIN} by Python"]
    assert len({tuple(figures) for figures in found.values()}) == 1
    assert found[FASTCDC]["time : FastCDC"] == 1 < found[f"{RABIN} by Python"]["time : FastCDC"]
    for figures in found.values():
        assert 4 <= figures["KiB a block"] <= 8
        inserted = [figures[f"1 byte inserted: {what} moved"] for what in ("blocks", "KiB")]
        assert inserted[1] == pytest.approx(inserted[0] * 6, rel=0.5)
