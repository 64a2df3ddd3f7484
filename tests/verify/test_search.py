"""The search on repeated values: choices only where several are possible."""

from random import Random

from ares.testing.verify.register import RegisterHistory, zones_of
from ares.testing.verify.search import Search

from .large import large
from .making import d, r, w


def states(events):
    register = RegisterHistory(events)
    search = Search(register, zones_of(register))
    assert search.run(100_000)
    return search.states


def test_writes_of_values_written_once_need_no_choice():
    assert states(large(Random(3), 5000, clients=8, deletes=0.2)) < 1000


def test_writes_of_a_value_that_is_read_no_more_need_no_choice():
    deletes = [d(n, n + 5) for n in range(10, 2000)]
    writes = [w(n, n + 5, f"v{n}") for n in range(10, 2000)]
    assert states([d(0, 1), r(2, 3, None), *deletes, *writes]) < 10
