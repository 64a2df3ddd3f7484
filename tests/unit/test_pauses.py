"""Pauses between two ticks: the next end is known, and a paused job continues alone."""

from ares.engine.effects import Pause
from tests.unit.session_rig import Rig, once, sleeper


def test_nothing_pauses_at_first():
    assert Rig().session.wakes_at is None


def test_the_next_one_wakes_first_and_the_others_pause_on():
    rig, log = Rig(), []
    for seconds in (0.004, 0.001, 0.003):
        rig.start(sleeper(seconds, log, seconds))
    assert rig.session.wakes_at == 0.001
    rig.session.wake(0.0015)
    assert log == [0.001]
    assert rig.session.wakes_at == 0.003
    rig.session.wake(0.004)
    assert log == [0.001, 0.003, 0.004]
    assert rig.session.wakes_at is None


def test_an_operation_with_short_pauses_need_not_wait_for_a_tick():
    rig = Rig()

    def slowly():
        for _ in range(3):
            yield Pause(0.001, retry=False)
        return "done"

    rig.start(slowly())
    for _ in range(3):
        assert not rig.ends
        rig.session.wake(rig.session.wakes_at)
    assert rig.value == "done"


def test_a_round_does_not_age_when_a_pause_is_over():
    rig, log = Rig(), []
    rig.start(once())
    rig.start(sleeper(10.0, log, "slept"))
    rig.sent()
    rig.session.wake(10.0)
    assert log == ["slept"]
    assert rig.sent() == {}, "nothing is sent again before the tick"
