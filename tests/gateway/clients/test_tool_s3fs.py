"""s3fs, which is fsspec on aiobotocore."""

import os
from typing import Any

import pytest

from .s3_service import S3Service

pytestmark = [pytest.mark.process, pytest.mark.slow]

pytest.importorskip("aiobotocore", reason="no aiobotocore here: pip install 's3fs>=2026'")
s3fs = pytest.importorskip("s3fs", reason="no s3fs here: pip install 's3fs>=2026'")


@pytest.fixture
def fs(service: S3Service) -> Any:
    options = {"key": service.access_key, "secret": service.secret_key}
    return s3fs.S3FileSystem(endpoint_url=service.endpoints[0], use_listings_cache=False, **options)


def test_files_and_folders(fs: Any, bucket: str) -> None:
    body = os.urandom(12 << 20)
    with fs.open(f"{bucket}/a/large", "wb") as file:  # more than a block: an upload in parts
        file.write(body)
    fs.pipe({f"{bucket}/a/{name}": name.encode() for name in ("x", "y", "z")})
    assert fs.cat(f"{bucket}/a/large") == body
    with fs.open(f"{bucket}/a/large", "rb") as file:
        file.seek(10 << 20)
        assert file.read(1000) == body[10 << 20 :][:1000]
    assert sorted(fs.find(bucket)) == [f"{bucket}/a/{name}" for name in ("large", "x", "y", "z")]
    assert fs.info(f"{bucket}/a/x")["size"] == 1
    fs.mv(f"{bucket}/a/x", f"{bucket}/b/x")
    assert not fs.exists(f"{bucket}/a/x")
    assert fs.cat(f"{bucket}/b/x") == b"x"
    fs.rm(bucket, recursive=True)
    assert not fs.exists(bucket)


def test_a_file_is_made_once(fs: Any, bucket: str) -> None:
    fs.pipe_file(f"{bucket}/lock", b"mine", mode="create")
    with pytest.raises(FileExistsError):
        fs.pipe_file(f"{bucket}/lock", b"other", mode="create")
    assert fs.cat(f"{bucket}/lock") == b"mine"


async def test_calls_of_aiobotocore(service: S3Service, bucket: str) -> None:
    import asyncio

    from aiobotocore.session import get_session

    made = get_session().create_client(
        "s3",
        endpoint_url=service.endpoints[0],
        region_name="us-east-1",
        aws_access_key_id=service.access_key,
        aws_secret_access_key=service.secret_key,
    )
    async with made as client:
        keys = [f"k{number:02}" for number in range(40)]
        await asyncio.gather(
            *(client.put_object(Bucket=bucket, Key=key, Body=key.encode()) for key in keys)
        )
        listed = await client.list_objects_v2(Bucket=bucket)
        assert [each["Key"] for each in listed["Contents"]] == keys
        found = await client.get_object(Bucket=bucket, Key="k07")
        assert await found["Body"].read() == b"k07"
