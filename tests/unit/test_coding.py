"""The two codings (ares/dap/coding.py); that any k elements do is a property."""

import pytest

from ares.configuration import Configuration
from ares.dap.coding import ReedSolomon, coding_for
from ares.errors import ConfigurationRefused, DecodeFailed

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


@pytest.mark.parametrize("length", [0, 99, 101])
def test_the_wrong_length_is_noticed(length):
    coding = coding_for(EC)
    with pytest.raises(DecodeFailed, match=f"100 bytes came out of the erasure code, {length} went in"):
        coding.decode(length, dict(enumerate(coding.encode(b"value" * 20))))


def test_elements_of_different_stripes_are_refused():
    coding = coding_for(EC)
    whole, other = coding.encode(b"value" * 20), coding.encode(b"")
    with pytest.raises(DecodeFailed):
        coding.decode(100, {0: whole[0], 1: other[1], 2: whole[2]})


@pytest.mark.parametrize("backend", ["no_such_code", "pyeclib.no_such_module", "no.such.module", "os.path"])
def test_an_erasure_code_that_is_not_there_is_refused(backend):
    with pytest.raises(ConfigurationRefused, match=f"erasure code {backend} with k=3, m=2 is not available"):
        ReedSolomon(5, 3, backend)


def test_one_driver_serves_all_configurations_of_a_shape():
    assert coding_for(EC) is coding_for(Configuration.ec([f"t{number}" for number in range(5)], 3, 2).at("d", 4))
