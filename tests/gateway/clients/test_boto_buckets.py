"""Buckets: made, found, listed, deleted if empty."""

from collections.abc import Callable
from typing import Any

import pytest

from .s3_service import S3Service, new_name, refused

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_a_bucket_is_made_found_and_deleted(s3: Any) -> None:
    name = new_name()
    assert s3.create_bucket(Bucket=name)["Location"] == f"/{name}"
    s3.head_bucket(Bucket=name)
    listed = [each["Name"] for each in s3.list_buckets()["Buckets"]]
    assert name in listed
    assert listed == sorted(listed)
    assert s3.get_bucket_location(Bucket=name)["LocationConstraint"] is None
    s3.delete_bucket(Bucket=name)
    assert refused(s3.head_bucket, Bucket=name) == (404, "404")
    assert name not in [each["Name"] for each in s3.list_buckets()["Buckets"]]


def test_a_bucket_with_an_object_stays(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    assert refused(s3.delete_bucket, Bucket=bucket) == (409, "BucketNotEmpty")
    s3.delete_object(Bucket=bucket, Key="k")
    s3.delete_bucket(Bucket=bucket)


def test_an_open_upload_ends_with_the_bucket(s3: Any, bucket: str) -> None:
    place = {"Bucket": bucket, "Key": "k"}
    upload = s3.create_multipart_upload(**place)["UploadId"]
    s3.upload_part(**place, UploadId=upload, PartNumber=1, Body=b"part")
    s3.delete_bucket(Bucket=bucket)
    s3.create_bucket(Bucket=bucket)
    assert refused(s3.list_parts, **place, UploadId=upload) == (404, "NoSuchUpload")


def test_a_bucket_of_the_same_name_is_refused(s3: Any, bucket: str) -> None:
    assert refused(s3.create_bucket, Bucket=bucket) == (409, "BucketAlreadyOwnedByYou")


@pytest.mark.parametrize("name", ["ab", "-ab", "Capital", "under_score", "a..b", "192.168.0.1"])
def test_a_bad_name_is_refused(service: S3Service, name: str) -> None:
    answer = service.send("PUT", f"/{name}")
    assert (answer.status, answer.code) == (400, "InvalidBucketName")


@pytest.mark.parametrize(
    "call",
    [
        lambda s3, name: s3.list_objects_v2(Bucket=name),
        lambda s3, name: s3.put_object(Bucket=name, Key="k", Body=b"x"),
        lambda s3, name: s3.get_object(Bucket=name, Key="k"),
        lambda s3, name: s3.delete_object(Bucket=name, Key="k"),
        lambda s3, name: s3.create_multipart_upload(Bucket=name, Key="k"),
        lambda s3, name: s3.delete_bucket(Bucket=name),
        lambda s3, name: s3.get_bucket_versioning(Bucket=name),
    ],
    ids=["list", "put", "get", "delete", "upload", "delete_bucket", "versioning"],
)
def test_no_bucket_is_told(s3: Any, call: Callable[[Any, str], Any]) -> None:
    assert refused(call, s3=s3, name=new_name()) == (404, "NoSuchBucket")


def test_pages_of_buckets(s3: Any) -> None:
    prefix = new_name("page")
    names = [f"{prefix}-{number}" for number in range(3)]
    for name in names:
        s3.create_bucket(Bucket=name)
    first = s3.list_buckets(Prefix=prefix, MaxBuckets=2)
    rest = s3.list_buckets(
        Prefix=prefix, MaxBuckets=2, ContinuationToken=first["ContinuationToken"]
    )
    assert [each["Name"] for each in first["Buckets"] + rest["Buckets"]] == names
    assert "ContinuationToken" not in rest
