"""Requests in S3's terms: buckets and keys in paths and hosts, operations, refusals, bounds."""

from contextlib import suppress
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ares.gateway.s3.exchange import S3Operation
from ares.gateway.s3.operation_routes import SUB_RESOURCES
from ares.gateway.s3.parsing import (
    HEADER_SECTION_BYTES_MAX,
    QUERY_BYTES_MAX,
    QUERY_FIELDS_MAX,
    copy_source,
    rename_source,
)
from ares.gateway.s3.s3_errors import S3Error
from ares.model.identity import KEY_BYTES_MAX
from tests.gateway.s3.requests import headers_of, parsed


def refusal(*told: str | bytes, **headers: str) -> str:
    with pytest.raises(S3Error) as raised:
        parsed(*told, **headers)
    return raised.value.code.name


# -- buckets and keys ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "bucket", "key"),
    [
        ("/", "", ""),
        ("/photos", "photos", ""),
        ("/photos/", "photos", ""),
        ("/photos/a/b", "photos", "a/b"),
        ("/photos//a//b/", "photos", "/a//b/"),
        ("/photos/../a/./b", "photos", "../a/./b"),
        ("/photos/a+b%20c%2Bd", "photos", "a+b c+d"),
        ("/photos/%C3%A9%2F%25", "photos", "é/%"),
        ("/photos/\xe9", "photos", "é"),
        ("/photos/a%00b", "photos", "a\0b"),
    ],
)
def test_the_path_is_the_bucket_and_the_key(target: str, bucket: str, key: str):
    request = parsed(target)
    assert (request.bucket, request.key) == (bucket, key)


@given(st.text(min_size=1, max_size=200))
def test_every_key_comes_back_from_its_path(key: str):
    try:
        encoded = quote(key, safe="/~")
    except UnicodeEncodeError:
        return
    assert parsed(f"/photos/{encoded}").key == key


@pytest.mark.parametrize(
    "host",
    [
        "photos.s3.example.org",
        "PHOTOS.S3.Example.org:443",
        "photos.s3.example.org.",
        "photos.example.org",
    ],
)
def test_a_host_below_a_domain_begins_with_the_bucket(host: str):
    request = parsed("/a/b", host=host)
    assert (request.bucket, request.key) == ("photos", "a/b")
    assert parsed("/", host=host).operation is S3Operation.LIST_OBJECTS


@pytest.mark.parametrize(
    "host", ["s3.example.org", "example.org:80", "10.0.0.1:9000", "[::1]:9000", "[::1]", ""]
)
def test_another_host_is_of_the_path_style(host: str):
    assert parsed("/photos/a", host=host).bucket == "photos"


def test_a_bucket_with_dots_may_be_in_the_host():
    assert parsed("/a", host="a.b.s3.example.org").bucket == "a.b"


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("/photos/%zz", "InvalidURI"),
        ("/photos/%c", "InvalidURI"),
        ("/photos/%ff", "InvalidURI"),
        (b"/photos/\xff", "InvalidURI"),
        ("/photos/%ed%a0%80", "InvalidURI"),  # a surrogate
        ("*", "InvalidURI"),
        ("//a", "InvalidBucketName"),
        ("/AB", "InvalidBucketName"),
        ("/a_b", "InvalidBucketName"),
        ("/ab", "InvalidBucketName"),
        ("/" + "a" * 64, "InvalidBucketName"),
        ("/photos?prefix=%ff", "InvalidURI"),
        ("/photos?prefix=%", "InvalidURI"),
        ("/photos?prefix=a&prefix=b", "InvalidArgument"),
        ("/photos?list-type=1", "InvalidArgument"),
        ("/photos/a?versionId=", "InvalidArgument"),
    ],
)
def test_a_request_that_cannot_be_read_is_refused(target: str | bytes, code: str):
    assert refusal(target) == code


@pytest.mark.parametrize(
    "name", ["10.0.0.1", "a..b", "a.-b", "a-.b", "xn--abc", "sthree-a", "abc-s3alias", "abc--x-s3"]
)
def test_a_new_bucket_has_no_name_that_s3_reserves(name: str):
    assert refusal(f"/{name}", "PUT") == "InvalidBucketName"
    assert parsed(f"/{name}").operation is S3Operation.LIST_OBJECTS


def test_a_key_has_at_most_1024_bytes():
    assert parsed("/photos/" + "%C3%A9" * (KEY_BYTES_MAX // 2)).key == "é" * (KEY_BYTES_MAX // 2)
    assert refusal("/photos/a" + "%C3%A9" * (KEY_BYTES_MAX // 2)) == "KeyTooLongError"
    assert refusal("/photos/" + "a" * 1_000_000) == "KeyTooLongError"


# -- operations ------------------------------------------------------------------------------------

ROUTED = {
    "GET /": "ListBuckets",
    "GET /photos": "ListObjects",
    "GET /photos?list-type=2&prefix=a": "ListObjectsV2",
    "GET /photos?versions&prefix=": "ListObjectVersions",
    "GET /photos?uploads=": "ListMultipartUploads",
    "GET /photos?location": "GetBucketLocation",
    "GET /photos?acl": "GetBucketAcl",
    "GET /photos?versioning": "GetBucketVersioning",
    "GET /photos?tagging": "GetBucketTagging",
    "GET /photos?cors": "GetBucketCors",
    "GET /photos?lifecycle": "GetBucketLifecycleConfiguration",
    "GET /photos?watch&prefix=a&from=7": "Watch",
    "GET /photos?ping=10&events=s3:ObjectCreated:*&events=s3:ObjectRemoved:*": "ListenNotification",
    "HEAD /photos": "HeadBucket",
    "PUT /photos": "CreateBucket",
    "PUT /photos?acl": "PutBucketAcl",
    "PUT /photos?versioning": "PutBucketVersioning",
    "PUT /photos?tagging": "PutBucketTagging",
    "PUT /photos?cors": "PutBucketCors",
    "PUT /photos?lifecycle": "PutBucketLifecycleConfiguration",
    "DELETE /photos": "DeleteBucket",
    "DELETE /photos?tagging": "DeleteBucketTagging",
    "DELETE /photos?cors": "DeleteBucketCors",
    "DELETE /photos?lifecycle": "DeleteBucketLifecycle",
    "POST /photos?delete": "DeleteObjects",
    "OPTIONS /photos/a?uploads": "Preflight",
    "GET /photos/a?x-id=GetObject": "GetObject",
    "GET /photos/a?versionId=7&response-expires=0&partNumber=1": "GetObject",
    "GET /photos/a?uploadId=7&max-parts=3": "ListParts",
    "GET /photos/a?attributes&versionId=7": "GetObjectAttributes",
    "GET /photos/a?acl": "GetObjectAcl",
    "GET /photos/a?tagging&versionId=7": "GetObjectTagging",
    "HEAD /photos/a?versionId=7": "HeadObject",
    "PUT /photos/a?X-Amz-Algorithm=a&X-Amz-Signature=b": "PutObject",
    "PUT /photos/a?tagging": "PutObjectTagging",
    "PUT /photos/a?acl": "PutObjectAcl",
    "PUT /photos/a?renameObject": "RenameObject",
    "PUT /photos/a?partNumber=1&uploadId=7": "UploadPart",
    "POST /photos/a?uploads": "CreateMultipartUpload",
    "POST /photos/a?uploadId=7": "CompleteMultipartUpload",
    "DELETE /photos/a?versionId=null": "DeleteObject",
    "DELETE /photos/a?uploadId=7": "AbortMultipartUpload",
    "DELETE /photos/a?tagging": "DeleteObjectTagging",
}


@pytest.mark.parametrize("told", ROUTED)
def test_the_method_and_the_query_choose_the_operation(told: str):
    method, target = told.split(" ")
    assert parsed(target, method).operation is S3Operation(ROUTED[told])


def test_each_operation_has_a_request():
    others = {S3Operation.POST_OBJECT, S3Operation.COPY_OBJECT, S3Operation.UPLOAD_PART_COPY}
    assert {S3Operation(name) for name in ROUTED.values()} | others == set(S3Operation)


def test_a_source_makes_a_copy_of_a_put_and_of_a_part():
    source = {"x_amz_copy_source": "/photos/b"}
    assert parsed("/photos/a", "PUT", **source).operation is S3Operation.COPY_OBJECT
    part = parsed("/photos/a?partNumber=1&uploadId=7", "PUT", **source)
    assert part.operation is S3Operation.UPLOAD_PART_COPY


def test_a_form_is_posted_to_a_bucket():
    form = {"content_type": 'multipart/form-data; boundary="a"'}
    assert parsed("/photos", "POST", **form).operation is S3Operation.POST_OBJECT
    assert refusal("/photos", "POST") == "MethodNotAllowed"


def test_events_of_a_watch_are_joined():
    request = parsed("/photos?events=a&events=b")
    assert request.query == {"events": "a,b"}


@pytest.mark.parametrize(
    "told", ["POST /", "HEAD /", "PUT /", "PATCH /photos/a", "POST /photos/a", "OPTIONS /"]
)
def test_another_method_is_refused(told: str):
    method, target = told.split(" ")
    assert refusal(target, method) == "MethodNotAllowed"


# -- never ignored ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "POST", "DELETE"])
@pytest.mark.parametrize("target", ["/photos", "/photos/a"])
def test_a_sub_resource_is_answered_or_refused(method: str, target: str):
    plain = {
        *("GetObject", "ListObjects", "HeadObject", "HeadBucket", "PutObject", "CreateBucket"),
        *("DeleteObject", "DeleteBucket"),
    }
    for name in SUB_RESOURCES - {"partNumber"}:
        for query in (name, f"{name}=", f"{name}=1"):
            with suppress(S3Error):
                assert parsed(f"{target}?{query}", method).operation.value not in plain


@pytest.mark.parametrize(
    "told",
    [
        *(
            "GET /photos?policy",
            "PUT /photos?newThing",
            "PUT /photos/a?newThing=1",
            "GET /photos?new",
        ),
        *(
            "DELETE /photos?encryption",
            "PUT /photos/a?retention",
            "POST /photos/a?select&select-type=2",
        ),
        *("PUT /photos/a?uploadId=7", "PUT /photos/a?partNumber=7", "GET /photos/a?acl&tagging"),
        *("POST /photos/a?restore", "GET /?events=a", "DELETE /photos/a?prefix=b"),
    ],
)
def test_a_query_of_unknown_meaning_is_not_implemented(told: str):
    method, target = told.split(" ")
    assert refusal(target, method) == "NotImplemented"


def test_a_field_with_a_value_does_not_hinder_a_read():
    assert parsed("/photos/a?utm_source=mail").operation is S3Operation.GET_OBJECT


@pytest.mark.parametrize(
    "name",
    [
        *("x_amz_server_side_encryption", "x_amz_server_side_encryption_customer_key"),
        *("x_amz_copy_source_server_side_encryption_customer_key", "x_amz_object_lock_mode"),
        *("x_amz_object_lock_legal_hold", "x_amz_website_redirect_location", "x_amz_grant_read"),
        *(
            "x_amz_write_offset_bytes",
            "x_amz_mfa",
            "x_amz_expected_bucket_owner",
            "x_amz_new_thing",
        ),
        *("x_amz_checksum_sha512", "x_ares_new_thing", "content_range"),
    ],
)
def test_a_header_without_an_answer_is_not_implemented(name: str):
    assert refusal("/photos/a", "PUT", **{name: "1"}) == "NotImplemented"


def test_the_refusal_names_the_header():
    with pytest.raises(S3Error) as raised:
        parsed("/photos/a", "PUT", x_amz_mfa="1")
    assert raised.value.fields == {"Header": "x-amz-mfa"}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("GLACIER", "NotImplemented"),
        ("STANDARD_IA", "NotImplemented"),
        ("gold", "InvalidStorageClass"),
    ],
)
def test_standard_is_the_only_storage_class(name: str, code: str):
    assert refusal("/photos/a", "PUT", x_amz_storage_class=name) == code
    assert parsed("/photos/a", "PUT", x_amz_storage_class="STANDARD").key == "a"


def test_object_lock_may_be_declined():
    assert parsed("/photos", "PUT", x_amz_bucket_object_lock_enabled="False").bucket == "photos"
    assert refusal("/photos", "PUT", x_amz_bucket_object_lock_enabled="true") == "NotImplemented"


@pytest.mark.parametrize(
    "target", ["/photos", "/photos/a?partNumber=1&uploadId=7", "/photos/a?tagging"]
)
@pytest.mark.parametrize("name", ["if_match", "if_none_match", "x_ares_if_version"])
def test_a_condition_on_a_change_without_conditions_is_not_implemented(target: str, name: str):
    assert refusal(target, "PUT", **{name: "*"}) == "NotImplemented"
    assert parsed("/photos/a", "PUT", **{name: "*"}).key == "a"


# -- bounds ----------------------------------------------------------------------------------------


def test_the_bytes_of_a_request_are_bounded():
    size = HEADER_SECTION_BYTES_MAX
    assert refusal("/photos/a", x_amz_meta_a="a" * size) == "RequestHeaderSectionTooLarge"
    many = {f"x_amz_meta_{number}": "" for number in range(300)}
    assert refusal("/photos/a", **many) == "RequestHeaderSectionTooLarge"
    assert refusal("/photos?prefix=" + "a" * QUERY_BYTES_MAX) == "RequestHeaderSectionTooLarge"
    fields = "&".join(f"x-{number}=1" for number in range(QUERY_FIELDS_MAX + 1))
    assert refusal(f"/photos?{fields}") == "InvalidURI"


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_junk_is_parsed_or_refused(path: bytes, query: bytes):
    with suppress(S3Error):
        parsed(b"/" + path.replace(b"?", b"") + b"?" + query)


# -- sources of copies -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ("/photos/a/b", ("photos", "a/b", "")),
        ("photos/a", ("photos", "a", "")),
        ("photos/a%3FversionId=1", ("photos", "a?versionId=1", "")),
        ("/photos/a%20b+c?versionId=7.1", ("photos", "a b+c", "7.1")),
        ("photos%2Fa?versionId=null", ("photos", "a", "null")),
        ("photos//a", ("photos", "/a", "")),
        ("photos/é", ("photos", "é", "")),
    ],
)
def test_a_source_is_a_bucket_a_key_and_a_version(told: str, found: tuple[str, str, str]):
    source = copy_source(headers_of(x_amz_copy_source=told))
    assert (source.bucket, source.key, source.version_id) == found


@pytest.mark.parametrize(
    "told", ["", "/", "photos", "/photos/", "//photos/a", "photos/a?versionId=", "%2F%2F", "AB/a"]
)
def test_a_source_that_cannot_be_read_is_refused(told: str):
    with pytest.raises(S3Error, match=r"InvalidArgument|InvalidBucketName"):
        copy_source(headers_of(x_amz_copy_source=told))


def test_a_renaming_stays_in_the_bucket():
    assert rename_source(headers_of(x_amz_rename_source="/a%20b"), "photos").key == "a b"
    with pytest.raises(S3Error, match="InvalidArgument"):
        rename_source(headers_of(x_amz_rename_source="a?versionId=1"), "photos")


# -- headers in the query --------------------------------------------------------------------------


def test_a_presigned_url_carries_headers_in_its_query():
    signed = "X-Amz-Algorithm=a&X-Amz-Signature=b&X-Amz-Credential=c&X-Amz-Expires=60"
    request = parsed(f"/photos/a?{signed}&x-amz-meta-color=red&X-Amz-Tagging=a%3D1", "PUT")
    assert request.http.headers.get("x-amz-meta-color") == "red"
    assert request.http.headers.get("x-amz-tagging") == "a=1"
    assert set(request.http.headers.with_prefix("x-amz-")) == {"x-amz-meta-color", "x-amz-tagging"}
    copy = parsed(f"/photos/a?{signed}&x-amz-copy-source=photos/b", "PUT")
    assert copy.operation is S3Operation.COPY_OBJECT


def test_a_header_in_the_query_is_answered_or_refused():
    assert refusal("/photos/a?X-Amz-Server-Side-Encryption=aws:kms", "PUT") == "NotImplemented"
    assert refusal("/photos/a?x-amz-storage-class=GLACIER", "PUT") == "NotImplemented"


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("PUT", {"x_amz_copy_source": "/photos/b", "x_amz_copy_source_range": "bytes=0-1"}),
        ("PUT", {"x_amz_copy_source_if_match": "*"}),
        ("GET", {"x_amz_copy_source": "/photos/b"}),
        ("PUT", {"x_amz_rename_source": "/b"}),
    ],
)
def test_a_source_is_for_copies_alone(method: str, headers: dict[str, str]):
    assert refusal("/photos/a", method, **headers) == "NotImplemented"
