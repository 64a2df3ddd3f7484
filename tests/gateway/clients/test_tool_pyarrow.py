"""pyarrow: a client of S3, in C++."""

import os
from typing import Any

import pytest

from .s3_service import REGION, S3Service

pytestmark = [pytest.mark.process, pytest.mark.slow]

pa = pytest.importorskip("pyarrow", reason="no pyarrow here: pip install pyarrow")
arrow_fs = pytest.importorskip("pyarrow.fs", reason="no pyarrow here: pip install pyarrow")


@pytest.fixture
def fs(service: S3Service) -> Any:
    return arrow_fs.S3FileSystem(
        access_key=service.access_key,
        secret_key=service.secret_key,
        endpoint_override=service.endpoints[0],
        region=REGION,
        allow_bucket_creation=True,
    )


def test_files_and_folders(fs: Any, bucket: str) -> None:
    body = os.urandom(12 << 20)
    with fs.open_output_stream(f"{bucket}/a/large") as file:
        file.write(body)
    fs.create_dir(f"{bucket}/empty")
    with fs.open_input_file(f"{bucket}/a/large") as file:
        assert file.size() == len(body)
        assert file.read_at(100, 10 << 20) == body[10 << 20 :][:100]
    found = fs.get_file_info(arrow_fs.FileSelector(bucket, recursive=True))
    kinds = {each.path.removeprefix(f"{bucket}/"): each.type for each in found}
    folder, file = arrow_fs.FileType.Directory, arrow_fs.FileType.File
    assert kinds == {"a": folder, "a/large": file, "empty": folder}
    fs.copy_file(f"{bucket}/a/large", f"{bucket}/copy")
    fs.delete_dir(f"{bucket}/a")
    assert fs.get_file_info(f"{bucket}/copy").size == len(body)
    assert fs.get_file_info(f"{bucket}/a/large").type == arrow_fs.FileType.NotFound


def test_a_data_set(fs: Any, bucket: str) -> None:
    dataset = pytest.importorskip("pyarrow.dataset")
    table = pa.table({"year": [2024, 2025] * 500, "n": list(range(1000))})
    dataset.write_dataset(
        table, f"{bucket}/t", format="parquet", partitioning=["year"], filesystem=fs
    )
    read = dataset.dataset(f"{bucket}/t", partitioning=["year"], filesystem=fs)
    assert read.count_rows(filter=dataset.field("year") == 2025) == 500
