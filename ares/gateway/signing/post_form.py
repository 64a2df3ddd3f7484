"""The signature and the policy of an upload by a form of a browser.

Source: "Creating a POST Policy" and "Authenticating Requests in Browser-Based Uploads" of Amazon
S3's API reference.
"""

import calendar
import re
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping

import msgspec
from msgspec import Struct

from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.gateway.signing.checksum_headers import checksum_asked, md5_asked
from ares.gateway.signing.credential_scope import (
    SIGNING_ALGORITHM,
    CredentialScope,
    WrongCredential,
    credential_scope,
    same_signature,
    signed_text,
    signing_key,
    stamp_s,
)
from ares.gateway.signing.decoded_body import Aside, BodyChecks, DecodedBody, LengthRange
from ares.gateway.signing.request_signature import version_2_refused

POLICY_CHARS_MAX = 32_768
"""Characters of a policy in base64."""

_LENGTH_MAX = 10**15
_EXPIRATION = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(?:\.[0-9]+)?Z"
)
_UNCOVERED = {"policy", "x-amz-signature", "file"}
"""Fields outside the policy, beside ``x-ignore-``."""


class FormSignature(Struct, frozen=True):
    """The signature of a form as told, not yet verified."""

    credential: CredentialScope
    signature: str
    policy: str
    """JSON in base64, as received: the text under the signature."""

    @property
    def access_key(self) -> str:
        return self.credential.access_key


def form_signature_of(fields: Mapping[str, str], region: str) -> FormSignature | None:
    """Parse the signature of a form; None for an anonymous form.

    ``fields``: by their names in small letters. Raises :class:`S3Error`.
    """
    if "awsaccesskeyid" in fields or "signature" in fields:
        raise version_2_refused()
    names = ("policy", "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-signature")
    if not any(name in fields for name in names):
        return None
    for name in names:
        if name not in fields:
            raise _invalid(
                f"Bucket POST must contain a field named '{name}'.  If it is specified, please "
                "check the order of the fields."
            )
    if fields["x-amz-algorithm"] != SIGNING_ALGORITHM:
        raise _invalid(f'X-Amz-Algorithm only supports "{SIGNING_ALGORITHM}"')
    try:
        credential = credential_scope(fields["x-amz-credential"], region)
        stamp_s(fields["x-amz-date"])
    except (WrongCredential, ValueError) as error:
        raise _invalid(str(error)) from error
    if fields["x-amz-date"][:8] != credential.day:
        raise _invalid(f'Invalid credential date "{credential.day}".')
    return FormSignature(credential, fields["x-amz-signature"], fields["policy"])


def verify_form(
    fields: Mapping[str, str], signature: FormSignature, secret: str, bucket: str, now_s: float
) -> LengthRange:
    """Verify the signature and the policy of a form, before its file.

    ``fields``: by their names in small letters, with ``${filename}`` expanded, as S3 asks.
    ``now_s``: seconds since 1970. Returns the allowed lengths. Raises :class:`S3Error`.
    """
    credential = signature.credential
    key = signing_key(secret, credential.day, credential.region)
    if not same_signature(signed_text(key, signature.policy), signature.signature):
        raise S3Error(
            S3Code.SignatureDoesNotMatch,
            fields={
                "AWSAccessKeyId": credential.access_key,
                "StringToSign": signature.policy,
                "SignatureProvided": signature.signature,
            },
        )
    policy = _decoded_policy(signature.policy)
    if _expiration_s(policy) < now_s:
        raise _not_allowed("Policy expired.")
    return _check_conditions(policy, {**fields, "bucket": bucket})


def form_body(
    pieces: AsyncIterator[bytes], fields: Mapping[str, str], lengths: LengthRange, aside: Aside
) -> DecodedBody:
    """Return the file of a form. ``fields`` may have a checksum. Raises :class:`S3Error`."""
    named = dict(fields)
    checks = BodyChecks(lengths=lengths, md5=md5_asked(named))
    checks.asked = checksum_asked(named, with_trailer=False)
    return DecodedBody(pieces, checks, aside)


def _decoded_policy(policy: str) -> dict[str, object]:
    try:
        if len(policy) > POLICY_CHARS_MAX:
            raise ValueError("the policy is too long")
        document = msgspec.json.decode(b64decode(policy, validate=True))
    except (ValueError, RecursionError) as error:
        raise _wrong_policy(f"Invalid JSON: {error}") from error
    if not isinstance(document, dict):
        raise _wrong_policy("Invalid JSON.")
    return document


def _expiration_s(policy: dict[str, object]) -> int:
    told = policy.get("expiration")
    if told is None:
        raise _wrong_policy("Policy missing expiration.")
    found = _EXPIRATION.fullmatch(told) if isinstance(told, str) else None
    try:
        if found is None:
            raise ValueError("no time of ISO 8601")
        year, month, day, hour, minute, second = map(int, found.groups())
        return calendar.timegm((year, month, day, hour, minute, second))
    except ValueError as error:
        raise _wrong_policy(f"Invalid 'expiration' value: '{told}'") from error


def _check_conditions(policy: dict[str, object], fields: Mapping[str, str]) -> LengthRange:
    conditions = policy.get("conditions")
    if not isinstance(conditions, list):
        raise _wrong_policy("Invalid 'conditions' value: must be a List.")
    lengths = LengthRange()
    covered = set(_UNCOVERED)
    for condition in conditions:
        operator, first, second = _parsed_condition(condition)
        if operator == "content-length-range":
            lengths = _common(lengths, _length(first), _length(second))
            continue
        if not isinstance(first, str) or not isinstance(second, str):
            raise _wrong_policy("Invalid Simple-Condition: value must be a string.")
        name = first.lower()
        covered.add(name)
        if not _holds(operator, name, fields.get(name), second):
            raise _not_allowed(f'Policy Condition failed: ["{operator}", "${first}", "{second}"]')
    extra = [name for name in fields if name not in covered and not name.startswith("x-ignore-")]
    if extra:
        raise _not_allowed(f"Extra input fields: {', '.join(extra)}")
    return lengths


def _parsed_condition(condition: object) -> tuple[str, object, object]:
    """Return operator, field without its dollar sign, and value; or a range with its bounds."""
    if isinstance(condition, dict):
        if len(condition) != 1:
            raise _wrong_policy(
                "Invalid Simple-Condition: Simple-Conditions must have exactly one property "
                "specified."
            )
        ((name, value),) = condition.items()
        return "eq", name, value
    if not isinstance(condition, list):
        raise _wrong_policy("Invalid condition test: must be a List or Object.")
    if not condition or not isinstance(condition[0], str):
        raise _wrong_policy("Invalid Condition: missing operation identifier.")
    operator = condition[0].lower()
    if operator not in ("eq", "starts-with", "content-length-range"):
        raise _wrong_policy(f"Invalid Condition: unknown operation '{condition[0]}'.")
    if len(condition) != 3:
        raise _wrong_policy(f"Invalid {condition[0]}: wrong number of arguments.")
    _, first, second = condition
    if operator != "content-length-range":
        if not isinstance(first, str) or not first.startswith("$"):
            raise _wrong_policy(f"Invalid {condition[0]}: the field begins with a dollar sign.")
        first = first.removeprefix("$")
    return operator, first, second


def _holds(operator: str, name: str, told: str | None, expected: str) -> bool:
    if told is None:
        return False
    if operator == "eq":
        return told == expected
    values = told.split(",") if name == "content-type" else [told]
    return all(value.strip(" ").startswith(expected) for value in values)


def _common(lengths: LengthRange, least: int, most: int) -> LengthRange:
    """Return the lengths in both ranges."""
    upper = most if lengths.most is None else min(most, lengths.most)
    return LengthRange(max(least, lengths.least), upper)


def _length(told: object) -> int:
    if isinstance(told, str) and told.isascii() and told.isdecimal() and len(told) < 16:
        told = int(told)
    if isinstance(told, bool) or not isinstance(told, int) or not 0 <= told <= _LENGTH_MAX:
        raise _wrong_policy("Invalid content-length-range: a bound is no number of bytes.")
    return told


def _invalid(sentence: str) -> S3Error:
    return S3Error(S3Code.InvalidArgument, sentence)


def _wrong_policy(fault: str) -> S3Error:
    return S3Error(S3Code.InvalidPolicyDocument, f"Invalid Policy: {fault}")


def _not_allowed(fault: str) -> S3Error:
    return S3Error(S3Code.AccessDenied, f"Invalid according to Policy: {fault}")
