"""How many objects move at once: what the window makes of the rounds that it is told of."""

import pytest

from ares.reconfig.throttle import QUEUE_S, WINDOW_MAX, WINDOW_MIN, Window


def told(window: Window, *seconds: float, times: int = 1) -> int:
    for _ in range(times):
        for took in seconds:
            window.took(took)
    return window()


@pytest.mark.parametrize("distance_s", [0.0001, 0.2])
def test_it_grows_to_its_limit_however_far_the_servers_are(distance_s):
    assert told(Window(batch=True), distance_s, times=10_000) == WINDOW_MAX


def test_far_servers_may_answer_unevenly():
    assert told(Window(batch=True), 0.05, 0.07, times=5_000) == WINDOW_MAX


def test_it_shrinks_while_rounds_queue_and_grows_again():
    window = Window(batch=True)
    told(window, 0.001, times=10_000)
    assert told(window, 0.001 + 3 * QUEUE_S, times=10_000) == WINDOW_MIN
    assert told(window, 0.001, times=10_000) == WINDOW_MAX


def test_one_late_round_is_no_queue():
    window = Window(batch=True)
    told(window, 0.001, times=20)
    grown = window()
    assert grown > WINDOW_MIN
    assert told(window, 0.001 + 2 * QUEUE_S) >= grown


def test_it_settles_where_the_queue_is_as_long_as_it_may_be():
    """Servers that serve one after the other: a round takes as long as there are objects under way."""
    window, each_s = Window(batch=True), QUEUE_S / 60
    for _ in range(5_000):
        window.took(each_s * window())
    assert 40 <= window() <= 90


def test_without_batching_it_stays_one():
    assert told(Window(batch=False), 0.001, times=1000) == 1
