"""The pages over HTTP: their content, and bounds that keep a client from blocking the process.

See ares/server/http_pages.py.
"""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from ares.model.errors import BadInput
from ares.server import http_pages as http_status
from ares.server.http_pages import (
    HEAD_BYTES_MAX,
    HTTP_CONNECTIONS_MAX,
    PLAIN_TYPE,
    HttpPage,
    HttpStatus,
)
from tests.ports import free_addresses


async def fine() -> HttpPage:
    return HttpPage(200, PLAIN_TYPE, b"fine\n")


async def broken() -> HttpPage:
    raise RuntimeError("no page")


@pytest.fixture
def address() -> Iterator[str]:
    [address] = free_addresses(1)
    pages = HttpStatus(address, {"/health": fine, "/broken": broken})
    pages.start()
    yield address
    pages.close()


NOW_S = 1000.0


def connection(address: str) -> socket.socket:
    host, port = address.split(":")
    return socket.create_connection((host, int(port)), timeout=120)


def ask(address: str, request: bytes) -> bytes:
    with connection(address) as client:
        with contextlib.suppress(OSError):
            client.sendall(request)
        return everything(client)


def everything(client: socket.socket) -> bytes:
    """Return all data until the connection ends, in any way."""
    came = b""
    with contextlib.suppress(ConnectionError):
        while piece := client.recv(65536):
            came += piece
    return came


def test_a_page_is_answered_in_http(address):
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


def test_a_silent_http_client_is_disconnected(address, monkeypatch):
    monkeypatch.setattr(http_status, "REQUEST_S", 0.05)
    assert ask(address, b"GET /hea") == b""
    monkeypatch.undo()  # otherwise the server hangs up on a client that is delayed for a moment
    assert b"200 OK" in ask(address, b"GET /health HTTP/1.1\r\n\r\n")


PROBES = 55
ASKED = b"GET /health HTTP/1.1\r\n\r\n"


@pytest.mark.parametrize("head", [b"", b"GET /health HTTP/1.1\r\nX: "], ids=["silent", "slow"])
@pytest.mark.parametrize("count", [16, 100, 1000])
def test_slow_connections_keep_no_probe_out(address, count, head):
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            slow = stack.enter_context(connection(address))
            with contextlib.suppress(OSError):  # the place of the connection may be gone already
                slow.sendall(head)
        for _ in range(PROBES):
            assert ask(address, ASKED).startswith(b"HTTP/1.1 200 OK")


def test_the_oldest_gives_its_place_to_a_new_connection(address):
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connection(address)) for _ in range(HTTP_CONNECTIONS_MAX)]
        assert ask(address, ASKED).startswith(b"HTTP/1.1 200 OK")
        assert everything(idle[0]) == b""
        idle[-1].sendall(ASKED)
        assert everything(idle[-1]).startswith(b"HTTP/1.1 200 OK")


def test_slow_ones_go_first_then_distant_ones_then_silent_ones_then_old_ones():
    def made(host: str, age_s: float, asked: bool = False) -> http_status.HttpConnection:
        one = http_status.HttpConnection(socket.socket(), host)
        one.socket.close()
        one.since_s, one.asked = NOW_S - age_s, asked
        return one

    slow = 2 * http_status.HTTP_SLOW_S
    order = [
        made("10.0.0.1", slow + 1),
        made("10.0.0.1", slow, asked=True),
        made("::1", slow),
        made("fe80::1%eth0", 0.02),
        made("10.0.0.1", 0.01),
        made("10.0.0.1", 0.02, asked=True),
        made("127.0.0.1", 0.02),
        made("127.0.0.1", 0.01),
        made("127.0.0.1", 0.02, asked=True),
    ]
    assert [one.worth(NOW_S) for one in order] == [0, 1, 2, 4, 4, 5, 6, 6, 7]


def test_a_flood_of_requests_takes_a_small_share_of_a_processor(address):
    """The thread's processor time counts, which a busy machine does not add to."""
    [thread] = [each for each in threading.enumerate() if each.name == "http"]
    clock = time.pthread_getcpuclockid(thread.ident)
    used_s, begun_s = time.clock_gettime(clock), time.monotonic()
    while time.monotonic() < begun_s + 2:
        assert ask(address, ASKED).startswith(b"HTTP/1.1 200 OK")
    used_s, took_s = time.clock_gettime(clock) - used_s, time.monotonic() - begun_s
    assert used_s <= 0.1 * took_s + http_status.BURST_S


async def test_requests_that_wait_share_a_page_that_was_begun_after_them():
    begun, started, go = 0, asyncio.Event(), asyncio.Event()

    async def answer() -> HttpPage:
        nonlocal begun
        begun += 1
        number = begun
        started.set()
        await go.wait()
        return HttpPage(200, PLAIN_TYPE, b"%d" % number)

    page = http_status.SharedPage("/health", answer)
    first = asyncio.create_task(page.get())
    await started.wait()
    later = [asyncio.create_task(page.get()) for _ in range(50)]
    await asyncio.sleep(0.01)
    go.set()
    assert (await first).content == b"1"
    assert {each.content for each in await asyncio.gather(*later)} == {b"2"}


async def test_a_page_rests_in_proportion_to_the_time_that_it_took():
    async def answer() -> HttpPage:
        await asyncio.sleep(0.005)
        return HttpPage(200, PLAIN_TYPE, b"")

    page, begun_s = http_status.SharedPage("/metrics", answer), time.monotonic()
    for _ in range(4):
        await page.get()
    assert time.monotonic() - begun_s >= 3 * 0.005 / http_status.PAGE_SHARE


def test_an_address_that_is_taken_is_refused(address):
    with pytest.raises(
        BadInput,
        match=f"http: cannot listen on {address}: Address already in use.*Nothing was started",
    ):
        HttpStatus(address, {}).start()


def test_the_status_server_can_be_closed_with_a_waiting_client(address):
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
