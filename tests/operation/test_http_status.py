"""The pages over HTTP: what is answered, and that nobody who asks can hold the process up (ares/server/monitor.py)."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from ares.model.errors import BadInput
from ares.server import monitor as http_status
from ares.server.monitor import CONNECTIONS_MAX, HEAD_BYTES_MAX, PLAIN, HttpPage, HttpStatus
from tests.ports import free_addresses


async def fine() -> HttpPage:
    return HttpPage(200, PLAIN, b"fine\n")


async def broken() -> HttpPage:
    raise RuntimeError("no page")


@pytest.fixture
def address() -> Iterator[str]:
    [address] = free_addresses(1)
    pages = HttpStatus(address, {"/health": fine, "/broken": broken})
    pages.start()
    yield address
    pages.close()


def connection(address: str) -> socket.socket:
    host, port = address.split(":")
    return socket.create_connection((host, int(port)), timeout=120)


def ask(address: str, request: bytes) -> bytes:
    with connection(address) as client:
        with contextlib.suppress(OSError):
            client.sendall(request)
        return everything(client)


def everything(client: socket.socket) -> bytes:
    """What comes until the connection ends, however it ends."""
    came = b""
    with contextlib.suppress(ConnectionError):
        while piece := client.recv(65536):
            came += piece
    return came


def test_a_page(address):
    answer = ask(address, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    head, _, content = answer.partition(b"\r\n\r\n")
    assert head.splitlines()[0] == b"HTTP/1.1 200 OK"
    assert b"Content-Length: 5" in head
    assert b"Connection: close" in head
    assert content == b"fine\n"
    assert ask(address, b"GET /health?probe=1 HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 OK")


def test_a_head_has_no_content(address):
    assert ask(address, b"HEAD /health HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"GET /../health HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"POST /health HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", b"405 Method Not Allowed"),
        (b"\x00\xff\r\n\r\n", b"405 Method Not Allowed"),
        (b"GET /broken HTTP/1.1\r\n\r\n", b"500 Internal Server Error"),
    ],
)
def test_what_is_no_page(address, request_, status):
    assert ask(address, request_).splitlines()[0] == b"HTTP/1.1 " + status
    assert b"200 OK" in ask(address, b"GET /health HTTP/1.1\r\n\r\n")


def test_a_request_that_never_ends_is_hung_up_on(address):
    assert ask(address, b"GET /health HTTP/1.1\r\n" + b"X: " + b"x" * 2 * HEAD_BYTES_MAX) == b""
    assert b"200 OK" in ask(address, b"GET /health HTTP/1.1\r\n\r\n")


def test_who_says_nothing_is_hung_up_on(address, monkeypatch):
    monkeypatch.setattr(http_status, "REQUEST_S", 0.05)
    assert ask(address, b"GET /hea") == b""
    monkeypatch.undo()  # or who is held up for a moment is hung up on, too
    assert b"200 OK" in ask(address, b"GET /health HTTP/1.1\r\n\r\n")


def test_no_more_than_a_few_at_once(address):
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connection(address)) for _ in range(CONNECTIONS_MAX)]
        assert ask(address, b"GET /health HTTP/1.1\r\n\r\n") == b""
        idle[0].sendall(b"GET /health HTTP/1.1\r\n\r\n")
        assert everything(idle[0]).startswith(b"HTTP/1.1 200 OK")
        assert b"200 OK" in ask(address, b"GET /health HTTP/1.1\r\n\r\n")


def test_an_address_that_is_taken_is_refused(address):
    with pytest.raises(
        BadInput,
        match=f"http: cannot listen on {address}: Address already in use.*Nothing was started",
    ):
        HttpStatus(address, {}).start()


def test_it_can_be_closed_with_somebody_waiting(address):
    [other] = free_addresses(1)
    asked = threading.Event()

    async def never():
        asked.set()
        await asyncio.sleep(3600)

    pages = HttpStatus(other, {"/never": never})
    pages.start()
    with connection(other) as client:
        client.sendall(b"GET /never HTTP/1.1\r\n\r\n")
        assert asked.wait(60)
        pages.close()
        pages.close()
        assert everything(client) == b""
