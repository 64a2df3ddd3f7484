"""The rate of moving data: the arithmetic, deadlines under pauses, and a move at the limit."""

import pytest

from ares.engine.effects import Pause, Together
from ares.engine.readiness import Readiness
from ares.engine.session import SESSION_TICK_S
from ares.model.configuration import Configuration
from ares.model.errors import BadInput, Unavailable
from ares.model.identity import ClientId
from ares.model.units import MIB
from ares.reconfig.mover import MoveOptions, Mover
from ares.reconfig.throttle import OBJECT_BYTES_MIN, SAVED_S, Throttle
from ares.reconfig.view import Switches, View
from tests.inproc.inproc_cluster import InprocCluster
from tests.unit.session_rig import C, Rig


def test_each_waits_for_what_moved_before():
    throttle = Throttle(100_000)
    assert throttle.wait_s(10.0, 50_000) == 0.0
    assert throttle.wait_s(10.0, 100_000) == pytest.approx(0.5 - SAVED_S)
    assert throttle.wait_s(10.5, 100_000) == 0.0
    assert throttle.wait_s(10.5, 1) == pytest.approx(1.0 - SAVED_S)
    assert throttle.wait_s(20.0, 100_000) == 0.0, "time in which nothing moved is not saved up"
    assert throttle.wait_s(20.0, 0) == pytest.approx(1.0 - SAVED_S)


def test_small_objects_count_too():
    throttle = Throttle(OBJECT_BYTES_MIN)
    for now, length in enumerate((-1, 0, 10), start=10):
        assert throttle.wait_s(now, length) == 0.0
        assert throttle.wait_s(now, length) == pytest.approx(1.0 - SAVED_S)


def test_a_waiting_move_makes_no_other_move_wait_longer():
    throttle = Throttle(100_000)
    throttle.wait_s(10.0, 100_000)
    assert [throttle.wait_s(10.0, 100_000) for _ in range(20)] == [
        pytest.approx(1.0 - SAVED_S)
    ] * 20


def moving(throttle, lengths, *more, moved=None):
    """Start parallel moves that only wait for their turns, as a reconfiguration does."""
    mover = Mover(View(ClientId(1), C, Switches(), Readiness()), C, MoveOptions(throttle))

    def move(length):
        yield from mover._wait_for_turn(length)
        if moved is not None:
            moved.append(length)

    yield Together(iter([*more, *map(move, lengths)]), 16)


def failing():
    yield Pause(5.0)
    raise Unavailable(2, 1, {}, "the round of another object")


def test_moves_that_were_given_up_leave_no_wait_behind():
    """After failed attempts, data that never moved does not delay the next attempt."""
    throttle, rig = Throttle(32 * MIB), Rig()
    for attempt in range(1, 5):
        rig.start(moving(throttle, [64 * MIB] * 1000, failing()), idle=True)
        while len(rig.ends) < attempt:
            rig.tick(1)
        assert isinstance(rig.ends[-1][2], Unavailable)
        assert throttle.wait_s(rig.now, 0) <= 2.0, "no longer than one object takes"


@pytest.mark.parametrize(("length", "count"), [(OBJECT_BYTES_MIN, 20_000), (MIB, 100)])
def test_the_rate_is_kept_although_waiting_moves_are_woken_late(length, count):
    """Objects take less than a tick each, or more."""
    rig, moved, rate = Rig(), [], 16 * MIB
    rig.start(moving(Throttle(rate), [length] * count, moved=moved), idle=True)
    while not rig.ends:
        rig.tick(SESSION_TICK_S)
        assert sum(moved) <= rate * (rig.now + SAVED_S) + length
    assert rig.ends[0][2] is None
    assert rig.now <= length * count / rate + SESSION_TICK_S


@pytest.mark.parametrize("rate", [0, -1, float("nan"), "fast", None])
def test_a_rate_is_a_number_above_0(rate):
    with pytest.raises(BadInput, match="more than 0"):
        Throttle(rate)


def slow(*pauses, retry):
    for seconds in pauses:
        yield Pause(seconds, retry=retry)
    return "done"


def test_going_slowly_is_no_standstill():
    rig = Rig()
    rig.start(slow(100, 20, retry=False), timeout_s=5, idle=True)
    for _ in range(121):
        rig.tick(1)
    assert rig.value == "done"


def test_going_slowly_for_one_leaves_time_to_all():
    """The longest pause bounds the standstill, whichever move wakes first."""
    rig = Rig()

    def both():
        yield Together(iter([slow(100, retry=False), slow(2, retry=False)]), 2)
        return "done"

    rig.start(both(), timeout_s=5, idle=True)
    for _ in range(101):
        rig.tick(1)
    assert rig.value == "done"


@pytest.mark.parametrize(("retry", "idle"), [(True, True), (False, False)])
def test_trying_again_is_a_standstill_and_a_fixed_deadline_stands(retry, idle):
    rig = Rig()
    rig.start(slow(100, retry=retry), timeout_s=5, idle=idle)
    for _ in range(6):
        rig.tick(1)
    assert isinstance(rig.error, Unavailable)


class Counted(Throttle):
    def __init__(self):
        super().__init__(1e9)
        self.asked = []

    def count(self, now, length):
        self.asked.append(length)
        super().count(now, length)


async def test_every_object_that_moves_is_counted(cluster: InprocCluster, monkeypatch):
    throttle = Counted()
    monkeypatch.setattr("ares.client.domain.Throttle", lambda rate: throttle)
    store = cluster.manager()
    for number in range(5):
        await store.write(f"key{number}", bytes(number * 1000))
    await store.write("gone", b"x")
    await store.delete("gone")
    result = await store.reconfigure(Configuration.abd(["s3", "s4", "s5"]), bytes_per_s=1e9)
    assert result.moved == 6
    assert sorted(throttle.asked) == [-1, 0, 1000, 2000, 3000, 4000]
    await store.reconfigure(Configuration.abd(["s3", "s4", "s5"]))
    assert len(throttle.asked) == 6


async def test_a_slow_move_outlasts_the_timeout_of_a_standstill(cluster: InprocCluster):
    """The move has eleven pauses of 0.3 s, which together are longer than the timeout."""
    store = cluster.manager(timeout_s=3.0)
    for number in range(12):
        await store.write(f"key{number}", bytes(30_000))
    told = []
    result = await store.reconfigure(
        Configuration.abd(["s3", "s4", "s5"]), bytes_per_s=100_000, progress=told.append
    )
    assert (result.moved, result.bytes) == (12, 360_000)
    assert told[-1].moved == 12


async def test_a_rate_that_is_none_is_refused_before_anything_is_sent(cluster: InprocCluster):
    before = cluster.requests
    with pytest.raises(BadInput, match="more than 0"):
        await cluster.manager().reconfigure(Configuration.abd(["s3", "s4", "s5"]), bytes_per_s=0)
    assert cluster.requests == before
