"""One request on a connection, and the sending of the answer."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Protocol

from ares.gateway.http.gateway_limits import BODY_IDLE_S, SEND_SLICE_BYTES
from ares.gateway.http.request_body import RequestBody
from ares.gateway.s3.exchange import HttpRequest, HttpResponse
from ares.model.errors import AresError

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_NO_BODY = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_VALUE = re.compile(r"[\t -~\x80-\xff]*")
_REASON_PHRASES = {status.value: status.phrase for status in HTTPStatus}


class ConnectionCut(AresError):
    """An incomplete answer: the peer, or the data, failed."""


class AnswerSink(Protocol):
    """The connection, as an exchange sees it."""

    def write(self, data: bytes | memoryview) -> None: ...

    async def drained(self) -> None: ...

    async def flushed(self) -> None: ...

    def answered(self, exchange: "HttpExchange") -> None: ...

    def cut(self) -> None: ...


class HttpExchange:
    """A request and its answer. ``keep_alive``: the peer wants to send further requests."""

    def __init__(
        self,
        request: HttpRequest,
        body: RequestBody,
        sink: AnswerSink,
        keep_alive: bool,
        has_chunks: bool,
    ) -> None:
        self.request = request
        self.body = body
        self.keep_alive = keep_alive
        self.begun = False
        """The head of the answer was written."""
        self.complete = False
        self.sent_bytes = 0
        self.status = 0
        self.task: asyncio.Task[None] | None = None
        self._sink = sink
        self._has_chunks = has_chunks
        """HTTP/1.1. In HTTP/1.0 a body without a length ends with the connection."""

    async def send(self, response: HttpResponse) -> None:
        """Send the answer, and wait until the peer has it.

        Raises :class:`ConnectionCut` if the body fails, or has another length than the head says:
        a part must not look whole. Before the first piece of a body with a length the error of the
        body is raised, and nothing was sent.
        """
        if isinstance(response.body, bytes):
            await self._send_whole(response, response.body)
        else:
            await self._send_pieces(response, response.body)
        await self._in_time(self._sink.flushed())
        self.complete = True
        self._sink.answered(self)

    async def _send_whole(self, response: HttpResponse, body: bytes) -> None:
        head = self.request.method == "HEAD"
        length = declared_length(response) if head else None
        if length is None and response.status not in _NO_BODY:
            length = len(body)
        told = b"" if head or response.status in _NO_BODY else body
        self._write(self._head(response, length) + told)

    async def _send_pieces(self, response: HttpResponse, body: AsyncIterator[bytes]) -> None:
        length = declared_length(response)
        async with _closing(body):
            if self.request.method == "HEAD" or response.status in _NO_BODY:
                self._write(self._head(response, length))
                return
            first = None if length is None else await anext(body, b"")
            self._write(self._head(response, length))
            left = length
            try:
                if first:
                    left = await self._send_piece(first, left)
                async for piece in body:
                    left = await self._send_piece(piece, left)
            except ConnectionCut:
                raise
            except Exception as error:
                raise ConnectionCut(f"the body of an answer failed: {error}") from error
            if left:
                raise ConnectionCut(f"a body lacks the last {left} of {length} bytes")
            if left is None and self._has_chunks:
                self._write(b"0\r\n\r\n")

    async def _send_piece(self, piece: bytes, left: int | None) -> int | None:
        """Send a piece in slices, each of which waits for the peer.

        ``left``: bytes of the body to come; None for a body without a length. Returns the rest.
        """
        view = memoryview(piece)
        if left is not None and len(view) > left:
            raise ConnectionCut("a body is longer than its head says")
        for start in range(0, len(view), SEND_SLICE_BYTES):
            part = view[start : start + SEND_SLICE_BYTES]
            if left is None and self._has_chunks:
                self._write(b"%x\r\n" % len(part))
                self._write(part)
                self._write(b"\r\n")
            else:
                self._write(part)
            await self._in_time(self._sink.drained())
        return None if left is None else left - len(view)

    def _write(self, data: bytes | memoryview) -> None:
        self.sent_bytes += len(data)
        self._sink.write(data)

    async def _in_time(self, taken: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(BODY_IDLE_S):
                await taken
        except TimeoutError:
            raise ConnectionCut("the peer does not take the answer") from None

    def _head(self, response: HttpResponse, length: int | None) -> bytes:
        """Return the head of the answer, and decide whether the connection stays open."""
        lines = [f"HTTP/1.1 {response.status} {_REASON_PHRASES.get(response.status, '')}"]
        for name, value in response.headers:
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
                raise ValueError(f"a header that HTTP cannot carry: {name!r}: {value!r}")
            if name.lower() != "content-length":
                lines.append(f"{name}: {value}")
        if length is not None:
            lines.append(f"Content-Length: {length}")
        elif response.status not in _NO_BODY and self.request.method != "HEAD":
            if self._has_chunks:
                lines.append("Transfer-Encoding: chunked")
            else:
                self.keep_alive = False
        self.keep_alive = self.keep_alive and self.body.ends_soon
        if not self.keep_alive:
            lines.append("Connection: close")
        self.begun, self.status = True, response.status
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


def declared_length(response: HttpResponse) -> int | None:
    """Return the length of the body that the headers name."""
    for name, value in response.headers:
        if name.lower() == "content-length":
            return int(value)
    return None


@asynccontextmanager
async def _closing(body: AsyncIterator[bytes]) -> AsyncIterator[None]:
    """Close an async generator at the end."""
    try:
        yield
    finally:
        if isinstance(body, AsyncGenerator):
            await body.aclose()
