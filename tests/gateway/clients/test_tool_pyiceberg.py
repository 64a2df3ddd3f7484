"""PyIceberg: a table with objects as files, appended, read, and changed at a snapshot."""

from pathlib import Path
from typing import Any

import pytest

from .s3_service import REGION, S3Service

pytestmark = [pytest.mark.process, pytest.mark.slow]

PIP = "no pyiceberg here: pip install 'pyiceberg[sql-sqlite]' pyarrow"
catalogs = pytest.importorskip("pyiceberg.catalog.sql", reason=PIP)
pa: Any = pytest.importorskip("pyarrow", reason=PIP)


def test_a_table_is_appended_and_read(service: S3Service, bucket: str, tmp_path: Path) -> None:
    settings = {
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"s3://{bucket}/warehouse",
        "s3.endpoint": service.endpoints[0],
        "s3.access-key-id": service.access_key,
        "s3.secret-access-key": service.secret_key,
        "s3.region": REGION,
    }
    catalog = catalogs.SqlCatalog("ares", **settings)
    catalog.create_namespace("lake")
    rows = pa.table({"id": list(range(1000)), "name": [f"name {n}" for n in range(1000)]})
    table = catalog.create_table("lake.rows", schema=rows.schema)
    for _ in range(3):
        table.append(rows)
    first = table.history()[0].snapshot_id
    table.delete("id >= 10")
    again = catalogs.SqlCatalog("ares", **settings).load_table("lake.rows")
    assert again.scan().to_arrow().num_rows == 30
    assert again.scan(row_filter="id == 7").to_arrow()["name"].to_pylist() == ["name 7"] * 3
    assert again.scan(snapshot_id=first).to_arrow().num_rows == 1000
    catalog.purge_table("lake.rows")
