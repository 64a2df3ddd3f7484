"""Now, and Together in order, with a changing window, and with a failing iterator.

See ares/engine/effects.py, ares/client/{jobs,rounds}.py.
"""

import pytest

from ares.engine.effects import Now, Pause, Together
from ares.model.messages import Ack

from .session_rig import Rig, once, sleeper


@pytest.fixture
def rig():
    return Rig()


def test_now_is_the_time_of_the_event_that_is_being_handled(rig):
    def operation():
        times = [(yield Now())]
        yield Pause(1.0)
        times.append((yield Now()))
        yield from once()
        times += [(yield Now()), (yield Now())]
        return times

    rig.now = 5.0
    rig.start(operation())
    rig.tick(1.5)
    rig.now = 7.0
    for server in ("s0", "s1"):
        rig.reply(server, Ack(1, None))
    assert rig.value == [5.0, 6.5, 7.0, 7.0]


def test_now_in_what_starts_when_something_else_ends(rig):
    def clock(times):
        times.append((yield Now()))

    def operation(times):
        yield Together(iter([sleeper(1, [], "first"), clock(times)]), 1)

    times = []
    rig.start(operation(times))
    rig.tick(1.25)
    assert times == [1.25]


def running(log):
    """Return the names of begun and of ended operations."""
    return [name for name, what in log if what == "began"], [
        name for name, what in log if what == "ended"
    ]


def task(log, name, seconds):
    log.append((name, "began"))
    if seconds:
        yield Pause(seconds)
    log.append((name, "ended"))


@pytest.mark.parametrize(("ordered", "begun"), [(False, [0, 1, 2, 3, 4, 5]), (True, [0, 1, 2])])
def test_in_order_nothing_begins_far_ahead_of_the_oldest(rig, ordered, begun):
    """Operation 0 is slow. In order, the window waits for it; otherwise the rest goes on."""
    log = []

    def operation():
        yield Together(
            (task(log, number, 10 if number == 0 else 1) for number in range(6)), 3, ordered
        )

    rig.start(operation())
    for _ in range(3):
        rig.tick(1.01)
    assert running(log)[0] == begun
    rig.tick(7)
    rig.tick(1.01)
    rig.tick(1.01)
    assert rig.value is None
    assert running(log)[0] == list(range(6))


def test_in_order_a_consumer_never_keeps_more_than_the_window(rig):
    log, kept, taken = [], {}, []

    def one(number):
        yield from task(log, number, [3, 0, 1, 2, 0, 0, 5, 1][number % 8])
        kept[number] = True
        assert len(kept) <= 4
        while kept.pop(len(taken), False):
            taken.append(len(taken))

    def operation():
        yield Together((one(number) for number in range(40)), 4, True)

    rig.start(operation(), timeout_s=100)
    for _ in range(60):
        rig.tick(1.01)
    assert rig.value is None
    assert taken == list(range(40))


def test_in_order_when_everything_ends_at_once(rig):
    log = []

    def operation():
        yield Together((task(log, number, 0) for number in range(1000)), 2, True)
        return "through"

    rig.start(operation())
    assert rig.value == "through"
    assert running(log)[1] == list(range(1000))


def test_a_window_that_is_asked_for_each_time(rig):
    log, size = [], 1

    def operation():
        yield Together((task(log, number, 1) for number in range(10)), lambda: size)

    rig.start(operation())
    assert len(running(log)[0]) == 1
    size = 4
    rig.tick(1.01)
    assert len(running(log)[0]) == 5, "one ended, four run"
    size = 2
    rig.tick(1.01)
    assert (len(running(log)[0]), len(running(log)[1])) == (7, 5), "four ended, two run"
    size = 10
    rig.tick(1.01)
    rig.tick(1.01)
    assert rig.value is None


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("window", [0, lambda: 0], ids=["number", "function"])
def test_with_no_window_at_all_they_run_one_by_one_and_none_is_left_out(rig, window, ordered):
    log = []

    def operation():
        yield Together((task(log, number, 1) for number in range(3)), window, ordered)

    rig.start(operation())
    for done in range(3):
        assert running(log) == (list(range(done + 1)), list(range(done)))
        rig.tick(1.01)
    assert rig.value is None


@pytest.mark.parametrize("after", [0, 2], ids=["the first", "a later one"])
@pytest.mark.parametrize("caught", [True, False])
def test_an_iterator_that_fails_fails_the_job_and_no_other_job(rig, after, caught):
    log = []

    def loaded():
        for number in range(after):
            yield task(log, number, 1 + number)
        raise OSError("the file is gone")

    def operation():
        try:
            yield Together(loaded(), 2)
        except OSError:
            if not caught:
                raise
        return "went on"

    rig.start(once(), label="beside")
    rig.start(operation())
    rig.tick(1.01)
    for server in ("s0", "s1"):
        rig.reply(server, Ack(1, None))
    ends = {label: (value, error) for label, value, error in rig.ends}
    assert ends["beside"][0] == ["s0", "s1"]
    assert (ends["a job"][0] == "went on") is caught
    assert isinstance(ends["a job"][1], OSError) is not caught
    assert not rig.session.busy
    assert running(log)[1] == ([] if after == 0 else [0])
