"""Checksums: given, computed and kept; of parts; GetObjectAttributes."""

import base64
import hashlib
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from .s3_service import S3Service, refused

pytestmark = [pytest.mark.process, pytest.mark.slow]

BODY = bytes(range(256)) * 20
LEAST_PART = 5 << 20


def text_of(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


def crc32c(body: bytes) -> bytes:
    from awscrt import checksums

    return int(checksums.crc32c(body)).to_bytes(4, "big")


def crc64nvme(body: bytes) -> bytes:
    from awscrt import checksums

    return int(checksums.crc64nvme(body)).to_bytes(8, "big")


DIGESTS: dict[str, Callable[[bytes], bytes]] = {
    "CRC32": lambda body: zlib.crc32(body).to_bytes(4, "big"),
    "CRC32C": crc32c,
    "CRC64NVME": crc64nvme,
    "SHA1": lambda body: hashlib.sha1(body).digest(),
    "SHA256": lambda body: hashlib.sha256(body).digest(),
}


@pytest.fixture(params=DIGESTS)
def algorithm(request: pytest.FixtureRequest) -> str:
    if request.param in ("CRC32C", "CRC64NVME"):
        pytest.importorskip("awscrt", reason="no awscrt here: pip install awscrt")
    return str(request.param)


def test_a_checksum_is_kept(s3: Any, bucket: str, algorithm: str) -> None:
    words = {"Bucket": bucket, "Key": "k"}
    value = text_of(DIGESTS[algorithm](BODY))
    name = f"Checksum{algorithm}"
    answer = s3.put_object(Body=BODY, ChecksumAlgorithm=algorithm, **words)
    assert answer[name] == value
    found = s3.get_object(ChecksumMode="ENABLED", **words)
    assert found[name] == value
    assert found["Body"].read() == BODY
    assert s3.head_object(ChecksumMode="ENABLED", **words)[name] == value
    assert name not in s3.head_object(**words)
    (listed,) = s3.list_objects_v2(Bucket=bucket)["Contents"]
    assert listed["ChecksumAlgorithm"] == [algorithm]


def test_a_wrong_checksum_is_refused(s3: Any, bucket: str, algorithm: str) -> None:
    wrong = {f"Checksum{algorithm}": text_of(DIGESTS[algorithm](b"other"))}
    said = refused(s3.put_object, Bucket=bucket, Key="k", Body=BODY, **wrong)
    assert said in [(400, "BadDigest"), (400, "XAmzContentChecksumMismatch")]
    short = {f"Checksum{algorithm}": "AAAA"}
    assert refused(s3.put_object, Bucket=bucket, Key="k", Body=BODY, **short)[0] == 400
    assert refused(s3.head_object, Bucket=bucket, Key="k") == (404, "404")


def test_two_checksums_are_refused(service: S3Service, bucket: str) -> None:
    headers = {
        f"x-amz-checksum-{name.lower()}": text_of(DIGESTS[name](BODY)) for name in ("SHA1", "CRC32")
    }
    answer = service.send("PUT", f"/{bucket}/k", headers, BODY)
    assert (answer.status, answer.code) == (400, "InvalidRequest")


def in_parts(s3: Any, bucket: str, algorithm: str, kind: str, *bodies: bytes) -> dict[str, Any]:
    """Upload the object ``k`` in parts, and return the last answer."""
    words = {"Bucket": bucket, "Key": "k"}
    made = s3.create_multipart_upload(ChecksumAlgorithm=algorithm, ChecksumType=kind, **words)
    assert (made["ChecksumAlgorithm"], made["ChecksumType"]) == (algorithm, kind)
    words["UploadId"] = made["UploadId"]
    name = f"Checksum{algorithm}"
    parts = []
    for number, body in enumerate(bodies, 1):
        part = s3.upload_part(PartNumber=number, Body=body, ChecksumAlgorithm=algorithm, **words)
        assert part[name] == text_of(DIGESTS[algorithm](body))
        parts.append({"PartNumber": number, "ETag": part["ETag"], name: part[name]})
    listed = s3.list_parts(**words)
    assert [each[name] for each in listed["Parts"]] == [each[name] for each in parts]
    return dict(s3.complete_multipart_upload(MultipartUpload={"Parts": parts}, **words))


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "SHA1", "SHA256"], indirect=True)
def test_a_checksum_of_checksums(s3: Any, bucket: str, algorithm: str) -> None:
    bodies = (b"1" * LEAST_PART, b"2" * 1000)
    answer = in_parts(s3, bucket, algorithm, "COMPOSITE", *bodies)
    digest = DIGESTS[algorithm]
    value = f"{text_of(digest(b''.join(map(digest, bodies))))}-2"
    assert answer[f"Checksum{algorithm}"] == value
    head = s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert (head[f"Checksum{algorithm}"], head["ChecksumType"]) == (value, "COMPOSITE")


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME"], indirect=True)
def test_a_checksum_of_the_whole(s3: Any, bucket: str, algorithm: str) -> None:
    bodies = (b"1" * LEAST_PART, b"2" * (LEAST_PART + 1), b"3" * 7)
    answer = in_parts(s3, bucket, algorithm, "FULL_OBJECT", *bodies)
    value = text_of(DIGESTS[algorithm](b"".join(bodies)))
    assert answer[f"Checksum{algorithm}"] == value
    head = s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert (head[f"Checksum{algorithm}"], head["ChecksumType"]) == (value, "FULL_OBJECT")


def test_kinds_that_do_not_exist_are_refused(s3: Any, bucket: str) -> None:
    for algorithm, kind in (("SHA256", "FULL_OBJECT"), ("CRC64NVME", "COMPOSITE")):
        words = {"ChecksumAlgorithm": algorithm, "ChecksumType": kind}
        said = refused(s3.create_multipart_upload, Bucket=bucket, Key="k", **words)
        assert said == (400, "InvalidRequest")


def test_a_wrong_checksum_of_a_part_is_refused(s3: Any, bucket: str) -> None:
    words = {"Bucket": bucket, "Key": "k"}
    made = s3.create_multipart_upload(ChecksumAlgorithm="SHA256", **words)
    words["UploadId"] = made["UploadId"]
    part = s3.upload_part(PartNumber=1, Body=b"x", ChecksumAlgorithm="SHA256", **words)
    wrong = text_of(hashlib.sha256(b"y").digest())
    said = refused(s3.upload_part, PartNumber=1, Body=b"x", ChecksumSHA256=wrong, **words)
    assert said[0] == 400
    parts = [{"PartNumber": 1, "ETag": part["ETag"], "ChecksumSHA256": wrong}]
    said = refused(s3.complete_multipart_upload, MultipartUpload={"Parts": parts}, **words)
    assert said[0] == 400


def test_a_copy_has_the_checksum(s3: Any, bucket: str) -> None:
    put = s3.put_object(Bucket=bucket, Key="k", Body=BODY, ChecksumAlgorithm="SHA256")
    copy = s3.copy_object(Bucket=bucket, Key="copy", CopySource=f"{bucket}/k")
    assert copy["CopyObjectResult"]["ChecksumSHA256"] == put["ChecksumSHA256"]
    head = s3.head_object(Bucket=bucket, Key="copy", ChecksumMode="ENABLED")
    assert head["ChecksumSHA256"] == put["ChecksumSHA256"]


# -- attributes ------------------------------------------------------------------------------------


def test_attributes_of_an_object(s3: Any, bucket: str) -> None:
    put = s3.put_object(Bucket=bucket, Key="k", Body=BODY, ChecksumAlgorithm="SHA256")
    asked = ["ETag", "Checksum", "ObjectSize", "StorageClass", "ObjectParts"]
    found = s3.get_object_attributes(Bucket=bucket, Key="k", ObjectAttributes=asked)
    assert found["ETag"] == put["ETag"].strip('"')
    assert found["Checksum"]["ChecksumSHA256"] == put["ChecksumSHA256"]
    assert (found["ObjectSize"], found["StorageClass"]) == (len(BODY), "STANDARD")
    assert "ObjectParts" not in found
    found = s3.get_object_attributes(Bucket=bucket, Key="k", ObjectAttributes=["ObjectSize"])
    assert found["ObjectSize"] == len(BODY)
    assert "ETag" not in found
    said = refused(s3.get_object_attributes, Bucket=bucket, Key="no", ObjectAttributes=asked)
    assert said == (404, "NoSuchKey")


def test_attributes_count_the_parts(s3: Any, bucket: str) -> None:
    in_parts(s3, bucket, "SHA256", "COMPOSITE", b"1" * LEAST_PART, b"2")
    found = s3.get_object_attributes(Bucket=bucket, Key="k", ObjectAttributes=["ObjectParts"])
    assert found["ObjectParts"]["TotalPartsCount"] == 2
