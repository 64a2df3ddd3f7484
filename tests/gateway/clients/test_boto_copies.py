"""Copies: metadata kept or replaced, versions, absent sources, renames."""

from collections.abc import Callable
from typing import Any

import pytest

from .s3_service import S3Service, refused

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_a_copy_keeps_metadata(s3: Any, new_bucket: Callable[[], str]) -> None:
    source, target = new_bucket(), new_bucket()
    body = bytes(9 << 20)
    etag = s3.put_object(
        Bucket=source, Key="a b/ü", Body=body, ContentType="text/plain", Metadata={"x": "1"}
    )["ETag"]
    place = {"Bucket": source, "Key": "a b/ü"}
    answer = s3.copy_object(Bucket=target, Key="copy", CopySource=place)
    assert answer["CopyObjectResult"]["ETag"] == etag
    found = s3.get_object(Bucket=target, Key="copy")
    assert (found["ContentType"], found["Metadata"]) == ("text/plain", {"x": "1"})
    assert found["Body"].read() == body
    s3.delete_object(**place)
    assert s3.get_object(Bucket=target, Key="copy")["Body"].read() == body


def test_a_copy_replaces_metadata(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Metadata={"x": "1"}, CacheControl="no-store")
    s3.copy_object(
        Bucket=bucket,
        Key="k",
        CopySource=f"{bucket}/k",
        MetadataDirective="REPLACE",
        Metadata={"y": "2"},
        ContentType="image/png",
    )
    head = s3.head_object(Bucket=bucket, Key="k")
    assert (head["Metadata"], head["ContentType"]) == ({"y": "2"}, "image/png")
    assert "CacheControl" not in head


def test_a_copy_onto_itself_changes_something(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    said = refused(s3.copy_object, Bucket=bucket, Key="k", CopySource=f"{bucket}/k")
    assert said == (400, "InvalidRequest")


def test_a_copy_of_nothing_is_refused(s3: Any, bucket: str) -> None:
    copy = {"Bucket": bucket, "Key": "copy"}
    assert refused(s3.copy_object, CopySource=f"{bucket}/no", **copy) == (404, "NoSuchKey")
    assert refused(s3.copy_object, CopySource="no-such-b/no", **copy) == (404, "NoSuchBucket")


def test_tags_are_copied_or_replaced(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Tagging="a=1")
    s3.copy_object(Bucket=bucket, Key="same", CopySource=f"{bucket}/k")
    s3.copy_object(
        Bucket=bucket,
        Key="other",
        CopySource=f"{bucket}/k",
        TaggingDirective="REPLACE",
        Tagging="b=2",
    )
    tags = [s3.get_object_tagging(Bucket=bucket, Key=key)["TagSet"] for key in ("same", "other")]
    assert tags == [[{"Key": "a", "Value": "1"}], [{"Key": "b", "Value": "2"}]]


def test_an_object_is_renamed(service: S3Service, s3: Any, bucket: str) -> None:
    etag = s3.put_object(Bucket=bucket, Key="old", Body=b"x", Metadata={"a": "1"})["ETag"]
    headers = {"x-amz-rename-source": "/old", "If-None-Match": "*"}
    assert service.send("PUT", f"/{bucket}/new?renameObject", headers).status == 200
    assert refused(s3.head_object, Bucket=bucket, Key="old") == (404, "404")
    head = s3.head_object(Bucket=bucket, Key="new")
    assert (head["ETag"], head["Metadata"]) == (etag, {"a": "1"})


def test_a_rename_onto_another_object_is_conditional(
    service: S3Service, s3: Any, bucket: str
) -> None:
    for key in ("old", "new"):
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    headers = {"x-amz-rename-source": "/old", "If-None-Match": "*"}
    answer = service.send("PUT", f"/{bucket}/new?renameObject", headers)
    assert (answer.status, answer.code) == (412, "PreconditionFailed")
    for key in ("old", "new"):
        assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == key.encode()
