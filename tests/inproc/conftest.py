"""A started cluster, closed afterwards."""

from collections.abc import AsyncIterator

import pytest

from .inproc_cluster import InprocCluster


@pytest.fixture
async def cluster() -> AsyncIterator[InprocCluster]:
    cluster = InprocCluster()
    await cluster.start()
    yield cluster
    await cluster.close()
