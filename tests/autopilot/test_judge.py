"""Decisions of the autopilot, without any I/O (ares/autopilot/judge.py)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ares.autopilot.judge import (
    Finish,
    NoAction,
    Replace,
    Roster,
    Stuck,
    Watch,
    judge,
    loads_of,
    urgency,
)
from ares.model.configuration import Configuration
from ares.model.identity import ServerId

from .looks import AFTER_S, ALL, BOOK, EVERY_S, ROSTER, abd, check, ec, identities, watched

NEW = "e" * 32


def ids(configuration):
    return list(configuration.server_ids)


def test_a_domain_whose_servers_are_well_is_left_alone():
    assert judge([abd(0, 1, 2)], watched(), ROSTER) == NoAction()
    assert judge([abd(0, 1, 2)], watched(identities(0, 1), long=False), ROSTER) == NoAction(), (
        "not yet"
    )


def test_a_spare_takes_the_position_of_a_server_that_is_gone():
    configuration, watch = ec(0, 1, 2, 3, 4, k=3), watched(identities(0, 1, 2, 4, 5, 6))
    verdict = judge([configuration], watch, ROSTER)
    check([configuration], watch, verdict)
    assert isinstance(verdict, Replace)
    assert ids(verdict.wished) == ["s0", "s1", "s2", "s5", "s4"]
    assert (verdict.wished.k, verdict.wished.delta, verdict.unfilled) == (
        3,
        configuration.delta,
        (),
    )
    assert verdict.describe() == "s3 by s5"
    assert judge([verdict.wished.at("default", 1)], watch, ROSTER) == NoAction(), "once is enough"


def test_the_spare_with_the_fewest_domains_is_taken():
    watch = watched(identities(0, 1, 5, 6, 7))
    roster = Roster(BOOK, {"s5": 2, "s6": 1, "s7": 1}, frozenset())
    assert ids(judge([abd(0, 1, 2)], watch, roster).wished) == ["s0", "s1", "s6"]
    assert loads_of([[abd(0, 1, 2)], [abd(0, 1, 2), abd(1, 2, 3)]]) == {
        "s0": 1,
        "s1": 2,
        "s2": 2,
        "s3": 1,
    }


def test_a_server_that_lost_its_memory_replaces_itself():
    watch = watched(identities(0, 1, 5) | {ServerId("s2"): NEW})
    verdict = judge([abd(0, 1, 2)], watch, ROSTER)
    check([abd(0, 1, 2)], watch, verdict)
    assert ids(verdict.wished) == ["s0", "s1", "s2"]
    assert verdict.wished.servers[2] == replace(BOOK["s2"], identity=NEW)
    assert "itself" in verdict.describe()


def test_one_that_has_just_come_back_without_its_memory_is_waited_for():
    watch = Watch(AFTER_S, gap_s=2 * EVERY_S)
    for second in range(0, 120, 5):
        watch.look(second, identities(0, 1, 2, 5), ALL)
    for second in range(120, 150, 5):
        watch.look(second, identities(0, 1, 5), ALL)
    for second in range(150, 180, 5):
        watch.look(second, identities(0, 1, 5) | {ServerId("s2"): NEW}, ALL)
    assert watch.is_gone(BOOK["s2"])
    assert judge([abd(0, 1, 2)], watch, ROSTER) == NoAction()
    for second in range(180, 240, 5):
        watch.look(second, identities(0, 1, 5) | {ServerId("s2"): NEW}, ALL)
    assert ids(judge([abd(0, 1, 2)], watch, ROSTER).wished) == ["s0", "s1", "s2"]


@pytest.mark.parametrize("there", [(0, 1), (0, 1, 3)])
def test_without_a_spare_nothing_is_done_and_that_is_said(there):
    """The server s3 answers, but not for long."""
    watch = watched(identities(0, 1))
    watch.look(10_000, identities(*there), ALL)
    verdict = judge([abd(0, 1, 2)], watch, ROSTER)
    assert isinstance(verdict, Stuck)
    assert verdict.why.startswith("no spare for s2")


def test_with_too_few_spares_the_rest_stays_as_it_is():
    configuration, watch = abd(0, 1, 2, 3, 4), watched(identities(0, 1, 2, 7))
    verdict = judge([configuration], watch, ROSTER)
    check([configuration], watch, verdict)
    assert ids(verdict.wished) == ["s0", "s1", "s2", "s7", "s4"]
    assert verdict.unfilled == ("s4",)


def test_without_a_quorum_nothing_is_done_and_that_is_said():
    verdict = judge([ec(0, 1, 2, 3, 4, k=3)], watched(identities(0, 1, 2, 5, 6, 7)), ROSTER)
    assert verdict == Stuck(
        "only 3 of 5 servers answer, and 4 make a quorum: one of s3, s4 must come back"
    )
    both = [abd(0, 1, 2), abd(3, 4, 5, index=1)]
    assert isinstance(
        judge(both, watched(identities(0, 3, 4, 7)), Roster(BOOK, {}, {both[1].id})), Stuck
    ), "data is moved from the earlier one"


def test_what_was_left_pending_is_completed():
    active = [abd(0, 1, 2), abd(1, 2, 3, index=1)]
    left = Roster(BOOK, {}, frozenset([active[1].id]))
    assert judge(active, watched(), ROSTER) == NoAction(), "somebody may be at it"
    assert judge(active, watched(), left) == Finish(active[1])
    gone = watched(identities(0, 1, 2, 5))
    assert judge(active, gone, ROSTER) == NoAction(), "somebody may be at it"
    verdict = judge(active, gone, left)
    check(active, gone, verdict)
    assert ids(verdict.wished) == ["s1", "s2", "s0"]


def test_a_server_that_the_cluster_file_does_not_name_is_replaced_and_never_taken():
    stranger = replace(BOOK["s2"], id=ServerId("x9"))
    configuration = Configuration.abd([BOOK["s0"], BOOK["s1"], stranger]).at("default", 0)
    watch = watched(identities(0, 1, 3) | {ServerId("y9"): NEW}, asked=[*ALL, stranger])
    verdict = judge([configuration], watch, ROSTER)
    assert ids(verdict.wished) == ["s0", "s1", "s3"]


@pytest.mark.parametrize(
    "learnt", [replace(BOOK["s2"], identity=NEW), replace(BOOK["s2"], id=ServerId("x9"))]
)
def test_a_member_that_was_just_learnt_of_is_not_replaced(learnt):
    """The member was added by hand between two looks, under a new or unknown identity.

    After a question to it, the member is seen to be present.
    """
    configuration = Configuration.abd([BOOK["s0"], BOOK["s1"], learnt]).at("default", 1)
    assert judge([configuration], watched(), ROSTER) == NoAction()
    watch = watched(asked=[*ALL, learnt])
    assert isinstance(judge([configuration], watch, ROSTER), Replace), (
        "it was asked for all the time"
    )
    watch.look(10_000, identities(0, 1, 3) | {learnt.id: learnt.identity}, configuration.servers)
    assert judge([configuration], watch, ROSTER) == NoAction()


def test_the_most_endangered_domain_comes_first():
    watch = watched(identities(0, 1, 3, 4, 5, 6))
    domains = [
        abd(0, 1, 2).at("b", 0),
        abd(0, 1, 2, 3, 4).at("a", 0),
        abd(0, 1, 2),
        abd(0, 1, 2).at("a", 0),
        abd(0, 2, 7).at("z", 0),
    ]
    ordered = sorted(domains, key=lambda configuration: urgency([configuration], watch))
    assert [(configuration.domain, configuration.n) for configuration in ordered] == [
        ("z", 3),
        ("default", 3),
        ("a", 3),
        ("b", 3),
        ("a", 5),
    ]


answers = st.dictionaries(
    st.sampled_from(sorted(BOOK)), st.sampled_from(["same", "other", "third"])
)
numbers = st.lists(st.integers(0, 7), min_size=1, max_size=7, unique=True)


@st.composite
def situations(draw):
    """Draw any active configurations, after any looks."""
    active = []
    for index in range(draw(st.integers(1, 3))):
        members = draw(numbers)
        k = draw(st.integers(0, len(members) - 1))
        active.append(ec(*members, k=k, index=index) if k else abd(*members, index=index))
    watch = Watch(AFTER_S, gap_s=2 * EVERY_S)
    now = 0.0
    for look in draw(st.lists(answers, min_size=1, max_size=4)):
        said = {
            id: {"same": BOOK[id].identity, "other": NEW, "third": "d" * 32}[what]
            for id, what in look.items()
        }
        for _ in range(draw(st.integers(1, 14))):
            watch.look(now, said, ALL)
            now += EVERY_S
    lingering = frozenset([active[-1].id]) if draw(st.booleans()) else frozenset()
    return (
        active,
        watch,
        Roster(
            BOOK, draw(st.dictionaries(st.sampled_from(sorted(BOOK)), st.integers(0, 3))), lingering
        ),
    )


@given(situations())
def test_no_verdict_loses_a_server_or_begins_what_could_get_stuck(situation):
    active, watch, roster = situation
    verdict = judge(active, watch, roster)
    check(active, watch, verdict)
    if isinstance(verdict, Replace):
        after = [verdict.wished.at("default", active[-1].index + 1)]
        again = judge(after, watch, roster)
        assert isinstance(
            again, Stuck if verdict.unfilled and not isinstance(again, NoAction) else NoAction
        ), "it would go on and on"


WRONG = {
    "is not gone": lambda: Replace(abd(0, 1, 5), ((BOOK["s2"], BOOK["s5"]),), ()),
    "does not answer": lambda: Replace(abd(0, 1, 4), ((BOOK["s3"], BOOK["s4"]),), ()),
    "was not to change": lambda: Replace(abd(1, 0, 2), ((BOOK["s3"], BOOK["s5"]),), ()),
    "nothing is pending": lambda: Finish(abd(0, 1, 2)),
}


@pytest.mark.parametrize("why", WRONG)
def test_the_check_rejects_wrong_verdicts(why):
    active = [abd(0, 1, 3)] if why == "does not answer" else [abd(0, 1, 2)]
    with pytest.raises(AssertionError, match=why):
        check(active, watched(identities(0, 1, 2, 5)), WRONG[why]())


def test_the_check_rejects_what_moves_data_without_a_quorum():
    with pytest.raises(AssertionError, match="no quorum answers"):
        check(
            [abd(0, 1, 2)],
            watched(identities(0, 5)),
            Replace(abd(0, 1, 5), ((BOOK["s2"], BOOK["s5"]),), ("s1",)),
        )
