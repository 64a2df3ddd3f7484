"""The documents in the bodies of requests. All raise MalformedXML or a more exact error of S3."""

import base64
import binascii

from msgspec import Struct

from ares.bucket.commands import UNCONDITIONAL, Conditions, NamedPart
from ares.bucket.index_records import (
    BATCH_ITEMS_MAX,
    ETAG_CHARACTERS_MAX,
    PART_NUMBER_MAX,
    Versioning,
)
from ares.gateway.s3.parsing import check_key
from ares.gateway.s3.request_conditions import matching_etag, with_exact
from ares.gateway.s3.request_numbers import is_decimal
from ares.gateway.s3.s3_errors import S3Code, S3Error, not_answered
from ares.gateway.s3.s3_tags import checked_s3_tags
from ares.gateway.s3.xml_reading import XmlElement, malformed, parse_xml

CONFIGURATION_XML_BYTES_MAX = 1024**2
"""Bytes of a document with the configuration of a bucket, or with tags."""

PRIVATE, PUBLIC_READ = "private", "public-read"
ALL_USERS = "http://acs.amazonaws.com/groups/global/AllUsers"

_CHECKSUMS = tuple(
    f"Checksum{algorithm}" for algorithm in ("CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256")
)
_CHECKSUM_BYTES_MAX = 32


class CompletedPart(Struct, frozen=True):
    """A part in CompleteMultipartUpload. ``checksums``: in base64, by the algorithm."""

    named: NamedPart
    checksums: dict[str, str]


class Deletion(Struct, frozen=True):
    """An object in Delete. ``version_id``: a version, ``null``, or empty for the newest."""

    key: str
    version_id: str = ""
    conditions: Conditions = UNCONDITIONAL


class Deletions(Struct, frozen=True):
    """The objects in Delete. ``quiet``: the answer tells failures alone."""

    items: tuple[Deletion, ...]
    quiet: bool = False


def completed_parts(data: bytes) -> tuple[CompletedPart, ...]:
    """Return the parts of CompleteMultipartUpload, in the order of the document."""
    root = parse_xml(data, "CompleteMultipartUpload", "CompleteMultipartUploadRequest")
    root.check_children("Part")
    if not 1 <= len(root.children) <= PART_NUMBER_MAX:
        raise malformed(f"there are 1 to {PART_NUMBER_MAX} parts")
    return tuple(map(_completed_part, root.children))


def _completed_part(part: XmlElement) -> CompletedPart:
    told = part.leaves("PartNumber", "ETag", *_CHECKSUMS)
    if "PartNumber" not in told or "ETag" not in told:
        raise malformed("a part has PartNumber and ETag")
    number, etag = told.pop("PartNumber").strip(), told.pop("ETag").strip().strip('"')
    if not is_decimal(number, 1, PART_NUMBER_MAX):
        raise S3Error(S3Code.InvalidArgument, f"PartNumber is from 1 to {PART_NUMBER_MAX}.")
    if not 1 <= len(etag) <= ETAG_CHARACTERS_MAX:
        raise S3Error(S3Code.InvalidPart, fields={"PartNumber": number})
    checksums = {name.removeprefix("Checksum"): text.strip() for name, text in told.items()}
    if not all(map(_is_checksum, checksums.values())):
        raise S3Error(S3Code.InvalidPart, "A checksum is in base64.", fields={"PartNumber": number})
    return CompletedPart(NamedPart(int(number), etag), checksums)


def _is_checksum(text: str) -> bool:
    try:
        return 0 < len(base64.b64decode(text, validate=True)) <= _CHECKSUM_BYTES_MAX
    except (ValueError, binascii.Error):
        return False


def deletions(data: bytes) -> Deletions:
    """Return the objects of Delete, at most a thousand."""
    root = parse_xml(data, "Delete")
    root.check_children("Object", "Quiet")
    objects = list(root.all("Object"))
    if not 1 <= len(objects) <= BATCH_ITEMS_MAX:
        raise malformed(f"there are 1 to {BATCH_ITEMS_MAX} objects")
    return Deletions(tuple(map(_deletion, objects)), _truth(root.value("Quiet", "false")))


def _deletion(each: XmlElement) -> Deletion:
    told = each.leaves("Key", "VersionId", "ETag", "LastModifiedTime", "Size")
    key = told.pop("Key", "")
    if not key:
        raise malformed("an object has Key, with a character")
    check_key(key)
    told = {name: text.strip() for name, text in told.items()}
    conditions = matching_etag(told["ETag"]) if "ETag" in told else UNCONDITIONAL
    conditions = with_exact(conditions, told.get("Size"), told.get("LastModifiedTime"))
    return Deletion(key, told.get("VersionId", ""), conditions)


def _truth(text: str) -> bool:
    told = text.strip().lower()
    if told not in ("true", "false"):
        raise malformed("a truth value is true or false")
    return told == "true"


def tagging(data: bytes, count_max: int) -> dict[str, str]:
    """Return the tags of Tagging, at most ``count_max``."""
    root = parse_xml(data, "Tagging", bytes_max=CONFIGURATION_XML_BYTES_MAX)
    root.check_children("TagSet")
    tag_set = root.child("TagSet")
    if tag_set is None:
        raise malformed("Tagging lacks TagSet")
    tag_set.check_children("Tag")
    return checked_s3_tags(map(tag_of, tag_set.children), count_max)


def tag_of(element: XmlElement) -> tuple[str, str]:
    """Return the name and the text of an element Tag."""
    element.check_children("Key", "Value")
    return element.value("Key"), element.value("Value")


def versioning(data: bytes) -> Versioning:
    """Return the state of VersioningConfiguration."""
    root = parse_xml(data, "VersioningConfiguration", bytes_max=CONFIGURATION_XML_BYTES_MAX)
    root.check_children("Status", "MfaDelete")
    if root.value("MfaDelete", "Disabled").strip() != "Disabled":
        raise not_answered("deletion with a second factor")
    states = {"Enabled": Versioning.ON, "Suspended": Versioning.SUSPENDED}
    status = root.value("Status", "").strip()
    if status not in states:
        raise S3Error(S3Code.IllegalVersioningConfigurationException)
    return states[status]


def location_constraint(data: bytes) -> str:
    """Return the region of CreateBucketConfiguration; none for an empty body."""
    if not data:
        return ""
    root = parse_xml(data, "CreateBucketConfiguration", bytes_max=CONFIGURATION_XML_BYTES_MAX)
    for name in ("Location", "Bucket", "Tags"):
        if root.child(name) is not None:
            raise not_answered(f"{name} of a new bucket")
    root.check_children("LocationConstraint")
    return root.value("LocationConstraint", "").strip()


def canned_acl(data: bytes) -> str:
    """Return the canned list that equals AccessControlPolicy. Raises NotImplemented for others."""
    root = parse_xml(data, "AccessControlPolicy", bytes_max=CONFIGURATION_XML_BYTES_MAX)
    root.check_children("Owner", "AccessControlList")
    owner, listed = root.child("Owner"), root.child("AccessControlList")
    if listed is None:
        raise S3Error(S3Code.MalformedACLError)
    listed.check_children("Grant")
    owner_id = "" if owner is None else owner.value("ID", "").strip()
    grants = {_grant(each) for each in listed.children}
    of_owner = (("ID", owner_id), "FULL_CONTROL")
    if grants == {of_owner}:
        return PRIVATE
    if grants == {of_owner, (("URI", ALL_USERS), "READ")}:
        return PUBLIC_READ
    raise not_answered("lists beyond private and public-read")


def _grant(grant: XmlElement) -> tuple[tuple[str, str], str]:
    """Return the kind and the name of a grantee, and the permission."""
    grant.check_children("Grantee", "Permission")
    grantee = grant.child("Grantee")
    if (
        grantee is None
        or len(found := [e for e in grantee.children if e.name != "DisplayName"]) != 1
    ):
        raise S3Error(S3Code.MalformedACLError)
    return (found[0].name, found[0].leaf().strip()), grant.value("Permission").strip()
