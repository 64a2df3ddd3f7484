"""Property 1 of ARES II (section 3) for both data access primitives, over random schedules.

The schedules have bare primitives on a single configuration. C1: a get-data or get-tag that begins
after a put-data ended returns at least its tag. C2: get-data returns a value that was put, by a
put-data that began before the get-data ended, or the initial value.
"""

import random
from typing import Any, NamedTuple

import pytest

from ares.model.configuration import Configuration
from ares.model.errors import DecodeFailed
from ares.model.identity import DEFAULT_DOMAIN, ServerId
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import TOMBSTONE
from tests.protocol.protocol_world import ProtocolWorld, servers

ABD = Configuration.abd(servers(0, 1, 2)).at(DEFAULT_DOMAIN, 0)
ABD5 = Configuration.abd(servers(0, 1, 2, 3, 4)).at(DEFAULT_DOMAIN, 0)
EC = Configuration.ec(servers(0, 1, 2, 3, 4), 3, 4).at(DEFAULT_DOMAIN, 0)
EC_NARROW = Configuration.ec(servers(0, 1, 2, 3, 4), 2, 1).at(DEFAULT_DOMAIN, 0)
"""Configuration with a List of two: more writers than delta at once.

get-data may fail, but must not go back.
"""

WRITERS, READERS, TURNS, STEPS_MAX = 4, 3, 5, 20_000


class Action(NamedTuple):
    kind: str
    tag: Tag
    value: Any
    began: int
    ended: float


def run(configuration: Configuration, seed: int, crashes: int) -> list[Action]:
    """Run a schedule; `crashes` servers fall silent on the way."""
    world = ProtocolWorld(configuration, range(5), seed)
    rng = random.Random(seed)
    clients = [world.client() for _ in range(WRITERS + READERS)]
    left = dict.fromkeys(clients, TURNS)
    running: dict[Any, Any] = {}
    actions: list[Action] = []
    doomed = rng.sample(configuration.server_ids, crashes)
    for moment in range(STEPS_MAX):
        if moment == 60:
            world.down = {ServerId(name) for name in doomed}
        for client in clients:
            if client not in running and left[client] and rng.random() < 0.05:
                left[client] -= 1
                running[client] = begin(world, client, clients.index(client) < WRITERS, moment, rng)
        if not world.step() or rng.random() < 0.02:
            world.tick()
        for client, (kind, tag, value, began, pending) in list(running.items()):
            if pending.ended:
                del running[client]
                actions.append(ended(kind, tag, value, began, moment, pending))
        if not running and not any(left.values()):
            return actions
    raise AssertionError("the primitives do not end")


def begin(world, client, writes, moment, rng):
    dap = client.view.dap(world.initial)
    if writes:
        tag = Tag(rng.randint(1, 12), client.id * STEPS_MAX + moment)
        value = b"%d.%d" % (tag.number, tag.writer)
        return "put-data", tag, value, moment, client.start(dap.put_data("k", tag, value))
    if rng.random() < 0.5:
        return "get-tag", TAG_ZERO, None, moment, client.start(dap.get_tag("k"))
    return "get-data", TAG_ZERO, None, moment, client.start(dap.get_data("k"), timeout_s=1.0)


def ended(kind, tag, value, began, moment, pending) -> Action:
    if kind == "put-data":
        pending.result()
        return Action(kind, tag, value, began, moment)
    try:
        found = pending.result()
    except DecodeFailed:
        return Action("failed", TAG_ZERO, None, began, moment)
    return Action(kind, found.tag, found.value if kind == "get-data" else None, began, moment)


def broken_c1(actions: list[Action]) -> list[str]:
    puts = [action for action in actions if action.kind == "put-data"]
    gets = [action for action in actions if action.kind in ("get-data", "get-tag")]
    return [
        f"{get} after {put}"
        for put in puts
        for get in gets
        if put.ended < get.began and get.tag < put.tag
    ]


def broken_c2(actions: list[Action]) -> list[str]:
    puts = {(action.tag, action.value): action for action in actions if action.kind == "put-data"}
    broken = []
    for get in actions:
        if get.kind != "get-data" or (get.tag, get.value) == (TAG_ZERO, TOMBSTONE):
            continue
        put = puts.get((get.tag, get.value))
        if put is None or put.began > get.ended:
            broken.append(f"{get} was never put")
    return broken


CASES = [(ABD, 0), (ABD, 1), (ABD5, 2), (EC, 0), (EC, 1), (EC_NARROW, 0)]


@pytest.mark.parametrize(
    ("configuration", "crashes"),
    CASES,
    ids=["abd", "abd, one down", "abd, two down", "ec", "ec, one down", "ec, delta 1"],
)
def test_property_1(configuration, crashes):
    """Section 3, Property 1; section 6.1 for EC-DAP II (Alg. 3:1-22)."""
    answered = 0
    for seed in range(25):
        actions = run(configuration, seed, crashes)
        assert broken_c1(actions) == []
        assert broken_c2(actions) == []
        answered += sum(1 for action in actions if action.kind == "get-data")
        if configuration is not EC_NARROW:
            assert not [action for action in actions if action.kind == "failed"], (
                "at most delta writers: get-data always ends"
            )
    assert answered > 100


def test_quorums_that_do_not_meet_break_c1():
    """Negative control: quorums of a single server of three."""
    lonely = Configuration.abd(servers(0, 1, 2)).at(DEFAULT_DOMAIN, 0)
    vars(lonely)["quorum_size"] = 1
    assert any(broken_c1(run(lonely, seed, 0)) for seed in range(25))


def test_elements_of_different_versions_would_break_c2():
    put = Action("put-data", Tag(1, 1), b"v", 0, 1)
    mixed = Action("get-data", Tag(1, 1), b"w", 2, 3)
    early = Action("get-data", Tag(2, 1), b"w", 2, 3)
    later = Action("put-data", Tag(2, 1), b"w", 4, 5)
    assert broken_c2([put, mixed])
    assert broken_c2([put, early, later])
    assert broken_c2([Action("get-data", TAG_ZERO, b"", 0, 1)])
    assert not broken_c2([put, Action("get-data", Tag(1, 1), b"v", 0, 1)])
