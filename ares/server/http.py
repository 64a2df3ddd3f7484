"""A few pages over HTTP about this process, for probes and for Prometheus; answered by a thread of their own.

A thread, because a page must tell when the event loop that does the work is stuck. Bounded, because whoever reaches the address may ask: a small
number of connections at once, each for one small request and a few seconds. There are no secrets in what it shows, and nothing can be changed by it.
"""

import asyncio
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from msgspec import Struct

from ares.cluster.settings import split_address
from ares.model.errors import BadInput

CONNECTIONS_MAX = 16
HEAD_BYTES_MAX = 8 * 1024
REQUEST_S = 5.0
"""From the connection to the last byte of the answer."""

PLAIN = "text/plain; charset=utf-8"

_log = logging.getLogger(__name__)


class HttpPage(Struct, frozen=True):
    """An answer: HTTP status, content type, content."""

    status: int
    kind: str
    content: bytes


Answer = Callable[[], Awaitable[HttpPage]]
"""Makes a page, on the thread's own event loop."""


class HttpStatus:
    """Serves ``pages``, by path, at ``address`` (``host:port``) from :meth:`start` to :meth:`close`."""

    def __init__(self, address: str, pages: Mapping[str, Answer]) -> None:
        self._address = address
        self._pages = pages
        self._open = 0
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Raises :class:`BadInput` if the address cannot be listened on."""
        try:
            self._socket = socket.create_server(split_address(self._address), backlog=CONNECTIONS_MAX)
        except OSError as error:
            why = f"{error.strerror}; use an address of this machine with a port that no other program has, or leave it out"
            raise BadInput(f"http: cannot listen on {self._address}: {why}. Nothing was started") from error
        self._thread.start()

    def close(self) -> None:
        """Stop answering; idempotent."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(REQUEST_S)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._attend, sock=self._socket, limit=HEAD_BYTES_MAX)
        await self._ended.wait()
        server.close()
        waiting = asyncio.all_tasks() - {asyncio.current_task()}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request, and the end of the connection."""
        if self._open >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._open += 1
        try:
            async with asyncio.timeout(REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_rendered(head, await self._page(head)))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # too slow, too large, or gone: what it wanted is not known
        finally:
            self._open -= 1
            writer.transport.abort()

    async def _page(self, head: bytes) -> HttpPage:
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return HttpPage(HTTPStatus.METHOD_NOT_ALLOWED, PLAIN, b"only GET and HEAD: nothing can be changed here\n")
        answer = self._pages.get(path)
        if answer is None:
            return HttpPage(HTTPStatus.NOT_FOUND, PLAIN, f"there is {' and '.join(self._pages)}\n".encode())
        try:
            return await answer()
        except Exception:
            _log.exception("the page %s failed", path)
            return HttpPage(HTTPStatus.INTERNAL_SERVER_ERROR, PLAIN, b"the page failed: the log of the process has the details\n")


def _rendered(head: bytes, page: HttpPage) -> bytes:
    lines = [
        f"HTTP/1.1 {page.status} {HTTPStatus(page.status).phrase}",
        f"Content-Type: {page.kind}",
        f"Content-Length: {len(page.content)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    top = "\r\n".join([*lines, "", ""]).encode("ascii")
    return top if head.startswith(b"HEAD ") else top + page.content
