"""Grants and revocation through a whole gateway: connections, signatures, operations."""

import asyncio
import hashlib
import socket
from datetime import UTC, datetime

import pytest

from ares.client.buckets.bucket_errors import IndexStopped
from ares.client.buckets.bucket_index import BucketIndex
from ares.gateway.access.access_keys import AccessKeys
from ares.gateway.access.issued_keys import issue, revoke
from ares.gateway.access.request_look import RequestLook
from ares.gateway.access.reserved_buckets import KEYS_BUCKET
from ares.gateway.access.sealed_keys import KeyRole, new_access_key
from ares.gateway.actions.gateway_services import GatewayServices
from ares.gateway.http.gateway_admission import GatewayAdmission
from ares.gateway.http.gateway_app import GatewayApp, GatewayParts
from ares.gateway.http.gateway_limits import GatewayLimits
from ares.gateway.http.gateway_listener import GatewayListener
from ares.gateway.s3.exchange import Headers, HttpRequest
from ares.gateway.signing.canonical_request import canonical_request
from ares.gateway.signing.credential_scope import CredentialScope, signed_text, signing_key
from ares.metrics import GatewayTraffic
from ares.tracing.request_spans import RequestSpans

LIMIT_S = 20.0
REGION = "us-east-1"


async def no_body():
    return
    yield b""


def signed_headers(key, method, path, given):
    """Return the headers of a request, with a signature."""
    stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    headers = {
        "host": "gateway", "x-amz-content-sha256": "UNSIGNED-PAYLOAD", "x-amz-date": stamp, **given,
    }  # fmt: skip
    raw = tuple((name.encode(), value.encode()) for name, value in headers.items())
    http = HttpRequest(method, path.encode(), b"", Headers(raw), False, "", no_body())
    names = tuple(sorted(headers))
    canonical = canonical_request(http, [], names, "UNSIGNED-PAYLOAD")
    scope = CredentialScope(key.id, stamp[:8], REGION)
    digest = hashlib.sha256(canonical).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope.scope}\n{digest}"
    signature = signed_text(signing_key(key.secret, stamp[:8], REGION), text)
    return headers | {
        "authorization": f"AWS4-HMAC-SHA256 Credential={key.id}/{scope.scope},"
        f"SignedHeaders={';'.join(names)},Signature={signature}"
    }


class Client:
    """A connection to a gateway. ``key``: None for a stranger."""

    def __init__(self, reader, writer, key):
        self._reader, self._writer, self._key = reader, writer, key

    async def __call__(self, method, path, body=b"", **given):
        """Return the code of the failure, or the body of the answer."""
        given = {name.replace("_", "-"): value for name, value in given.items()}
        headers = {"host": "gateway", **given}
        if self._key is not None:
            headers = signed_headers(self._key, method, path, given)
        lines = [f"{method} {path} HTTP/1.1", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = head.partition("content-length: ")[2].partition("\r\n")[0] or "0"
        answer = (await self._reader.readexactly(int(length))).decode()
        code = answer.partition("<Code>")[2].partition("</Code>")[0]
        return code or answer


@pytest.fixture
async def connect(store, seal):
    """Return a function that connects a client with a key to a gateway."""
    services = GatewayServices(store._buckets, LIMIT_S)
    limits, traffic = GatewayLimits(), GatewayTraffic()
    keys = AccessKeys(store._buckets, seal, LIMIT_S)
    app = GatewayApp(
        GatewayParts(services, keys, GatewayAdmission(limits), traffic, RequestSpans(None))
    )
    listening = socket.create_server(("127.0.0.1", 0))
    listener = GatewayListener(app.serve, limits, traffic)
    listener.start([listening])
    writers = []

    async def connected(key):
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        writers.append(writer)
        return Client(reader, writer, key)

    yield connected
    for writer in writers:
        writer.close()
    await listener.close()
    listening.close()


@pytest.fixture
async def issued(cluster, store, keys, seal, connect):
    """Return a function that issues a key in another process, and connects a client."""
    elsewhere = await cluster.manager().bucket(KEYS_BUCKET)

    async def client(role, *buckets):
        key = new_access_key("me", role, buckets)
        await issue(elsewhere, seal, key)
        return key, await connect(key)

    client.keys = elsewhere
    return client


@pytest.fixture
async def admin(issued):
    _, client = await issued(KeyRole.ADMIN)
    for bucket in ("photos", "films"):
        assert await client("PUT", f"/{bucket}") == ""
    assert await client("PUT", "/films/secret", b"secret") == ""
    return client


async def test_a_key_does_its_role_within_its_reach(admin, issued):
    _, reader = await issued(KeyRole.READ, "photos")
    _, writer = await issued(KeyRole.WRITE, "photos")
    assert await writer("PUT", "/photos/key", b"hello") == ""
    assert await reader("GET", "/photos/key") == "hello"
    assert await reader("PUT", "/photos/key", b"no") == "AccessDenied"
    for path in ("/films/secret", "/nothing/secret"):  # absent buckets are not told apart
        assert await reader("GET", path) == "AccessDenied"
    copied = {"x_amz_copy_source": "films/secret"}
    assert await writer("PUT", "/photos/copy", **copied) == "AccessDenied"
    assert "CopyObjectResult" in await admin("PUT", "/photos/copy", **copied)
    assert await writer("DELETE", "/photos") == "AccessDenied"
    listed = await reader("GET", "/")
    assert "photos" in listed
    assert "films" not in listed


async def test_a_revoked_key_is_refused_on_its_open_connection(admin, issued):
    key, reader = await issued(KeyRole.READ)
    assert await reader("GET", "/films/secret") == "secret"
    await revoke(issued.keys, key.id)
    assert await reader("GET", "/films/secret") == "InvalidAccessKeyId"


async def test_a_read_looks_at_the_tail_once(store, admin, connect, monkeypatch):
    """The look for the key serves the read, too."""
    assert await admin("PUT", "/public", x_amz_acl="public-read") == ""
    assert await admin("PUT", "/public/key", b"hello") == ""
    stranger, looks, verified = await connect(None), [], BucketIndex.verified

    async def counted(index, timeout_s):
        looks.append(index)
        await verified(index, timeout_s)

    monkeypatch.setattr(BucketIndex, "verified", counted)
    for reader in (admin, stranger):
        assert await reader("GET", "/public/key") == "hello"
        assert "<Key>key</Key>" in await reader("GET", "/public")
    assert "public" in await admin("GET", "/")
    assert len(looks) == 5


async def test_another_life_of_the_index_gets_a_look_of_its_own(store, monkeypatch):
    look, looks, verified = RequestLook(store._buckets, LIMIT_S), [], BucketIndex.verified

    async def counted(index, timeout_s):
        looks.append(index)
        await verified(index, timeout_s)

    monkeypatch.setattr(BucketIndex, "verified", counted)
    first = await look.verified()
    assert await look.verified() is first
    first.fail(IndexStopped("the test ends this life"))
    with pytest.raises(IndexStopped):
        await look.verify(first)
    second = await look.verified()
    assert looks == [first, second]
    assert first is not second


async def test_no_request_reaches_the_keys(admin, issued):
    key, _ = await issued(KeyRole.READ)
    for path in (f"/{KEYS_BUCKET}", f"/{KEYS_BUCKET}/{key.id}", f"/%61res-gateway-keys/{key.id}"):
        for method in ("GET", "DELETE"):
            assert await admin(method, path) == "NoSuchBucket"
    source = {"x_amz_copy_source": f"%61res-gateway-keys/{key.id}"}
    assert await admin("PUT", "/photos/copy", **source) == "NoSuchBucket"
    assert await admin("PUT", "/ares-gateway-more") == "InvalidBucketName"
    assert KEYS_BUCKET not in await admin("GET", "/")


async def test_a_stranger_reads_a_public_bucket(admin, connect):
    stranger = await connect(None)
    assert await stranger("GET", "/films/secret") == "AccessDenied"
    assert await admin("PUT", "/films", x_amz_acl="public-read") == "BucketAlreadyOwnedByYou"
    assert await admin("PUT", "/public", x_amz_acl="public-read") == ""
    assert await admin("PUT", "/public/key", b"hello") == ""
    assert await stranger("GET", "/public/key") == "hello"
    assert await stranger("PUT", "/public/key", b"no") == "AccessDenied"
    assert await stranger("GET", "/") == "AccessDenied"
