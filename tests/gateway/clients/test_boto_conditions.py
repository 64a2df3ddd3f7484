"""Conditions on reads, puts, copies, completed uploads and deletions."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from .s3_service import S3Service, refused

pytestmark = [pytest.mark.process, pytest.mark.slow]

LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)
LATER = datetime(2099, 1, 1, tzinfo=UTC)
OTHER = '"00000000000000000000000000000000"'
FAILED = (412, "PreconditionFailed")


@pytest.fixture
def etag(s3: Any, bucket: str) -> str:
    """Put the object ``k``, and return the etag."""
    return str(s3.put_object(Bucket=bucket, Key="k", Body=b"first")["ETag"])


def content(s3: Any, bucket: str, key: str = "k") -> bytes:
    return bytes(s3.get_object(Bucket=bucket, Key=key)["Body"].read())


# -- reads -----------------------------------------------------------------------------------------


def test_a_read_whose_condition_holds(s3: Any, bucket: str, etag: str) -> None:
    for words in (
        {"IfMatch": etag},
        {"IfMatch": etag.strip('"')},
        {"IfMatch": "*"},
        {"IfMatch": f"{OTHER}, {etag}"},
        {"IfNoneMatch": OTHER},
        {"IfModifiedSince": LONG_AGO},
        {"IfUnmodifiedSince": LATER},
        {"IfMatch": etag, "IfUnmodifiedSince": LONG_AGO},
        {"IfNoneMatch": OTHER, "IfModifiedSince": datetime.now(UTC)},
    ):
        assert s3.get_object(Bucket=bucket, Key="k", **words)["Body"].read() == b"first"
        assert s3.head_object(Bucket=bucket, Key="k", **words)["ETag"] == etag


def test_a_read_whose_condition_fails(s3: Any, bucket: str, etag: str) -> None:
    for words in ({"IfMatch": OTHER}, {"IfUnmodifiedSince": LONG_AGO}):
        assert refused(s3.get_object, Bucket=bucket, Key="k", **words) == FAILED
        assert refused(s3.head_object, Bucket=bucket, Key="k", **words)[0] == 412


def test_a_read_of_nothing_new(service: S3Service, bucket: str, etag: str) -> None:
    for headers in (
        {"If-None-Match": etag},
        {"If-None-Match": "*"},
        {"If-Modified-Since": "Fri, 01 Jan 2100 00:00:00 GMT", "If-None-Match": etag},
    ):
        answer = service.send("GET", f"/{bucket}/k", headers)
        assert (answer.status, answer.body) == (304, b"")
        assert answer.headers["etag"] == etag


# -- puts ------------------------------------------------------------------------------------------


def test_a_put_of_an_absent_object(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="new", Body=b"1", IfNoneMatch="*")
    assert refused(s3.put_object, Bucket=bucket, Key="new", Body=b"2", IfNoneMatch="*") == FAILED
    assert content(s3, bucket, "new") == b"1"
    s3.delete_object(Bucket=bucket, Key="new")
    s3.put_object(Bucket=bucket, Key="new", Body=b"3", IfNoneMatch="*")
    assert content(s3, bucket, "new") == b"3"


def test_a_failed_condition_is_named(service: S3Service, bucket: str, etag: str) -> None:
    for name, value in (("If-None-Match", "*"), ("If-Match", OTHER)):
        answer = service.send("PUT", f"/{bucket}/k", {name: value}, b"x")
        assert answer.status == 412
        assert f"<Condition>{name}</Condition>".encode() in answer.body


def test_a_large_put_of_an_absent_object(s3: Any, bucket: str) -> None:
    body = bytes(9 << 20)
    s3.put_object(Bucket=bucket, Key="new", Body=body, IfNoneMatch="*")
    assert refused(s3.put_object, Bucket=bucket, Key="new", Body=body, IfNoneMatch="*") == FAILED


def test_a_put_of_a_known_version(s3: Any, bucket: str, etag: str) -> None:
    second = s3.put_object(Bucket=bucket, Key="k", Body=b"second", IfMatch=etag)["ETag"]
    assert refused(s3.put_object, Bucket=bucket, Key="k", Body=b"third", IfMatch=etag) == FAILED
    assert content(s3, bucket) == b"second"
    s3.put_object(Bucket=bucket, Key="k", Body=b"third", IfMatch=second)
    assert content(s3, bucket) == b"third"


def test_a_put_of_a_known_version_that_is_absent(s3: Any, bucket: str) -> None:
    said = refused(s3.put_object, Bucket=bucket, Key="new", Body=b"x", IfMatch=OTHER)
    assert said == (404, "NoSuchKey")
    assert refused(s3.head_object, Bucket=bucket, Key="new") == (404, "404")


def test_conditions_that_contradict_are_not_implemented(s3: Any, bucket: str, etag: str) -> None:
    words = {"IfMatch": etag, "IfNoneMatch": "*"}
    assert refused(s3.put_object, Bucket=bucket, Key="k", Body=b"x", **words)[0] == 501
    assert content(s3, bucket) == b"first"


def test_a_put_of_another_version(s3: Any, bucket: str, etag: str) -> None:
    """AWS has no answer to this condition; HTTP has."""
    words = {"Bucket": bucket, "Key": "k", "Body": b"second"}
    assert refused(s3.put_object, IfNoneMatch=etag, **words) == FAILED
    s3.put_object(IfNoneMatch=OTHER, **words)
    assert content(s3, bucket) == b"second"


# -- copies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "holds"),
    [
        (lambda etag: {"CopySourceIfMatch": etag}, True),
        (lambda etag: {"CopySourceIfMatch": OTHER}, False),
        (lambda etag: {"CopySourceIfNoneMatch": OTHER}, True),
        (lambda etag: {"CopySourceIfNoneMatch": etag}, False),
        (lambda etag: {"CopySourceIfModifiedSince": LONG_AGO}, True),
        (lambda etag: {"CopySourceIfUnmodifiedSince": LONG_AGO}, False),
        (lambda etag: {"CopySourceIfMatch": etag, "CopySourceIfUnmodifiedSince": LONG_AGO}, True),
        (
            lambda etag: {"CopySourceIfNoneMatch": etag, "CopySourceIfModifiedSince": LONG_AGO},
            False,
        ),
    ],
    ids=["match", "no_match", "none_match", "no_none_match", "new", "old", "match_old", "none_new"],
)
def test_the_condition_of_a_source(
    s3: Any, bucket: str, etag: str, words: Callable[[str], dict[str, Any]], holds: bool
) -> None:
    copy = {"Bucket": bucket, "Key": "copy", "CopySource": f"{bucket}/k", **words(etag)}
    if holds:
        s3.copy_object(**copy)
        assert content(s3, bucket, "copy") == b"first"
    else:
        assert refused(s3.copy_object, **copy) == FAILED
        assert refused(s3.head_object, Bucket=bucket, Key="copy") == (404, "404")


def test_the_condition_of_a_copys_target(s3: Any, bucket: str, etag: str) -> None:
    copy = {"Bucket": bucket, "Key": "copy", "CopySource": f"{bucket}/k"}
    s3.copy_object(IfNoneMatch="*", **copy)
    assert refused(s3.copy_object, IfNoneMatch="*", **copy) == FAILED
    assert refused(s3.copy_object, IfMatch=OTHER, **copy) == FAILED
    s3.copy_object(IfMatch=etag, **copy)


# -- completed uploads -----------------------------------------------------------------------------


def test_the_condition_of_a_completed_upload(s3: Any, bucket: str, etag: str) -> None:
    upload = {"Bucket": bucket, "Key": "k"}
    upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
    part = s3.upload_part(Body=b"parts", PartNumber=1, **upload)["ETag"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": part}]}
    complete = {"MultipartUpload": parts, **upload}
    assert refused(s3.complete_multipart_upload, IfNoneMatch="*", **complete) == FAILED
    assert refused(s3.complete_multipart_upload, IfMatch=OTHER, **complete) == FAILED
    assert content(s3, bucket) == b"first"
    s3.complete_multipart_upload(IfMatch=etag, **complete)
    assert content(s3, bucket) == b"parts"


# -- deletions -------------------------------------------------------------------------------------


def test_the_condition_of_a_deletion(s3: Any, bucket: str, etag: str) -> None:
    assert refused(s3.delete_object, Bucket=bucket, Key="k", IfMatch=OTHER) == FAILED
    assert content(s3, bucket) == b"first"
    s3.delete_object(Bucket=bucket, Key="k", IfMatch=etag)
    assert refused(s3.head_object, Bucket=bucket, Key="k") == (404, "404")


def test_conditions_of_many_deletions(s3: Any, bucket: str, etag: str) -> None:
    s3.put_object(Bucket=bucket, Key="other", Body=b"x")
    named = [{"Key": "k", "ETag": etag}, {"Key": "other", "ETag": OTHER}]
    answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": named})
    assert [each["Key"] for each in answer["Deleted"]] == ["k"]
    errors = [(each["Key"], each["Code"]) for each in answer["Errors"]]
    assert errors == [("other", "PreconditionFailed")]
    assert content(s3, bucket, "other") == b"x"
