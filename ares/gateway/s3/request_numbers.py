"""Numbers in requests: bounded counts, and ranges of bytes."""

import re
from collections.abc import Mapping

from msgspec import Struct

from ares.bucket.bucket_listing import PAGE_RESULTS_MAX
from ares.bucket.index_records import OBJECT_BYTES_MAX
from ares.gateway.s3.s3_errors import S3Code, S3Error, bad_argument

_DIGITS_MAX = 19
_LISTED_MAX = 2**31 - 1
_RANGE = re.compile(r"bytes=\s*([0-9]*)-([0-9]*)\s*")
_SOURCE_RANGE = re.compile(r"bytes=([0-9]+)-([0-9]+)")


class ByteRange(Struct, frozen=True):
    """``length`` bytes from ``first`` on."""

    first: int
    length: int

    def content_range(self, size: int) -> str:
        """Return the value of the header ``Content-Range``."""
        return f"bytes {self.first}-{self.first + self.length - 1}/{size}"


def is_decimal(text: str, low: int, high: int) -> bool:
    """Return whether ``text`` is a number from ``low`` to ``high`` in decimal digits."""
    digits = text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX
    return digits and low <= int(text) <= high


def number_of(text: str, name: str, low: int, high: int) -> int:
    """Return the number in ``text``. Raises InvalidArgument beyond ``low`` and ``high``."""
    if not is_decimal(text, low, high):
        raise bad_argument(name, text, f"{name} is a number from {low} to {high}")
    return int(text)


def listing_limit(query: Mapping[str, str], name: str) -> int:
    """Return the number of results that a listing asks for, at most a page."""
    text = query.get(name, "")
    return (
        min(number_of(text, name, 0, _LISTED_MAX), PAGE_RESULTS_MAX) if text else PAGE_RESULTS_MAX
    )


def encodes_keys(query: Mapping[str, str]) -> bool:
    """Return whether a listing's keys are wanted percent-encoded."""
    encoding = query.get("encoding-type", "")
    if encoding not in ("", "url"):
        raise bad_argument("encoding-type", encoding, "it is 'url' or absent")
    return bool(encoding)


def asked_range(value: str, size: int) -> ByteRange | None:
    """Return the range that the header ``Range`` asks for; None for the whole object.

    As with S3, several ranges and a malformed one ask for the whole object. Raises InvalidRange
    for a range without a byte of the object.
    """
    found = _RANGE.fullmatch(value)
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        length = min(_clamped(found[2]), size)
        if length:
            return ByteRange(size - length, length)
    else:
        first, last = _clamped(found[1]), _clamped(found[2]) if found[2] else size - 1
        if found[2] and last < first:
            return None
        if first < size:
            return ByteRange(first, min(last, size - 1) - first + 1)
    raise S3Error(
        S3Code.InvalidRange,
        headers={"Content-Range": f"bytes */{size}"},
        fields={"RangeRequested": value[:100], "ActualObjectSize": str(size)},
    )


def source_range(value: str) -> ByteRange | None:
    """Return the range of ``x-amz-copy-source-range``; None without one."""
    if not value:
        return None
    found = _SOURCE_RANGE.fullmatch(value)
    first, last = (_clamped(found[1]), _clamped(found[2])) if found else (1, 0)
    if not first <= last < OBJECT_BYTES_MAX:
        raise bad_argument(
            "x-amz-copy-source-range",
            value,
            "it is of the form bytes=first-last, with the offsets of the first and the last byte",
        )
    return ByteRange(first, last - first + 1)


def _clamped(digits: str) -> int:
    """Return the number, or a number beyond every object for too many digits."""
    told = digits.lstrip("0")
    return int(told or "0") if len(told) <= _DIGITS_MAX else OBJECT_BYTES_MAX + 1
