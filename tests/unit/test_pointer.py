"""nextC at a server, transition by transition (ares/pointer.py; Alg. 4:28-42, rule R2)."""

import pytest

from ares.configuration import Configuration, Status, Successor
from ares.pointer import ConflictingSuccessor, advance, latest

ONE, OTHER = Configuration.abd(["s0", "s1", "s2"]), Configuration.abd(["s3", "s4", "s5"])
OWN = ONE.at("d", 3)


def pending(index: int, content: Configuration = ONE) -> Successor:
    return Successor(content.at("d", index), Status.PENDING)


def final(index: int, content: Configuration = ONE) -> Successor:
    return Successor(content.at("d", index), Status.FINALIZED)


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
def test_transitions(current, incoming, after):
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
        (None, Successor(ONE.at("e", 4), Status.PENDING), "index 4 of 'e' cannot follow index 3 of 'd'"),
    ],
)
def test_refusals(current, incoming, why):
    with pytest.raises(ConflictingSuccessor, match=why):
        advance(OWN, current, incoming)


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
    assert latest(successors) == best
