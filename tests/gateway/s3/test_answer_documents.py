"""Documents in the bodies of answers: names and values as clients read them."""

from collections.abc import Iterable
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ares.bucket.index_records import Versioning
from ares.gateway.s3.answer_documents import (
    DEFAULT_REGION,
    DeletionOutcome,
    MadeVersion,
    ObjectAttributes,
    PartAttributes,
    PartsPage,
    acl_document,
    attributes_document,
    begun_upload,
    completed_upload,
    copied_object,
    copied_part,
    deleted_objects,
    location_document,
    posted_object,
    tagging_document,
    versioning_document,
)
from ares.gateway.s3.listing_documents import (
    ListedPart,
    ListedRow,
    ListedUpload,
    ListingFrame,
    PartsListing,
    listed_buckets,
    listed_objects,
    listed_objects_v2,
    listed_parts,
    listed_uploads,
    listed_versions,
)
from ares.gateway.s3.request_documents import PRIVATE, PUBLIC_READ, canned_acl, tagging, versioning
from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.gateway.s3.xml_text import S3_NAMESPACE

MS = 1_700_000_000_400
DATE = "2023-11-14T22:13:20.400Z"
MADE = MadeVersion("e", MS, {"CRC32": "AAAAAA=="}, "FULL_OBJECT")
KEY = ' a&<b>"\r\n+é '


def read(document: bytes, path: str = "") -> list[str]:
    """Return the texts of the elements at a path, in S3's namespace."""
    root = ElementTree.fromstring(document)
    steps = [f"{{{S3_NAMESPACE}}}{step}" for step in path.split("/")]
    return [found.text or "" for found in root.findall("/".join(steps))]


def one(document: bytes, path: str) -> str:
    (found,) = read(document, path)
    return found


def names(document: bytes) -> list[str]:
    return [
        each.tag.removeprefix(f"{{{S3_NAMESPACE}}}") for each in ElementTree.fromstring(document)
    ]


def frame(**told: object) -> ListingFrame:
    fields = {"bucket": "photos", "prefix": "", "delimiter": "", "limit": 1000, "truncated": False}
    return ListingFrame(**{**fields, **told})


# -- listings --------------------------------------------------------------------------------------


def test_buckets():
    document = listed_buckets([("photos", MS)], "here", "next")
    assert one(document, "Buckets/Bucket/Name") == "photos"
    assert one(document, "Buckets/Bucket/CreationDate") == DATE
    assert one(document, "Owner/ID") == "ares"
    assert one(document, "ContinuationToken") == "next"


PLAIN = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff")


@given(st.lists(st.text(PLAIN | st.sampled_from("\t\r\n&<>\"'"), min_size=1)))
def test_keys_come_back_from_a_listing(keys: list[str]):
    listed = [ListedRow(key, MS) for key in keys]
    assert read(listed_objects(frame(), listed), "Contents/Key") == keys


@given(st.lists(st.text(min_size=1)))
def test_every_key_comes_back_from_an_encoded_listing(keys: list[str]):
    try:
        wanted = [key.encode().decode() for key in keys]
    except UnicodeEncodeError:
        return
    listed = [ListedRow(key, MS) for key in wanted]
    document = listed_objects(frame(encoded=True), listed)
    assert list(map(unquote, read(document, "Contents/Key"))) == wanted
    assert one(document, "EncodingType") == "url"


def test_objects():
    marks = {"Marker": KEY, "NextMarker": "b/"}
    told = frame(prefix=KEY, delimiter="/", limit=2, truncated=True, prefixes=["b/"], marks=marks)
    listed = [ListedRow(KEY, MS, "e", 5, "", False, False, "CRC32", "FULL_OBJECT")]
    document = listed_objects(told, listed)
    assert one(document, "Name") == "photos"
    assert (
        one(document, "Prefix") == one(document, "Marker") == one(document, "Contents/Key") == KEY
    )
    assert one(document, "NextMarker") == one(document, "CommonPrefixes/Prefix") == "b/"
    assert one(document, "Delimiter") == "/"
    assert one(document, "MaxKeys") == "2"
    assert one(document, "IsTruncated") == "true"
    assert one(document, "Contents/ETag") == '"e"'
    assert one(document, "Contents/Size") == "5"
    assert one(document, "Contents/LastModified") == DATE
    assert one(document, "Contents/StorageClass") == "STANDARD"
    assert one(document, "Contents/ChecksumAlgorithm") == "CRC32"
    assert one(document, "Contents/Owner/ID") == "ares"


def test_marks_that_are_keys_are_encoded_and_tokens_are_not():
    marks = {"StartAfter": "a b", "ContinuationToken": "a b", "NextContinuationToken": "c d"}
    told = frame(prefix="é/", encoded=True, prefixes=["é/ü/"], marks=marks)
    document = listed_objects_v2(told, [ListedRow("é/a+b c", MS)], False)
    assert one(document, "StartAfter") == "a%20b"
    assert one(document, "ContinuationToken") == "a b"
    assert one(document, "NextContinuationToken") == "c d"
    assert one(document, "Prefix") == "%C3%A9/"
    assert one(document, "CommonPrefixes/Prefix") == "%C3%A9/%C3%BC/"
    assert one(document, "Contents/Key") == "%C3%A9/a%2Bb%20c"
    assert one(document, "KeyCount") == "2"
    assert not read(document, "Contents/Owner")
    assert read(listed_objects_v2(told, [ListedRow("a", MS)], True), "Contents/Owner")


def test_versions_and_deletions():
    marks = {
        "KeyMarker": "a",
        "VersionIdMarker": "1",
        "NextKeyMarker": "b",
        "NextVersionIdMarker": "2",
    }
    listed = [
        ListedRow("a", MS, "e", 5, "7"),
        ListedRow("b", MS, version="8", latest=True, marker=True),
    ]
    document = listed_versions(frame(marks=marks), listed)
    assert one(document, "Version/VersionId") == "7"
    assert one(document, "Version/IsLatest") == "false"
    assert one(document, "DeleteMarker/VersionId") == "8"
    assert one(document, "DeleteMarker/IsLatest") == "true"
    assert not read(document, "DeleteMarker/ETag")
    assert one(document, "NextVersionIdMarker") == "2"


def test_uploads():
    upload = ListedUpload("a", "7", MS, "CRC32", "COMPOSITE")
    document = listed_uploads(frame(marks={"KeyMarker": "", "NextUploadIdMarker": "7"}), [upload])
    assert one(document, "Bucket") == "photos"
    assert one(document, "Upload/UploadId") == one(document, "NextUploadIdMarker") == "7"
    assert one(document, "Upload/Initiated") == DATE
    assert one(document, "MaxUploads") == "1000"
    assert one(document, "Upload/ChecksumType") == "COMPOSITE"


def test_parts():
    page = PartsListing(
        "photos", KEY, "7", 2, 1, True, False, [ListedPart(4, MS, "e", 5, {"SHA1": "s"})]
    )
    document = listed_parts(page)
    assert one(document, "Key") == KEY
    assert one(document, "NextPartNumberMarker") == one(document, "Part/PartNumber") == "4"
    assert one(document, "PartNumberMarker") == "1"
    assert one(document, "Part/ChecksumSHA1") == "s"
    assert (
        one(listed_parts(PartsListing("photos", "a b", "7", 2, 1, False, True)), "Key") == "a%20b"
    )


# -- results ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "document",
    [copied_object(MADE), copied_part(MADE), completed_upload("http://h/a", "photos", KEY, MADE)],
    ids=["object", "part", "upload"],
)
def test_a_made_version_has_its_etag_and_checksum(document: bytes):
    assert one(document, "ETag") == '"e"'
    assert one(document, "ChecksumCRC32") == "AAAAAA=="
    assert one(document, "ChecksumType") == "FULL_OBJECT"
    assert read(document, "LastModified") in ([DATE], [])


def test_an_upload_and_a_form():
    assert one(begun_upload("photos", KEY, "7"), "UploadId") == "7"
    assert one(begun_upload("photos", KEY, "7"), "Key") == KEY
    assert one(completed_upload("http://h/a", "photos", KEY, MADE), "Location") == "http://h/a"
    assert one(posted_object("http://h/a", "photos", KEY, "e"), "Key") == KEY


def deletion_outcomes() -> Iterable[DeletionOutcome]:
    yield DeletionOutcome("a")
    yield DeletionOutcome("b", "7", "8")
    yield DeletionOutcome(KEY, "", "", S3Error(S3Code.PreconditionFailed))


def test_deletions_tell_what_was_deleted_and_the_failures():
    document = deleted_objects(deletion_outcomes(), quiet=False)
    assert read(document, "Deleted/Key") == ["a", "b"]
    assert one(document, "Deleted/DeleteMarkerVersionId") == "8"
    assert one(document, "Error/Key") == KEY
    assert one(document, "Error/Code") == "PreconditionFailed"
    assert names(deleted_objects(deletion_outcomes(), quiet=True)) == ["Error"]


# -- configurations --------------------------------------------------------------------------------


def test_configurations_come_back():
    assert tagging(tagging_document({"a": "1 é", "b": ""}), 10) == {"a": "1 é", "b": ""}
    for state in (Versioning.ON, Versioning.SUSPENDED):
        assert versioning(versioning_document(state)) is state
    assert names(versioning_document(Versioning.OFF)) == []
    for canned in (PRIVATE, PUBLIC_READ):
        assert canned_acl(acl_document(canned)) == canned


def test_a_bucket_in_the_default_region_has_none():
    assert ElementTree.fromstring(location_document(DEFAULT_REGION)).text is None
    assert ElementTree.fromstring(location_document("eu-west-1")).text == "eu-west-1"


def test_attributes_are_those_asked_for():
    page = PartsPage(3, 0, 1, True, (PartAttributes(1, 5, {"CRC32": "c"}),))
    told = ObjectAttributes("e", {"CRC32": "d"}, "COMPOSITE", page, True, 15)
    document = attributes_document(told)
    assert one(document, "ETag") == "e"
    assert one(document, "Checksum/ChecksumCRC32") == "d"
    assert one(document, "Checksum/ChecksumType") == "COMPOSITE"
    assert one(document, "ObjectParts/PartsCount") == "3"
    assert one(document, "ObjectParts/Part/ChecksumCRC32") == "c"
    assert one(document, "ObjectParts/IsTruncated") == "true"
    assert one(document, "StorageClass") == "STANDARD"
    assert one(document, "ObjectSize") == "15"
    assert names(attributes_document(ObjectAttributes(size=0))) == ["ObjectSize"]
    assert read(
        attributes_document(ObjectAttributes(parts=PartsPage(3, 0, 0, False))),
        "ObjectParts/PartsCount",
    ) == ["3"]
