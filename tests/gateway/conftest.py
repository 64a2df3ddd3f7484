"""A gateway in the event loop of a cluster: real connections, real buckets."""

import contextlib
import socket

import pytest

from ares.client.manager import buckets_of
from ares.gateway.access.access_keys import AccessKeys
from ares.gateway.access.issued_keys import issue
from ares.gateway.access.reserved_buckets import KEYS_BUCKET
from ares.gateway.access.sealed_keys import GatewaySeal, KeyRole, new_access_key
from ares.gateway.actions.gateway_services import GatewayServices
from ares.gateway.http.access_log import AccessLog
from ares.gateway.http.gateway_admission import GatewayAdmission
from ares.gateway.http.gateway_app import GatewayApp, GatewayParts
from ares.gateway.http.gateway_limits import GatewayLimits
from ares.gateway.http.gateway_listener import GatewayListener
from ares.metrics import GatewayTraffic
from ares.model.configuration import Configuration
from ares.tracing.request_spans import RequestSpans
from tests.client.conftest import LogCluster
from tests.gateway.raw_http import RawClient
from tests.gateway.raw_requests import signed

DATA_SERVERS = ["s0", "s1", "s2", "s3", "s4"]


class ServedGateway:
    """A gateway with an access key of each role, by the role's name."""

    def __init__(self, manager, seal, keys, limits, tracer=None, access_log=""):
        self.manager, self.keys = manager, keys
        self.traffic, self.admission = GatewayTraffic(), GatewayAdmission(limits)
        services = GatewayServices(buckets_of(manager), 10.0)
        access_keys = AccessKeys(buckets_of(manager), seal, 10.0)
        self.access_log = AccessLog(access_log, "gateway") if access_log else None
        parts = GatewayParts(
            *(services, access_keys, self.admission, self.traffic, RequestSpans(tracer)),
            domains=("s3.test", "other.test"),
            access_log=self.access_log,
        )
        self.app = GatewayApp(parts)
        self.listener = GatewayListener(self.app.serve, limits, self.traffic)
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.listener.start([self.socket])

    def client(self):
        return RawClient(self.socket.getsockname())

    async def ask(self, method, target, body=b"", role="admin", **headers):
        """Return the answer to a signed request on a connection of its own."""
        async with self.client() as client:
            key = self.keys[role]
            return await client.ask(signed(key, method, target, body, **headers), method)

    async def close(self):
        await self.listener.close()
        self.socket.close()
        if self.access_log is not None:
            self.access_log.close()


@pytest.fixture
async def cluster():
    cluster = LogCluster()
    await cluster.start()
    yield cluster
    await cluster.close()


@pytest.fixture
async def serve(cluster):
    """Return a function that makes a gateway with its own client of the cluster."""
    first = cluster.manager()
    await first.create_bucket_domains(Configuration.ec(DATA_SERVERS, 3))
    bucket = await first.bucket(KEYS_BUCKET, create=True)
    seal, keys = GatewaySeal(bytes(32)), {}
    for role in KeyRole:
        name = role.name.lower()
        keys[name] = new_access_key(name, role, ())
        await issue(bucket, seal, keys[name])
    async with contextlib.AsyncExitStack() as ends:

        def made(tracer=None, access_log="", **limits):
            manager = cluster.manager(tracer=tracer)
            bounds = GatewayLimits(**limits)
            gateway = ServedGateway(manager, seal, keys, bounds, tracer, access_log)
            ends.push_async_callback(gateway.close)
            return gateway

        yield made


@pytest.fixture
async def gateway(serve):
    gateway = serve()
    assert (await gateway.ask("PUT", "/photos")).status == 200
    return gateway
