"""Any k of n elements, which rebuild a value of any size (ares/dap/coding.py)."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ares.dap.coding import STRIPE_BYTES, coding_for
from ares.model.configuration import Configuration
from ares.model.errors import DecodeFailed

SHAPES = [(n, k) for n in range(2, 8) for k in range(1, n)]


def coding(n, k):
    return coding_for(
        Configuration.ec([f"s{number}" for number in range(n)], k, allow_no_faults=True)
    )


def choose(elements, pattern):
    return {index: elements[index] for index in pattern}


def sizes(k):
    return sorted({0, 1, 2, max(k - 1, 0), k, k + 1, 8 * k - 1, 8 * k, 8 * k + 1, 1000, 4097})


@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_every_pattern_of_k_elements_rebuilds_every_size(n, k):
    code = coding(n, k)
    for size in sizes(k):
        value = random.Random(size).randbytes(size)
        elements = code.encode(value)
        assert len(elements) == n
        for pattern in itertools.combinations(range(n), k):
            assert code.decode(size, choose(elements, pattern)) == value


@pytest.mark.parametrize(("n", "k"), [(11, 6), (11, 10), (15, 11)])
def test_every_pattern_of_the_larger_codes(n, k):
    code, value = coding(n, k), bytes(range(256)) * 3
    elements = code.encode(value)
    for pattern in itertools.combinations(range(n), k):
        assert code.decode(len(value), choose(elements, pattern)) == value


@pytest.mark.parametrize("beyond", [-1, 0, 1, STRIPE_BYTES - 1, STRIPE_BYTES, STRIPE_BYTES + 1])
def test_sizes_around_a_stripe(beyond):
    code, value = coding(5, 3), random.Random(beyond).randbytes(STRIPE_BYTES + beyond)
    elements = code.encode(value)
    assert {len(parts) for parts in elements} == {-(-len(value) // STRIPE_BYTES)}
    for pattern in [(0, 1, 2), (2, 3, 4), (0, 3, 4)]:
        assert code.decode(len(value), choose(elements, pattern)) == value


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(SHAPES), st.binary(max_size=3000), st.integers(1, 40), st.data())
def test_any_value_in_any_stripes_from_at_least_k_elements(shape, value, stripes, data):
    n, k = shape
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ares.dap.coding.STRIPE_BYTES", max(len(value) // stripes, 1))
        check(n, k, value, data)


def check(n, k, value, data):
    code = coding(n, k)
    elements = code.encode(value)
    chosen = data.draw(st.lists(st.integers(0, n - 1), min_size=k, max_size=n, unique=True))
    assert code.decode(len(value), choose(elements, chosen)) == value


@pytest.mark.parametrize(("n", "k"), [shape for shape in SHAPES if shape[1] > 1])
def test_fewer_than_k_elements_do_not(n, k):
    code, value = coding(n, k), b"a value that takes some room" * 5
    elements = code.encode(value)
    for pattern in itertools.combinations(range(n), k - 1):
        with pytest.raises(DecodeFailed):
            code.decode(len(value), choose(elements, pattern))


def test_the_refused_backend_does_fail_this():
    """Negative control: the result of the checks above with isa_l_rs_vand at 6 + 5."""
    from pyeclib.ec_iface import ECDriver, ECDriverError

    driver = ECDriver(k=6, m=5, ec_type="isa_l_rs_vand")
    value = bytes(range(256)) * 3
    elements = driver.encode(value)
    failed = 0
    for pattern in itertools.combinations(elements, 6):
        try:
            failed += driver.decode(list(pattern)) != value
        except ECDriverError:
            failed += 1
    assert failed == 2
