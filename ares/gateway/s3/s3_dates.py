"""Dates in headers and documents: the three forms of HTTP, and ISO 8601. All are in UTC."""

import re
from datetime import UTC, datetime

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_HTTP_FORMS = (
    re.compile(
        r"[A-Z][a-z]{2}, (?P<day>\d{2}) (?P<month>[A-Z][a-z]{2}) (?P<year>\d{4}) "
        r"(?P<time>\d{2}:\d{2}:\d{2}) (?:GMT|UTC|\+0000)",
        re.ASCII,
    ),
    re.compile(
        r"[A-Z][a-z]{5,8}, (?P<day>\d{2})-(?P<month>[A-Z][a-z]{2})-(?P<year>\d{2}) "
        r"(?P<time>\d{2}:\d{2}:\d{2}) GMT",
        re.ASCII,
    ),
    re.compile(
        r"[A-Z][a-z]{2} (?P<month>[A-Z][a-z]{2}) (?P<day>[ \d]\d) (?P<time>\d{2}:\d{2}:\d{2}) "
        r"(?P<year>\d{4})",
        re.ASCII,
    ),
)
_ISO_FORM = re.compile(
    r"\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?(?:Z|[+-]\d{2}:?\d{2})?)?", re.ASCII
)
_DATE_CHARACTERS_MAX = 64
_ISO_SECONDS = len("1970-01-01T00:00:00")
_LAST_YEAR_OF_CENTURY = 69
"""Years of two digits up to this one are of the century after 2000."""


def http_date(ms: int) -> str:
    """Return milliseconds since 1970 as HTTP writes a date, in whole seconds."""
    at = datetime.fromtimestamp(ms // 1000, UTC)
    day, month = _DAYS[at.weekday()], _MONTHS[at.month - 1]
    return f"{day}, {at.day:02} {month} {at.year:04} {at:%H:%M:%S} GMT"


def iso_date(ms: int) -> str:
    """Return milliseconds since 1970 as S3's documents write a date."""
    at = datetime.fromtimestamp(ms // 1000, UTC)
    return f"{at.isoformat()[:_ISO_SECONDS]}.{ms % 1000:03}Z"


def seconds_of_http_date(text: str) -> int | None:
    """Return the seconds since 1970; None unless the text is a date of HTTP after 1970."""
    for form in _HTTP_FORMS if len(text) <= _DATE_CHARACTERS_MAX else ():
        if (found := form.fullmatch(text)) and found["month"] in _MONTHS:
            year = int(found["year"])
            if len(found["year"]) == 2:  # of a century that the text leaves out
                year += 2000 if year <= _LAST_YEAR_OF_CENTURY else 1900
            hour, minute, second = map(int, found["time"].split(":"))
            month, day = _MONTHS.index(found["month"]) + 1, int(found["day"])
            try:
                at = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
            except ValueError:
                return None
            return _seconds(at)
    return None


def ms_of_iso_date(text: str) -> int | None:
    """Return the milliseconds since 1970; None unless the text is a date after 1970."""
    if len(text) > _DATE_CHARACTERS_MAX or _ISO_FORM.fullmatch(text) is None:
        return None
    try:
        at = datetime.fromisoformat(text)
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    seconds = _seconds(at)
    return None if seconds is None else seconds * 1000 + at.microsecond // 1000


def _seconds(at: datetime) -> int | None:
    seconds = int(at.replace(microsecond=0).timestamp())
    return seconds if seconds >= 0 else None
