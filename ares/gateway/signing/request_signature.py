"""The signature of a request, parsed from the header Authorization or from the URL.

A parsed signature proves nothing yet: :mod:`ares.gateway.signing.signature_check`.
"""

from collections.abc import Mapping

from msgspec import Struct

from ares.gateway.s3.exchange import Headers, HttpRequest
from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.gateway.signing.canonical_request import QueryFields, query_fields
from ares.gateway.signing.credential_scope import (
    SIGNING_ALGORITHM,
    CredentialScope,
    WrongCredential,
    credential_scope,
    stamp_of_date,
    stamp_s,
)
from ares.gateway.signing.payload_form import HASH_HEADER, UNSIGNED_PAYLOAD, check_payload

SIGNATURE_FIELD = b"X-Amz-Signature"
PRESIGNED_S_MAX = 604_800
"""Seconds of validity of a presigned URL, at most: a week."""

_FIELDS_OF_URL = {
    "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires",
    "X-Amz-SignedHeaders", "X-Amz-Signature",
}  # fmt: skip
_FIELDS_OF_VERSION_2 = {b"AWSAccessKeyId", b"Signature"}


class Signature(Struct, frozen=True):
    """A signature as told, not yet verified."""

    credential: CredentialScope
    stamp: str
    """The time of signing, as YYYYMMDDTHHMMSSZ."""
    signed_headers: tuple[str, ...]
    signature: str
    payload: str
    """The hash of the body, or its stand-in."""
    expires_s: int | None = None
    """The validity of a presigned URL."""

    @property
    def access_key(self) -> str:
        return self.credential.access_key


def signature_of(http: HttpRequest, region: str) -> Signature | None:
    """Parse the signature of a request; None for an anonymous one.

    ``region``: the gateway's. Raises :class:`S3Error` for a malformed signature, for two, for
    version 2 of signatures, and for a credential of another region.
    """
    authorization = http.headers.get("authorization")
    query = http.raw_query
    told = query_fields(query) if b"X-Amz-" in query or b"Signature" in query else []
    names = {name for name, _ in told}
    of_url = any(name.decode("latin-1") in _FIELDS_OF_URL for name in names)
    if "authorization" in http.headers and (of_url or names >= _FIELDS_OF_VERSION_2):
        raise S3Error(
            S3Code.InvalidArgument,
            "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature "
            "query string parameter or the Authorization header should be specified",
            fields={"ArgumentName": "Authorization", "ArgumentValue": authorization},
        )
    if of_url:
        return _signature_of_url(told, http.headers, region)
    if names >= _FIELDS_OF_VERSION_2:
        raise version_2_refused()
    if "authorization" not in http.headers:
        return None
    return _signature_of_header(authorization, http.headers, region)


def version_2_refused() -> S3Error:
    """Return the answer to a signature of another mechanism."""
    return S3Error(
        S3Code.InvalidRequest,
        "The authorization mechanism you have provided is not supported. "
        f"Please use {SIGNING_ALGORITHM}.",
    )


def _signature_of_header(authorization: str, headers: Headers, region: str) -> Signature:
    parts = _components(authorization)
    try:
        credential = credential_scope(parts["Credential"], region)
    except WrongCredential as wrong:
        raise _malformed(str(wrong), wrong.region) from wrong
    stamp = _stamp_of_headers(headers)
    if stamp[:8] != credential.day:
        raise _malformed(
            f'Invalid credential date "{credential.day}". This date is not the same as '
            f'X-Amz-Date: "{stamp[:8]}".'
        )
    if HASH_HEADER not in headers:
        raise S3Error(
            S3Code.InvalidRequest, f"Missing required header for this request: {HASH_HEADER}"
        )
    payload = check_payload(headers.get(HASH_HEADER))
    signed = _signed_headers(parts["SignedHeaders"])
    if signed is None:
        raise _malformed("SignedHeaders has a name twice.")
    return Signature(credential, stamp, signed, parts["Signature"], payload)


def _signed_headers(told: str) -> tuple[str, ...] | None:
    """Return the names of the signed headers; None if a name repeats.

    A long header named a thousand times would make a canonical request of a thousand times its
    bytes.
    """
    names = tuple(told.split(";"))
    return names if len(set(names)) == len(names) else None


def _components(authorization: str) -> Mapping[str, str]:
    """Return the three components of the header Authorization."""
    mechanism, _, rest = authorization.partition(" ")
    if mechanism != SIGNING_ALGORITHM:
        if mechanism == "AWS" or mechanism.startswith("AWS4-"):
            raise version_2_refused()
        raise S3Error(
            S3Code.InvalidArgument,
            "Unsupported Authorization Type",
            fields={"ArgumentName": "Authorization", "ArgumentValue": authorization},
        )
    parts = {}
    for part in rest.split(",", 3):
        name, _, value = part.strip().partition("=")
        parts[name] = value
    for name in ("Credential", "SignedHeaders", "Signature"):
        if not parts.get(name):
            raise _malformed(f"missing {name}.")
    return parts


def _malformed(sentence: str, region: str = "") -> S3Error:
    return S3Error(
        S3Code.AuthorizationHeaderMalformed,
        f"The authorization header is malformed; {sentence}",
        fields={"Region": region} if region else {},
    )


def _stamp_of_headers(headers: Headers) -> str:
    try:
        stamp = headers.get("x-amz-date") or stamp_of_date(headers.get("date"))
        stamp_s(stamp)
    except ValueError as error:
        raise S3Error(
            S3Code.AccessDenied,
            "AWS authentication requires a valid Date or x-amz-date header",
        ) from error
    return stamp


def _signature_of_url(told: QueryFields, headers: Headers, region: str) -> Signature:
    names = [name.decode("latin-1") for name, _ in told]
    if any(names.count(name) != 1 for name in _FIELDS_OF_URL):
        raise _wrong_query(
            "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, "
            "X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters."
        )
    values = {name: value.decode("latin-1") for name, (_, value) in zip(names, told, strict=True)}
    if values["X-Amz-Algorithm"] != SIGNING_ALGORITHM:
        raise _wrong_query(f'X-Amz-Algorithm only supports "{SIGNING_ALGORITHM}"')
    try:
        credential = credential_scope(values["X-Amz-Credential"], region)
    except WrongCredential as wrong:
        sentence = f"Error parsing the X-Amz-Credential parameter; {wrong}"
        raise _wrong_query(sentence, wrong.region) from wrong
    stamp = values["X-Amz-Date"]
    try:
        stamp_s(stamp)
    except ValueError as error:
        raise _wrong_query(
            "X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\""
        ) from error
    if stamp[:8] != credential.day:
        raise _wrong_query(
            f'Invalid credential date "{credential.day}". This date is not the same as '
            f'X-Amz-Date: "{stamp[:8]}".'
        )
    signed = _signed_headers(values["X-Amz-SignedHeaders"])
    if signed is None:
        raise _wrong_query("X-Amz-SignedHeaders has a name twice.")
    payload = values.get("X-Amz-Content-Sha256") or headers.get(HASH_HEADER, UNSIGNED_PAYLOAD)
    return Signature(
        credential,
        stamp,
        signed,
        values["X-Amz-Signature"],
        check_payload(payload),
        _expires_s(values["X-Amz-Expires"]),
    )


def _expires_s(told: str) -> int:
    digits = told.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()):
        raise _wrong_query("X-Amz-Expires should be a number")
    if told != digits or not digits.strip("0"):
        raise _wrong_query("X-Amz-Expires must be positive")
    if len(digits) > 12 or int(digits) > PRESIGNED_S_MAX:
        raise _wrong_query(
            "X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires "
            f"must be less than {PRESIGNED_S_MAX} seconds"
        )
    return int(digits)


def _wrong_query(sentence: str, region: str = "") -> S3Error:
    fields = {"Region": region} if region else {}
    return S3Error(S3Code.AuthorizationQueryParametersError, sentence, fields=fields)
