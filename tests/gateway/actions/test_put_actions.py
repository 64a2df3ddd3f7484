"""Puts: conditions, rivals, repeats of requests, ends of sessions, versions, bodies that fail."""

import asyncio

import pytest

from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.gateway.signing.checksums import Algorithm
from tests.client.test_bucket_sessions import end_session
from tests.gateway.actions.conftest import body_of, sent

LARGE = bytes(range(256)) * 40_000
"""An object of 10 MB: two chunks."""

PUT, GET, HEAD = "PutObject", "GetObject", "HeadObject"
ABSENT = {"if-none-match": "*"}


async def stop_session(gateway, rival):
    """End the session of a gateway, as its silence would."""

    class Holder:
        def __init__(self, gateway):
            self._buckets = gateway.services.buckets

    await rival("HeadBucket", "photos")
    await end_session(Holder(gateway), Holder(rival))


@pytest.mark.parametrize("data", [b"", b"small", bytes(3073), LARGE], ids=len)
async def test_an_object_comes_back_with_its_etag_and_metadata(gateway, rival, data):
    headers = {"content-type": "text/plain", "x-amz-meta-by": "me", "cache-control": "no-store"}
    put = await gateway(PUT, "photos", "a/b", data, headers=headers)
    assert put.status == 200
    got = await rival(GET, "photos", "a/b")
    assert (got.status, got.body, got.etag) == (200, data, put.etag)
    assert got.headers.items() >= headers.items()
    assert got.headers["content-length"] == str(len(data))
    assert int(got.headers["x-ares-position"]) >= int(put.headers["x-ares-position"])
    head = await rival(HEAD, "photos", "a/b")
    changing = {"x-ares-position"}
    assert head.body == b""
    assert {k: v for k, v in head.headers.items() if k not in changing} == {
        k: v for k, v in got.headers.items() if k not in changing
    }


async def test_of_rivals_with_if_none_match_one_wins(gateway, rival):
    for round_number in range(5):
        key = f"lock/{round_number}"
        answers = await asyncio.gather(
            *(
                each(PUT, "photos", key, b"%d" % number, headers=ABSENT | sent(f"{key} {number}"))
                for number, each in enumerate((gateway, rival) * 4)
            )
        )
        assert sorted(answer.status for answer in answers) == [200] + [412] * 7
        (won,) = [answer for answer in answers if answer.status == 200]
        assert (await rival(GET, "photos", key)).etag == won.etag


async def test_a_repeat_gets_the_first_result(gateway, rival):
    """Repeat a success and a failure; different bytes under the same id are a rival's."""
    first = await gateway(PUT, "photos", "k", LARGE, headers=ABSENT | sent("one"))
    again = await rival(PUT, "photos", "k", LARGE, headers=ABSENT | sent("one", 2))
    assert (first.status, again.status) == (200, 200)
    assert again.headers["x-ares-version"] == first.headers["x-ares-version"]
    other = await rival(PUT, "photos", "k", b"other", headers=ABSENT | sent("one", 2))
    assert (other.status, other.error) == (412, "PreconditionFailed")

    lost = await rival(PUT, "photos", "k", b"mine", headers=ABSENT | sent("two", 2))
    assert lost.status == 412
    assert (await gateway("DeleteObject", "photos", "k")).status == 204
    repeated = await gateway(PUT, "photos", "k", b"mine", headers=ABSENT | sent("two", 3))
    assert repeated.status == 412
    assert (await gateway(GET, "photos", "k")).error == "NoSuchKey"


async def test_the_ids_of_another_access_key_are_others(gateway, rival):
    await gateway(PUT, "photos", "k", b"1", headers=ABSENT | sent("one"))
    rival.access_key = "ANOTHER"
    answer = await rival(PUT, "photos", "k", b"1", headers=ABSENT | sent("one", 2))
    assert answer.status == 412


async def test_a_repeat_without_a_condition_makes_no_version(gateway, rival):
    """Lose the answer to the first attempt; another client writes meanwhile."""
    await gateway(PUT, "photos", "k", b"old", headers=sent("one"))
    await rival(PUT, "photos", "k", b"new", headers=sent("two"))
    await gateway(PUT, "photos", "k", b"old", headers=sent("one", 2))
    assert (await rival(GET, "photos", "k")).body == b"new"


async def test_a_first_attempt_fails_before_its_body_is_read(gateway):
    await gateway(PUT, "photos", "k", b"1")
    unread = body_of(b"x", error=AssertionError("the body was read"))
    early = await gateway(PUT, "photos", "k", unread, headers=ABSENT | sent("a"))
    assert early.status == 412
    failing = body_of(b"x", error=S3Error(S3Code.IncompleteBody))
    late = await gateway(PUT, "photos", "k", failing, headers=ABSENT | sent("b", 2))
    assert late.error == "IncompleteBody"


@pytest.mark.parametrize("data", [b"small", LARGE], ids=len)
async def test_a_body_that_fails_at_its_end_changes_nothing(gateway, rival, data):
    await gateway(PUT, "photos", "k", b"before")
    wrong = body_of(data, error=S3Error(S3Code.BadDigest))
    answer = await gateway(PUT, "photos", "k", wrong)
    assert (answer.status, answer.error) == (400, "BadDigest")
    assert (await rival(GET, "photos", "k")).body == b"before"


async def test_if_match_and_if_version(gateway):
    absent = await gateway(PUT, "photos", "k", b"1", headers={"if-match": '"00"'})
    assert (absent.status, absent.error) == (404, "NoSuchKey")
    first = await gateway(PUT, "photos", "k", b"1")
    wrong = await gateway(PUT, "photos", "k", b"2", headers={"if-match": '"00"'})
    assert (wrong.status, wrong.error) == (412, "PreconditionFailed")
    version = {"x-ares-if-version": first.headers["x-ares-version"]}
    assert (await gateway(PUT, "photos", "k", b"1", headers={"if-match": first.etag})).status == 200
    assert (await gateway(PUT, "photos", "k", b"3", headers=version)).status == 412
    assert (await gateway(PUT, "photos", "k", b"4", headers={"if-match": "*"})).status == 200


async def test_a_put_goes_on_in_the_next_session(gateway, rival):
    await stop_session(gateway, rival)
    answer = await gateway(PUT, "photos", "k", LARGE, headers=ABSENT | sent("one"))
    # a stream cannot be read again: the client repeats the request
    if answer.status == 503:
        assert answer.headers["retry-after"]
        answer = await gateway(PUT, "photos", "k", LARGE, headers=ABSENT | sent("one", 2))
    assert answer.status == 200
    assert (await rival(GET, "photos", "k")).body == LARGE


async def test_versions_on_and_suspended(gateway, rival):
    one = await gateway(PUT, "photos", "k", b"1")
    assert "x-amz-version-id" not in one.headers
    await versioning(gateway, "Enabled")
    two = await gateway(PUT, "photos", "k", b"2")
    await versioning(gateway, "Suspended")
    three = await gateway(PUT, "photos", "k", b"3")
    assert three.headers["x-amz-version-id"] == "null"
    for version, body in (("null", b"3"), (two.headers["x-amz-version-id"], b"2")):
        got = await rival(GET, "photos", "k", query={"versionId": version})
        assert (got.body, got.headers["x-amz-version-id"]) == (body, version)


async def versioning(gateway, status):
    document = f"<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>"
    answer = await gateway("PutBucketVersioning", "photos", body=document.encode())
    assert answer.status == 200


async def test_a_checksum_is_kept_and_told(gateway):
    put = await gateway(PUT, "photos", "k", body_of(b"123456789", Algorithm.CRC32))
    assert put.headers["x-amz-checksum-crc32"] == "y/Q5Jg=="
    mode = {"x-amz-checksum-mode": "ENABLED"}
    got = await gateway(GET, "photos", "k", headers=mode)
    assert got.headers["x-amz-checksum-crc32"] == "y/Q5Jg=="
    part = await gateway(GET, "photos", "k", headers=mode | {"range": "bytes=0-1"})
    assert "x-amz-checksum-crc32" not in part.headers


async def test_a_missing_bucket_is_told(gateway):
    for operation in (PUT, GET, HEAD, "DeleteObject", "CreateMultipartUpload"):
        assert (await gateway(operation, "absent", "k")).error == "NoSuchBucket"


async def test_tags_of_the_header_are_kept(gateway):
    await gateway(PUT, "photos", "k", b"", headers={"x-amz-tagging": "a=1&b=x%20y"})
    tags = await gateway("GetObjectTagging", "photos", "k")
    assert (tags.texts("Key"), tags.texts("Value")) == (["a", "b"], ["1", "x y"])
    assert (await gateway(GET, "photos", "k")).headers["x-amz-tagging-count"] == "2"
