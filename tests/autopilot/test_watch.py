"""Who counts as gone (ares/reconfig/watch.py)."""

from ares.configuration import Server
from ares.identity import ServerId
from ares.reconfig.watch import REMEMBERED_MAX, Watch

from .looks import AFTER_S, BOOK, EVERY_S, identities

S0, S1 = BOOK[ServerId("s0")], BOOK[ServerId("s1")]


def test_a_silent_server_is_gone_after_a_while():
    watch = Watch(AFTER_S, gap_s=2 * EVERY_S)
    for second in range(0, 60, 5):
        watch.look(second, identities(0))
        assert watch.is_here(S0)
        assert not watch.is_gone(S1), "it was absent for less than that"
    watch.look(60, identities(0))
    assert watch.is_gone(S1)
    assert (watch.absent_s(S0), watch.absent_s(S1)) == (0, 60)
    watch.look(65, identities(0, 1))
    assert not watch.is_gone(S1)
    assert watch.absent_s(S1) == 0


def test_absence_is_counted_from_the_last_answer():
    watch = Watch(AFTER_S, gap_s=2 * EVERY_S)
    for second in range(0, 200, 5):
        watch.look(second, identities(0, 1) if second % 50 == 0 else identities(0))
        assert not watch.is_gone(S1), "it answered less than 60 s ago"
    for second in range(200, 260, 5):
        watch.look(second, identities(0))
        assert watch.is_gone(S1) == (second - 150 >= 60)


def test_another_identity_is_absence():
    watch = Watch(AFTER_S, gap_s=2 * EVERY_S)
    again = {ServerId("s0"): "f" * 32}
    watch.look(0, identities(0))
    for second in range(5, 60, 5):
        watch.look(second, again)
        assert not watch.is_here(S0)
        assert not watch.is_gone(S0)
        assert watch.steady() == {}
    watch.look(60, again)
    assert watch.is_gone(S0)
    assert watch.is_returning(S0)
    watch.look(65, again)
    assert watch.steady() == again
    assert watch.is_here(Server(S0.id, S0.address, "f" * 32))


def test_one_that_starts_over_and_over_is_gone_and_is_not_relied_on():
    watch = Watch(AFTER_S, gap_s=2 * EVERY_S)
    for second in range(0, 300, 5):
        watch.look(second, {S0.id: f"{second // 20:032x}"})
    assert watch.is_gone(S0)
    assert watch.steady() == {}
    assert not watch.is_returning(S0), "for ever is not soon"


def test_only_an_unbroken_row_of_answers_makes_a_server_steady():
    watch = Watch(AFTER_S, gap_s=2 * EVERY_S)
    for second in range(0, 120, 5):
        watch.look(second, identities(0, 1) if second != 80 else identities(0))
    assert watch.steady() == identities(0)


def test_a_watcher_that_stood_still_takes_nobody_for_gone():
    watch = Watch(AFTER_S, gap_s=2 * EVERY_S)
    watch.look(0, identities(0, 1))
    watch.look(10_000, identities(0))
    assert not watch.is_gone(S1)
    assert watch.steady() == {}
    watch.look(20_000, identities(0, 1))
    assert watch.absent_s(S1) == 0


def test_what_is_remembered_does_not_grow():
    watch = Watch(AFTER_S, gap_s=2 * EVERY_S)
    for second in range(0, 5000, 5):
        watch.look(second, {ServerId(f"s{number}"): f"{second:032x}" for number in range(8)})
    assert len(watch._last_s) <= max(REMEMBERED_MAX, 8 * (2 * AFTER_S / EVERY_S + 2))
    assert len(watch._since_s) == 8
