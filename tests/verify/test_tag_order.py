"""Tags, which never go back in real time, and belong to a single write each."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from ares.testing.verify.tag_order import check_tags

from .histories import atomic
from .large import large
from .making import d, r, w

RIGHT = {
    "nothing": [],
    "the initial value": [r(0, 1, None, tag=(0, 0)), w(2, 3, "a", tag=(1, 7)),
        r(4, 5, "a", tag=(1, 7))],
    "concurrent reads may disagree": [w(0, 9, "a", tag=(1, 7)), r(1, 5, "a", tag=(1, 7)),
        r(2, 6, None, tag=(0, 0))],
    "ties are broken by the writer": [w(0, 1, "a", tag=(1, 7)), w(2, 3, "b", tag=(1, 8)),
        r(4, 5, "b", tag=(1, 8))],
    "at the same time is no order": [w(0, 1, "a", tag=(2, 7)), r(1, 2, None, tag=(0, 0))],
    "an unknown write without a tag": [w(0, None, "a"), r(1, 2, "a", tag=(1, 7))],
    "an unknown write forces nobody": [w(0, None, "a", tag=(5, 7)), r(1, 2, None, tag=(0, 0)),
        w(3, 4, "b", tag=(1, 7))],
    "what carries no tag is not judged": [w(0, 1, "a", tag=(1, 7)), r(2, 3, None),
        w(4, 5, "b", tag=(2, 7))],
    "failed operations and reads that said nothing": [
        w(0, 1, "a", tag=(3, 7)), w(2, 3, "b", tag=(1, 1), outcome="failed"),
        r(4, None, None, tag=(0, 0)),
    ],
    "keys are apart": [w(0, 1, "a", key="x", tag=(3, 7)), w(2, 3, "b", key="y", tag=(1, 7))],
}  # fmt: skip

WRONG = {
    "a read goes back": (
        [w(0, 1, "a", tag=(1, 7)), r(2, 3, None, tag=(0, 0))],
        "r2's read has tag 0.0, lower than 1.7, which had been seen",
    ),
    "reads go back": (
        [w(0, 9, "a", tag=(1, 7)), r(1, 2, "a", tag=(1, 7)), r(3, 4, None, tag=(0, 0))],
        "r3's read has tag 0.0, lower than 1.7",
    ),
    "a write does not advance": (
        [r(0, 1, "a", tag=(2, 7)), w(2, 3, "a", tag=(2, 7))],
        "w2's write has tag 2.7, no higher than 2.7",
    ),
    "a write goes back": (
        [w(0, 1, "a", tag=(2, 7)), w(2, 3, "b", tag=(1, 8))],
        "w2's write has tag 1.8, lower than 2.7",
    ),
    "a delete goes back": (
        [w(0, 1, "a", tag=(2, 7)), d(2, 3, tag=(1, 8))],
        "d2's delete has tag 1.8, lower than 2.7",
    ),
    "an unknown write goes back": (
        [w(0, 1, "a", tag=(2, 7)), w(2, None, "b", tag=(1, 8))],
        "w2's write has tag 1.8, lower than 2.7",
    ),
    "one tag, two values": (
        [w(0, 1, "a", tag=(1, 7)), r(2, 3, "b", tag=(1, 7))],
        "tag 1.7 belongs to two values, 'a' and 'b'",
    ),
    "one tag, two values read": (
        [r(0, 3, "a", tag=(1, 7)), r(2, 3, "b", tag=(1, 7))],
        "tag 1.7 belongs to two values, 'a' and 'b'",
    ),
    "one tag, a value and a delete": (
        [r(0, 3, "a", tag=(1, 7)), d(0, 3, tag=(1, 7))],
        "tag 1.7 belongs to two values, 'a' and absent",
    ),
    "one tag, two writes": (
        [w(0, 3, "a", tag=(1, 7)), w(1, 3, "a", tag=(1, 7))],
        "tag 1.7 belongs to two writes",
    ),
    "tag zero with a value": (
        [r(0, 1, "a", tag=(0, 0))],
        "tag 0.0 is that of the initial value, absent",
    ),
    "tag zero written": (
        [w(0, 1, "a", tag=(0, 0))],
        "tag 0.0 is that of the initial value, absent",
    ),
}


@pytest.mark.parametrize("events", RIGHT.values(), ids=RIGHT)
def test_ordered_tags_are_accepted(events):
    assert check_tags(events) == []


@pytest.mark.parametrize(("events", "why"), WRONG.values(), ids=WRONG)
def test_rejected_with_the_operations_at_odds(events, why):
    (violation,) = check_tags(reversed(events))
    assert why in violation.describe()
    assert violation.key == "k"
    assert set(violation.events) <= set(events)
    assert len(check_tags(violation.events)) == 1, (
        "the operations named are not at odds by themselves"
    )


def definition(events):
    """Return whether tags are in order, by looking at every pair."""
    judged = [
        event
        for event in events
        if event.tag
        and (event.outcome == "ok" or (event.outcome == "unknown" and event.operation != "read"))
    ]
    for one in judged:
        if one.tag == (0, 0) and (one.operation != "read" or one.value is not None):
            return False
        for other in judged:
            if (
                one is not other
                and one.tag == other.tag
                and (one.value != other.value or "read" not in (one.operation, other.operation))
            ):
                return False
            if (
                one.outcome == "ok"
                and one.responded < other.invoked
                and other.tag < (one.tag[0], one.tag[1] + (other.operation != "read"))
            ):
                return False
    return True


@pytest.mark.slow
@settings(deadline=None, max_examples=1000)
@given(st.randoms(use_true_random=False), st.integers(1, 8))
def test_agrees_with_the_definition(rng, spread):
    """Tags roughly follow the time of invocation, and values mostly follow the tags."""
    events = []
    for event in atomic(rng, repeated=True):
        tag = (max(int(event.invoked) + rng.randrange(spread), 0), rng.randrange(2))
        value = (
            None
            if event.operation == "delete" or tag == (0, 0)
            else f"v{tag}"
            if rng.random() < 0.9
            else event.value
        )
        events.append(structs.replace(event, tag=tag if rng.random() < 0.9 else None, value=value))
    assert (check_tags(events) == []) == definition(events)


def test_an_old_tag_among_many_operations_is_found():
    events = [
        structs.replace(event, tag=(number + 1, 1))
        for number, event in enumerate(large(Random(1), 20_000))
        if event.operation != "read"
    ]
    assert check_tags(events) == []
    late = structs.replace(
        events[-1], client="late", invoked=1e6, responded=1e6 + 1, outcome="ok", tag=(0, 5)
    )
    (violation,) = check_tags([*events, late])
    assert late in violation.events
