"""Canned access control lists: a bucket is private, or open to every stranger's reads.

Objects have no list of their own: the bucket's list holds for all its objects. A request with a
different list for an object is refused: ignoring the list would show private data to strangers.
"""

import enum

from ares.bucket.bucket_state import BucketState
from ares.gateway.s3.exchange import Headers
from ares.gateway.s3.s3_errors import S3Code, S3Error

ACL_CONFIGURATION = "acl"
"""Name of the configuration of a bucket with its list."""

ACL_HEADER = "x-amz-acl"
_GRANT_PREFIX = "x-amz-grant-"
_OF_THE_OWNER = {"bucket-owner-full-control", "bucket-owner-read"}
"""Lists of an object with rights for the bucket's owner, who has these rights already."""


class CannedAcl(enum.Enum):
    """A list of a bucket, by S3's name."""

    PRIVATE = "private"
    PUBLIC_READ = "public-read"

    @property
    def configuration(self) -> bytes:
        """Return the bytes of the bucket's configuration; private is no configuration."""
        return b"" if self is CannedAcl.PRIVATE else self.value.encode()


def acl_of(state: BucketState, bucket: str) -> CannedAcl:
    """Return the list of a bucket; private for an absent bucket, and for unknown bytes."""
    kept = state.configuration(bucket, ACL_CONFIGURATION)
    public = kept == CannedAcl.PUBLIC_READ.configuration
    return CannedAcl.PUBLIC_READ if public else CannedAcl.PRIVATE


def wished_acl(headers: Headers) -> CannedAcl | None:
    """Return the list for a bucket in a request's headers; None without a list.

    Raises :class:`S3Error` for a list unknown to the gateway.
    """
    _refuse_grants(headers)
    name = headers.get(ACL_HEADER)
    if not name:
        return None
    try:
        return CannedAcl(name)
    except ValueError:
        raise _not_kept(f"buckets are private or public-read, and not {name!r}") from None


def check_object_acl(headers: Headers, acl: CannedAcl) -> None:
    """Raise :class:`S3Error` if a request has a list for an object, unlike the bucket's list."""
    _refuse_grants(headers)
    name = headers.get(ACL_HEADER)
    if name and name != acl.value and name not in _OF_THE_OWNER:
        raise _not_kept(f"an object has the list of its bucket, which is {acl.value!r}")


def _refuse_grants(headers: Headers) -> None:
    if headers.with_prefix(_GRANT_PREFIX):
        raise _not_kept("single grants are not kept")


def _not_kept(why: str) -> S3Error:
    return S3Error(S3Code.NotImplemented, f"Access control lists: {why}.")
