"""The documents in the bodies of answers, except for listings and rules of buckets."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from ares.bucket.index_records import Versioning
from ares.gateway.s3.request_documents import ALL_USERS, PUBLIC_READ
from ares.gateway.s3.s3_dates import iso_date
from ares.gateway.s3.s3_errors import S3Error
from ares.gateway.s3.xml_text import text_element, xml_document

OWNER_ID = "ares"
"""The owner of every bucket and object, in documents of S3."""

OWNER_FIELDS = f"<ID>{OWNER_ID}</ID><DisplayName>{OWNER_ID}</DisplayName>"
DEFAULT_REGION = "us-east-1"
"""The region that S3 writes as no region."""

_SCHEMA_INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"


class MadeVersion(Struct, frozen=True):
    """A version that a copy or a completed upload made.

    ``checksums``: in base64, by the algorithm. ``checksum_type``: FULL_OBJECT or COMPOSITE.
    """

    etag: str
    modified_ms: int
    checksums: Mapping[str, str] = {}
    checksum_type: str = ""


def quoted_etag(etag: str) -> str:
    """Return an etag as headers and documents show it."""
    return f'"{etag}"'


def checksum_elements(checksums: Mapping[str, str], checksum_type: str = "") -> str:
    """Return the elements of checksums."""
    found = "".join(text_element(f"Checksum{name}", text) for name, text in checksums.items())
    return found + (text_element("ChecksumType", checksum_type) if checksum_type else "")


def _made_elements(made: MadeVersion) -> str:
    return text_element("ETag", quoted_etag(made.etag)) + checksum_elements(
        made.checksums, made.checksum_type
    )


def copied_object(made: MadeVersion) -> bytes:
    """Return the answer to CopyObject."""
    return xml_document("CopyObjectResult", _modified(made) + _made_elements(made))


def copied_part(made: MadeVersion) -> bytes:
    """Return the answer to UploadPartCopy."""
    return xml_document("CopyPartResult", _modified(made) + _made_elements(made))


def _modified(made: MadeVersion) -> str:
    return text_element("LastModified", iso_date(made.modified_ms))


def begun_upload(bucket: str, key: str, upload_id: str) -> bytes:
    """Return the answer to CreateMultipartUpload."""
    told = {"Bucket": bucket, "Key": key, "UploadId": upload_id}
    return xml_document("InitiateMultipartUploadResult", _texts(told))


def completed_upload(location: str, bucket: str, key: str, made: MadeVersion) -> bytes:
    """Return the answer to CompleteMultipartUpload. ``location``: the object's address."""
    told = _texts({"Location": location, "Bucket": bucket, "Key": key})
    return xml_document("CompleteMultipartUploadResult", told + _made_elements(made))


def posted_object(location: str, bucket: str, key: str, etag: str) -> bytes:
    """Return the answer 201 to the upload of a form."""
    told = {"Location": location, "Bucket": bucket, "Key": key, "ETag": quoted_etag(etag)}
    return xml_document("PostResponse", _texts(told))


def _texts(told: Mapping[str, str]) -> str:
    return "".join(text_element(name, text) for name, text in told.items())


class DeletionOutcome(Struct, frozen=True):
    """The outcome for an object of Delete. ``version_id``: as asked for; empty without one.

    ``marker``: the version of the deletion that was made or removed; empty without one.
    """

    key: str
    version_id: str = ""
    marker: str = ""
    error: S3Error | None = None

    def element(self) -> str:
        """Return the element of the answer to DeleteObjects."""
        told = {"Key": self.key}
        if self.version_id:
            told["VersionId"] = self.version_id
        if self.error is not None:
            told |= {"Code": self.error.code.name, "Message": self.error.message}
            return f"<Error>{_texts(told)}</Error>"
        if self.marker:
            told |= {"DeleteMarker": "true", "DeleteMarkerVersionId": self.marker}
        return f"<Deleted>{_texts(told)}</Deleted>"


def deleted_objects(outcomes: Iterable[DeletionOutcome], quiet: bool) -> bytes:
    """Return the answer to DeleteObjects; failures alone if ``quiet``."""
    told = (each.element() for each in outcomes if not quiet or each.error is not None)
    return xml_document("DeleteResult", "".join(told))


# -- configurations --------------------------------------------------------------------------------


def tagging_document(tags: Mapping[str, str]) -> bytes:
    """Return the answer to GetObjectTagging and GetBucketTagging."""
    return xml_document("Tagging", f"<TagSet>{tag_elements(tags.items())}</TagSet>")


def tag_elements(tags: Iterable[tuple[str, str]]) -> str:
    """Return the elements of tags."""
    return "".join(f"<Tag>{_texts({'Key': name, 'Value': text})}</Tag>" for name, text in tags)


def versioning_document(state: Versioning) -> bytes:
    """Return the answer to GetBucketVersioning; empty for a bucket that never kept versions."""
    told = {Versioning.ON: "Enabled", Versioning.SUSPENDED: "Suspended"}.get(state)
    content = text_element("Status", told) if told else ""
    return xml_document("VersioningConfiguration", content)


def location_document(region: str) -> bytes:
    """Return the answer to GetBucketLocation."""
    return xml_document("LocationConstraint", "" if region == DEFAULT_REGION else region)


def acl_document(canned: str) -> bytes:
    """Return the answer to GetBucketAcl and GetObjectAcl for a canned list."""
    grants = _grant_element("CanonicalUser", OWNER_FIELDS, "FULL_CONTROL")
    if canned == PUBLIC_READ:
        grants += _grant_element("Group", text_element("URI", ALL_USERS), "READ")
    content = f"<Owner>{OWNER_FIELDS}</Owner><AccessControlList>{grants}</AccessControlList>"
    return xml_document("AccessControlPolicy", content)


def _grant_element(kind: str, grantee: str, permission: str) -> str:
    attributes = f'xmlns:xsi="{_SCHEMA_INSTANCE}" xsi:type="{kind}"'
    return (
        f"<Grant><Grantee {attributes}>{grantee}</Grantee>"
        f"{text_element('Permission', permission)}</Grant>"
    )


# -- attributes ------------------------------------------------------------------------------------


class PartAttributes(Struct, frozen=True):
    """A part in GetObjectAttributes. ``checksums``: in base64, by the algorithm."""

    number: int
    size: int
    checksums: Mapping[str, str] = {}


class PartsPage(Struct, frozen=True):
    """A page of an object's parts in GetObjectAttributes. ``total``: of all parts."""

    total: int
    marker: int
    limit: int
    truncated: bool
    parts: tuple[PartAttributes, ...] = ()


class ObjectAttributes(Struct, frozen=True):
    """The attributes that GetObjectAttributes was asked for; None or empty for the others."""

    etag: str = ""
    checksums: Mapping[str, str] = {}
    checksum_type: str = ""
    parts: PartsPage | None = None
    storage_class: bool = False
    size: int | None = None


OBJECT_ATTRIBUTES = ("ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize")
"""The names in the header ``x-amz-object-attributes``."""


def attributes_document(told: ObjectAttributes) -> bytes:
    """Return the answer to GetObjectAttributes; the etag stands without quotes, as with S3."""
    content = text_element("ETag", told.etag) if told.etag else ""
    if told.checksums:
        sums = checksum_elements(told.checksums, told.checksum_type)
        content += f"<Checksum>{sums}</Checksum>"
    if told.parts is not None:
        content += f"<ObjectParts>{_parts_page(told.parts)}</ObjectParts>"
    if told.storage_class:
        content += text_element("StorageClass", "STANDARD")
    if told.size is not None:
        content += text_element("ObjectSize", told.size)
    return xml_document("GetObjectAttributesResponse", content)


def _parts_page(page: PartsPage) -> str:
    if not page.parts:
        return text_element("PartsCount", page.total)
    frame = (
        text_element("IsTruncated", page.truncated)
        + text_element("MaxParts", page.limit)
        + text_element("NextPartNumberMarker", page.parts[-1].number)
        + text_element("PartNumberMarker", page.marker)
        + text_element("PartsCount", page.total)
    )
    return frame + "".join(
        f"<Part>{text_element('PartNumber', part.number)}{text_element('Size', part.size)}"
        f"{checksum_elements(part.checksums)}</Part>"
        for part in page.parts
    )
