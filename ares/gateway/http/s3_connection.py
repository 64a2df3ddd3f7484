"""A connection of the gateway: HTTP/1.1 by llhttp, with bounds on bytes, time and work.

httptools (llhttp) refuses ambiguous requests: both lengths of a body, repeated lengths, lines
without carriage return, spaces before a colon. httptools has no bounds: a header, a chunk's
extension or a trailer may be endless. This module has the bounds.

Uvicorn bounds neither: after an early answer it reads the body to the end, it holds all requests of
a pipeline, and waits for slow peers, in both directions, without an end.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol, cast

import httptools

from ares.gateway.http.gateway_limits import (
    HEAD_S,
    HTTP_HEAD_BYTES_MAX,
    HTTP_HEADERS_MAX,
    KEEP_ALIVE_S,
    LINGER_BYTES_MAX,
    LINGER_S,
    PIPELINED_MAX,
    SEND_SLICE_BYTES,
    TINY_CHUNK_BYTES,
    TINY_CHUNKS_MAX,
)
from ares.gateway.http.http_exchange import CONTINUE, ConnectionCut, HttpExchange
from ares.gateway.http.request_body import RequestBody
from ares.gateway.s3.exchange import Headers, HttpRequest
from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.platform import tasks

_log = logging.getLogger(__name__)

Serve = Callable[[HttpExchange], Awaitable[None]]
"""A function that answers a request."""


class ConnectionKeeper(Protocol):
    """The set of connections of a process."""

    serve: Serve

    read_buffer: memoryview
    """The buffer of all connections, used up in the turn of a read."""

    def opened(self, connection: "S3Connection") -> None: ...

    def idle(self, connection: "S3Connection") -> None: ...

    def head_begun(self, connection: "S3Connection") -> None: ...

    def head_ended(self, connection: "S3Connection") -> None: ...

    def refused(self, code: S3Code) -> None: ...

    def closed(self, connection: "S3Connection") -> None: ...


class RequestRefused(Exception):
    """A request beyond a bound; raised in the parser's callbacks, too."""

    def __init__(self, code: S3Code, message: str = "") -> None:
        super().__init__(message)
        self.code = code


class S3Connection(asyncio.BufferedProtocol):
    """A connection: requests in, answers out, one after the other."""

    def __init__(self, keeper: ConnectionKeeper) -> None:
        self._keeper = keeper
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self._exchanges: deque[HttpExchange] = deque()
        """Requests without a whole answer; the first one is at work."""
        self._arriving: HttpExchange | None = None
        """The request of the incoming body."""
        self._writable = asyncio.Event()
        self._writable.set()
        self._reads = True
        self._idle = False
        """Before the first byte of the next request."""
        self._ending = False
        """Further requests are not taken."""
        self._closing = False
        """Further answers are not written."""
        self._dropped_bytes = 0
        self._unframed_bytes = 0
        """Bytes since the last report of the parser."""
        self._new_head()

    # -- the transport -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=SEND_SLICE_BYTES)
        peer = transport.get_extra_info("peername")
        self.client = str(peer[0]) if isinstance(peer, tuple) else ""
        """Address of the peer, without the port."""
        self._secure = transport.get_extra_info("sslcontext") is not None
        self._keeper.opened(self)
        self._wait_for_request(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._set_timer(None)
        self._writable.set()
        for exchange in self._exchanges:
            if exchange.task is not None:
                exchange.task.cancel()
        self._exchanges.clear()
        del self._parser  # whose callbacks hold this connection
        self._keeper.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._keeper.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._closing or (self._ending and self._arriving is None):
            self._dropped_bytes += nbytes
            if self._dropped_bytes > LINGER_BYTES_MAX:
                self.cut()
            return
        if self._idle:
            self._idle = False
            self._set_timer(HEAD_S)
            self._keeper.head_begun(self)
        self._unframed_bytes += nbytes
        try:
            self._parser.feed_data(self._keeper.read_buffer[:nbytes])
            if self._unframed_bytes > HTTP_HEAD_BYTES_MAX:
                self._refuse(RequestRefused(S3Code.RequestHeaderSectionTooLarge))
        except httptools.HttpParserUpgrade:
            self.finish()  # the head was taken, and its answer is the last one
        except httptools.HttpParserError as error:
            self._failed(error)
        self._flow()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def write(self, data: bytes | memoryview) -> None:
        self._transport.write(data)

    async def drained(self) -> None:
        """Wait until the peer lacks a slice at most."""
        await self._writable.wait()

    async def flushed(self) -> None:
        """Wait until the kernel has all written bytes."""
        if self._transport.get_write_buffer_size():
            self._transport.set_write_buffer_limits(high=0)
            await self._writable.wait()
            self._transport.set_write_buffer_limits(high=SEND_SLICE_BYTES)

    def cut(self) -> None:
        """End the connection at once; unsent data is lost."""
        self._closing = True
        self._transport.abort()

    def _flow(self) -> None:
        """Read from the socket, unless a body waits for its reader, or a request for its turn."""
        full = self._arriving is not None and self._arriving.body.is_full
        reads = self._closing or not (full or len(self._exchanges) > 1)
        if reads != self._reads and not self._transport.is_closing():
            self._reads = reads
            (self._transport.resume_reading if reads else self._transport.pause_reading)()

    def _set_timer(self, seconds: float | None) -> None:
        """Cut the connection after ``seconds``, and forget the earlier time."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self._loop.call_later(seconds, self.cut)

    # -- the parser --------------------------------------------------------------------------------

    def _new_head(self) -> None:
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        """Headers, and trailers behind them."""
        self._head_bytes = 0
        self._chunks = 0

    def on_message_begin(self) -> None:
        self._unframed_bytes = 0
        self._new_head()

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._head_bytes += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))
        self._head_bytes += len(name) + len(value)
        if len(self._headers) > HTTP_HEADERS_MAX or self._head_bytes > HTTP_HEAD_BYTES_MAX:
            raise RequestRefused(S3Code.RequestHeaderSectionTooLarge)

    def on_headers_complete(self) -> None:
        self._unframed_bytes = 0
        if self._head_bytes > HTTP_HEAD_BYTES_MAX:
            raise RequestRefused(S3Code.RequestHeaderSectionTooLarge)
        if len(self._exchanges) > PIPELINED_MAX:
            raise RequestRefused(S3Code.SlowDown, "Too many requests wait for an answer.")
        self._set_timer(None)
        self._keeper.head_ended(self)
        exchange = self._arriving = self._new_exchange()
        self._exchanges.append(exchange)
        if len(self._exchanges) == 1:
            self._begin(exchange)

    def _new_exchange(self) -> HttpExchange:
        """Return the exchange of the complete head."""
        version = self._parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise RequestRefused(S3Code.BadRequest, f"HTTP/{version} is not spoken here.")
        headers = Headers(tuple(self._headers))
        self._check_framing(version, headers)
        declared = int(headers.get("content-length")) if "content-length" in headers else None
        length = None if "transfer-encoding" in headers else declared or 0
        upgrades = self._parser.should_upgrade()
        if upgrades and length != 0:  # the parser skips the body
            raise RequestRefused(S3Code.BadRequest, "A body does not go with a change of protocol.")
        waits = version == "1.1" and headers.get("expect").lower() == "100-continue"
        body = RequestBody(length, self._flow, (lambda: self.write(CONTINUE)) if waits else None)
        path, _, query = origin_form(self._url).partition(b"?")
        request = HttpRequest(
            method=self._parser.get_method().decode("ascii"),
            raw_path=path,
            raw_query=query,
            headers=headers,
            secure=self._secure,
            client=self.client,
            body=body,
            content_length=int(headers.get("content-length"))
            if "content-length" in headers
            else None,
        )
        keep_alive = self._parser.should_keep_alive() and not upgrades
        return HttpExchange(request, body, self, keep_alive, has_chunks=version == "1.1")

    def _check_framing(self, version: str, headers: Headers) -> None:
        """Refuse heads that a proxy may take for another request (RFC 9112, 3.2 and 6.1)."""
        hosts = sum(name.lower() == b"host" for name, _ in headers.raw)
        if hosts > 1 or (version == "1.1" and not hosts):
            raise RequestRefused(S3Code.BadRequest, "A request of HTTP/1.1 has one Host header.")
        if "transfer-encoding" not in headers:
            return
        if version != "1.1":
            raise RequestRefused(S3Code.BadRequest, "HTTP/1.0 has no Transfer-Encoding.")
        if headers.get("transfer-encoding").lower() != "chunked":
            raise RequestRefused(S3Code.NotImplemented, "A transfer coding is not spoken here.")

    def on_chunk_header(self) -> None:
        self._unframed_bytes = 0
        self._chunks += 1
        received = 0 if self._arriving is None else self._arriving.body.received
        if self._chunks > max(TINY_CHUNKS_MAX, received / TINY_CHUNK_BYTES):
            raise RequestRefused(S3Code.BadRequest, "The chunks of the body are too small.")

    def on_body(self, body: bytes) -> None:
        self._unframed_bytes = 0
        if self._arriving is not None:
            self._arriving.body.feed(body)

    def on_message_complete(self) -> None:
        self._unframed_bytes = 0
        arriving, self._arriving = self._arriving, None
        if arriving is not None:
            arriving.body.end()
            if arriving.complete:
                self._next()

    # -- requests, one after the other -------------------------------------------------------------

    def _begin(self, exchange: HttpExchange) -> None:
        exchange.task = tasks.begin(self._answer(exchange), "request of the gateway")

    async def _answer(self, exchange: HttpExchange) -> None:
        """Answer a request; cut the connection without a whole answer."""
        try:
            await self._keeper.serve(exchange)
        except ConnectionCut as error:
            _log.info("an answer was cut: %s", error)
        finally:
            if not exchange.complete:
                self.cut()

    def answered(self, exchange: HttpExchange) -> None:
        """Go on after a whole answer: with the rest of the body, the next request, or the end."""
        if self._closing:
            return
        if not exchange.keep_alive:
            self._linger()
        elif exchange.body.complete:
            self._next()
        else:
            exchange.body.drop()
            self._set_timer(LINGER_S)
            self._flow()

    def _next(self) -> None:
        self._exchanges.popleft()
        if self._exchanges:
            self._begin(self._exchanges[0])
        else:
            self._wait_for_request(KEEP_ALIVE_S)
        self._flow()

    def _wait_for_request(self, seconds: float) -> None:
        self._idle = True
        self._set_timer(seconds)
        self._keeper.idle(self)

    def _linger(self) -> None:
        """End the connection: drop received bytes for a short time, or until the peer's end."""
        self._closing = True
        self._exchanges.clear()
        self._set_timer(LINGER_S)
        if self._transport.can_write_eof():
            self._transport.write_eof()
            self._flow()
        else:
            self._transport.close()

    def finish(self) -> None:
        """End the connection after the taken requests; drop bytes behind them."""
        self._ending = True
        if self._exchanges:
            self._exchanges[-1].keep_alive = False
        else:
            self._linger()

    # -- requests that cannot be understood --------------------------------------------------------

    def _failed(self, error: httptools.HttpParserError) -> None:
        """Take an error of the parser, the last action of the parser."""
        cause = error.__context__
        if isinstance(cause, RequestRefused):
            self._refuse(cause)
        elif isinstance(error, httptools.HttpParserCallbackError):
            tasks.failures.report("a callback of the parser of HTTP", cause)
            self.cut()
        else:
            self._refuse(RequestRefused(S3Code.BadRequest, f"The request is malformed: {error}"))

    def _refuse(self, error: RequestRefused) -> None:
        """Answer that a request is refused, and end the connection.

        Earlier requests are answered, and the refused request is not: its bytes may be the rest of
        an earlier body. A broken body at work cuts the connection.
        """
        self._keeper.refused(error.code)
        if self._arriving is not None or self._closing:
            self.cut()
            return
        if not self._exchanges:
            self.write(rendered_refusal(error))
        self.finish()


def rendered_refusal(error: RequestRefused) -> bytes:
    """Return the whole answer to a refused request or connection."""
    document = S3Error(error.code, str(error)).xml("", "")
    head = (
        f"HTTP/1.1 {error.code.status} {error.code.name}\r\nServer: ares\r\n"
        f"Content-Type: application/xml\r\nContent-Length: {len(document)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("ascii") + document


def origin_form(url: bytes) -> bytes:
    """Return the path and query of a request's target, which proxies give with a host."""
    if url.startswith((b"http://", b"https://")):
        _, slash, rest = url.partition(b"://")[2].partition(b"/")
        url = slash + rest
    if not url.startswith(b"/") or b"#" in url:
        raise RequestRefused(S3Code.InvalidURI)
    return url
