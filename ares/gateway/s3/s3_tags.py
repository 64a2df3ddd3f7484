"""S3's rules for tags, of objects and of buckets."""

import unicodedata
from collections.abc import Iterable
from urllib.parse import unquote_to_bytes

from ares.bucket.lifecycle.object_tags import (
    OBJECT_TAGS_MAX,
    TAG_NAME_CHARACTERS_MAX,
    TAG_TEXT_CHARACTERS_MAX,
)
from ares.gateway.s3.exchange import Headers
from ares.gateway.s3.s3_errors import S3Code, S3Error, bad_argument

_SIGNS = "_.:/=+-@"
_KINDS = "LZN"
"""First letters of Unicode's categories: letters, separators, numbers."""


def checked_s3_tags(
    pairs: Iterable[tuple[str, str]], count_max: int = OBJECT_TAGS_MAX
) -> dict[str, str]:
    """Return tags by name. Raises InvalidTag, or BadRequest for too many tags."""
    tags: dict[str, str] = {}
    for name, text in pairs:
        if name in tags:
            raise _invalid("Cannot provide multiple tags with the same key", name)
        if len(tags) == count_max:
            raise S3Error(S3Code.BadRequest, f"There may be at most {count_max} tags.")
        if not 1 <= len(name) <= TAG_NAME_CHARACTERS_MAX or not _is_plain(name):
            raise _invalid("The key of the tag is not valid", name)
        if len(text) > TAG_TEXT_CHARACTERS_MAX or not _is_plain(text):
            raise _invalid("The value of the tag is not valid", name)
        if name.lower().startswith("aws:"):
            raise _invalid("Tags of the system cannot be set by requests", name)
        tags[name] = text
    return tags


def _is_plain(text: str) -> bool:
    return all(each in _SIGNS or unicodedata.category(each)[0] in _KINDS for each in text)


def _invalid(why: str, name: str) -> S3Error:
    return S3Error(S3Code.InvalidTag, f"{why}.", fields={"TagKey": name[:TAG_NAME_CHARACTERS_MAX]})


def header_tags(headers: Headers) -> dict[str, str]:
    """Return the tags of the header ``x-amz-tagging``, encoded as fields of a query."""
    told = headers.get("x-amz-tagging")
    pairs = []
    for field in told.split("&") if told else ():
        name, _, value = field.partition("=")
        pairs.append((_form_text(name), _form_text(value)))
    return checked_s3_tags(pairs)


def _form_text(text: str) -> str:
    try:
        return unquote_to_bytes(text.replace("+", " ").encode("latin-1")).decode()
    except UnicodeDecodeError:
        raise bad_argument("x-amz-tagging", text, "it is UTF-8, percent-encoded") from None
