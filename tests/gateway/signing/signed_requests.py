"""Requests for the tests of signatures, and a signer apart from the code under test."""

import hashlib
import hmac
from collections.abc import AsyncIterator, Iterable

from ares.gateway.s3.exchange import Headers, HttpRequest, S3Operation, S3Request
from ares.gateway.signing.decoded_body import DecodedBody

ACCESS_KEY = "AKIAIOSFODNN7EXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
"""The key of the examples of AWS's documentation."""

REGION = "us-east-1"
STAMP = "20130524T000000Z"
SCOPE = f"20130524/{REGION}/s3/aws4_request"
EXAMPLE_TIME_S = 1_369_353_600
EMPTY_HASH = hashlib.sha256(b"").hexdigest()


async def in_pieces(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def inline(work):
    return work()


def http_request(
    method: str, url: str, headers: dict[str, str], pieces: Iterable[bytes] = ()
) -> HttpRequest:
    """Return a request as a server receives it; ``url``: encoded, with a host or not."""
    target = url if url.startswith("/") else "/" + url.split("/", 3)[3]
    path, _, query = target.partition("?")
    raw = tuple((name.encode(), value.encode("utf-8")) for name, value in headers.items())
    length = headers.get("Content-Length") or headers.get("content-length")
    return HttpRequest(
        method, path.encode(), query.encode(), Headers(raw), False, "",
        in_pieces(pieces), int(length) if length else None,
    )  # fmt: skip


def example(method: str, target: str, signature: str, **headers: str) -> HttpRequest:
    """Return a request of the examples: ``headers`` are signed, with underscores as hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    named = {"host": "examplebucket.s3.amazonaws.com", **named}
    if "date" not in named:
        named["x-amz-date"] = STAMP
    named.setdefault("x-amz-content-sha256", EMPTY_HASH)
    signed = ";".join(sorted(named))
    named["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{SCOPE},"
        f"SignedHeaders={signed},Signature={signature}"
    )
    return http_request(method, target, named)


def s3_request(http: HttpRequest, operation: S3Operation = S3Operation.PUT_OBJECT) -> S3Request:
    return S3Request(http, operation, "bucket", "key", {}, "1")


async def read(body: DecodedBody) -> bytes:
    return b"".join([piece async for piece in body])


def example_key(secret: str = SECRET) -> bytes:
    """Derive the signing key of the examples' day."""
    key = b"AWS4" + secret.encode()
    for part in SCOPE.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def example_signature(text: str) -> str:
    return hmac.new(example_key(), text.encode(), hashlib.sha256).hexdigest()


def signed_again(http: HttpRequest, canonical: str) -> HttpRequest:
    """Return the request with the signature of a canonical form written by the test."""
    text = f"AWS4-HMAC-SHA256\n{STAMP}\n{SCOPE}\n" + hashlib.sha256(canonical.encode()).hexdigest()
    *_, signed, _ = canonical.split("\n")
    told = (
        f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{SCOPE}, SignedHeaders={signed}, "
        f"Signature={example_signature(text)}"
    )
    http.headers = Headers((*http.headers.raw, (b"Authorization", told.encode())))
    return http


class ChunkSigner:
    """A signer of chunks. ``seed``: the signature before the first."""

    def __init__(self, seed: str) -> None:
        self.previous = seed

    def chunk(self, data: bytes) -> bytes:
        digest = hashlib.sha256(data).hexdigest()
        signature = self._next("PAYLOAD", f"{EMPTY_HASH}\n{digest}")
        end = b"\r\n" if data else b""
        return f"{len(data):x};chunk-signature={signature}\r\n".encode() + data + end

    def trailer(self, name: str, value: str) -> bytes:
        covered = hashlib.sha256(f"{name}:{value}\n".encode()).hexdigest()
        signature = self._next("TRAILER", covered)
        return f"{name}:{value}\r\nx-amz-trailer-signature:{signature}\r\n\r\n".encode()

    def _next(self, subject: str, covered: str) -> str:
        text = f"AWS4-HMAC-SHA256-{subject}\n{STAMP}\n{SCOPE}\n{self.previous}\n{covered}"
        self.previous = example_signature(text)
        return self.previous
