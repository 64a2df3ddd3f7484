"""Ranges of objects: within a chunk and across chunks."""

import hashlib
from typing import Any

import pytest

from .s3_service import S3Service, refused

pytestmark = [pytest.mark.process, pytest.mark.slow]

CHUNK_SIZE = 8 << 20
SIZE = CHUNK_SIZE + 100_000
CONTENT = hashlib.shake_128(b"ranges").digest(SIZE)


@pytest.fixture(scope="module")
def large(s3: Any) -> str:
    """Return a bucket with an object ``k`` of two chunks, and an empty object ``e``."""
    name = "ranges-" + hashlib.md5(__name__.encode()).hexdigest()[:8]
    s3.create_bucket(Bucket=name)
    s3.put_object(Bucket=name, Key="k", Body=CONTENT)
    s3.put_object(Bucket=name, Key="e", Body=b"")
    return name


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [
        ("0-0", 0, 0),
        ("0-99", 0, 99),
        (f"{CHUNK_SIZE - 3}-{CHUNK_SIZE + 3}", CHUNK_SIZE - 3, CHUNK_SIZE + 3),
        (f"{CHUNK_SIZE}-{CHUNK_SIZE}", CHUNK_SIZE, CHUNK_SIZE),
        (f"{SIZE - 7}-", SIZE - 7, SIZE - 1),
        ("-5", SIZE - 5, SIZE - 1),
        (f"5-{SIZE + 999}", 5, SIZE - 1),
        (f"-{SIZE + 1}", 0, SIZE - 1),
    ],
)
def test_a_range_is_answered(s3: Any, large: str, asked: str, first: int, last: int) -> None:
    found = s3.get_object(Bucket=large, Key="k", Range=f"bytes={asked}")
    assert found["ResponseMetadata"]["HTTPStatusCode"] == 206
    assert found["ContentRange"] == f"bytes {first}-{last}/{SIZE}"
    assert found["ContentLength"] == last - first + 1
    assert found["Body"].read() == CONTENT[first : last + 1]


@pytest.mark.parametrize("asked", [f"{SIZE}-", f"{SIZE + 5}-{SIZE + 9}", "-0"])
def test_a_range_behind_the_end_is_refused(s3: Any, large: str, asked: str) -> None:
    asked = f"bytes={asked}"
    assert refused(s3.get_object, Bucket=large, Key="k", Range=asked) == (416, "InvalidRange")


def test_an_empty_object_has_no_range(s3: Any, large: str) -> None:
    assert refused(s3.get_object, Bucket=large, Key="e", Range="bytes=0-") == (416, "InvalidRange")


@pytest.mark.parametrize("asked", ["bytes=9-3", "bytes=a-b", "lines=0-3", "bytes=0-1,3-4"])
def test_a_range_of_another_form_is_ignored(service: S3Service, large: str, asked: str) -> None:
    answer = service.send("GET", f"/{large}/k", {"Range": asked})
    assert answer.status == 200
    assert answer.body == CONTENT


def test_a_head_has_a_range(s3: Any, large: str) -> None:
    head = s3.head_object(Bucket=large, Key="k", Range="bytes=2-4")
    assert head["ResponseMetadata"]["HTTPStatusCode"] == 206
    assert head["ContentLength"] == 3


def test_a_transfer_in_parallel_ranges(s3: Any, large: str, tmp_path: Any) -> None:
    from boto3.s3.transfer import TransferConfig

    ranges = TransferConfig(multipart_threshold=1 << 20, multipart_chunksize=3_000_001)
    s3.download_file(large, "k", str(tmp_path / "k"), Config=ranges)
    assert (tmp_path / "k").read_bytes() == CONTENT
