"""Tables of pandas and pyarrow, which find the protocol by its name."""

from typing import Any

import pytest

from ares.cluster.settings import Settings

from .conftest import DOMAIN


@pytest.fixture
def options(settings: Settings) -> dict[str, Any]:
    return {"cluster": str(settings.path), "domain": DOMAIN, "create": True}


@pytest.fixture
def pandas() -> Any:
    return pytest.importorskip(
        "pandas", reason="pandas is not installed: pip install pandas pyarrow"
    )


@pytest.fixture
def pyarrow() -> Any:
    return pytest.importorskip(
        "pyarrow", reason="pyarrow is not installed: pip install pandas pyarrow"
    )


@pytest.mark.slow
def test_pandas_writes_and_reads_csv(pandas: Any, options: dict[str, Any], here: str) -> None:
    frame = pandas.DataFrame({"name": ["a", "b"], "size": [1, 2]})
    frame.to_csv(f"ares://{here}/t.csv", index=False, storage_options=options)
    assert pandas.read_csv(f"ares://{here}/t.csv", storage_options=options).equals(frame)
    frame.to_csv(f"ares://{here}/t.csv.gz", index=False, storage_options=options)
    assert pandas.read_csv(f"ares://{here}/t.csv.gz", storage_options=options).equals(frame)


def test_pandas_writes_and_reads_parquet(
    pandas: Any, pyarrow: Any, options: dict[str, Any], here: str
) -> None:
    frame = pandas.DataFrame({"number": range(300_000)})
    frame.to_parquet(f"ares://{here}/t.parquet", storage_options=options)
    assert pandas.read_parquet(
        f"ares://{here}/t.parquet", storage_options=options, columns=["number"]
    ).equals(frame)


def test_pyarrow_writes_and_reads_a_partitioned_dataset(pyarrow: Any, fs: Any, here: str) -> None:
    from pyarrow import dataset

    table = pyarrow.table({"year": [2023, 2024, 2024], "value": [1, 2, 3]})
    dataset.write_dataset(table, here, filesystem=fs, format="parquet", partitioning=["year"])
    found = dataset.dataset(here, filesystem=fs, format="parquet", partitioning=["year"])
    assert fs.ls(here, detail=False) == [f"{here}/2023", f"{here}/2024"]
    assert sorted(found.to_table().column("value").to_pylist()) == [1, 2, 3]
    assert found.to_table(filter=dataset.field("year") == 2024).num_rows == 2
