"""Linearizable and broken histories, case by case, also checked by the reference."""

import itertools

import pytest

from ares.model.errors import BadInput
from ares.testing.verify.history import Event
from ares.testing.verify.linearizability import check
from tests.verify.reference import is_linearizable

from .making import d, r, w

RIGHT = {
    "nothing": [],
    "nothing there at first": [r(0, 1, None), w(2, 3, "a"), r(4, 5, "a")],
    "one after the other": [w(0, 1, "a"), r(2, 3, "a"), w(4, 5, "b"), r(6, 7, "b")],
    "a read during the write sees old or new": [w(0, 1, "a"), w(2, 9, "b"), r(3, 4, "a"),
        r(5, 6, "b")],
    "a response and an invocation at the same time are no order": [w(0, 1, "a"), w(1, 2, "b"),
        r(3, 4, "a")],
    "zones that only touch": [w(0, 1, "a"), r(2, 3, "a"), w(3, 3, "b"), r(4, 5, "b")],
    "everything concurrent": [*(w(0, 9, f"v{n}") for n in range(8)),
        *(r(0, 9, f"v{n}") for n in range(8)), r(0, 9, None)],
    "an unknown write never surfaces": [w(0, 1, "a"), w(2, None, "b"), r(3, 4, "a"),
        r(90, 91, "a")],
    "an unknown write surfaces late": [w(0, 1, "a"), w(2, None, "b"), r(3, 4, "a"), w(5, 6, "c"),
        r(7, 8, "c"), r(9, 10, "b"), r(11, 12, "b")],
    "an unknown write that is read while others go on": [w(0, None, "a"), r(5, 6, "a"),
        w(1, 2, "b"), r(3, 4, "b")],
    "a failed write is not there": [w(0, 1, "a", outcome="failed"), r(2, 3, None)],
    "a read of unknown outcome says nothing": [w(0, 1, "a"), r(2, None, "zzz")],
    "a failed read says nothing": [w(0, 1, "a"), r(2, 3, "zzz", outcome="failed")],
    "deletes": [w(0, 1, "a"), d(2, 3), r(4, 5, None), w(6, 7, "b"), r(8, 9, "b"), d(10, 11),
        r(12, 13, None)],
    "an unknown delete surfaces late": [w(0, 1, "a"), d(2, None), r(3, 4, "a"), w(5, 6, "b"),
        r(7, 8, "b"), r(9, 10, None)],
    "two unknown deletes explain two absences": [d(0, None), d(0, None), w(1, 2, "a"),
        r(3, 4, None), w(5, 6, "b"), r(7, 8, None)],
    "the same value twice": [w(0, 1, "a"), w(2, 3, "b"), w(4, 5, "a"), r(6, 7, "a")],
    "the same value twice, read before and after another": [w(0, 9, "a"), w(0, 9, "a"),
        w(0, 9, "b"), r(1, 2, "a"), r(3, 4, "b"), r(5, 6, "a")],
    "an unknown write is not used up where another will do": [
        w(0, 0, "b"), w(0, None, "a"), r(0, 0, "a"), w(3, None, "b"), r(5, 7, "b"), w(6, None, "a"),
        w(10, 12, "a"), r(13, 25, "b"),
    ],
    "a write of null is a delete": [w(0, 1, "a"), w(2, 3, None), r(4, 5, None)],
    "keys are apart": [w(0, 1, "a", key="x"), r(2, 3, None, key="y")],
}  # fmt: skip

WRONG = {
    "stale read": (
        [w(0, 1, "a"), w(2, 3, "b"), r(4, 5, "a")],
        3,
        "'a' must come before 'b' (w0's write ended before w2's write began) and after it",
    ),
    "lost write": (
        [w(0, 1, "a"), r(2, 3, None)],
        2,
        "absent must come before 'a' (as it was from the start) and after it (w0's write ended "
        "before",
    ),
    "read from the future": (
        [r(0, 1, "a"), w(2, 3, "a")],
        2,
        "'a' was read before any write of it was invoked",
    ),
    "new and then old": (
        [w(0, 1, "a"), w(2, 9, "b"), r(3, 4, "b"), r(5, 6, "a")],
        4,
        "'a' must come before 'b'",
    ),
    "never written": ([w(0, 1, "a"), r(2, 3, "b")], 1, "'b' was read, and no write stored it"),
    "written without effect": (
        [w(0, 1, "a", outcome="failed"), r(2, 3, "a")],
        2,
        "the only writes of it failed",
    ),
    "an unknown write surfaces twice": (
        [w(0, 1, "a"), w(2, None, "b"), r(3, 4, "b"), w(5, 6, "c"), r(7, 8, "c"), r(9, 10, "b")],
        4,
        "'b' must come before 'c' (r3's read ended before w5's write began) and after it (w5's "
        "write ended before r9's read began)",
    ),
    "an unknown write surfaces before it was invoked": (
        [r(0, 1, "a"), w(2, None, "a")],
        2,
        "before any write of it was invoked",
    ),
    "an unknown write is taken back": (
        [w(0, None, "a"), r(1, 2, "a"), r(3, 4, None)],
        3,
        "absent must come before 'a'",
    ),
    "one unknown delete, two absences": (
        [d(0, None), w(1, 2, "a"), r(3, 4, None), w(5, 6, "b"), r(7, 8, None)],
        5,
        "no order of these operations explains every read",
    ),
    "deleted and there again": (
        [w(0, 1, "a"), d(2, 3), r(4, 5, "a")],
        3,
        "'a' must come before absent",
    ),
    "absent before the delete": (
        [w(0, 1, "a"), r(2, 3, None), d(4, 5)],
        2,
        "absent must come before 'a'",
    ),
    "absent after a delete and a write": (
        [d(0, 1), w(2, 3, "a"), r(4, 5, None), d(6, 7)],
        2,
        "absent must come before 'a'",
    ),
    "the same value twice, three times there": (
        [
            w(0, 19, "a"),
            w(0, 19, "a"),
            w(0, 1, "b"),
            w(0, 19, "c"),
            r(2, 3, "a"),
            r(4, 5, "b"),
            r(6, 7, "a"),
            r(8, 9, "c"),
            r(10, 11, "a"),
        ],
        None,
        "",
    ),
    "a write among the reads of another": (
        [w(0, 9, "a"), r(1, 2, "a"), w(3, 4, "b"), r(5, 6, "a")],
        4,
        "'a' must come before 'b'",
    ),
    "an absence too many": (
        [w(0, 1, "a"), d(2, 9), r(3, 4, None), r(5, 6, "a")],
        4,
        "no order of these operations explains every read",
    ),
}


@pytest.mark.parametrize("events", RIGHT.values(), ids=RIGHT)
def test_linearizable_histories_are_accepted(events):
    assert is_linearizable(events)
    assert check(events).ok


@pytest.mark.parametrize(("events", "count", "why"), WRONG.values(), ids=WRONG)
def test_rejected_with_the_operations_at_odds(events, count, why):
    assert not is_linearizable(events)
    report = check(reversed(events))
    assert not report.ok
    assert report.undecided == ()
    (violation,) = report.violations
    assert why in violation.describe()
    assert all(event.describe() in violation.describe() for event in violation.events)
    assert set(violation.events) <= set(events)
    assert list(violation.events) == sorted(violation.events, key=lambda event: event.invoked)
    assert count is None or len(violation.events) == count
    assert not is_linearizable(violation.events), (
        "the operations named do not contradict each other"
    )


def test_tags_are_not_looked_at():
    assert check([w(0, 1, "a", tag=(9, 1)), w(2, 3, "b", tag=(1, 1)), r(4, 5, "b", tag=(0, 0))]).ok


def test_the_operations_at_odds_are_found_among_many():
    quiet = [
        event
        for n in range(0, 4000, 8)
        for event in (
            w(n, n + 1, f"v{n}"),
            r(n + 2, n + 3, f"v{n}"),
            d(n + 4, n + 5),
            r(n + 6, n + 7, None),
        )
    ]
    assert check(quiet).ok
    wrong = [r(2003.2, 2003.5, None)]
    (violation,) = check([*quiet, *wrong]).violations
    assert violation.events == (w(2000, 2001, "v2000"), *wrong)


def test_what_was_wrong_long_ago_and_shows_late_is_found():
    """A lasting value is deleted at once; a read a thousand operations later proves the loss."""
    lasting = [
        w(0, 1, "a"),
        d(2, 3),
        *(d(n, n + 0.5, outcome="failed") for n in range(4, 1000)),
        r(2000, 2001, "a"),
        r(0.1, 0.2, None),
    ]
    (violation,) = check(lasting).violations
    assert violation.events == (w(0, 1, "a"), d(2, 3), r(2000, 2001, "a"))


def test_every_wrong_key_and_every_wrong_value_is_told_once():
    events = [
        w(0, 1, "a"),
        *(w(n, n + 1, f"v{n}") for n in range(2, 100, 2)),
        r(200, 201, "a"),
        r(202, 203, "never"),
        r(204, 205, "never"),
    ]
    report = check(
        [
            *events,
            *(
                Event(e.client, e.operation, "other", e.value, e.invoked, e.responded)
                for e in events
            ),
        ]
    )
    assert [violation.key for violation in report.violations] == ["k"] * 3 + ["other"] * 3
    assert (report.operations, report.keys) == (2 * len(events), 2)


def test_a_read_from_the_future_is_not_held_against_others_too():
    future, write = r(0, 1, "a"), w(4, 5, "a")
    (violation,) = check([future, w(2, 3, "b"), write]).violations
    assert violation.events == (future, write)


def test_long_values_are_cut_in_the_sentence():
    (violation,) = check([r(0, 1, "x" * 1000)]).violations
    assert len(violation.why) < 100


def test_a_completed_operation_without_response_is_refused():
    with pytest.raises(BadInput, match="no response"):
        check([w(0, None, "a", outcome="ok")])


def tangled():
    """Return simultaneous writes of two values, read in an impossible order.

    The order needs more writes of "a" than the history has.
    """
    writes = [w(0, 100, value) for value in "ab" for _ in range(6)]
    return writes + [r(n, n + 0.5, "ab"[n % 2]) for n in range(1, 14)]


def test_undecided_is_neither_right_nor_wrong():
    report = check([*tangled(), w(0, 1, "c", key="fine")], states_max=5)
    assert not report.ok
    assert report.violations == ()
    (undecided,) = report.undecided
    assert undecided.describe().startswith(
        "key 'k': undecided: 5 states of the search did not tell"
    )
    assert "'a'" in undecided.why


def test_a_larger_budget_decides():
    (violation,) = check(tangled()).violations
    assert not is_linearizable(violation.events)


def test_a_contradiction_is_told_even_where_values_repeat():
    """A fault about values written once needs no search, and no budget."""
    report = check([*tangled(), w(200, 201, "x"), w(202, 203, "y"), r(204, 205, "x")], states_max=1)
    (violation,) = report.violations
    assert {event.value for event in violation.events} == {"x", "y"}
    assert report.undecided == ()


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_the_order_of_the_events_in_the_file_does_not_matter(order):
    right, wrong = (
        [w(0, 3, "a"), d(1, 2), r(4, 5, None), r(6, 7, None)],
        [w(0, 1, "a"), d(2, 3), r(4, 5, "a"), r(6, 7, None)],
    )
    assert check([right[index] for index in order]).ok
    assert not check([wrong[index] for index in order]).ok
