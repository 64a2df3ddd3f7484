"""Buckets: creation, deletion, configurations, tags, access control lists."""

import pytest

from tests.gateway.actions.conftest import sent
from tests.gateway.actions.test_put_actions import versioning

PUT = "PutObject"
TAGS = b"<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>"


async def test_a_bucket_is_created_once(gateway, rival):
    first = await gateway("CreateBucket", "films", headers=sent("one"))
    assert (first.status, first.headers["location"]) == (200, "/films")
    again = await rival("CreateBucket", "films", headers=sent("one", 2))
    assert again.status == 200
    other = await rival("CreateBucket", "films", headers=sent("two"))
    assert (other.status, other.error) == (409, "BucketAlreadyOwnedByYou")


async def test_a_region_is_the_gateways_or_refused(gateway):
    region = "<LocationConstraint>{}</LocationConstraint>"
    form = f"<CreateBucketConfiguration>{region}</CreateBucketConfiguration>"
    there = await gateway("CreateBucket", "films", form.format("us-east-1").encode())
    assert there.status == 200
    elsewhere = await gateway("CreateBucket", "music", body=form.format("eu-west-1").encode())
    assert (elsewhere.status, elsewhere.error) == (400, "InvalidLocationConstraint")
    assert (await gateway("HeadBucket", "music")).error == "NoSuchBucket"
    assert (await gateway("GetBucketLocation", "photos")).text("LocationConstraint") == ""


async def test_only_an_empty_bucket_is_deleted(gateway):
    await gateway(PUT, "photos", "k", b"1")
    refused = await gateway("DeleteBucket", "photos")
    assert (refused.status, refused.error) == (409, "BucketNotEmpty")
    await gateway("DeleteObject", "photos", "k")
    assert (await gateway("DeleteBucket", "photos")).status == 204
    assert (await gateway("DeleteBucket", "photos")).error == "NoSuchBucket"
    assert (await gateway("HeadBucket", "photos")).error == "NoSuchBucket"


async def test_uploads_under_way_end_with_an_empty_bucket(gateway, rival):
    for key in ("k", "l", "l"):
        await gateway("CreateMultipartUpload", "photos", key)
    await gateway(PUT, "photos", "k", b"1")
    assert (await rival("DeleteBucket", "photos")).error == "BucketNotEmpty"
    assert len((await gateway("ListMultipartUploads", "photos")).texts("UploadId")) == 3
    await gateway("DeleteObject", "photos", "k")
    assert (await rival("DeleteBucket", "photos")).status == 204
    await gateway("CreateBucket", "photos")
    assert (await gateway("ListMultipartUploads", "photos")).texts("UploadId") == []


async def test_a_late_attempt_at_a_deletion_ends_no_upload_of_a_new_bucket(gateway, rival):
    assert (await gateway("DeleteBucket", "photos", headers=sent("one"))).status == 204
    await gateway("CreateBucket", "photos")
    await gateway("CreateMultipartUpload", "photos", "k")
    assert (await rival("DeleteBucket", "photos", headers=sent("one", 2))).status == 204
    assert len((await gateway("ListMultipartUploads", "photos")).texts("UploadId")) == 1


async def test_versioning_is_told(gateway, rival):
    assert (await rival("GetBucketVersioning", "photos")).texts("Status") == []
    for status in ("Enabled", "Suspended"):
        await versioning(gateway, status)
        assert (await rival("GetBucketVersioning", "photos")).text("Status") == status


@pytest.mark.parametrize(
    ("name", "document", "missing"),
    [
        ("Tagging", TAGS, "NoSuchTagSet"),
        (
            "Cors",
            b"<CORSConfiguration><CORSRule><AllowedMethod>GET</AllowedMethod><AllowedOrigin>*"
            b"</AllowedOrigin></CORSRule></CORSConfiguration>",
            "NoSuchCORSConfiguration",
        ),
        (
            "LifecycleConfiguration",
            b"<LifecycleConfiguration><Rule><ID>old</ID><Filter><Prefix>a/</Prefix></Filter><Status>"
            b"Enabled</Status><Expiration><Days>3</Days></Expiration></Rule></LifecycleConfiguration>",
            "NoSuchLifecycleConfiguration",
        ),
    ],
)
async def test_a_configuration_is_kept_and_removed(gateway, rival, name, document, missing):
    removal = f"DeleteBucket{name.removesuffix('Configuration')}"
    assert (await rival(f"GetBucket{name}", "photos")).error == missing
    assert (await gateway(f"PutBucket{name}", "photos", body=document)).status in (200, 204)
    told = await rival(f"GetBucket{name}", "photos")
    assert told.status == 200
    put_again = await gateway(f"PutBucket{name}", "photos", body=told.body)
    assert put_again.status in (200, 204)
    assert (await rival(f"GetBucket{name}", "photos")).body == told.body
    assert (await gateway(f"PutBucket{name}", "photos", body=b"<odd/>")).error == "MalformedXML"
    assert (await gateway(removal, "photos")).status == 204
    assert (await rival(f"GetBucket{name}", "photos")).error == missing
    assert (await gateway(f"PutBucket{name}", "absent", body=document)).error == "NoSuchBucket"


async def test_canned_lists(gateway, rival):
    assert (await rival("GetBucketAcl", "photos")).texts("Permission") == ["FULL_CONTROL"]
    public = {"x-amz-acl": "public-read"}
    assert (await gateway("PutBucketAcl", "photos", headers=public)).status == 200
    told = await rival("GetBucketAcl", "photos")
    assert told.texts("Permission") == ["FULL_CONTROL", "READ"]
    await gateway(PUT, "photos", "k", b"1")
    assert (await rival("GetObjectAcl", "photos", "k")).body == told.body
    assert (await gateway("PutObjectAcl", "photos", "k", headers=public)).status == 200
    private = {"x-amz-acl": "private"}
    assert (await gateway("PutObjectAcl", "photos", "k", headers=private)).error == "NotImplemented"
    assert (await gateway("PutBucketAcl", "photos", headers=private)).status == 200
    assert (await gateway("PutBucketAcl", "photos", body=told.body)).status == 200
    assert (await rival("GetBucketAcl", "photos")).body == told.body
    for acl in ("public-read-write", "odd"):
        answer = await gateway("PutBucketAcl", "photos", headers={"x-amz-acl": acl})
        assert answer.error == "NotImplemented"


async def test_a_bucket_is_created_public(gateway, rival):
    await gateway("CreateBucket", "films", headers={"x-amz-acl": "public-read"})
    assert (await rival("GetBucketAcl", "films")).texts("Permission") == ["FULL_CONTROL", "READ"]


async def test_tags_of_versions(gateway, rival):
    await versioning(gateway, "Enabled")
    old = {"versionId": (await gateway(PUT, "photos", "k", b"1")).headers["x-amz-version-id"]}
    await gateway(PUT, "photos", "k", b"2")
    assert (await gateway("PutObjectTagging", "photos", "k", TAGS, query=old)).status == 200
    assert (await rival("GetObjectTagging", "photos", "k", query=old)).texts("Key") == ["a"]
    assert (await rival("GetObjectTagging", "photos", "k")).texts("Key") == []
    assert (await gateway("DeleteObjectTagging", "photos", "k", query=old)).status == 204
    assert (await rival("GetObjectTagging", "photos", "k", query=old)).texts("Key") == []
    missing = await gateway("PutObjectTagging", "photos", "absent", TAGS)
    assert (missing.status, missing.error) == (404, "NoSuchKey")


async def test_attributes_are_those_asked_for(gateway):
    put = await gateway(PUT, "photos", "k", b"123")
    wanted = {"x-amz-object-attributes": "ETag,StorageClass"}
    told = await gateway("GetObjectAttributes", "photos", "k", headers=wanted)
    assert (told.text("ETag"), told.text("StorageClass")) == (put.etag.strip('"'), "STANDARD")
    assert told.texts("ObjectSize") == []
    odd = {"x-amz-object-attributes": "Odd"}
    answer = await gateway("GetObjectAttributes", "photos", "k", headers=odd)
    assert answer.error == "InvalidArgument"
