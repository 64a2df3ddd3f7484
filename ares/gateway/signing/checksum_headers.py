"""The checksums asked by headers: of a body, of an upload in parts, and of its completion."""

from base64 import b64decode
from typing import Protocol

from msgspec import Struct

from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.gateway.signing.checksums import (
    ALGORITHMS_BY_HEADER,
    Algorithm,
    ChecksumKind,
    ObjectChecksum,
)
from ares.gateway.signing.payload_form import TRAILER_HEADER

MD5_HEADER = "content-md5"
_SDK_HEADER = "x-amz-sdk-checksum-algorithm"
_ALGORITHM_HEADER = "x-amz-checksum-algorithm"
_KIND_HEADER = "x-amz-checksum-type"
_MD5_BYTES = 16


class NamedValues(Protocol):
    """Headers of a request, or fields of a form, with names in small letters."""

    def get(self, name: str, default: str, /) -> str: ...
    def __contains__(self, name: str, /) -> bool: ...


class ChecksumAsked(Struct, frozen=True):
    """The checksum sent with a body. An empty ``value`` comes in the trailer."""

    algorithm: Algorithm
    value: str


def checksum_asked(headers: NamedValues, with_trailer: bool) -> ChecksumAsked | None:
    """Return the checksum sent with a body. Raises :class:`S3Error` for several or wrong ones.

    ``with_trailer``: whether the body's form has a trailer.
    """
    asked = [
        ChecksumAsked(algorithm, headers.get(name, ""))
        for name, algorithm in ALGORITHMS_BY_HEADER.items()
        if name in headers
    ]
    for one in asked:
        if not one.algorithm.has_form(one.value):
            raise _invalid(f"Value for {one.algorithm.header} header is invalid.")
    announced = headers.get(TRAILER_HEADER, "").strip().lower()
    if announced:
        if announced not in ALGORITHMS_BY_HEADER or not with_trailer:
            raise _invalid(f"The value specified in the {TRAILER_HEADER} header is not supported")
        asked.append(ChecksumAsked(ALGORITHMS_BY_HEADER[announced], ""))
    if len(asked) > 1:
        raise _invalid(
            "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed."
        )
    _check_sdk_header(headers.get(_SDK_HEADER, ""), asked)
    return asked[0] if asked else None


def _check_sdk_header(told: str, asked: list[ChecksumAsked]) -> None:
    if told and not asked:
        raise _invalid(
            f"{_SDK_HEADER} specified, but no corresponding x-amz-checksum-* or x-amz-trailer "
            "headers were found."
        )
    if told and _algorithm(told) is not asked[0].algorithm:
        raise _invalid(f"Value for {_SDK_HEADER} header is invalid.")


def md5_asked(headers: NamedValues) -> bytes:
    """Return the MD5 of the header Content-MD5, or no bytes. Raises :class:`S3Error`."""
    if MD5_HEADER not in headers:
        return b""
    told = headers.get(MD5_HEADER, "")
    try:
        digest = b64decode(told, validate=True)
    except ValueError:
        digest = b""
    if len(digest) != _MD5_BYTES:
        raise S3Error(
            S3Code.InvalidDigest,
            "The Content-MD5 you specified was invalid.",
            fields={"Content-MD5": told},
        )
    return digest


def upload_checksum(headers: NamedValues) -> ObjectChecksum | None:
    """Return the algorithm and kind asked for an upload in parts; the value is empty.

    Raises :class:`S3Error` for an unknown algorithm, or a kind that the algorithm has not.
    """
    kind = headers.get(_KIND_HEADER, "").upper()
    told = headers.get(_ALGORITHM_HEADER, "")
    if not told:
        if kind:
            raise _invalid(
                f"The {_KIND_HEADER} header can only be used with the {_ALGORITHM_HEADER} header."
            )
        return None
    algorithm = _algorithm(told)
    kinds = {each.name: each for each in algorithm.kinds}
    if kind and kind not in ChecksumKind.__members__:
        raise _invalid(f"Value for {_KIND_HEADER} header is invalid.")
    if kind and kind not in kinds:
        raise _invalid(
            f"The {kind} checksum type cannot be used with the {told.lower()} checksum algorithm."
        )
    return ObjectChecksum(algorithm, "", kinds[kind] if kind else algorithm.kinds[0])


def complete_checksum(headers: NamedValues, asked: ObjectChecksum | None) -> str:
    """Return the checksum told for a whole upload, or an empty text.

    ``asked``: the algorithm and kind of the upload. Raises :class:`S3Error` for another.
    """
    told = [algorithm for name, algorithm in ALGORITHMS_BY_HEADER.items() if name in headers]
    kind = headers.get(_KIND_HEADER, "").upper()
    expected = [] if asked is None else [asked.algorithm]
    if (told and told != expected) or (kind and (asked is None or kind != asked.kind.name)):
        raise _invalid(
            "The upload was created using another checksum type or algorithm. The complete request "
            "must specify the same."
        )
    return headers.get(told[0].header, "") if told else ""


def _algorithm(told: str) -> Algorithm:
    try:
        return Algorithm[told.upper()]
    except KeyError:
        raise _invalid(
            "Checksum algorithm provided is unsupported. Please try again with any of the valid "
            f"types: {[each.name for each in Algorithm]}"
        ) from None


def _invalid(sentence: str) -> S3Error:
    return S3Error(S3Code.InvalidRequest, sentence)
