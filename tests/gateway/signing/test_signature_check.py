"""Signatures of botocore, and signatures to refuse."""

import io
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ares.gateway.s3.exchange import Headers
from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.gateway.signing.decoded_body import decoded_body
from ares.gateway.signing.payload_form import PayloadForm, anonymous_payload
from ares.gateway.signing.post_form import form_signature_of, verify_form
from ares.gateway.signing.request_signature import signature_of
from ares.gateway.signing.signature_check import verify
from tests.gateway.signing.signed_requests import (
    ACCESS_KEY,
    EMPTY_HASH,
    EXAMPLE_TIME_S,
    REGION,
    SCOPE,
    SECRET,
    STAMP,
    http_request,
    in_pieces,
    inline,
    read,
    s3_request,
    signed_again,
)

HOST = "bucket.example.net:9000"
KEYS = [
    "plain.txt",
    "a b+c",
    "ä/ö€",
    "//double/../dots/.",
    "100%25",
    "(x)!'*;:@&=$,?#[]~_-.",
    "\x01",
]


@pytest.fixture(params=["botocore", "crt"])
def sent(request, monkeypatch):
    """Return a function to a client of botocore, and the requests that clients would send.

    With awscrt botocore signs by the common runtime of AWS's SDKs, else by itself.
    """
    boto3 = pytest.importorskip("boto3", reason="boto3 is not installed: pip install boto3")
    awsrequest = pytest.importorskip("botocore.awsrequest")
    auth = pytest.importorskip("botocore.auth")
    if request.param == "botocore":
        monkeypatch.setitem(auth.AUTH_TYPE_MAPS, "s3v4", auth.S3SigV4Auth)
        monkeypatch.setitem(auth.AUTH_TYPE_MAPS, "s3v4-query", auth.S3SigV4QueryAuth)
    else:
        pytest.importorskip("botocore.crt.auth")
    requests = []

    def keep(request, **_):
        requests.append(request)
        answer = awsrequest.AWSResponse(request.url, 200, {"ETag": '"1"'}, None)
        answer._content = b""
        return answer

    def client(scheme="http", **s3):
        config = pytest.importorskip("botocore.config").Config(
            s3={"addressing_style": "path", **s3}, signature_version="s3v4"
        )
        made = boto3.client(
            "s3", endpoint_url=f"{scheme}://{HOST}", region_name=REGION, config=config,
            aws_access_key_id=ACCESS_KEY, aws_secret_access_key=SECRET,
        )  # fmt: skip
        made.meta.events.register("before-send.s3", keep)
        return made

    return client, requests


def received(request):
    """Return a request of botocore as a server receives it."""
    text = {
        name.lower(): value if isinstance(value, str) else value.decode("utf-8")
        for name, value in request.headers.items()
    }
    body = request.body
    pieces = [body] if isinstance(body, bytes) else [] if body is None else list(body)
    return http_request(request.method, request.url, {"host": HOST, **text}, pieces)


def accepted(http, now_s=None):
    signature = signature_of(http, REGION)
    assert signature is not None
    payload = verify(http, signature, SECRET, time.time() if now_s is None else now_s)
    with pytest.raises(S3Error) as raised:
        verify(http, signature, SECRET + "x", time.time() if now_s is None else now_s)
    assert raised.value.code is S3Code.SignatureDoesNotMatch
    return payload


@pytest.mark.parametrize("key", KEYS)
async def test_requests_of_botocore_are_accepted(sent, key):
    client, requests = sent
    s3 = client()
    data = b"x" * 200_000
    s3.put_object(Bucket="bucket", Key=key, Body=data, Metadata={"a": "  b   c "}, IfNoneMatch="*")
    s3.put_object(Bucket="bucket", Key=key, Body=io.BytesIO(data), ChecksumAlgorithm="SHA256")
    s3.get_object(Bucket="bucket", Key=key, Range="bytes=0-9", VersionId="3 4+5/6=7")
    s3.list_objects_v2(Bucket="bucket", Prefix=key, Delimiter="/", StartAfter=key)
    s3.copy_object(Bucket="bucket", Key="copy", CopySource={"Bucket": "bucket", "Key": key})
    s3.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": key}]})
    for request in requests:
        http = received(request)
        payload = accepted(http)
        assert len(payload.sha256) == 64
        decoded = await read(decoded_body(s3_request(http), payload, inline))
        assert decoded == data or request.method != "PUT" or request.url.endswith("/copy")
    assert len(requests) == 6


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"])
@pytest.mark.parametrize("size", [0, 1, 3 * 1024**2 + 1])
async def test_trailers_of_botocore_are_accepted(sent, algorithm, size):
    client, requests = sent
    data = b"y" * size
    client("https").put_object(
        Bucket="bucket", Key="key", Body=io.BytesIO(data), ChecksumAlgorithm=algorithm
    )
    http = received(requests[0])
    payload = accepted(http)
    assert payload.form is PayloadForm.UNSIGNED_CHUNKS_TRAILER
    body = decoded_body(s3_request(http), payload, inline)
    assert await read(body) == data
    assert body.checksum is not None
    assert body.checksum.algorithm.name == algorithm


@pytest.mark.parametrize("key", KEYS)
def test_presigned_urls_of_botocore_are_accepted(sent, key):
    client, _ = sent
    s3 = client()
    named = {"Bucket": "bucket", "Key": key}
    urls = {
        "GET": s3.generate_presigned_url("get_object", {**named, "ResponseContentType": "a/b; c"}),
        "DELETE": s3.generate_presigned_url("delete_object", named, ExpiresIn=1),
    }
    for method, url in urls.items():
        http = http_request(method, url, {"Host": HOST})
        assert accepted(http).form is PayloadForm.PLAIN
        with pytest.raises(S3Error, match="expired"):
            verify(http, signature_of(http, REGION), SECRET, time.time() + 3602)


def test_a_form_of_botocore_is_accepted(sent):
    client, _ = sent
    form = client().generate_presigned_post(
        "bucket", "user/${filename}", {"acl": "private"},
        [["content-length-range", 1, 10], {"acl": "private"}, ["starts-with", "$key", "user/"]],
    )  # fmt: skip
    fields = {name.lower(): value for name, value in form["fields"].items()}
    fields["key"] = "user/file.txt"
    signature = form_signature_of(fields, REGION)
    assert signature is not None
    lengths = verify_form(fields, signature, SECRET, "bucket", time.time())
    assert (lengths.least, lengths.most) == (1, 10)


def signed(headers=None, path="/key", query="", secret_headers=()):
    """Return a GET at the examples' time. ``secret_headers``: added behind the signature."""
    named = {
        "host": HOST,
        "x-amz-content-sha256": EMPTY_HASH,
        "x-amz-date": STAMP,
        **(headers or {}),
    }
    names = sorted(named)
    canonical = "\n".join(
        ["GET", path, query, *(f"{name}:{named[name]}" for name in names), "", ";".join(names)]
    )
    target = path + (f"?{query}" if query else "")
    http = http_request("GET", target, {**named, **dict(secret_headers)})
    return signed_again(http, f"{canonical}\n{named['x-amz-content-sha256']}")


def refused(http, now_s=EXAMPLE_TIME_S):
    with pytest.raises(S3Error) as raised:
        verify(http, signature_of(http, REGION), SECRET, now_s)
    return raised.value


def test_the_clocks_of_client_and_gateway_may_differ_by_15_minutes():
    for now_s in (EXAMPLE_TIME_S - 900, EXAMPLE_TIME_S + 900):
        accepted(signed(), now_s)
    for now_s in (EXAMPLE_TIME_S - 901, EXAMPLE_TIME_S + 901):
        assert refused(signed(), now_s).code is S3Code.RequestTimeTooSkewed


@pytest.mark.parametrize(
    "name",
    ["x-amz-copy-source", "x-amz-meta-owner", "X-Amz-ACL", "x-ares-if-version", "x-amz-trailer"],
)
def test_a_header_with_a_meaning_is_signed_or_refused(name):
    error = refused(signed(secret_headers={name: "1"}.items()))
    assert error.code is S3Code.AccessDenied
    assert error.fields == {"HeadersNotSigned": name.lower()}
    accepted(signed({name.lower(): "1"}), EXAMPLE_TIME_S)


def test_the_host_is_signed():
    http = signed()
    raw = dict(http.headers.raw)
    raw[b"Authorization"] = raw[b"Authorization"].replace(b"SignedHeaders=host;", b"SignedHeaders=")
    http.headers = Headers(tuple(raw.items()))
    assert refused(http).fields == {"HeadersNotSigned": "host"}


def test_a_repeated_header_is_signed_as_one_value():
    http = signed({"x-amz-meta-a": "1,2"})
    raw = [each for each in http.headers.raw if each[0] != b"x-amz-meta-a"]
    http.headers = Headers((*raw, (b"x-amz-meta-a", b"1"), (b"X-Amz-Meta-A", b" 2 ")))
    accepted(http, EXAMPLE_TIME_S)


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("//a/../b//", ""),
        ("/a%20b%2Bc", "a=&a=1&a-b=2&b=%20%2F"),
        ("/%C3%A4~", "prefix=%E2%82%AC"),
    ],
)
def test_paths_are_not_normalised_and_queries_are_sorted(path, query):
    accepted(signed(path=path, query=query), EXAMPLE_TIME_S)
    turned = signed(path=path, query=query)
    turned.raw_query = b"&".join(reversed(turned.raw_query.split(b"&")))
    accepted(turned, EXAMPLE_TIME_S)
    shorter = signed(path=path, query=query)
    shorter.raw_path = shorter.raw_path.replace(b"//", b"/").replace(b"%2", b"%252") + b"x"
    assert refused(shorter).code is S3Code.SignatureDoesNotMatch


def authorization(text, **headers):
    named = {"host": HOST, "x-amz-date": STAMP, "x-amz-content-sha256": EMPTY_HASH, **headers}
    return http_request("GET", "/", {**named, "authorization": text})


V4 = "AWS4-HMAC-SHA256 Credential={}, SignedHeaders={}, Signature={}"
NO_SIGNATURE = "0" * 64


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (f"AWS {ACCESS_KEY}:c2ln", S3Code.InvalidRequest, "Please use AWS4-HMAC-SHA256"),
        ("AWS4-ECDSA-P256-SHA256 Credential=a", S3Code.InvalidRequest, "not supported"),
        ("Basic YTpi", S3Code.InvalidArgument, "Unsupported Authorization Type"),
        ("", S3Code.InvalidArgument, "Unsupported Authorization Type"),
        (
            V4.format("", "host", NO_SIGNATURE),
            S3Code.AuthorizationHeaderMalformed,
            "missing Credential",
        ),
        (V4.format("a/b", "host", NO_SIGNATURE), S3Code.AuthorizationHeaderMalformed, "mal-formed"),
        (
            V4.format("A" * 200 + "/" + SCOPE, "host", NO_SIGNATURE),
            S3Code.AuthorizationHeaderMalformed,
            "mal-formed",
        ),
        (
            V4.format(f"A/{SCOPE.replace('us-east-1', 'mars')}", "host", NO_SIGNATURE),
            S3Code.AuthorizationHeaderMalformed,
            "the region 'mars' is wrong; expecting 'us-east-1'",
        ),
        (
            V4.format(f"A/{SCOPE.replace('/s3/', '/sts/')}", "host", NO_SIGNATURE),
            S3Code.AuthorizationHeaderMalformed,
            "incorrect service",
        ),
        (
            V4.format(f"A/{SCOPE}5", "host", NO_SIGNATURE),
            S3Code.AuthorizationHeaderMalformed,
            "incorrect terminal",
        ),
        (
            V4.format(f"A/{SCOPE.replace('0524', '0525')}", "host", NO_SIGNATURE),
            S3Code.AuthorizationHeaderMalformed,
            "Invalid credential date",
        ),
        (
            V4.format(f"A/{SCOPE}", "host", ""),
            S3Code.AuthorizationHeaderMalformed,
            "missing Signature",
        ),
    ],
)
def test_a_malformed_authorization_is_refused(text, code, words):
    with pytest.raises(S3Error, match=words) as raised:
        signature_of(authorization(text), REGION)
    assert raised.value.code is code
    assert raised.value.fields.get("Region") == (REGION if "region" in words else None)


URL = {
    "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
    "X-Amz-Credential": f"{ACCESS_KEY}/{SCOPE}",
    "X-Amz-Date": STAMP,
    "X-Amz-Expires": "604800",
    "X-Amz-SignedHeaders": "host",
    "X-Amz-Signature": NO_SIGNATURE,
}


def of_url(fields, **headers):
    query = "&".join(f"{name}={value}" for name, value in fields)
    return http_request("GET", f"/key?{query}", {"host": HOST, **headers})


def test_a_signed_header_is_named_once():
    """The canonical request is linear in the bytes of a request."""
    text = V4.format(f"A/{SCOPE}", "host;host", NO_SIGNATURE)
    with pytest.raises(S3Error, match="twice") as raised:
        signature_of(authorization(text), REGION)
    assert raised.value.code is S3Code.AuthorizationHeaderMalformed
    fields = {**URL, "X-Amz-SignedHeaders": "host;range;host"}
    with pytest.raises(S3Error, match="twice") as raised:
        signature_of(of_url(fields.items()), REGION)
    assert raised.value.code is S3Code.AuthorizationQueryParametersError


@pytest.mark.parametrize(
    "date",
    [STAMP, "Fri, 24 May 2013 00:00:00 GMT", "Fri, 24 May 2013 02:00:00 +0200"],
)
def test_the_date_of_a_request_may_have_the_format_of_http(date):
    http = authorization(V4.format(f"A/{SCOPE}", "host", NO_SIGNATURE), date=date)
    http.headers = Headers(tuple(each for each in http.headers.raw if each[0] != b"x-amz-date"))
    assert signature_of(http, REGION).stamp == STAMP


LETTERS = st.text(
    st.sampled_from("AWS4-HMACSHA256/, ;=&%é٣0123456789TZus:+GMTFriMay")
    | st.characters(max_codepoint=255),
    max_size=60,
)


@given(told=LETTERS, date=LETTERS, scope=LETTERS, query=LETTERS)
def test_a_stranger_gets_an_answer_and_no_failure(told, date, scope, query):
    """Any text gets a signature that does not match, or an error of S3."""
    names = f"host;x-amz-date;x-amz-content-sha256;date;{told}"
    requests = [
        authorization(told),
        authorization(V4.format(f"A/{scope}", "host", told), date=date),
        authorization(V4.format(f"A/{SCOPE}", names, told)),
        authorization(V4.format(f"A/{SCOPE}", names, told), **{"x-amz-date": "", "date": date}),
        of_url([*URL.items(), ("a", query)]),
        of_url({**URL, "X-Amz-Expires": told, "X-Amz-Credential": scope}.items()),
        of_url({**URL, "X-Amz-SignedHeaders": names}.items()),
    ]
    for http in requests:
        with pytest.raises(S3Error):
            verify(http, signature_of(http, REGION), SECRET, EXAMPLE_TIME_S)


def test_wrong_signatures_of_any_form_are_refused():
    for told in (NO_SIGNATURE, "é" * 64, "x", NO_SIGNATURE * 9):
        http = signed()
        raw = dict(http.headers.raw)
        raw[b"Authorization"] = V4.format(
            f"{ACCESS_KEY}/{SCOPE}", "host;x-amz-content-sha256;x-amz-date", told
        ).encode()
        http.headers = Headers(tuple(raw.items()))
        assert refused(http).code is S3Code.SignatureDoesNotMatch


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"x-amz-date": "yesterday"}, S3Code.AccessDenied),
        ({"x-amz-date": "20130524T990000Z"}, S3Code.AccessDenied),
        ({"x-amz-date": "", "date": "Fri"}, S3Code.AccessDenied),
        ({"x-amz-content-sha256": "x"}, S3Code.InvalidArgument),
        (
            {"x-amz-content-sha256": "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD"},
            S3Code.InvalidArgument,
        ),
    ],
)
def test_wrong_headers_beside_a_signature_are_refused(headers, code):
    text = V4.format(f"A/{SCOPE}", "host", NO_SIGNATURE)
    with pytest.raises(S3Error) as raised:
        signature_of(authorization(text, **headers), REGION)
    assert raised.value.code is code


def test_a_signature_without_the_hash_of_the_body_is_refused():
    http = authorization(V4.format(f"A/{SCOPE}", "host", NO_SIGNATURE))
    http.headers = Headers(tuple(each for each in http.headers.raw if b"sha256" not in each[0]))
    with pytest.raises(S3Error, match="x-amz-content-sha256"):
        signature_of(http, REGION)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, None) for name in URL),
        *(("X-Amz-Expires", value) for value in ("0", "-1", "604801", "1e3", "9" * 5000, "٣")),
        ("X-Amz-Date", "2013-05-24"),
        ("X-Amz-Date", "20130525T000000Z"),
        ("X-Amz-Credential", ACCESS_KEY),
        ("X-Amz-Credential", f"A/{SCOPE.replace('us-east-1', 'mars')}"),
        ("X-Amz-Algorithm", "AWS4-ECDSA-P256-SHA256"),
    ],
)
def test_a_malformed_presigned_url_is_refused(name, value):
    fields = {**URL, name: value} if value is not None else {**URL}
    if value is None:
        del fields[name]
    with pytest.raises(S3Error) as raised:
        signature_of(of_url(fields.items()), REGION)
    assert raised.value.code is S3Code.AuthorizationQueryParametersError


def test_two_signatures_are_refused():
    with pytest.raises(S3Error, match="Only one auth mechanism"):
        signature_of(of_url(URL.items(), authorization="AWS4-HMAC-SHA256 x"), REGION)
    with pytest.raises(S3Error) as raised:
        signature_of(of_url([*URL.items(), ("X-Amz-Signature", "1")]), REGION)
    assert raised.value.code is S3Code.AuthorizationQueryParametersError


def test_a_signature_of_version_2_in_the_url_is_refused():
    with pytest.raises(S3Error, match="Please use AWS4-HMAC-SHA256"):
        signature_of(of_url([("AWSAccessKeyId", "A"), ("Signature", "b")]), REGION)


def test_an_unsigned_header_beside_a_presigned_url_is_refused():
    error = refused(of_url(URL.items(), **{"x-amz-acl": "public-read"}))
    assert error.fields == {"HeadersNotSigned": "x-amz-acl"}


async def test_an_anonymous_request_has_no_signature():
    http = http_request("PUT", "/bucket/key?prefix=X-Amz-", {"host": HOST}, [b"abc"])
    assert signature_of(http, REGION) is None
    assert anonymous_payload(http).form is PayloadForm.PLAIN
    told = {"x-amz-content-sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"}
    with pytest.raises(S3Error, match="no signed chunks"):
        anonymous_payload(http_request("PUT", "/bucket/key", told))
    http = http_request(
        "PUT", "/bucket/key",
        {"x-amz-trailer": "x-amz-checksum-crc32", "x-amz-decoded-content-length": "3"},
    )  # fmt: skip
    http.body = in_pieces([b"3\r\nabc\r\n0\r\nx-amz-checksum-crc32:NSRBwg==\r\n\r\n"])
    assert await read(decoded_body(s3_request(http), anonymous_payload(http), inline)) == b"abc"
