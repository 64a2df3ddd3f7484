"""Listings of objects: order, pages, prefixes, delimiters, both forms."""

import random
from typing import Any

import pytest

from .s3_service import S3Service, new_name, refused

pytestmark = [pytest.mark.process, pytest.mark.slow]

KEYS = sorted(
    [
        *("a", "a/1", "a/2", "a/b/1", "a/b/2", "a0", "aa", "b/", "b/1", "c//1", "c/1"),
        *("Z", "z", "ä", "\ufb01", "\U0001f680", "sp ace", "plus+", "q?&=%", "tab\t"),
    ],
    key=str.encode,
)


@pytest.fixture(scope="module")
def listed(s3: Any) -> str:
    """Return a bucket with KEYS."""
    name = new_name()
    s3.create_bucket(Bucket=name)
    for key in random.Random(1).sample(KEYS, len(KEYS)):
        s3.put_object(Bucket=name, Key=key, Body=key.encode())
    return name


def expected(prefix: str, delimiter: str, after: str = "") -> tuple[list[str], list[str]]:
    """Return the keys and the common prefixes that a listing has."""
    keys, groups = [], []
    for key in KEYS:
        if not key.startswith(prefix) or key.encode() <= after.encode():
            continue
        rest = key[len(prefix) :]
        if delimiter and delimiter in rest:
            group = prefix + rest.partition(delimiter)[0] + delimiter
            groups += [group] if group not in groups else []
        else:
            keys.append(key)
    return keys, groups


def told(page: Any) -> tuple[list[str], list[str]]:
    """Return the keys and the common prefixes of an answer."""
    keys = [each["Key"] for each in page.get("Contents", [])]
    return keys, [each["Prefix"] for each in page.get("CommonPrefixes", [])]


@pytest.mark.parametrize("delimiter", ["", "/", "/b", "1"])
@pytest.mark.parametrize("prefix", ["", "a", "a/", "b/", "none"])
@pytest.mark.parametrize("form", ["list_objects", "list_objects_v2"])
@pytest.mark.parametrize("size", [1000, 3, 1])
def test_pages_have_all_keys_once_in_order(
    s3: Any, listed: str, form: str, prefix: str, delimiter: str, size: int
) -> None:
    if size == 1 and prefix == "":
        pytest.skip("many pages; three keys a page show the same")
    words = {"Bucket": listed, "Prefix": prefix, "PaginationConfig": {"PageSize": size}}
    words |= {"Delimiter": delimiter} if delimiter else {}
    keys, groups = [], []
    for page in s3.get_paginator(form).paginate(**words):
        more_keys, more_groups = told(page)
        assert len(more_keys) + len(more_groups) <= size
        keys += more_keys
        groups += more_groups
    assert (keys, groups) == expected(prefix, delimiter)


def test_a_key_is_described(s3: Any, listed: str) -> None:
    (each,) = s3.list_objects_v2(Bucket=listed, Prefix="plus+")["Contents"]
    head = s3.head_object(Bucket=listed, Key="plus+")
    assert (each["Size"], each["StorageClass"]) == (5, "STANDARD")
    assert each["ETag"] == head["ETag"]
    assert each["LastModified"].replace(microsecond=0) == head["LastModified"]
    assert "Owner" not in each
    words = {"Bucket": listed, "Prefix": "plus+", "FetchOwner": True}
    assert s3.list_objects_v2(**words)["Contents"][0]["Owner"]["ID"]
    assert s3.list_objects(Bucket=listed, Prefix="plus+")["Contents"][0]["Owner"]["ID"]


@pytest.mark.parametrize("after", ["a/1", "a/z", "b", "zzz", "ä"])
def test_a_listing_begins_after_a_key(s3: Any, listed: str, after: str) -> None:
    assert told(s3.list_objects_v2(Bucket=listed, StartAfter=after)) == expected("", "", after)
    assert told(s3.list_objects(Bucket=listed, Marker=after)) == expected("", "", after)


def test_the_counts_of_a_page(s3: Any, listed: str) -> None:
    page = s3.list_objects_v2(Bucket=listed, MaxKeys=4, Delimiter="/")
    assert (page["KeyCount"], page["MaxKeys"], page["IsTruncated"]) == (4, 4, True)
    assert page["Name"] == listed
    nothing = s3.list_objects_v2(Bucket=listed, MaxKeys=0)
    assert (nothing["KeyCount"], nothing["IsTruncated"]) == (0, False)
    all_keys = s3.list_objects_v2(Bucket=listed, MaxKeys=5000)
    assert (all_keys["MaxKeys"], all_keys["KeyCount"]) == (1000, len(KEYS))


def test_a_token_is_used_once_more(s3: Any, listed: str) -> None:
    token = s3.list_objects_v2(Bucket=listed, MaxKeys=5)["NextContinuationToken"]
    words = {"Bucket": listed, "ContinuationToken": token}
    first, second = s3.list_objects_v2(**words), s3.list_objects_v2(**words)
    assert told(first) == told(second) == (KEYS[5:], [])
    assert first["ContinuationToken"] == token


def test_wrong_arguments(service: S3Service, s3: Any, listed: str) -> None:
    for query in ("max-keys=-1", "max-keys=many", "encoding-type=rot13"):
        answer = service.send("GET", f"/{listed}?list-type=2&{query}")
        assert (answer.status, answer.code) == (400, "InvalidArgument"), query
    said = refused(s3.list_objects_v2, Bucket=listed, ContinuationToken="no-such-token")
    assert said == (400, "InvalidArgument")


def test_a_thousand_keys_a_page(service: S3Service, s3: Any, bucket: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def put(number: int) -> None:
        s3.put_object(Bucket=bucket, Key=f"{number:05}", Body=b"")

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(put, range(1001)))
    page = s3.list_objects_v2(Bucket=bucket)
    assert (page["KeyCount"], page["IsTruncated"]) == (1000, True)
    token = page["NextContinuationToken"]
    assert s3.list_objects_v2(Bucket=bucket, ContinuationToken=token)["KeyCount"] == 1
