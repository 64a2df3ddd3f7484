"""The servers that get-data asks for elements, depending on earlier reads.

See ares/dap/primitives.py.
"""

import pytest

from ares.dap.coding import coding_for
from ares.dap.primitives import LARGE_VALUE_BYTES_MIN, DataAccess
from ares.engine.readiness import Readiness
from ares.model.configuration import Configuration
from ares.model.element import sealed
from ares.model.messages import DataReply
from ares.model.tag import TAG_ZERO, Tag

FIVE = [f"s{number}" for number in range(5)]
EC = Configuration.ec(FIVE, 3).at("d", 1)
ABD = Configuration.abd(FIVE).at("d", 1)
TAG = Tag(1, 1)
LARGE, SMALL = b"v" * LARGE_VALUE_BYTES_MIN, b"v" * (LARGE_VALUE_BYTES_MIN - 1)


def read(access, value, get_version=False):
    """Return the positions of servers that get-data asks for elements, and asks first."""
    configuration = access.configuration
    data = coding_for(configuration).encode(value)
    elements = [
        sealed(
            configuration.id,
            "k",
            TAG,
            0 if configuration.dap == "abd" else index,
            len(value),
            parts,
        )
        for index, parts in enumerate(data)
    ]
    operation = access.get_version("k") if get_version else access.get_data("k")
    gather = next(operation)
    asked = [
        position
        for position, request in enumerate(gather.requests(7, *gather.arguments))
        if request.element
    ]
    answers = {
        server: DataReply(
            7, (TAG,), len(value), TAG_ZERO, elements[position] if position in asked else None, None
        )
        for position, server in enumerate(configuration.server_ids)
    }
    assert gather.settled(answers)
    with pytest.raises(StopIteration) as ended:
        operation.send(answers)
    assert get_version or ended.value.value.value == value
    assert get_version or set(asked) <= set(gather.order.first)
    return asked


def test_the_elements_that_hold_the_value_are_asked_for_as_long_as_values_are_large():
    access = DataAccess(EC, Readiness(3))
    for _ in range(2):
        assert read(access, LARGE) == [0, 1, 2]


def test_after_a_small_value_all_take_turns():
    access = DataAccess(EC, Readiness(3))
    read(access, SMALL)
    assert read(access, SMALL) == [0, 3, 4]


def test_a_version_alone_tells_as_well():
    access = DataAccess(EC, Readiness(3))
    read(access, SMALL)
    read(access, LARGE, get_version=True)
    assert read(access, LARGE) == [0, 1, 2]


def test_replicas_are_all_alike():
    access = DataAccess(ABD, Readiness(3))
    read(access, LARGE)
    assert read(access, LARGE) == [3]
