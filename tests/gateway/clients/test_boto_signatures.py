"""Signatures: wrong, old, of another request; different bodies; chunks with signatures."""

import base64
import hashlib
import hmac
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from .s3_service import REGION, S3Service

pytestmark = [pytest.mark.process, pytest.mark.slow]

SIGNED_CHUNKS = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
SIGNED_CHUNKS_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
UNSIGNED_CHUNKS_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
NOTHING = hashlib.sha256(b"").hexdigest()


@pytest.fixture
def absent(s3: Any, bucket: str) -> Any:
    """Return a function that checks that nothing is in the bucket."""

    def check() -> None:
        assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0

    return check


def crc32(body: bytes) -> str:
    return base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()


def test_a_wrong_secret_is_refused(service: S3Service, bucket: str, absent: Any) -> None:
    wrong = S3Service(service.endpoints, service.access_key, service.secret_key[:-1] + "!")
    answer = wrong.send("PUT", f"/{bucket}/k", body=b"x")
    assert (answer.status, answer.code) == (403, "SignatureDoesNotMatch")
    absent()


@pytest.mark.parametrize("minutes", [-16, 16])
def test_a_clock_that_is_wrong_is_refused(
    service: S3Service, bucket: str, absent: Any, minutes: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        wrong = datetime.now(UTC) + timedelta(minutes=minutes)
        patch.setattr("botocore.auth.get_current_datetime", lambda: wrong)
        answer = service.send("PUT", f"/{bucket}/k", body=b"x")
    assert (answer.status, answer.code) == (403, "RequestTimeTooSkewed")
    absent()


def test_a_signature_holds_for_one_request(service: S3Service, bucket: str, absent: Any) -> None:
    signed = service.signed("PUT", f"/{bucket}/k", {"x-amz-meta-a": "1"}, b"x")
    for path, headers, body in (
        (f"/{bucket}/other", signed, b"x"),
        (f"/{bucket}/k?acl", signed, b"x"),
        (f"/{bucket}/k", signed | {"x-amz-meta-a": "2"}, b"x"),
    ):
        assert service.send_unsigned("PUT", path, headers, body).status == 403
    absent()
    assert service.send_unsigned("PUT", f"/{bucket}/k", signed, b"x").status == 200


def test_a_header_that_is_not_signed_is_refused(
    service: S3Service, bucket: str, absent: Any
) -> None:
    signed = service.signed("PUT", f"/{bucket}/k", {}, b"x")
    answer = service.send_unsigned("PUT", f"/{bucket}/k", signed | {"x-amz-acl": "private"}, b"x")
    assert (answer.status, answer.code) == (403, "AccessDenied")
    absent()


def test_another_body_is_refused(service: S3Service, bucket: str, absent: Any) -> None:
    signed = service.signed("PUT", f"/{bucket}/k", {}, b"x")
    answer = service.send_unsigned("PUT", f"/{bucket}/k", signed, b"y")
    assert (answer.status, answer.code) == (400, "XAmzContentSHA256Mismatch")
    absent()


def test_a_body_without_a_digest_is_stored(service: S3Service, s3: Any, bucket: str) -> None:
    answer = service.send("PUT", f"/{bucket}/k", body=b"x", payload="UNSIGNED-PAYLOAD")
    assert answer.status == 200
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"x"


def test_the_md5_of_a_body(service: S3Service, bucket: str, absent: Any) -> None:
    digest = base64.b64encode(hashlib.md5(b"x").digest()).decode()
    for value, code in ((digest[:-4] + "AA==", "BadDigest"), ("short", "InvalidDigest")):
        answer = service.send("PUT", f"/{bucket}/k", {"Content-MD5": value}, b"x")
        assert (answer.status, answer.code) == (400, code)
    absent()
    assert service.send("PUT", f"/{bucket}/k", {"Content-MD5": digest}, b"x").status == 200


def test_forms_of_authorization_that_are_refused(service: S3Service, bucket: str) -> None:
    for value in (
        "AWS AKID:c2lnbmF0dXJl",
        "AWS4-HMAC-SHA256 nonsense",
        "Bearer token",
        "Basic YQ==",
    ):
        answer = service.send_unsigned("GET", f"/{bucket}", {"Authorization": value})
        assert answer.status in (400, 403), value
        assert answer.code, value
    signed = service.signed("GET", f"/{bucket}")
    answer = service.send_unsigned("GET", f"/{bucket}?X-Amz-Signature=00", signed)
    assert answer.status == 400


def test_another_region_is_named(service: S3Service, bucket: str) -> None:
    signed = service.signed("GET", f"/{bucket}")
    signed["Authorization"] = signed["Authorization"].replace(REGION, "eu-moon-1")
    answer = service.send_unsigned("GET", f"/{bucket}", signed)
    assert (answer.status, answer.code) == (400, "AuthorizationHeaderMalformed")
    assert f"<Region>{REGION}</Region>".encode() in answer.body


# -- bodies in chunks ------------------------------------------------------------------------------


class Chunks:
    """A body in chunks, each signed with the signature before."""

    def __init__(
        self, service: S3Service, path: str, form: str, body: Sequence[bytes], trailer: str = ""
    ) -> None:
        self.service, self.path, self.form = service, path, form
        self.signed = "HMAC" in form
        headers = {
            "Content-Encoding": "aws-chunked",
            "x-amz-decoded-content-length": str(sum(map(len, body))),
        }
        if trailer:
            headers["x-amz-trailer"] = trailer.partition(":")[0]
        self.headers = service.signed("PUT", path, headers, payload=form)
        self.date = self.headers["X-Amz-Date"]
        self.last = self.headers["Authorization"].rpartition("Signature=")[2]
        self.pieces = [self._chunk(piece) for piece in (*body, b"")]
        if trailer:
            self.pieces.append(f"{trailer}\r\n".encode())
            if self.signed:
                digest = hashlib.sha256(f"{trailer}\n".encode()).hexdigest()
                self._sign("TRAILER", digest)
                self.pieces.append(f"x-amz-trailer-signature:{self.last}\r\n".encode())
        self.pieces.append(b"\r\n")

    def _chunk(self, piece: bytes) -> bytes:
        head = f"{len(piece):x}"
        if self.signed:
            self._sign("PAYLOAD", f"{NOTHING}\n{hashlib.sha256(piece).hexdigest()}")
            head += f";chunk-signature={self.last}"
        return head.encode() + b"\r\n" + piece + (b"\r\n" if piece else b"")

    def _sign(self, kind: str, digests: str) -> None:
        scope = f"{self.date[:8]}/{REGION}/s3/aws4_request"
        words = (f"AWS4-HMAC-SHA256-{kind}", self.date, scope, self.last, digests)
        key = f"AWS4{self.service.secret_key}".encode()
        for word in scope.split("/"):
            key = hmac.digest(key, word.encode(), hashlib.sha256)
        self.last = hmac.digest(key, "\n".join(words).encode(), hashlib.sha256).hex()

    def send(self, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
        body = b"".join(self.pieces)
        given = self.headers | dict(headers or {})
        answer = self.service.send_unsigned("PUT", self.path, given, body)
        return answer.status, answer.code


BODY = (b"a" * 65536, b"b" * 65536, b"c" * 100)
WHOLE = b"".join(BODY)
TRAILER = f"x-amz-checksum-crc32:{crc32(WHOLE)}"
FORMS = {
    "signed": (SIGNED_CHUNKS, ""),
    "signed_trailer": (SIGNED_CHUNKS_TRAILER, TRAILER),
    "trailer": (UNSIGNED_CHUNKS_TRAILER, TRAILER),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_body_in_chunks_is_stored(service: S3Service, s3: Any, bucket: str, name: str) -> None:
    form, trailer = FORMS[name]
    assert Chunks(service, f"/{bucket}/k", form, BODY, trailer).send() == (200, "")
    found = s3.get_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert found["Body"].read() == WHOLE
    assert "aws-chunked" not in found.get("ContentEncoding", "")
    if trailer:
        assert found["ChecksumCRC32"] == crc32(WHOLE)


@pytest.mark.parametrize("name", FORMS)
def test_an_empty_body_in_chunks_is_stored(
    service: S3Service, s3: Any, bucket: str, name: str
) -> None:
    form, trailer = FORMS[name]
    trailer = trailer and f"x-amz-checksum-crc32:{crc32(b'')}"
    assert Chunks(service, f"/{bucket}/k", form, (), trailer).send() == (200, "")
    assert s3.head_object(Bucket=bucket, Key="k")["ContentLength"] == 0


@pytest.mark.parametrize("number", range(4))
def test_a_chunk_with_a_wrong_signature_is_refused(
    service: S3Service, bucket: str, absent: Any, number: int
) -> None:
    chunks = Chunks(service, f"/{bucket}/k", SIGNED_CHUNKS, BODY)
    head, mark, rest = chunks.pieces[number].partition(b"signature=")
    other = b"0" if rest[:1] != b"0" else b"1"
    chunks.pieces[number] = head + mark + other + rest[1:]
    assert chunks.send() == (403, "SignatureDoesNotMatch")
    absent()


def test_chunks_in_another_order_are_refused(service: S3Service, bucket: str, absent: Any) -> None:
    chunks = Chunks(service, f"/{bucket}/k", SIGNED_CHUNKS, BODY)
    chunks.pieces[:2] = reversed(chunks.pieces[:2])
    assert chunks.send() == (403, "SignatureDoesNotMatch")
    absent()


def test_chunks_of_another_length_are_refused(service: S3Service, bucket: str, absent: Any) -> None:
    for pieces in (BODY[:2], (*BODY[:2], BODY[2] + b"more")):
        chunks = Chunks(service, f"/{bucket}/k", UNSIGNED_CHUNKS_TRAILER, BODY, TRAILER)
        sent = Chunks(service, f"/{bucket}/k", UNSIGNED_CHUNKS_TRAILER, pieces, TRAILER)
        chunks.pieces = sent.pieces
        status, code = chunks.send()
        assert (status, code) == (400, "IncompleteBody")
    absent()


@pytest.mark.parametrize("name", ["signed_trailer", "trailer"])
def test_a_wrong_trailer_is_refused(
    service: S3Service, bucket: str, absent: Any, name: str
) -> None:
    wrong = f"x-amz-checksum-crc32:{crc32(b'other')}"
    chunks = Chunks(service, f"/{bucket}/k", FORMS[name][0], BODY, wrong)
    assert chunks.send() in [(400, "BadDigest"), (400, "XAmzContentChecksumMismatch")]
    absent()


def test_a_trailer_that_is_missing_is_refused(service: S3Service, bucket: str, absent: Any) -> None:
    chunks = Chunks(service, f"/{bucket}/k", UNSIGNED_CHUNKS_TRAILER, BODY, TRAILER)
    chunks.pieces = [piece for piece in chunks.pieces if not piece.startswith(b"x-amz")]
    assert chunks.send()[0] == 400
    absent()


@pytest.mark.parametrize(
    "broken",
    [b"zz\r\nabc\r\n", b"-3\r\nabc\r\n", b"ffffffffffffffff\r\nabc\r\n", b"3\r\nabcd\r\n", b""],
    ids=["letters", "negative", "huge", "short", "nothing"],
)
def test_a_broken_chunk_is_refused(
    service: S3Service, bucket: str, absent: Any, broken: bytes
) -> None:
    chunks = Chunks(service, f"/{bucket}/k", UNSIGNED_CHUNKS_TRAILER, (b"abc",), TRAILER)
    chunks.pieces = [broken]
    assert 400 <= chunks.send()[0] < 500
    absent()
