"""The check of a request's signature, version 4.

Source: "Authenticating Requests (AWS Signature Version 4)" of Amazon S3's API reference.
"""

import hashlib

from ares.gateway.s3.exchange import Headers, HttpRequest
from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.gateway.signing.canonical_request import canonical_request, query_fields
from ares.gateway.signing.credential_scope import (
    CLOCK_SKEW_S,
    SIGNING_ALGORITHM,
    same_signature,
    signed_text,
    signing_key,
    stamp_s,
)
from ares.gateway.signing.payload_form import ChunkKey, VerifiedPayload, verified_payload
from ares.gateway.signing.request_signature import SIGNATURE_FIELD, Signature

SIGNED_PREFIXES = ("x-amz-", "x-ares-")
"""Prefixes of headers with a meaning: S3 demands a signature over each header present."""


def verify(http: HttpRequest, signature: Signature, secret: str, now_s: float) -> VerifiedPayload:
    """Verify the signature of a request, before its body.

    ``secret``: of the access key. ``now_s``: seconds since 1970. Returns the form of the body, with
    a proof of the bytes. Raises :class:`S3Error`: SignatureDoesNotMatch, RequestTimeTooSkewed,
    AccessDenied for an expired URL or a header without signature.
    """
    _check_time(signature, now_s)
    _check_signed_headers(http.headers, signature.signed_headers)
    fields = query_fields(http.raw_query)
    if signature.expires_s is not None:
        fields = [field for field in fields if field[0] != SIGNATURE_FIELD]
    canonical = canonical_request(http, fields, signature.signed_headers, signature.payload)
    scope = signature.credential.scope
    digest = hashlib.sha256(canonical).hexdigest()
    text = f"{SIGNING_ALGORITHM}\n{signature.stamp}\n{scope}\n{digest}"
    key = signing_key(secret, signature.credential.day, signature.credential.region)
    if not same_signature(signed_text(key, text), signature.signature):
        raise S3Error(
            S3Code.SignatureDoesNotMatch,
            "The request signature we calculated does not match the signature you provided. Check "
            "your key and signing method.",
            fields={
                "AWSAccessKeyId": signature.access_key,
                "StringToSign": text,
                "SignatureProvided": signature.signature,
                "CanonicalRequest": canonical.decode("latin-1"),
            },
        )
    seed = ChunkKey(key, signature.stamp, scope, signature.signature)
    return verified_payload(signature.payload, seed)


def _check_time(signature: Signature, now_s: float) -> None:
    signed_s = stamp_s(signature.stamp)
    if signature.expires_s is None:
        if abs(now_s - signed_s) > CLOCK_SKEW_S:
            raise S3Error(
                S3Code.RequestTimeTooSkewed,
                "The difference between the request time and the current time is too large.",
                fields={
                    "RequestTime": signature.stamp,
                    "MaxAllowedSkewMilliseconds": str(CLOCK_SKEW_S * 1000),
                },
            )
    elif signed_s > now_s + CLOCK_SKEW_S:
        raise S3Error(S3Code.AccessDenied, "Request is not valid yet")
    elif signed_s + signature.expires_s < now_s:
        raise S3Error(
            S3Code.AccessDenied,
            "Request has expired",
            fields={"X-Amz-Expires": str(signature.expires_s)},
        )


def _check_signed_headers(headers: Headers, signed: tuple[str, ...]) -> None:
    """Raise :class:`S3Error` unless the host, and each header with a meaning, is signed."""
    present = {"host"}.union(*map(headers.with_prefix, SIGNED_PREFIXES))
    missing = sorted(present.difference(signed))
    if missing:
        raise S3Error(
            S3Code.AccessDenied,
            "There were headers present in the request which were not signed",
            fields={"HeadersNotSigned": ", ".join(missing)},
        )
