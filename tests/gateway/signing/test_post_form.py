"""The policies of forms: conditions, coverage of the fields, and malformed documents."""

import hashlib
import hmac
import json
from base64 import b64encode

import pytest

from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.gateway.signing.decoded_body import LengthRange
from ares.gateway.signing.post_form import POLICY_CHARS_MAX, form_signature_of, verify_form
from tests.gateway.signing.signed_requests import (
    ACCESS_KEY,
    EXAMPLE_TIME_S,
    REGION,
    SCOPE,
    SECRET,
    STAMP,
    example_key,
)

SIGNING = {
    "x-amz-algorithm": "AWS4-HMAC-SHA256",
    "x-amz-credential": f"{ACCESS_KEY}/{SCOPE}",
    "x-amz-date": STAMP,
}
LATER = "2013-05-24T00:00:01.000Z"
BASIS = [{"bucket": "photos"}, *({name: value} for name, value in SIGNING.items())]


def form(policy, **fields):
    """Return the fields of a form with a right signature of ``policy``: a value or bytes."""
    text = policy if isinstance(policy, bytes) else json.dumps(policy).encode()
    encoded = b64encode(text).decode()
    signature = hmac.new(example_key(), encoded.encode(), hashlib.sha256).hexdigest()
    named = {name.replace("_", "-"): value for name, value in fields.items()}
    return {**SIGNING, **named, "policy": encoded, "x-amz-signature": signature}


def verified(fields, bucket="photos", now_s=EXAMPLE_TIME_S):
    signature = form_signature_of(fields, REGION)
    assert signature is not None
    return verify_form(fields, signature, SECRET, bucket, now_s)


def policy(*conditions, expiration=LATER):
    return {"expiration": expiration, "conditions": [*BASIS, *conditions]}


def refused(fields, **named):
    with pytest.raises(S3Error) as raised:
        verified(fields, **named)
    return raised.value


@pytest.mark.parametrize(
    ("condition", "key"),
    [
        ({"key": "a/b"}, "a/b"),
        (["eq", "$key", "a/b"], "a/b"),
        (["StArTs-WiTh", "$KeY", "a/"], "a/b"),
        (["starts-with", "$key", ""], "anything"),
    ],
)
def test_a_condition_holds(condition, key):
    assert verified(form(policy(condition), key=key)) == LengthRange()


@pytest.mark.parametrize(
    ("condition", "key"),
    [
        ({"key": "a/b"}, "a/B"),
        (["eq", "$key", "a/"], "a/b"),
        (["starts-with", "$key", "a/"], "b/a/"),
        (["eq", "$acl", "private"], "a/b"),
        (["starts-with", "$acl", ""], "a/b"),
    ],
)
def test_a_condition_fails(condition, key):
    fields = form(policy(["starts-with", "$key", ""], condition), key=key)
    error = refused(fields)
    assert error.code is S3Code.AccessDenied
    assert "Policy Condition failed" in error.message


def test_each_field_is_covered():
    fields = form(policy(["starts-with", "$key", ""]), key="a", acl="public-read")
    error = refused(fields)
    assert (error.code, "acl" in error.message) == (S3Code.AccessDenied, True)
    ignored = form(policy({"key": "a"}), key="a", x_ignore_note="1", file="")
    verified(ignored)
    assert "Extra input fields: key" in refused(form(policy(), key="a")).message


def test_the_bucket_is_covered_and_is_that_of_the_url():
    fields = form(policy({"key": "a"}), key="a")
    assert refused(fields, bucket="other").code is S3Code.AccessDenied
    assert refused({**fields, "bucket": "photos"}, bucket="other").code is S3Code.AccessDenied
    without = {"expiration": LATER, "conditions": [*BASIS[1:], {"key": "a"}]}
    assert "Extra input fields: bucket" in refused(form(without, key="a")).message


def test_a_policy_expires():
    fields = form(policy({"key": "a"}), key="a")
    verified(fields, now_s=EXAMPLE_TIME_S + 1)
    assert "expired" in refused(fields, now_s=EXAMPLE_TIME_S + 2).message


def test_content_types_in_a_list_are_each_checked():
    condition = ["starts-with", "$Content-Type", "image/"]
    verified(form(policy({"key": "a"}, condition), key="a", content_type="image/a, image/b"))
    fields = form(policy({"key": "a"}, condition), key="a", content_type="image/a,text/html")
    assert refused(fields).code is S3Code.AccessDenied


def test_a_range_of_lengths_is_returned():
    ranges = [["content-length-range", 1, 10], ["content-length-range", "0", "7"]]
    assert verified(form(policy({"key": "a"}, *ranges), key="a")) == LengthRange(1, 7)


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"\xff",
        b"[]",
        b"[" * 10_000,
        b'{"expiration": "2013-05-24T00:00:01Z"}',
        {"conditions": BASIS},
        {"EXPIRATION": LATER, "conditions": BASIS},
        {"expiration": LATER, "CONDITIONS": BASIS},
        {"expiration": 5, "conditions": BASIS},
        {"expiration": "2013-13-24T00:00:01Z", "conditions": BASIS},
        {"expiration": "tomorrow", "conditions": BASIS},
        {"expiration": LATER, "conditions": {}},
        policy({}),
        policy({"a": "1", "b": "2"}),
        policy({"key": 5}),
        policy("key"),
        policy([]),
        policy([5, "$key", "a"]),
        policy(["ends-with", "$key", "a"]),
        policy(["eq", "$key"]),
        policy(["eq", "key", "a"]),
        policy(["eq", "$key", 1]),
        policy(["content-length-range", 0]),
        policy(["content-length-range", -1, 0]),
        policy(["content-length-range", 0, True]),
        policy(["content-length-range", "0", "9" * 5000]),
        policy(["content-length-range", 0, 10**30]),
        policy({"key": "a" * POLICY_CHARS_MAX}),
    ],
    ids=range(28),
)
def test_a_malformed_policy_is_refused(wrong):
    assert refused(form(wrong, key="a")).code is S3Code.InvalidPolicyDocument


def test_a_policy_not_in_base64_is_refused():
    signature = hmac.new(example_key(), b"!", hashlib.sha256).hexdigest()
    fields = {**SIGNING, "policy": "!", "x-amz-signature": signature}
    assert refused(fields).code is S3Code.InvalidPolicyDocument


def test_a_changed_policy_or_signature_is_refused():
    fields = form(policy({"key": "a"}), key="a")
    other = form(policy(["starts-with", "$key", ""]), key="a")
    for wrong in ({"policy": other["policy"]}, {"x-amz-signature": "é" * 64}):
        assert refused({**fields, **wrong}).code is S3Code.SignatureDoesNotMatch


@pytest.mark.parametrize("name", [*SIGNING, "policy", "x-amz-signature"])
def test_a_form_without_a_field_of_the_signature_is_refused(name):
    fields = form(policy({"key": "a"}), key="a")
    del fields[name]
    with pytest.raises(S3Error, match=name) as raised:
        form_signature_of(fields, REGION)
    assert raised.value.code is S3Code.InvalidArgument


@pytest.mark.parametrize(
    "wrong",
    [
        {"x-amz-algorithm": "AWS4-ECDSA-P256-SHA256"},
        {"x-amz-credential": f"A/{SCOPE.replace('us-east-1', 'mars')}"},
        {"x-amz-credential": f"A/{SCOPE.replace('0524', '0525')}"},
        {"x-amz-date": "today"},
    ],
)
def test_a_form_with_a_wrong_scope_is_refused(wrong):
    with pytest.raises(S3Error) as raised:
        form_signature_of({**form(policy()), **wrong}, REGION)
    assert raised.value.code is S3Code.InvalidArgument


def test_anonymous_forms_and_version_2():
    assert form_signature_of({"key": "a", "acl": "private"}, REGION) is None
    with pytest.raises(S3Error, match="Please use AWS4-HMAC-SHA256"):
        form_signature_of({"awsaccesskeyid": "A", "policy": "", "signature": "x"}, REGION)
