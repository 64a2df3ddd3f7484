"""Copies and renamings: directives, conditions of both sides, versions, the object itself."""

import pytest

from tests.gateway.actions.conftest import sent
from tests.gateway.actions.test_put_actions import LARGE, versioning

PUT, GET, HEAD, COPY, RENAME = "PutObject", "GetObject", "HeadObject", "CopyObject", "RenameObject"
SOURCE = {"x-amz-copy-source": "/photos/from"}
REPLACE = {"x-amz-metadata-directive": "REPLACE"}


@pytest.fixture
async def source(gateway):
    """The object ``from``, with metadata and tags."""
    headers = {"x-amz-meta-by": "me", "content-type": "text/plain", "x-amz-tagging": "a=1"}
    return await gateway(PUT, "photos", "from", LARGE, headers=headers)


async def test_a_copy_has_the_data_the_metadata_and_the_tags(gateway, rival, source):
    copied = await gateway(COPY, "photos", "to", headers=SOURCE)
    assert (copied.status, copied.text("ETag")) == (200, source.etag)
    await gateway("DeleteObject", "photos", "from")
    got = await rival(GET, "photos", "to")
    assert (got.body, got.headers["x-amz-meta-by"]) == (LARGE, "me")
    assert (await rival("GetObjectTagging", "photos", "to")).texts("Key") == ["a"]


async def test_directives_replace_metadata_and_tags(gateway, source):
    headers = SOURCE | REPLACE | {"x-amz-meta-by": "you", "x-amz-tagging": "b=2"}
    await gateway(COPY, "photos", "to", headers=headers)
    got = await gateway(HEAD, "photos", "to")
    assert got.headers["x-amz-meta-by"] == "you"
    assert got.headers["content-type"] == "binary/octet-stream"
    assert (await gateway("GetObjectTagging", "photos", "to")).texts("Key") == ["a"]
    await gateway(COPY, "photos", "to", headers=headers | {"x-amz-tagging-directive": "REPLACE"})
    assert (await gateway("GetObjectTagging", "photos", "to")).texts("Key") == ["b"]


async def test_a_copy_onto_itself_replaces_something(gateway, source):
    refused = await gateway(COPY, "photos", "from", headers=SOURCE)
    assert (refused.status, refused.error) == (400, "InvalidRequest")
    done = await gateway(COPY, "photos", "from", headers=SOURCE | REPLACE | {"x-amz-meta-n": "1"})
    got = await gateway(GET, "photos", "from")
    assert (done.status, got.body, got.headers["x-amz-meta-n"]) == (200, LARGE, "1")


async def test_conditions_of_both_sides(gateway, source):
    name = "x-amz-copy-source-if"
    cases = [
        ({f"{name}-match": source.etag}, 200),
        ({f"{name}-match": '"00"'}, 412),
        ({f"{name}-none-match": source.etag}, 412),
        ({f"{name}-none-match": '"00"'}, 200),
        ({f"{name}-modified-since": "Mon, 01 Jan 2001 00:00:00 GMT"}, 200),
        ({f"{name}-unmodified-since": "Mon, 01 Jan 2001 00:00:00 GMT"}, 412),
        ({"if-none-match": "*"}, 412),
        ({"if-match": source.etag}, 200),
        ({"if-match": '"00"'}, 412),
    ]
    await gateway(COPY, "photos", "to", headers=SOURCE)
    for headers, status in cases:
        answer = await gateway(COPY, "photos", "to", headers=SOURCE | headers)
        assert (answer.status, headers) == (status, headers)


async def test_a_missing_source_is_told(gateway, source):
    for path, error in (
        ("/photos/absent", "NoSuchKey"),
        ("/absent/from", "NoSuchBucket"),
        ("/photos/from?versionId=99999", "NoSuchVersion"),
    ):
        answer = await gateway(COPY, "photos", "to", headers={"x-amz-copy-source": path})
        assert (answer.status, answer.error) == (404, error)
    assert (await gateway(COPY, "absent", "to", headers=SOURCE)).error == "NoSuchBucket"


async def test_an_older_version_is_copied_back(gateway):
    await versioning(gateway, "Enabled")
    old = await gateway(PUT, "photos", "from", b"old")
    await gateway(PUT, "photos", "from", b"new")
    version = old.headers["x-amz-version-id"]
    path = {"x-amz-copy-source": f"/photos/from?versionId={version}"}
    copied = await gateway(COPY, "photos", "from", headers=path)
    assert copied.headers["x-amz-copy-source-version-id"] == version
    assert copied.headers["x-amz-version-id"] != version
    assert (await gateway(GET, "photos", "from")).body == b"old"


async def test_a_repeated_copy_is_the_first_copy(gateway, rival, source):
    first = await gateway(COPY, "photos", "to", headers=SOURCE | sent("one"))
    await gateway(PUT, "photos", "from", b"new")
    again = await rival(COPY, "photos", "to", headers=SOURCE | sent("one", 2))
    assert (again.status, again.text("ETag")) == (200, first.text("ETag"))
    assert again.headers["x-ares-version"] == first.headers["x-ares-version"]


async def test_a_renaming_moves_at_once(gateway, rival, source):
    wanted = {"x-amz-rename-source": "/from"}
    renamed = await gateway(RENAME, "photos", "to", headers=wanted | sent("one"))
    assert (renamed.status, renamed.etag) == (200, source.etag)
    assert (await rival(GET, "photos", "to")).body == LARGE
    assert (await rival(GET, "photos", "from")).status == 404
    again = await rival(RENAME, "photos", "to", headers=wanted | sent("one", 2))
    assert again.status == 200
    assert (await rival(RENAME, "photos", "to", headers=wanted)).error == "NoSuchKey"


async def test_conditions_of_a_renaming(gateway, source):
    wanted = {"x-amz-rename-source": "/from"}
    await gateway(PUT, "photos", "to", b"1")
    for headers in ({"if-none-match": "*"}, {"x-amz-rename-source-if-match": '"00"'}):
        answer = await gateway(RENAME, "photos", "to", headers=wanted | headers)
        assert (answer.status, answer.error) == (412, "PreconditionFailed")
    assert (await gateway(GET, "photos", "to")).body == b"1"
    assert (await gateway(HEAD, "photos", "from")).status == 200
    itself = await gateway(RENAME, "photos", "from", headers=wanted)
    assert itself.error == "InvalidRequest"
