"""The table of operations: complete, with bounded costs."""

import pytest

from ares.gateway.actions.action_table import (
    ACTION_ENTRIES,
    LISTING_COST_BYTES,
    REQUEST_COST_BYTES,
    STREAM_COST_BYTES,
    cost_of,
)
from ares.gateway.s3.exchange import Headers, HttpRequest, S3Operation, S3Request
from tests.gateway.actions.conftest import pieces_of

PUT, GET = S3Operation.PUT_OBJECT, S3Operation.GET_OBJECT
LIST = S3Operation.LIST_OBJECTS


def test_every_operation_but_the_preflight_is_answered():
    assert set(S3Operation) - set(ACTION_ENTRIES) == {S3Operation.PREFLIGHT}


@pytest.fixture
async def cost(gateway):
    """A function from a request to its cost, without the base."""
    await gateway("PutObject", "photos", "small", b"123")
    await gateway("PutObject", "photos", "large", bytes(70_000))
    index = await gateway.services.buckets.index(10.0)

    def cost(operation, key="", length=None, query=None, wanted=""):
        headers = Headers(((b"range", wanted.encode()),) if wanted else ())
        http = HttpRequest(*("", b"", b"", headers, False, "peer", pieces_of(b""), length))
        request = S3Request(http, operation, "photos", key, query or {}, "REQUEST")
        return cost_of(request, index.state) - REQUEST_COST_BYTES

    return cost


async def test_a_request_costs_no_more_than_its_data(cost):
    assert cost(PUT, "k", 1000) == 2000
    assert cost(PUT, "k") == cost(PUT, "k", 2**40) == STREAM_COST_BYTES
    assert (cost(GET, "small"), cost(GET, "large"), cost(GET, "absent")) == (3, 70_000, 0)
    assert cost(GET, "large", wanted="bytes=1-10") == 10
    assert cost(GET, "large", wanted="bytes=99999-") == 0
    assert cost(GET, "large", query={"versionId": "odd"}) == 0
    assert cost(LIST) == LISTING_COST_BYTES
    assert 0 < cost(S3Operation.DELETE_OBJECTS) < 2**25
