"""The two codings (ares/dap/coding.py). A property says that any k elements decode."""

import random
import struct

import pytest

from ares.dap.coding import JOINED_BYTES_MIN, STRIPE_BYTES, ReedSolomon, coding_for
from ares.model.configuration import Configuration
from ares.model.element import PART_BYTES_MIN, is_in_crumbs
from ares.model.errors import ConfigurationRefused, DecodeFailed
from ares.model.identity import VALUE_BYTES_MAX
from ares.model.messages import ELEMENT_PARTS_MAX, Element

FIVE = [f"s{number}" for number in range(5)]
ABD, EC = Configuration.abd(FIVE), Configuration.ec(FIVE, 3)


def test_replication_gives_the_value_itself():
    coding, value = coding_for(ABD), b"value"
    assert coding.k == 1
    elements = coding.encode(value)
    assert len(elements) == 5
    assert all(parts[0] is value for parts in elements)
    assert coding.decode(5, {0: (b"value",)}) == value
    assert coding.decode(0, {0: (b"",)}) == b""


def test_elements_are_a_fraction_of_the_value():
    value = b"v" * 300_000
    for parts in coding_for(EC).encode(value):
        assert 100_000 <= sum(map(len, parts)) < 101_000


def test_the_empty_value_needs_no_data():
    coding = coding_for(EC)
    assert coding.encode(b"") == [()] * 5
    assert coding.decode(0, dict.fromkeys(range(3), ())) == b""


def test_more_than_k_elements_are_fine():
    coding, value = coding_for(EC), b"value" * 20
    assert coding.decode(100, dict(enumerate(coding.encode(value)))) == value


@pytest.mark.parametrize("k", [1, 2, 3, 17, 30, 31])
def test_elements_have_a_part_for_each_stripe_and_never_more_than_is_taken(k):
    """A server refuses more parts, and smaller parts."""
    assert VALUE_BYTES_MAX // STRIPE_BYTES <= ELEMENT_PARTS_MAX
    coding = coding_for(
        Configuration.ec([f"s{number}" for number in range(k + 1)], k, allow_no_faults=True)
    )
    for stripes in (1, 2, 3, 8):
        for length in ((stripes - 1) * STRIPE_BYTES + 1, stripes * STRIPE_BYTES):
            for parts in coding.encode(bytes(length)):
                assert len(parts) == stripes
                assert all(len(part) > 32 * PART_BYTES_MIN for part in parts[:-1])
                assert not is_in_crumbs(Element(0, length, 0, parts))


@pytest.mark.parametrize("length", [0, 99, 101])
def test_the_wrong_length_is_noticed(length):
    coding = coding_for(EC)
    with pytest.raises(
        DecodeFailed, match=f"100 bytes came out of the erasure code, {length} went in"
    ):
        coding.decode(length, dict(enumerate(coding.encode(b"value" * 20))))


def test_elements_of_different_stripes_are_refused():
    coding = coding_for(EC)
    whole, other = coding.encode(b"value" * 20), coding.encode(b"")
    with pytest.raises(DecodeFailed):
        coding.decode(100, {0: whole[0], 1: other[1], 2: whole[2]})


@pytest.mark.parametrize(
    "backend", ["no_such_code", "pyeclib.no_such_module", "no.such.module", "os.path"]
)
def test_an_erasure_code_that_is_not_there_is_refused(backend):
    with pytest.raises(
        ConfigurationRefused, match=f"erasure code {backend} with k=3, m=2 is not available"
    ):
        ReedSolomon(5, 3, backend)


def test_one_driver_serves_all_configurations_of_a_shape():
    assert coding_for(EC) is coding_for(
        Configuration.ec([f"t{number}" for number in range(5)], 3, 2).at("d", 4)
    )


LARGE = random.Random(1).randbytes(2 * STRIPE_BYTES + 3 * JOINED_BYTES_MIN + 1)


class Counting:
    """A driver that counts the library's decodings."""

    def __init__(self, driver):
        self.driver, self.decoded = driver, 0

    def decode(self, fragments):
        self.decoded += 1
        return self.driver.decode(fragments)


@pytest.fixture
def counted():
    coding = ReedSolomon(5, 3, EC.backend)
    coding._driver = Counting(coding._driver)
    return coding


def large(value=LARGE):
    return dict(enumerate(coding_for(EC).encode(value)))


def changed(elements, index, change):
    """Return the elements with a change to the first part of an element."""
    first, *rest = elements[index]
    return elements | {index: (change(first), *rest)}


@pytest.mark.parametrize("beyond", [-STRIPE_BYTES, -1, 0, 1, 2, 3])
def test_a_large_value_is_joined_from_the_elements_that_hold_it(counted, beyond):
    value = LARGE[: 2 * STRIPE_BYTES + beyond] + b"x" * (3 * JOINED_BYTES_MIN if beyond > 0 else 0)
    assert counted.decode(len(value), large(value)) == value
    assert counted._driver.decoded == 0


@pytest.mark.parametrize(
    "backend", ["isa_l_rs_cauchy", "isa_l_rs_vand_inv", "liberasurecode_rs_vand"]
)
@pytest.mark.parametrize("size", [3 * JOINED_BYTES_MIN, 3 * JOINED_BYTES_MIN + 1, len(LARGE)])
def test_every_backend_keeps_the_value_in_the_first_elements(backend, size):
    coding = ReedSolomon(5, 3, backend)
    elements = dict(enumerate(coding.encode(LARGE[:size])))
    assert coding.decode(size, elements) == LARGE[:size]
    assert coding.decode(size, {index: elements[index] for index in (0, 3, 4)}) == LARGE[:size]


def test_a_small_value_and_other_elements_are_left_to_the_library(counted):
    elements = large()
    assert counted.decode(len(LARGE), {index: elements[index] for index in (0, 2, 4)}) == LARGE
    assert counted._driver.decoded == 3
    assert counted.decode(5, large(b"small")) == b"small"
    assert counted._driver.decoded == 4


def header(index=0, size=None, stripe=None):
    """Return a change of a part's header."""

    def change(part):
        was = struct.unpack_from("<IIIQ", part)
        told = struct.pack(
            "<IIIQ",
            index,
            was[1] if size is None else size,
            was[2],
            was[3] if stripe is None else stripe,
        )
        return told + part[len(told) :]

    return change


@pytest.mark.parametrize("chosen", [(0, 1, 2), (0, 3, 4)])
@pytest.mark.parametrize("value", [LARGE, b"small" * 20], ids=["large", "small"])
@pytest.mark.parametrize(
    "change",
    [
        lambda part: b"",
        lambda part: part[:79],
        lambda part: part[:80],
        lambda part: part[:-1],
        lambda part: part + b"x",
        lambda part: bytes(80) + part[80:],
        header(index=1),
        header(index=2**32 - 1),
        header(size=2**31),
        header(stripe=2**40),
        header(stripe=1),
    ],
)
def test_parts_that_are_not_what_they_say_are_refused(chosen, value, change):
    """The library would believe such parts, and some of them end the process."""
    elements = changed(large(value), 0, change)
    with pytest.raises(DecodeFailed, match="does not fit"):
        coding_for(EC).decode(len(value), {index: elements[index] for index in chosen})


@pytest.mark.parametrize("pattern", [(0, 2), (0, 1), (2,)])
def test_too_few_large_elements_are_refused(pattern):
    elements = large()
    with pytest.raises(DecodeFailed):
        coding_for(EC).decode(len(LARGE), {index: elements[index] for index in pattern})
