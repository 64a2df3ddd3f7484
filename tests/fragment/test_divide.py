"""Chunks cover the data, their cuts depend on content alone, and memory stays bounded."""

import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ares.client.chunking import CUTS
from ares.compiled import CORE
from ares.fragment import divide as division
from ares.fragment.divide import (
    DIGEST_BYTES,
    Divider,
    Sizes,
    digest,
    divide,
    fastcdc_cuts,
)
from ares.model.errors import BadInput, ConfigurationRefused
from ares.model.units import KIB, MIB

SMALL = Sizes(64, 256, 1024)
USUAL = Sizes()
SIZES = [
    SMALL,
    Sizes(64, 1024, 8192),
    Sizes(256, 256, 1024),
    Sizes(1024, 1024, 1024),
    Sizes(64 * KIB, 128 * KIB, 512 * KIB),
    USUAL,
]
both = pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
SLOW = None if CORE is not None else "Python alone takes minutes for such sizes"


def reader(data):
    view = memoryview(data)
    return lambda offset, count: bytes(view[offset : offset + count])


def chunked(data, sizes, cuts=fastcdc_cuts):
    return list(divide(reader(data), sizes, cuts))


def whole(data, sizes, cuts=fastcdc_cuts):
    """Divide without windows."""
    return [data[start:end] for start, end in cuts(data, sizes, True)]


def noise(size, seed=1):
    return random.Random(seed).randbytes(size)


def check(data, sizes, cuts):
    chunks = chunked(data, sizes, cuts)
    end = 0
    for chunk in chunks:
        assert chunk.offset == end
        end += chunk.length
        assert chunk.digest == digest(data[chunk.offset : end])
        assert sizes.min <= chunk.length <= sizes.max or (
            end == len(data) and 0 < chunk.length <= sizes.max
        )
    assert end == len(data)
    assert [data[chunk.offset : chunk.offset + chunk.length] for chunk in chunks] == whole(
        data, sizes, cuts
    )
    assert chunked(data, sizes, cuts) == chunks


@both
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize(
    "make",
    [noise, bytes, lambda size: (b"to and fro, " * (size // 12 + 1))[:size]],
    ids=["random", "zeros", "repetitive"],
)
def test_chunks_cover_the_data(sizes, make, cuts):
    if SLOW and cuts is not fastcdc_cuts and sizes.max > 8192:
        pytest.skip(SLOW)
    edges = [
        0,
        1,
        sizes.min - 1,
        sizes.min,
        sizes.min + 1,
        sizes.max - 1,
        sizes.max,
        sizes.max + 1,
        3 * sizes.max,
        5 * sizes.max + 17,
    ]
    for size in edges:
        check(make(size), sizes, cuts)


@both
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(0, 20_000), repeat=st.integers(1, 30))
def test_chunks_of_any_data_join_to_the_data(cuts, seed, size, repeat):
    check(noise(size // repeat, seed) * repeat, SMALL, cuts)


@both
@pytest.mark.parametrize("window", [0, 1, 63, 64, 1000, 10_000])
@pytest.mark.parametrize("sizes", SIZES[:4], ids=str)
def test_cuts_do_not_depend_on_windows(monkeypatch, window, sizes, cuts):
    monkeypatch.setattr(division, "DIVIDE_WINDOW_BYTES", window)
    check(noise(50_000), sizes, cuts)
    check(noise(500) + bytes(20_000) + noise(3_000, 2), sizes, cuts)


@both
def test_the_check_notices_cuts_at_windows(monkeypatch, cuts):
    """Negative control: dividing each window by itself."""
    monkeypatch.setattr(division, "DIVIDE_WINDOW_BYTES", 1000)
    expected = whole(noise(50_000), SMALL, cuts)
    by_window = chunked(noise(50_000), SMALL, lambda window, sizes, _: cuts(window, sizes, True))
    assert [chunk.length for chunk in by_window] != [len(part) for part in expected]


@both
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.binary(max_size=3000)
        | st.integers(0, 3000).map(bytes)
        | st.integers(0, 9).map(lambda seed: noise(2500, seed)),
        max_size=12,
    )
)
def test_pushed_data_is_divided_as_pulled(cuts, pieces):
    data = b"".join(pieces)
    divider = Divider(SMALL, cuts)
    got = []
    for piece in pieces:
        got += divider.feed(piece)
        assert len(data) == 0 or sum(map(len, got)) <= len(data)
    assert got + divider.finish() == whole(data, SMALL, cuts)
    assert divider.finish() == []


@both
def test_a_divider_gives_chunks_as_they_come(cuts):
    divider, data, got = Divider(SMALL, cuts), noise(50_000), 0
    for fed in range(0, 50_000, 100):
        got += sum(map(len, divider.feed(data[fed : fed + 100])))
        assert fed + 100 - got < SMALL.max
    assert got + sum(map(len, divider.finish())) == 50_000


@both
def test_an_insertion_in_the_middle_changes_few_chunks(cuts):
    if SLOW and cuts is not fastcdc_cuts:
        pytest.skip(SLOW)
    data = noise(64 * MIB)
    middle = len(data) // 2
    before = chunked(data, USUAL, cuts)
    after = chunked(data[:middle] + b"!" + data[middle:], USUAL, cuts)
    old, new = {chunk.digest for chunk in before}, {chunk.digest for chunk in after}
    assert len(before) > 64
    assert 1 <= len(new - old) <= 3
    assert 1 <= len(old - new) <= 3


def test_cuts_at_fixed_offsets_would_change_half_of_all():
    """Negative control: the result of the test above with a division that ignores the content."""
    data = noise(8 * MIB)
    edited = data[: 4 * MIB] + b"!" + data[4 * MIB :]
    old, new = (
        {digest(stream[at : at + 256 * KIB]) for at in range(0, len(stream), 256 * KIB)}
        for stream in (data, edited)
    )
    assert len(new - old) > 16


def peak_bytes(sizes, read, cuts=fastcdc_cuts):
    tracemalloc.start()
    try:
        count = sum(1 for _ in divide(read, sizes, cuts))
        assert count > 1
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def zeros(size, hoard=None):
    def read(offset, count):
        window = bytes(max(0, min(count, size - offset)))
        if hoard is not None:
            hoard.append(window)
        return window

    return read


@both
@pytest.mark.parametrize("sizes", [SMALL, USUAL, Sizes(2 * MIB, 4 * MIB, 16 * MIB)], ids=str)
def test_memory_is_bounded(sizes, cuts):
    if SLOW and cuts is not fastcdc_cuts:
        pytest.skip(SLOW)
    size = 64 * MIB if sizes is not SMALL else 24 * MIB
    assert peak_bytes(sizes, zeros(size), cuts) < sizes.max + division.DIVIDE_WINDOW_BYTES + MIB


def test_hoarded_windows_would_be_seen():
    """Negative control."""
    assert peak_bytes(USUAL, zeros(24 * MIB, hoard=[])) > 3 * (
        USUAL.max + division.DIVIDE_WINDOW_BYTES
    )


def test_digests_are_blake3_of_the_data():
    assert len(digest(b"")) == DIGEST_BYTES
    assert digest(b"data") == digest(memoryview(b"data")) != digest(b"date")
    assert digest(b"").hex() == "af1349b9f5f9a1a6a0404dea36dcc949"


def test_the_papers_sizes_are_the_default():
    assert Sizes() == Sizes(512 * KIB, 512 * KIB, MIB)


@pytest.mark.parametrize(
    "sizes",
    [
        (64, 256, 1024),
        (64, 64 * MIB, 128 * MIB),
        (64 * MIB, 128 * MIB, 128 * MIB),
        (1024, 1024, 1024),
    ],
)
@both
def test_sizes_at_the_limits_are_taken_by_the_library_too(sizes, cuts):
    assert [chunk.length for chunk in chunked(b"few", Sizes(*sizes), cuts)] == [3]


@pytest.mark.parametrize(
    "sizes",
    [
        (63, 256, 1024),
        (512, 256, 1024),
        (64, 2048, 1024),
        (64, 256, 128 * MIB + 1),
        (64, 255, 1024),
        (64, 256, 1023),
        (64 * MIB + 1, 128 * MIB, 128 * MIB),
        (-1, 256, 1024),
    ],
)
def test_sizes_beyond_the_limits_are_refused(sizes):
    with pytest.raises(BadInput, match="block sizes"):
        Sizes(*sizes)


def test_without_the_compiled_library_dividing_is_refused(monkeypatch):
    monkeypatch.setattr(division, "fastcdc_cy", None)
    with pytest.raises(ConfigurationRefused, match="compiled part of the library `fastcdc`"):
        chunked(b"data", SMALL)
    divider = Divider(SMALL)
    divider.feed(b"data")
    with pytest.raises(ConfigurationRefused, match="nothing was sent"):
        divider.finish()
