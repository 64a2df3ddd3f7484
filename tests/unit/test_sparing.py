"""Queries: asked of a quorum, and of the spared servers after an unusual time.

See ares/engine/session.py.
"""

import pytest

from ares.engine.session import HEDGE_USUAL, SESSION_TICK_S
from ares.model.messages import Ack

from .session_rig import C, Rig, once

SERVERS = {"s0", "s1", "s2"}
SLOW_S = 0.1
ROUNDS = 400


@pytest.fixture
def rig():
    made = Rig()
    run(made, 0.0)
    made.ends.clear()
    return made


def order(rig):
    """Return the servers that a query asks now."""
    return rig.session.readiness.order(C)


def run(rig, seconds, **more):
    """Run a round that takes `seconds`."""
    rig.start(once(**more))
    asked = rig.sent()
    rig.now += seconds
    for server, messages in asked.items():
        rig.reply(server, Ack(messages[-1].call, None))


def asked_after(rig, seconds):
    """Return the servers asked at first, and the servers asked after `seconds`."""
    rig.start(once(order=order(rig)))
    first = set(rig.sent())
    rig.tick(seconds)
    return first, set(rig.sent())


def test_a_quorum_is_asked_first_and_the_rest_when_that_is_slow(rig):
    """Alg. 3:1-8."""
    first, more = asked_after(rig, SESSION_TICK_S)
    assert len(first) == 2
    assert more == SERVERS - first


def test_what_is_usual_is_waited_for(rig):
    for _ in range(ROUNDS):
        run(rig, SLOW_S, order=order(rig))
    assert asked_after(rig, SLOW_S)[1] == set()
    first, more = asked_after(rig, HEDGE_USUAL * SLOW_S)
    assert more >= SERVERS - first


def test_what_writes_to_disks_does_not_count_as_usual_for_queries(rig):
    for _ in range(ROUNDS):
        run(rig, SLOW_S)
    first, more = asked_after(rig, SESSION_TICK_S)
    assert more == SERVERS - first
