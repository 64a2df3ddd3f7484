"""A connection of HTTP with signed requests: the least work a client of S3 can do.

An SDK computes longer for a request than a gateway. This client signs in its header, without a
digest of the body, as SDKs do on TLS, and reads the length of an answer only.
"""

import asyncio
import hashlib
import hmac
import time
from collections.abc import Mapping
from typing import NamedTuple

S3_REGION = "us-east-1"
_UNSIGNED = "UNSIGNED-PAYLOAD"
_PIECE_BYTES = 1 << 20


class S3Endpoint(NamedTuple):
    """A gateway, and an administrator's key."""

    host: str
    port: int
    access_key: str
    secret_key: str


class S3Answer(NamedTuple):
    """An answer without its body; ``etag`` is empty where there is none."""

    status: int
    etag: str
    length: int


class SignedConnection:
    """A connection, opened by the first request and again after a failure."""

    def __init__(self, endpoint: S3Endpoint) -> None:
        self._endpoint = endpoint
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._key = (b"", "")
        """The signing key of a day, and its day."""

    async def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        query: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> S3Answer:
        """Send a request, read its answer. Raises OSError or EOFError without a whole answer."""
        head = self._head(method, path, query, len(body), headers or {})
        try:
            if self._streams is None:
                where = (self._endpoint.host, self._endpoint.port)
                self._streams = await asyncio.open_connection(*where, limit=_PIECE_BYTES)
            reader, writer = self._streams
            writer.write(head + body if len(body) < _PIECE_BYTES else head)
            if len(body) >= _PIECE_BYTES:
                writer.write(body)
            await writer.drain()
            return await self._answer(reader, method)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _answer(self, reader: asyncio.StreamReader, method: str) -> S3Answer:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        found = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines[1:])
        }
        status, length = int(lines[0].split()[1]), int(found.get("content-length", 0))
        left = 0 if method == "HEAD" or status in (204, 304) else length
        while left:
            piece = await reader.read(min(left, _PIECE_BYTES))
            if not piece:
                raise EOFError("the answer was cut")
            left -= len(piece)
        if found.get("connection", "").lower() == "close":
            self.close()
        return S3Answer(status, found.get("etag", ""), length)

    def _head(
        self, method: str, path: str, query: str, length: int, more: Mapping[str, str]
    ) -> bytes:
        """Return the signed head of a request; ``path`` and ``query`` are encoded and sorted."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        headers = {
            "host": f"{self._endpoint.host}:{self._endpoint.port}",
            "x-amz-content-sha256": _UNSIGNED,
            "x-amz-date": stamp,
            **more,
        }
        names = sorted(headers)
        signed = ";".join(names)
        lines = "".join(f"{name}:{headers[name]}\n" for name in names)
        canonical = f"{method}\n{path}\n{query}\n{lines}\n{signed}\n{_UNSIGNED}"
        scope = f"{stamp[:8]}/{S3_REGION}/s3/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"
        signature = hmac.digest(self._signing_key(stamp[:8], scope), text.encode(), "sha256").hex()
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self._endpoint.access_key}/{scope}, "
            f"SignedHeaders={signed}, Signature={signature}"
        )
        headers["content-length"] = str(length)
        target = f"{path}?{query}" if query else path
        sent = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"{method} {target} HTTP/1.1\r\n{sent}\r\n".encode()

    def _signing_key(self, day: str, scope: str) -> bytes:
        if self._key[1] != day:
            key = f"AWS4{self._endpoint.secret_key}".encode()
            for word in scope.split("/"):
                key = hmac.digest(key, word.encode(), "sha256")
            self._key = (key, day)
        return self._key[0]
