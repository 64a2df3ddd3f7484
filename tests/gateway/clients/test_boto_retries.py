"""A retry is not a rival: the attempts of a call have an id and a result in common."""

import secrets
from typing import Any

import pytest

from .s3_service import Reply, S3Service

pytestmark = [pytest.mark.process, pytest.mark.slow]


class Call:
    """A call of an SDK, whose attempts may reach different gateways."""

    def __init__(self, service: S3Service, method: str, path: str, **headers: str) -> None:
        self.service, self.method, self.path = service, method, path
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.headers["amz-sdk-invocation-id"] = secrets.token_hex(16)

    def attempt(self, number: int, body: bytes = b"") -> Reply:
        endpoint = number % len(self.service.endpoints)
        headers = self.headers | {"amz-sdk-request": f"attempt={number}; max=5"}
        return self.service.send(self.method, self.path, headers, body, endpoint=endpoint)


@pytest.mark.parametrize("body", [b"x", bytes(9 << 20)], ids=["small", "large"])
def test_a_winner_that_asks_again_has_won(
    service: S3Service, s3: Any, bucket: str, body: bytes
) -> None:
    call = Call(service, "PUT", f"/{bucket}/k", if_none_match="*")
    answers = [call.attempt(number, body) for number in (1, 2, 3)]
    assert [each.status for each in answers] == [200, 200, 200]
    assert len({each.headers["etag"] for each in answers}) == 1
    rival = Call(service, "PUT", f"/{bucket}/k", if_none_match="*")
    assert rival.attempt(1, b"y").status == 412
    assert rival.attempt(2, b"y").status == 412
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == body


def test_a_loser_that_asks_again_has_lost(service: S3Service, s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"first")
    call = Call(service, "PUT", f"/{bucket}/k", if_none_match="*")
    assert call.attempt(2, b"x").status == 412
    s3.delete_object(Bucket=bucket, Key="k")
    assert call.attempt(3, b"x").status == 412


def test_a_late_attempt_does_not_undo_a_newer_put(service: S3Service, s3: Any, bucket: str) -> None:
    call = Call(service, "PUT", f"/{bucket}/k")
    assert call.attempt(1, b"old").status == 200
    s3.put_object(Bucket=bucket, Key="k", Body=b"new")
    assert call.attempt(2, b"old").status == 200
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"new"


def test_a_late_deletion_does_not_delete_a_newer_put(
    service: S3Service, s3: Any, bucket: str
) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"old")
    call = Call(service, "DELETE", f"/{bucket}/k")
    assert call.attempt(1).status == 204
    s3.put_object(Bucket=bucket, Key="k", Body=b"new")
    assert call.attempt(2).status == 204
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"new"


def test_a_compare_and_swap_that_asks_again_has_won(
    service: S3Service, s3: Any, bucket: str
) -> None:
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"1")["ETag"]
    call = Call(service, "PUT", f"/{bucket}/k", if_match=etag)
    assert [call.attempt(number, b"2").status for number in (1, 2)] == [200, 200]


def test_one_id_for_two_keys_is_two_calls(service: S3Service, s3: Any, bucket: str) -> None:
    call = Call(service, "PUT", f"/{bucket}/a", if_none_match="*")
    assert call.attempt(1, b"x").status == 200
    call.path = f"/{bucket}/b"
    assert call.attempt(2, b"y").status == 200
    assert s3.get_object(Bucket=bucket, Key="b")["Body"].read() == b"y"


def test_versions_of_attempts_are_one(service: S3Service, s3: Any, bucket: str) -> None:
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    call = Call(service, "PUT", f"/{bucket}/k")
    ids = {call.attempt(number, b"x").headers["x-amz-version-id"] for number in (1, 2, 3)}
    listed = s3.list_object_versions(Bucket=bucket)["Versions"]
    assert [each["VersionId"] for each in listed] == list(ids)


def test_an_upload_is_completed_by_either_attempt(service: S3Service, s3: Any, bucket: str) -> None:
    words = {"Bucket": bucket, "Key": "k"}
    id = s3.create_multipart_upload(**words)["UploadId"]
    etag = s3.upload_part(PartNumber=1, Body=b"x", UploadId=id, **words)["ETag"]
    part = f"<Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>"
    document = f"<CompleteMultipartUpload>{part}</CompleteMultipartUpload>".encode()
    call = Call(service, "POST", f"/{bucket}/k?uploadId={id}")
    answers = [call.attempt(number, document) for number in (1, 2)]
    assert [each.status for each in answers] == [200, 200]
    etags = {each.body.partition(b"<ETag>")[2].partition(b"</ETag>")[0] for each in answers}
    assert len(etags) == 1
