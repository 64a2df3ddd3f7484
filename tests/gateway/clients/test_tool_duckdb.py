"""DuckDB with the extension httpfs."""

from importlib import metadata

import pytest

from .s3_service import REGION, S3Service

pytestmark = [pytest.mark.process, pytest.mark.slow]

duckdb = pytest.importorskip("duckdb", reason="no duckdb here: pip install duckdb-ext-httpfs")


@pytest.fixture
def extension() -> str:
    """Return the path of the extension httpfs."""
    try:
        files = metadata.files("duckdb-ext-httpfs") or []
    except metadata.PackageNotFoundError:
        pytest.skip("no httpfs here: pip install duckdb-ext-httpfs")
    (file,) = (each for each in files if each.name == "httpfs.duckdb_extension")
    return str(file.locate())


def test_tables_are_written_and_queried(service: S3Service, bucket: str, extension: str) -> None:
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as db:
        db.execute(f"LOAD '{extension}'")
        db.execute(
            "CREATE SECRET (TYPE s3, URL_STYLE 'path', USE_SSL false, "
            f"KEY_ID '{service.access_key}', SECRET '{service.secret_key}', "
            f"ENDPOINT '{service.address}', REGION '{REGION}')"
        )
        rows = "SELECT i AS n, i % 3 AS part FROM range(300000) t(i)"
        db.execute(f"COPY ({rows}) TO 's3://{bucket}/t' (FORMAT parquet, PARTITION_BY part)")
        db.execute(f"COPY ({rows}) TO 's3://{bucket}/one.csv'")
        query = f"SELECT count(*), sum(n) FROM read_parquet('s3://{bucket}/t/*/*.parquet')"
        assert db.execute(query).fetchone() == (300_000, 300_000 * 299_999 // 2)
        query = f"SELECT max(n) FROM 's3://{bucket}/one.csv'"
        assert db.execute(query).fetchone() == (299_999,)
        found = db.execute(f"SELECT file FROM glob('s3://{bucket}/t/part=1/*')").fetchall()
        assert len(found) >= 1
