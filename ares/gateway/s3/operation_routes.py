"""The way from a method and the fields of a query to an operation."""

from collections.abc import Mapping
from typing import NamedTuple

from ares.gateway.s3.exchange import S3Operation
from ares.gateway.s3.s3_errors import S3Code, S3Error, not_answered


class Route(NamedTuple):
    """An operation. ``marks``: fields that choose it; ``fields``: further fields with a meaning."""

    operation: S3Operation
    marks: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()


_LIST = ("prefix", "delimiter", "max-keys", "encoding-type")
_RESPONSE = (
    *("response-cache-control", "response-content-disposition", "response-content-encoding"),
    *("response-content-language", "response-content-type", "response-expires"),
)
_READ_FIELDS = ("versionId", "partNumber", *_RESPONSE)
_PAGE = ("prefix", "max-buckets", "continuation-token", "bucket-region")
_UPLOADS = (
    *("prefix", "delimiter", "max-uploads", "encoding-type"),
    *("key-marker", "upload-id-marker"),
)
_PARTS = ("max-parts", "part-number-marker", "encoding-type")

_SERVICE_ROUTES = {"GET": (Route(S3Operation.LIST_BUCKETS, (), _PAGE),)}
_BUCKET_ROUTES = {
    "GET": (
        Route(S3Operation.GET_BUCKET_LOCATION, ("location",)),
        Route(S3Operation.GET_BUCKET_ACL, ("acl",)),
        Route(S3Operation.GET_BUCKET_VERSIONING, ("versioning",)),
        Route(S3Operation.GET_BUCKET_TAGGING, ("tagging",)),
        Route(S3Operation.GET_BUCKET_CORS, ("cors",)),
        Route(S3Operation.GET_BUCKET_LIFECYCLE, ("lifecycle",)),
        Route(S3Operation.LIST_MULTIPART_UPLOADS, ("uploads",), _UPLOADS),
        Route(
            S3Operation.LIST_OBJECT_VERSIONS,
            ("versions",),
            (*_LIST, "key-marker", "version-id-marker"),
        ),
        Route(S3Operation.WATCH, ("watch",), ("prefix", "from")),
        Route(S3Operation.LISTEN_EVENTS, ("events",), ("prefix", "suffix", "ping")),
        Route(
            S3Operation.LIST_OBJECTS_V2,
            ("list-type",),
            (*_LIST, "continuation-token", "start-after", "fetch-owner"),
        ),
        Route(S3Operation.LIST_OBJECTS, (), (*_LIST, "marker")),
    ),
    "HEAD": (Route(S3Operation.HEAD_BUCKET),),
    "PUT": (
        Route(S3Operation.PUT_BUCKET_ACL, ("acl",)),
        Route(S3Operation.PUT_BUCKET_VERSIONING, ("versioning",)),
        Route(S3Operation.PUT_BUCKET_TAGGING, ("tagging",)),
        Route(S3Operation.PUT_BUCKET_CORS, ("cors",)),
        Route(S3Operation.PUT_BUCKET_LIFECYCLE, ("lifecycle",)),
        Route(S3Operation.CREATE_BUCKET),
    ),
    "POST": (
        Route(S3Operation.DELETE_OBJECTS, ("delete",)),
        Route(S3Operation.POST_OBJECT),
    ),
    "DELETE": (
        Route(S3Operation.DELETE_BUCKET_TAGGING, ("tagging",)),
        Route(S3Operation.DELETE_BUCKET_CORS, ("cors",)),
        Route(S3Operation.DELETE_BUCKET_LIFECYCLE, ("lifecycle",)),
        Route(S3Operation.DELETE_BUCKET),
    ),
}
_OBJECT_ROUTES = {
    "GET": (
        Route(S3Operation.LIST_PARTS, ("uploadId",), _PARTS),
        Route(S3Operation.GET_OBJECT_ATTRIBUTES, ("attributes",), ("versionId",)),
        Route(S3Operation.GET_OBJECT_ACL, ("acl",), ("versionId",)),
        Route(S3Operation.GET_OBJECT_TAGGING, ("tagging",), ("versionId",)),
        Route(S3Operation.GET_OBJECT, (), _READ_FIELDS),
    ),
    "HEAD": (Route(S3Operation.HEAD_OBJECT, (), _READ_FIELDS),),
    "PUT": (
        Route(S3Operation.PUT_OBJECT_ACL, ("acl",), ("versionId",)),
        Route(S3Operation.PUT_OBJECT_TAGGING, ("tagging",), ("versionId",)),
        Route(S3Operation.RENAME_OBJECT, ("renameObject",)),
        Route(S3Operation.UPLOAD_PART, ("uploadId", "partNumber")),
        Route(S3Operation.PUT_OBJECT),
    ),
    "POST": (
        Route(S3Operation.CREATE_MULTIPART_UPLOAD, ("uploads",)),
        Route(S3Operation.COMPLETE_MULTIPART_UPLOAD, ("uploadId",)),
    ),
    "DELETE": (
        Route(S3Operation.ABORT_MULTIPART_UPLOAD, ("uploadId",)),
        Route(S3Operation.DELETE_OBJECT_TAGGING, ("tagging",), ("versionId",)),
        Route(S3Operation.DELETE_OBJECT, (), ("versionId",)),
    ),
}
_LEVELS = (_SERVICE_ROUTES, _BUCKET_ROUTES, _OBJECT_ROUTES)

_UNANSWERED = frozenset([
    "abac", "accelerate", "analytics", "encryption", "intelligent-tiering", "inventory",
    "legal-hold", "logging", "metadataConfiguration", "metadataInventoryTable",
    "metadataJournalTable", "metadataTable", "metrics", "notification", "object-lock",
    "ownershipControls", "policy", "policyStatus", "publicAccessBlock", "replication",
    "replication-metrics", "requestPayment", "restore", "retention", "select",
    "select-type", "session", "torrent", "website",
])  # fmt: skip
"""Sub-resources of S3 without an answer."""

SUB_RESOURCES = _UNANSWERED.union(
    *(route.marks for level in _LEVELS for routes in level.values() for route in routes)
)
_EVERYWHERE = ("x-id", "AWSAccessKeyId", "Signature", "Expires")
"""Fields for the signature and the marks of clients' libraries; also all that begin with x-."""

_READ_METHODS = ("GET", "HEAD")
_COPYING = {
    S3Operation.PUT_OBJECT: S3Operation.COPY_OBJECT,
    S3Operation.UPLOAD_PART: S3Operation.UPLOAD_PART_COPY,
}


def operation_of(
    method: str, bucket: str, key: str, query: Mapping[str, str], copies: bool
) -> S3Operation:
    """Return the operation. ``copies``: the request has a source of a copy.

    Raises MethodNotAllowed, or NotImplemented for a field of the query with an unknown meaning.
    Fields of no meaning, which have a value, do not hinder a read.
    """
    if method == "OPTIONS" and bucket:
        return S3Operation.PREFLIGHT
    level = _LEVELS[bool(bucket) + bool(key)]
    route = next(
        (route for route in level.get(method, ()) if all(mark in query for mark in route.marks)),
        None,
    )
    for name, value in query.items():
        known = route is not None and (name in route.marks or name in route.fields)
        if known or name in _EVERYWHERE or name[:2].lower() == "x-":
            continue
        if name in SUB_RESOURCES or method not in _READ_METHODS or not value:
            raise not_answered(f"the field {name[:100]!r} of the query")
    if route is None:
        allowed = ", ".join(sorted(level))
        raise S3Error(S3Code.MethodNotAllowed, headers={"Allow": allowed})
    return _COPYING.get(route.operation, route.operation) if copies else route.operation
