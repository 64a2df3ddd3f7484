"""The checker of logs against the definition, on thousands of small random histories.

The checker must reject further histories.
"""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

import ares
from ares.testing.verify import log_order
from ares.testing.verify.log_history import LogEvent, dump_log, is_log_history, load_log
from ares.testing.verify.log_order import check_log
from tests.verify.log_histories import large, shown_by_a_log, spoilt
from tests.verify.log_reference import is_log


def disagreement(events, accepts=lambda events: check_log(events).ok):
    right, said = is_log(events), accepts(events)
    return (
        ""
        if said == right
        else f"{'accepted' if said else 'rejected'}:\n"
        + "\n".join(event.describe() for event in events)
    )


@pytest.mark.slow
@settings(deadline=None, max_examples=1500)
@given(st.randoms(use_true_random=False), st.sampled_from([3, 6, 9]), st.booleans())
def test_agrees_with_the_definition(rng, size, batches):
    assert disagreement(spoilt(rng, size, batches)) == ""


@settings(deadline=None, max_examples=300)
@given(st.randoms(use_true_random=False))
def test_accepts_what_a_log_shows(rng):
    events = shown_by_a_log(rng, 9)
    assert is_log(events)
    assert check_log(events).ok


def ignoring(name):
    def broken(events, monkeypatch):
        monkeypatch.setattr(log_order, name, lambda *arguments: iter(()))
        return check_log(events).ok

    return broken


@pytest.mark.parametrize("name", ["_disordered", "_unfilled"])
def test_a_checker_that_leaves_something_out_is_told_from_the_definition(name, monkeypatch):
    histories = (spoilt(Random(seed), 6) for seed in range(2000))
    assert any(
        disagreement(events, lambda events: ignoring(name)(events, monkeypatch))
        for events in histories
    )


def append(client, position, entries, invoked, responded, **more):
    return LogEvent(client, "append", "l", position, invoked, responded, tuple(entries), **more)


A, B = append("a", 0, ["x"], 0, 1), append("b", 1, ["y"], 2, 3)


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([A, append("b", 0, ["y"], 2, 3)], "belongs to two appends"),
        (
            [A, B, LogEvent("r", "read", "l", 0, 4, 5, ("y",))],
            "an append is at position 1 and at 0",
        ),
        ([A, LogEvent("r", "read", "l", 1, 4, 5, ("z",))], "no append stored it"),
        (
            [
                structs.replace(A, outcome="failed", position=None),
                LogEvent("r", "read", "l", 0, 4, 5, ("x",)),
            ],
            "although its append failed",
        ),
        ([append("a", 0, ["x", "y"], 0, 1), append("b", 1, ["z"], 0, 1)], "overlap"),
        (
            [append("a", 0, ["x", "y"], 0, 1), LogEvent("r", "tail", "l", 1, 0, 1)],
            "inside an append",
        ),
        (
            [append("a", 1, ["x"], 0, 9), append("a", 0, ["y"], 1, 9)],
            "not in the order in which it made them",
        ),
        (
            [
                A,
                B,
                LogEvent("f", "follow", "l", 0, 4, 5, ("x",)),
                LogEvent("f", "follow", "l", 0, 6, 7, ("x",)),
            ],
            "skipped entries, or went back",
        ),
        ([A, LogEvent("r", "read", "l", 0, 4, 5, trimmed=1)], "no trim had asked for"),
        ([B], "nothing was appended in time that can be at position 0"),
        ([A, B, LogEvent("r", "tail", "l", 1, 4, 5)], "had at most 1 entries"),
        ([A, LogEvent("r", "read", "l", 0, 4, 5)], "had at most 0 entries"),
        (
            [A, append("c", None, ["t"], 4, 5, outcome="failed", at=3)],
            "nothing was appended in time",
        ),
    ],
)
def test_what_no_log_can_show(events, why):
    (violation, *_) = check_log(events).violations
    assert why in violation.why
    assert set(violation.events) <= set(events)


def test_what_a_log_can_show():
    unknown = append("u", None, ["v"], 0, None, outcome="unknown")
    trim = LogEvent("t", "trim", "l", 1, 3, 4)
    assert check_log([A, B, trim, LogEvent("r", "read", "l", 0, 4, 5, trimmed=1), unknown]).ok
    assert check_log([unknown, append("b", 1, ["y"], 2, 3)]).ok, (
        "an append of unknown outcome fills the position that nobody told"
    )
    assert check_log([*[A], structs.replace(A, log="other")]).logs == 2


def test_entries_that_came_twice_cannot_be_judged():
    with pytest.raises(ares.BadInput, match="appended twice"):
        check_log([A, structs.replace(B, entries=("x",))])


@pytest.mark.slow
def test_a_hundred_thousand_operations():
    events = large(Random(1), 100_000)
    assert check_log(events).ok
    tail = next(event for event in reversed(events) if event.operation == "tail")
    late = structs.replace(
        tail, invoked=tail.invoked + 1000, responded=(tail.responded or 0) + 1000
    )
    assert not check_log([late if event is tail else event for event in events]).ok


def test_histories_are_written_and_read():
    events = [A, B, append("u", None, ["v"], 0, None, outcome="unknown")]
    text = dump_log(events)
    assert is_log_history(text)
    assert load_log(text, "name") == events
    assert not is_log_history(b'{"client":"c","key":"k"}\n')
    assert not is_log_history(b"\xff\n")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"no json", "not an event of a log"),
        (dump_log([structs.replace(A, responded=-1.0)]), "responded before it was invoked"),
        (
            dump_log([structs.replace(A, responded=None)]),
            "exactly the operations of unknown outcome",
        ),
        (dump_log([structs.replace(A, position=None)]), "has a position"),
        (dump_log([structs.replace(A, position=-1)]), "below 0"),
        (dump_log([structs.replace(A, entries=())]), "an append has entries"),
    ],
)
def test_lines_that_are_no_events(line, told):
    with pytest.raises(ares.BadInput, match=told):
        load_log(dump_log([A]) + line, "name")
