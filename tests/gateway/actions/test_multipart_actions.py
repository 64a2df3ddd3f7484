"""Multipart uploads: parts, etags, checksums, conditions, copies of parts, repeats, rivals."""

import asyncio
import hashlib

import pytest

from ares.gateway.signing.checksums import Algorithm
from tests.gateway.actions.conftest import body_of, sent

CREATE, PART, COPY_PART = "CreateMultipartUpload", "UploadPart", "UploadPartCopy"
COMPLETE, ABORT, PARTS = "CompleteMultipartUpload", "AbortMultipartUpload", "ListParts"
PUT, GET, HEAD = "PutObject", "GetObject", "HeadObject"
FIRST = bytes(range(256)) * 20_480
"""A part of 5 MiB, the shortest but for the last."""

LAST = b"the last part"


async def begun(gateway, key="k", headers=None):
    answer = await gateway(CREATE, "photos", key, headers=headers)
    assert answer.status == 200
    return {"uploadId": answer.text("UploadId")}


async def part(gateway, upload, number, data, key="k", **options):
    query = upload | {"partNumber": str(number)}
    answer = await gateway(PART, "photos", key, data, query=query, **options)
    assert answer.status == 200
    return answer


def document(*parts):
    """Return a document. A part: a number, an etag, and further elements."""
    found = "".join(
        f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag>{''.join(more)}</Part>"
        for number, etag, *more in parts
    )
    return f"<CompleteMultipartUpload>{found}</CompleteMultipartUpload>".encode()


@pytest.fixture
async def upload(gateway):
    """An upload with two parts, and the document that completes it."""
    upload = await begun(gateway, headers={"x-amz-meta-by": "me", "x-amz-tagging": "a=1"})
    last, first = (
        await part(gateway, upload, 7, LAST),
        await part(gateway, upload, 2, FIRST),
    )
    return upload, document((2, first.etag), (7, last.etag))


def md5_of_md5s(*parts):
    digests = b"".join(hashlib.md5(data, usedforsecurity=False).digest() for data in parts)
    return f'"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(parts)}"'


async def test_parts_become_an_object(gateway, rival, upload):
    query, body = upload
    done = await rival(COMPLETE, "photos", "k", body, query=query)
    assert (done.status, done.text("ETag")) == (200, md5_of_md5s(FIRST, LAST))
    got = await gateway(GET, "photos", "k")
    assert (got.body, got.etag) == (FIRST + LAST, md5_of_md5s(FIRST, LAST))
    assert (got.headers["x-amz-meta-by"], got.headers["x-amz-tagging-count"]) == ("me", "1")
    for number, data in ((1, FIRST), (2, LAST)):
        one = await gateway(GET, "photos", "k", query={"partNumber": str(number)})
        assert (one.status, one.body) == (206, data)
        assert one.headers["x-amz-mp-parts-count"] == "2"
    beyond = await gateway(HEAD, "photos", "k", query={"partNumber": "3"})
    assert (beyond.status, beyond.error) == (416, "InvalidPartNumber")
    wanted = {"x-amz-object-attributes": "ObjectParts,ObjectSize,ETag"}
    told = await gateway("GetObjectAttributes", "photos", "k", headers=wanted)
    assert told.texts("Size") == [str(len(FIRST)), str(len(LAST))]
    assert told.text("ObjectSize") == str(len(FIRST) + len(LAST))


async def test_an_object_without_parts_is_its_first_part(gateway):
    await gateway(PUT, "photos", "k", b"1")
    one = await gateway(GET, "photos", "k", query={"partNumber": "1"})
    assert (one.status, one.body, one.headers["content-range"]) == (206, b"1", "bytes 0-0/1")
    assert "x-amz-mp-parts-count" not in one.headers


async def test_a_repeated_completion_has_the_first_result(gateway, rival, upload):
    query, body = upload
    first = await gateway(COMPLETE, "photos", "k", body, query=query, headers=sent("one"))
    again = await rival(COMPLETE, "photos", "k", body, query=query, headers=sent("one", 2))
    assert (again.status, again.text("ETag")) == (200, first.text("ETag"))
    assert again.headers["x-ares-version"] == first.headers["x-ares-version"]
    other = await rival(COMPLETE, "photos", "k", body, query=query, headers=sent("two"))
    assert (other.status, other.error) == (404, "NoSuchUpload")


async def test_of_rival_completions_with_if_none_match_one_wins(gateway, rival):
    uploads = []
    for each in (gateway, rival) * 2:
        query = await begun(each)
        etag = (await part(each, query, 1, b"%d" % len(uploads))).etag
        uploads.append((each, query, document((1, etag))))
    answers = await asyncio.gather(
        *(
            each(COMPLETE, "photos", "k", body, query=query, headers={"if-none-match": "*"})
            for each, query, body in uploads
        )
    )
    assert sorted(answer.status for answer in answers) == [200, 412, 412, 412]
    left = await gateway("ListMultipartUploads", "photos")
    assert len(left.texts("UploadId")) == 3  # a lost condition ends no upload


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ([(7, 1), (2, 0)], "InvalidPartOrder"),
        ([(2, 0), (2, 0)], "InvalidPartOrder"),
        ([(2, 1)], "InvalidPart"),
        ([(3, 0)], "InvalidPart"),
        ([(2, 2)], "InvalidPart"),
        ([], "MalformedXML"),
    ],
    ids=str,
)
async def test_a_wrong_document_is_refused(gateway, upload, parts, error):
    query, body = upload
    etags = [hashlib.md5(data, usedforsecurity=False).hexdigest() for data in (FIRST, LAST)]
    etags.append("no-etag")
    wrong = document(*((number, etags[etag]) for number, etag in parts))
    answer = await gateway(COMPLETE, "photos", "k", wrong, query=query)
    assert (answer.status, answer.error) == (400, error)
    assert (await gateway(COMPLETE, "photos", "k", body, query=query)).status == 200


async def test_a_short_part_is_refused(gateway):
    query = await begun(gateway)
    etags = [(await part(gateway, query, number, LAST)).etag for number in (1, 2)]
    answer = await gateway(
        COMPLETE, "photos", "k", document((1, etags[0]), (2, etags[1])), query=query
    )
    assert (answer.status, answer.error) == (400, "EntityTooSmall")


async def test_an_aborted_upload_is_gone(gateway, upload):
    query, body = upload
    assert (await gateway(ABORT, "photos", "k", query=query)).status == 204
    for operation in (ABORT, PARTS, COMPLETE):
        answer = await gateway(operation, "photos", "k", body, query=query)
        assert (answer.status, answer.error) == (404, "NoSuchUpload")
    late = await gateway(PART, "photos", "k", b"1", query=query | {"partNumber": "1"})
    assert (late.status, late.error) == (404, "NoSuchUpload")
    odd = await gateway(ABORT, "photos", "k", query={"uploadId": "odd"})
    assert odd.error == "NoSuchUpload"


async def test_parts_in_pages(gateway, upload):
    query, _ = upload
    first = await gateway(PARTS, "photos", "k", query=query | {"max-parts": "1"})
    assert (first.texts("PartNumber"), first.text("IsTruncated")) == (["2"], "true")
    marker = {"part-number-marker": first.text("NextPartNumberMarker")}
    rest = await gateway(PARTS, "photos", "k", query=query | marker)
    assert (rest.texts("PartNumber"), rest.texts("Size")) == (["7"], [str(len(LAST))])


async def test_parts_are_copies_of_ranges(gateway):
    await gateway(PUT, "photos", "from", FIRST + LAST)
    query = await begun(gateway)
    source = {"x-amz-copy-source": "/photos/from"}
    ranges = [f"bytes=0-{len(FIRST) - 1}", f"bytes={len(FIRST)}-{len(FIRST) + len(LAST) - 1}"]
    etags = []
    for number, wanted in enumerate(ranges, 1):
        headers = source | {"x-amz-copy-source-range": wanted}
        copied = await gateway(
            COPY_PART, "photos", "k", query=query | {"partNumber": str(number)}, headers=headers
        )
        assert copied.status == 200
        etags.append(copied.text("ETag"))
    body = document(*enumerate(etags, 1))
    assert (await gateway(COMPLETE, "photos", "k", body, query=query)).status == 200
    assert (await gateway(GET, "photos", "k")).body == FIRST + LAST


async def test_copies_of_parts_that_fail(gateway, upload):
    await gateway(PUT, "photos", "from", b"0123456789")
    query = upload[0] | {"partNumber": "9"}
    cases = [
        ({"x-amz-copy-source-range": "bytes=5-10"}, 416, "InvalidRange"),
        ({"x-amz-copy-source-range": "bytes=5-"}, 400, "InvalidArgument"),
        ({"x-amz-copy-source-if-match": '"00"'}, 412, "PreconditionFailed"),
        ({"x-amz-copy-source": "/photos/absent"}, 404, "NoSuchKey"),
    ]
    for headers, status, error in cases:
        answer = await gateway(
            COPY_PART,
            "photos",
            "k",
            query=query,
            headers={"x-amz-copy-source": "/photos/from"} | headers,
        )
        assert (answer.status, answer.error) == (status, error)


@pytest.mark.parametrize("kind", ["COMPOSITE", "FULL_OBJECT"])
async def test_the_checksum_of_an_object_is_that_of_its_parts(gateway, kind):
    headers = {"x-amz-checksum-algorithm": "CRC32", "x-amz-checksum-type": kind}
    query = await begun(gateway, headers=headers)
    parts = []
    for number, data in ((1, FIRST), (2, LAST)):
        answer = await part(gateway, query, number, body_of(data, Algorithm.CRC32))
        value = answer.headers["x-amz-checksum-crc32"]
        parts.append((number, answer.etag, f"<ChecksumCRC32>{value}</ChecksumCRC32>"))
    wrong = [(1, parts[0][1], parts[1][2]), parts[1]]
    refused = await gateway(COMPLETE, "photos", "k", document(*wrong), query=query)
    assert (refused.status, refused.error) == (400, "InvalidPart")
    odd = {"x-amz-checksum-crc32": "AAAAAA=="}
    refused = await gateway(COMPLETE, "photos", "k", document(*parts), query=query, headers=odd)
    assert (refused.status, refused.error) == (400, "BadDigest")
    done = await gateway(COMPLETE, "photos", "k", document(*parts), query=query)
    got = await gateway(HEAD, "photos", "k", headers={"x-amz-checksum-mode": "ENABLED"})
    assert got.headers["x-amz-checksum-crc32"] == done.text("ChecksumCRC32")
    assert got.headers["x-amz-checksum-type"] == kind
    assert done.text("ChecksumCRC32").endswith("-2") == (kind == "COMPOSITE")
    if kind == "FULL_OBJECT":
        put = await gateway(PUT, "photos", "p", body_of(FIRST + LAST, Algorithm.CRC32))
        assert put.headers["x-amz-checksum-crc32"] == done.text("ChecksumCRC32")


async def test_a_copied_part_has_the_checksum_of_its_whole_source(gateway):
    headers = {"x-amz-checksum-algorithm": "CRC32", "x-amz-checksum-type": "FULL_OBJECT"}
    query = await begun(gateway, headers=headers)
    await gateway(PUT, "photos", "from", body_of(FIRST, Algorithm.CRC32))
    last = await part(gateway, query, 2, LAST)
    source = {"x-amz-copy-source": "/photos/from"}

    async def copied(**headers):
        answer = await gateway(
            *(COPY_PART, "photos", "k"),
            query=query | {"partNumber": "1"},
            headers=source | {name.replace("_", "-"): text for name, text in headers.items()},
        )
        return answer.texts("ETag") + answer.texts("ChecksumCRC32")

    assert len(await copied(x_amz_copy_source_range=f"bytes=1-{len(FIRST) - 1}")) == 1
    etag, checksum = await copied()
    parts = await gateway(PARTS, "photos", "k", query=query)
    assert parts.texts("ChecksumCRC32")[0] == checksum
    body = document((1, etag, f"<ChecksumCRC32>{checksum}</ChecksumCRC32>"), (2, last.etag))
    done = await gateway(COMPLETE, "photos", "k", body, query=query)
    put = await gateway(PUT, "photos", "p", body_of(FIRST + LAST, Algorithm.CRC32))
    assert done.text("ChecksumCRC32") == put.headers["x-amz-checksum-crc32"]
    again = await begun(gateway, headers=headers)
    query, source["x-amz-copy-source"] = again, "/photos/k"
    assert len(await copied()) == 1  # the checksum of parts may be no checksum of the bytes


async def test_a_part_needs_the_checksum_of_its_upload(gateway):
    query = await begun(gateway, headers={"x-amz-checksum-algorithm": "SHA256"})
    body = body_of(LAST, Algorithm.CRC32)
    answer = await gateway(PART, "photos", "k", body, query=query | {"partNumber": "1"})
    assert (answer.status, answer.error) == (400, "InvalidRequest")
    computed = await part(gateway, query, 1, LAST)
    assert computed.headers["x-amz-checksum-sha256"]


async def test_a_wrong_size_of_the_object_is_refused(gateway, upload):
    query, body = upload
    answer = await gateway(
        COMPLETE, "photos", "k", body, query=query, headers={"x-amz-mp-object-size": "1"}
    )
    assert (answer.status, answer.error) == (400, "InvalidRequest")
