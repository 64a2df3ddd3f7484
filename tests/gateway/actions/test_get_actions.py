"""Reads: ranges, parts, conditions, versions, markers, lost chunks, ends of sessions."""

import pytest

from ares.bucket.index_records import BLOB_CHUNK_BYTES
from ares.client.buckets.blob_store import BlobStore
from ares.client.buckets.bucket_errors import ChunkLost
from ares.client.buckets.bucket_index import BucketIndex
from ares.model.errors import Unavailable
from tests.gateway.actions.conftest import body_of
from tests.gateway.actions.test_put_actions import LARGE, stop_session, versioning

PUT, GET, HEAD = "PutObject", "GetObject", "HeadObject"


@pytest.mark.parametrize(
    ("wanted", "first", "last"),
    [
        ("bytes=0-0", 0, 0),
        ("bytes=5-", 5, len(LARGE) - 1),
        ("bytes=-3", len(LARGE) - 3, len(LARGE) - 1),
        (
            f"bytes={BLOB_CHUNK_BYTES - 2}-{BLOB_CHUNK_BYTES + 1}",
            BLOB_CHUNK_BYTES - 2,
            BLOB_CHUNK_BYTES + 1,
        ),
        ("bytes=9-99999999999", 9, len(LARGE) - 1),
    ],
)
async def test_a_range_is_answered(gateway, wanted, first, last):
    await gateway(PUT, "photos", "k", LARGE)
    got = await gateway(GET, "photos", "k", headers={"range": wanted})
    assert (got.status, got.body) == (206, LARGE[first : last + 1])
    assert got.headers["content-range"] == f"bytes {first}-{last}/{len(LARGE)}"
    head = await gateway(HEAD, "photos", "k", headers={"range": wanted})
    assert (head.status, head.headers["content-length"]) == (206, str(last + 1 - first))


async def test_ranges_without_bytes_and_several_ranges(gateway):
    await gateway(PUT, "photos", "k", b"0123456789")
    await gateway(PUT, "photos", "empty", b"")
    for key, wanted in (("k", "bytes=10-"), ("k", "bytes=-0"), ("empty", "bytes=0-")):
        answer = await gateway(GET, "photos", key, headers={"range": wanted})
        assert (answer.status, answer.error) == (416, "InvalidRange")
    assert answer.headers["content-range"] == "bytes */0"
    whole = await gateway(GET, "photos", "k", headers={"range": "bytes=0-1,4-5"})
    assert (whole.status, whole.body) == (200, b"0123456789")


async def test_conditions_have_the_precedence_of_http(gateway):
    put = await gateway(PUT, "photos", "k", b"1")
    modified = (await gateway(HEAD, "photos", "k")).headers["last-modified"]
    old, late = "Mon, 01 Jan 2001 00:00:00 GMT", "Fri, 01 Jan 2100 00:00:00 GMT"
    cases = [
        ({"if-match": put.etag}, 200),
        ({"if-match": '"00"'}, 412),
        ({"if-match": f'"00", {put.etag}'}, 200),
        ({"if-match": put.etag, "if-unmodified-since": old}, 200),
        ({"if-unmodified-since": old}, 412),
        ({"if-none-match": put.etag}, 304),
        ({"if-none-match": "*"}, 304),
        ({"if-none-match": '"00"', "if-modified-since": late}, 200),
        ({"if-none-match": put.etag, "if-modified-since": old}, 304),
        ({"if-modified-since": modified}, 304),
        ({"if-modified-since": old}, 200),
        ({"if-match": '"00"', "if-none-match": put.etag}, 412),
        ({"x-ares-if-version": put.headers["x-ares-version"]}, 200),
    ]
    for headers, status in cases:
        for operation in (GET, HEAD):
            answer = await gateway(operation, "photos", "k", headers=headers)
            assert (answer.status, headers) == (status, headers)
    assert answer.status == 200
    unchanged = await gateway(GET, "photos", "k", headers={"if-none-match": put.etag})
    assert unchanged.etag == put.etag


async def test_a_condition_on_an_absent_object_is_404(gateway):
    for headers in ({"if-match": "*"}, {"if-none-match": "*"}, {}):
        answer = await gateway(GET, "photos", "absent", headers=headers)
        assert (answer.status, answer.error) == (404, "NoSuchKey")


async def test_versions_and_markers(gateway):
    await versioning(gateway, "Enabled")
    put = await gateway(PUT, "photos", "k", b"1")
    deleted = await gateway("DeleteObject", "photos", "k")
    marker = deleted.headers["x-amz-version-id"]
    gone = await gateway(GET, "photos", "k")
    assert (gone.error, gone.headers["x-amz-delete-marker"]) == ("NoSuchKey", "true")
    assert gone.headers["x-amz-version-id"] == marker
    named = await gateway(HEAD, "photos", "k", query={"versionId": marker})
    assert (named.status, named.error) == (405, "MethodNotAllowed")
    first = put.headers["x-amz-version-id"]
    assert (await gateway(GET, "photos", "k", query={"versionId": first})).body == b"1"
    for version, error in (("99999", "NoSuchVersion"), ("null", "NoSuchVersion")):
        answer = await gateway(GET, "photos", "k", query={"versionId": version})
        assert (answer.status, answer.error) == (404, error)
    odd = await gateway(GET, "photos", "k", query={"versionId": "odd"})
    assert (odd.status, odd.error) == (400, "InvalidArgument")


async def test_headers_are_overridden_for_a_key_and_not_for_strangers(gateway):
    await gateway(PUT, "photos", "k", b"1", headers={"content-type": "text/plain"})
    query = {"response-content-type": "image/png", "response-cache-control": "no-cache"}
    got = await gateway(GET, "photos", "k", query=query)
    assert (got.headers["content-type"], got.headers["cache-control"]) == ("image/png", "no-cache")
    odd = await gateway(GET, "photos", "k", query={"response-content-type": "a\r\nb: c"})
    assert odd.status == 400
    gateway.access_key = ""
    assert (await gateway(GET, "photos", "k", query=query)).error == "InvalidRequest"


async def test_a_lost_chunk_cuts_the_answer(gateway, store):
    await gateway(PUT, "photos", "k", LARGE)
    blobs = await store.domain("s3/blobs")
    names = sorted([name async for name in blobs.list()])
    await BlobStore(blobs).drop(names[-1:], 10.0)
    answer = await gateway.response(GET, "photos", "k")
    assert (answer.status, dict(answer.headers)["Content-Length"]) == (200, str(len(LARGE)))
    assert await anext(answer.body) == LARGE[:BLOB_CHUNK_BYTES]
    with pytest.raises(ChunkLost):
        await anext(answer.body)


async def test_a_read_sees_what_was_answered_by_another_gateway(gateway, rival):
    for number in range(10):
        body = b"%d" % number * 4000
        await gateway(PUT, "photos", "k", body_of(body))
        assert (await rival(GET, "photos", "k")).body == body


async def test_an_open_read_keeps_its_version(gateway, rival):
    await gateway(PUT, "photos", "k", LARGE)
    answer = await rival.response(GET, "photos", "k")
    first = await anext(answer.body)
    await gateway(PUT, "photos", "k", b"new")
    rest = b"".join([piece async for piece in answer.body])
    assert first + rest == LARGE


async def test_a_read_goes_on_in_the_next_session(gateway, rival):
    await gateway(PUT, "photos", "k", LARGE)
    await stop_session(gateway, rival)
    assert (await gateway(GET, "photos", "k")).body == LARGE


@pytest.mark.parametrize(
    ("operation", "key", "query"),
    [
        *((each, "k", {}) for each in (GET, HEAD, "GetObjectTagging", "GetObjectAcl")),
        *((each, "", {}) for each in ("ListObjects", "ListObjectsV2", "ListObjectVersions")),
        *((each, "", {}) for each in ("ListMultipartUploads", "HeadBucket", "GetBucketAcl")),
        *((each, "", {}) for each in ("GetBucketVersioning", "GetBucketTagging", "ListBuckets")),
        ("GetObjectAttributes", "k", {}),
        ("ListParts", "k", {"uploadId": "1"}),
        ("Watch", "", {}),
    ],
    ids=str,
)
async def test_no_read_is_answered_without_a_look_at_the_log(
    gateway, monkeypatch, operation, key, query
):
    await gateway(PUT, "photos", "k", b"1")

    async def no_tail(index, timeout_s):
        raise Unavailable(2, 1, {}, "the log told no tail")

    monkeypatch.setattr(BucketIndex, "verified", no_tail)
    headers = {"x-amz-object-attributes": "ETag"}
    answer = await gateway(operation, "photos", key, query=query, headers=headers)
    assert (answer.status, answer.error) == (503, "ServiceUnavailable")


async def test_a_version_made_after_the_first_look_is_read(gateway, rival, monkeypatch):
    """The read begins with the present entry; another gateway overwrites the object meanwhile."""
    await gateway(PUT, "photos", "k", b"old" * 3000)
    await rival(HEAD, "photos", "k")
    verified, written = BucketIndex.verified, []
    reader = await rival.services.buckets.index(10.0)

    async def overwritten_first(index, timeout_s):
        if index is reader and not written:
            written.append(await gateway(PUT, "photos", "k", b"new" * 3000))
        await verified(index, timeout_s)

    monkeypatch.setattr(BucketIndex, "verified", overwritten_first)
    got = await rival(GET, "photos", "k")
    assert (got.body, got.etag) == (b"new" * 3000, written[0].etag)


RULES = b"""<LifecycleConfiguration>
<Rule><ID>a b</ID><Status>Enabled</Status><Filter><Prefix>logs/</Prefix></Filter>
<Expiration><Date>2040-01-01T00:00:00Z</Date></Expiration></Rule>
<Rule><Status>Disabled</Status><Filter><Prefix></Prefix></Filter>
<Expiration><Date>2030-01-01T00:00:00Z</Date></Expiration></Rule>
<Rule><ID>days</ID><Status>Enabled</Status><Filter><Prefix>tmp/</Prefix></Filter>
<Expiration><Days>1</Days></Expiration></Rule>
</LifecycleConfiguration>"""
EXPIRATION = 'expiry-date="Sun, 01 Jan 2040 00:00:00 GMT", rule-id="a%20b"'


async def test_the_expiration_of_the_newest_version_is_told(gateway, rival):
    await versioning(gateway, "Enabled")
    assert (await gateway("PutBucketLifecycleConfiguration", "photos", body=RULES)).status == 200
    for key, expiration in (("logs/k", EXPIRATION), ("other", None)):
        put = await gateway(PUT, "photos", key, b"1")
        answers = [put, await rival(GET, "photos", key), await rival(HEAD, "photos", key)]
        found = [each.headers.get("x-amz-expiration") for each in answers]
        assert found == [expiration] * 3
    source = {"x-amz-copy-source": "/photos/other"}
    copied = await gateway("CopyObject", "photos", "logs/k", headers=source)
    assert copied.headers["x-amz-expiration"] == EXPIRATION
    old = {"versionId": (await gateway(PUT, "photos", "logs/k")).headers["x-amz-version-id"]}
    assert "x-amz-expiration" in (await rival(HEAD, "photos", "logs/k", query=old)).headers
    await gateway(PUT, "photos", "logs/k", b"new")
    assert "x-amz-expiration" not in (await rival(HEAD, "photos", "logs/k", query=old)).headers
    days = (await gateway(PUT, "photos", "tmp/k")).headers["x-amz-expiration"]
    assert days.endswith(' 00:00:00 GMT", rule-id="days"')
