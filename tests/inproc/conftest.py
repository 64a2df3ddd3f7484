"""A started cluster, closed afterwards."""

from collections.abc import AsyncIterator

import pytest

from .cluster import Cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    await cluster.start()
    yield cluster
    await cluster.close()
