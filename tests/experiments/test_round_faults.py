"""Faults of a round, on a testbed that only records requests."""

import json
import re
import subprocess

import pytest

from experiments.rounds import round_faults
from experiments.rounds.layout import PATTERNS, RoundHost, placed
from experiments.rounds.playbook_runs import RoundFailed
from experiments.rounds.round_faults import RoundFaults
from experiments.rounds.round_testbeds import not_itself
from experiments.rounds.scenario import Fault, Parameters, ScenarioRound, _faults_of

HOSTS = {
    name: RoundHost(name, (group,), {"ares_address": name})
    for group in ("servers", "writers", "readers")
    for name in (f"{group}0", f"{group}1")
}
SHORT = Parameters(servers=2, parity=1, operations=1, interval_s=0.0)


class Asked:
    def __init__(self, wrong: Exception | None = None) -> None:
        self.asked: list[tuple[object, ...]] = []
        self._wrong = wrong
        self.patterns: set[str] = set()

    def kill(self, host: str, pattern: str) -> list[int]:
        if self._wrong:
            raise self._wrong
        self.asked.append(("kill", host))
        return []

    def slow(self, host: str, pattern: str, percent: float) -> list[int]:
        self.asked.append(("slow", host, percent))
        self.patterns.add(pattern)
        return []

    def join(self, site: str, other: str) -> None:
        self.asked.append(("join", site, other))


def befall(tmp_path, testbed, fault, protocol="ARES_ABD", ends_at_once=False):
    round = ScenarioRound("one", protocol, SHORT, {}, 1, (fault,))
    made = RoundFaults(round, placed(round, HOSTS), testbed, HOSTS, tmp_path / "events.jsonl")
    made.begins(0.0)
    if not ends_at_once:
        made._thread.join()
    made.ends()
    return made


def test_a_round_whose_fault_came_too_late_is_none(tmp_path):
    """Otherwise the round would report two crashes that did not happen."""
    testbed = Asked()
    with pytest.raises(
        RoundFailed,
        match=r"the fault crash was due 60\.0 s after the work began, and the work ended before",
    ):
        befall(tmp_path, testbed, Fault("crash", at_s=60.0), ends_at_once=True).require_done()
    befall(tmp_path, testbed, Fault("join", at_s=60.0), ends_at_once=True).require_done()
    assert testbed.asked == []


@pytest.mark.parametrize(
    "wrong",
    [subprocess.TimeoutExpired("ansible", 60), OSError("no such host"), RoundFailed("it is gone")],
)
def test_a_fault_that_cannot_be_made_fails_the_round(tmp_path, wrong):
    with pytest.raises(RoundFailed, match="the fault crash could not be made"):
        befall(tmp_path, Asked(wrong), Fault("crash", at_s=0.0)).require_done()


def test_the_members_of_consensus_are_slowed_and_let_go_and_no_server_is(tmp_path):
    testbed = Asked()
    [fault] = _faults_of(Parameters(members_percent=30))
    befall(tmp_path, testbed, fault).require_done()
    assert testbed.asked == [("slow", "servers0", 30), ("slow", "servers0", 100)]
    [pattern] = testbed.patterns
    assert re.search(pattern, "python -P -m ares consensus cluster.toml --id r0")
    assert not re.search(pattern, "python -P -m ares server cluster.toml --id s0")


def test_a_slowed_leader_recovers_although_another_server_leads_by_then(tmp_path, monkeypatch):
    leaders = iter(("servers0", "servers1", "servers1"))
    monkeypatch.setattr(round_faults.RoundFaults, "_leader", lambda _: next(leaders))
    testbed = Asked()
    befall(tmp_path, testbed, Fault("slow", at_s=0.0, server="leader"), "ETCD").require_done()
    assert testbed.asked == [("slow", "servers0", 20), ("slow", "servers0", 100)]
    assert [
        json.loads(line)["event"] for line in (tmp_path / "events.jsonl").read_text().splitlines()
    ] == ["phase", "slow", "phase"]


@pytest.mark.parametrize("who", ["leader", "replica"])
def test_a_store_whose_leader_is_not_seen_has_no_bad_one(tmp_path, monkeypatch, who):
    monkeypatch.setattr(round_faults, "leads", lambda _: False)
    testbed = Asked()
    with pytest.raises(RoundFailed, match="no leader was seen of etcd"):
        befall(tmp_path, testbed, Fault("crash", at_s=0.0, server=who), "ETCD").require_done()
    assert testbed.asked == []


COMMAND_LINES = {
    "ares": "/venv/bin/python -P -m ares server /r/config/cluster.toml --id s0",
    "redis": "redis-server 10.0.0.1:6379",
    "etcd": "/usr/bin/etcd --config-file /r/etcd.yml",
    "cassandra": "java -cp x org.apache.cassandra.service.CassandraDaemon",
}


@pytest.mark.parametrize("store", PATTERNS)
def test_a_search_by_command_line_finds_the_server_and_not_itself(store):
    pattern = not_itself(PATTERNS[store])
    assert re.search(pattern, COMMAND_LINES[store])
    assert not re.search(pattern, f"/bin/sh -c pids=$(pgrep -f -- '{pattern}') && kill -9 $pids")
