"""Versions of objects in requests and answers: names, headers, and the version to read."""

from typing import NamedTuple
from urllib.parse import quote

from ares.bucket.bucket_state import BucketState
from ares.bucket.command_results import CommandResult
from ares.bucket.index_records import BucketEntry, ObjectEntry, Version, Versioning
from ares.bucket.lifecycle.lifecycle_rules import decode_lifecycle, expires_ms
from ares.client.buckets.bucket_values import parsed_version, shown_version
from ares.gateway.actions.bucket_actions import LIFECYCLE_CONFIGURATION
from ares.gateway.actions.gateway_services import HeaderLines, position_headers
from ares.gateway.s3.answer_documents import MadeVersion
from ares.gateway.s3.s3_dates import http_date
from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.gateway.signing.checksums import decode_checksum
from ares.model.errors import BadInput
from ares.model.numbers import INSTANT_MAX

NULL_VERSION = "null"
"""S3's name of the version of a key whose bucket keeps no versions."""

VERSION_HEADER = "x-amz-version-id"
MARKER_HEADER = "x-amz-delete-marker"
OWN_VERSION_HEADER = "x-ares-version"
"""The unique name of a version, also of a null version, for ``x-ares-if-version``."""

EXPIRATION_HEADER = "x-amz-expiration"


class NamedVersion(NamedTuple):
    """A version in a request: a version, the null version, or the newest for neither."""

    version: Version | None = None
    null: bool = False

    @property
    def is_newest(self) -> bool:
        return self.version is None and not self.null


def named_version(text: str) -> NamedVersion:
    """Return the version named by a ``versionId``. Raises :class:`S3Error`."""
    if not text:
        return NamedVersion()
    if text == NULL_VERSION:
        return NamedVersion(null=True)
    try:
        return NamedVersion(parsed_version(text))
    except BadInput as error:
        raise S3Error(S3Code.InvalidArgument, "Invalid version id specified") from error


def version_name(version: Version | None, null: bool) -> str:
    """Return the name of a version in documents and headers."""
    return NULL_VERSION if null or version is None else shown_version(version)


def version_headers(bucket: BucketEntry | None, result: CommandResult) -> HeaderLines:
    """Return the headers with the version of a change; S3's if the bucket has versions."""
    if result.version is None:
        return []
    headers = [(OWN_VERSION_HEADER, shown_version(result.version))]
    if bucket is not None and (bucket.versioning is not Versioning.OFF or not result.null):
        headers.append((VERSION_HEADER, version_name(result.version, result.null)))
    return headers


def made_headers(state: BucketState, bucket: str, key: str, result: CommandResult) -> HeaderLines:
    """Return the headers about a version that a command made: its name, and its expiration."""
    lines = version_headers(state.bucket(bucket), result)
    entry = None if result.version is None else state.entry(bucket, key, result.version)
    return lines if entry is None else lines + expiration_headers(state, bucket, key, entry)


def expiration_headers(
    state: BucketState, bucket: str, key: str, entry: ObjectEntry
) -> HeaderLines:
    """Return the header with the time and the rule by which the newest version of a key expires.

    There is none for an older version, for a version that no rule covers, and for rules that this
    release cannot read.
    """
    configuration = state.configuration(bucket, LIFECYCLE_CONFIGURATION)
    newest = state.newest(bucket, key) if configuration else None
    if newest is None or newest.version != entry.version:
        return []
    try:
        expires = expires_ms(decode_lifecycle(configuration), key, entry)
    except ValueError:
        return []
    if expires is None:
        return []
    rule, ms = expires
    date = http_date(min(ms, INSTANT_MAX * 1000))
    return [(EXPIRATION_HEADER, f'expiry-date="{date}", rule-id="{quote(rule.id, safe="")}"')]


def checksum_texts(encoded: bytes) -> dict[str, str]:
    """Return the value of a checksum by the algorithm, for documents."""
    checksum = decode_checksum(encoded)
    known = checksum is not None and checksum.value
    return {checksum.algorithm.name: checksum.value} if checksum is not None and known else {}


def made_version(result: CommandResult, encoded: bytes) -> MadeVersion:
    """Return a version made by a command, for documents. ``encoded``: the checksum."""
    checksum = decode_checksum(encoded)
    texts = checksum_texts(encoded)
    kind = checksum.kind.value if checksum is not None and texts else ""
    return MadeVersion(result.etag, result.ms, texts, kind)


def present_entry(state: BucketState, bucket: str, key: str, named: NamedVersion) -> ObjectEntry:
    """Return the version to read.

    Raises :class:`S3Error`: NoSuchKey, also for a deletion; NoSuchVersion; and MethodNotAllowed for
    a named deletion.
    """
    entry = state.chosen(bucket, key, named.version, named.null)
    headers = position_headers(state)
    if entry is None:
        raise S3Error(
            S3Code.NoSuchKey if named.is_newest else S3Code.NoSuchVersion, headers=headers
        )
    if entry.marker:
        headers[MARKER_HEADER] = "true"
        headers[VERSION_HEADER] = version_name(entry.version, entry.null)
        if named.is_newest:
            raise S3Error(S3Code.NoSuchKey, headers=headers)
        raise S3Error(S3Code.MethodNotAllowed, headers={**headers, "Allow": "DELETE"})
    return entry
