"""Tags of objects and of buckets."""

from typing import Any

import pytest

from .s3_service import refused

pytestmark = [pytest.mark.process, pytest.mark.slow]


def tag_set(**tags: str) -> dict[str, list[dict[str, str]]]:
    return {"TagSet": [{"Key": name, "Value": value} for name, value in sorted(tags.items())]}


def tags_of(answer: Any) -> dict[str, str]:
    return {each["Key"]: each["Value"] for each in answer["TagSet"]}


def test_tags_of_an_object(s3: Any, bucket: str) -> None:
    place = {"Bucket": bucket, "Key": "k"}
    etag = s3.put_object(Body=b"x", Tagging="a=1&b=two%20words", **place)["ETag"]
    assert tags_of(s3.get_object_tagging(**place)) == {"a": "1", "b": "two words"}
    assert s3.head_object(**place)["ETag"] == etag
    found = s3.get_object(**place)
    assert found["TagCount"] == 2
    found["Body"].close()
    s3.put_object_tagging(Tagging=tag_set(c="ü", d=""), **place)
    assert tags_of(s3.get_object_tagging(**place)) == {"c": "ü", "d": ""}
    s3.delete_object_tagging(**place)
    assert tags_of(s3.get_object_tagging(**place)) == {}


def test_tags_of_an_upload_in_parts(s3: Any, bucket: str) -> None:
    place = {"Bucket": bucket, "Key": "k"}
    upload = {"UploadId": s3.create_multipart_upload(Tagging="a=1", **place)["UploadId"], **place}
    etag = s3.upload_part(PartNumber=1, Body=b"x", **upload)["ETag"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
    s3.complete_multipart_upload(MultipartUpload=parts, **upload)
    assert tags_of(s3.get_object_tagging(**place)) == {"a": "1"}


def test_tags_of_a_version(s3: Any, bucket: str) -> None:
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    place = {"Bucket": bucket, "Key": "k"}
    first = s3.put_object(Body=b"1", Tagging="n=1", **place)["VersionId"]
    s3.put_object(Body=b"2", Tagging="n=2", **place)
    s3.put_object_tagging(Tagging=tag_set(n="old"), VersionId=first, **place)
    assert tags_of(s3.get_object_tagging(**place)) == {"n": "2"}
    assert tags_of(s3.get_object_tagging(VersionId=first, **place)) == {"n": "old"}


@pytest.mark.parametrize(
    "tags",
    [
        {str(number): "" for number in range(11)},
        {"k" * 129: ""},
        {"k": "v" * 257},
    ],
    ids=["eleven", "long_key", "long_value"],
)
def test_wrong_tags_are_refused(s3: Any, bucket: str, tags: dict[str, str]) -> None:
    place = {"Bucket": bucket, "Key": "k"}
    s3.put_object(Body=b"1", Tagging="n=1", **place)
    status, code = refused(s3.put_object_tagging, Tagging=tag_set(**tags), **place)
    assert (status, code) in [(400, "InvalidTag"), (400, "BadRequest")]
    assert tags_of(s3.get_object_tagging(**place)) == {"n": "1"}


def test_a_tag_named_twice_is_refused(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"1")
    twice = {"TagSet": [{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}]}
    said = refused(s3.put_object_tagging, Bucket=bucket, Key="k", Tagging=twice)
    assert said == (400, "InvalidTag")


def test_tags_of_an_absent_object(s3: Any, bucket: str) -> None:
    said = refused(s3.put_object_tagging, Bucket=bucket, Key="k", Tagging=tag_set(a="1"))
    assert said == (404, "NoSuchKey")
    assert refused(s3.get_object_tagging, Bucket=bucket, Key="k") == (404, "NoSuchKey")


def test_tags_of_a_bucket(s3: Any, bucket: str) -> None:
    assert refused(s3.get_bucket_tagging, Bucket=bucket) == (404, "NoSuchTagSet")
    s3.put_bucket_tagging(Bucket=bucket, Tagging=tag_set(team="blue", cost="1"))
    assert tags_of(s3.get_bucket_tagging(Bucket=bucket)) == {"team": "blue", "cost": "1"}
    s3.delete_bucket_tagging(Bucket=bucket)
    assert refused(s3.get_bucket_tagging, Bucket=bucket) == (404, "NoSuchTagSet")
