"""The checker against the definition, on thousands of small random histories.

The comparison also detects wrong checkers.
"""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from ares.testing.verify.history import Event
from ares.testing.verify.linearizability import check
from ares.testing.verify.register import RegisterHistory
from tests.verify.reference import is_linearizable

from .histories import KINDS, atomic
from .large import large


def accepts(events):
    report = check(events)
    assert not report.undecided
    return report.ok


def disagreement(accepts, events):
    """Return a checker's error on a history; empty if right."""
    right, said = is_linearizable(events), accepts(events)
    return (
        ""
        if said == right
        else f"{'accepted' if said else 'rejected'}:\n"
        + "\n".join(event.describe() for event in events)
    )


@pytest.mark.slow
@settings(deadline=None, max_examples=2000)
@given(
    st.randoms(use_true_random=False),
    st.sampled_from(list(KINDS)),
    st.booleans(),
    st.sampled_from([4, 9, 12]),
)
def test_agrees_with_the_definition(rng, kind, repeated, size):
    assert disagreement(accepts, KINDS[kind](rng, repeated, size)) == ""


@pytest.mark.slow
@settings(deadline=None, max_examples=1000)
@given(st.randoms(use_true_random=False), st.booleans())
def test_accepts_what_an_atomic_register_shows(rng, repeated):
    events = atomic(rng, repeated, 12)
    assert is_linearizable(events)
    assert accepts(events)


@pytest.mark.slow
@settings(deadline=None, max_examples=1000)
@given(st.randoms(use_true_random=False), st.sampled_from(["spoilt", "arbitrary"]), st.booleans())
def test_the_operations_named_are_a_proof(rng, kind, repeated):
    """The named operations contradict each other, and no other write of the history changes this.

    No read among them is superfluous.
    """
    events = KINDS[kind](rng, repeated)
    writes = [event for event in events if event.operation != "read"]
    for violation in check(events).violations:
        assert set(violation.events) <= set(events)
        assert not is_linearizable(violation.events)
        assert not is_linearizable(set(writes).union(violation.events))
        for superfluous in violation.events:
            assert superfluous.operation != "read" or is_linearizable(
                [event for event in violation.events if event is not superfluous]
            )


@settings(deadline=None, max_examples=200)
@given(st.randoms(use_true_random=False))
def test_keys_are_judged_apart(rng):
    keys = {
        key: [structs.replace(event, key=key) for event in KINDS["spoilt"](rng, True)]
        for key in "xyz"
    }
    events = [event for own in keys.values() for event in own]
    rng.shuffle(events)
    assert {violation.key for violation in check(events).violations} == {
        key for key, own in keys.items() if not is_linearizable(own)
    }


def ignoring_real_time(event):
    return structs.replace(event, invoked=0.0, responded=None if event.responded is None else 99.0)


def dropping_unknown_writes(event):
    return (
        structs.replace(event, outcome="failed", responded=99.0)
        if event.outcome == "unknown"
        else event
    )


def believing_that_unknown_writes_end_soon(event):
    return (
        structs.replace(event, outcome="ok", responded=event.invoked + 2)
        if event.outcome == "unknown" and event.operation != "read"
        else event
    )


def believing_failed_writes(event):
    return (
        structs.replace(event, outcome="ok")
        if event.outcome == "failed" and event.operation != "read"
        else event
    )


def ordering_what_touches(event):
    return (
        event
        if event.invoked == event.responded
        else structs.replace(event, invoked=event.invoked + 0.5)
    )


def forgetting_deletes(event):
    return (
        structs.replace(event, outcome="failed", responded=99.0)
        if event.operation == "delete"
        else event
    )


CHANGES = [
    ignoring_real_time, dropping_unknown_writes, believing_that_unknown_writes_end_soon,
    believing_failed_writes, ordering_what_touches,
    forgetting_deletes,
]  # fmt: skip


def altered(change):
    return lambda events: accepts([change(event) for event in events])


def skipping_repeated_values(events):
    repeated = RegisterHistory(events).repeated
    return accepts(
        [event for event in events if event.operation != "read" or event.value not in repeated]
    )


def distrusting_repeated_values(events):
    return accepts(events) and not RegisterHistory(events).repeated


@pytest.mark.parametrize(
    "wrong",
    [*map(altered, CHANGES), skipping_repeated_values, distrusting_repeated_values],
    ids=[
        *(change.__name__ for change in CHANGES),
        "skipping_repeated_values",
        "distrusting_repeated_values",
    ],
)
def test_a_wrong_checker_is_told_from_the_definition(wrong):
    histories = (
        KINDS[kind](Random(seed), repeated)
        for seed in range(300)
        for kind in KINDS
        for repeated in (False, True)
    )
    assert any(disagreement(wrong, events) for events in histories)


def test_a_hundred_thousand_operations_on_one_key():
    events = large(Random(1), 100_000)
    assert check(events).ok
    stale = next(
        event for event in reversed(events) if event.operation == "read" and event.outcome == "ok"
    )
    old = next(event for event in events if event.operation == "write" and event.outcome == "ok")
    (violation,) = check(
        [structs.replace(event, value=old.value) if event is stale else event for event in events]
    ).violations
    assert old in violation.events
    assert structs.replace(stale, value=old.value) in violation.events
    assert len(violation.events) <= 6


@pytest.mark.parametrize("values", [0, 3])
def test_thousands_of_operations_with_deletes_and_repeated_values(values):
    assert check(large(Random(2), 10_000, clients=8, deletes=0.2, values=values)).ok
    events = large(Random(3), 10_000, clients=8, deletes=0.2, unknown=0.0, values=values)
    assert check(events).ok
    write = Event("late", "write", "k", "only", 1e6, 1e6 + 1)
    absent = Event("late", "read", "k", None, 1e6 + 2, 1e6 + 3)
    (violation,) = check([*events, write, absent]).violations
    assert violation.events == (write, absent)
