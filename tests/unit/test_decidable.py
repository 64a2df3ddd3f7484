"""The versions that may be returned, case by case (ares/dap/decidable.py).

The model check is a property.
"""

import pytest

from ares.dap.decidable import newest_decodable
from ares.model.messages import DataReply
from ares.model.tag import TAG_ZERO, Tag


def t(number: int) -> Tag:
    return Tag(number, 1) if number else TAG_ZERO


def reply(*numbers: int, trimmed: int = 0) -> DataReply:
    return DataReply(1, tuple(map(t, numbers)), 0, t(trimmed), None, None)


@pytest.mark.parametrize(
    ("k", "lists", "answer"),
    [
        pytest.param(3, [reply(), reply(), reply(), reply()], 0, id="nothing was ever written"),
        pytest.param(3, [reply(2, 1)] * 4, 2, id="all agree"),
        pytest.param(
            3, [reply(2, 1), reply(2, 1), reply(2, 1), reply(1)], 2, id="k have the newest"
        ),
        pytest.param(
            3,
            [reply(2, 1), reply(2, 1), reply(1), reply(1)],
            1,
            id="a write in progress is passed over",
        ),
        pytest.param(
            3,
            [reply(3, 1), reply(2, 1), reply(1), reply(1)],
            1,
            id="two writes in progress are passed over",
        ),
        pytest.param(3, [reply(1), reply(), reply(), reply()], 0, id="the first write in progress"),
        pytest.param(
            3,
            [reply(9, 8, trimmed=2), reply(2, 1), reply(2, 1), reply(1)],
            None,
            id="one may have dropped what two have",
        ),
        pytest.param(
            3,
            [reply(9, 8, trimmed=7)] * 2 + [reply(9, 8), reply(1)],
            9,
            id="k have the newest, whatever was dropped below",
        ),
        pytest.param(
            3,
            [reply(7, trimmed=5), reply(6, trimmed=5), reply(8, trimmed=5), reply()],
            None,
            id="k may have dropped the same",
        ),
        pytest.param(
            2,
            [reply(9, 8, trimmed=5), reply(7, 6, trimmed=5), reply(1), reply(1)],
            None,
            id="k dropped what k others never had",
        ),
        pytest.param(
            2,
            [reply(9, 8, trimmed=5), reply(7, 6), reply(1), reply(1)],
            1,
            id="only one dropped it",
        ),
        pytest.param(
            3,
            [reply(5, 1, trimmed=0), reply(6, 1, trimmed=2), reply(7, 1, trimmed=2), reply(1)],
            1,
            id="fewer than k dropped something",
        ),
        pytest.param(1, [reply(3, trimmed=2), reply(5, trimmed=4)], 5, id="ABD: the maximum"),
        pytest.param(1, [reply(), reply(4, trimmed=3)], 4, id="ABD: one has it"),
        pytest.param(1, [reply(), reply()], 0, id="ABD: nobody has anything"),
    ],
)
def test_the_newest_decodable_tag_of_lists(k, lists, answer):
    assert newest_decodable(lists, k) == (None if answer is None else t(answer))
