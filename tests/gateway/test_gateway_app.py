"""The way of a request through the gateway, from the socket to the buckets and back."""

import asyncio
import hashlib
import json

import pytest

from ares.bucket.index_records import BLOB_CHUNK_BYTES
from ares.client.manager import buckets_of
from ares.cluster.tables import TracingSettings
from ares.gateway.access.issued_keys import revoke
from ares.gateway.access.reserved_buckets import KEYS_BUCKET
from ares.gateway.http import gateway_admission, gateway_app, request_body
from ares.gateway.http.gateway_admission import GatewayAdmission
from ares.gateway.http.gateway_limits import GatewayLimits
from ares.gateway.http.gateway_monitor import WatchedGateway
from ares.gateway.s3.s3_errors import S3Code
from ares.tracing.callers_span import current_span
from ares.tracing.tracer import Tracer
from tests.gateway.raw_requests import presigned, signed, signed_head
from tests.gateway.test_s3_connection import GET, eventually

LARGE = bytes(range(256)) * 50_000
"""An object of 12.8 MB: two chunks."""


def code_of(answer):
    return answer.body.partition(b"<Code>")[2].partition(b"</Code>")[0].decode()


async def test_an_object_is_put_read_listed_and_deleted(gateway):
    put = await gateway.ask("PUT", "/photos/a%20b/c", b"hello", content_type="text/plain")
    assert (put.status, put.headers["etag"]) == (200, f'"{hashlib.md5(b"hello").hexdigest()}"')
    got = await gateway.ask("GET", "/photos/a%20b/c", role="read")
    assert (got.status, got.body, got.headers["content-type"]) == (200, b"hello", "text/plain")
    assert int(got.headers["x-ares-position"]) >= int(put.headers["x-ares-position"])
    assert got.headers["x-amz-request-id"] != put.headers["x-amz-request-id"]
    assert b"<Key>a b/c</Key>" in (await gateway.ask("GET", "/photos?list-type=2")).body
    head = await gateway.ask("HEAD", "/photos/a%20b/c")
    assert (head.status, head.headers["content-length"]) == (200, "5")
    assert (await gateway.ask("DELETE", "/photos/a%20b/c", role="write")).status == 204
    assert code_of(await gateway.ask("GET", "/photos/a%20b/c")) == "NoSuchKey"
    assert (await gateway.ask("HEAD", "/photos/a%20b/c")).status == 404
    assert gateway.traffic.requests["GetObject", 200] == 1
    assert gateway.admission.memory_bytes == gateway.admission.at_work == 0


async def test_a_large_object_goes_through_with_backpressure(gateway):
    assert (await gateway.ask("PUT", "/photos/large", LARGE)).status == 200
    assert (await gateway.ask("GET", "/photos/large")).body == LARGE
    edge = BLOB_CHUNK_BYTES
    part = await gateway.ask("GET", "/photos/large", range=f"bytes={edge - 5}-{edge + 4}")
    assert (part.status, part.body) == (206, LARGE[edge - 5 : edge + 5])


async def test_the_host_may_name_the_bucket(gateway):
    for domain in ("s3.test", "other.test"):
        host = f"photos.{domain}"
        assert (await gateway.ask("PUT", "/cat", domain.encode(), host=host)).status == 200
        assert (await gateway.ask("GET", "/photos/cat")).body == domain.encode()
        assert (await gateway.ask("GET", "/photos/cat", host=domain)).body == domain.encode()
    elsewhere = await gateway.ask("GET", "/photos/cat", host="photos.third.test")
    assert elsewhere.body == b"other.test"


async def test_of_rivals_one_wins(gateway):
    putters = [
        gateway.ask("PUT", "/photos/lock", b"%d" % number, if_none_match="*") for number in range(8)
    ]
    statuses = [answer.status for answer in await asyncio.gather(*putters)]
    assert sorted(statuses) == [200, *[412] * 7]


# -- who may ---------------------------------------------------------------------------------------


async def test_a_request_is_judged_before_its_body(gateway):
    """A wrong signature, and a role too low, are answered in place of 100 Continue."""
    digest = "UNSIGNED-PAYLOAD"
    for role, expected in (("read", "AccessDenied"), ("admin", "SignatureDoesNotMatch")):
        head = signed_head(
            gateway.keys[role],
            "PUT",
            "/photos/k",
            digest,
            content_length="5",
            expect="100-continue",
        )
        if role == "admin":
            head = head.replace(b"/photos/k HTTP", b"/photos/other HTTP")
        async with gateway.client() as client:
            answer = await client.ask(head)
            assert (answer.status, code_of(answer)) == (403, expected)
            assert await client.is_ended()
    assert (await gateway.ask("GET", "/photos/k")).status == 404


async def test_strangers_see_only_public_buckets(gateway):
    await gateway.ask("PUT", "/photos/k", b"data")
    anonymous = b"GET /photos/k HTTP/1.1\r\nHost: s3\r\n\r\n"
    async with gateway.client() as client:
        assert code_of(await client.ask(anonymous)) == "AccessDenied"
        assert (await gateway.ask("PUT", "/photos?acl", x_amz_acl="public-read")).status == 200
        assert (await client.ask(anonymous)).body == b"data"


async def test_a_presigned_url_may_have_headers_in_its_query(gateway):
    """The signature covers the request as received, where these are no headers."""
    put = presigned(gateway.keys["write"], "PUT", "/photos/k", x_amz_meta_color="red")
    async with gateway.client() as client:
        assert (await client.ask(put)).status == 200
        assert code_of(await client.ask(put.replace(b"=red", b"=blue"))) == "SignatureDoesNotMatch"
    assert (await gateway.ask("HEAD", "/photos/k")).headers["x-amz-meta-color"] == "red"


async def test_a_watch_ends_when_its_key_is_revoked(gateway):
    key = gateway.keys["read"]
    async with gateway.client() as client:
        await client.send(signed(key, "GET", "/photos?watch"))
        assert (await client.head())[0] == 200
        await gateway.ask("PUT", "/photos/before")
        await client.reader.readuntil(b'"before"')
        await revoke(await gateway.manager.bucket(KEYS_BUCKET), key.id)
        await gateway.ask("PUT", "/photos/behind")
        assert b"behind" not in await client.rest()


async def test_the_buckets_of_the_gateways_are_not_there(gateway):
    key = gateway.keys["admin"].id
    assert code_of(await gateway.ask("GET", f"/ares-gateway-keys/{key}")) == "NoSuchBucket"
    assert b"ares-gateway" not in (await gateway.ask("GET", "/")).body


# -- bodies that are not right ---------------------------------------------------------------------


@pytest.mark.parametrize("size", [100, len(LARGE)], ids=["inline", "blob"])
async def test_a_body_that_is_not_whole_is_not_stored(gateway, size):
    body = LARGE[:size]
    digest = hashlib.sha256(body).hexdigest()
    head = signed_head(
        gateway.keys["write"], "PUT", "/photos/k", digest, content_length=str(len(body))
    )
    async with gateway.client() as client:  # goes away in the middle
        await client.send(head + body[:-1])
        await eventually(lambda: gateway.admission.at_work == 1)
    await eventually(lambda: gateway.admission.at_work == 0)
    async with gateway.client() as client:  # has another digest
        answer = await client.ask(head + body[:-1] + b"\0")
        assert code_of(answer) == "XAmzContentSHA256Mismatch"
    assert (await gateway.ask("GET", "/photos/k")).status == 404
    assert gateway.admission.memory_bytes == 0


async def test_bytes_behind_the_body_are_not_stored(gateway):
    async with gateway.client() as client:
        put = signed(gateway.keys["write"], "PUT", "/photos/k", b"12345")
        await client.send(put + b"6789")
        assert (await client.answer()).status == 200
        assert await client.is_ended()
    assert (await gateway.ask("GET", "/photos/k")).body == b"12345"


async def test_a_reader_that_goes_away_ends_the_read(gateway):
    await gateway.ask("PUT", "/photos/large", LARGE)
    async with gateway.client() as client:
        await client.send(signed(gateway.keys["read"], "GET", "/photos/large"))
        assert (await client.head())[0] == 200
        assert gateway.admission.memory_bytes > 0
        client.writer.transport.abort()
    await eventually(lambda: gateway.admission.at_work == 0)
    assert gateway.admission.memory_bytes == 0


async def test_a_lost_chunk_cuts_the_answer(gateway, monkeypatch):
    """The head is out when the second chunk fails: the client must not take the part for all."""
    await gateway.ask("PUT", "/photos/large", LARGE)
    blobs = buckets_of(gateway.manager).blobs
    fetch = blobs.fetch

    async def failing(part, timeout_s):
        if part.name.endswith("/1"):
            raise OSError("lost")
        return await fetch(part, timeout_s)

    monkeypatch.setattr(blobs, "fetch", failing)
    async with gateway.client() as client:
        await client.send(signed(gateway.keys["read"], "GET", "/photos/large"))
        _, headers = await client.head()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.reader.readexactly(int(headers["content-length"]))
    assert gateway.traffic.cut == 1


async def test_a_wish_that_is_not_implemented_is_no_failure_of_this_side(gateway, caplog):
    assert (await gateway.ask("GET", "/photos?website")).status == 501
    assert "requests failed" not in caplog.text


# -- bounds ----------------------------------------------------------------------------------------


async def test_requests_beyond_the_bound_are_told_to_slow_down(serve):
    gateway = serve(requests=1)
    assert (await gateway.ask("PUT", "/photos")).status == 200
    head = signed_head(
        gateway.keys["write"], "PUT", "/photos/k", "UNSIGNED-PAYLOAD", content_length="5"
    )
    async with gateway.client() as client:
        await client.send(head)
        await eventually(lambda: gateway.admission.at_work == 1)
        answer = await gateway.ask("GET", "/photos/k")
        assert (answer.status, code_of(answer)) == (503, "SlowDown")
        assert answer.headers["retry-after"] == "1"
        assert (await client.ask(b"12345")).status == 200


async def test_the_fields_of_a_form_have_a_time_in_all(gateway, monkeypatch):
    """A sender of drops is never idle, and would hold one of the few places of forms."""
    monkeypatch.setattr(gateway_app, "HEAD_S", 0.05)
    head = (
        b"POST /photos HTTP/1.1\r\nHost: s3\r\nContent-Length: 60000\r\n"
        b"Content-Type: multipart/form-data; boundary=b\r\n\r\n"
    )
    async with gateway.client() as client:
        await client.send(head + b'--b\r\nContent-Disposition: form-data; name="key"\r\n\r\n')
        async with asyncio.timeout(request_body.BODY_IDLE_S / 3):
            assert code_of(await client.answer()) == "RequestTimeout"
    assert gateway.admission.at_work == 0


class MemoryUsers:
    """Requests that take memory, and hold it until :meth:`end`."""

    def __init__(self, memory_bytes):
        self.admission = GatewayAdmission(GatewayLimits(memory_bytes=memory_bytes))
        self.seen, self._ends = [], {}

    def begin(self, name, size, caller="me", hold=False):
        end = self._ends[name] = asyncio.Event()
        if not hold:
            end.set()
        return asyncio.create_task(self._use(name, size, caller, end))

    def end(self, name):
        self._ends[name].set()

    async def _use(self, name, size, caller, end):
        async with self.admission.memory(size, caller):
            self.seen.append(name)
            await end.wait()


async def test_memory_is_given_in_order_and_given_back(monkeypatch):
    monkeypatch.setattr(gateway_admission, "MEMORY_WAIT_S", 0.05)
    users = MemoryUsers(10)
    first = users.begin("first", 8, hold=True)
    await eventually(lambda: users.seen == ["first"])
    large, small = users.begin("large", 99, "you"), users.begin("small", 1, "you")
    await asyncio.sleep(0.01)
    assert users.seen == ["first"]
    small.cancel()
    with pytest.raises(Exception, match=S3Code.SlowDown.name):
        await large
    users.end("first")
    await first
    await users.begin("last", 10)
    assert (users.seen, users.admission.memory_bytes) == (["first", "last"], 0)


async def test_a_caller_leaves_memory_to_others(monkeypatch):
    """Slow readers under one key wait for each other, and nobody waits for them."""
    monkeypatch.setattr(gateway_admission, "STREAM_COST_BYTES", 2)
    users = MemoryUsers(40)
    slow = [users.begin(f"slow {number}", 5, hold=True) for number in range(5)]
    await eventually(lambda: len(users.seen) == 4)
    await users.begin("other", 10, "you")
    await users.begin("stranger", 10, "")
    assert users.seen == ["slow 0", "slow 1", "slow 2", "slow 3", "other", "stranger"]
    users.end("slow 0")
    await eventually(lambda: users.seen[-1] == "slow 4")
    for number in range(1, 5):
        users.end(f"slow {number}")
    await asyncio.gather(*slow)
    assert (users.admission.memory_bytes, users.admission._taken) == (0, {})


@pytest.mark.parametrize("turns", [0, 1], ids=["before", "behind"])
async def test_a_wait_cancelled_beside_the_gift_of_its_memory_keeps_none(turns):
    users = MemoryUsers(10)
    first = users.begin("first", 10, hold=True)
    await eventually(lambda: users.seen == ["first"])
    gone, next_one = users.begin("gone", 10), users.begin("next", 10)
    await asyncio.sleep(0.01)
    users.end("first")
    for _ in range(turns):
        await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(first, next_one)
    assert (users.seen[-1], users.admission.memory_bytes) == ("next", 0)


async def test_a_caller_leaves_places_to_others(serve):
    gateway = serve(requests=4)
    assert (await gateway.ask("PUT", "/photos")).status == 200
    head = signed_head(
        gateway.keys["write"], "PUT", "/photos/k", "UNSIGNED-PAYLOAD", content_length="5"
    )
    async with gateway.client() as client, gateway.client() as another:
        for busy in (client, another):
            await busy.send(head)
        await eventually(lambda: gateway.admission._places.total() == 2)
        assert code_of(await gateway.ask("GET", "/photos/k", role="write")) == "SlowDown"
        assert code_of(await gateway.ask("GET", "/photos/k", role="read")) == "NoSuchKey"
        for busy in (client, another):
            assert (await busy.ask(b"12345")).status == 200
    assert (await gateway.ask("GET", "/photos/k", role="write")).body == b"12345"


async def test_an_origin_is_told_what_it_may_see(gateway):
    document = (
        b"<CORSConfiguration><CORSRule><AllowedOrigin>https://a.example</AllowedOrigin>"
        b"<AllowedMethod>GET</AllowedMethod></CORSRule></CORSConfiguration>"
    )
    assert (await gateway.ask("PUT", "/photos?cors", document)).status == 200
    preflight = (
        b"OPTIONS /photos/k HTTP/1.1\r\nHost: s3\r\nOrigin: https://a.example\r\n"
        b"Access-Control-Request-Method: %b\r\n\r\n"
    )
    async with gateway.client() as client:
        allowed = await client.ask(preflight % b"GET")
        assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (
            200,
            "https://a.example",
        )
        assert (await client.ask(preflight % b"PUT")).status == 403
    missing = await gateway.ask("GET", "/photos/k", origin="https://a.example")
    assert missing.status == 404
    assert missing.headers["access-control-allow-origin"] == "https://a.example"


async def test_a_request_has_a_span_above_the_operations_in_it(serve):
    spans = []
    tracer = Tracer(TracingSettings(exporter="console", keys=True), spans.extend, current_span)
    gateway = serve(tracer)
    assert (await gateway.ask("PUT", "/photos")).status == 200
    assert (await gateway.ask("PUT", "/photos/k", b"z" * 4000)).status == 200
    tracer.close()
    [put] = [span for span in spans if span.name == "PutObject"]
    below = [span for span in spans if span.trace == put.trace and span.parent == put.id]
    assert (put.parent, put.attributes["aws.s3.bucket"]) == (b"", "photos")
    assert {"storing", "append"} <= {span.name for span in below}


async def test_health_tells_of_a_log_that_does_not_answer(gateway, cluster):
    watched = WatchedGateway(buckets_of(gateway.manager), gateway.listener, gateway.admission)
    healthy = await watched.look()
    assert (healthy.trouble, healthy.facts["at_work"]) == ("", 0)
    cluster.stop("s0", "s1", "s2")
    assert "has not told its tail" in (await watched.look()).trouble
    cluster.restart("s0", "s1", "s2")


# -- the access log --------------------------------------------------------------------------------


@pytest.fixture
async def logged(serve, tmp_path):
    """Return a gateway with a log, and a function that returns the lines of its log."""
    path = tmp_path / "access.log"
    gateway = serve(access_log=str(path))

    async def lines(count):
        await eventually(lambda: path.read_bytes().count(b"\n") >= count)
        return list(map(json.loads, path.read_bytes().splitlines()))

    return gateway, lines


async def test_each_request_has_a_line(logged):
    gateway, lines = logged
    await gateway.ask("PUT", "/photos")
    put = await gateway.ask("PUT", "/photos/a%20b", b"hello", role="write")
    await gateway.ask("GET", "/photos/absent", role="read")
    await gateway.ask("DELETE", "/photos/k", role="read")
    create, stored, absent, denied = await lines(4)
    assert (create["operation"], create["bucket"], create["key"]) == ("CreateBucket", "photos", "")
    assert (stored["method"], stored["key"], stored["status"]) == ("PUT", "a b", 200)
    assert (stored["access_key"], stored["address"]) == (gateway.keys["write"].id, "127.0.0.1")
    assert (stored["received_bytes"], stored["error"]) == (5, "")
    assert stored["sent_bytes"] > 0 < stored["ms"]
    assert stored["request"].lower() == put.headers["x-amz-request-id"]
    assert (absent["status"], absent["error"]) == (404, "NoSuchKey")
    assert (denied["status"], denied["error"]) == (403, "AccessDenied")
    assert denied["access_key"] == gateway.keys["read"].id


async def test_a_stranger_has_no_access_key_and_signatures_are_not_told(logged, tmp_path):
    """The id of a key is logged after the check of the signature: strangers forge no id."""
    gateway, lines = logged
    key = gateway.keys["admin"]
    url = presigned(key, "GET", "/photos/k")
    signature = url.partition(b"X-Amz-Signature=")[2][:64]
    wrong = signed(key, "GET", "/photos/k").replace(b"/photos/k", b"/photos/l")
    async with gateway.client() as client:
        for request in (url, wrong, GET):
            await client.ask(request)
    found = await lines(3)
    assert [each["access_key"] for each in found] == [key.id, "", ""]
    assert [each["error"] for each in found][1:] == ["SignatureDoesNotMatch", "AccessDenied"]
    told = (tmp_path / "access.log").read_bytes()
    assert signature not in told
    assert key.secret.encode() not in told


async def test_a_cut_answer_is_told(logged):
    gateway, lines = logged
    await gateway.ask("PUT", "/photos")
    async with gateway.client() as client:
        await client.send(signed(gateway.keys["read"], "GET", "/photos?watch"))
        assert (await client.head())[0] == 200
    _, watch = await lines(2)
    assert (watch["operation"], watch["status"], watch["error"]) == ("Watch", 200, "ConnectionCut")
