"""Delta Lake: writers commit with a conditional put, and no writer loses rows."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from .s3_service import S3Service

pytestmark = [pytest.mark.process, pytest.mark.slow]

deltalake = pytest.importorskip("deltalake", reason="no deltalake here: pip install deltalake")
pa = pytest.importorskip("pyarrow", reason="no pyarrow here: pip install pyarrow")

WRITERS, COMMITS = 2, 5


def test_two_writers_append(service: S3Service, bucket: str) -> None:
    options = {
        "AWS_ACCESS_KEY_ID": service.access_key,
        "AWS_SECRET_ACCESS_KEY": service.secret_key,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "conditional_put": "etag",
    }

    def append(writer: int) -> None:
        endpoint = service.endpoints[writer % len(service.endpoints)]
        for number in range(COMMITS):
            rows: Any = pa.table({"writer": [writer] * 10, "n": [number] * 10})
            deltalake.write_deltalake(
                f"s3://{bucket}/t",
                rows,
                mode="append",
                storage_options=options | {"AWS_ENDPOINT_URL": endpoint},
            )

    append(0)
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(append, range(1, WRITERS + 1)))
    table = deltalake.DeltaTable(
        f"s3://{bucket}/t",
        storage_options=options | {"AWS_ENDPOINT_URL": service.endpoints[0]},
    )
    assert table.version() == COMMITS * (WRITERS + 1) - 1
    assert table.to_pyarrow_table().num_rows == COMMITS * 10 * (WRITERS + 1)
