"""Requests for tests, made without a server."""

from collections.abc import AsyncIterator

from ares.gateway.s3.exchange import Headers, HttpRequest, S3Request
from ares.gateway.s3.parsing import parse_request

SERVICE_NAMES = ("s3.example.org", "example.org")


async def no_body() -> AsyncIterator[bytes]:
    for piece in ():
        yield piece


def headers_of(**named: str) -> Headers:
    """Return headers; ``if_match`` stands for ``if-match``."""
    return Headers(
        tuple((name.replace("_", "-").encode(), text.encode()) for name, text in named.items())
    )


def http_request(target: str | bytes, method: str = "GET", headers: Headers | None = None):
    raw = target.encode() if isinstance(target, str) else target
    path, _, query = raw.partition(b"?")
    found = headers or headers_of(host="localhost:9000")
    return HttpRequest(method, path, query, found, False, "127.0.0.1", no_body(), 0)


def parsed(target: str | bytes, method: str = "GET", **headers: str) -> S3Request:
    named = {"host": "localhost:9000", **headers}
    return parse_request(http_request(target, method, headers_of(**named)), SERVICE_NAMES, "1")
