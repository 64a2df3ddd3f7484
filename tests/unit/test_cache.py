"""A client's memory of its objects (ares/dap/cache.py)."""

import pytest

from ares.dap.cache import ClientCache
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import TOMBSTONE

C, D = b"configuration", b"another"
ONE, TWO = Tag(1, 1), Tag(2, 1)


def test_a_version_at_a_quorum_is_that_version_in_that_configuration():
    memory = ClientCache()
    assert not memory.at_quorum("k", C, ONE)
    memory.settle("k", C, TWO)
    assert memory.at_quorum("k", C, TWO)
    assert not memory.at_quorum("k", D, TWO), "in another configuration"
    assert not memory.at_quorum("k", C, ONE), "a lower version"
    assert not memory.at_quorum("k", C, Tag(3, 1)), "a higher version"
    assert not memory.at_quorum("other", C, TWO)


def test_only_the_latest_is_remembered():
    memory = ClientCache()
    memory.settle("k", C, TWO)
    memory.settle("k", C, ONE)
    assert memory.at_quorum("k", C, TWO), "an older version does not take its place"
    memory.settle("k", D, ONE)
    assert memory.at_quorum("k", D, ONE)
    assert not memory.at_quorum("k", C, TWO), "one configuration for each object"


def test_the_cache_keeps_the_newest_small_value():
    memory = ClientCache()
    assert memory.value("k") is None
    memory.keep("k", ONE, b"one")
    memory.keep("k", TWO, b"")
    memory.keep("k", ONE, b"one")
    assert memory.value("k") == (TWO, b"")
    memory.keep("k", Tag(3, 1), TOMBSTONE)
    assert memory.value("k") == (Tag(3, 1), TOMBSTONE)
    memory.keep("never written", TAG_ZERO, TOMBSTONE)
    assert memory.value("never written") == (TAG_ZERO, TOMBSTONE)


def test_values_are_bounded_by_bytes_and_the_ones_not_used_go_first():
    memory = ClientCache(value_bytes_max=100)
    for name in ("a", "b", "c"):
        memory.keep(name, ONE, b"x" * 33)
    assert memory.value("a") == (ONE, b"x" * 33)
    memory.keep("d", ONE, b"x" * 33)
    assert memory.value("b") is None
    assert all(memory.value(name) is not None for name in ("a", "c", "d"))
    memory.keep("a", TWO, b"x" * 100)
    assert [memory.value(name) is not None for name in ("a", "c", "d")] == [True, False, False]


def test_a_value_that_is_too_large_displaces_nothing():
    memory = ClientCache(value_bytes_max=100)
    memory.keep("a", ONE, b"small")
    memory.keep("b", ONE, b"x" * 101)
    memory.keep("a", TWO, b"x" * 101)
    assert (memory.value("a"), memory.value("b")) == ((ONE, b"small"), None)


def test_replaced_values_do_not_count():
    memory = ClientCache(value_bytes_max=100)
    memory.keep("other", ONE, b"x" * 20)
    for number in range(1, 50):
        memory.keep("k", Tag(number, 1), b"x" * (number % 80))
        memory.keep("k", Tag(number, 1), b"x" * (number % 80))
    assert memory.value("other") is not None


@pytest.mark.parametrize("used", [False, True])
def test_tags_are_bounded_and_the_ones_not_used_go_first(monkeypatch, used):
    monkeypatch.setattr("ares.dap.cache.TAGS_MAX", 3)
    memory = ClientCache()
    for name in ("a", "b", "c"):
        memory.settle(name, C, ONE)
        memory.keep(name, ONE, TOMBSTONE)
    if used:
        memory.settle("a", C, TWO)
        memory.value("a")
    memory.settle("d", C, ONE)
    memory.keep("d", ONE, TOMBSTONE)
    gone = "b" if used else "a"
    assert not memory.at_quorum(gone, C, ONE)
    assert memory.value(gone) is None
    assert memory.at_quorum("d", C, ONE)
    assert [name for name in "abcd" if memory.value(name) is not None] == [
        name for name in "abcd" if name != gone
    ]
