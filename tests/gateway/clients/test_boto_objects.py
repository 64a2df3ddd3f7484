"""Objects: put, read, described, overwritten and deleted, under keys of every kind."""

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest

from .s3_service import S3Service, refused

pytestmark = [pytest.mark.process, pytest.mark.slow]

ODD_KEYS = [
    "/",
    "//",
    "a//b",
    "/a",
    "a/",
    "a/../b",
    "./a",
    "..",
    "a b+c%20&d?e=f#g",
    "%2F",
    "tilde~(star*)'quote\"",
    "line\nfeed\ttab",
    "\x01control",
    "Grüße-日本-\U0001f680",
    "e\u0301",
    "\xe9",
    "k" * 1024,
    "ü" * 512,
]


def test_an_object_is_put_and_read(s3: Any, bucket: str) -> None:
    before = datetime.now(UTC) - timedelta(seconds=2)
    body = bytes(range(256)) * 40
    etag = f'"{hashlib.md5(body).hexdigest()}"'
    assert s3.put_object(Bucket=bucket, Key="k", Body=body)["ETag"] == etag
    found = s3.get_object(Bucket=bucket, Key="k")
    assert found["Body"].read() == body
    head = s3.head_object(Bucket=bucket, Key="k")
    for answer in (found, head):
        assert answer["ContentLength"] == len(body)
        assert answer["ETag"] == etag
        assert answer["ContentType"] == "binary/octet-stream"
        assert answer["AcceptRanges"] == "bytes"
        assert before < answer["LastModified"] < datetime.now(UTC) + timedelta(seconds=2)


@pytest.mark.parametrize("size", [0, 1, 3072, 3073, 9 << 20], ids=str)
def test_objects_of_all_sizes(s3: Any, bucket: str, size: int) -> None:
    body = hashlib.shake_128(b"seed").digest(size)
    s3.put_object(Bucket=bucket, Key="k", Body=body)
    found = s3.get_object(Bucket=bucket, Key="k")
    assert found["ContentLength"] == size
    assert found["Body"].read() == body
    assert found["ETag"] == f'"{hashlib.md5(body).hexdigest()}"'


def test_an_overwrite_replaces_bytes_and_metadata(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"old and long", Metadata={"a": "1"})
    s3.put_object(Bucket=bucket, Key="k", Body=b"new", ContentType="text/plain")
    found = s3.get_object(Bucket=bucket, Key="k")
    assert (found["Body"].read(), found["Metadata"]) == (b"new", {})
    assert found["ContentType"] == "text/plain"


def test_metadata_and_stored_headers_come_back(s3: Any, bucket: str) -> None:
    stored = {
        "ContentType": "text/plain; charset=utf-8",
        "CacheControl": "max-age=60",
        "ContentDisposition": 'attachment; filename="a.txt"',
        "ContentEncoding": "identity",
        "ContentLanguage": "de",
        "Metadata": {"colour": "green", "with-dash": "a b"},
    }
    expires = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Expires=expires, **stored)
    for answer in (s3.head_object(Bucket=bucket, Key="k"), s3.get_object(Bucket=bucket, Key="k")):
        assert {name: answer[name] for name in stored} == stored
        assert answer["ExpiresString"] == "Wed, 02 Jan 2030 03:04:05 GMT"


def test_an_answer_has_the_headers_asked_for(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    asked = {
        "ContentType": "text/csv",
        "CacheControl": "no-cache",
        "ContentDisposition": "inline",
        "ContentEncoding": "gzip",
        "ContentLanguage": "fr",
    }
    words = {f"Response{name}": value for name, value in asked.items()}
    found = s3.get_object(Bucket=bucket, Key="k", **words)
    assert {name: found[name] for name in asked} == asked
    found["Body"].close()


@pytest.mark.parametrize("key", ODD_KEYS, ids=lambda key: quote(key[:20], safe=""))
def test_a_key_of_any_kind(s3: Any, bucket: str, key: str) -> None:
    s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == key.encode()
    assert [each["Key"] for each in s3.list_objects_v2(Bucket=bucket)["Contents"]] == [key]
    s3.delete_object(Bucket=bucket, Key=key)
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_a_key_too_long_is_refused(s3: Any, bucket: str) -> None:
    key = "ü" * 512 + "k"
    assert refused(s3.put_object, Bucket=bucket, Key=key, Body=b"") == (400, "KeyTooLongError")


def test_a_key_that_is_no_text_is_refused(service: S3Service, bucket: str) -> None:
    assert service.send("PUT", f"/{bucket}/%FF", body=b"x").status == 400


def test_an_absent_object_is_told(s3: Any, bucket: str) -> None:
    assert refused(s3.get_object, Bucket=bucket, Key="k") == (404, "NoSuchKey")
    assert refused(s3.head_object, Bucket=bucket, Key="k") == (404, "404")
    s3.delete_object(Bucket=bucket, Key="k")


def test_too_much_metadata_is_refused(s3: Any, bucket: str) -> None:
    much = {"a": "x" * 9000}
    said = refused(s3.put_object, Bucket=bucket, Key="k", Body=b"", Metadata=much)
    assert said in [(400, "MetadataTooLarge"), (400, "RequestHeaderSectionTooLarge")]
    assert refused(s3.head_object, Bucket=bucket, Key="k") == (404, "404")


def test_many_objects_are_deleted_at_once(s3: Any, bucket: str) -> None:
    keys = [f"k{number:03}" for number in range(300)]
    for key in keys[:5]:
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    s3.put_object(Bucket=bucket, Key="stays", Body=b"x")
    named = {"Objects": [{"Key": key} for key in keys]}
    answer = s3.delete_objects(Bucket=bucket, Delete=named)
    assert [each["Key"] for each in answer["Deleted"]] == keys
    assert "Errors" not in answer
    assert [each["Key"] for each in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["stays"]


def test_a_quiet_deletion_tells_errors_alone(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    named = {"Objects": [{"Key": "k"}, {"Key": "absent"}], "Quiet": True}
    answer = s3.delete_objects(Bucket=bucket, Delete=named)
    assert "Deleted" not in answer
    assert "Errors" not in answer


def test_more_than_a_thousand_deletions_are_refused(s3: Any, bucket: str) -> None:
    named = {"Objects": [{"Key": f"k{number}"} for number in range(1001)]}
    assert refused(s3.delete_objects, Bucket=bucket, Delete=named) == (400, "MalformedXML")


def test_every_answer_has_an_id(service: S3Service, bucket: str) -> None:
    answers = [service.send("GET", path) for path in (f"/{bucket}", f"/{bucket}/absent")]
    ids = [answer.headers["x-amz-request-id"] for answer in answers]
    assert ids[0] != ids[1]
    assert f"<RequestId>{ids[1]}</RequestId>".encode() in answers[1].body
