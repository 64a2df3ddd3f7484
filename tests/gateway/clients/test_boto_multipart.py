"""Uploads in parts: order, replaced parts, copies of ranges, listings, the end twice."""

import contextlib
import hashlib
from typing import Any

import pytest

from .s3_service import refused

pytestmark = [pytest.mark.process, pytest.mark.slow]

LEAST = 5 << 20
"""Least size of a part before the last."""


class Upload:
    """An upload of the object ``k``, with the present parts."""

    def __init__(self, s3: Any, bucket: str, **words: Any) -> None:
        self.s3 = s3
        self.place = {"Bucket": bucket, "Key": "k"}
        self.place["UploadId"] = s3.create_multipart_upload(**self.place, **words)["UploadId"]
        self.etags: dict[int, str] = {}

    def part(self, number: int, body: bytes) -> None:
        answer = self.s3.upload_part(PartNumber=number, Body=body, **self.place)
        self.etags[number] = answer["ETag"]

    def named(self, *numbers: int) -> dict[str, Any]:
        parts = [
            {"PartNumber": number, "ETag": self.etags[number]}
            for number in numbers or sorted(self.etags)
        ]
        return {"MultipartUpload": {"Parts": parts}, **self.place}

    def complete(self, *numbers: int) -> Any:
        return self.s3.complete_multipart_upload(**self.named(*numbers))

    def content(self) -> bytes:
        found = self.s3.get_object(Bucket=self.place["Bucket"], Key="k")
        return bytes(found["Body"].read())


def multipart_tag(*bodies: bytes) -> str:
    digests = b"".join(hashlib.md5(body).digest() for body in bodies)
    return f'"{hashlib.md5(digests).hexdigest()}-{len(bodies)}"'


def test_parts_in_any_order_make_an_object(s3: Any, bucket: str) -> None:
    upload = Upload(s3, bucket, ContentType="text/x-parts", Metadata={"a": "1"})
    first, second, third = b"1" * LEAST, b"2" * (LEAST + 1), b"3"
    upload.part(9, third)
    upload.part(1, first)
    upload.part(4, second)
    assert refused(s3.head_object, Bucket=bucket, Key="k") == (404, "404")
    answer = upload.complete()
    assert answer["ETag"] == multipart_tag(first, second, third)
    head = s3.head_object(Bucket=bucket, Key="k")
    assert (head["ContentType"], head["Metadata"]) == ("text/x-parts", {"a": "1"})
    assert upload.content() == first + second + third
    across = s3.get_object(Bucket=bucket, Key="k", Range=f"bytes={LEAST - 2}-{LEAST + 1}")
    assert across["Body"].read() == b"1122"


def test_a_part_of_an_object_is_read(s3: Any, bucket: str) -> None:
    upload = Upload(s3, bucket)
    upload.part(1, b"1" * LEAST)
    upload.part(2, b"22")
    upload.complete()
    found = s3.get_object(Bucket=bucket, Key="k", PartNumber=2)
    assert (found["Body"].read(), found["PartsCount"]) == (b"22", 2)
    assert s3.head_object(Bucket=bucket, Key="k", PartNumber=1)["ContentLength"] == LEAST
    said = refused(s3.get_object, Bucket=bucket, Key="k", PartNumber=3)
    assert said == (416, "InvalidPartNumber")


def test_a_part_is_replaced(s3: Any, bucket: str) -> None:
    upload = Upload(s3, bucket)
    upload.part(1, b"old")
    old = dict(upload.etags)
    upload.part(1, b"new")
    new, upload.etags = upload.etags, old
    assert refused(s3.complete_multipart_upload, **upload.named()) == (400, "InvalidPart")
    upload.etags = new
    upload.complete()
    assert upload.content() == b"new"


def test_parts_that_are_not_named_are_left_out(s3: Any, bucket: str) -> None:
    upload = Upload(s3, bucket)
    upload.part(1, b"1" * LEAST)
    upload.part(2, b"2" * LEAST)
    upload.part(3, b"3")
    upload.complete(1, 3)
    assert upload.content() == b"1" * LEAST + b"3"


def test_wrong_lists_of_parts(s3: Any, bucket: str) -> None:
    upload = Upload(s3, bucket)
    upload.part(1, b"small")
    upload.part(2, b"last")
    upload.etags[3] = upload.etags[2]

    def said(*numbers: int) -> tuple[int, str]:
        return refused(s3.complete_multipart_upload, **upload.named(*numbers))

    assert said(2, 1) == (400, "InvalidPartOrder")
    assert said(1, 2) == (400, "EntityTooSmall")
    assert said(3) == (400, "InvalidPart")
    nothing = {"MultipartUpload": {"Parts": []}, **upload.place}
    assert refused(s3.complete_multipart_upload, **nothing) == (400, "MalformedXML")
    upload.complete(2)
    assert upload.content() == b"last"


@pytest.mark.parametrize("number", [0, 10_001, -1])
def test_a_part_number_out_of_bounds(s3: Any, bucket: str, number: int) -> None:
    upload = Upload(s3, bucket)
    said = refused(s3.upload_part, PartNumber=number, Body=b"x", **upload.place)
    assert said == (400, "InvalidArgument")


def test_an_upload_is_completed_twice(s3: Any, bucket: str) -> None:
    upload = Upload(s3, bucket)
    upload.part(1, b"x")
    first = upload.complete()["ETag"]
    s3.put_object(Bucket=bucket, Key="k", Body=b"newer")
    with contextlib.suppress(s3.exceptions.NoSuchUpload):  # its outcome may be forgotten
        assert upload.complete()["ETag"] == first
    assert upload.content() == b"newer"


def test_an_upload_is_given_up(s3: Any, bucket: str) -> None:
    upload = Upload(s3, bucket)
    upload.part(1, b"x")
    s3.abort_multipart_upload(**upload.place)
    gone = (404, "NoSuchUpload")
    assert refused(s3.complete_multipart_upload, **upload.named()) == gone
    assert refused(s3.upload_part, PartNumber=1, Body=b"x", **upload.place) == gone
    assert refused(s3.list_parts, **upload.place) == gone
    assert refused(s3.abort_multipart_upload, **upload.place) == gone
    assert refused(s3.head_object, Bucket=bucket, Key="k") == (404, "404")


def test_an_upload_has_one_key(s3: Any, bucket: str) -> None:
    upload = Upload(s3, bucket)
    elsewhere = upload.place | {"Key": "other"}
    said = refused(s3.upload_part, PartNumber=1, Body=b"x", **elsewhere)
    assert said == (404, "NoSuchUpload")
    unknown = upload.place | {"UploadId": "no-such-upload"}
    assert refused(s3.list_parts, **unknown) == (404, "NoSuchUpload")


def test_parts_are_copied(s3: Any, bucket: str) -> None:
    body = hashlib.shake_128(b"source").digest(9 << 20)
    s3.put_object(Bucket=bucket, Key="source", Body=body)
    upload = Upload(s3, bucket)
    source = {"CopySource": f"{bucket}/source", **upload.place}
    ranges = [f"bytes=7-{LEAST + 6}", None, "bytes=1-2"]
    for number, asked in enumerate(ranges, 1):
        words = {} if asked is None else {"CopySourceRange": asked}
        answer = s3.upload_part_copy(PartNumber=number, **source, **words)
        upload.etags[number] = answer["CopyPartResult"]["ETag"]
    upload.complete()
    assert upload.content() == body[7 : LEAST + 7] + body + body[1:3]
    bad = f"bytes=0-{len(body)}"
    upload = Upload(s3, bucket)
    source["UploadId"] = upload.place["UploadId"]
    said = refused(s3.upload_part_copy, PartNumber=1, CopySourceRange=bad, **source)
    assert said[0] in (400, 416)


def test_parts_are_listed(s3: Any, bucket: str) -> None:
    upload = Upload(s3, bucket)
    for number in (1, 2, 5):
        upload.part(number, b"x" * number)
    first = s3.list_parts(MaxParts=2, **upload.place)
    assert (first["IsTruncated"], first["NextPartNumberMarker"]) == (True, 2)
    rest = s3.list_parts(PartNumberMarker=2, **upload.place)
    listed = {
        each["PartNumber"]: (each["ETag"], each["Size"]) for each in first["Parts"] + rest["Parts"]
    }
    assert listed == {number: (upload.etags[number], number) for number in (1, 2, 5)}
    assert not rest["IsTruncated"]


def test_uploads_are_listed(s3: Any, bucket: str) -> None:
    keys = ["a/1", "a/2", "b", "b", "c"]
    made = sorted(
        (key, s3.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]) for key in keys
    )
    answer = s3.list_multipart_uploads(Bucket=bucket)
    assert [each["Key"] for each in answer["Uploads"]] == keys
    assert sorted((each["Key"], each["UploadId"]) for each in answer["Uploads"]) == made
    grouped = s3.list_multipart_uploads(Bucket=bucket, Delimiter="/")
    assert [each["Prefix"] for each in grouped["CommonPrefixes"]] == ["a/"]
    assert [each["Key"] for each in grouped["Uploads"]] == ["b", "b", "c"]
    found, markers = [], {}
    while True:
        page = s3.list_multipart_uploads(Bucket=bucket, MaxUploads=2, **markers)
        found += [(each["Key"], each["UploadId"]) for each in page["Uploads"]]
        if not page["IsTruncated"]:
            break
        markers = {
            "KeyMarker": page["NextKeyMarker"],
            "UploadIdMarker": page["NextUploadIdMarker"],
        }
    assert sorted(found) == made


def test_a_transfer_in_parallel_parts(s3: Any, bucket: str, tmp_path: Any) -> None:
    body = hashlib.shake_128(b"transfer").digest(17 << 20)
    (tmp_path / "file").write_bytes(body)
    s3.upload_file(str(tmp_path / "file"), bucket, "k")
    assert s3.head_object(Bucket=bucket, Key="k")["ETag"].endswith('-3"')
    s3.download_file(bucket, "k", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == body
