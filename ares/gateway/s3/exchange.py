"""The requests and answers of the gateway, as the server of HTTP and the operations hold them."""

import enum
from collections import defaultdict
from collections.abc import AsyncIterator

from msgspec import Struct


class Headers:
    """The headers of a request. Names are in small letters; values are Latin-1, stripped.

    ``raw``: the names and values as received, in their order.
    """

    __slots__ = ("_values", "raw")

    def __init__(self, raw: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        self.raw = raw
        values: defaultdict[str, list[str]] = defaultdict(list)
        for name, value in raw:
            values[name.decode("latin-1").lower()].append(value.decode("latin-1").strip(" \t"))
        self._values = {name: ",".join(found) for name, found in values.items()}

    def get(self, name: str, default: str = "") -> str:
        """Return the value of ``name``; the values of repeated headers are joined by a comma."""
        return self._values.get(name, default)

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """Return the headers whose names begin with ``prefix``, by their whole names."""
        return {name: value for name, value in self._values.items() if name.startswith(prefix)}

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __repr__(self) -> str:
        return f"Headers({sorted(self._values)})"


class HttpRequest(Struct, eq=False):
    """A request as received. ``client``: the address of the peer, for logs."""

    method: str
    raw_path: bytes
    """Percent-encoded, without the query."""
    raw_query: bytes
    headers: Headers
    secure: bool
    """Received over TLS."""
    client: str
    body: AsyncIterator[bytes]
    """Pieces of the body as received; the first read sends ``100 Continue``."""
    content_length: int | None = None


class HttpResponse(Struct, eq=False):
    """An answer. A ``body`` that raises cuts the connection: the client sees no short success."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes | AsyncIterator[bytes] = b""


class S3Operation(enum.Enum):
    """The operations that the gateway answers, by S3's names. The last ones are of ares and MinIO.

    PREFLIGHT is the question of a browser for CORS. POST_OBJECT is the upload of a form.
    """

    LIST_BUCKETS = "ListBuckets"

    CREATE_BUCKET = "CreateBucket"
    DELETE_BUCKET = "DeleteBucket"
    HEAD_BUCKET = "HeadBucket"
    LIST_OBJECTS = "ListObjects"
    LIST_OBJECTS_V2 = "ListObjectsV2"
    LIST_OBJECT_VERSIONS = "ListObjectVersions"
    LIST_MULTIPART_UPLOADS = "ListMultipartUploads"
    DELETE_OBJECTS = "DeleteObjects"
    POST_OBJECT = "PostObject"
    PREFLIGHT = "Preflight"

    GET_BUCKET_LOCATION = "GetBucketLocation"
    GET_BUCKET_ACL = "GetBucketAcl"
    PUT_BUCKET_ACL = "PutBucketAcl"
    GET_BUCKET_VERSIONING = "GetBucketVersioning"
    PUT_BUCKET_VERSIONING = "PutBucketVersioning"
    GET_BUCKET_TAGGING = "GetBucketTagging"
    PUT_BUCKET_TAGGING = "PutBucketTagging"
    DELETE_BUCKET_TAGGING = "DeleteBucketTagging"
    GET_BUCKET_CORS = "GetBucketCors"
    PUT_BUCKET_CORS = "PutBucketCors"
    DELETE_BUCKET_CORS = "DeleteBucketCors"
    GET_BUCKET_LIFECYCLE = "GetBucketLifecycleConfiguration"
    PUT_BUCKET_LIFECYCLE = "PutBucketLifecycleConfiguration"
    DELETE_BUCKET_LIFECYCLE = "DeleteBucketLifecycle"

    GET_OBJECT = "GetObject"
    HEAD_OBJECT = "HeadObject"
    PUT_OBJECT = "PutObject"
    COPY_OBJECT = "CopyObject"
    DELETE_OBJECT = "DeleteObject"
    RENAME_OBJECT = "RenameObject"
    GET_OBJECT_ATTRIBUTES = "GetObjectAttributes"
    GET_OBJECT_ACL = "GetObjectAcl"
    PUT_OBJECT_ACL = "PutObjectAcl"
    GET_OBJECT_TAGGING = "GetObjectTagging"
    PUT_OBJECT_TAGGING = "PutObjectTagging"
    DELETE_OBJECT_TAGGING = "DeleteObjectTagging"

    CREATE_MULTIPART_UPLOAD = "CreateMultipartUpload"
    UPLOAD_PART = "UploadPart"
    UPLOAD_PART_COPY = "UploadPartCopy"
    COMPLETE_MULTIPART_UPLOAD = "CompleteMultipartUpload"
    ABORT_MULTIPART_UPLOAD = "AbortMultipartUpload"
    LIST_PARTS = "ListParts"

    WATCH = "Watch"
    LISTEN_EVENTS = "ListenNotification"


class S3Request(Struct, eq=False):
    """A parsed request. ``bucket`` is empty for the service, ``key`` for a bucket."""

    http: HttpRequest
    operation: S3Operation
    bucket: str
    key: str
    query: dict[str, str]
    """Decoded; a field without ``=`` has an empty text."""
    request_id: str
