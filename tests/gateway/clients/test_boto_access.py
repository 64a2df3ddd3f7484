"""Access: canned lists, strangers, URLs that carry a signature, forms of browsers."""

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import urllib3

from .s3_service import REGION, Reply, S3Service, refused

pytestmark = [pytest.mark.process, pytest.mark.slow]


def path_of(url: str) -> str:
    return "/" + url.split("/", 3)[3]


def test_a_private_bucket_is_closed_to_strangers(service: S3Service, s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    for method, path in (
        ("GET", f"/{bucket}/k"),
        ("GET", f"/{bucket}"),
        ("PUT", f"/{bucket}/k"),
        ("DELETE", f"/{bucket}/k"),
        ("GET", "/"),
    ):
        answer = service.send_unsigned(method, path)
        assert (answer.status, answer.code) == (403, "AccessDenied"), (method, path)
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"x"


def test_a_public_bucket_is_read_by_strangers(service: S3Service, s3: Any, bucket: str) -> None:
    s3.put_bucket_acl(Bucket=bucket, ACL="public-read")
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    assert service.send_unsigned("GET", f"/{bucket}/k").body == b"x"
    assert service.send_unsigned("HEAD", f"/{bucket}/k").status == 200
    assert b"<Key>k</Key>" in service.send_unsigned("GET", f"/{bucket}?list-type=2").body
    assert service.send_unsigned("PUT", f"/{bucket}/k", body=b"y").status == 403
    assert service.send_unsigned("DELETE", f"/{bucket}/k").status == 403
    grants = s3.get_bucket_acl(Bucket=bucket)["Grants"]
    everyone = "http://acs.amazonaws.com/groups/global/AllUsers"
    assert [each["Permission"] for each in grants if each["Grantee"].get("URI") == everyone] == [
        "READ"
    ]
    s3.put_bucket_acl(Bucket=bucket, ACL="private")
    assert service.send_unsigned("GET", f"/{bucket}/k").status == 403


def test_a_url_reads_and_writes(service: S3Service, bucket: str) -> None:
    s3 = service.boto(signature_version="s3v4")
    place = {"Bucket": bucket, "Key": "a b/ü"}
    put = s3.generate_presigned_url("put_object", place, ExpiresIn=60)
    assert service.send_unsigned("PUT", path_of(put), body=b"by url").status == 200
    get = s3.generate_presigned_url("get_object", place, ExpiresIn=60)
    assert service.send_unsigned("GET", path_of(get)).body == b"by url"
    answer = service.send_unsigned("DELETE", path_of(get))
    assert (answer.status, answer.code) == (403, "SignatureDoesNotMatch")
    changed = path_of(get).replace("X-Amz-Expires=60", "X-Amz-Expires=61")
    assert service.send_unsigned("GET", changed).code == "SignatureDoesNotMatch"


def test_an_old_url_is_refused(service: S3Service, s3: Any, bucket: str) -> None:
    from botocore.auth import S3SigV4QueryAuth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    key = Credentials(service.access_key, service.secret_key)
    signer = S3SigV4QueryAuth(key, "s3", REGION, expires=60)
    request = AWSRequest("GET", f"{service.endpoints[0]}/{bucket}/k")
    with pytest.MonkeyPatch.context() as patch:
        past = datetime.now(UTC) - timedelta(seconds=90)
        patch.setattr("botocore.auth.get_current_datetime", lambda: past)
        signer.add_auth(request)
    answer = service.send_unsigned("GET", path_of(request.url))
    assert (answer.status, answer.code) == (403, "AccessDenied")
    assert b"expired" in answer.body


# -- forms -----------------------------------------------------------------------------------------


class Form:
    """A form of a browser for the key ``up/${filename}`` in ``bucket``."""

    def __init__(self, service: S3Service, bucket: str, **more: str) -> None:
        now = datetime.now(UTC)
        self.service, self.bucket = service, bucket
        self.scope = f"{now:%Y%m%d}/{REGION}/s3/aws4_request"
        self.fields = {
            "key": "up/${filename}",
            "x-amz-algorithm": "AWS4-HMAC-SHA256",
            "x-amz-credential": f"{service.access_key}/{self.scope}",
            "x-amz-date": f"{now:%Y%m%dT%H%M%SZ}",
            **more,
        }
        self.expiration = now + timedelta(minutes=5)
        self.conditions: list[Any] = [
            {"bucket": bucket},
            ["starts-with", "$key", "up/"],
            ["content-length-range", 1, 1000],
            *({name: value} for name, value in self.fields.items() if name != "key"),
        ]

    def send(self, body: bytes, secret: str = "") -> Reply:
        policy = {
            "expiration": f"{self.expiration:%Y-%m-%dT%H:%M:%SZ}",
            "conditions": self.conditions,
        }
        encoded = base64.b64encode(json.dumps(policy).encode()).decode()
        key = ("AWS4" + (secret or self.service.secret_key)).encode()
        for word in self.scope.split("/"):
            key = hmac.digest(key, word.encode(), hashlib.sha256)
        signature = hmac.digest(key, encoded.encode(), hashlib.sha256).hex()
        fields = [*(self.fields | {"policy": encoded, "x-amz-signature": signature}).items()]
        content, kind = urllib3.encode_multipart_formdata([*fields, ("file", ("cat.jpg", body))])
        return self.service.send_unsigned(
            "POST", f"/{self.bucket}", {"Content-Type": kind}, content
        )


def test_a_form_stores_a_file(service: S3Service, s3: Any, bucket: str) -> None:
    form = Form(service, bucket, **{"Content-Type": "image/jpeg", "x-amz-meta-a": "1"})
    assert form.send(b"meow").status == 204
    found = s3.get_object(Bucket=bucket, Key="up/cat.jpg")
    assert found["Body"].read() == b"meow"
    assert (found["ContentType"], found["Metadata"]) == ("image/jpeg", {"a": "1"})


def test_a_form_is_answered_as_asked(service: S3Service, bucket: str) -> None:
    answer = Form(service, bucket, success_action_status="201").send(b"meow")
    assert answer.status == 201
    assert b"<Key>up/cat.jpg</Key>" in answer.body
    answer = Form(service, bucket, success_action_redirect="http://there.example/a").send(b"meow")
    assert answer.status == 303
    assert answer.headers["location"].startswith("http://there.example/a?")


def test_a_wrong_form_is_refused(service: S3Service, s3: Any, bucket: str) -> None:
    assert Form(service, bucket).send(b"meow", secret="other").code == "SignatureDoesNotMatch"
    assert Form(service, bucket).send(bytes(1001)).code == "EntityTooLarge"
    assert Form(service, bucket).send(b"").code == "EntityTooSmall"
    form = Form(service, bucket)
    form.fields["key"] = "elsewhere"
    assert form.send(b"meow").status == 403
    form = Form(service, bucket)
    form.fields["x-amz-meta-a"] = "not in the policy"
    assert form.send(b"meow").status == 403
    form = Form(service, bucket)
    form.expiration = datetime.now(UTC) - timedelta(minutes=1)
    assert form.send(b"meow").status == 403
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_a_key_of_another_form_is_unknown(service: S3Service, bucket: str) -> None:
    stranger = S3Service(service.endpoints, "AKIDOFNOBODY", service.secret_key)
    answer = stranger.send("GET", f"/{bucket}")
    assert (answer.status, answer.code) == (403, "InvalidAccessKeyId")
    assert refused(stranger.boto().list_objects_v2, Bucket=bucket) == (403, "InvalidAccessKeyId")
