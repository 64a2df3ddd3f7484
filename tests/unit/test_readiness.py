"""The servers that a query asks first."""

import pytest

from ares.engine.readiness import PROBE_TURNS, Readiness
from ares.model.configuration import Configuration
from ares.model.identity import DEFAULT_DOMAIN, CallId, ServerId

SERVERS = tuple(ServerId(f"s{number}") for number in range(5))
C = Configuration.abd(SERVERS).at(DEFAULT_DOMAIN, 0)
EC = Configuration.ec(SERVERS, 3).at(DEFAULT_DOMAIN, 0)


def positions(readiness: Readiness, preferred: int = 0) -> list[int]:
    """Return the order in which the servers are asked."""
    return readiness.order(C, preferred).positions


def served(readiness: Readiness, calls: int, silent: ServerId | None = None) -> list[ServerId]:
    """Run queries of a turn each, answered by all but ``silent``.

    Return the servers asked first.
    """
    asked = []
    for call in range(1, calls + 1):
        order = readiness.order(C)
        assert sorted(order.asked + order.spared) == list(SERVERS)
        assert order.asked == tuple(SERVERS[position] for position in order.first)
        for server in order.asked:
            readiness.sent[server] = CallId(call)
            if server != silent:
                readiness.heard(server, CallId(call))
            asked.append(server)
        readiness.next_turn()
    return asked


def test_equally_ready_servers_are_asked_in_turn():
    asked = served(Readiness(), 100)
    assert all(55 <= asked.count(server) <= 70 for server in SERVERS)


def test_a_server_behind_is_spared_but_asked_now_and_then():
    asked = served(Readiness(), 10 * PROBE_TURNS, silent=SERVERS[2])
    assert 8 <= asked.count(SERVERS[2]) <= 12
    assert len(asked) > 3 * 10 * PROBE_TURNS, "beside those that are needed, not in their place"


def test_a_server_that_answers_again_is_asked_again():
    readiness = Readiness()
    served(readiness, 5, silent=SERVERS[2])
    readiness.heard(SERVERS[2], CallId(5))
    assert served(readiness, 20).count(SERVERS[2]) >= 8


def test_a_suspect_comes_last_until_it_says_something():
    readiness = Readiness()
    readiness.suspects.add(SERVERS[0])
    assert positions(readiness)[-1] == 0
    readiness.heard(SERVERS[0], CallId(1))
    readiness.next_turn()
    assert readiness.suspects == set()


def test_the_order_stays_for_a_turn():
    readiness = Readiness()
    order = positions(readiness)
    readiness.sent[SERVERS[order[0]]] = CallId(9)
    assert positions(readiness) == order
    readiness.next_turn()
    assert positions(readiness)[-1] == order[0]


@pytest.mark.parametrize("turn", range(5))
def test_clients_begin_with_different_servers(turn):
    assert positions(Readiness(turn))[0] == turn


def test_the_preferred_come_before_others_that_are_as_ready():
    readiness = Readiness()
    for turn in range(10):
        assert sorted(positions(readiness, 3)[:3]) == [0, 1, 2]
        assert sorted(readiness.order(EC, 3).first[:3]) == [0, 1, 2]
        assert sorted(positions(readiness)) == list(range(5))
        assert positions(readiness)[0] == turn % 5, "in the same turn, for those who prefer nobody"
        readiness.next_turn()


def test_a_server_behind_or_suspect_is_not_preferred():
    readiness = Readiness()
    readiness.sent[SERVERS[1]] = CallId(7)
    readiness.suspects.add(SERVERS[0])
    assert positions(readiness, 3) == [2, 3, 4, 1, 0]
    readiness.heard(SERVERS[0], CallId(7))
    readiness.heard(SERVERS[1], CallId(7))
    readiness.next_turn()
    assert sorted(positions(readiness, 3)[:3]) == [0, 1, 2]


def test_no_server_is_spared_where_all_make_the_quorum():
    every = Configuration.ec(SERVERS[:3], 2, allow_no_faults=True).at(DEFAULT_DOMAIN, 0)
    readiness = Readiness()
    for _ in range(2 * PROBE_TURNS):
        order = readiness.order(every)
        assert (sorted(order.asked), order.spared) == (list(every.server_ids), ())
        readiness.next_turn()
