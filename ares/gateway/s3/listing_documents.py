"""The documents of listings: buckets, objects, versions, uploads, parts."""

import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

from msgspec import Struct

from ares.gateway.s3.answer_documents import OWNER_FIELDS, checksum_elements, quoted_etag
from ares.gateway.s3.s3_dates import iso_date
from ares.gateway.s3.xml_text import escaped, text_element, xml_document

_OWNER_ELEMENT = f"<Owner>{OWNER_FIELDS}</Owner>"
_INITIATOR_ELEMENT = f"<Initiator>{OWNER_FIELDS}</Initiator>"
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_.~/-]*")
_STORAGE_ELEMENT = text_element("StorageClass", "STANDARD")


def encoded_key(key: str) -> str:
    """Return a key percent-encoded, but for its slashes."""
    return key if _PLAIN_KEY.fullmatch(key) else quote(key, safe="/")


class ListedRow(Struct, frozen=True, gc=False):
    """A version of an object in a listing. ``version``, ``latest``, ``marker``: of versions.

    ``checksum_algorithm``, ``checksum_type``: empty without a checksum.
    """

    key: str
    modified_ms: int
    etag: str = ""
    size: int = 0
    version: str = ""
    latest: bool = False
    marker: bool = False
    checksum_algorithm: str = ""
    checksum_type: str = ""


class ListedUpload(Struct, frozen=True, gc=False):
    """A multipart upload in a listing."""

    key: str
    upload_id: str
    begun_ms: int
    checksum_algorithm: str = ""
    checksum_type: str = ""


class ListedPart(Struct, frozen=True, gc=False):
    """A part in a listing. ``checksums``: in base64, by the algorithm."""

    number: int
    modified_ms: int
    etag: str
    size: int
    checksums: Mapping[str, str] = {}


class ListingFrame(Struct, frozen=True):
    """The parts of a listing of keys that repeat or close the request.

    ``encoded``: keys are percent-encoded, as clients ask by ``encoding-type=url``. ``prefixes``:
    the common prefixes. ``marks``: elements such as Marker and NextMarker, by name; those in
    :data:`KEY_MARKS` are keys.
    """

    bucket: str
    prefix: str
    delimiter: str
    limit: int
    truncated: bool
    encoded: bool = False
    prefixes: Sequence[str] = ()
    marks: Mapping[str, str] = {}

    def key(self, text: str) -> str:
        """Return a key as the client wants it."""
        return encoded_key(text) if self.encoded else text


KEY_MARKS = {"Marker", "NextMarker", "StartAfter", "KeyMarker", "NextKeyMarker"}


def listed_buckets(buckets: Iterable[tuple[str, int]], region: str, token: str = "") -> bytes:
    """Return the answer to ListBuckets. ``buckets``: names, and when each was created in ms."""
    found = "".join(
        f"<Bucket>{text_element('Name', name)}{text_element('CreationDate', iso_date(ms))}"
        f"{text_element('BucketRegion', region)}</Bucket>"
        for name, ms in buckets
    )
    following = text_element("ContinuationToken", token) if token else ""
    content = f"{_OWNER_ELEMENT}<Buckets>{found}</Buckets>{following}"
    return xml_document("ListAllMyBucketsResult", content)


def listed_objects(frame: ListingFrame, objects: Iterable[ListedRow]) -> bytes:
    """Return the answer to ListObjects. ``marks``: Marker, NextMarker."""
    found = "".join(_contents(frame, each, _OWNER_ELEMENT) for each in objects)
    return _listing("ListBucketResult", "MaxKeys", frame, found)


def listed_objects_v2(frame: ListingFrame, objects: Sequence[ListedRow], with_owner: bool) -> bytes:
    """Return the answer to ListObjectsV2.

    ``marks``: ContinuationToken, NextContinuationToken, StartAfter.
    """
    owner = _OWNER_ELEMENT if with_owner else ""
    count = text_element("KeyCount", len(objects) + len(frame.prefixes))
    found = "".join(_contents(frame, each, owner) for each in objects)
    return _listing("ListBucketResult", "MaxKeys", frame, count + found)


def _contents(frame: ListingFrame, each: ListedRow, owner: str) -> str:
    return (
        f"<Contents><Key>{escaped(frame.key(each.key))}</Key>{_description(each)}"
        f"{owner}{_STORAGE_ELEMENT}</Contents>"
    )


def _description(each: ListedRow) -> str:
    return (
        f"<LastModified>{iso_date(each.modified_ms)}</LastModified>"
        f"<ETag>&quot;{escaped(each.etag)}&quot;</ETag>"
        f"{_checksum_kind(each.checksum_algorithm, each.checksum_type)}<Size>{each.size}</Size>"
    )


def _checksum_kind(algorithm: str, checksum_type: str) -> str:
    if not algorithm:
        return ""
    return text_element("ChecksumAlgorithm", algorithm) + text_element(
        "ChecksumType", checksum_type
    )


def listed_versions(frame: ListingFrame, versions: Iterable[ListedRow]) -> bytes:
    """Return the answer to ListObjectVersions.

    ``marks``: KeyMarker, VersionIdMarker, NextKeyMarker, NextVersionIdMarker.
    """
    found = "".join(_version(frame, each) for each in versions)
    return _listing("ListVersionsResult", "MaxKeys", frame, found)


def _version(frame: ListingFrame, each: ListedRow) -> str:
    head = (
        f"{text_element('Key', frame.key(each.key))}{text_element('VersionId', each.version)}"
        f"{text_element('IsLatest', each.latest)}"
    )
    if each.marker:
        modified = text_element("LastModified", iso_date(each.modified_ms))
        return f"<DeleteMarker>{head}{modified}{_OWNER_ELEMENT}</DeleteMarker>"
    return f"<Version>{head}{_description(each)}{_OWNER_ELEMENT}{_STORAGE_ELEMENT}</Version>"


def listed_uploads(frame: ListingFrame, uploads: Iterable[ListedUpload]) -> bytes:
    """Return the answer to ListMultipartUploads.

    ``marks``: KeyMarker, UploadIdMarker, NextKeyMarker, NextUploadIdMarker.
    """
    found = "".join(_upload(frame, each) for each in uploads)
    return _listing("ListMultipartUploadsResult", "MaxUploads", frame, found)


def _upload(frame: ListingFrame, each: ListedUpload) -> str:
    return (
        f"<Upload>{text_element('Key', frame.key(each.key))}"
        f"{text_element('UploadId', each.upload_id)}{_INITIATOR_ELEMENT}{_OWNER_ELEMENT}"
        f"{_STORAGE_ELEMENT}{text_element('Initiated', iso_date(each.begun_ms))}"
        f"{_checksum_kind(each.checksum_algorithm, each.checksum_type)}</Upload>"
    )


def _listing(name: str, limit: str, frame: ListingFrame, found: str) -> bytes:
    """Return the document of a listing of keys."""
    bucket = "Bucket" if limit == "MaxUploads" else "Name"
    content = [text_element(bucket, frame.bucket), text_element("Prefix", frame.key(frame.prefix))]
    for mark, text in frame.marks.items():
        content.append(text_element(mark, frame.key(text) if mark in KEY_MARKS else text))
    if frame.delimiter:
        content.append(text_element("Delimiter", frame.key(frame.delimiter)))
    if frame.encoded:
        content.append(text_element("EncodingType", "url"))
    content += text_element(limit, frame.limit), text_element("IsTruncated", frame.truncated), found
    content += (
        f"<CommonPrefixes>{text_element('Prefix', frame.key(prefix))}</CommonPrefixes>"
        for prefix in frame.prefixes
    )
    return xml_document(name, "".join(content))


class PartsListing(Struct, frozen=True):
    """A page of an upload's parts. ``marker``: the number that ended the last page, or 0."""

    bucket: str
    key: str
    upload_id: str
    limit: int
    marker: int
    truncated: bool
    encoded: bool = False
    parts: Sequence[ListedPart] = ()
    checksum_algorithm: str = ""
    checksum_type: str = ""


def listed_parts(page: PartsListing) -> bytes:
    """Return the answer to ListParts."""
    following = page.parts[-1].number if page.parts else page.marker
    content = (
        text_element("Bucket", page.bucket)
        + (text_element("EncodingType", "url") if page.encoded else "")
        + text_element("Key", encoded_key(page.key) if page.encoded else page.key)
        + text_element("UploadId", page.upload_id)
        + f"{_INITIATOR_ELEMENT}{_OWNER_ELEMENT}{_STORAGE_ELEMENT}"
        + text_element("PartNumberMarker", page.marker)
        + text_element("NextPartNumberMarker", following)
        + text_element("MaxParts", page.limit)
        + text_element("IsTruncated", page.truncated)
        + _checksum_kind(page.checksum_algorithm, page.checksum_type)
    )
    return xml_document("ListPartsResult", content + "".join(map(_part, page.parts)))


def _part(part: ListedPart) -> str:
    return (
        f"<Part>{text_element('PartNumber', part.number)}"
        f"{text_element('LastModified', iso_date(part.modified_ms))}"
        f"{text_element('ETag', quoted_etag(part.etag))}{text_element('Size', part.size)}"
        f"{checksum_elements(part.checksums)}</Part>"
    )
