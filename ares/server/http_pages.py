"""Pages over HTTP, with bounds on connections, bytes, time and work.

Uvicorn keeps silent connections for ever, refuses new connections at its limit and bounds no work,
and h11 would only split the request line.

A thread makes the pages, because a page must tell that the event loop of the process is stuck. Each
connection carries one small request. The thread and the pages together take a tenth of a processor.
"""

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from msgspec import Struct

from ares.cluster.addresses import split_address
from ares.model.errors import BadInput
from ares.net.links import LISTEN_BACKLOG
from ares.platform import tasks

HTTP_CONNECTIONS_MAX = 128
HEAD_BYTES_MAX = 8 * 1024
REQUEST_S = 5.0
"""Time from the accepted connection to the last byte of the answer."""

HTTP_SLOW_S = 0.25
"""Age at which a connection gives its place to a new connection first."""

HTTP_SHARE = 0.08
"""Share of a processor for the thread."""

PAGE_SHARE = 0.05
"""Share of time for making a page, which the event loop of the process takes part in."""

HTTP_REST_S_MAX = 0.2
"""Longest rest of a page: the places hold all requests of a flood that the thread takes in it."""

BURST_S = 0.05
"""Processor time of the thread without a rest."""

HTTP_PAUSE_S_MAX = 1.0
ACCEPTS_AT_ONCE = 16

PLAIN_TYPE = "text/plain; charset=utf-8"

_log = logging.getLogger(__name__)


class HttpPage(Struct, frozen=True):
    """An answer: HTTP status, content type, content."""

    status: int
    kind: str
    content: bytes


Answer = Callable[[], Awaitable[HttpPage]]
"""A function that makes a page, on the thread's own event loop."""

_FAILED = HttpPage(
    HTTPStatus.INTERNAL_SERVER_ERROR,
    PLAIN_TYPE,
    b"the page failed: the log of the process has the details\n",
)
_ONLY_READ = HttpPage(
    HTTPStatus.METHOD_NOT_ALLOWED, PLAIN_TYPE, b"only GET and HEAD: nothing can be changed here\n"
)


class SharedPage:
    """A page for all waiting requests; after each making it rests in proportion."""

    def __init__(self, path: str, answer: Answer) -> None:
        self._path = path
        self._answer = answer
        self._turn = asyncio.Lock()
        self._coming: asyncio.Task[HttpPage] | None = None
        self._not_before_s = 0.0

    async def get(self) -> HttpPage:
        """Return a page that was begun after this call."""
        if self._coming is None:
            self._coming = tasks.begin(self._made(), "page over HTTP")
        return await asyncio.shield(self._coming)

    async def _made(self) -> HttpPage:
        async with self._turn:
            await asyncio.sleep(max(self._not_before_s - time.monotonic(), 0.0))
            self._coming = None  # a request from here on wants a later page
            begun_s = time.monotonic()
            try:
                return await self._answer()
            except Exception:
                _log.exception("the page %s failed", self._path)
                return _FAILED
            finally:
                now_s = time.monotonic()
                self._not_before_s = now_s + min((now_s - begun_s) / PAGE_SHARE, HTTP_REST_S_MAX)


class HttpConnection:
    """A connection, the received part of a request, and the answering task."""

    def __init__(self, taken: socket.socket, host: str) -> None:
        self.socket = taken
        self.descriptor = taken.fileno()
        """Number for the event loop, which describes a socket at length when looking it up."""
        self.local = host == "::1" or host.startswith(("127.", "::ffff:127."))
        self.since_s = time.monotonic()
        self.head = bytearray()
        self.asked = False
        """The request is complete."""
        self.task: asyncio.Task[None] | None = None
        self.end: asyncio.TimerHandle | None = None

    def worth(self, now_s: float) -> int:
        """Return the rank of a connection: the lowest gives its place, the oldest of equals."""
        return 4 * (now_s - self.since_s < HTTP_SLOW_S) + 2 * self.local + self.asked


class HttpStatus:
    """The server of `pages`, by path, at `address` (`host:port`) from `start` to `close`."""

    def __init__(self, address: str, pages: Mapping[str, Answer]) -> None:
        self._address = address
        self._pages = {path: SharedPage(path, answer) for path, answer in pages.items()}
        self._open: dict[HttpConnection, None] = {}
        """Connections by age, the oldest first."""
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._paid_s = 0.0
        """Processor time of the thread within its share, at `_paid_at_s`."""
        self._paid_at_s = 0.0

    def start(self) -> None:
        """Listen and answer. Raises `BadInput` if the address cannot be listened on."""
        try:
            self._socket = socket.create_server(
                split_address(self._address), backlog=LISTEN_BACKLOG
            )
        except OSError as error:
            why = (
                f"{error.strerror}; use an address of this machine with a port that no other "
                "program has, or leave it out"
            )
            raise BadInput(
                f"http: cannot listen on {self._address}: {why}. Nothing was started"
            ) from error
        self._socket.setblocking(False)
        self._thread.start()

    def close(self) -> None:
        """Stop answering; idempotent."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(REQUEST_S)

    def _run(self) -> None:
        with (
            tasks.supervised("thread of pages over HTTP"),
            asyncio.Runner(loop_factory=lambda: self._loop) as runner,
        ):
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop.set_exception_handler(tasks.report_escaped)
        self._paid_s, self._paid_at_s = time.thread_time(), time.monotonic()
        self._resume()
        await self._ended.wait()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for connection in list(self._open):
            self._drop(connection)

    # -- places and work ---------------------------------------------------------------------------

    def _resume(self) -> None:
        if not self._ended.is_set():
            self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        """Take connections, each in place of the least worth, and rest after much work."""
        pause_s = 0.0
        try:
            for _ in range(ACCEPTS_AT_ONCE):
                taken, address = self._socket.accept()
                self._take(taken, address[0])
        except BlockingIOError:
            pass
        except OSError as error:  # descriptors or memory run out
            _log.warning("no connection can be taken for /health now: %s", error.strerror)
            pause_s = HTTP_PAUSE_S_MAX
        pause_s = max(pause_s, self._debt_s() / HTTP_SHARE)
        if pause_s > 0:
            self._loop.remove_reader(self._socket)
            self._loop.call_later(min(pause_s, HTTP_PAUSE_S_MAX), self._resume)

    def _debt_s(self) -> float:
        """Return the processor time of the thread beyond its share and burst."""
        used_s, now_s = time.thread_time(), time.monotonic()
        self._paid_s += HTTP_SHARE * (now_s - self._paid_at_s)
        self._paid_s = min(self._paid_s, used_s + BURST_S)
        self._paid_at_s = now_s
        return used_s - self._paid_s

    def _take(self, taken: socket.socket, host: str) -> None:
        taken.setblocking(False)
        if len(self._open) >= HTTP_CONNECTIONS_MAX:
            now_s = time.monotonic()
            self._drop(min(self._open, key=lambda connection: connection.worth(now_s)))
        connection = HttpConnection(taken, host)
        self._open[connection] = None
        connection.end = self._loop.call_later(REQUEST_S, self._drop, connection)
        self._loop.add_reader(connection.descriptor, self._read, connection)
        self._read(connection)

    def _drop(self, connection: HttpConnection) -> None:
        """End a connection at any stage; idempotent."""
        if connection not in self._open:
            return
        del self._open[connection]
        if connection.end is not None:
            connection.end.cancel()
        if connection.task is not None:
            connection.task.cancel()
            self._loop.remove_writer(connection.descriptor)
        self._loop.remove_reader(connection.descriptor)
        connection.socket.close()

    # -- a request ---------------------------------------------------------------------------------

    def _read(self, connection: HttpConnection) -> None:
        try:
            came = connection.socket.recv(HEAD_BYTES_MAX + 1 - len(connection.head))
        except BlockingIOError:
            return
        except OSError:
            came = b""
        connection.head += came
        if b"\r\n\r\n" in connection.head:
            self._loop.remove_reader(connection.descriptor)
            connection.asked = True
            connection.task = tasks.begin(self._answer(connection), "answer over HTTP")
        elif not came or len(connection.head) > HEAD_BYTES_MAX:
            self._drop(connection)

    async def _answer(self, connection: HttpConnection) -> None:
        head = bytes(connection.head)
        with contextlib.suppress(OSError):
            await self._loop.sock_sendall(
                connection.socket, _rendered(head, await self._page(head))
            )
            connection.socket.shutdown(socket.SHUT_WR)
            connection.socket.recv(HEAD_BYTES_MAX)  # unread bytes would reset the connection
        connection.task = None
        self._drop(connection)

    async def _page(self, head: bytes) -> HttpPage:
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return _ONLY_READ
        page = self._pages.get(path)
        if page is None:
            there = f"there is {' and '.join(self._pages)}\n".encode()
            return HttpPage(HTTPStatus.NOT_FOUND, PLAIN_TYPE, there)
        return await page.get()


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
