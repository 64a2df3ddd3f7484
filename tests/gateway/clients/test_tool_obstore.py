"""obstore: the crate object_store, which Delta Lake, SlateDB and Icechunk use, too."""

import os
from typing import Any

import pytest

from .s3_service import REGION, S3Service

pytestmark = [pytest.mark.process, pytest.mark.slow]

obstore = pytest.importorskip("obstore", reason="no obstore here: pip install obstore")


@pytest.fixture
def store(service: S3Service, bucket: str) -> Any:
    from obstore.store import S3Store

    return S3Store(
        bucket,
        endpoint=service.endpoints[0],
        access_key_id=service.access_key,
        secret_access_key=service.secret_key,
        region=REGION,
        client_options={"allow_http": True},
    )


def test_objects(store: Any) -> None:
    body = os.urandom(12 << 20)
    obstore.put(store, "a/large", body, chunk_size=5 << 20)  # an upload in parts
    assert bytes(obstore.get(store, "a/large").bytes()) == body
    start = 10 << 20
    assert bytes(obstore.get_range(store, "a/large", start=start, length=99)) == body[start:][:99]
    obstore.copy(store, "a/large", "b/copy")
    obstore.rename(store, "b/copy", "b/renamed")
    listed = sorted(each["path"] for page in obstore.list(store) for each in page)
    assert listed == ["a/large", "b/renamed"]
    assert obstore.head(store, "b/renamed")["size"] == len(body)
    obstore.delete(store, listed)
    assert [each for page in obstore.list(store) for each in page] == []


def test_an_object_is_created_once(store: Any) -> None:
    obstore.put(store, "lock", b"mine", mode="create")
    with pytest.raises(obstore.exceptions.AlreadyExistsError):
        obstore.put(store, "lock", b"other", mode="create")


def test_an_object_is_updated_from_a_known_version(store: Any) -> None:
    first = {"e_tag": obstore.put(store, "n", b"1")["e_tag"]}
    obstore.put(store, "n", b"2", mode=first)
    with pytest.raises(obstore.exceptions.PreconditionError):
        obstore.put(store, "n", b"3", mode=first)
    assert bytes(obstore.get(store, "n").bytes()) == b"2"
