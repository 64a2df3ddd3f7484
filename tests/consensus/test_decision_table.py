"""The decision table against the simplest model."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ares.model.configuration import UNPLACED, Configuration
from ares.model.decision import Decision, DecisionTable, Finalized, require_place
from ares.model.errors import ConfigurationRefused

from .clusters import configuration

proposals = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.integers(0, 4),
        st.binary(max_size=4),
        st.integers(0, 2**64 - 1),
    )
)


@given(proposals)
def test_the_first_proposal_wins_for_ever(made: list[tuple[str, int, bytes, int]]) -> None:
    table: DecisionTable[bytes] = DecisionTable()
    first: dict[tuple[str, int], tuple[bytes, int]] = {}
    for domain, index, content, proposer in made:
        expected = first.setdefault((domain, index), (content, proposer))
        assert table.decide(domain, index, content, proposer) == Decision(*expected)
    assert table.count == len(first)


@given(proposals)
def test_hints_move_to_higher_indices_only(told: list[tuple[str, int, bytes, int]]) -> None:
    table: DecisionTable[bytes] = DecisionTable()
    highest: dict[str, tuple[int, bytes]] = {}
    for domain, index, content, _ in told:
        if domain not in highest or index > highest[domain][0]:
            highest[domain] = (index, content)
        assert table.tell_finalized(domain, index, content) == highest[domain][1]
    for domain in ("a", "b"):
        assert table.hint(domain) == highest.get(domain, (0, None))[1]


@given(proposals, proposals)
def test_a_snapshot_goes_on_as_the_original_would(
    before: list[tuple[str, int, bytes, int]], after: list[tuple[str, int, bytes, int]]
) -> None:
    original: DecisionTable[bytes] = DecisionTable()
    for domain, index, content, proposer in before:
        original.decide(domain, index, content, proposer)
        original.tell_finalized(domain, index, content)
    restored = msgspec.msgpack.decode(msgspec.msgpack.encode(original), type=DecisionTable[bytes])
    assert restored == original
    for domain, index, content, proposer in after:
        assert restored.decide(domain, index, content, proposer) == original.decide(
            domain, index, content, proposer
        )
        assert restored.tell_finalized(domain, index, content) == original.tell_finalized(
            domain, index, content
        )


def test_tables_do_not_share_state() -> None:
    one: DecisionTable[bytes] = DecisionTable()
    one.decide("a", 0, b"x", 1)
    one.tell_finalized("a", 0, b"x")
    another: DecisionTable[bytes] = DecisionTable()
    assert another.count == 0
    assert another.hint("a") is None
    assert one.hints == {"a": Finalized(0, b"x")}


def test_a_configuration_without_a_place_is_refused() -> None:
    unplaced = Configuration.abd(["s0", "s1", "s2"])
    assert unplaced.index == UNPLACED
    with pytest.raises(ConfigurationRefused, match="no place"):
        require_place(unplaced)
    require_place(configuration(0))
