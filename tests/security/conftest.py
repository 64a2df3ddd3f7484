"""Fixtures: a running cluster with keys."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ares.net import native
from ares.security import clients_file

from .secure_cluster import SecureCluster


@pytest.fixture
async def cluster(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[SecureCluster]:
    """Make a cluster; indirect parameters name a transport, or the default is ours."""
    monkeypatch.setattr(clients_file, "CLIENTS_LOOK_S", 0.0)
    # otherwise a client with a revoked key might lose the connection before the refusal
    monkeypatch.setattr(native, "ROLL_CALL_S", 1e6)
    monkeypatch.delenv("ARES_KEY", raising=False)
    made = SecureCluster(tmp_path / "cluster", getattr(request, "param", "native"))
    await made.start()
    yield made
    await made.close()
