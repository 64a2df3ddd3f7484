"""nextC at a server, transition by transition.

See ares/model/configuration.py; rule R2.
"""

import pytest

from ares.model.configuration import (
    Configuration,
    ConflictingSuccessor,
    Status,
    Successor,
    advance,
    latest,
    latest_named,
)
from ares.model.messages import Ack

ONE, OTHER = Configuration.abd(["s0", "s1", "s2"]), Configuration.abd(["s3", "s4", "s5"])
C0 = ONE.at("default", 0)
OWN = ONE.at("d", 3, C0.id)


def pending(index: int, content: Configuration = ONE) -> Successor:
    return Successor(content.at("d", index, C0.id), Status.PENDING)


def final(index: int, content: Configuration = ONE) -> Successor:
    return Successor(content.at("d", index, C0.id), Status.FINALIZED)


@pytest.mark.parametrize(
    ("current", "incoming", "after"),
    [
        (None, pending(4), pending(4)),
        (None, final(4), final(4)),
        (None, final(9), final(9)),
        (pending(4), pending(4), pending(4)),
        (pending(4), final(4), final(4)),
        (pending(4), final(6), final(6)),
        (final(4), pending(4), final(4)),
        (final(4), final(4), final(4)),
        (final(4), final(5), final(5)),
        (final(6), pending(4), final(6)),
        (final(6), final(5), final(6)),
        (final(6), final(4, OTHER), final(6)),
    ],
)
def test_a_pointer_moves_only_forward(current, incoming, after):
    """Alg. 4:31-38."""
    assert advance(OWN, current, incoming) == after


@pytest.mark.parametrize(
    ("current", "incoming", "why"),
    [
        (pending(4), pending(4, OTHER), "index 4 of 'd' is [0-9a-f]{32} here, not"),
        (pending(4), final(4, OTHER), "index 4"),
        (final(5), final(5, OTHER), "index 5"),
        (None, pending(5), "index 5 of 'd' cannot follow index 3"),
        (None, pending(3), "cannot follow"),
        (None, final(3), "cannot follow"),
        (None, final(2), "cannot follow"),
        (pending(4), final(3), "cannot follow"),
        (
            None,
            Successor(ONE.at("e", 4, C0.id), Status.PENDING),
            "index 4 of 'e' cannot follow index 3 of 'd'",
        ),
        (None, Successor(ONE, Status.PENDING), "another cluster"),
    ],
)
def test_a_conflicting_successor_is_refused(current, incoming, why):
    """Alg. 4:31-38."""
    with pytest.raises(ConflictingSuccessor, match=why):
        advance(OWN, current, incoming)


@pytest.mark.parametrize("current", [None, pending(4), final(4)])
@pytest.mark.parametrize("cluster", [b"", OTHER.at("default", 0).id, OWN.id])
@pytest.mark.parametrize("status", Status)
def test_what_another_cluster_decided_is_refused(current, cluster, status):
    for index in (4, 5):
        with pytest.raises(
            ConflictingSuccessor, match=f"index {index} of 'd' was decided for another cluster"
        ):
            advance(OWN, current, Successor(ONE.at("d", index, cluster), status))


def test_c0_takes_what_its_own_cluster_decided_and_nothing_else():
    mine, foreign = (
        Successor(OTHER.at("default", 1, cluster), Status.PENDING)
        for cluster in (C0.id, OTHER.at("default", 0).id)
    )
    assert advance(C0, None, mine) == mine
    with pytest.raises(ConflictingSuccessor, match="another cluster"):
        advance(C0, None, foreign)


@pytest.mark.parametrize(
    ("successors", "best"),
    [
        ([], None),
        ([None, None], None),
        ([None, pending(4)], pending(4)),
        ([pending(4), final(4), None], final(4)),
        ([final(7), pending(4), final(5)], final(7)),
    ],
)
def test_what_a_traversal_follows(successors, best):
    """Alg. 2:4-12."""
    assert latest(successors) == best
    assert latest_named([Ack(1, successor) for successor in successors]) == best
