"""The headers of S3 with an answer. The gateway refuses the rest, and ignores no header."""

from ares.gateway.s3.exchange import Headers, S3Operation
from ares.gateway.s3.request_conditions import CONDITION_HEADERS, IF_VERSION
from ares.gateway.s3.s3_errors import S3Code, S3Error, not_answered

_ANSWERED = frozenset(
    f"x-amz-{name}"
    for name in [
        "acl", "api-version", "checksum-algorithm", "checksum-crc32", "checksum-crc32c",
        "checksum-crc64nvme", "checksum-mode", "checksum-sha1", "checksum-sha256",
        "checksum-type", "client-token", "content-sha256", "copy-source",
        "copy-source-if-match", "copy-source-if-modified-since", "copy-source-if-none-match",
        "copy-source-if-unmodified-since", "copy-source-range", "date",
        "decoded-content-length", "if-match-last-modified-time", "if-match-size", "max-parts",
        "metadata-directive", "mp-object-size", "object-attributes",
        "optional-object-attributes", "part-number-marker", "rename-source",
        "rename-source-if-match", "rename-source-if-modified-since",
        "rename-source-if-none-match", "rename-source-if-unmodified-since", "request-payer",
        "sdk-checksum-algorithm", "security-token", "storage-class", "tagging",
        "tagging-directive", "te", "trailer", "transition-default-minimum-object-size",
        "user-agent",
    ]
)  # fmt: skip
_META = "x-amz-meta-"
_OF_PROXIES = frozenset({"x-amz-cf-id", "x-amz-id-2", "x-amz-request-id"})
_NO_LOCK = ("x-amz-bucket-object-lock-enabled", "false")
_STORAGE_CLASS = "x-amz-storage-class"
_STANDARD = "STANDARD"
_STORAGE_CLASSES = frozenset([
    "DEEP_ARCHIVE", "EXPRESS_ONEZONE", "FSX_ONTAP", "FSX_OPENZFS", "GLACIER", "GLACIER_IR",
    "INTELLIGENT_TIERING", "ONEZONE_IA", "OUTPOSTS", "REDUCED_REDUNDANCY", "SNOW", "STANDARD_IA",
])  # fmt: skip
"""Storage classes of S3 without an answer."""

_WITH_CONDITIONS = {
    S3Operation.PUT_OBJECT,
    S3Operation.COPY_OBJECT,
    S3Operation.COMPLETE_MULTIPART_UPLOAD,
    S3Operation.DELETE_OBJECT,
    S3Operation.RENAME_OBJECT,
}
"""Changes with conditions in headers."""

_OF_OPERATIONS = {
    "x-amz-copy-source-range": {S3Operation.UPLOAD_PART_COPY},
    "x-amz-copy-source": {S3Operation.COPY_OBJECT, S3Operation.UPLOAD_PART_COPY},
    "x-amz-rename-source": {S3Operation.RENAME_OBJECT},
}
"""Begins of headers that change the meaning of some operations alone."""

_CHANGING = ("PUT", "POST", "DELETE")


def check_answered(method: str, operation: S3Operation, headers: Headers) -> None:
    """Raise NotImplemented for a header whose meaning would be lost."""
    for name, value in headers.with_prefix("x-amz-").items():
        answered = name in _ANSWERED or name in _OF_PROXIES or name.startswith(_META)
        if not answered and (name, value.lower()) != _NO_LOCK:
            raise not_answered("a header implies functionality that is not here", name)
    for prefix, operations in _OF_OPERATIONS.items():
        for name in () if operation in operations else headers.with_prefix(prefix):
            raise not_answered(f"this header for {operation.value}", name)
    for name in headers.with_prefix("x-ares-"):
        if name != IF_VERSION:
            raise not_answered("a header of a later release", name)
    storage = headers.get(_STORAGE_CLASS, _STANDARD)
    if storage in _STORAGE_CLASSES:
        raise not_answered("storage classes beside STANDARD", _STORAGE_CLASS)
    if storage != _STANDARD:
        raise S3Error(S3Code.InvalidStorageClass)
    if method in _CHANGING:
        unheard = () if operation in _WITH_CONDITIONS else CONDITION_HEADERS
        for name in (*unheard, "content-range"):
            if name in headers:
                raise not_answered(f"this header for {operation.value}", name)
