"""Room for the bytes that a client has under way: bounded, in order, and always given back.

See ares/engine/room.py.
"""

import random

import pytest

from ares.engine.room import EXPIRY_LOOK_S, Room
from ares.model.errors import ConnectionClosed, Unavailable


class Rig:
    """A room, and operations that say what became of them."""

    def __init__(self, limit: int) -> None:
        self.room = Room(limit=limit)
        self.ended: list[tuple[int, BaseException | None]] = []

    def wait(self, name: int, size: int, deadline: float = 100.0):
        return self.room.wait(
            size,
            deadline,
            f"write {name}",
            lambda _, error: self.ended.append((name, error)),
            None,
        )


def test_it_is_bounded_and_those_that_wait_enter_in_order():
    rig = Rig(10)
    assert rig.room.enter(6)
    assert not rig.room.enter(5)
    rig.wait(1, 5)
    rig.wait(2, 1)
    assert not rig.room.enter(1), "it would pass those that wait"
    assert (rig.room.taken, rig.ended) == (6, [])
    rig.room.leave(6)
    assert (rig.room.taken, rig.ended) == (6, [(1, None), (2, None)])
    assert rig.room.enter(4)


def test_an_operation_larger_than_the_room_enters_alone():
    rig = Rig(10)
    assert rig.room.enter(1)
    rig.wait(1, 1000)
    rig.wait(2, 1)
    rig.room.leave(1)
    assert (rig.ended, rig.room.taken) == ([(1, None)], 1000)
    rig.room.leave(1000)
    assert (rig.ended[1:], rig.room.taken) == ([(2, None)], 1)


@pytest.mark.parametrize("entered", [False, True])
def test_one_that_is_given_up_has_no_room(entered):
    rig = Rig(10)
    assert rig.room.enter(10)
    first, _ = rig.wait(1, 6), rig.wait(2, 6)
    if entered:
        rig.room.leave(10)
        assert rig.ended == [(1, None)]
    rig.room.give_up(first)
    rig.room.give_up(first)
    if not entered:
        rig.room.leave(10)
    assert (rig.ended[-1], rig.room.taken) == ((2, None), 6)
    rig.room.leave(6)
    assert (rig.room.taken, len(rig.room.waiting)) == (0, 0)


def test_what_waits_too_long_fails_and_says_that_it_was_not_sent():
    rig = Rig(10)
    assert rig.room.enter(10)
    rig.wait(1, 1, deadline=5.0)
    rig.wait(2, 1, deadline=3.0)
    rig.room.tick(2.9)
    assert rig.ended == []
    rig.room.tick(3.0)
    ((name, error),) = rig.ended
    assert (name, type(error)) == (2, Unavailable)
    assert "write 2: it was not sent, for it waited for room behind 10 bytes" in str(error)
    assert "nothing was changed" in str(error)
    rig.room.tick(5.0 + EXPIRY_LOOK_S)
    assert [name for name, _ in rig.ended] == [2, 1]
    rig.room.leave(10)
    assert (rig.room.taken, rig.ended[2:]) == (0, [])


def test_when_it_closes_all_that_wait_are_told():
    rig = Rig(10)
    assert rig.room.enter(10)
    for name in range(3):
        rig.wait(name, 1)
    rig.room.close(ConnectionClosed)
    assert [(name, type(error)) for name, error in rig.ended] == [
        (name, ConnectionClosed) for name in range(3)
    ]
    rig.room.leave(10)
    assert (rig.room.taken, len(rig.room.waiting)) == (0, 0)


def test_twenty_thousand_given_up_leave_nothing():
    rig = Rig(10)
    assert rig.room.enter(10)
    for waiter in [rig.wait(name, 1) for name in range(20_000)]:
        rig.room.give_up(waiter)
    assert len(rig.room.waiting) == 0


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_the_room_is_what_those_have_that_entered(seed):
    """Ended operations begin others, as their callers do."""
    chance, rig, inside, waiters = random.Random(seed), Rig(20), {}, {}
    now = 0.0

    def on_entry(name, size):
        def note_entry(_, error):
            waiters.pop(name)
            if error is None:
                inside[name] = size
                order.append(name)

        return note_entry

    order, begun = [], 0
    for _ in range(2000):
        now += chance.random()
        match chance.randrange(5):
            case 0 | 1:
                size, begun = chance.choice([1, 1, 3, 7, 50]), begun + 1
                if rig.room.enter(size):
                    inside[begun] = size
                    order.append(begun)
                else:
                    waiters[begun] = None
                    deadline = now + chance.choice([5.0, 500.0])
                    waiters[begun] = rig.room.wait(
                        size, deadline, begun, on_entry(begun, size), None
                    )
            case 2 if inside:
                name = chance.choice(sorted(inside))
                rig.room.leave(inside.pop(name))
            case 3 if waiters:
                name = chance.choice(sorted(waiters))
                rig.room.give_up(waiters.pop(name))
            case 4:
                rig.room.tick(now)
        assert rig.room.taken == sum(inside.values())
        assert rig.room.taken <= 20 or len(inside) == 1
        assert order == sorted(order)
        assert bool(inside) or not waiters, "nothing is under way, and one waits"
    while inside:
        rig.room.leave(inside.pop(min(inside)))
    assert (rig.room.taken, len(waiters)) == (0, 0)
