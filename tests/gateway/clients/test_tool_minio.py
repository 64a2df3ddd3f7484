"""minio-py."""

import io
import os
from datetime import timedelta
from typing import Any

import pytest
import urllib3

from .s3_service import S3Service

pytestmark = [pytest.mark.process, pytest.mark.slow]

minio = pytest.importorskip("minio", reason="no minio here: pip install minio")


@pytest.fixture
def client(service: S3Service) -> Any:
    return minio.Minio(
        endpoint=service.address,
        access_key=service.access_key,
        secret_key=service.secret_key,
        secure=False,
    )


def put(client: Any, bucket: str, name: str, body: bytes, **words: Any) -> Any:
    return client.put_object(
        bucket_name=bucket, object_name=name, data=io.BytesIO(body), length=len(body), **words
    )


def content(client: Any, bucket: str, name: str, **words: Any) -> bytes:
    answer = client.get_object(bucket_name=bucket, object_name=name, **words)
    try:
        return bytes(answer.read())
    finally:
        answer.close()
        answer.release_conn()


def test_objects(client: Any, bucket: str) -> None:
    assert client.bucket_exists(bucket_name=bucket)
    body = os.urandom(11 << 20)
    put(client, bucket, "small ü", b"x", metadata={"a": "1"})
    put(client, bucket, "large", body, part_size=5 << 20)
    assert content(client, bucket, "large") == body
    assert content(client, bucket, "large", offset=7, length=9) == body[7:16]
    stat = client.stat_object(bucket_name=bucket, object_name="small ü")
    assert (stat.size, stat.metadata["x-amz-meta-a"]) == (1, "1")
    listed = client.list_objects(bucket_name=bucket, recursive=True)
    assert [each.object_name for each in listed] == ["large", "small ü"]


def test_a_stream_of_unknown_length(client: Any, bucket: str) -> None:
    client.put_object(
        bucket_name=bucket,
        object_name="k",
        data=io.BytesIO(b"y" * (6 << 20)),
        length=-1,
        part_size=5 << 20,
    )
    assert content(client, bucket, "k") == b"y" * (6 << 20)


def test_a_url(client: Any, bucket: str) -> None:
    words = {"bucket_name": bucket, "object_name": "k", "expires": timedelta(minutes=1)}
    url = client.presigned_put_object(**words)
    assert urllib3.request("PUT", url, body=b"by url").status == 200
    assert urllib3.request("GET", client.presigned_get_object(**words)).data == b"by url"


def test_many_are_removed(client: Any, bucket: str) -> None:
    from minio.deleteobjects import DeleteObject

    for name in ("a", "b", "c"):
        put(client, bucket, name, b"x")
    named = [DeleteObject("a"), DeleteObject("c")]
    assert list(client.remove_objects(bucket_name=bucket, delete_object_list=named)) == []
    left = [each.object_name for each in client.list_objects(bucket_name=bucket)]
    assert left == ["b"]
