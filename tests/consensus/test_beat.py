"""The beat of idle consensus members."""

import asyncio
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from cryptography.fernet import Fernet

from ares.cluster.tables import BEAT_S_DEFAULT, SITES_BEAT_S
from ares.consensus.raft.replicated import RaftTimes
from ares.consensus.raft.transport import RaftTransport

from .clusters import PATIENCE_S, LocalMembers, configuration, until

BEATS = 8


async def pauses_when_idle(
    members: LocalMembers, sent: dict[tuple[Any, Any], list[float]]
) -> list[float]:
    """Return the pauses between the beats of a leader to a follower."""
    await members.start_all()
    try:
        await members.client().propose(configuration(1), 1, PATIENCE_S)
        await asyncio.sleep(0.5)
        sent.clear()
        await until(lambda: any(len(times) > BEATS for times in list(sent.values())))
        times = max(sent.values(), key=len)
        return [later - earlier for earlier, later in pairwise(times)]
    finally:
        await members.stop_all()


async def test_a_longer_beat_is_fewer_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine makes pauses longer, hence the shortest of the short ones counts."""
    sent: dict[tuple[Any, Any], list[float]] = defaultdict(list)
    send = RaftTransport.send

    def counted(self: Any, node: Any, message: dict[str, Any]) -> bool:
        said = send(self, node, message)
        if said and message["type"] == "append_entries":
            sent[self, node].append(time.monotonic())
        return said

    monkeypatch.setattr(RaftTransport, "send", counted)
    often = await pauses_when_idle(LocalMembers(tmp_path / "often"), sent)
    seldom = await pauses_when_idle(
        LocalMembers(tmp_path / "seldom", beat_s=5 * BEAT_S_DEFAULT), sent
    )
    assert 2 * min(often) < median(seldom)


async def test_members_with_a_longer_beat_elect_another_leader(tmp_path: Path) -> None:
    members = LocalMembers(tmp_path, beat_s=3 * BEAT_S_DEFAULT)
    await members.start_all()
    try:
        await until(lambda: any(raft.leads for raft in members.running.values()))
        await members.stop(next(member for member, raft in members.running.items() if raft.leads))
        decided = await members.client().propose(configuration(1), 1, 20.0)
        assert decided.configuration == configuration(1)
    finally:
        await members.stop_all()


NEVER_S = 3600.0
HEADERS = 208
"""Bytes of IP and TCP around a beat, its answer and their acknowledgements, at most."""

SITE_BYTES_PER_S = 624.0
"""The rest of a kibibyte is for autopilots: tests/autopilot/test_sites_traffic.py."""


def test_times_at_one_site_stay_as_they_were() -> None:
    times = RaftTimes.of_beat(BEAT_S_DEFAULT)
    assert [times.election_s, times.fallback_s, times.greeting_s] == pytest.approx([0.6, 2.0, 1.0])


async def test_beats_between_sites_take_few_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed: list[int] = []
    seal = Fernet.encrypt_at_time

    def counted(self: Fernet, data: bytes, current_time: int) -> bytes:
        token = seal(self, data, current_time)
        sealed.append(len(token) + 4)
        return token

    monkeypatch.setattr(Fernet, "encrypt_at_time", counted)
    members = LocalMembers(tmp_path)
    await members.start_all()
    try:
        await members.client().propose(configuration(1), 1, 20.0)
        await asyncio.sleep(1)
        sealed.clear()
        await until(lambda: len(sealed) >= 40)
    finally:
        await members.stop_all()
    assert (2 * max(sealed[:40]) + HEADERS) / SITES_BEAT_S <= SITE_BYTES_PER_S


@pytest.fixture
def seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalMembers:
    """Members that would wait for a beat, or for its absence, longer than any test."""
    times = RaftTimes(4 * NEVER_S, 4 * NEVER_S, 4 * NEVER_S)
    monkeypatch.setattr(RaftTimes, "of_beat", lambda beat_s: times)
    return LocalMembers(tmp_path, beat_s=NEVER_S)


async def test_nothing_but_silence_waits_for_a_beat(seldom: LocalMembers) -> None:
    """The first election, decisions, a late member, and the election after the leader's end."""
    await seldom.start_all()
    try:
        client = seldom.client()
        for index in range(1, 20):
            await client.propose(configuration(index), 1, 120.0)
        leader = next(member for member, raft in seldom.running.items() if raft.leads)
        late = next(member for member in seldom.running if member != leader)
        await seldom.stop(late)
        await seldom.start(late)
        decided = await seldom.running[late].propose(configuration(5), 2, 120.0)
        assert decided.proposer == 1
        await seldom.stop(next(member for member, raft in seldom.running.items() if raft.leads))
        decided = await seldom.client().propose(configuration(6), 2, 120.0)
        assert decided.proposer == 1
        await until(lambda: any(raft.leads for raft in seldom.running.values()))
    finally:
        await seldom.stop_all()
