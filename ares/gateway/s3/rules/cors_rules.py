"""The rules of CORS of a bucket: which pages of the web may use it from a browser.

The work for a request is bounded: by the bytes of the rules, and by the number of asked headers.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from ares.bucket.commands import BUCKET_CONFIGURATION_BYTES_MAX
from ares.gateway.s3.exchange import Headers, HttpResponse
from ares.gateway.s3.request_numbers import number_of
from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.gateway.s3.xml_reading import XmlElement, malformed, parse_xml
from ares.gateway.s3.xml_text import text_element, xml_document

CORS_RULES_MAX = 100
ASKED_HEADERS_MAX = 64
"""Headers in the question of a browser."""

CORS_METHODS = ("GET", "PUT", "POST", "DELETE", "HEAD")
RULE_ID_CHARACTERS_MAX = 255
_AGE_MAX = 2**31 - 1
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_ANY = "*"
_VARY = ("Vary", "Origin, Access-Control-Request-Headers, Access-Control-Request-Method")


class CorsRule(Struct, frozen=True, array_like=True):
    """A rule. An origin and an allowed header may have one ``*``, which stands for any text."""

    origins: tuple[str, ...]
    methods: tuple[str, ...]
    headers: tuple[str, ...] = ()
    exposed: tuple[str, ...] = ()
    max_age_s: int | None = None
    id: str = ""

    def allows(self, origin: str, method: str) -> bool:
        """Return whether pages of an origin may use a method."""
        return method in self.methods and any(_matches(each, origin) for each in self.origins)

    def allows_headers(self, names: Sequence[str]) -> bool:
        """Return whether a request may have all the headers."""
        allowed = [each.lower() for each in self.headers]
        return all(any(_matches(each, name) for each in allowed) for name in names)

    def answer_headers(self, origin: str) -> list[tuple[str, str]]:
        """Return the headers by which a browser lets the page see the answer."""
        public = _ANY in self.origins
        found = [("Access-Control-Allow-Origin", _ANY if public else origin)]
        found.append(("Access-Control-Allow-Methods", ", ".join(self.methods)))
        if not public:
            found.append(("Access-Control-Allow-Credentials", "true"))
        if self.exposed:
            found.append(("Access-Control-Expose-Headers", ", ".join(self.exposed)))
        if self.max_age_s is not None:
            found.append(("Access-Control-Max-Age", str(self.max_age_s)))
        return [*found, _VARY]


def _matches(pattern: str, text: str) -> bool:
    begin, star, end = pattern.partition(_ANY)
    if not star:
        return text == pattern
    return len(text) >= len(begin) + len(end) and text.startswith(begin) and text.endswith(end)


def cors_headers(rules: Sequence[CorsRule], origin: str, method: str) -> list[tuple[str, str]]:
    """Return the headers of CORS for an answer: of the first rule for the origin and the method."""
    rule = next((rule for rule in rules if rule.allows(origin, method)), None) if origin else None
    return [] if rule is None else rule.answer_headers(origin)


def preflight_answer(rules: Sequence[CorsRule], headers: Headers) -> HttpResponse:
    """Return the answer to a browser's question. Raises AccessForbidden without a rule."""
    origin, method = headers.get("origin"), headers.get("access-control-request-method")
    if not origin:
        raise S3Error(S3Code.BadRequest, "Insufficient information. Origin header needed.")
    if method not in CORS_METHODS:
        raise S3Error(S3Code.BadRequest, "Invalid Access-Control-Request-Method.")
    asked = headers.get("access-control-request-headers").lower()
    parts = asked.split(",", ASKED_HEADERS_MAX)
    names = [part.strip() for part in parts if part.strip()]
    if len(parts) <= ASKED_HEADERS_MAX:
        for rule in rules:
            if rule.allows(origin, method) and rule.allows_headers(names):
                allowed = [("Access-Control-Allow-Headers", ", ".join(names))] if names else []
                return HttpResponse(200, [*rule.answer_headers(origin), *allowed])
    raise S3Error(S3Code.AccessForbidden)


# -- documents -------------------------------------------------------------------------------------


def parse_cors(data: bytes) -> tuple[CorsRule, ...]:
    """Return the rules of CORSConfiguration. Raises MalformedXML or InvalidRequest."""
    root = parse_xml(data, "CORSConfiguration", bytes_max=BUCKET_CONFIGURATION_BYTES_MAX)
    root.check_children("CORSRule")
    if not 1 <= len(root.children) <= CORS_RULES_MAX:
        raise malformed(f"there are 1 to {CORS_RULES_MAX} rules")
    return tuple(map(_cors_rule, root.children))


def _cors_rule(element: XmlElement) -> CorsRule:
    element.check_children(
        *("ID", "AllowedOrigin", "AllowedMethod", "AllowedHeader", "ExposeHeader", "MaxAgeSeconds")
    )
    age = element.value("MaxAgeSeconds", "").strip()
    rule = CorsRule(
        _texts(element, "AllowedOrigin"),
        _texts(element, "AllowedMethod"),
        _texts(element, "AllowedHeader"),
        _texts(element, "ExposeHeader"),
        number_of(age, "MaxAgeSeconds", 0, _AGE_MAX) if age else None,
        element.value("ID", ""),
    )
    if not rule.origins or not rule.methods or len(rule.id) > RULE_ID_CHARACTERS_MAX:
        raise malformed("a rule has an origin, a method, and a short ID")
    for method in rule.methods:
        if method not in CORS_METHODS:
            raise _refused(f"the method {method[:20]!r} is not {', '.join(CORS_METHODS)}")
    if any(each.count(_ANY) > 1 for each in (*rule.origins, *rule.headers)):
        raise _refused("an origin and an allowed header have one '*' at most")
    if any(_ANY in each for each in rule.exposed):
        raise _refused("an exposed header has no '*'")
    return rule


def _texts(element: XmlElement, name: str) -> tuple[str, ...]:
    """Return the texts of children. Each goes into headers of answers: visible ASCII alone."""
    found = tuple(child.leaf().strip() for child in element.all(name))
    if not all(map(_VISIBLE.fullmatch, found)):
        raise _refused(f"{name} has visible characters of ASCII alone")
    return found


def _refused(why: str) -> S3Error:
    return S3Error(S3Code.InvalidRequest, f"In the configuration of CORS, {why}.")


def cors_document(rules: Sequence[CorsRule]) -> bytes:
    """Return the answer to GetBucketCors."""
    return xml_document("CORSConfiguration", "".join(map(_rule_element, rules)))


def _rule_element(rule: CorsRule) -> str:
    named = (
        *(("AllowedOrigin", each) for each in rule.origins),
        *(("AllowedMethod", each) for each in rule.methods),
        *(("AllowedHeader", each) for each in rule.headers),
        *(("ExposeHeader", each) for each in rule.exposed),
    )
    content = text_element("ID", rule.id) if rule.id else ""
    content += "".join(text_element(name, text) for name, text in named)
    if rule.max_age_s is not None:
        content += text_element("MaxAgeSeconds", rule.max_age_s)
    return f"<CORSRule>{content}</CORSRule>"


encode_cors = msgspec.msgpack.Encoder().encode
"""Return the bytes of a bucket's configuration "cors", shorter than the document."""

_decoder = msgspec.msgpack.Decoder(Annotated[tuple[CorsRule, ...], Meta(max_length=CORS_RULES_MAX)])


@lru_cache(maxsize=64)
def decode_cors(encoded: bytes) -> tuple[CorsRule, ...]:
    """Return the rules in a configuration, none for none. Raises ValueError for other bytes."""
    return _decoder.decode(encoded) if encoded else ()
