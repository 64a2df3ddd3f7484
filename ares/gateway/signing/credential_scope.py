"""The scope of a credential: access key, day and region; times; and the derived signing key."""

import calendar
import functools
import hmac
import re
from email.utils import parsedate_to_datetime

from msgspec import Struct

SIGNING_ALGORITHM = "AWS4-HMAC-SHA256"
SIGNING_SERVICE = "s3"
SCOPE_END = "aws4_request"

CLOCK_SKEW_S = 900
"""Seconds between the clocks of client and gateway, at most."""

_ACCESS_KEY_CHARS_MAX = 128
_STAMP = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})T([01][0-9]|2[0-3])([0-5][0-9])([0-5][0-9])Z")
_DAY = re.compile(r"[0-9]{8}")


class CredentialScope(Struct, frozen=True):
    """A credential: the access key, and the scope of its signing key. ``day``: YYYYMMDD."""

    access_key: str
    day: str
    region: str

    @property
    def scope(self) -> str:
        """The scope in strings to sign."""
        return f"{self.day}/{self.region}/{SIGNING_SERVICE}/{SCOPE_END}"


class WrongCredential(Exception):
    """A credential of another form or scope. ``region``: the expected region, if it differs."""

    def __init__(self, sentence: str, region: str = "") -> None:
        self.region = region
        super().__init__(sentence)


def credential_scope(text: str, region: str) -> CredentialScope:
    """Parse ``KEY/YYYYMMDD/REGION/s3/aws4_request``. Raises :class:`WrongCredential`."""
    parts = text.rsplit("/", 4)
    if len(parts) < 5 or not 0 < len(parts[0]) <= _ACCESS_KEY_CHARS_MAX:
        raise WrongCredential(
            'the Credential is mal-formed; expecting "<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/'
            'aws4_request".'
        )
    access_key, day, told_region, service, end = parts
    if _DAY.fullmatch(day) is None:
        raise WrongCredential(
            f'incorrect date format "{day}". This date in the credential must be in the format '
            '"yyyyMMdd".'
        )
    if told_region != region:
        raise WrongCredential(f"the region '{told_region}' is wrong; expecting '{region}'", region)
    if service != SIGNING_SERVICE:
        raise WrongCredential(
            f'incorrect service "{service}". This endpoint belongs to "{SIGNING_SERVICE}".'
        )
    if end != SCOPE_END:
        raise WrongCredential(f'incorrect terminal "{end}". This endpoint uses "{SCOPE_END}".')
    return CredentialScope(access_key, day, region)


def stamp_s(stamp: str) -> int:
    """Return the seconds since 1970 of ``YYYYMMDDTHHMMSSZ``. Raises ValueError."""
    found = _STAMP.fullmatch(stamp)
    if found is None:
        raise ValueError(f"{stamp!r} is no time")
    year, month, day, hour, minute, second = map(int, found.groups())
    return calendar.timegm((year, month, day, hour, minute, second))


def stamp_of_date(date: str) -> str:
    """Return the stamp of a header ``Date``: a stamp, or HTTP's format. Raises ValueError."""
    if _STAMP.fullmatch(date) is not None:
        return date
    try:
        year, month, day, hour, minute, second, *_ = parsedate_to_datetime(date).utctimetuple()
    except (TypeError, IndexError, OverflowError) as error:
        raise ValueError(f"{date!r} is no time") from error
    return f"{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z"


@functools.lru_cache(maxsize=4096)
def signing_key(secret: str, day: str, region: str) -> bytes:
    """Derive the key of a day's signatures; cached, as five hashes cost half of a check."""
    key = f"AWS4{secret}".encode()
    for part in (day, region, SIGNING_SERVICE, SCOPE_END):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def signed_text(key: bytes, text: str) -> str:
    """Return the signature of ``text``, in hexadecimal digits."""
    return hmac.digest(key, text.encode(), "sha256").hex()


def same_signature(calculated: str, told: str) -> bool:
    """Compare signatures in constant time."""
    return hmac.compare_digest(calculated.encode(), told.encode())
