"""Decoded bodies: an end only if all checks hold, and checksums of all algorithms."""

import hashlib
import tracemalloc
from base64 import b64encode

import pytest

from ares.gateway.s3.exchange import S3Operation
from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.gateway.signing.checksums import Algorithm
from ares.gateway.signing.decoded_body import (
    HASH_BATCH_BYTES,
    LOOP_HASH_BYTES_MAX,
    LengthRange,
    decoded_body,
)
from ares.gateway.signing.payload_form import PayloadForm, VerifiedPayload
from ares.gateway.signing.post_form import form_body
from tests.gateway.signing.signed_requests import http_request, in_pieces, inline, read, s3_request

DATA = b"0123456789" * 20_000
PLAIN = VerifiedPayload(PayloadForm.PLAIN)
CHUNKS = VerifiedPayload(PayloadForm.UNSIGNED_CHUNKS_TRAILER)


def base64(digest):
    return b64encode(digest).decode()


def checksum(algorithm, data=DATA):
    running = algorithm.begin()
    running.update(data)
    return base64(running.digest())


def body_of(headers, payload=PLAIN, data=DATA, operation=S3Operation.PUT_OBJECT, aside=inline):
    pieces = [data[start : start + 70_000] for start in range(0, len(data), 70_000)]
    http = http_request("PUT", "/bucket/key", headers, pieces)
    return decoded_body(s3_request(http, operation), payload, aside)


async def fault(body):
    """Return the code of the error in place of the end."""
    with pytest.raises(S3Error) as raised:
        await read(body)
    return raised.value.code


def refused(headers, payload=PLAIN):
    with pytest.raises(S3Error) as raised:
        body_of(headers, payload)
    return raised.value.code


@pytest.mark.parametrize("algorithm", Algorithm)
async def test_a_checksum_in_a_header_is_checked(algorithm):
    told = {algorithm.header: checksum(algorithm), "x-amz-sdk-checksum-algorithm": algorithm.name}
    body = body_of(told)
    assert await read(body) == DATA
    assert body.checksum is not None
    assert (body.checksum.algorithm, body.checksum.value) == (algorithm, checksum(algorithm))
    assert await fault(body_of(told, data=DATA[:-1])) is S3Code.BadDigest
    assert refused({algorithm.header: "abc"}) is S3Code.InvalidRequest
    assert refused({algorithm.header: checksum(algorithm) + "="}) is S3Code.InvalidRequest


@pytest.mark.parametrize("algorithm", Algorithm)
async def test_a_checksum_in_a_trailer_is_checked(algorithm):
    headers = {
        "x-amz-trailer": algorithm.header,
        "x-amz-decoded-content-length": str(len(DATA)),
        "x-amz-sdk-checksum-algorithm": algorithm.name,
    }
    for value, code in (
        (checksum(algorithm), None),
        (checksum(algorithm, b"x"), S3Code.BadDigest),
        ("abc", S3Code.InvalidRequest),
        ("", S3Code.InvalidRequest),
    ):
        trailer = f"{algorithm.header}:{value}\r\n\r\n".encode()
        encoded = b"%x\r\n%s\r\n0\r\n%s" % (len(DATA), DATA, trailer)
        body = body_of(headers, CHUNKS, encoded)
        if code is None:
            assert await read(body) == DATA
            assert body.checksum is not None
            assert body.checksum.value == value
        else:
            assert await fault(body) is code


async def test_the_hash_under_the_signature_is_checked():
    payload = VerifiedPayload(PayloadForm.PLAIN, hashlib.sha256(DATA).hexdigest())
    assert await read(body_of({}, payload)) == DATA
    assert await fault(body_of({}, payload, DATA + b"x")) is S3Code.XAmzContentSHA256Mismatch
    assert await fault(body_of({}, payload, b"")) is S3Code.XAmzContentSHA256Mismatch


async def test_content_md5_is_checked():
    told = {"content-md5": base64(hashlib.md5(DATA).digest())}
    assert await read(body_of(told)) == DATA
    assert await fault(body_of(told, data=DATA[1:])) is S3Code.BadDigest
    for wrong in ("", "abc", base64(b"15 bytes, not 16")[:-4], "é" * 24):
        assert refused({"content-md5": wrong}) is S3Code.InvalidDigest


async def test_the_length_is_checked():
    told = {"content-length": str(len(DATA))}
    body = body_of(told)
    assert body.declared == len(DATA)
    assert await read(body) == DATA
    assert body.length == len(DATA)
    for other in (DATA + b"x", DATA[:-1], b""):
        assert await fault(body_of(told, data=other)) is S3Code.IncompleteBody


async def test_a_body_longer_than_told_is_refused_before_its_end():
    taken = 0

    async def endless():
        nonlocal taken
        while True:
            taken += HASH_BATCH_BYTES
            yield b"x" * HASH_BATCH_BYTES

    http = http_request("PUT", "/bucket/key", {"content-length": "10"})
    http.body = endless()
    assert await fault(decoded_body(s3_request(http), PLAIN, inline)) is S3Code.IncompleteBody
    assert taken == HASH_BATCH_BYTES


async def test_chunks_need_their_decoded_length():
    assert refused({}, CHUNKS) is S3Code.MissingContentLength
    for wrong in ("", "-1", "1.0", "٣", "9" * 17):
        assert refused({"x-amz-decoded-content-length": wrong}, CHUNKS) is S3Code.InvalidArgument


@pytest.mark.parametrize(
    "headers",
    [
        {"x-amz-checksum-crc32": checksum(Algorithm.CRC32), "x-amz-checksum-sha1": "x"},
        {
            "x-amz-checksum-crc32": checksum(Algorithm.CRC32),
            "x-amz-checksum-sha1": checksum(Algorithm.SHA1),
        },
        {"x-amz-checksum-crc32": "YWJjZA==,YWJjZA=="},
        {"x-amz-trailer": "x-amz-checksum-crc32"},
        {"x-amz-trailer": "x-amz-meta-a"},
        {"x-amz-sdk-checksum-algorithm": "CRC32"},
        {
            "x-amz-sdk-checksum-algorithm": "SHA1",
            "x-amz-checksum-crc32": checksum(Algorithm.CRC32),
        },
        {
            "x-amz-sdk-checksum-algorithm": "MD5",
            "x-amz-checksum-crc32": checksum(Algorithm.CRC32),
        },
    ],
)
def test_contradictory_checksums_are_refused(headers):
    assert refused(headers) is S3Code.InvalidRequest


def test_one_trailer_is_announced_at_most():
    for announced in ("x-amz-checksum-crc32,x-amz-checksum-sha1", "x-amz-meta-a", "expires"):
        headers = {"x-amz-trailer": announced, "x-amz-decoded-content-length": "1"}
        assert refused(headers, CHUNKS) is S3Code.InvalidRequest
    headers = {"x-amz-trailer": "x-amz-checksum-crc32", "x-amz-decoded-content-length": "1"}
    headers["x-amz-checksum-sha1"] = checksum(Algorithm.SHA1)
    assert refused(headers, CHUNKS) is S3Code.InvalidRequest


async def test_the_checksum_of_a_completed_upload_is_not_of_the_body():
    told = {"x-amz-checksum-crc32": checksum(Algorithm.CRC32, b"the object")}
    body = body_of(told, operation=S3Operation.COMPLETE_MULTIPART_UPLOAD)
    assert await read(body) == DATA
    assert body.checksum is None


async def test_a_checksum_is_computed_for_a_part_without_one():
    body = body_of({})
    body.compute(Algorithm.CRC64NVME)
    await read(body)
    assert body.checksum is not None
    assert body.checksum.value == checksum(Algorithm.CRC64NVME)
    body = body_of({"x-amz-checksum-crc32": checksum(Algorithm.CRC32)})
    body.compute(Algorithm.CRC64NVME)
    await read(body)
    assert body.checksum is not None
    assert body.checksum.algorithm is Algorithm.CRC32


async def test_large_pieces_are_hashed_aside_and_no_data_precede_a_failed_end():
    sizes = []

    async def aside(work):
        done = work()
        sizes.append(sum(map(len, done)))
        return done

    data = b"z" * (2 * HASH_BATCH_BYTES + 3 * LOOP_HASH_BYTES_MAX)
    body = body_of({"content-md5": base64(hashlib.md5(data).digest())}, data=data, aside=aside)
    assert await read(body) == data
    assert sum(sizes) == len(data)
    assert min(sizes) > LOOP_HASH_BYTES_MAX
    small = body_of({"content-md5": base64(hashlib.md5(b"other").digest())}, data=b"small")
    with pytest.raises(S3Error):
        await anext(aiter(small))


async def test_the_memory_for_a_body_is_bounded():
    async def chunks():
        for _ in range(64):
            yield b"100000\r\n" + b"a" * 2**20 + b"\r\n"
        yield b"0\r\n\r\n"

    http = http_request("PUT", "/b/k", {"x-amz-decoded-content-length": str(64 * 2**20)})
    http.body = chunks()
    body = decoded_body(s3_request(http), CHUNKS, inline)
    tracemalloc.start()
    try:
        async for _ in body:
            pass
        assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    finally:
        tracemalloc.stop()
    assert body.length == 64 * 2**20


async def test_the_file_of_a_form_has_an_allowed_length():
    def file(data, **fields):
        return form_body(in_pieces([data]), fields, LengthRange(2, 4), inline)

    assert await read(file(b"abc")) == b"abc"
    assert await fault(file(b"a")) is S3Code.EntityTooSmall
    assert await fault(file(b"abcde")) is S3Code.EntityTooLarge
    told = {Algorithm.CRC32.header: checksum(Algorithm.CRC32, b"abc")}
    assert await read(file(b"abc", **told)) == b"abc"
    assert await fault(file(b"abd", **told)) is S3Code.BadDigest
