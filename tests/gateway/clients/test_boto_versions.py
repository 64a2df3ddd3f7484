"""Versions: kept, listed, read, deleted; delete markers; versioning suspended."""

from typing import Any

import pytest

from .s3_service import refused

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture
def kept(s3: Any, bucket: str) -> str:
    """Return a bucket with versioning."""
    assert "Status" not in s3.get_bucket_versioning(Bucket=bucket)
    switch(s3, bucket, "Enabled")
    return bucket


def switch(s3: Any, bucket: str, status: str) -> None:
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": status})
    assert s3.get_bucket_versioning(Bucket=bucket)["Status"] == status


def put(s3: Any, bucket: str, body: bytes) -> str:
    return str(s3.put_object(Bucket=bucket, Key="k", Body=body)["VersionId"])


def content(s3: Any, bucket: str, **words: str) -> bytes:
    return bytes(s3.get_object(Bucket=bucket, Key="k", **words)["Body"].read())


def test_every_version_is_read(s3: Any, kept: str) -> None:
    ids = [put(s3, kept, body) for body in (b"1", b"2", b"3")]
    assert len(set(ids)) == 3
    for id, body in zip(ids, (b"1", b"2", b"3"), strict=True):
        assert content(s3, kept, VersionId=id) == body
    assert content(s3, kept) == b"3"
    assert s3.head_object(Bucket=kept, Key="k")["VersionId"] == ids[2]


def test_a_deletion_leaves_a_marker(s3: Any, kept: str) -> None:
    id = put(s3, kept, b"1")
    marker = s3.delete_object(Bucket=kept, Key="k")
    assert marker["DeleteMarker"] is True
    assert refused(s3.get_object, Bucket=kept, Key="k") == (404, "NoSuchKey")
    assert s3.list_objects_v2(Bucket=kept)["KeyCount"] == 0
    assert content(s3, kept, VersionId=id) == b"1"
    said = refused(s3.get_object, Bucket=kept, Key="k", VersionId=marker["VersionId"])
    assert said == (405, "MethodNotAllowed")
    undone = s3.delete_object(Bucket=kept, Key="k", VersionId=marker["VersionId"])
    assert undone["DeleteMarker"] is True
    assert content(s3, kept) == b"1"


def test_a_version_is_deleted(s3: Any, kept: str) -> None:
    first, second = put(s3, kept, b"1"), put(s3, kept, b"2")
    s3.delete_object(Bucket=kept, Key="k", VersionId=second)
    assert content(s3, kept) == b"1"
    said = refused(s3.get_object, Bucket=kept, Key="k", VersionId=second)
    assert said == (404, "NoSuchVersion")
    assert refused(s3.delete_bucket, Bucket=kept) == (409, "BucketNotEmpty")
    s3.delete_object(Bucket=kept, Key="k", VersionId=first)
    s3.delete_bucket(Bucket=kept)


def test_versions_are_listed(s3: Any, kept: str) -> None:
    s3.put_object(Bucket=kept, Key="a/x", Body=b"")
    ids = [put(s3, kept, body) for body in (b"1", b"22")]
    marker = s3.delete_object(Bucket=kept, Key="k")["VersionId"]
    ids.append(put(s3, kept, b"333"))
    answer = s3.list_object_versions(Bucket=kept, Prefix="k")
    versions = [(each["VersionId"], each["IsLatest"], each["Size"]) for each in answer["Versions"]]
    assert versions == [(ids[2], True, 3), (ids[1], False, 2), (ids[0], False, 1)]
    markers = [(each["VersionId"], each["IsLatest"]) for each in answer["DeleteMarkers"]]
    assert markers == [(marker, False)]
    grouped = s3.list_object_versions(Bucket=kept, Delimiter="/")
    assert [each["Prefix"] for each in grouped["CommonPrefixes"]] == ["a/"]
    assert {each["Key"] for each in grouped["Versions"]} == {"k"}


@pytest.mark.parametrize("size", [1, 2, 3])
def test_pages_of_versions(s3: Any, kept: str, size: int) -> None:
    for key in ("a", "b", "c"):
        for body in (b"1", b"2"):
            s3.put_object(Bucket=kept, Key=key, Body=body)
    s3.delete_object(Bucket=kept, Key="b")
    paginator = s3.get_paginator("list_object_versions")
    found = []
    for page in paginator.paginate(Bucket=kept, PaginationConfig={"PageSize": size}):
        entries = page.get("Versions", []) + page.get("DeleteMarkers", [])
        assert 1 <= len(entries) <= size
        found += [(each["Key"], each["VersionId"]) for each in entries]
    assert len(found) == len(set(found)) == 7


def test_the_null_version_stays_when_versions_begin(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"before")
    switch(s3, bucket, "Enabled")
    put(s3, bucket, b"after")
    assert content(s3, bucket, VersionId="null") == b"before"
    answer = s3.list_object_versions(Bucket=bucket)
    assert [each["VersionId"] for each in answer["Versions"]][1] == "null"


def test_a_suspended_bucket_overwrites_the_null_version(s3: Any, kept: str) -> None:
    id = put(s3, kept, b"1")
    switch(s3, kept, "Suspended")
    for body in (b"2", b"3"):
        s3.put_object(Bucket=kept, Key="k", Body=body)
    assert content(s3, kept, VersionId=id) == b"1"
    assert content(s3, kept, VersionId="null") == b"3"
    assert len(s3.list_object_versions(Bucket=kept)["Versions"]) == 2
    marker = s3.delete_object(Bucket=kept, Key="k")
    assert (marker["DeleteMarker"], marker["VersionId"]) == (True, "null")
    assert [each["VersionId"] for each in s3.list_object_versions(Bucket=kept)["Versions"]] == [id]


def test_a_version_is_copied(s3: Any, kept: str) -> None:
    first = put(s3, kept, b"1")
    put(s3, kept, b"2")
    answer = s3.copy_object(Bucket=kept, Key="k", CopySource=f"{kept}/k?versionId={first}")
    assert answer["CopySourceVersionId"] == first
    assert content(s3, kept) == b"1"
    assert answer["VersionId"] not in (first, "null")


def test_conditions_look_at_the_newest_version(s3: Any, kept: str) -> None:
    put(s3, kept, b"1")
    s3.delete_object(Bucket=kept, Key="k")
    s3.put_object(Bucket=kept, Key="k", Body=b"2", IfNoneMatch="*")
    said = refused(s3.put_object, Bucket=kept, Key="k", Body=b"3", IfNoneMatch="*")
    assert said == (412, "PreconditionFailed")


def test_versions_are_deleted_at_once(s3: Any, kept: str) -> None:
    ids = [put(s3, kept, body) for body in (b"1", b"2", b"3")]
    named = {"Objects": [{"Key": "k", "VersionId": id} for id in ids[:2]] + [{"Key": "other"}]}
    answer = s3.delete_objects(Bucket=kept, Delete=named)
    assert len(answer["Deleted"]) == 3
    assert answer["Deleted"][2]["DeleteMarker"] is True
    assert [each["VersionId"] for each in s3.list_object_versions(Bucket=kept)["Versions"]] == [
        ids[2]
    ]


def test_a_version_of_another_form_is_refused(s3: Any, kept: str) -> None:
    put(s3, kept, b"1")
    said = refused(s3.get_object, Bucket=kept, Key="k", VersionId="no version")
    assert said in [(400, "InvalidArgument"), (404, "NoSuchVersion")]
