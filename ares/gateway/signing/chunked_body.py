"""The decoder of bodies in aws-chunked encoding, with signed or unsigned chunks and a trailer.

A chunk is ``size[;chunk-signature=SIGNATURE] CRLF data CRLF``, with the size in hexadecimal digits.
A last chunk without data ends the data; lines of a trailer may follow. Source: "Transferring
Payload in Multiple Chunks" and "Signature calculations for trailing headers" of Amazon S3's API
reference.
"""

import enum
import hashlib
import re

from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.gateway.signing.credential_scope import same_signature, signed_text
from ares.gateway.signing.payload_form import ChunkKey, PayloadForm, VerifiedPayload

CHUNK_BYTES_MIN = 8192
"""Bytes of a chunk that is not the last, at least: S3's limit bounds the work for a byte."""

_LINE_BYTES_MAX = 128
_TRAILER_BYTES_MAX = 1024
_EMPTY_SHA256 = hashlib.sha256().hexdigest()
_CHUNK_HEAD = re.compile(rb"([0-9a-fA-F]{1,16})(?:;chunk-signature=([0-9a-f]{64}))?\r\n")
_TRAILER_SIGNATURE = "x-amz-trailer-signature"


class _Expected(enum.Enum):
    """The next element of the encoding."""

    HEAD = enum.auto()
    DATA = enum.auto()
    DATA_END = enum.auto()
    TRAILER = enum.auto()


class _SignatureChain:
    """The signatures of chunks: each covers the one before."""

    def __init__(self, start: ChunkKey) -> None:
        self._key = start.key
        self._scope = f"{start.stamp}\n{start.scope}"
        self._previous = start.seed
        self._told = ""
        self._hash = hashlib.sha256()

    def begin(self, told: bytes) -> None:
        self._told = told.decode()
        self._hash = hashlib.sha256()

    def update(self, data: bytes) -> None:
        self._hash.update(data)

    def end(self) -> None:
        """Check the signature of a chunk. Raises :class:`S3Error`."""
        self._check("PAYLOAD", f"{_EMPTY_SHA256}\n{self._hash.hexdigest()}", self._told)

    def check_trailer(self, trailer: str, told: str) -> None:
        """Check the signature of a trailer, given in canonical form. Raises :class:`S3Error`."""
        self._check("TRAILER", hashlib.sha256(trailer.encode()).hexdigest(), told)

    def _check(self, subject: str, covered: str, told: str) -> None:
        text = f"AWS4-HMAC-SHA256-{subject}\n{self._scope}\n{self._previous}\n{covered}"
        calculated = signed_text(self._key, text)
        if not same_signature(calculated, told):
            raise S3Error(
                S3Code.SignatureDoesNotMatch,
                f"The signature of a chunk of the body ({subject.lower()}) does not match.",
                fields={"StringToSign": text, "SignatureProvided": told},
            )
        self._previous = calculated


class ChunkedDecoder:
    """The decoder of a body. ``length``: of the decoded body. ``trailer``: the announced header.

    Work and memory are linear in the bytes given; a chunk is not gathered.
    """

    def __init__(self, payload: VerifiedPayload, length: int, trailer: str) -> None:
        key = payload.chunk_key
        self._chain = None if key is None else _SignatureChain(key)
        self._with_trailer = payload.form is not PayloadForm.SIGNED_CHUNKS
        self._announced = trailer
        self._expected = _Expected.HEAD
        self._gathered = bytearray()
        """The beginning of a line, or the trailer."""
        self._data_left = 0
        self._length_left = length
        self._small_chunk: int | None = None
        """The size of a chunk that has to be the last."""

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the decoded bytes of a piece. Raises :class:`S3Error`."""
        decoded, at = [], 0
        while at < len(piece):
            match self._expected:
                case _Expected.DATA:
                    data = piece[at : at + self._data_left]
                    at += len(data)
                    decoded.append(data)
                    self._take_data(data)
                case _Expected.TRAILER:
                    self._gather(piece[at:], _TRAILER_BYTES_MAX)
                    at = len(piece)
                case _:
                    at = self._take_line(piece, at)
        return decoded

    def end(self) -> str:
        """Check the end of the body, and return the value of the announced trailer."""
        if self._expected is not _Expected.TRAILER or not self._gathered.endswith(b"\n"):
            raise _incomplete("ends before the last chunk's end")
        if self._length_left:
            raise _incomplete("is shorter than x-amz-decoded-content-length")
        if self._with_trailer:
            return self._trailer_value()
        if self._gathered != b"\r\n":
            raise _incomplete("has more bytes behind the last chunk")
        return ""

    def _gather(self, data: bytes, most: int) -> None:
        self._gathered += data
        if len(self._gathered) > most:
            raise _incomplete("has a line that is too long")

    def _take_line(self, piece: bytes, at: int) -> int:
        """Take bytes of a line; return the position behind."""
        stop = piece.find(b"\n", at, at + _LINE_BYTES_MAX) + 1
        self._gather(piece[at : stop or at + _LINE_BYTES_MAX + 1], _LINE_BYTES_MAX)
        if not stop:
            return len(piece)
        line = bytes(self._gathered)
        self._gathered.clear()
        if self._expected is _Expected.HEAD:
            self._take_head(line)
        elif line == b"\r\n":
            self._expected = _Expected.HEAD
        else:
            raise _incomplete("has a chunk that is longer than told")
        return stop

    def _take_head(self, line: bytes) -> None:
        found = _CHUNK_HEAD.fullmatch(line)
        if found is None or (found[2] is None) is not (self._chain is None):
            raise _incomplete("has a malformed head of a chunk")
        size = int(found[1], 16)
        if size and self._small_chunk is not None:
            raise S3Error(
                S3Code.InvalidChunkSizeError,
                "Only the last chunk is allowed to have a size less than 8192 bytes",
                fields={"BadChunkSize": str(self._small_chunk)},
            )
        if size > self._length_left:
            raise _incomplete("is longer than x-amz-decoded-content-length")
        self._small_chunk = size if size < CHUNK_BYTES_MIN else None
        self._length_left -= size
        self._data_left = size
        self._expected = _Expected.DATA if size else _Expected.TRAILER
        if self._chain is not None:
            self._chain.begin(found[2])
            if not size:
                self._chain.end()

    def _take_data(self, data: bytes) -> None:
        self._data_left -= len(data)
        if self._chain is not None:
            self._chain.update(data)
        if not self._data_left:
            if self._chain is not None:
                self._chain.end()
            self._expected = _Expected.DATA_END

    def _trailer_value(self) -> str:
        """Return the value of the announced trailer, and check the trailer's signature.

        Some clients end lines by LF alone, and put empty lines between.
        """
        told: dict[str, str] = {}
        for line in self._gathered.decode("latin-1").split("\n"):
            name, colon, value = line.strip("\r").partition(":")
            if not name and not colon:
                continue
            name = name.strip().lower()
            if name in told:
                raise _malformed_trailer()
            told[name] = value.strip()
        signature = told.pop(_TRAILER_SIGNATURE, "") if self._chain is not None else ""
        if list(told) != ([self._announced] if self._announced else []):
            raise _malformed_trailer()
        if self._chain is not None:
            canonical = "".join(f"{name}:{value}\n" for name, value in told.items())
            self._chain.check_trailer(canonical, signature)
        return told.get(self._announced, "")


def _incomplete(fault: str) -> S3Error:
    return S3Error(S3Code.IncompleteBody, f"The aws-chunked body {fault}.")


def _malformed_trailer() -> S3Error:
    return S3Error(
        S3Code.MalformedTrailerError,
        "The request contained trailing data that was not well-formed or did not conform to our "
        "published schema.",
    )
