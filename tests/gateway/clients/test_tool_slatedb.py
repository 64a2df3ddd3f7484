"""SlateDB: a database on objects; a new writer ends the earlier writer by conditional puts."""

from typing import Any

import pytest

from .s3_service import REGION, S3Service

pytestmark = [pytest.mark.process, pytest.mark.slow]

slatedb = pytest.importorskip("slatedb.uniffi", reason="no slatedb here: pip install slatedb")


async def opened(service: S3Service, bucket: str, endpoint: int) -> Any:
    builder = slatedb.ObjectStoreBuilder.from_url(f"s3://{bucket}")
    for name, value in {
        "endpoint": service.endpoints[endpoint % len(service.endpoints)],
        "region": REGION,
        "access_key_id": service.access_key,
        "secret_access_key": service.secret_key,
        "allow_http": "true",
        "virtual_hosted_style_request": "false",
    }.items():
        builder.with_config(name, value)
    return await slatedb.DbBuilder("database", builder.build()).build()


async def overwrite(database: Any) -> None:
    """Put again and again: an ended writer notices with a later put."""
    for _ in range(100):
        await database.put(b"key-000", b"late")
        await database.flush()


async def test_a_new_writer_ends_the_earlier_one(service: S3Service, bucket: str) -> None:
    first = await opened(service, bucket, 0)
    for number in range(50):
        await first.put(b"key-%03d" % number, b"first")
    await first.flush()
    second = await opened(service, bucket, 1)
    await second.put(b"key-000", b"second")
    await second.flush()
    with pytest.raises(slatedb.Error) as raised:
        await overwrite(first)
    assert "fenced" in str(raised.value).lower()
    await second.shutdown()
    third = await opened(service, bucket, 0)
    assert await third.get(b"key-000") == b"second"
    assert await third.get(b"key-049") == b"first"
    await third.shutdown()
