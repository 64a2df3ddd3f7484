"""Icechunk: commits by conditional puts; of two writers of a snapshot the slower has a conflict."""

from typing import Any

import pytest

from .s3_service import REGION, S3Service

pytestmark = [pytest.mark.process, pytest.mark.slow]

icechunk = pytest.importorskip("icechunk", reason="no icechunk here: pip install icechunk zarr")
zarr = pytest.importorskip("zarr", reason="no zarr here: pip install icechunk zarr")


def storage(service: S3Service, bucket: str, endpoint: int) -> Any:
    return icechunk.s3_storage(
        bucket=bucket,
        prefix="repository",
        region=REGION,
        endpoint_url=service.endpoints[endpoint % len(service.endpoints)],
        allow_http=True,
        access_key_id=service.access_key,
        secret_access_key=service.secret_key,
        force_path_style=True,
    )


def test_of_two_writers_one_has_a_conflict(service: S3Service, bucket: str) -> None:
    made = icechunk.Repository.create(storage(service, bucket, 0))
    session = made.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=(8,), chunks=(4,), dtype="i8")
    array[:] = range(8)
    session.commit("first")
    sessions = [
        icechunk.Repository.open(storage(service, bucket, endpoint)).writable_session("main")
        for endpoint in (0, 1)
    ]
    for number, each in enumerate(sessions):
        zarr.open_array(each.store, path="a", mode="r+")[0] = 100 + number
    sessions[1].commit("the first to commit")
    with pytest.raises(icechunk.ConflictError):
        sessions[0].commit("too late")
    seen = icechunk.Repository.open(storage(service, bucket, 0)).readonly_session("main")
    found = zarr.open_array(seen.store, path="a", mode="r")
    assert list(found[:]) == [101, *range(1, 8)]
    assert [each.message for each in made.ancestry(branch="main")][:2] == [
        "the first to commit",
        "first",
    ]
