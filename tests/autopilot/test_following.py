"""Moves of a domain to its users, and their limits (ares/autopilot/following.py)."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ares.autopilot import following
from ares.autopilot.following import (
    FOLLOW_BUDGET,
    FOLLOW_CUT_OFF,
    FOLLOW_EVEN,
    FOLLOW_FAILED,
    FOLLOW_FULL,
    FOLLOW_HERE,
    FOLLOW_IDLE,
    FOLLOW_MOVES,
    FOLLOW_RESTS,
    FOLLOW_SILENT,
    FOLLOW_WAITS,
    LEAD,
    SUSTAINED_S,
    TRIED_AGAIN_S,
    FollowPolicy,
    ObservedUsage,
    usual,
)
from ares.model.units import HOUR_S

REST_S, PER_HOUR, GAP_S = 60.0, 1000, 2.0


class FollowingWorld:
    """A policy that looks at a single domain every second.

    ``site`` is the domain's site; the domain moves as the policy says.
    """

    def __init__(self, site: str = "nantes", rest_s: float = REST_S) -> None:
        self.policy, self.site, self.now, self.moves = (
            FollowPolicy(rest_s, PER_HOUR, GAP_S),
            site,
            100.0,
            0,
        )

    def look(self, bytes=10, answering=True, room="", reach="", passed_s=1.0, moves=True, **per_s):
        self.now += passed_s
        self.policy.look(self.now, ["photos"])
        decision = self.policy.judge(
            "photos",
            ObservedUsage(self.site, per_s, bytes, answering),
            lambda site: room,
            lambda site: reach,
        )
        if moves and decision.word == FOLLOW_MOVES:
            self.policy.begun(bytes)
            self.policy.moved("photos", bytes, bytes)
            self.site, self.moves = decision.to, self.moves + 1
        return decision

    def looks(self, times, **seen):
        return [self.look(**seen).word for _ in range(times)]


def test_it_goes_where_twice_as_much_is_asked_for_six_seconds():
    world = FollowingWorld()
    words = world.looks(7, nantes=5.0, rennes=10.0)
    assert words == [FOLLOW_WAITS] * 6 + [FOLLOW_MOVES]
    assert world.site == "rennes"
    assert world.look(nantes=5.0, rennes=10.0).word == FOLLOW_HERE


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        ({"nantes": 10.0, "rennes": 10.0 * LEAD - 0.1}, FOLLOW_EVEN),
        ({"rennes": 50.0, "lyon": 40.0}, FOLLOW_EVEN),
        ({"nantes": 10.0}, FOLLOW_HERE),
        ({"rennes": 0.9}, FOLLOW_IDLE),
        ({}, FOLLOW_IDLE),
        ({"rennes": 50.0, "answering": False}, FOLLOW_SILENT),
    ],
)
def test_a_domain_stays_for_the_named_reason(seen, word):
    assert FollowingWorld().looks(100, **seen) == [word] * 100


def test_it_moves_only_where_a_quorum_answered_for_six_seconds():
    world = FollowingWorld()
    assert world.looks(20, rennes=50.0, reach="1 of 3 answers") == [FOLLOW_CUT_OFF] * 20
    assert "1 of 3 answers" in world.look(rennes=50.0, reach="1 of 3 answers").why
    assert world.looks(6, rennes=50.0) == [FOLLOW_WAITS] * 5 + [FOLLOW_MOVES]


def test_it_does_not_move_where_a_quorum_comes_and_goes():
    world = FollowingWorld()
    for number in range(300):
        world.look(rennes=50.0, reach="" if number % 6 else "1 of 3 answers")
    assert world.moves == 0


def test_two_sites_that_pull_both_ways_leave_it_where_it_is():
    world = FollowingWorld(rest_s=0.0)
    for number in range(1000):
        ahead, behind = ("nantes", "rennes") if number // 5 % 2 else ("rennes", "nantes")
        assert world.look(**{ahead: 100.0, behind: 1.0}).word != FOLLOW_MOVES
    assert world.moves == 0


def test_one_look_that_says_otherwise_begins_the_wait_from_the_start():
    world = FollowingWorld()
    world.looks(6, rennes=10.0)
    assert world.look(nantes=9.0, rennes=10.0).word == FOLLOW_EVEN
    assert world.looks(6, rennes=10.0) == [FOLLOW_WAITS] * 6
    assert world.look(rennes=10.0).word == FOLLOW_MOVES


def test_another_site_waits_for_itself():
    world = FollowingWorld()
    world.looks(6, rennes=10.0)
    assert world.looks(6, lyon=10.0) == [FOLLOW_WAITS] * 6
    assert world.look(lyon=10.0).to == "lyon"


def test_it_rests_after_a_move_and_then_goes_back():
    world = FollowingWorld()
    world.looks(7, rennes=10.0)
    words = world.looks(62, nantes=10.0)
    assert words == [FOLLOW_RESTS] * 59 + [FOLLOW_MOVES] + [FOLLOW_HERE] * 2
    assert world.site == "nantes"


def test_what_is_at_several_sites_goes_to_the_one_that_asks_twice_as_much_as_any_other():
    world = FollowingWorld(site="")
    assert world.looks(7, nantes=4.0, rennes=10.0)[-1] == FOLLOW_MOVES
    assert FollowingWorld(site="").looks(7, nantes=6.0, rennes=10.0) == [FOLLOW_EVEN] * 7


def test_a_site_without_enough_servers_is_no_place_for_it():
    world = FollowingWorld()
    assert world.looks(100, rennes=10.0, room="rennes has 2 servers")[6:] == [FOLLOW_FULL] * 94
    assert "rennes has 2 servers" in world.look(rennes=10.0, room="rennes has 2 servers").why


def test_a_failed_move_is_tried_again_later():
    world = FollowingWorld()
    world.looks(6, rennes=10.0)
    assert world.look(rennes=10.0, moves=False).word == FOLLOW_MOVES
    world.policy.failed("photos", "s4 does not answer")
    words = world.looks(int(TRIED_AGAIN_S), rennes=10.0)
    assert words == [FOLLOW_FAILED] * (int(TRIED_AGAIN_S) - 1) + [FOLLOW_MOVES]


def test_move_after_move_that_fails_is_tried_ever_more_seldom():
    world, tries = FollowingWorld(), []
    for _ in range(20_000):
        if world.look(rennes=10.0, moves=False).word == FOLLOW_MOVES:
            tries.append(world.now)
            world.policy.failed("photos", "s4 does not answer")
    waits = [later - earlier for earlier, later in pairwise(tries)]
    assert waits[:4] == [30, 60, 120, 240]
    assert max(waits) == waits[-1] == HOUR_S


def test_all_moves_together_keep_within_the_bytes_of_an_hour():
    world, moved = FollowingWorld(rest_s=0.0), 0
    for number in range(20_000):
        before = world.moves
        far = "rennes" if world.site == "nantes" else "nantes"
        decision = world.look(bytes=300, **{far: 10.0})
        moved += 300 * (world.moves - before)
        assert decision.word in (FOLLOW_WAITS, FOLLOW_MOVES, FOLLOW_BUDGET)
        assert moved <= PER_HOUR * (1 + number / HOUR_S)
    assert world.moves >= 20


def test_what_is_larger_than_the_bytes_of_an_hour_never_moves():
    world = FollowingWorld()
    assert world.looks(20_000, bytes=PER_HOUR + 1, rennes=10.0)[6:] == [FOLLOW_BUDGET] * (
        20_000 - 6
    )


def test_what_a_move_really_took_is_what_is_spent():
    world = FollowingWorld(rest_s=0.0)
    world.policy.look(world.now, ["photos"])
    world.policy.begun(900)
    world.policy.moved("photos", 900, 100)
    assert world.looks(7, bytes=800, rennes=10.0)[-1] == FOLLOW_MOVES
    world.policy.moved("photos", 0, 10**18)
    assert world.looks(7, bytes=10, nantes=10.0)[-1] == FOLLOW_BUDGET


@pytest.mark.parametrize("jump_s", [-1e9, 1e9, 1e12])
def test_a_clock_that_jumps_neither_moves_it_nor_fills_the_budget(jump_s):
    world = FollowingWorld()
    world.policy.look(world.now, ["photos"])
    world.policy.begun(PER_HOUR)
    assert world.look(rennes=10.0).word == FOLLOW_WAITS
    assert world.look(rennes=10.0, passed_s=jump_s).word == FOLLOW_WAITS
    assert FOLLOW_BUDGET in world.looks(int(SUSTAINED_S), rennes=10.0)
    assert world.moves == 0


def test_another_leader_meanwhile_begins_the_wait_from_the_start_and_keeps_the_rest():
    world = FollowingWorld()
    world.looks(7, rennes=10.0)
    world.policy.stand_down()
    words = world.looks(10, nantes=10.0)
    assert words == [FOLLOW_RESTS] * 10
    assert world.looks(60, nantes=10.0)[-11:] == [FOLLOW_MOVES] + [FOLLOW_HERE] * 10


def test_what_is_forgotten_takes_no_memory_but_for_its_rest():
    policy = FollowPolicy(REST_S, PER_HOUR, GAP_S)
    for number in range(1000):
        policy.look(float(number), [f"d{number}"])
        policy.moved(f"d{number}", 0, 0)
        assert len(policy._courses) <= REST_S + 1


# -- answers of servers ----------------------------------------------------------------------------

FORGED = {"rennes": 1e308}


@pytest.mark.parametrize(
    ("claims", "servers", "found"),
    [
        ([{"nantes": 4.0}, {"nantes": 6.0}, {}], 3, {"nantes": 4.0}),
        ([{"nantes": 4.0}, {"nantes": 4.0}], 3, {"nantes": 4.0}),
        ([{"nantes": 4.0}], 3, {}),
        ([{"nantes": 4.0}, {"nantes": 4.0}, FORGED], 3, {"nantes": 4.0, "rennes": 0.0}),
        ([{}, {}, {"a": 1.0}, {"a": 2.0}, {"a": 3.0}], 5, {"a": 1.0}),
        ([{}, {"a": 1.0}, {"a": 2.0}, {"a": 3.0}], 4, {"a": 2.0}),
        ([], 3, {}),
    ],
)
def test_a_site_asks_what_half_of_the_servers_say(claims, servers, found):
    assert {
        site: rate for site, rate in usual(claims, servers).items() if rate or site in found
    } == found


def test_one_server_that_forges_its_counts_moves_nothing():
    world = FollowingWorld()
    for _ in range(100):
        assert (
            world.look(
                **usual([{"nantes": 4.0}, {"nantes": 4.0}, FORGED | {"nantes": -1e308}], 3)
            ).word
            == FOLLOW_HERE
        )


@given(
    st.lists(
        st.dictionaries(st.sampled_from("abc"), st.floats(allow_nan=True, allow_infinity=True)),
        max_size=6,
    ),
    st.integers(1, 6),
)
def test_whatever_servers_say_is_a_rate_or_nothing(claims, servers):
    rates = usual(claims, servers)
    assert all(math.isfinite(rate) and rate >= 0 for rate in rates.values())
    FollowingWorld().look(**rates)


def test_every_word_is_another():
    words = [
        value
        for name, value in vars(following).items()
        if name.isupper() and isinstance(value, str)
    ]
    assert len(words) == len(set(words)) == 12
