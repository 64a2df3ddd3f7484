"""Coverability: each property, and a violation with the operations at odds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from ares.testing.verify.coverability import Fork, check_coverability
from ares.testing.verify.history import dump, load

from .coverable_histories import is_possible
from .histories import atomic
from .making import d, r, w

A, B, C, D = (1, 7), (2, 8), (3, 7), (4, 8)
ZERO = (0, 0)
FAILED = "failed"


def c(invoked, responded, value, base, tag=None, outcome=None):
    """Make a coverable write: changed, or of unknown outcome."""
    return structs.replace(w(invoked, responded, value, tag=tag, outcome=outcome), base=base)


def u(invoked, responded, value, base, tag):
    """Make a coverable write that came back unchanged."""
    return structs.replace(r(invoked, responded, value, tag=tag), base=base)


RIGHT = {
    "nothing": [],
    "versions one after the other": [c(0, 1, "a", ZERO, A), r(2, 3, "a", tag=A), c(4, 5, "b", A, B),
        r(6, 7, "b", tag=B)],
    "a skipped number": [c(0, 1, "a", ZERO, A), c(2, 3, "b", A, (9, 8))],
    "two concurrent writes over one base": [c(0, 5, "a", ZERO, A), c(1, 4, "b", ZERO, (1, 8)),
        r(6, 7, "b", tag=(1, 8))],
    "at the same time is no order": [c(0, 1, "a", ZERO, A), c(1, 2, "b", ZERO, (1, 8))],
    "unchanged": [c(0, 1, "a", ZERO, A), u(2, 3, "a", ZERO, A)],
    "unchanged because of a write under way": [c(0, 9, "a", ZERO, A), u(1, 2, "a", ZERO, A)],
    "a write of unknown outcome that was read": [c(0, None, "a", ZERO), r(1, 2, "a", tag=A),
        c(3, 4, "b", A, B)],
    "a write of unknown outcome that took no effect": [c(0, None, "a", ZERO),
        r(1, 2, None, tag=ZERO), c(3, 4, "b", ZERO, A)],
    "a write of unknown outcome that came late": [c(0, None, "a", ZERO, A),
        c(1, 2, "b", ZERO, (1, 8)), c(3, 4, "c", (1, 8), C)],
    "a write of unknown outcome over a base long past, of no effect": [c(0, 1, "a", ZERO, A),
        c(2, None, "b", ZERO), r(3, 4, "a", tag=A)],
    "a base that was never read, by a write of unknown outcome": [c(0, None, "a", ZERO),
        c(3, 4, "b", A, B)],
    "a base that may have been made at the last moment": [c(0, 1, "b", A, B),
        c(1, None, "a", ZERO)],
    "either of two writes of one value": [c(0, None, "a", ZERO), c(0, None, "a", ZERO),
        r(1, 2, "a", tag=A), r(1, 2, "a", tag=(1, 8))],
    "a completed write that tells no version": [c(0, 1, "a", ZERO), r(2, 3, "a", tag=A),
        c(4, 5, "b", A, B)],
    "plain writes beside coverable ones": [w(0, 1, "a", tag=A), c(2, 3, "b", A, B),
        w(4, 5, "c", tag=C), c(6, 7, "d", C, D)],
    "a delete is a version": [c(0, 1, "a", ZERO, A), d(2, 3, tag=B), r(4, 5, None, tag=B),
        c(6, 7, "b", B, C)],
    "failed writes and reads that said nothing": [
        c(0, 1, "a", ZERO, A), c(2, 3, "b", ZERO, B, outcome=FAILED), r(2, None, None),
        c(4, 5, "b", A, (2, 9)),
    ],
    "keys without a base are not judged": [w(0, 1, "a", key="x", tag=B),
        r(2, 3, "b", key="x", tag=A), c(0, 1, "a", ZERO, A)],
}  # fmt: skip

WRONG = {
    "validity: a version of two writes": (
        [c(0, 3, "a", ZERO, A), c(1, 4, "a", ZERO, A)],
        "tag 1.7 belongs to two writes",
    ),
    "validity: a version of two values": (
        [c(0, 3, "a", ZERO, A), r(4, 5, "b", tag=A)],
        "tag 1.7 belongs to two values",
    ),
    "validity: a version that nobody made": (
        [c(0, 1, "a", ZERO, A), r(2, 3, "x", tag=B)],
        "r2's read returned version 2.8, which no write made",
    ),
    "validity: nobody made it, and it was covered": (
        [r(2, 3, "x", tag=B), c(4, 5, "b", B, C)],
        "r2's read returned version 2.8, which no write made",
    ),
    "validity: a version of later": (
        [r(0, 1, "a", tag=A), c(2, 3, "a", ZERO, A), r(4, 5, "a", tag=A)],
        "r0's read returned version 1.7 before the write of it was invoked",
    ),
    "validity: another version of the value": (
        [c(0, 1, "a", ZERO, A), r(2, 3, "a", tag=B)],
        "r2's read returned version 2.8 with 'a', which was written as version 1.7",
    ),
    "validity: two versions of a write that tells none": (
        [c(0, None, "a", ZERO), r(1, 2, "a", tag=A), r(3, 4, "a", tag=B)],
        "2.8, which no write is left",
    ),
    "validity: a version that failed": (
        [c(0, 1, "a", ZERO, A, outcome=FAILED), r(2, 3, "a", tag=A)],
        "1.7, whose write failed without effect",
    ),
    "continuity: a base that nobody made": (
        [c(0, 1, "a", A, B)],
        "w0's write covered version 1.7, which no write made",
    ),
    "continuity: a base that failed": (
        [c(0, 1, "a", ZERO, A, outcome=FAILED), c(2, 3, "b", A, B)],
        "1.7, whose write failed without effect",
    ),
    "continuity: a base of later": (
        [c(0, 1, "b", A, B), c(2, 3, "a", ZERO, A)],
        "w0's write covered version 1.7 before the write of it was invoked",
    ),
    "continuity: a base that can only have been made later": (
        [c(0, 1, "b", A, B), c(2, None, "a", ZERO)],
        "version 1.7, which no write made",
    ),
    "continuity: more bases than writes": (
        [c(0, None, "a", ZERO), c(1, 4, "b", A, B), c(1, 5, "c", (1, 8), C)],
        "w1's write covered version 1.8, which no write is left to have made",
    ),
    "evolution: no new version": (
        [c(0, 1, "a", ZERO, B), c(2, 3, "b", B, B)],
        "made version 2.8, the same as its base",
    ),
    "evolution: a lower version": (
        [c(0, 1, "a", ZERO, B), c(1, 3, "b", B, A)],
        "w1's write made version 1.7, lower than its base 2.8",
    ),
    "consolidation: over one base one after the other": (
        [c(0, 1, "a", ZERO, A), c(2, 3, "b", ZERO, B)],
        "w2's write covered version 0.0, although 1.7 was known before it began",
    ),
    "consolidation: the loser came first": (
        [c(0, 1, "a", ZERO, B), c(2, 3, "b", ZERO, A)],
        "w2's write covered version 0.0, although 2.8 was known",
    ),
    "consolidation: a version that was read": (
        [c(0, None, "a", ZERO, A), r(1, 2, "a", tag=A), c(3, 4, "b", ZERO, (1, 8))],
        "w3's write covered version 0.0, although 1.7 was known",
    ),
    "consolidation: a version that an unchanged write was told": (
        [c(0, None, "a", ZERO, A), u(1, 2, "a", ZERO, A), c(3, 4, "b", ZERO, (1, 8))],
        "w3's write covered version 0.0, although 1.7 was known",
    ),
    "consolidation: a write of unknown outcome that was read": (
        [c(0, 1, "a", ZERO, A), c(2, None, "b", ZERO), r(3, 4, "b", tag=B)],
        "w2's write covered version 0.0, although 1.7 was known",
    ),
    "consolidation: a read goes back": (
        [c(0, 1, "a", ZERO, A), r(2, 3, None, tag=ZERO)],
        "r2's read has tag 0.0, lower than 1.7",
    ),
    "consolidation: a plain write goes back": (
        [c(0, 1, "a", ZERO, B), w(2, 3, "b", tag=A)],
        "w2's write has tag 1.7, lower than 2.8",
    ),
    "unchanged: the base": (
        [c(0, 1, "a", ZERO, A), u(2, 3, "a", A, A)],
        "r2's unchanged write returned version 1.7, the same as its base",
    ),
    "unchanged: nothing was ever written": (
        [u(2, 3, None, ZERO, ZERO)],
        "r2's unchanged write returned version 0.0, the same as its base",
    ),
    "unchanged: lower": (
        [c(0, 1, "a", ZERO, A), c(2, 3, "b", A, B), u(1, 3, "a", B, A)],
        "returned version 1.7, lower than its base 2.8",
    ),
    "freshness: a version of later": (
        [u(0, 1, "a", ZERO, A), c(2, 3, "a", ZERO, A)],
        "r0's unchanged write returned version 1.7 before the write",
    ),
    "freshness: a version that nobody made": (
        [u(0, 1, "a", ZERO, A)],
        "r0's unchanged write returned version 1.7, which no write made",
    ),
}


@pytest.mark.parametrize("events", RIGHT.values(), ids=RIGHT)
def test_coverable_histories_are_accepted(events):
    report = check_coverability(events)
    assert report.ok, [violation.describe() for violation in report.violations]
    assert is_possible([event for event in events if event.key == "k"])


def violations(events):
    """Return the violations of the events beside an additional coverable write.

    This write keeps the object coverable if all remaining events are plain.
    """
    return check_coverability([c(0, None, "nobody's", ZERO, (1, 99)), *events]).violations


@pytest.mark.parametrize(("events", "why"), WRONG.values(), ids=WRONG)
def test_rejected_with_the_operations_at_odds(events, why):
    (violation,) = check_coverability(reversed(events)).violations
    assert why in violation.describe()
    assert violation.key == "k"
    assert set(violation.events) <= set(events)
    assert len(violations(violation.events)) == 1, (
        "the operations named are not at odds by themselves"
    )
    assert not is_possible(events)


def test_a_completed_write_that_tells_no_version_is_judged_by_its_base():
    (violation,) = check_coverability([c(0, 1, "a", ZERO, A), c(2, 3, "b", ZERO)]).violations
    assert violation.why == "w2's write covered version 0.0, although 1.7 was known before it began"


def test_a_write_that_tells_no_version_comes_with_the_read_that_does():
    first, silent, reading = events = WRONG[
        "consolidation: a write of unknown outcome that was read"
    ][0]
    (violation,) = check_coverability(events).violations
    assert violation.events == (first, silent, reading)


FORK = [c(0, 5, "a", ZERO, A), c(0, 5, "b", ZERO, (1, 8)), c(0, 5, "c", ZERO, (1, 9))]
FORKS = {
    "the highest stands": (FORK, {ZERO: [A, (1, 8)]}),
    "the one that was covered stands": ([*FORK, c(5, 6, "d", A, B)], {ZERO: [(1, 8), (1, 9)]}),
    "both ends of a fork": (
        [*FORK, c(5, 6, "d", A, B), c(5, 6, "e", (1, 8), (2, 9))],
        {ZERO: [A, (1, 9)]},
    ),
    "forks after forks": (
        [*FORK, c(6, 9, "d", (1, 9), B), c(6, 9, "e", (1, 9), (2, 9))],
        {ZERO: [A, (1, 8)], (1, 9): [B]},
    ),
    "a plain write goes over what is there": ([*FORK, w(6, 7, "d", tag=B)], {ZERO: [A, (1, 8)]}),
    "what may not have come to be": ([c(0, 5, "a", ZERO, A), c(0, None, "b", ZERO, (1, 8))], {}),
    "what came to be": (
        [c(0, 5, "a", ZERO, A), c(0, None, "b", ZERO), r(6, 7, "b", tag=(1, 8))],
        {ZERO: [A]},
    ),
    "none": ([c(0, 1, "a", ZERO, A), c(2, 3, "b", A, B)], {}),
}


@pytest.mark.parametrize(("events", "lost"), FORKS.values(), ids=FORKS)
def test_forks_are_told_and_are_no_violation(events, lost):
    report = check_coverability(events)
    assert report.ok
    assert {fork.base: list(fork.lost) for fork in report.forks} == lost


def test_a_fork_in_words():
    (fork,) = check_coverability(FORK).forks
    assert fork == Fork("k", ZERO, (A, (1, 8), (1, 9)), (A, (1, 8)))
    assert fork.describe() == "key 'k': 1.7, 1.8, 1.9 over 0.0; lost: 1.7, 1.8"


def test_the_report_counts_operations_and_keys():
    report = check_coverability(
        [*FORK, c(6, 7, "x", (1, 9)), r(8, 9, None), w(0, 1, "a", key="plain")]
    )
    assert (report.operations, report.keys, report.unjudged) == (5, 1, 2)


def test_histories_keep_bases_and_plain_ones_need_none():
    events = [c(0, 1, "a", ZERO, A), u(2, 3, "a", ZERO, A), w(4, 5, "b", tag=B)]
    assert load(dump(events), "history") == events
    assert events[0].describe().endswith("ok over 0.0 made 1.7")
    assert events[1].describe().endswith("ok over 0.0 unchanged 1.7")
    assert b"base" not in dump(events[2:])


@settings(deadline=None, max_examples=300)
@given(st.randoms(use_true_random=False))
def test_plain_registers_are_not_judged(rng):
    report = check_coverability(atomic(rng, repeated=True))
    assert (report.ok, report.keys) == (True, 0)
