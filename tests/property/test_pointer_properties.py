"""nextC, which never moves backwards, with any messages in any order.

See ares/model/configuration.py; Lemma 7.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ares.model.configuration import (
    Configuration,
    ConflictingSuccessor,
    Status,
    Successor,
    advance,
    latest,
)
from ares.model.identity import DEFAULT_DOMAIN

C0 = Configuration.abd(["s0", "s1", "s2"]).at(DEFAULT_DOMAIN, 0)
OWN = C0.at(DEFAULT_DOMAIN, 3, C0.id)
CONTENTS = [
    Configuration.abd(["s0", "s1", "s2"]),
    Configuration.abd(["s3", "s4", "s5"]),
    Configuration.ec([f"s{n}" for n in range(5)], 3),
]

anything = st.builds(
    lambda content, domain, index, status, cluster: Successor(
        content.at(domain, index, cluster), status
    ),
    st.sampled_from(CONTENTS),
    st.sampled_from(["default", "default", "default", "other"]),
    st.integers(0, 9),
    st.sampled_from(Status),
    st.sampled_from([C0.id, C0.id, C0.id, b"", b"another"]),
)


def moves_forward(before: Successor | None, after: Successor | None) -> bool:
    if after is not None and (after.configuration.domain, after.configuration.cluster_id) != (
        OWN.domain,
        OWN.cluster_id,
    ):
        return False
    if before is None:
        return after is None or after.configuration.index > OWN.index
    if after is None:
        return False
    old, new = before.configuration, after.configuration
    if new.index == old.index:
        return new == old and after.status >= before.status
    return new.index > old.index and after.finalized


@settings(deadline=None, max_examples=300)
@given(st.lists(anything, max_size=25))
def test_the_pointer_never_moves_backwards(incoming):
    current = None
    for successor in incoming:
        before = current
        try:
            current = advance(OWN, current, successor)
        except ConflictingSuccessor:
            continue
        assert moves_forward(before, current)
        assert current in (before, successor)
        if current.status is Status.PENDING:
            assert current.configuration.index == OWN.index + 1


decided = {index: CONTENTS[index % 3].at(DEFAULT_DOMAIN, index, C0.id) for index in range(4, 9)}
honest = st.one_of(
    st.just(Successor(decided[4], Status.PENDING)),
    st.sampled_from(sorted(decided)).map(lambda index: Successor(decided[index], Status.FINALIZED)),
)


@settings(deadline=None, max_examples=200)
@given(st.lists(honest, min_size=1, max_size=10), st.randoms())
def test_with_one_decision_for_an_index_the_order_does_not_matter(successors, rng):
    ends = set()
    for _ in range(3):
        current = None
        for successor in successors:
            current = advance(OWN, current, successor)
        ends.add((current.configuration.id, current.status))
        rng.shuffle(successors)
    best = latest(successors)
    assert ends == {(best.configuration.id, best.status)}


@settings(deadline=None, max_examples=200)
@given(st.lists(st.none() | anything, max_size=8))
def test_find_next_config_takes_the_finalized_one_with_the_highest_index(successors):
    """Alg. 2:4-12."""
    finalized = [
        successor for successor in successors if successor is not None and successor.finalized
    ]
    pending = [
        successor for successor in successors if successor is not None and not successor.finalized
    ]
    best = latest(successors)
    if finalized:
        assert best in finalized
        assert best.configuration.index == max(
            successor.configuration.index for successor in finalized
        )
    elif pending:
        assert best in pending
    else:
        assert best is None


def test_the_published_rule_would_be_rejected():
    """Alg. 4:32-33 lets any successor replace a pending successor.

    This is the negative control of ``moves_forward``.
    """

    def published(current, incoming):
        stale = (
            current is not None
            and current.finalized
            and incoming.configuration.index <= current.configuration.index
        )
        return current if stale else incoming

    first, second = (
        Successor(content.at(DEFAULT_DOMAIN, 4, C0.id), Status.PENDING) for content in CONTENTS[:2]
    )
    assert not moves_forward(published(None, first), published(published(None, first), second))
    with pytest.raises(ConflictingSuccessor):
        advance(OWN, first, second)
