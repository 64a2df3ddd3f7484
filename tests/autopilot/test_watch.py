"""Conditions for a server to count as gone (ares/autopilot/judge.py)."""

from ares.autopilot.judge import Watch
from ares.model.configuration import Server
from ares.model.identity import ServerId

from .looks import AFTER_S, ALL, BOOK, EVERY_S, identities

S0, S1 = BOOK[ServerId("s0")], BOOK[ServerId("s1")]


def test_a_silent_server_is_gone_after_a_while():
    watch = Watch(AFTER_S, gap_s=2 * EVERY_S)
    for second in range(0, 60, 5):
        watch.look(second, identities(0), ALL)
        assert watch.is_here(S0)
        assert not watch.is_gone(S1), "it was absent for less than that"
    watch.look(60, identities(0), ALL)
    assert watch.is_gone(S1)
    assert (watch.absent_s(S0), watch.absent_s(S1)) == (0, 60)
    watch.look(65, identities(0, 1), ALL)
    assert not watch.is_gone(S1)
    assert watch.absent_s(S1) == 0


def test_absence_is_counted_from_the_last_answer():
    watch = Watch(AFTER_S, gap_s=2 * EVERY_S)
    for second in range(0, 200, 5):
        watch.look(second, identities(0, 1) if second % 50 == 0 else identities(0), ALL)
        assert not watch.is_gone(S1), "it answered less than 60 s ago"
    for second in range(200, 260, 5):
        watch.look(second, identities(0), ALL)
        assert watch.is_gone(S1) == (second - 150 >= 60)


def test_another_identity_is_absence():
    watch = Watch(AFTER_S, gap_s=2 * EVERY_S)
    again = {ServerId("s0"): "f" * 32}
    watch.look(0, identities(0), ALL)
    for second in range(5, 60, 5):
        watch.look(second, again, ALL)
        assert not watch.is_here(S0)
        assert not watch.is_gone(S0)
        assert watch.steady() == {}
    watch.look(60, again, ALL)
    assert watch.is_gone(S0)
    assert watch.is_returning(S0)
    watch.look(65, again, ALL)
    assert watch.steady() == again
    assert watch.is_here(Server(S0.id, S0.address, "f" * 32))


def test_one_that_starts_over_and_over_is_gone_and_is_not_relied_on():
    watch = Watch(AFTER_S, gap_s=2 * EVERY_S)
    for second in range(0, 300, 5):
        watch.look(second, {S0.id: f"{second // 20:032x}"}, ALL)
    assert watch.is_gone(S0)
    assert watch.steady() == {}
    assert not watch.is_returning(S0), "for ever is not soon"


def test_only_an_unbroken_row_of_answers_makes_a_server_steady():
    watch = Watch(AFTER_S, gap_s=2 * EVERY_S)
    for second in range(0, 120, 5):
        watch.look(second, identities(0, 1) if second != 80 else identities(0), ALL)
    assert watch.steady() == identities(0)


def test_a_watcher_after_a_standstill_takes_no_server_for_gone():
    watch = Watch(AFTER_S, gap_s=2 * EVERY_S)
    watch.look(0, identities(0, 1), ALL)
    watch.look(10_000, identities(0), ALL)
    assert not watch.is_gone(S1)
    assert watch.steady() == {}
    watch.look(20_000, identities(0, 1), ALL)
    assert watch.absent_s(S1) == 0


def test_absence_is_counted_only_while_the_member_is_asked_for():
    """A member learnt of late was not absent before; a member no longer asked for is not absent."""
    watch = Watch(AFTER_S, gap_s=2 * EVERY_S)
    for second in range(0, 600, 5):
        watch.look(second, identities(0), [S0])
    assert (watch.absent_s(S1), watch.is_here(S1), watch.is_gone(S1)) == (0, False, False)
    for second in range(600, 665, 5):
        watch.look(second, identities(0), [S0, S1])
        assert watch.absent_s(S1) == second - 600
        assert watch.is_gone(S1) == (second >= 660)
    watch.look(665, identities(0), [S0])
    assert not watch.is_gone(S1)
    watch.look(670, identities(0), [S0, S1])
    assert watch.absent_s(S1) == 0


def test_a_new_identity_that_was_not_asked_for_yet_is_not_gone():
    """The look was before the change of identity: the server answered with the old identity."""
    watch = Watch(AFTER_S, gap_s=2 * EVERY_S)
    for second in range(0, 600, 5):
        watch.look(second, identities(0, 1), ALL)
    again = Server(S1.id, S1.address, "f" * 32)
    assert not watch.is_gone(again)
    watch.look(600, identities(0) | {S1.id: again.identity}, [S0, again])
    assert watch.is_here(again)


def test_every_steady_server_answered_the_last_look():
    watch = Watch(AFTER_S, gap_s=2 * EVERY_S)
    for second in range(0, 120, 5):
        watch.look(second, identities(0, 1), ALL)
    watch.look(120, identities(0) | {S1.id: "f" * 32}, ALL)
    assert watch.steady() == identities(0)


def test_what_is_remembered_does_not_grow():
    watch = Watch(AFTER_S, gap_s=2 * EVERY_S)
    for second in range(0, 5000, 5):
        answers = {ServerId(f"s{number}"): f"{second:032x}" for number in range(8)}
        watch.look(second, answers, [Server(id, "", identity) for id, identity in answers.items()])
    assert (len(watch._absent_since_s), len(watch._since_s)) == (8, 8)
