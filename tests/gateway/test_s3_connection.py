"""A connection of the gateway against hostile peers: ambiguous, endless, slow, and gone ones."""

import asyncio
import contextlib
import socket

import pytest

from ares.gateway.http import http_exchange, request_body, s3_connection
from ares.gateway.http.gateway_limits import (
    BODY_BUFFER_BYTES,
    HTTP_HEAD_BYTES_MAX,
    LINGER_BYTES_MAX,
    PIPELINED_MAX,
    GatewayLimits,
)
from ares.gateway.http.gateway_listener import GatewayListener
from ares.gateway.s3.exchange import HttpResponse
from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.metrics import GatewayTraffic
from tests.gateway.raw_http import RawClient

GET = b"GET /bucket/key HTTP/1.1\r\nHost: s3\r\n\r\n"
PUT = b"PUT /bucket/key HTTP/1.1\r\nHost: s3\r\nContent-Length: %d\r\n%b\r\n"


class Gateway:
    """A listener whose requests are answered by a function of the test."""

    def __init__(self, serve, **limits):
        self.seen, self.serve, self.cancelled = [], serve, 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.traffic = GatewayTraffic()
        self.listener = GatewayListener(self._serve, GatewayLimits(**limits), self.traffic)
        self.listener.start([self.socket])

    async def _serve(self, exchange):
        self.seen.append(exchange.request)
        try:
            await exchange.send(await self.serve(exchange.request))
        except S3Error as error:
            await exchange.send(error.answer("", ""))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    def client(self, own="127.0.0.1"):
        return RawClient(self.socket.getsockname(), own)

    async def close(self):
        await self.listener.close()
        self.socket.close()


@contextlib.asynccontextmanager
async def gateway(serve, **limits):
    made = Gateway(serve, **limits)
    try:
        yield made
    finally:
        await made.close()


async def whole(request):
    """Answer with the body of the request."""
    return HttpResponse(200, [], b"".join([piece async for piece in request.body]))


async def early(request):
    """Answer without a look at the body."""
    return HttpResponse(403, [], b"no")


def pieces(*data, error=None):
    async def body():
        for piece in data:
            yield piece
        if error is not None:
            raise error

    return body()


async def eventually(condition):
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


# -- requests and answers --------------------------------------------------------------------------


async def test_requests_follow_each_other_on_a_connection():
    async with gateway(whole) as made, made.client() as client:
        for body in (b"", b"x", b"y" * 300_000):
            assert (await client.ask(PUT % (len(body), b"") + body)).body == body
        chunked = b"PUT /b/k?q=%20 HTTP/1.1\r\nHost: s3\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert (await client.ask(chunked + b"3;x=y\r\nabc\r\n0\r\nt: u\r\n\r\n")).body == b"abc"
    last = made.seen[-1]
    assert (last.raw_path, last.raw_query, last.content_length) == (b"/b/k", b"q=%20", None)


async def test_the_path_is_as_it_came_also_from_a_proxy():
    async with gateway(early) as made, made.client() as client:
        await client.ask(b"GET http://s3/a%2Fb//../c?x=%26 HTTP/1.1\r\nHost: s3\r\n\r\n")
        await client.ask(b"GET /a%2Fb//../c HTTP/1.1\r\nHost: s3\r\n\r\n")
    assert [each.raw_path for each in made.seen] == [b"/a%2Fb//../c"] * 2


async def test_the_first_read_of_the_body_says_continue():
    begin = asyncio.Event()

    async def slowly(request):
        await begin.wait()
        return await whole(request)

    async with gateway(slowly) as made, made.client() as client:
        await client.send(PUT % (3, b"Expect: 100-continue\r\n"))
        await eventually(lambda: made.seen)
        begin.set()
        assert (await client.answer()).status == 100
        assert (await client.ask(b"abc")).body == b"abc"


async def test_an_early_answer_comes_in_place_of_continue_and_ends_the_connection():
    async with gateway(early) as made, made.client() as client:
        answer = await client.ask(PUT % (3, b"Expect: 100-continue\r\n"))
        assert (answer.status, answer.headers["connection"]) == (403, "close")
        assert await client.is_ended()


async def test_a_short_rest_of_a_body_keeps_the_connection():
    async with gateway(early) as made, made.client() as client:
        assert (await client.ask(PUT % (1000, b""))).headers.get("connection") is None
        await client.send(b"z" * 1000)
        assert (await client.ask(GET)).status == 403
    assert [each.method for each in made.seen] == ["PUT", "GET"]


async def test_a_long_rest_of_a_body_is_read_for_a_bounded_time_and_size():
    async with gateway(early) as made, made.client() as client:
        await client.send(PUT % (10**12, b""))
        assert (await client.answer()).headers["connection"] == "close"
        sent = 0
        with contextlib.suppress(OSError):  # a reset, or a broken pipe
            while sent < 100 * LINGER_BYTES_MAX:
                await client.send(b"z" * 65536)
                sent += 65536
        assert sent < 100 * LINGER_BYTES_MAX


async def test_head_has_no_body():
    async def answer(request):
        return HttpResponse(200, [("Content-Length", "123")], pieces(b"never"))

    head = b"HEAD /b/k HTTP/1.1\r\nHost: s3\r\nContent-Length: 2\r\n\r\nzz"
    async with gateway(answer) as made, made.client() as client:
        for _ in range(2):
            answered = await client.ask(head, "HEAD")
            assert (answered.status, answered.headers["content-length"]) == (200, "123")


async def test_http_1_0_ends_with_the_connection():
    async def answer(request):
        return HttpResponse(200, [], pieces(b"a", b"b"))

    async with gateway(answer) as made, made.client() as client:
        assert (await client.ask(b"GET /b/k HTTP/1.0\r\n\r\n")).body == b"ab"
        assert await client.is_ended()


async def test_pipelined_requests_are_answered_in_order():
    async def path(request):
        await asyncio.sleep(0.01 if b"1" in request.raw_path else 0)
        return HttpResponse(200, [], request.raw_path)

    async with gateway(path) as made, made.client() as client:
        await client.send(b"".join(b"GET /%d HTTP/1.1\r\nHost: s3\r\n\r\n" % n for n in range(5)))
        assert [(await client.answer()).body for _ in range(5)] == [b"/%d" % n for n in range(5)]


# -- bodies of answers -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        pieces(b"half", error=RuntimeError("the chunk is lost")),
        pieces(b"half"),
        pieces(b"half", b"and too much"),
    ],
    ids=["fails", "short", "long"],
)
async def test_a_body_that_fails_cuts_the_connection(body):
    async def answer(request):
        return HttpResponse(200, [("Content-Length", "8")], body)

    async with gateway(answer) as made, made.client() as client:
        await client.send(GET)
        assert (await client.head())[0] == 200
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.reader.readexactly(8)


async def test_chunks_of_a_body_that_fails_have_no_end():
    async def answer(request):
        return HttpResponse(200, [], pieces(b"half", error=RuntimeError("lost")))

    async with gateway(answer) as made, made.client() as client:
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError, ValueError)):
            await client.ask(GET)


async def test_a_body_that_fails_at_once_is_an_error_and_no_cut():
    async def answer(request):
        body = pieces(error=S3Error(S3Code.ServiceUnavailable))
        return HttpResponse(200, [("Content-Length", "8")], body)

    async with gateway(answer) as made, made.client() as client:
        assert (await client.ask(GET)).status == 503
        assert (await client.ask(GET)).status == 503


async def test_a_header_that_would_split_the_answer_is_not_sent():
    async def answer(request):
        return HttpResponse(200, [("x-amz-meta-a", "b\r\nSet-Cookie: c")], b"")

    async with gateway(answer) as made, made.client() as client:
        await client.send(GET)
        assert await client.reader.read() == b""


# -- hostile requests ------------------------------------------------------------------------------

HEAD = b"PUT /b/k HTTP/1.1\r\nHost: s3\r\n"


@pytest.mark.parametrize(
    "request_bytes",
    [
        HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        HEAD + b"Content-Length: +3\r\n\r\nabc",
        HEAD + b"Content-Length: -3\r\n\r\nabc",
        HEAD + b"Content-Length: 99999999999999999999\r\n\r\nabc",
        HEAD + b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabc",
        HEAD + b"A: b\r\n folded\r\n\r\n",
        HEAD + b"A: b\x00c\r\n\r\n",
        b"GET /b/k HTTP/1.1\nHost: s3\n\n",
        b"GET /b/k HTTP/1.1\r\n\r\n",
        b"GET /b/k HTTP/1.1\r\nHost: s3\r\nHOST: s4\r\n\r\n",
        b"GET /b/k HTTP/1.0\r\nHost: s3\r\nHost: s3\r\n\r\n",
        b"PUT /b/k HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /b/k HTTP/2.0\r\nHost: s3\r\n\r\n",
        b"GET b/k HTTP/1.1\r\nHost: s3\r\n\r\n",
        b"GET /b#k HTTP/1.1\r\nHost: s3\r\n\r\n",
        b"CONNECT s3:443 HTTP/1.1\r\nHost: s3\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /" + b"k" * HTTP_HEAD_BYTES_MAX + b" HTTP/1.1\r\nHost: s3\r\n\r\n",
        HEAD + b"A: " + b"b" * HTTP_HEAD_BYTES_MAX + b"\r\n\r\n",
        HEAD + b"A: b\r\n" * 200 + b"\r\n",
    ],
    ids=lambda value: repr(bytes(value[-40:])),
)
async def test_a_malformed_request_is_refused_and_reaches_nothing(request_bytes):
    async with gateway(whole) as made, made.client() as client:
        await client.send(request_bytes)
        answer = await client.reader.read()
    assert answer.startswith(b"HTTP/1.1 400 ") or (not answer and made.traffic.refused)
    assert answer.count(b"HTTP/1.1 400 ") <= 1
    assert not any(request.method == "GET" for request in made.seen)


@pytest.mark.parametrize("coding", [b"xchunked", b"gzip, chunked"])
async def test_a_coding_beside_chunks_is_not_ignored(coding):
    async with gateway(whole) as made, made.client() as client:
        await client.send(HEAD + b"Transfer-Encoding: %b\r\n\r\n0\r\n\r\n" % coding)
        assert (await client.answer()).status == 501
        assert await client.is_ended()
    assert not made.seen


@pytest.mark.parametrize(
    "begin",
    [
        HEAD + b"A: ",
        b"GET /",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nA: ",
    ],
    ids=["header", "path", "extension", "trailer"],
)
async def test_an_endless_line_is_cut_soon(begin):
    async with gateway(whole) as made, made.client() as client:
        await client.send(begin)
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 20 * LINGER_BYTES_MAX and not client.reader.at_eof():
                await client.send(b"a" * 16384)
                sent += 16384
        assert sent < 20 * LINGER_BYTES_MAX
        await eventually(lambda: made.traffic.refused)


async def test_chunks_of_a_byte_are_refused():
    async with gateway(whole) as made, made.client() as client:
        await client.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 5000)
        assert await client.reader.read() == b""
    assert made.traffic.refused


async def test_a_long_pipeline_is_not_taken():
    async with gateway(early) as made, made.client() as client:
        await client.send(GET * (PIPELINED_MAX + 3))
        for _ in range(PIPELINED_MAX + 1):
            assert (await client.answer()).status == 403
        assert await client.is_ended()
        assert len(made.seen) == PIPELINED_MAX + 1


async def test_bytes_behind_the_last_request_are_no_request():
    last = b"GET /last HTTP/1.1\r\nHost: s3\r\nConnection: close\r\n\r\n"
    async with gateway(early) as made, made.client() as client:
        assert (await client.ask(last + GET)).status == 403
        assert await client.is_ended()
    assert [request.raw_path for request in made.seen] == [b"/last"]


async def test_a_body_that_nobody_reads_stops_the_peer():
    """The buffers of the kernel and of the gateway hold some MB, and no more."""
    hold = asyncio.Event()

    async def held(request):
        await hold.wait()
        return await whole(request)

    size = 64 * 1024 * 1024
    async with gateway(held) as made, made.client() as client:
        sending = asyncio.create_task(client.send(PUT % (size, b"") + b"z" * size))
        await eventually(lambda: made.seen and made.seen[0].body.is_full)
        await asyncio.sleep(0.05)
        assert made.seen[0].body.received < BODY_BUFFER_BYTES + 2 * 65536
        hold.set()
        await sending
        assert len((await client.answer()).body) == size


# -- slow and gone peers ---------------------------------------------------------------------------


@pytest.fixture
def short_times(monkeypatch):
    monkeypatch.setattr(s3_connection, "HEAD_S", 0.1)
    monkeypatch.setattr(s3_connection, "KEEP_ALIVE_S", 0.1)
    monkeypatch.setattr(s3_connection, "LINGER_S", 0.1)
    monkeypatch.setattr(request_body, "BODY_IDLE_S", 0.1)
    monkeypatch.setattr(http_exchange, "BODY_IDLE_S", 0.1)


@pytest.mark.parametrize("begin", [b"", b"GET /b/k HT", GET], ids=["nothing", "half", "idle"])
@pytest.mark.usefixtures("short_times")
async def test_a_silent_peer_is_cut(begin):
    async with gateway(early) as made, made.client() as client:
        await client.send(begin)
        await client.is_ended()
        await eventually(lambda: made.listener.connections == 0)


@pytest.mark.usefixtures("short_times")
async def test_a_head_that_drips_is_cut():
    async with gateway(early) as made, made.client() as client:
        await eventually(lambda: made.listener.connections == 1)
        with contextlib.suppress(OSError):
            for letter in b"GET /" + 1000 * b"k":
                await client.send(bytes([letter]))
                await asyncio.sleep(0.01)
                if made.listener.connections == 0:
                    break
        assert made.listener.connections == 0


@pytest.mark.parametrize("drips", [False, True], ids=["silent", "drips"])
@pytest.mark.usefixtures("short_times")
async def test_a_body_that_does_not_come_is_an_error(drips):
    async with gateway(whole) as made, made.client() as client:
        await client.send(PUT % (10**6, b"") + b"a")

        async def drip():
            with contextlib.suppress(OSError):
                while drips:
                    await client.send(b"a")
                    await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        answer = await client.answer()
        assert (answer.status, b"RequestTimeout" in answer.body) == (400, True)
        await client.is_ended()
        dripping.cancel()


@pytest.mark.usefixtures("short_times")
async def test_a_peer_that_does_not_take_the_answer_is_cut():
    ended = asyncio.Event()

    async def endless(request):
        async def body():
            try:
                while True:
                    yield b"z" * 1024 * 1024
            finally:
                ended.set()

        return HttpResponse(200, [], body())

    async with gateway(endless) as made, made.client() as client:
        client.writer.transport.pause_reading()
        await client.send(GET)
        await ended.wait()
        await eventually(lambda: made.listener.connections == 0)


@pytest.mark.usefixtures("short_times")
async def test_a_rest_of_a_body_that_does_not_come_ends_the_connection():
    async with gateway(early) as made, made.client() as client:
        assert (await client.ask(PUT % (1000, b""))).status == 403
        assert await client.is_ended()


@pytest.mark.parametrize("sent", [GET, PUT % (100, b"") + b"half"], ids=["get", "put"])
async def test_a_peer_that_goes_away_cancels_the_request(sent):
    async def held(request):
        async for _ in request.body:
            pass
        await asyncio.Event().wait()

    async with gateway(held) as made:
        async with made.client() as client:
            await client.send(sent)
            await eventually(lambda: made.seen)
        await eventually(lambda: made.cancelled == 1)


# -- bounds of the process -------------------------------------------------------------------------


async def test_a_connection_too_many_takes_the_place_of_an_idle_one():
    async with (
        gateway(early, connections=2) as made,
        made.client() as oldest,
        made.client() as other,
    ):
        await oldest.ask(GET)
        await other.ask(GET)
        async with made.client() as third:
            assert (await third.ask(GET)).status == 403
            assert await oldest.is_ended()
            assert (await other.ask(GET)).status == 403


async def test_a_connection_too_many_takes_the_place_of_half_a_head():
    """Idle connections go first; the oldest half goes before the younger, and no request goes."""
    hold = asyncio.Event()

    async def held(request):
        await hold.wait()
        return HttpResponse(200, [], b"done")

    async with (
        gateway(held, connections=3) as made,
        made.client() as busy,
        made.client() as half,
        made.client() as younger,
    ):
        await busy.send(GET)
        await eventually(lambda: made.seen)
        for client, taken in ((half, 1), (younger, 2)):
            await client.send(GET[:5])
            await eventually(lambda taken=taken: len(made.listener._headless) == taken)
        async with made.client() as third:
            assert await half.is_ended()
            await younger.send(GET[5:])
            await third.send(GET)
            hold.set()
            for client in (busy, younger, third):
                assert (await client.answer()).body == b"done"


async def test_a_connection_too_many_is_told_to_slow_down():
    async def held(request):
        await asyncio.Event().wait()

    async with gateway(held, connections=1, end_s=0.01) as made, made.client() as first:
        await first.send(GET)
        await eventually(lambda: made.seen)
        async with made.client() as second:
            assert (await second.answer()).status == 503


async def test_an_address_makes_room_among_its_own_connections():
    """A rival's older idle connection stays, and so does its place."""
    async with (
        gateway(early, connections=4, address_connections=2) as made,
        made.client("127.0.0.2") as rival,
        made.client() as oldest,
        made.client() as other,
    ):
        for client in (rival, oldest, other):
            await client.ask(GET)
        async with made.client() as third:
            assert (await third.ask(GET)).status == 403
            assert await oldest.is_ended()
        for client in (rival, other):
            assert (await client.ask(GET)).status == 403
    await eventually(lambda: not made.listener._of_address)


async def test_connections_that_come_at_once_leave_no_place_taken():
    """All of them wait when the first is accepted, and some are cut before their first step."""
    async with gateway(early, connections=8, address_connections=2) as made:
        with contextlib.ExitStack() as ends:
            for _ in range(12):
                ends.enter_context(socket.create_connection(made.socket.getsockname()))
            async with made.client("127.0.0.2") as other:
                assert (await other.ask(GET)).status == 403
        await eventually(lambda: not made.listener._of_address)
        assert made.listener.connections == 0
        async with made.client() as client:
            assert (await client.ask(GET)).status == 403


async def test_an_address_with_requests_in_all_its_connections_is_told_to_slow_down():
    async def held(request):
        await asyncio.Event().wait()

    limits = {"connections": 4, "address_connections": 1, "end_s": 0.01}
    async with gateway(held, **limits) as made, made.client() as first:
        await first.send(GET)
        await eventually(lambda: made.seen)
        async with made.client() as second:
            assert (await second.answer()).status == 503
        async with made.client("127.0.0.2") as rival:
            await rival.send(GET)
            await eventually(lambda: len(made.seen) == 2)


async def test_the_end_waits_for_requests_at_work():
    hold = asyncio.Event()

    async def held(request):
        await hold.wait()
        return HttpResponse(200, [], b"done")

    async with gateway(held) as made, made.client() as busy, made.client() as idle:
        await busy.send(GET)
        await eventually(lambda: made.seen)
        closing = asyncio.create_task(made.listener.close())
        assert await idle.is_ended()
        hold.set()
        answer = await busy.answer()
        assert (answer.body, answer.headers["connection"]) == (b"done", "close")
        await closing
    with pytest.raises(OSError):  # noqa: PT011
        async with made.client() as late:
            await late.ask(GET)
