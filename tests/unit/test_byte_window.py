"""Bytes of large values that a mover has under way, by the times of small rounds."""

from collections import deque

import pytest

from ares.model.units import KIB, MIB
from ares.reconfig.throttle import (
    MOVING_BYTES_FIRST,
    MOVING_BYTES_MAX,
    MOVING_BYTES_MIN,
    MOVING_BYTES_QUEUE_S,
    QUEUE_LOOK_S,
    ByteWindow,
)


def moved(window: ByteWindow, length: int, times: int = 1) -> int:
    for _ in range(times):
        assert window.enter(length)
        window.leave(length)
    return window.limit


def test_a_value_larger_than_the_window_moves_alone():
    window = ByteWindow()
    assert window.enter(100 * MIB)
    assert not window.enter(1)
    window.leave(100 * MIB)
    assert window.enter(MOVING_BYTES_FIRST)


def test_without_a_queue_it_grows_to_its_limit():
    window = ByteWindow()
    window.took(1, 0.001, 0.0)
    assert moved(window, 64 * KIB, 10_000) == MOVING_BYTES_MAX
    assert window.enter(MOVING_BYTES_MAX // 2)
    assert window.enter(MOVING_BYTES_MAX // 2)
    assert not window.enter(1)


def test_it_is_halved_once_a_round_trip_while_rounds_queue_and_not_below_its_least():
    window = ByteWindow()
    window.took(1, 0.05, 0.0)
    assert window.enter(MOVING_BYTES_FIRST)
    late_s = 0.05 + 2 * MOVING_BYTES_QUEUE_S
    window.took(1, late_s, 1.0)
    window.took(1, late_s, 1.0 + late_s / 2)
    assert window.limit == MOVING_BYTES_FIRST // 2
    for number in range(20):
        window.took(1, late_s, 2.0 + number)
    assert window.limit == MOVING_BYTES_MIN


def test_the_servers_of_one_configuration_may_be_far_and_those_of_the_other_near():
    window = ByteWindow()
    window.took(1, 0.001, 0.0)
    window.took(2, 0.3, 0.1)
    assert window.limit == MOVING_BYTES_FIRST
    window.took(1, 0.001 + 2 * MOVING_BYTES_QUEUE_S, 0.2)
    assert window.limit < MOVING_BYTES_FIRST


def test_a_look_is_due_now_and_then():
    window = ByteWindow()
    begins = (5.0, 5.0 + QUEUE_LOOK_S / 2, 5.0 + QUEUE_LOOK_S, 5.01 + QUEUE_LOOK_S)
    assert [window.wants_look(now) for now in begins] == [False, False, True, False]


@pytest.mark.parametrize("bytes_per_s", [1e6, 10e6, 100e6])
def test_on_any_link_the_queue_is_short_and_the_link_busy(bytes_per_s):
    """A link of this rate, 20 ms away: values leave in order, and looks wait behind them."""
    window, now, free_at, length = ByteWindow(), 0.0, 0.0, 64 * KIB
    ends, looks, queues = deque(), deque(), []
    window.took(1, 0.02, 0.0)
    while now < 60.0:
        now += 0.001
        while ends and ends[0] <= now:
            ends.popleft()
            window.leave(length)
        while looks and looks[0][0] <= now:
            at, began = looks.popleft()
            window.took(1, at - began, now)
        while window.enter(length):
            free_at = max(now, free_at) + length / bytes_per_s
            ends.append(free_at + 0.02)
        if window.wants_look(now):
            looks.append((max(now, free_at) + 0.02, now))
        if now > 10.0:
            queues.append(free_at - now)
    assert max(queues) <= max(4 * MOVING_BYTES_QUEUE_S, 3 * length / bytes_per_s)
    assert sum(queue > 0 for queue in queues) > 0.8 * len(queues)
