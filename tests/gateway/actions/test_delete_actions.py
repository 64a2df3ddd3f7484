"""Deletions: absent objects, versions and markers, conditions, many objects in one document."""

import pytest

from ares.bucket.commands import ObjectBatch
from ares.client.buckets.bucket_index import BucketIndex
from ares.gateway.actions import delete_actions
from tests.gateway.actions.conftest import sent
from tests.gateway.actions.test_put_actions import versioning

PUT, GET, DELETE, DELETES = "PutObject", "GetObject", "DeleteObject", "DeleteObjects"


def document(*items, quiet=False):
    """Return a document Delete. An item: a key, or a key and further elements."""
    objects = "".join(
        f"<Object><Key>{item[0]}</Key>{''.join(item[1:])}</Object>"
        for item in ((item,) if isinstance(item, str) else item for item in items)
    )
    return f"<Delete>{objects}<Quiet>{str(quiet).lower()}</Quiet></Delete>".encode()


async def test_a_deletion_of_an_absent_object_is_204(gateway):
    await gateway(PUT, "photos", "k", b"1")
    for _ in range(2):
        assert (await gateway(DELETE, "photos", "k")).status == 204
    assert (await gateway(GET, "photos", "k")).status == 404


async def test_a_condition_of_a_deletion(gateway):
    put = await gateway(PUT, "photos", "k", b"1")
    wrong = await gateway(DELETE, "photos", "k", headers={"if-match": '"00"'})
    assert (wrong.status, wrong.error) == (412, "PreconditionFailed")
    size = {"if-match": put.etag, "x-amz-if-match-size": "2"}
    assert (await gateway(DELETE, "photos", "k", headers=size)).status == 412
    assert (await gateway(DELETE, "photos", "k", headers={"if-match": put.etag})).status == 204
    absent = await gateway(DELETE, "photos", "k", headers={"if-match": put.etag})
    assert (absent.status, absent.error) == (404, "NoSuchKey")


async def test_a_repeated_deletion_spares_the_next_object(gateway, rival):
    await gateway(PUT, "photos", "k", b"1")
    await gateway(DELETE, "photos", "k", headers=sent("one"))
    await rival(PUT, "photos", "k", b"2")
    assert (await rival(DELETE, "photos", "k", headers=sent("one", 2))).status == 204
    assert (await gateway(GET, "photos", "k")).body == b"2"


async def test_markers_and_versions(gateway):
    await versioning(gateway, "Enabled")
    put = await gateway(PUT, "photos", "k", b"1")
    marker = await gateway(DELETE, "photos", "k")
    assert marker.headers["x-amz-delete-marker"] == "true"
    removed = await gateway(
        DELETE, "photos", "k", query={"versionId": marker.headers["x-amz-version-id"]}
    )
    assert (removed.status, removed.headers["x-amz-delete-marker"]) == (204, "true")
    assert (await gateway(GET, "photos", "k")).body == b"1"
    first = {"versionId": put.headers["x-amz-version-id"]}
    gone = await gateway(DELETE, "photos", "k", query=first)
    assert "x-amz-delete-marker" not in gone.headers
    again = await gateway(DELETE, "photos", "k", query=first)
    assert (again.status, again.headers["x-amz-version-id"]) == (204, first["versionId"])


async def test_a_suspended_bucket_has_a_null_marker(gateway):
    await versioning(gateway, "Enabled")
    kept = await gateway(PUT, "photos", "k", b"1")
    await versioning(gateway, "Suspended")
    marker = await gateway(DELETE, "photos", "k")
    assert marker.headers["x-amz-version-id"] == "null"
    query = {"versionId": kept.headers["x-amz-version-id"]}
    assert (await gateway(GET, "photos", "k", query=query)).body == b"1"


@pytest.fixture
def commands(monkeypatch):
    """The commands given to the log, in their order."""
    given, commit = [], BucketIndex.commit

    async def kept(index, operation, *others):
        given.append(operation)
        return await commit(index, operation, *others)

    monkeypatch.setattr(BucketIndex, "commit", kept)
    return given


async def test_a_thousand_objects_go_in_one_command(gateway, commands):
    keys = [f"key/{number:04}" for number in range(1000)]
    for key in keys[:3]:
        await gateway(PUT, "photos", key, b"1")
    commands.clear()
    answer = await gateway(DELETES, "photos", body=document(*keys))
    assert [type(command) for command in commands] == [ObjectBatch]
    assert answer.texts("Key") == keys
    assert (await gateway(GET, "photos", keys[0])).status == 404


async def test_long_keys_go_in_several_commands(gateway, commands, monkeypatch):
    monkeypatch.setattr(delete_actions, "DELETIONS_BYTES_MAX", 1000)
    keys = [f"{number:0500}" for number in range(5)]
    commands.clear()
    answer = await gateway(DELETES, "photos", body=document(*keys), headers=sent("one"))
    assert [len(command.items) for command in commands] == [2, 2, 1]
    assert answer.texts("Key") == keys


async def test_each_deletion_has_its_outcome(gateway):
    await gateway(PUT, "photos", "a", b"1")
    await gateway(PUT, "photos", "b", b"1")
    body = document(("a", "<ETag>00</ETag>"), "b", ("absent", "<ETag>00</ETag>"), quiet=True)
    answer = await gateway(DELETES, "photos", body=body)
    assert answer.texts("Key") == ["a", "absent"]
    assert answer.texts("Code") == ["PreconditionFailed", "NoSuchKey"]
    assert (await gateway(GET, "photos", "a")).status == 200
    assert (await gateway(GET, "photos", "b")).status == 404


async def test_markers_in_the_document(gateway):
    await versioning(gateway, "Enabled")
    await gateway(PUT, "photos", "k", b"1")
    made = await gateway(DELETES, "photos", body=document("k"))
    assert made.text("DeleteMarker") == "true"
    marker = made.text("DeleteMarkerVersionId")
    gone = await gateway(
        DELETES, "photos", body=document(("k", f"<VersionId>{marker}</VersionId>"))
    )
    assert (gone.text("VersionId"), gone.text("DeleteMarkerVersionId")) == (marker, marker)
    assert (await gateway(GET, "photos", "k")).body == b"1"


async def test_objects_of_an_absent_bucket(gateway):
    assert (await gateway(DELETES, "absent", body=document("k"))).texts("Code") == ["NoSuchBucket"]
