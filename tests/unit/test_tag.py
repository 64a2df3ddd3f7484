"""The total order of tags: by number, then by writer."""

import itertools

from ares.model.tag import TAG_ZERO, Tag


def test_tags_are_ordered_by_number_then_client():
    ordered = [TAG_ZERO, Tag(0, 1), Tag(1, 0), Tag(1, 2**64 - 1), Tag(2, 0), Tag(10, 3)]
    for low, high in itertools.combinations(ordered, 2):
        assert low < high
        assert not high <= low
    ordered.reverse()
    assert min(ordered) == TAG_ZERO


def test_equal_tags_are_one_key():
    assert Tag(3, 4) == Tag(3, 4)
    assert len({Tag(3, 4), Tag(3, 4), Tag(4, 3)}) == 2


def test_text_shows_number_and_writer():
    assert str(Tag(12, 255)) == "12.00000000000000ff"
