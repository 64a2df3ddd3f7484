"""Fixtures: the consensus service under test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ares.runtime.local_consensus import LocalConsensus
from ares.runtime.ports import Consensus

from .clusters import LocalMembers, MemberProcesses


@pytest.fixture
async def members(tmp_path: Path) -> AsyncIterator[LocalMembers]:
    """Three Raft members, not yet started."""
    made = LocalMembers(tmp_path)
    yield made
    await made.stop_all()


@pytest.fixture
async def single(tmp_path: Path) -> AsyncIterator[LocalMembers]:
    """A cluster of one, which is quick to start again."""
    made = LocalMembers(tmp_path, count=1)
    yield made
    await made.stop_all()


@pytest.fixture
async def processes(tmp_path: Path) -> AsyncIterator[MemberProcesses]:
    made = MemberProcesses(tmp_path)
    yield made
    await made.close()


@pytest.fixture(params=["local", "raft"])
async def consensus(request: pytest.FixtureRequest, members: LocalMembers) -> AsyncIterator[Consensus]:
    if request.param == "local":
        yield LocalConsensus()
        return
    await members.start_all()
    client = members.client()
    yield client
    await client.close()
