"""The number of simultaneous moves of objects, and their times.

The window adapts to the reported rounds.
"""

import pytest

from ares.reconfig.throttle import (
    GROUP_OBJECTS,
    GROUPS_ALONE,
    GROUPS_MAX,
    QUEUE_S,
    REST_S_MAX,
    Window,
)


def groups_after(window: Window, *seconds: float, times: int = 1) -> int:
    for _ in range(times):
        for took in seconds:
            window.took(took)
    return window.groups


def begin(window: Window, now: float = 0.0, **more: float) -> list[float]:
    """Return the wait of each object that may begin."""
    waits: list[float] = []
    under_way = window._under_way
    while window() > under_way + len(waits):
        waits.append(window.begins(now, **more))
    return waits


@pytest.mark.parametrize("distance_s", [0.0001, 0.2])
def test_it_grows_to_its_limit_however_far_the_servers_are(distance_s):
    assert groups_after(Window(batch=True), distance_s, times=50_000) == GROUPS_MAX


def test_far_servers_may_answer_unevenly():
    assert groups_after(Window(batch=True), 0.05, 0.07, times=25_000) == GROUPS_MAX


def test_it_shrinks_while_rounds_queue_and_grows_again():
    window = Window(batch=True)
    groups_after(window, 0.001, times=50_000)
    assert groups_after(window, 0.001 + 3 * QUEUE_S, times=10_000) == 1
    assert groups_after(window, 0.001, times=50_000) == GROUPS_MAX


def test_one_late_round_is_no_queue():
    window = Window(batch=True)
    groups_after(window, 0.001, times=100)
    grown = window.groups
    assert grown > 1
    assert groups_after(window, 0.001 + 2 * QUEUE_S) >= grown


def test_it_settles_where_the_queue_is_as_long_as_it_may_be():
    """Servers work sequentially: a round takes as long as the groups under way."""
    window, each_s = Window(batch=True), QUEUE_S / 6
    for _ in range(50_000):
        window.took(each_s * window.groups)
    assert 4 <= window.groups <= 9


def test_objects_begin_as_a_group_and_the_next_ones_when_half_of_it_has_ended():
    window = Window(batch=True)
    assert begin(window) == [0.0] * GROUP_OBJECTS
    for _ in range(GROUP_OBJECTS // 2 - 1):
        window.ends()
    assert begin(window) == []
    window.ends()
    assert begin(window) == [0.0] * GROUP_OBJECTS


def test_an_object_that_never_ends_holds_up_no_other():
    window = Window(batch=True)
    begin(window)
    for _ in range(100):
        for _ in range(window._under_way - 1):
            window.ends()
        assert len(begin(window)) == GROUP_OBJECTS


def test_a_group_rests_as_long_as_the_last_one_took():
    window = Window(batch=True)
    assert begin(window, 10.0) == [0.0] * GROUP_OBJECTS
    window.rests_after(0.002)
    for _ in range(GROUP_OBJECTS):
        window.ends()
    assert begin(window, 20.0) == [pytest.approx(0.002)] * GROUP_OBJECTS, (
        "all of it at the same time"
    )


def test_what_is_far_away_is_not_waited_for_twice():
    window = Window(batch=True)
    window.rests_after(1.0)
    assert window.begins(10.0) == pytest.approx(REST_S_MAX)


def test_an_object_that_joins_a_group_late_does_not_wait_again():
    window = Window(batch=True)
    window.rests_after(0.002)
    window.begins(10.0)
    assert window.begins(10.001) == pytest.approx(0.001)
    assert window.begins(11.0) == 0.0


def test_a_group_waits_for_its_turn():
    assert begin(Window(batch=True), busy_s=0.5) == [0.5] * GROUP_OBJECTS


def test_without_batching_it_stays_one_and_does_not_rest():
    window = Window(batch=False)
    assert groups_after(window, 0.001, times=1000) == 1
    window.rests_after(1.0)
    assert begin(window) == [0.0]
    window.ends()
    assert begin(window) == [0.0]


def test_the_window_does_not_rest_while_servers_are_idle():
    window = Window(batch=True)
    window.hears({"s0": 70, "s1": 50}, 1.0)
    assert not window.alone, "one count tells nothing"
    window.hears({"s0": 71, "s1": 50}, 2.0)
    assert window.alone
    window.rests_after(0.002)
    assert (window.groups, window.begins(10.0)) == (GROUPS_ALONE, 0.0)
    window.hears({"s0": 71, "s1": 150}, 3.0)
    assert not window.alone, "users of one server are users"
    window.rests_after(0.002)
    assert window.groups == 1


def test_a_server_that_was_restarted_tells_nothing_at_first():
    window = Window(batch=True)
    window.hears({"s0": 1_000_000}, 1.0)
    window.hears({"s0": 3}, 2.0)
    assert not window.alone
    window.hears({"s0": 3}, 3.0)
    assert window.alone


def test_the_window_without_batching_stays_one_on_idle_servers():
    window = Window(batch=False)
    window.hears({"s0": 1}, 1.0)
    window.hears({"s0": 1}, 2.0)
    assert window.groups == 1
