"""Fixtures: the consensus service under test."""

import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ares.consensus.etcd import EtcdConsensus
from ares.consensus.local import LocalConsensus
from ares.consensus.port import Consensus

from .clusters import LocalMembers, MemberProcesses
from .etcds import EtcdProcesses


@pytest.fixture
async def members(tmp_path: Path) -> AsyncIterator[LocalMembers]:
    """Make three Raft members, not yet started."""
    made = LocalMembers(tmp_path)
    yield made
    await made.stop_all()


@pytest.fixture
async def single(tmp_path: Path) -> AsyncIterator[LocalMembers]:
    """Make a cluster of a single member, which restarts quickly."""
    made = LocalMembers(tmp_path, count=1)
    yield made
    await made.stop_all()


@pytest.fixture
async def processes(tmp_path: Path) -> AsyncIterator[MemberProcesses]:
    made = MemberProcesses(tmp_path)
    yield made
    await made.close()


@pytest.fixture(scope="session")
def shared_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcesses]:
    """Make a single-member etcd for all tests that leave it running.

    Each test works under a separate cluster id.
    """
    made = EtcdProcesses(tmp_path_factory.mktemp("etcd"))
    made.start()
    yield made
    made.kill()


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[EtcdProcesses]:
    """Make an etcd of three members, not yet started."""
    made = EtcdProcesses(tmp_path, count=3)
    yield made
    await made.close()


@pytest.fixture
async def lone_etcd(tmp_path: Path) -> AsyncIterator[EtcdProcesses]:
    """Make an etcd of a single member, not yet started."""
    made = EtcdProcesses(tmp_path)
    yield made
    await made.close()


@pytest.fixture(params=["local", "raft", "etcd"])
async def consensus(
    request: pytest.FixtureRequest, members: LocalMembers
) -> AsyncIterator[Consensus]:
    client: Consensus = LocalConsensus()
    if request.param == "raft":
        await members.start_all()
        client = members.client()
    elif request.param == "etcd":
        etcd: EtcdProcesses = request.getfixturevalue("shared_etcd")
        client = EtcdConsensus(etcd.settings(), secrets.token_bytes(16))
    yield client
    await client.close()
