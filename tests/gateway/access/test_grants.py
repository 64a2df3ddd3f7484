"""The judgement of requests: roles, reach, public buckets, reserved buckets, copies."""

import itertools

import pytest

from ares.gateway.access.canned_acls import CannedAcl
from ares.gateway.access.grants import NEEDED_ROLES, Caller, check
from ares.gateway.access.reserved_buckets import KEYS_BUCKET
from ares.gateway.access.sealed_keys import AccessKey, KeyRole
from ares.gateway.s3.exchange import Headers, HttpRequest, S3Operation, S3Request
from ares.gateway.s3.s3_errors import S3Code, S3Error

PUBLIC = {
    S3Operation.GET_OBJECT, S3Operation.HEAD_OBJECT, S3Operation.HEAD_BUCKET,
    S3Operation.LIST_OBJECTS, S3Operation.LIST_OBJECTS_V2,
}  # fmt: skip


def key(role, *buckets):
    return AccessKey("ARES" + "A" * 16, "s" * 40, "me", role, buckets)


def request(operation, bucket="photos", query=None, **headers):
    if operation is S3Operation.LIST_BUCKETS:
        bucket = ""
    if operation in (S3Operation.COPY_OBJECT, S3Operation.UPLOAD_PART_COPY):
        headers.setdefault("x_amz_copy_source", f"/{bucket}/source")
    raw = tuple((n.replace("_", "-").encode(), v.encode()) for n, v in headers.items())
    http = HttpRequest("GET", b"/", b"", Headers(raw), True, "1.2.3.4", iter(()))
    return S3Request(http, operation, bucket, "key", query or {}, "id")


def refusal(of, asked, public=()):
    """Return the code of the refusal; None for a request that is let in."""

    def acl(bucket):
        return CannedAcl.PUBLIC_READ if bucket in public else CannedAcl.PRIVATE

    try:
        check(of, asked, acl)
    except S3Error as error:
        return error.code
    return None


def test_every_operation_has_a_right():
    assert set(NEEDED_ROLES) == set(S3Operation)
    assert [each for each, need in NEEDED_ROLES.items() if need is None] == [S3Operation.PREFLIGHT]


@pytest.mark.parametrize("operation", S3Operation, ids=lambda operation: operation.value)
def test_a_role_includes_the_roles_before_it(operation):
    need = NEEDED_ROLES[operation] or 0
    for role, buckets in itertools.product(KeyRole, ((), ("photos",), ("films", "photos"))):
        expected = None if role >= need else S3Code.AccessDenied
        assert refusal(key(role, *buckets), request(operation)) is expected


@pytest.mark.parametrize("operation", S3Operation, ids=lambda operation: operation.value)
def test_a_key_reaches_its_own_buckets_only(operation):
    free = operation in (S3Operation.LIST_BUCKETS, S3Operation.PREFLIGHT)
    for role in KeyRole:
        expected = None if free else S3Code.AccessDenied
        assert refusal(key(role, "films"), request(operation)) is expected


@pytest.mark.parametrize("operation", S3Operation, ids=lambda operation: operation.value)
def test_a_stranger_reads_public_buckets_only(operation):
    free = operation is S3Operation.PREFLIGHT
    private, public = (refusal(None, request(operation), public) for public in ((), ("photos",)))
    assert private is (None if free else S3Code.AccessDenied)
    assert public is (None if free or operation in PUBLIC else S3Code.AccessDenied)
    beyond = refusal(key(KeyRole.READ, "films"), request(operation), ("photos",))
    listing = operation is S3Operation.LIST_BUCKETS
    assert beyond is (public if not listing else None)


@pytest.mark.parametrize("bucket", [KEYS_BUCKET, "ares-gateway-else"])
@pytest.mark.parametrize("operation", S3Operation, ids=lambda operation: operation.value)
def test_no_key_reaches_the_buckets_of_the_gateways(operation, bucket):
    if operation is S3Operation.LIST_BUCKETS:
        return
    creates = operation is S3Operation.CREATE_BUCKET
    expected = S3Code.InvalidBucketName if creates else S3Code.NoSuchBucket
    for of in (None, key(KeyRole.ADMIN), key(KeyRole.ADMIN, bucket)):
        assert refusal(of, request(operation, bucket), (bucket,)) is expected


@pytest.mark.parametrize("operation", [S3Operation.COPY_OBJECT, S3Operation.UPLOAD_PART_COPY])
def test_a_copy_reads_its_source(operation):
    def copy(source):
        return request(operation, x_amz_copy_source=source)

    writer = key(KeyRole.WRITE, "photos")
    assert refusal(writer, copy("photos/key")) is None
    for source in (
        "films/key",
        "/films/key",
        "%66ilms/key",
        "films/a?versionId=1",
    ):
        assert refusal(writer, copy(source)) is S3Code.AccessDenied
        assert refusal(key(KeyRole.WRITE, "photos", "films"), copy(source)) is None
    for source in (f"{KEYS_BUCKET}/key", "/%61res-gateway-keys/key"):
        assert refusal(key(KeyRole.ADMIN), copy(source)) is S3Code.NoSuchBucket


def test_a_refusal_tells_the_reason_to_the_holder_of_a_key():
    with pytest.raises(S3Error, match="has the role read, and needs write"):
        check(key(KeyRole.READ), request(S3Operation.PUT_OBJECT), lambda _: CannedAcl.PRIVATE)
    with pytest.raises(S3Error, match="beyond its reach") as told:
        check(
            key(KeyRole.ADMIN, "films"),
            request(S3Operation.PUT_OBJECT),
            lambda _: CannedAcl.PRIVATE,
        )
    assert "s" * 40 not in str(told.value)


def test_old_versions_and_chosen_headers_are_not_public():
    get, public = S3Operation.GET_OBJECT, ("photos",)
    assert refusal(None, request(get, query={"versionId": "3"}), public) is S3Code.AccessDenied
    chosen = {"response-content-type": "text/html"}
    assert refusal(None, request(get, query=chosen), public) is S3Code.InvalidRequest
    assert refusal(key(KeyRole.READ), request(get, query=chosen)) is None


@pytest.mark.parametrize(
    ("list_", "private", "public"),
    [
        ("", None, None),
        ("bucket-owner-full-control", None, None),
        ("private", None, S3Code.NotImplemented),
        ("public-read", S3Code.NotImplemented, None),
        ("public-read-write", S3Code.NotImplemented, S3Code.NotImplemented),
    ],
)
def test_an_object_has_the_list_of_its_bucket(list_, private, public):
    for operation in (
        *(S3Operation.PUT_OBJECT, S3Operation.CREATE_MULTIPART_UPLOAD, S3Operation.POST_OBJECT),
        *(S3Operation.COPY_OBJECT, S3Operation.PUT_OBJECT_ACL),
    ):
        asked = request(operation, x_amz_acl=list_)
        assert refusal(key(KeyRole.WRITE), asked) is private
        assert refusal(key(KeyRole.WRITE), asked, ("photos",)) is public
        granted = request(operation, x_amz_grant_read="id=me")
        assert refusal(key(KeyRole.WRITE), granted) is S3Code.NotImplemented


def test_a_caller_sees_the_buckets_within_reach():
    names = ["films", "photos", KEYS_BUCKET]
    for caller, seen in (
        (Caller(), []),
        (Caller("ARES", "me"), ["films", "photos"]),
        (Caller("ARES", "me", ("films", KEYS_BUCKET)), ["films"]),
    ):
        assert [name for name in names if caller.sees(name)] == seen
