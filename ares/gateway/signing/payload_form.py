"""The forms of a request's body, as the header x-amz-content-sha256 tells them."""

import enum
import re

from msgspec import Struct

from ares.gateway.s3.exchange import HttpRequest
from ares.gateway.s3.s3_errors import S3Code, S3Error

HASH_HEADER = "x-amz-content-sha256"
TRAILER_HEADER = "x-amz-trailer"
UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"

_SHA256_DIGITS = re.compile("[0-9a-fA-F]{64}")


class PayloadForm(enum.Enum):
    """The forms of a body."""

    PLAIN = UNSIGNED_PAYLOAD
    """Plain bytes, signed by their SHA-256 or not."""
    SIGNED_CHUNKS = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
    SIGNED_CHUNKS_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
    """Signed chunks, and a signed trailer with a checksum."""
    UNSIGNED_CHUNKS_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
    """Chunks, and perhaps a trailer with a checksum."""

    @property
    def chunked(self) -> bool:
        return self is not PayloadForm.PLAIN

    @property
    def signed(self) -> bool:
        """Return whether each chunk has a signature."""
        return self in (PayloadForm.SIGNED_CHUNKS, PayloadForm.SIGNED_CHUNKS_TRAILER)


_FORMS = {form.value: form for form in PayloadForm}


class ChunkKey(Struct, frozen=True):
    """The beginning of the chain of signatures of chunks. ``stamp``, ``scope``: as signed."""

    key: bytes
    stamp: str
    scope: str
    seed: str
    """The signature of the request."""


class VerifiedPayload(Struct, frozen=True):
    """The form of a body, and its proof."""

    form: PayloadForm
    sha256: str = ""
    """Hexadecimal digits of the hash of a plain body; empty: unsigned."""
    chunk_key: ChunkKey | None = None
    """The start of the chain, for signed chunks."""


def check_payload(told: str) -> str:
    """Return the told hash or form of a body. Raises :class:`S3Error` for any other text."""
    if told not in _FORMS and _SHA256_DIGITS.fullmatch(told) is None:
        raise S3Error(
            S3Code.InvalidArgument,
            f"{HASH_HEADER} must be {', '.join(_FORMS)} or a valid sha256 value.",
            fields={"ArgumentName": HASH_HEADER, "ArgumentValue": told},
        )
    return told


def verified_payload(told: str, chunk_key: ChunkKey) -> VerifiedPayload:
    """Return the form of a verified request's body, whose signature covers ``told``."""
    form = _FORMS.get(told)
    if form is None:
        return VerifiedPayload(PayloadForm.PLAIN, told.lower())
    return VerifiedPayload(form, chunk_key=chunk_key if form.signed else None)


def anonymous_payload(http: HttpRequest) -> VerifiedPayload:
    """Return the form of an anonymous request's body, by its headers.

    The SDKs announce a trailer without the form. Raises :class:`S3Error` for signed chunks.
    """
    chunks = PayloadForm.UNSIGNED_CHUNKS_TRAILER
    plain = PayloadForm.PLAIN if TRAILER_HEADER not in http.headers else chunks
    told = check_payload(http.headers.get(HASH_HEADER, plain.value))
    form = _FORMS.get(told, PayloadForm.PLAIN)
    if form.signed:
        raise S3Error(S3Code.InvalidRequest, "An anonymous request has no signed chunks.")
    return VerifiedPayload(form, "" if told in _FORMS else told.lower())
