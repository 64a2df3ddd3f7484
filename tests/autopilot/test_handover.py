"""Changes of the leader: the new leader continues the counts of the last leader.

See ares/autopilot/handover.py.
"""

import asyncio
import math
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ares.autopilot import pilot
from ares.autopilot.handover import HANDOVER_ROWS_MAX, WatchCounts, encode, merge
from ares.autopilot.judge import Watch
from ares.autopilot.lookout import Lookout
from ares.autopilot.pilot import Autopilot
from ares.cluster.tables import AutopilotSettings
from ares.model.identity import ServerId
from tests.inproc.inproc_cluster import InprocCluster

from .looks import AFTER_S, ALL, BOOK, EVERY_S, identities

GAP_S, CONFIRM_S = 2 * EVERY_S, 2 * EVERY_S
S0, S1 = BOOK[ServerId("s0")], BOOK[ServerId("s1")]
MEMBER = S1.id, S1.identity


def watch() -> Watch:
    return Watch(AFTER_S, GAP_S, CONFIRM_S)


def gone_after_s(told_s: float, after_s: float = AFTER_S) -> float:
    """Return how long a new leader looks at an absent member before the member is gone.

    The last leader reported the member absent for `told_s`.
    """
    looking = watch()
    for seconds in range(0, int(10 * after_s), int(EVERY_S)):
        looking.look(seconds, identities(0), ALL, WatchCounts(absent={MEMBER: told_s}))
        if looking.is_gone(S1):
            return seconds
    raise AssertionError("it is never gone")


def test_a_new_leader_continues_the_count() -> None:
    assert gone_after_s(0.0) == AFTER_S
    assert gone_after_s(35.0) == AFTER_S - 35.0


@pytest.mark.parametrize("told_s", [59.0, 60.0, 1e9, math.inf])
def test_it_looks_itself_whatever_is_told(told_s: float) -> None:
    assert gone_after_s(told_s) == CONFIRM_S


@pytest.mark.parametrize("told_s", [-1.0, -1e9, -math.inf, math.nan])
def test_what_cannot_be_counts_nothing(told_s: float) -> None:
    assert gone_after_s(told_s) == AFTER_S


def test_one_that_answers_is_not_gone_whatever_is_told() -> None:
    looking = watch()
    for seconds in range(0, 200, int(EVERY_S)):
        looking.look(seconds, identities(0, 1), ALL, WatchCounts(absent={MEMBER: 1e9}))
        assert not looking.is_gone(S1)
    looking.look(200, identities(0), ALL, WatchCounts(absent={MEMBER: 1e9}))
    assert looking.absent_s(S1) == EVERY_S, "what was told is older than its answer"


def test_a_spare_that_answered_the_last_leader_is_relied_on_after_two_looks() -> None:
    looking = watch()
    told = WatchCounts(present={MEMBER: 1e6, (S0.id, "e" * 32): 1e6})
    looking.look(0, identities(0, 1), ALL, told)
    assert looking.steady() == {}
    for seconds in (5, 10):
        looking.look(seconds, identities(0, 1), ALL, told)
    assert looking.steady() == {S1.id: S1.identity}
    looking.look(15, identities(0), ALL, told)
    looking.look(20, identities(0, 1), ALL, told)
    assert looking.steady() == {}, "it broke off here, which is known better than what was told"


def test_the_newest_note_names_absent_servers_and_any_note_the_duration() -> None:
    old = encode(WatchCounts({MEMBER: 30.0, ("s7", "x"): 40.0}, {}, {b"id": 5.0}))
    new = encode(WatchCounts({MEMBER: 2.0}, {("s5", "y"): 9.0}, {b"id": 1.0}))
    counts = merge([(old, 20.0), (new, 1.0)], gap_s=8.0, old_s=60.0)
    assert counts.absent == {MEMBER: 38.0}
    assert counts.present == {("s5", "y"): 10.0}
    assert counts.pending == {b"id": 13.0}
    assert merge([(old, 61.0)], 8.0, 60.0) == WatchCounts()
    assert merge([], 8.0, 60.0) == WatchCounts()


def test_a_handover_is_bounded_and_tells_the_longest() -> None:
    many = {(ServerId(f"{number:064}"), "f" * 32): float(number) for number in range(100)}
    note = encode(WatchCounts(many, many, {b"%032d" % number: 1.0 for number in range(100)}))
    assert len(note) <= 8192
    assert len(merge([(note, 0.0)], 1.0, 1.0).absent) == HANDOVER_ROWS_MAX
    assert min(merge([(note, 0.0)], 1.0, 1.0).absent.values()) == 100 - HANDOVER_ROWS_MAX


@pytest.mark.slow
@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(msgspec.msgpack.encode)
)
def test_any_bytes_are_a_note_that_may_be_passed_over(note: bytes) -> None:
    merge([(note, 0.5)], 1.0, 1.0)


class KeptNotes:
    """The notes between two members."""

    def __init__(self) -> None:
        self.ears: list[KeptNotes] = []
        self.heard: dict[int, tuple[bytes, float]] = {}

    def send_note(self, note: bytes) -> None:
        for ear in self.ears:
            ear.heard[id(self)] = note, asyncio.get_running_loop().time()

    def received_notes(self) -> Sequence[tuple[bytes, float]]:
        now = asyncio.get_running_loop().time()
        return [(note, now - at) for note, at in self.heard.values()]


SETTINGS = AutopilotSettings(after_s=3.0, every_s=0.1, bytes_per_s=10**9)
LEADS_FOR_S = 2.0
"""Seconds of leadership, less than a server must be absent."""


@pytest.mark.virtual_time
async def test_a_spare_takes_over_while_the_leader_changes_all_the_time(
    cluster: InprocCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pilot, "LEADS_S", 0.05)
    user, leader, notes = cluster.manager(), 0, [KeptNotes(), KeptNotes()]
    notes[0].ears, notes[1].ears = [notes[1]], [notes[0]]
    await user.write("key", b"v")
    pilots = [
        Autopilot(
            Lookout(cluster.manager(), cluster.book),
            lambda own=own: own == leader,
            SETTINGS,
            notes=note,
        )
        for own, note in enumerate(notes)
    ]
    flights = [asyncio.create_task(each.run()) for each in pilots]
    try:
        cluster.stop("s2")
        async with asyncio.timeout(60):
            while (await user.current()).index == 0:
                await asyncio.sleep(LEADS_FOR_S)
                leader = 1 - leader
    finally:
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)
    assert "s2" not in (await user.current()).server_ids


@pytest.mark.virtual_time
async def test_a_domain_that_stands_still_does_not_hold_up_the_repair_of_others(
    cluster: InprocCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pilot, "LEADS_S", 0.05)
    repaired: list[str] = []
    see_to = pilot._Patrol._see_to

    async def standing(self: pilot._Patrol, domain: str, decided: asyncio.Event) -> None:
        if domain == "default":
            decided.set()
            await asyncio.Event().wait()
        await see_to(self, domain, decided)
        repaired.append(domain)

    monkeypatch.setattr(pilot._Patrol, "_see_to", standing)
    user = cluster.manager()
    for name in ("photos", "films"):
        await user.create_domain(name)
    flying = Autopilot(Lookout(cluster.manager(), cluster.book), lambda: True, SETTINGS)
    flight = asyncio.create_task(flying.run())
    try:
        cluster.stop("s2")
        async with asyncio.timeout(60):
            while set(repaired) != {"photos", "films"}:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    finally:
        flight.cancel()
        await asyncio.gather(flight, return_exceptions=True)
