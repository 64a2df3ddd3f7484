"""The rights needed by each operation, and the judgement of a request.

The grants of a key are a role over all or named buckets. A stranger is a request without a
signature, and may list and read the newest objects of a bucket with the canned list public-read.
"""

from collections.abc import Callable

from msgspec import Struct

from ares.gateway.access.canned_acls import CannedAcl, check_object_acl
from ares.gateway.access.reserved_buckets import is_reserved
from ares.gateway.access.sealed_keys import AccessKey, KeyRole
from ares.gateway.s3.exchange import S3Operation, S3Request
from ares.gateway.s3.parsing import copy_source
from ares.gateway.s3.s3_errors import S3Code, S3Error

_READS = (
    S3Operation.LIST_BUCKETS,  # the answer leaves out buckets beyond the key's reach
    S3Operation.HEAD_BUCKET,
    S3Operation.LIST_OBJECTS,
    S3Operation.LIST_OBJECTS_V2,
    S3Operation.LIST_OBJECT_VERSIONS,
    S3Operation.LIST_MULTIPART_UPLOADS,
    S3Operation.LIST_PARTS,
    S3Operation.GET_BUCKET_LOCATION,
    S3Operation.GET_BUCKET_ACL,
    S3Operation.GET_BUCKET_VERSIONING,
    S3Operation.GET_BUCKET_TAGGING,
    S3Operation.GET_BUCKET_CORS,
    S3Operation.GET_BUCKET_LIFECYCLE,
    S3Operation.GET_OBJECT,
    S3Operation.HEAD_OBJECT,
    S3Operation.GET_OBJECT_ATTRIBUTES,
    S3Operation.GET_OBJECT_ACL,
    S3Operation.GET_OBJECT_TAGGING,
    S3Operation.WATCH,
    S3Operation.LISTEN_EVENTS,
)
_WRITES = (
    S3Operation.POST_OBJECT,
    S3Operation.PUT_OBJECT,
    S3Operation.COPY_OBJECT,
    S3Operation.RENAME_OBJECT,
    S3Operation.DELETE_OBJECT,
    S3Operation.DELETE_OBJECTS,
    S3Operation.PUT_OBJECT_ACL,
    S3Operation.PUT_OBJECT_TAGGING,
    S3Operation.DELETE_OBJECT_TAGGING,
    S3Operation.CREATE_MULTIPART_UPLOAD,
    S3Operation.UPLOAD_PART,
    S3Operation.UPLOAD_PART_COPY,
    S3Operation.COMPLETE_MULTIPART_UPLOAD,
    S3Operation.ABORT_MULTIPART_UPLOAD,
)
_ADMINISTRATION = (
    S3Operation.CREATE_BUCKET,
    S3Operation.DELETE_BUCKET,
    S3Operation.PUT_BUCKET_ACL,
    S3Operation.PUT_BUCKET_VERSIONING,
    S3Operation.PUT_BUCKET_TAGGING,
    S3Operation.DELETE_BUCKET_TAGGING,
    S3Operation.PUT_BUCKET_CORS,
    S3Operation.DELETE_BUCKET_CORS,
    S3Operation.PUT_BUCKET_LIFECYCLE,
    S3Operation.DELETE_BUCKET_LIFECYCLE,
)
NEEDED_ROLES: dict[S3Operation, KeyRole | None] = {
    S3Operation.PREFLIGHT: None,  # browsers sign nothing here, and the rules of CORS answer
    **dict.fromkeys(_READS, KeyRole.READ),
    **dict.fromkeys(_WRITES, KeyRole.WRITE),
    **dict.fromkeys(_ADMINISTRATION, KeyRole.ADMIN),
}
"""The role needed on the bucket for each operation; None: open to every stranger."""

_PUBLIC = {
    S3Operation.GET_OBJECT,
    S3Operation.HEAD_OBJECT,
    S3Operation.HEAD_BUCKET,
    S3Operation.LIST_OBJECTS,
    S3Operation.LIST_OBJECTS_V2,
}
"""Operations without a key on a public bucket."""

_COPIES = {S3Operation.COPY_OBJECT, S3Operation.UPLOAD_PART_COPY}
"""Operations with a second object, the source."""

_RESPONSE_PREFIX = "response-"
_UNSIGNED_RESPONSE = "Request specific response headers cannot be used for anonymous GET requests."

_OBJECT_LISTS = {
    S3Operation.PUT_OBJECT,
    S3Operation.COPY_OBJECT,
    S3Operation.CREATE_MULTIPART_UPLOAD,
    S3Operation.PUT_OBJECT_ACL,
    S3Operation.POST_OBJECT,  # the fields of the form stand for headers
}
"""Operations with headers for an object's access control list."""


class Caller(Struct, frozen=True):
    """The client of an admitted request; without a key a stranger."""

    access_key: str = ""
    name: str = ""
    buckets: tuple[str, ...] = ()
    """The buckets within reach; empty: all, but for a stranger."""

    @property
    def anonymous(self) -> bool:
        return not self.access_key

    def sees(self, bucket: str) -> bool:
        """Return whether a listing of buckets shows this one."""
        within = not self.buckets or bucket in self.buckets
        return within and not self.anonymous and not is_reserved(bucket)


def may_be_public(request: S3Request) -> bool:
    """Return whether a public bucket answers this request without a key.

    Older versions are not public: the overwriting may have had a reason.
    """
    return request.operation in _PUBLIC and "versionId" not in request.query


def check(key: AccessKey | None, request: S3Request, acl_of: Callable[[str], CannedAcl]) -> None:
    """Raise :class:`S3Error` unless the request is admitted. ``key``: None for a stranger.

    ``acl_of``: the canned list of a bucket.
    """
    operation, need = request.operation, NEEDED_ROLES[request.operation]
    source = source_bucket(request)
    if is_reserved(request.bucket) or is_reserved(source):
        creates = operation is S3Operation.CREATE_BUCKET
        raise S3Error(S3Code.InvalidBucketName if creates else S3Code.NoSuchBucket)
    if need is None:
        return
    if not _granted(key, request.bucket, need) and not (
        may_be_public(request) and acl_of(request.bucket) is CannedAcl.PUBLIC_READ
    ):
        raise _denied(key, operation, need, request.bucket)
    if source and not _granted(key, source, KeyRole.READ):
        raise _denied(key, S3Operation.GET_OBJECT, KeyRole.READ, source)
    if key is None and any(name.startswith(_RESPONSE_PREFIX) for name in request.query):
        raise S3Error(S3Code.InvalidRequest, _UNSIGNED_RESPONSE)
    if operation in _OBJECT_LISTS:
        check_object_acl(request.http.headers, acl_of(request.bucket))


def source_bucket(request: S3Request) -> str:
    """Return the bucket of a copy's source; empty for an operation without a source."""
    if request.operation not in _COPIES:
        return ""
    return copy_source(request.http.headers).bucket


def _granted(key: AccessKey | None, bucket: str, need: KeyRole) -> bool:
    """Return whether the key has the role on the bucket, or on the service for no bucket."""
    return key is not None and key.role >= need and (not bucket or key.reaches(bucket))


def _denied(key: AccessKey | None, operation: S3Operation, need: KeyRole, bucket: str) -> S3Error:
    """Return the refusal, which is the same for present and absent buckets."""
    if key is None:
        return S3Error(S3Code.AccessDenied)
    lacks = "the bucket is beyond its reach"
    if key.role < need:
        lacks = f"it has the role {key.role.name.lower()}, and needs {need.name.lower()}"
    return S3Error(
        S3Code.AccessDenied,
        f"The access key {key.name!r} may not {operation.value} on {bucket!r}: {lacks}.",
    )
