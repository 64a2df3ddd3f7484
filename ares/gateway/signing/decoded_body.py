"""The decoded body of a request: an iterator with an end only if all checks hold.

A put commits behind the end of its body, and never commits a wrong body.
"""

import hashlib
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

from msgspec import Struct

from ares.gateway.s3.exchange import S3Operation, S3Request
from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.gateway.signing.checksum_headers import (
    ChecksumAsked,
    NamedValues,
    checksum_asked,
    md5_asked,
)
from ares.gateway.signing.checksums import Algorithm, ObjectChecksum, RunningDigest
from ares.gateway.signing.chunked_body import ChunkedDecoder
from ares.gateway.signing.payload_form import PayloadForm, VerifiedPayload

HASH_BATCH_BYTES = 1024**2
"""Bytes decoded and hashed at once in a thread: less costs more to hand over than to compute."""

LOOP_HASH_BYTES_MAX = 128 * 1024
"""Bytes hashed in the event loop, at most: 0.3 ms."""

_LENGTH_HEADER = "x-amz-decoded-content-length"
_LENGTH_DIGITS_MAX = 16

Aside = Callable[[Callable[[], list[bytes]]], Awaitable[list[bytes]]]
"""A way to run work beside the event loop: ``asyncio.to_thread``."""


class LengthRange(Struct, frozen=True):
    """The lengths, in bytes, allowed by the policy of a form. ``most``: None without a limit."""

    least: int = 0
    most: int | None = None


class BodyChecks(Struct):
    """The checks of a decoded body. ``declared``: its length, if told before the body."""

    declared: int | None = None
    lengths: LengthRange = LengthRange()
    decoder: ChunkedDecoder | None = None
    sha256: str = ""
    md5: bytes = b""
    asked: ChecksumAsked | None = None


class DecodedBody:
    """The decoded body, to be read once. ``length``, ``checksum``: final behind the end.

    Iteration raises :class:`S3Error` in place of its end if a check fails: BadDigest,
    XAmzContentSHA256Mismatch, IncompleteBody, SignatureDoesNotMatch, MalformedTrailerError.
    """

    def __init__(self, pieces: AsyncIterator[bytes], checks: BodyChecks, aside: Aside) -> None:
        self.declared = checks.declared
        self.length = 0
        self.checksum: ObjectChecksum | None = None
        self._pieces = pieces
        self._checks = checks
        self._aside = aside
        self._sha256 = hashlib.sha256() if checks.sha256 else None
        self._md5 = hashlib.md5(usedforsecurity=False) if checks.md5 else None
        self._algorithm = checks.asked.algorithm if checks.asked is not None else None

    def compute(self, algorithm: Algorithm) -> None:
        """Compute a checksum unless the client sends a checksum. Call before reading."""
        self._algorithm = self._algorithm or algorithm

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._decoded()

    async def _decoded(self) -> AsyncIterator[bytes]:
        running = None if self._algorithm is None else self._algorithm.begin()
        waiting: list[bytes] = []
        size = 0
        async for piece in self._pieces:
            waiting.append(piece)
            size += len(piece)
            if size >= HASH_BATCH_BYTES:
                for data in await self._aside(partial(self._take, waiting, running)):
                    yield data
                waiting, size = [], 0
        take = partial(self._take, waiting, running)
        last = take() if size <= LOOP_HASH_BYTES_MAX else await self._aside(take)
        self._check_end(running)
        for data in last:
            yield data

    def _take(self, pieces: list[bytes], running: RunningDigest | None) -> list[bytes]:
        """Decode and hash pieces; runs in a thread if they are large."""
        checks = self._checks
        if checks.decoder is not None:
            pieces = [data for piece in pieces for data in checks.decoder.feed(piece)]
        hashes = [each for each in (self._sha256, self._md5, running) if each is not None]
        for data in pieces:
            self.length += len(data)
            for running_hash in hashes:
                running_hash.update(data)
        most = checks.lengths.most
        if self.declared is not None and self.length > self.declared:
            raise S3Error(S3Code.IncompleteBody)
        if most is not None and self.length > most:
            raise S3Error(
                S3Code.EntityTooLarge,
                "Your proposed upload exceeds the maximum allowed size",
                fields={"MaxSizeAllowed": str(most)},
            )
        return pieces

    def _check_end(self, running: RunningDigest | None) -> None:
        checks = self._checks
        trailer = checks.decoder.end() if checks.decoder is not None else ""
        if self.declared not in (None, self.length):
            raise S3Error(S3Code.IncompleteBody)
        if self.length < checks.lengths.least:
            raise S3Error(
                S3Code.EntityTooSmall,
                "Your proposed upload is smaller than the minimum allowed size",
                fields={"MinSizeAllowed": str(checks.lengths.least)},
            )
        if self._sha256 is not None and self._sha256.hexdigest() != checks.sha256:
            raise S3Error(
                S3Code.XAmzContentSHA256Mismatch,
                "The provided 'x-amz-content-sha256' header does not match what was computed.",
                fields={
                    "ClientComputedContentSHA256": checks.sha256,
                    "S3ComputedContentSHA256": self._sha256.hexdigest(),
                },
            )
        if self._md5 is not None and self._md5.digest() != checks.md5:
            raise S3Error(
                S3Code.BadDigest,
                "The Content-MD5 you specified did not match what we received.",
            )
        if running is not None and self._algorithm is not None:
            self._check_checksum(self._algorithm, running.digest(), trailer)

    def _check_checksum(self, algorithm: Algorithm, digest: bytes, trailer: str) -> None:
        asked = self._checks.asked
        if asked is not None:
            told = asked.value or trailer
            if not algorithm.has_form(told):
                raise S3Error(
                    S3Code.InvalidRequest,
                    f"Value for {algorithm.header} trailing header is invalid.",
                )
            if b64decode(told) != digest:
                raise S3Error(
                    S3Code.BadDigest,
                    f"The {algorithm.name} you specified did not match the calculated checksum.",
                )
        self.checksum = ObjectChecksum(algorithm, b64encode(digest).decode())


def decoded_body(request: S3Request, payload: VerifiedPayload, aside: Aside) -> DecodedBody:
    """Return the decoded body of a request. Raises :class:`S3Error` for wrong headers.

    A completed upload's header of a checksum is of the object, not of the body.
    """
    http = request.http
    headers, form = http.headers, payload.form
    completes = request.operation is S3Operation.COMPLETE_MULTIPART_UPLOAD
    with_trailer = form.chunked and form is not PayloadForm.SIGNED_CHUNKS
    asked = None if completes else checksum_asked(headers, with_trailer)
    checks = BodyChecks(http.content_length, sha256=payload.sha256)
    checks.md5, checks.asked = md5_asked(headers), asked
    if form.chunked:
        checks.declared = _decoded_length(headers)
        trailer = asked.algorithm.header if asked is not None and not asked.value else ""
        checks.decoder = ChunkedDecoder(payload, checks.declared, trailer)
    return DecodedBody(http.body, checks, aside)


def _decoded_length(headers: NamedValues) -> int:
    if _LENGTH_HEADER not in headers:
        raise S3Error(
            S3Code.MissingContentLength, f"You must provide the {_LENGTH_HEADER} HTTP header."
        )
    told = headers.get(_LENGTH_HEADER, "")
    if not (told.isascii() and told.isdecimal() and len(told) <= _LENGTH_DIGITS_MAX):
        raise S3Error(
            S3Code.InvalidArgument,
            f"The {_LENGTH_HEADER} header is no number of bytes.",
            fields={"ArgumentName": _LENGTH_HEADER, "ArgumentValue": told},
        )
    return int(told)
