"""Rabin fingerprints as the definition has them; and cuts that move little, and cost little."""

import random
from math import log2
from statistics import mean

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ares.client.chunking import CUTS
from ares.compiled import rabin_search
from ares.fragment.divide import RABIN, Divider, Sizes, divide
from ares.fragment.rabin import RABIN_POLYNOMIAL, RABIN_WINDOW_BYTES, rabin_ends

SMALL = Sizes(64, 256, 1024)
both = pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
searches = pytest.mark.parametrize("search", [rabin_ends, rabin_search()], ids=["pure", "core"])


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def remainder(value: int, by: int = RABIN_POLYNOMIAL) -> int:
    """Divide polynomials over GF(2) as on paper."""
    while value.bit_length() >= by.bit_length():
        value ^= by << value.bit_length() - by.bit_length()
    return value


def product(one: int, other: int) -> int:
    """Multiply polynomials over GF(2)."""
    return sum_of(one << bit for bit in range(other.bit_length()) if other >> bit & 1)


def sum_of(terms) -> int:
    total = 0
    for term in terms:
        total ^= term
    return total


def irreducible(polynomial: int) -> bool:
    """Apply Rabin's test of irreducibility, for a degree which is prime."""
    degree, power = polynomial.bit_length() - 1, 2
    for _ in range(degree):
        power = remainder(product(power, power), polynomial)
    roots = not polynomial & 1 or not polynomial.bit_count() % 2
    return power == 2 and not roots


def test_the_polynomial_is_irreducible_and_of_degree_53():
    assert RABIN_POLYNOMIAL.bit_length() == 54
    assert irreducible(RABIN_POLYNOMIAL)
    assert not irreducible(RABIN_POLYNOMIAL ^ 0b10)
    assert irreducible(0b111)
    assert not irreducible(0b101)


def by_definition(data: bytes, min: int, max: int, bits: int) -> list[int]:
    """Cut with a division of every window."""
    ends, start, mask = [], 0, (1 << bits) - 1
    for end in range(1, len(data) + 1):
        window = int.from_bytes(data[end - RABIN_WINDOW_BYTES : end])
        matches = end - start >= min and remainder(window) & mask == mask
        if matches or end - start == max:
            ends.append(end)
            start = end
    return ends


periodic = st.builds(
    lambda unit, size: (unit * (size // len(unit) + 1))[:size],
    st.binary(min_size=1, max_size=100),
    st.integers(0, 4000),
)
random_bytes = st.builds(noise, st.integers(0, 4000), st.integers(0, 10**6))
contents = st.lists(st.binary(max_size=200) | periodic | random_bytes, max_size=4).map(b"".join)


@searches
@settings(max_examples=15, deadline=None)
@given(
    data=contents.map(lambda data: data[:5000]),
    min=st.integers(48, 300),
    more=st.integers(0, 1500),
    bits=st.integers(3, 11),
)
@example(data=bytes(300), min=48, more=0, bits=8)
@example(data=noise(3000), min=48, more=900, bits=8)
def test_cuts_are_where_the_definition_has_them(search, data, min, more, bits):
    assert search(data, min, min + more, bits) == by_definition(data, min, min + more, bits)


KNOWN = [
    *(1024, 1250, 1386, 1612, 1715, 2311, 2913, 3162, 3580, 3769, 3931, 4381, 4530, 4839),
    *(4944, 5027),
]


@searches
def test_the_cuts_of_existing_files_stay(search):
    """Cuts of files in clusters: other cuts would move each of their blocks at the next put."""
    data = bytes(range(256)) * 4 + noise(4096, 53)
    assert search(data, 64, 1024, 8) == KNOWN
    assert search(data[: KNOWN[3]], 64, 1024, 8) == KNOWN[:4]
    assert search(data[: KNOWN[3] - 1], 64, 1024, 8) == KNOWN[:3]


@settings(max_examples=100, deadline=None)
@given(contents, st.integers(48, 300), st.integers(0, 3000), st.integers(1, 20))
def test_the_core_cuts_like_python(data, min, more, bits):
    """Without a core both are Python's, and the test is about nothing."""
    assert rabin_search()(data, min, min + more, bits) == rabin_ends(data, min, min + more, bits)


@both
def test_a_cut_depends_on_the_bytes_of_its_chunk_alone(cuts):
    data = noise(20_000)
    ends = [end for _, end in cuts(data, SMALL, True)]
    for start, end in zip([0, *ends], ends, strict=False):
        assert next(cuts(data[start:], SMALL, True)) == (0, end - start)
        assert next(cuts(data[start:end] + noise(3000, 2), SMALL, True))[1] == end - start or (
            end == len(data)
        )


def moved(data: bytes, edited: bytes, cuts) -> int:
    """Return the number of chunks that are in the edited data only."""
    old, new = (
        {data[start:end] for start, end in cuts(data, SMALL, True)} for data in (data, edited)
    )
    return len(new - old)


@both
def test_an_edit_moves_few_chunks(cuts):
    data, rng = noise(60_000), random.Random(5)
    counts = []
    for _ in range(60):
        at, brought = rng.randrange(len(data)), rng.randbytes(rng.randrange(30))
        gone = rng.choice([0, len(brought), 30])
        counts.append(moved(data, data[:at] + brought + data[at + gone :], cuts))
    assert mean(counts) < 4
    assert max(counts) < 20 < len(list(cuts(data, SMALL, True))) / 3


ADVERSE = {
    "zeros": bytes(50_000),
    "ones": b"\xff" * 50_000,
    "a period of 2": b"ab" * 25_000,
    "a period of the window": noise(RABIN_WINDOW_BYTES) * 1000,
    "a long period": noise(257) * 200,
}


@both
@pytest.mark.parametrize("data", ADVERSE.values(), ids=ADVERSE)
def test_adverse_data_costs_bounded_work(cuts, data):
    """No byte is searched more than a few times, however the data was pushed or pulled."""
    searched = 0

    def counted(window, sizes, last):
        nonlocal searched
        searched += len(window)
        return cuts(window, sizes, last)

    def read(offset, count):
        return data[offset : offset + count]

    chunks = list(divide(read, SMALL, counted))
    assert all(SMALL.min <= chunk.length <= SMALL.max for chunk in chunks[:-1])
    assert searched == len(data)
    searched, divider = 0, Divider(SMALL, counted)
    pushed = [chunk for at in range(0, len(data), 50) for chunk in divider.feed(data[at : at + 50])]
    assert b"".join(pushed + divider.finish()) == data
    assert searched < 3 * len(data)


def test_zeros_end_at_the_greatest_size():
    lengths = [end - start for start, end in CUTS[RABIN](bytes(10 * 1024), SMALL, True)]
    assert lengths == [1024] * 10


@pytest.mark.parametrize("avg", [256, 300, 1024])
def test_chunks_have_the_average_size(avg):
    ends = rabin_ends(noise(200_000), 64, 100_000, round(log2(avg)))
    lengths = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    assert mean(lengths) == pytest.approx(64 + 2 ** round(log2(avg)), rel=0.25)
