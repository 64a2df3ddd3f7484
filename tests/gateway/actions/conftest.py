"""Operations of the gateway on a cluster of real servers in an event loop, without HTTP."""

import asyncio
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator

import pytest

from ares.client.buckets.upkeep import index_upkeep
from ares.gateway.access.grants import Caller
from ares.gateway.access.request_look import RequestLook
from ares.gateway.actions.action_table import act
from ares.gateway.actions.gateway_services import GatewayServices
from ares.gateway.s3.exchange import Headers, HttpRequest, S3Operation, S3Request
from ares.gateway.s3.s3_errors import S3Error
from ares.gateway.s3.xml_text import S3_NAMESPACE
from ares.gateway.signing.decoded_body import BodyChecks, DecodedBody
from ares.model.configuration import Configuration
from tests.client.conftest import SERVERS
from tests.client.conftest import cluster as cluster


async def pieces_of(data, piece=1_000_003, error=None):
    """Yield data as a connection gives it; ``error`` in place of the end."""
    for start in range(0, len(data), piece):
        yield data[start : start + piece]
    if error is not None:
        raise error


def body_of(data=b"", algorithm=None, error=None):
    """Return the decoded body of a request, with a checksum if an algorithm is given."""
    body = DecodedBody(pieces_of(data, error=error), BodyChecks(len(data)), asyncio.to_thread)
    if algorithm is not None:
        body.compute(algorithm)
    return body


class GivenAnswer:
    """An answer with all of its body. ``error``: the code of a failure."""

    def __init__(self, status, headers, body=b"", error=""):
        self.status, self.body, self.error = status, body, error
        self.headers = {name.lower(): value for name, value in headers}

    @property
    def etag(self):
        return self.headers["etag"]

    def texts(self, name):
        """Return the texts of all elements of a name in a document."""
        root = ET.fromstring(self.body)  # the gateway's own document
        return [element.text or "" for element in root.iter(f"{{{S3_NAMESPACE}}}{name}")]

    def text(self, name):
        (found,) = self.texts(name)
        return found


class Gateway:
    """The operations of a gateway for a client. ``access_key``, ``buckets``: of all requests."""

    def __init__(self, services, access_key="AK"):
        self.services, self.access_key, self.buckets = services, access_key, ()

    async def response(self, operation, bucket="", key="", body=b"", query=None, headers=None):
        """Return the answer as the server of HTTP gets it."""
        raw = tuple(
            (name.encode("latin-1"), value.encode("latin-1"))
            for name, value in (headers or {}).items()
        )
        given = body_of(body) if isinstance(body, bytes) else body
        method = "GET" if operation.startswith(("Get", "Head", "List", "Watch")) else "PUT"
        http = HttpRequest(*(method, b"", b"", Headers(raw), False, "peer", aiter(given)))
        request = S3Request(http, S3Operation(operation), bucket, key, query or {}, "REQUEST")
        caller = Caller(self.access_key, "tester", self.buckets)
        look = RequestLook(self.services.buckets, self.services.timeout_s)
        return await act(self.services, request, caller, look, given)

    async def __call__(self, operation, bucket="", key="", body=b"", query=None, headers=None):
        """Return the answer to a request, or the error as an answer."""
        try:
            answer = await self.response(operation, bucket, key, body, query, headers)
        except S3Error as error:
            return GivenAnswer(error.code.status, error.headers.items(), error=error.code.name)
        data = answer.body
        if isinstance(data, AsyncIterator):
            data = b"".join([piece async for piece in data])
        return GivenAnswer(answer.status, answer.headers, data)


@pytest.fixture
async def store(cluster, monkeypatch):
    monkeypatch.setattr(index_upkeep, "SESSION_BEAT_S", 0.05)
    manager = cluster.manager()
    await manager.create_bucket_domains(Configuration.ec(SERVERS, 3))
    return manager


@pytest.fixture
async def gateway(store):
    """A gateway with the bucket ``photos``."""
    gateway = Gateway(GatewayServices(store._buckets, timeout_s=10.0))
    assert (await gateway("CreateBucket", "photos")).status == 200
    return gateway


@pytest.fixture
async def rival(cluster, gateway):
    """Another gateway of the cluster, with an index of its own."""
    return Gateway(GatewayServices(cluster.manager()._buckets, timeout_s=10.0))


def sent(invocation, attempt=1):
    """Return the headers that a client's library sends with an attempt at a request."""
    return {"amz-sdk-invocation-id": invocation, "amz-sdk-request": f"attempt={attempt}; max=5"}
