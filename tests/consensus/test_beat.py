"""The beat of idle consensus members."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from ares.cluster.tables import BEAT_S
from ares.consensus.raft.transport import Transport

from .clusters import LocalMembers, configuration, until

LOOK_S = 2.0


async def said_when_idle(members: LocalMembers, said: list[float]) -> int:
    await members.start_all()
    try:
        await members.client().propose(configuration(1), 1, 20.0)
        await asyncio.sleep(0.5)
        begin = time.monotonic()
        await asyncio.sleep(LOOK_S)
        return sum(begin <= at < begin + LOOK_S for at in said)
    finally:
        await members.stop_all()


async def test_a_longer_beat_is_fewer_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[float] = []
    send = Transport.send

    def counted(self: Any, node: Any, message: dict[str, Any]) -> bool:
        sent = send(self, node, message)
        if sent:
            said.append(time.monotonic())
        return sent

    monkeypatch.setattr(Transport, "send", counted)
    often = await said_when_idle(LocalMembers(tmp_path / "often"), said)
    seldom = await said_when_idle(LocalMembers(tmp_path / "seldom", beat_s=5 * BEAT_S), said)
    assert 0 < seldom < often / 2


async def test_members_with_a_longer_beat_elect_another_leader(tmp_path: Path) -> None:
    members = LocalMembers(tmp_path, beat_s=3 * BEAT_S)
    await members.start_all()
    try:
        await until(lambda: any(raft.leads for raft in members.running.values()))
        await members.stop(next(member for member, raft in members.running.items() if raft.leads))
        decided = await members.client().propose(configuration(1), 1, 20.0)
        assert decided.configuration == configuration(1)
    finally:
        await members.stop_all()
