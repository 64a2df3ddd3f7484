"""The coverability checker against the definition, on thousands of small random histories.

The comparison also detects wrong checkers. Large histories are covered, too.
"""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from ares.testing.verify.coverability import check_coverability
from ares.testing.verify.history import Event
from ares.testing.verify.linearizability import check

from .coverable_histories import ambiguous, is_possible, simulated, spoilt

ZERO = (0, 0)


def accepts(events):
    return check_coverability(events).ok


def disagreement(accepts, events):
    """Return a checker's error on a history; empty if right.

    The result is also empty if too few versions are known for certainty.
    """
    if not any(event.base is not None for event in events):
        return ""
    right, said = is_possible(events), accepts(events)
    if said == right or (said and ambiguous(events)):
        return ""
    return f"{'accepted' if said else 'rejected'}:\n" + "\n".join(
        f"{event.describe()} {event.tag}" for event in events
    )


SIZES = st.sampled_from([(2, 2), (3, 2), (2, 3), (4, 1)])


@settings(deadline=None, max_examples=300)
@given(st.randoms(use_true_random=False), SIZES)
def test_accepts_what_a_coverable_object_shows(rng, size):
    events = simulated(rng, *size)
    assert is_possible(events)
    assert accepts(events)


@settings(deadline=None, max_examples=500)
@given(st.randoms(use_true_random=False), SIZES)
def test_agrees_with_the_definition(rng, size):
    assert disagreement(accepts, spoilt(rng, *size)) == ""


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(st.randoms(use_true_random=False), SIZES)
def test_the_operations_named_are_few_and_a_proof(rng, size):
    """The named operations contradict each other even beside every write of the history."""
    events = spoilt(rng, *size)
    writes = [event for event in events if event.operation != "read"]
    for violation in check_coverability(events).violations:
        assert set(violation.events) <= set(events)
        assert len(violation.events) <= 4
        assert not is_possible(list({*writes, *violation.events}))


@pytest.mark.slow
def test_agrees_with_the_definition_on_thousands_of_histories():
    """This test is quicker than Hypothesis, which makes failures smaller."""
    for seed in range(4000):
        for make in (simulated, spoilt):
            assert disagreement(accepts, make(Random(seed), 2 + seed % 2, 2)) == ""


def test_the_definition_decides_of_most_histories_and_both_ways():
    histories = [spoilt(Random(seed)) for seed in range(500)]
    decided = [is_possible(events) for events in histories if not ambiguous(events)]
    assert len(decided) > 400
    assert 100 < sum(decided) < 400


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(st.randoms(use_true_random=False), SIZES)
def test_where_every_version_is_told_they_linearize_the_values(rng, size):
    events = [event for event in spoilt(rng, *size) if event.tag is not None]
    bases = [structs.replace(event, key="k") for event in events]
    if any(event.base is not None for event in bases) and accepts(bases):
        assert not check(bases).violations


def without_bases(event):
    return structs.replace(event, base=None) if event.operation != "read" else event


def without_bases_of_unchanged_writes(event):
    return structs.replace(event, base=None) if event.operation == "read" else event


def ignoring_real_time(event):
    return structs.replace(event, invoked=0.0, responded=None if event.responded is None else 99.0)


def dropping_unknown_writes(event):
    return (
        structs.replace(event, outcome="failed", responded=99.0)
        if event.outcome == "unknown"
        else event
    )


def believing_failed_writes(event):
    return structs.replace(event, outcome="ok") if event.outcome == "failed" else event


def ordering_what_touches(event):
    return (
        event
        if event.invoked == event.responded
        else structs.replace(event, invoked=event.invoked + 0.5)
    )


def demanding_the_next_number(event):
    if (
        event.operation == "read"
        or event.base is None
        or event.tag is None
        or event.tag[0] == event.base[0] + 1
    ):
        return event
    return structs.replace(event, tag=event.base)


CHANGES = [
    without_bases, without_bases_of_unchanged_writes, ignoring_real_time, dropping_unknown_writes,
    believing_failed_writes, ordering_what_touches,
    demanding_the_next_number,
]  # fmt: skip


def strong(events):
    """Return whether the history is right if only a single write may cover a version."""
    return accepts(events) and not check_coverability(events).forks


@pytest.mark.parametrize(
    "wrong",
    [
        *(
            (lambda events, change=change: accepts([change(event) for event in events]))
            for change in CHANGES
        ),
        strong,
    ],
    ids=[*(change.__name__ for change in CHANGES), "strong"],
)
def test_a_wrong_checker_is_told_from_the_definition(wrong):
    histories = (make(Random(seed)) for seed in range(500) for make in (simulated, spoilt))
    assert any(disagreement(wrong, events) for events in histories)


@pytest.mark.slow
def test_a_hundred_thousand_operations_on_one_key():
    events = simulated(Random(1), clients=16, each=6250, unknown=0.01, plain=0.02)
    report = check_coverability(events)
    assert report.ok
    assert len(report.forks) > 100
    assert check(events).ok
    write = next(
        event
        for event in reversed(events)
        if event.operation == "write" and event.base is not None and event.outcome == "ok"
    )
    stale = structs.replace(write, base=events[5000].tag or ZERO)
    (violation,) = check_coverability(
        [stale if event is write else event for event in events]
    ).violations
    assert stale in violation.events
    assert len(violation.events) == 2


def test_a_history_in_which_everything_is_wrong():
    events = [
        Event(f"c{n}", "write", "k", f"v{n}", float(n), n + 0.5, "ok", (n + 2, 1), (0, 0))
        for n in range(20_000)
    ]
    report = check_coverability(events)
    assert len(report.violations) == 19_999
    assert report.violations[-1].events == (events[-2], events[-1])
