"""The definition itself, on simple cases; test_linearizability.py uses it for every case."""

import pytest

from tests.verify.reference import is_linearizable

from .making import d, r, w


@pytest.mark.parametrize(
    ("events", "right"),
    [
        ([], True),
        ([r(0, 1, None)], True),
        ([r(0, 1, "a")], False),
        ([w(0, 1, "a"), r(2, 3, "a")], True),
        ([w(0, 1, "a"), r(2, 3, None)], False),
        ([w(0, 1, "a"), r(1, 3, None)], True),
        ([w(0, 1, "a"), d(2, 3), r(4, 5, None)], True),
        ([w(0, 1, "a"), d(2, 3), r(4, 5, "a")], False),
        ([w(0, None, "a"), r(2, 3, None)], True),
        ([w(0, None, "a"), r(2, 3, "a")], True),
        ([w(0, None, "a"), r(2, 3, "a"), r(4, 5, None)], False),
        ([w(0, 1, "a", outcome="failed"), r(2, 3, "a")], False),
        ([w(0, 1, "a", key="x"), r(2, 3, None, key="y")], True),
    ],
)
def test_the_reference_follows_the_definition(events, right):
    assert is_linearizable(events) == right
