"""The examples of AWS's documentation, with their published signatures.

Sources, in Amazon S3's API reference: "Transferring Payload in a Single Chunk", "in Multiple
Chunks", "Signature calculations for trailing headers", "Using Query Parameters", and "Example:
Browser-Based Upload using HTTP POST".
"""

import hashlib

import pytest

from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.gateway.signing.decoded_body import LengthRange, decoded_body
from ares.gateway.signing.payload_form import PayloadForm
from ares.gateway.signing.post_form import form_signature_of, verify_form
from ares.gateway.signing.request_signature import signature_of
from ares.gateway.signing.signature_check import verify
from tests.gateway.signing.signed_requests import (
    ACCESS_KEY,
    EXAMPLE_TIME_S,
    REGION,
    SECRET,
    STAMP,
    example,
    http_request,
    in_pieces,
    inline,
    read,
    s3_request,
)

PUT_HASH = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"

REQUESTS = {
    "get a range": (
        "GET",
        "/test.txt",
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        {"range": "bytes=0-9"},
    ),
    "put": (
        "PUT",
        "/test$file.text",
        "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        {
            "date": "Fri, 24 May 2013 00:00:00 GMT",
            "x_amz_date": STAMP,
            "x_amz_storage_class": "REDUCED_REDUNDANCY",
            "x_amz_content_sha256": PUT_HASH,
        },
    ),
    "get the lifecycle": (
        "GET",
        "/?lifecycle",
        "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        {},
    ),
    "list": (
        "GET",
        "/?max-keys=2&prefix=J",
        "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        {},
    ),
}

PRESIGNED = (
    "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256"
    "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"
    "&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
    "&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
)

CHUNKED = {
    "signed chunks": (
        PayloadForm.SIGNED_CHUNKS,
        "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
        (
            "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
            "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
            "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
        ),
        {"content_length": "66824"},
        "\r\n",
    ),
    "signed chunks and trailer": (
        PayloadForm.SIGNED_CHUNKS_TRAILER,
        "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e",
        (
            "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
            "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
            "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
        ),
        {"x_amz_trailer": "x-amz-checksum-crc32c"},
        "x-amz-checksum-crc32c:sOO8/Q==\r\nx-amz-trailer-signature:"
        "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n",
    ),
}


def checked(http, now_s=EXAMPLE_TIME_S, secret=SECRET):
    signature = signature_of(http, REGION)
    assert signature is not None
    assert signature.access_key == ACCESS_KEY
    return verify(http, signature, secret, now_s)


@pytest.mark.parametrize("name", REQUESTS)
def test_a_signed_request_is_accepted_and_a_changed_one_is_refused(name):
    method, target, signature, headers = REQUESTS[name]
    checked(example(method, target, signature, **headers))
    changes = [
        ("DELETE", target, headers),
        (method, target.replace("t", "T") + "1", headers),
        (method, target, {**headers, "range": "bytes=0-8"}),
        (method, target, {**headers, "host": "other.s3.amazonaws.com"}),
    ]
    for changed_method, changed_target, changed in changes:
        with pytest.raises(S3Error) as raised:
            checked(example(changed_method, changed_target, signature, **changed))
        assert raised.value.code is S3Code.SignatureDoesNotMatch
    with pytest.raises(S3Error) as raised:
        checked(example(method, target, signature, **headers), secret=SECRET.swapcase())
    assert raised.value.code is S3Code.SignatureDoesNotMatch


def test_the_hash_of_the_put_is_that_of_its_body():
    assert checked(example(*REQUESTS["put"][:3], **REQUESTS["put"][3])).sha256 == PUT_HASH
    assert hashlib.sha256(b"Welcome to Amazon S3.").hexdigest() == PUT_HASH


def test_a_presigned_url_is_accepted_within_its_day():
    http = http_request("GET", PRESIGNED, {"Host": "examplebucket.s3.amazonaws.com"})
    for now_s in (EXAMPLE_TIME_S - 900, EXAMPLE_TIME_S, EXAMPLE_TIME_S + 86_400):
        assert checked(http, now_s).form is PayloadForm.PLAIN
    for now_s in (EXAMPLE_TIME_S - 901, EXAMPLE_TIME_S + 86_401):
        with pytest.raises(S3Error) as raised:
            checked(http, now_s)
        assert raised.value.code is S3Code.AccessDenied
    longer = PRESIGNED.replace("Expires=86400", "Expires=86401")
    with pytest.raises(S3Error) as raised:
        checked(http_request("GET", longer, {"Host": "examplebucket.s3.amazonaws.com"}))
    assert raised.value.code is S3Code.SignatureDoesNotMatch


@pytest.mark.parametrize("name", CHUNKED)
async def test_a_body_in_signed_chunks_is_decoded(name):
    form, seed, signatures, more, end = CHUNKED[name]
    parts = [b"a" * 65_536, b"a" * 1024, b""]
    body = b"".join(
        f"{len(part):x};chunk-signature={signature}\r\n".encode() + part + b"\r\n" * bool(part)
        for part, signature in zip(parts, signatures, strict=True)
    )
    http = example(
        "PUT",
        "/examplebucket/chunkObject.txt",
        seed,
        host="s3.amazonaws.com",
        content_encoding="aws-chunked",
        x_amz_decoded_content_length="66560",
        x_amz_storage_class="REDUCED_REDUNDANCY",
        x_amz_content_sha256=form.value,
        **more,
    )
    http.body = in_pieces([body + end.encode()])
    if form is PayloadForm.SIGNED_CHUNKS:
        assert len(body + end.encode()) == http.content_length
    decoded = decoded_body(s3_request(http), checked(http), inline)
    assert await read(decoded) == b"a" * 66_560
    assert decoded.length == decoded.declared == 66_560
    assert (decoded.checksum is not None) is ("trailer" in name)


POLICY = (
    "eyAiZXhwaXJhdGlvbiI6ICIyMDE1LTEyLTMwVDEyOjAwOjAwLjAwMFoiLA0KICAiY29uZGl0aW9ucyI6IFsNCiAgICB7"
    "ImJ1Y2tldCI6ICJzaWd2NGV4YW1wbGVidWNrZXQifSwNCiAgICBbInN0YXJ0cy13aXRoIiwgIiRrZXkiLCAidXNlci91"
    "c2VyMS8iXSwNCiAgICB7ImFjbCI6ICJwdWJsaWMtcmVhZCJ9LA0KICAgIHsic3VjY2Vzc19hY3Rpb25fcmVkaXJlY3Qi"
    "OiAiaHR0cDovL3NpZ3Y0ZXhhbXBsZWJ1Y2tldC5zMy5hbWF6b25hd3MuY29tL3N1Y2Nlc3NmdWxfdXBsb2FkLmh0bWwi"
    "fSwNCiAgICBbInN0YXJ0cy13aXRoIiwgIiRDb250ZW50LVR5cGUiLCAiaW1hZ2UvIl0sDQogICAgeyJ4LWFtei1tZXRh"
    "LXV1aWQiOiAiMTQzNjUxMjM2NTEyNzQifSwNCiAgICB7IngtYW16LXNlcnZlci1zaWRlLWVuY3J5cHRpb24iOiAiQUVT"
    "MjU2In0sDQogICAgWyJzdGFydHMtd2l0aCIsICIkeC1hbXotbWV0YS10YWciLCAiIl0sDQoNCiAgICB7IngtYW16LWNy"
    "ZWRlbnRpYWwiOiAiQUtJQUlPU0ZPRE5ON0VYQU1QTEUvMjAxNTEyMjkvdXMtZWFzdC0xL3MzL2F3czRfcmVxdWVzdCJ9"
    "LA0KICAgIHsieC1hbXotYWxnb3JpdGhtIjogIkFXUzQtSE1BQy1TSEEyNTYifSwNCiAgICB7IngtYW16LWRhdGUiOiAi"
    "MjAxNTEyMjlUMDAwMDAwWiIgfQ0KICBdDQp9"
)


def test_a_form_is_accepted():
    fields = {
        "key": "user/user1/MyPhoto.jpg",
        "acl": "public-read",
        "success_action_redirect": (
            "http://sigv4examplebucket.s3.amazonaws.com/successful_upload.html"
        ),
        "content-type": "image/jpeg",
        "x-amz-meta-uuid": "14365123651274",
        "x-amz-server-side-encryption": "AES256",
        "x-amz-credential": f"{ACCESS_KEY}/20151229/us-east-1/s3/aws4_request",
        "x-amz-algorithm": "AWS4-HMAC-SHA256",
        "x-amz-date": "20151229T000000Z",
        "x-amz-meta-tag": "",
        "policy": POLICY,
        "x-amz-signature": "8afdbf4008c03f22c2cd3cdb72e4afbb1f6a588f3255ac628749a66d7f09699e",
    }
    signature = form_signature_of(fields, REGION)
    assert signature is not None
    assert signature.access_key == ACCESS_KEY
    day_s, bucket = 1_451_347_200, "sigv4examplebucket"
    assert verify_form(fields, signature, SECRET, bucket, day_s) == LengthRange()
    with pytest.raises(S3Error) as raised:
        verify_form(fields, signature, SECRET.upper(), bucket, day_s)
    assert raised.value.code is S3Code.SignatureDoesNotMatch
