"""Listings: order, pages, delimiters, markers of pages, versions, uploads, buckets."""

import pytest

from tests.gateway.actions.test_put_actions import versioning

PUT, V1, V2 = "PutObject", "ListObjects", "ListObjectsV2"
KEYS = ["a", "b/1", "b/2", "b/c/3", "d", "e/1", "z", "é", "\uffee", "\U0001f600"]
"""In the order of their bytes."""


@pytest.fixture
async def filled(gateway):
    for key in reversed(KEYS):
        await gateway(PUT, "photos", key, key.encode())
    return gateway


async def pages_v2(gateway, **query):
    """Return the keys and the prefixes of all pages."""
    found, token = [], {}
    while True:
        page = await gateway(V2, "photos", query=query | token)
        prefixes = [text for text in page.texts("Prefix") if text][bool(query.get("prefix")) :]
        found.append((page.texts("Key"), prefixes))
        assert page.text("KeyCount") == str(len(found[-1][0]) + len(found[-1][1]))
        if page.text("IsTruncated") == "false":
            assert page.texts("NextContinuationToken") == []
            return found
        token = {"continuation-token": page.text("NextContinuationToken")}


async def test_keys_come_in_the_order_of_bytes(filled, rival):
    assert await pages_v2(rival) == [(KEYS, [])]
    paged = await pages_v2(rival, **{"max-keys": "3"})
    assert [key for keys, _ in paged for key in keys] == KEYS
    assert [len(keys) for keys, _ in paged] == [3, 3, 3, 1]
    whole = await pages_v2(rival, **{"max-keys": "5"})
    assert [len(keys) for keys, _ in whole] == [5, 5]


async def test_a_delimiter_gives_common_prefixes(filled):
    (page,) = await pages_v2(filled, delimiter="/")
    assert page == (["a", "d", *KEYS[6:]], ["b/", "e/"])
    paged = await pages_v2(filled, delimiter="/", **{"max-keys": "1"})
    assert [keys + prefixes for keys, prefixes in paged[:4]] == [["a"], ["b/"], ["d"], ["e/"]]
    assert await pages_v2(filled, delimiter="/", prefix="b/") == [(["b/1", "b/2"], ["b/c/"])]


async def test_markers_of_version_1(filled):
    first = await filled(V1, "photos", query={"delimiter": "/", "max-keys": "2"})
    assert (first.texts("Key"), first.text("NextMarker")) == (["a"], "b/")
    second = await filled(V1, "photos", query={"delimiter": "/", "max-keys": "2", "marker": "b/"})
    assert (second.texts("Key"), second.text("NextMarker")) == (["d"], "e/")
    inside = await filled(V1, "photos", query={"marker": "b/1"})
    assert inside.texts("Key") == KEYS[2:]


async def test_start_after_and_owners(filled):
    page = await filled(V2, "photos", query={"start-after": "d", "fetch-owner": "true"})
    assert page.texts("Key") == KEYS[5:]
    assert len(page.texts("Owner")) == len(KEYS[5:])
    assert (await filled(V2, "photos")).texts("Owner") == []


async def test_keys_are_encoded_if_asked(gateway):
    await gateway(PUT, "photos", "a\x01 +/é", b"")
    page = await gateway(V2, "photos", query={"encoding-type": "url"})
    assert page.text("Key") == "a%01%20%2B/%C3%A9"


async def test_limits_and_odd_queries(filled):
    none = await filled(V2, "photos", query={"max-keys": "0"})
    assert (none.texts("Key"), none.text("IsTruncated")) == ([], "false")
    many = await filled(V2, "photos", query={"max-keys": "100000"})
    assert many.texts("Key") == KEYS
    for query in (
        {"max-keys": "-1"},
        {"max-keys": "x"},
        {"continuation-token": "odd"},
        {"continuation-token": ""},
        {"continuation-token": "A" * 5000},
        {"prefix": "x" * 1025},
        {"encoding-type": "odd"},
    ):
        answer = await filled(V2, "photos", query=query)
        assert (answer.status, answer.error) == (400, "InvalidArgument")
    assert (await filled(V2, "absent")).error == "NoSuchBucket"


async def test_a_page_before_deletions_is_the_last(gateway):
    await versioning(gateway, "Enabled")
    for key in ("a", "b", "c"):
        await gateway(PUT, "photos", key, b"")
    await gateway("DeleteObject", "photos", "b")
    await gateway("DeleteObject", "photos", "c")
    page = await gateway(V2, "photos", query={"max-keys": "1"})
    assert (page.texts("Key"), page.text("IsTruncated")) == (["a"], "false")


async def test_versions_in_pages(gateway):
    await gateway(PUT, "photos", "a", b"0")
    await versioning(gateway, "Enabled")
    for body in (b"1", b"2"):
        await gateway(PUT, "photos", "a", body)
    await gateway("DeleteObject", "photos", "a")
    await gateway(PUT, "photos", "b", b"3")
    whole = await gateway("ListObjectVersions", "photos")
    assert whole.texts("Key") == list("aaaab")
    versions, marks, latest = [], {}, []
    while True:
        page = await gateway("ListObjectVersions", "photos", query={"max-keys": "1"} | marks)
        versions += page.texts("VersionId")
        latest += page.texts("IsLatest")
        if page.text("IsTruncated") == "false":
            break
        marks = {
            "key-marker": page.text("NextKeyMarker"),
            "version-id-marker": page.text("NextVersionIdMarker"),
        }
    assert sorted(versions) == sorted(whole.texts("VersionId"))
    assert latest == ["true", "false", "false", "false", "true"]
    assert versions[3] == "null"
    behind = await gateway(
        "ListObjectVersions", "photos", query={"key-marker": "a", "version-id-marker": "null"}
    )
    assert behind.texts("Key") == ["b"]


async def test_a_page_begins_behind_a_null_version_among_others(gateway):
    await versioning(gateway, "Enabled")
    older = await gateway(PUT, "photos", "a", b"1")
    await versioning(gateway, "Suspended")
    await gateway(PUT, "photos", "a", b"2")
    marks = {"key-marker": "a", "version-id-marker": "null"}
    behind = await gateway("ListObjectVersions", "photos", query=marks)
    assert behind.texts("VersionId") == [older.headers["x-amz-version-id"]]


async def test_uploads_in_pages(gateway):
    ids = []
    for key in ("a", "a", "b"):
        begun = await gateway("CreateMultipartUpload", "photos", key)
        ids.append(begun.text("UploadId"))
    found, marks = [], {}
    while True:
        query = {"max-uploads": "1"} | marks
        page = await gateway("ListMultipartUploads", "photos", query=query)
        found += page.texts("UploadId")
        if page.text("IsTruncated") == "false":
            break
        marks = {
            "key-marker": page.text("NextKeyMarker"),
            "upload-id-marker": page.text("NextUploadIdMarker"),
        }
    assert found == ids


async def test_buckets_in_pages_and_within_reach(gateway):
    for name in ("photos-2", "films", "ares-gateway-own"):
        await gateway("CreateBucket", name)
    assert (await gateway("ListBuckets")).texts("Name") == ["films", "photos", "photos-2"]
    prefixed = await gateway("ListBuckets", query={"prefix": "photos"})
    assert prefixed.texts("Name") == ["photos", "photos-2"]
    first = await gateway("ListBuckets", query={"max-buckets": "2"})
    assert first.texts("Name") == ["films", "photos"]
    token = {"continuation-token": first.text("ContinuationToken")}
    rest = await gateway("ListBuckets", query=token)
    assert (rest.texts("Name"), rest.texts("ContinuationToken")) == (["photos-2"], [])


async def test_a_key_of_some_buckets_lists_these(gateway):
    for name in ("films", "music"):
        await gateway("CreateBucket", name)
    gateway.buckets = ("photos", "music", "absent")
    assert (await gateway("ListBuckets")).texts("Name") == ["music", "photos"]
    first = await gateway("ListBuckets", query={"max-buckets": "1"})
    token = {"continuation-token": first.text("ContinuationToken")}
    assert (await gateway("ListBuckets", query=token)).texts("Name") == ["photos"]
    assert (await gateway("ListBuckets", query={"prefix": "m"})).texts("Name") == ["music"]
