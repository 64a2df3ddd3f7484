"""The configurations that a client knows, case by case (ares/reconfig/view.py)."""

import pytest

from ares.model.configuration import Configuration, Status, Successor
from ares.model.errors import ConfigurationRefused
from ares.reconfig.view import ConfigurationSequence

ONE, OTHER = Configuration.abd(["s0", "s1", "s2"]), Configuration.abd(["s3", "s4", "s5"])
C = [ONE.at("d", index) for index in range(8)]


def pending(index: int) -> Successor:
    return Successor(C[index], Status.PENDING)


def final(index: int) -> Successor:
    return Successor(C[index], Status.FINALIZED)


def places(sequence: ConfigurationSequence) -> tuple[list[int], list[int]]:
    return [entry.index for entry in sequence.retired], [entry.index for entry in sequence.active]


def test_begins_with_one_finalized_entry():
    """Alg. 1:1-6, Alg. 1:25-30, Alg. 5:1-5."""
    sequence = ConfigurationSequence(C[2])
    assert places(sequence) == ([], [2])
    assert sequence.last_finalized == sequence.last_known == C[2]


def test_grows_retires_and_forgets():
    """Alg. 2:44."""
    sequence = ConfigurationSequence(C[0])
    sequence.add(C[0], pending(1))
    sequence.add(C[1], pending(2))
    assert places(sequence) == ([], [0, 1, 2])
    sequence.add(C[0], final(1))
    assert places(sequence) == ([0], [1, 2])
    sequence.add(C[0], final(5))
    assert places(sequence) == ([0, 1, 2], [5])
    assert sequence.before(C[5]) == C[2]
    sequence.forget(C[1])
    assert places(sequence) == ([0, 2], [5])
    assert sequence.before(C[5]) == C[2]
    sequence.forget(C[0])
    sequence.forget(C[2])
    assert places(sequence) == ([], [5])


def test_a_later_entry_stays_when_an_earlier_one_is_finalized():
    sequence = ConfigurationSequence(C[0])
    sequence.add(C[0], final(3))
    sequence.add(C[3], pending(4))
    sequence.add(C[0], final(1))
    assert sequence.last_finalized == C[3]
    assert sequence.last_known == C[4]
    assert places(sequence)[1] == [3, 4]


def test_what_was_forgotten_does_not_come_back():
    sequence = ConfigurationSequence(C[0])
    sequence.add(C[0], final(3))
    sequence.forget(C[0])
    sequence.adopt(final(1))
    sequence.adopt(pending(2))
    assert places(sequence) == ([], [3])


@pytest.mark.parametrize("index", [0, 1])
def test_a_second_decision_is_refused(index):
    """Alg. 2:14."""
    sequence = ConfigurationSequence(C[0])
    sequence.add(C[0], pending(1))
    with pytest.raises(
        ConfigurationRefused, match=f"two configurations for index {index} of domain 'd'"
    ):
        sequence.adopt(Successor(OTHER.at("d", index), Status.FINALIZED))
    assert places(sequence) == ([], [0, 1])


@pytest.mark.parametrize(
    ("told", "asked", "known"),
    [
        (pending(1), pending(1), True),
        (pending(1), final(1), False),
        (final(1), pending(1), True),
        (final(1), final(1), True),
        (final(3), final(1), True),
        (final(3), pending(1), True),
        (final(1), final(3), False),
    ],
)
def test_what_a_quorum_is_known_to_know(told, asked, known):
    sequence = ConfigurationSequence(C[0])
    assert not sequence.knows(C[0], asked)
    sequence.add(C[0], told)
    assert sequence.knows(C[0], asked) is known
    assert not sequence.knows(C[1], asked)


def test_what_was_adopted_is_not_known_to_a_quorum():
    sequence = ConfigurationSequence(C[0])
    sequence.adopt(final(1))
    assert not sequence.knows(C[0], final(1))


def test_an_active_entry_is_not_forgotten():
    """Alg. 2:44."""
    sequence = ConfigurationSequence(C[0])
    sequence.forget(C[0])
    assert sequence.active == [C[0]]


def test_the_pending_successor_is_the_last_of_two_known_to_a_quorum():
    sequence = ConfigurationSequence(C[0])
    assert sequence.pending is None
    sequence.adopt(pending(1))
    assert sequence.pending is None, "no quorum is known to know"
    sequence.add(C[0], pending(1))
    assert sequence.pending == pending(1)
    sequence.add(C[1], pending(2))
    assert sequence.pending is None, "there are three"
    sequence.add(C[0], final(1))
    assert sequence.pending == pending(2)
    sequence.add(C[1], final(2))
    assert sequence.pending is None


def test_a_change_is_told_before_and_nothing_else():
    sequence, told = ConfigurationSequence(C[0]), []
    sequence.changing = lambda: told.append(places(sequence))
    for successor in (pending(1), pending(1), final(1), final(1), pending(1)):
        sequence.add(C[0], successor)
    assert told == [([], [0]), ([], [0, 1])]
