"""The seal, which covers every field that could be mixed up (ares/model/element.py)."""

import msgspec
import pytest
from xxhash import xxh3_64_intdigest

from ares.model.element import checksum, intact, seal_seed, sealed
from ares.model.tag import Tag

HEAD = (b"c" * 16, "object", Tag(3, 4))
ELEMENT = sealed(*HEAD, 1, 10, (b"some", b"data"))


def test_what_was_sealed_is_intact():
    assert intact(*HEAD, ELEMENT)


@pytest.mark.parametrize(
    "head",
    [
        (b"d" * 16, "object", Tag(3, 4)),
        (b"c" * 16, "objecT", Tag(3, 4)),
        (b"c" * 16, "object", Tag(4, 4)),
        (b"c" * 16, "object", Tag(3, 5)),
    ],
)
def test_under_another_name_it_is_not(head):
    assert not intact(*head, ELEMENT)


@pytest.mark.parametrize(
    "change",
    [
        {"index": 2},
        {"length": 11},
        {"length": -1},
        {"checksum": ELEMENT.checksum ^ 1},
        {"parts": (b"some", b"dat")},
        {"parts": (b"some", b"Data")},
        {"parts": (b"data", b"some")},
        {"parts": ()},
    ],
)
def test_a_changed_element_is_not_intact(change):
    assert not intact(*HEAD, msgspec.structs.replace(ELEMENT, **change))


def test_every_flipped_bit_is_noticed():
    data = b"0123456789abcdef"
    element = sealed(*HEAD, 0, 16, (data,))
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert not intact(*HEAD, msgspec.structs.replace(element, parts=(bytes(flipped),)))


def test_one_part_and_several_have_the_same_checksum():
    assert checksum(*HEAD, 0, 4, (b"abcd",)) == checksum(*HEAD, 0, 4, (b"ab", b"", b"cd"))
    assert checksum(*HEAD, 0, 0, ()) == checksum(*HEAD, 0, 0, (b"",))


def test_the_checksum_equals_a_plain_xxh3_with_the_seed():
    assert checksum(*HEAD, 1, 4, (b"abcd",)) == xxh3_64_intdigest(b"abcd", seal_seed(*HEAD, 1, 4))


@pytest.mark.parametrize(("tag", "length"), [(Tag(-1, 0), 0), (Tag(0, -1), 0), (Tag(1, 1), 2**63)])
def test_impossible_numbers_are_not_intact(tag, length):
    assert not intact(b"c" * 16, "object", tag, msgspec.structs.replace(ELEMENT, length=length))
