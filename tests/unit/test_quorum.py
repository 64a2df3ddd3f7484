"""A tally's examples (ares/engine/quorum.py). The model check is a property."""

from ares.engine.quorum import QuorumState, Tally


def tally(needed: int = 2) -> Tally[str]:
    return Tally(("s0", "s1", "s2"), needed)


def test_reached_by_distinct_servers_only():
    counted = tally()
    assert not counted.answer("s0", "first")
    assert not counted.answer("s0", "second")
    assert not counted.answer("stranger", "hello")
    assert counted.outcome is QuorumState.PENDING
    assert counted.answers == {"s0": "first"}
    assert counted.answer("s2", "third")
    assert not counted.answer("s2", "fourth"), "it adds nothing to the quorum"
    assert counted.outcome is QuorumState.REACHED
    assert not counted.complete


def test_unreachable_as_soon_as_too_many_refuse():
    counted = tally()
    counted.refuse("s0", "no")
    counted.refuse("stranger", "no")
    assert counted.outcome is QuorumState.PENDING
    counted.refuse("s1", "never")
    assert counted.outcome is QuorumState.UNREACHABLE
    assert counted.missing() == {"s0": "no", "s1": "never", "s2": "no answer"}


def test_a_refusal_may_be_followed_by_an_answer_and_not_the_reverse():
    counted = tally()
    counted.refuse("s0", "introduce it")
    counted.refuse("s1", "no")
    counted.answer("s0", "yes")
    assert counted.outcome is QuorumState.PENDING
    counted.refuse("s0", "changed my mind")
    assert counted.missing() == {"s1": "no", "s2": "no answer"}
    counted.answer("s2", "yes")
    assert counted.outcome is QuorumState.REACHED
    assert counted.complete
