"""Logs in status, top and metrics: servers' reports of chains, put together.

Old entries move no faster than allowed.
"""

import pytest
from msgspec.structs import replace

from ares.cli.observe.domain_survey import survey
from ares.cli.observe.observed_chains import chains_seen
from ares.metrics import DISK_S_BUCKETS, Histogram, LogTotals, held_logs
from ares.model.configuration import CHAIN_RULE, Configuration, Server
from ares.model.errors import AresError
from ares.model.identity import NO_CALL, ServerId
from ares.model.log_messages import Append, ChainReport, Seal
from ares.model.messages import ConfigurationReport, Introduce
from ares.reconfig.throttle import Throttle
from ares.replica.replica import Replica
from ares.server.prometheus import of_server, render
from ares.server.storage_server import StorageServer
from ares.sharedlog.node import LogNode
from tests.client.conftest import cluster as cluster
from tests.sharedlog.chains import CLIENT, NAMES, Wired, call, chain


def hold(reconfiguration, target):
    """Decide and point, and leave the remaining steps to other nodes."""
    yield from reconfiguration.replace_chain(reconfiguration.view.sequence.last_known, target)


@pytest.fixture
def slow(monkeypatch):
    """Make servers that fetch no entries until the throttle is free."""
    throttles = []
    monkeypatch.setattr(Throttle, "busy_s", lambda self, now: throttles.append(self) or 1.0)
    return monkeypatch


async def test_status_shows_the_chain_and_how_far_a_move_is(cluster, slow):
    log = await cluster.log()
    await log.append_many([b"%d" % number for number in range(50)])
    await log.trim(10)
    watcher = cluster.manager()
    [_, standing] = (await survey(watcher))[1]
    assert (
        standing.outlook()
        == "events: chain 3, survives 1 more crash; appends stop then until a chain without that "
        "server is made"
    )
    assert standing.log.lines() == [
        "chain 0: s0 (head), s1, s2 (tail); appends from position 0 on; entries from 10 to 49"
    ]
    wished = await watcher.identified(Configuration.chain(["s1", "s2", "s3"]))
    await log.run_step(lambda reconfiguration: hold(reconfiguration, wished), "half a move")
    assert await log.append(b"more") == 50
    [_, standing] = (await survey(watcher))[1]
    assert standing.log.lines() == [
        "chain 1: s1 (head), s2, s3 (tail); appends from position 50 on; entries from 10 to 50",
        "entries below 50 move to the chain: s1 has all, s2 has all, s3 has 0 of 40",
        "must stay up until that is over and told: s0",
    ]
    assert (standing.log.moved, standing.log.total) == (0, 40)
    assert standing.log.as_data()["fetched"] == {"s1": 50, "s2": 50, "s3": 10}, (
        "what is trimmed need not be fetched"
    )
    cluster.stop("s3")
    [_, standing] = (await survey(watcher))[1]
    assert "s3 does not say" in standing.log.lines()[1]
    assert "NO APPENDS: s3 is down" in standing.outlook()
    cluster.restart("s3")
    slow.undo()
    await log.reconfigure(wished)
    [_, standing] = (await survey(watcher))[1]
    assert standing.log.lines() == [
        "chain 1: s1 (head), s2, s3 (tail); appends from position 50 on; entries from 10 to 50"
    ]


async def test_status_says_that_a_chain_is_sealed_and_nothing_decided(cluster):
    log = await cluster.log()
    store = await cluster.manager().log("events")

    def seals(reconfiguration):
        reconfiguration._end_of = lambda *_: (_ for _ in ()).throw(AresError("it died"))
        yield from reconfiguration._decide(reconfiguration.view.sequence.last_known)

    with pytest.raises(AresError, match="it died"):
        await store.run_step(seals, "half a reconfiguration")
    [_, standing] = (await survey(cluster.manager()))[1]
    assert (
        "NO APPENDS: its chain is sealed, and the next chain is not decided" in standing.outlook()
    )
    assert standing.margin < 0
    assert "sealed at s0, s1, s2" in standing.log.lines()[1]
    await log.reconfigure(Configuration.chain(["s0", "s1", "s2"]))
    [_, standing] = (await survey(cluster.manager()))[1]
    assert "NO APPENDS" not in standing.outlook()


async def test_servers_of_earlier_releases_say_nothing_of_chains(cluster):
    chain = Configuration.chain([cluster.book[name] for name in ("s0", "s1", "s2")]).at("events", 0)
    assert chains_seen([chain], {}).lines() == [
        "chain 0: s0 (head), s1, s2 (tail); appends from position 0 on; entries none"
    ]
    assert chains_seen([cluster.initial], {}) is None


@pytest.mark.parametrize("returning", ["s0", "s1"])
def test_a_returning_server_names_the_next_server(returning):
    of = chain(rule=CHAIN_RULE)
    part = ChainReport(False, 3, 2, 0, 0, returning=True)
    report = ConfigurationReport(of, 0, 0, False, None, chain=part)
    seen = chains_seen([of], {returning: [report], "s2": [report]})  # a tail never returns
    assert (seen.as_data()["returning"], seen.as_data()["rule"]) == ([returning], CHAIN_RULE)
    _, line = seen.lines()
    following = {"s0": "s1", "s1": "s2"}[returning]
    assert f"{returning} restarted, and waits for {following} to give back" in line


def test_a_chain_with_the_earlier_rule_says_so():
    seen = chains_seen([chain(rule="")], {})
    assert seen.as_data()["rule"] == "earlier"
    assert "reconfig" in seen.lines()[-1]


C0 = chain()


def moving(entries, size, throttle=None):
    """Make a chain with entries, and another chain in which s3 is new."""
    nodes = Wired(*NAMES)
    nodes.nodes["s3"], nodes.disks["s3"] = LogNode(ServerId("s3"), "s3", throttle=throttle), []
    for name in NAMES:
        nodes.hand(name, Introduce(NO_CALL, C0))
    for number in range(1, entries + 1):
        nodes.hand("s0", Append(call(number), C0.id, CLIENT, number, number, 0, (b"x" * size,)))
    nodes.run()
    nodes.hand("s3", Introduce(NO_CALL, chain(1, entries, ("s3", "s1", "s2")), (C0,)))
    return nodes


async def test_metrics_sum_logs_up_without_their_names():
    nodes = moving(3, 10, Throttle(1))
    assert held_logs([nodes.nodes["s3"].state]) == LogTotals(1, 0, 3, 0, 0, 1, 3, 0)
    states = [nodes.nodes[name].state for name in NAMES]
    assert held_logs([*states, LogNode(ServerId("s9"), "s9").state]) == LogTotals(
        3, 9, 9, 0, 0, 0, 0, 0
    )
    nodes.hand("s0", Seal(call(), C0.id))
    assert held_logs(states).sealed == 1
    replica = Replica(
        ServerId("s0"),
        "s0",
        Configuration.abd([Server(name, f"{name}:1", name) for name in NAMES]).at("default", 0),
    )
    vitals = replace(StorageServer(replica).vitals(), logs=held_logs(states))
    page = render(of_server(vitals, Histogram(DISK_S_BUCKETS)))
    assert b"ares_log_committed_entries 9.0" in page
    assert b"ares_sealed_logs 1.0" in page
    assert b"events" not in page


def test_old_entries_move_no_faster_than_they_may():
    rate, size, entries = 2**20, 2**19, 8
    nodes = moving(entries, size, Throttle(rate))
    state, at = nodes.nodes["s3"].state, {0.0: 0}
    while state.base_upto < entries:
        nodes.run()
        at[nodes.now] = state.base_upto * size
        nodes.tick(0.05)
        assert nodes.now < 60
    assert all(moved <= rate * (now + 1.5) for now, moved in at.items()), at
    assert nodes.now <= entries * size / rate + 2, "the rate is used"
