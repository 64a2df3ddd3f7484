"""The number of blocks under way: bounded in bytes, growing while answers are quick."""

from ares.fragment.shared_memory import (
    SLOW_BLOCK_S,
    SURGE_BYTES_MAX,
    WINDOW_BYTES_MAX,
    WINDOW_FIRST,
    WINDOW_MAX,
    WINDOW_MIN,
    Pace,
)
from ares.model.units import MIB


def window_after(pace, times, seconds, moved_bytes):
    for _ in range(times):
        pace.done(seconds, moved_bytes)
    return pace.window()


def test_it_begins_small_and_grows_while_blocks_are_quick():
    pace = Pace(1000)
    assert pace.window() == WINDOW_FIRST
    windows = [window_after(pace, 50, 0.01, 1000) for _ in range(200)]
    assert windows == sorted(windows)
    assert windows[-1] == WINDOW_MAX


def test_it_shrinks_once_for_each_window_of_late_blocks():
    pace = Pace(1000)
    window_after(pace, 5000, 0.01, 1000)
    assert pace.window() == WINDOW_MAX
    assert window_after(pace, 10, 2 * SLOW_BLOCK_S, 1000) >= WINDOW_MAX * 3 // 4
    assert window_after(pace, 3000, 2 * SLOW_BLOCK_S, 1000) == WINDOW_MIN


def test_what_is_always_slow_is_not_late():
    """A far network is not an overloaded network."""
    pace = Pace(1000)
    assert window_after(pace, 5000, 2.0, 1000) == WINDOW_MAX


def test_so_many_bytes_and_no_more():
    assert Pace(MIB).window() == WINDOW_FIRST
    assert Pace(4 * MIB).window() == WINDOW_BYTES_MAX // (4 * MIB)
    assert Pace(128 * MIB).window() == WINDOW_MIN
    pace = Pace()
    assert pace.window() == WINDOW_MAX
    assert window_after(pace, 1, 0.01, 2 * MIB) == WINDOW_BYTES_MAX // (2 * MIB), (
        "the first large block counts at once"
    )
    assert window_after(pace, 100, 0.01, 0) == WINDOW_MAX, "what was known already moves nothing"


def test_what_may_turn_out_to_move_is_bounded_too():
    for largest in (MIB, 8 * MIB, 128 * MIB):
        pace = Pace(0, largest)
        assert pace.window() * largest <= max(SURGE_BYTES_MAX, WINDOW_MIN * largest)
        assert window_after(pace, 1000, 0.01, 0) * largest <= max(
            SURGE_BYTES_MAX, WINDOW_MIN * largest
        )
    assert Pace(0, MIB).window() == WINDOW_MAX
