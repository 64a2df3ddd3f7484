"""Gateways' views of a cluster of real servers in an event loop: clients with buckets."""

import pytest

from ares.gateway.access.reserved_buckets import KEYS_BUCKET
from ares.gateway.access.sealed_keys import GatewaySeal
from ares.model.configuration import Configuration
from tests.client.conftest import cluster as cluster


@pytest.fixture
async def store(cluster):
    manager = cluster.manager()
    await manager.create_bucket_domains(Configuration.abd(["s0", "s1", "s2"]))
    return manager


@pytest.fixture
async def keys(store):
    """Return the bucket of the access keys."""
    return await store.bucket(KEYS_BUCKET, create=True)


@pytest.fixture
def seal():
    return GatewaySeal(bytes(range(32)))
