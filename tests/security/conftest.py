"""Fixtures: a running cluster with keys."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ares.runtime import clients_file, zmq_server

from .cluster import SecureCluster


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SecureCluster]:
    monkeypatch.setattr(clients_file, "LOOK_AGAIN_S", 0.0)
    monkeypatch.setattr(zmq_server, "ROLL_CALL_S", 1e6)  # or whose key was revoked might be hung up on before he is refused
    monkeypatch.delenv("ARES_KEY", raising=False)
    made = SecureCluster(tmp_path / "cluster")
    await made.start()
    yield made
    await made.close()
