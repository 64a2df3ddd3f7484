"""Quorum sizes: two quorums share at least k servers, and no smaller size would do.

See ares/model/configuration.py; ARES II section 3.
"""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ares.engine.quorum import QuorumState, Tally
from ares.model.configuration import Configuration


def configurations(n):
    names = [f"s{number}" for number in range(n)]
    yield Configuration.abd(names, allow_no_faults=True)
    for k in range(1, n):
        yield Configuration.ec(names, k, allow_no_faults=True)


def smallest_intersection(n: int, size: int) -> int:
    """Compute by brute force: fix a quorum (all are alike), and meet every other quorum."""
    first = (1 << size) - 1
    masks = (
        sum(1 << position for position in chosen)
        for chosen in itertools.combinations(range(n), size)
    )
    return min((first & mask).bit_count() for mask in masks)


@pytest.mark.parametrize("n", range(1, 16))
def test_quorums_share_k_servers_and_one_less_would_not_do(n):
    for configuration in configurations(n):
        size, k = configuration.quorum_size, configuration.k
        assert 1 <= size <= n
        assert smallest_intersection(n, size) >= k
        assert smallest_intersection(n, size - 1) < k, "a smaller quorum would do"
        assert configuration.crashes_survived == n - size == (n - k) // 2
        if configuration.dap == "abd":
            assert size == n // 2 + 1


actions = st.lists(st.tuples(st.sampled_from(["answer", "refuse"]), st.integers(0, 8)), max_size=30)


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 7), st.data(), actions)
def test_a_tally_counts_each_server_once(n, data, actions):
    asked = [f"s{number}" for number in range(n)]
    needed = data.draw(st.integers(1, n))
    tally, answered, refused = Tally(asked, needed), {}, set()
    for turn, (action, number) in enumerate(actions):
        name = f"s{number}"
        if action == "answer":
            tally.answer(name, turn)
        else:
            tally.refuse(name, f"because of {turn}")
        if number < n and name not in answered:
            if action == "answer":
                answered[name] = turn
                refused.discard(name)
            else:
                refused.add(name)
        assert tally.answers == answered
        assert set(tally.missing()) == set(asked) - set(answered)
        can_come = n - len(refused)
        wanted = (
            QuorumState.REACHED
            if len(answered) >= needed
            else QuorumState.UNREACHABLE
            if can_come < needed
            else QuorumState.PENDING
        )
        assert tally.outcome is wanted
        assert tally.complete is (len(answered) + len(refused) == n)
