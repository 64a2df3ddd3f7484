"""The canonical form of a request: the text under the signature.

Source: "Signature Calculations for the Authorization Header" of Amazon S3's API reference. S3 does
not normalise the path: ``//`` and ``..`` stay, and percent signs are encoded once.
"""

import re
from collections.abc import Iterator, Sequence
from urllib.parse import quote, unquote_to_bytes

from ares.gateway.s3.exchange import Headers, HttpRequest

QueryFields = list[tuple[bytes, bytes]]
"""Decoded names and values of a query, in their order."""

_PLAIN_PATH = re.compile(rb"[A-Za-z0-9/._~-]+")
_SPACES = re.compile(" {2,}")


def query_fields(raw_query: bytes) -> QueryFields:
    """Decode a query. A plus is a space; a field without ``=`` has an empty value."""
    fields = []
    for field in raw_query.replace(b"+", b" ").split(b"&"):
        if field:
            name, _, value = field.partition(b"=")
            fields.append((unquote_to_bytes(name), unquote_to_bytes(value)))
    return fields


def canonical_request(
    http: HttpRequest, fields: QueryFields, signed_headers: Sequence[str], payload: str
) -> bytes:
    """Return the canonical request.

    ``fields``: the query, without a signature. ``payload``: the hash of the body, or its stand-in.
    """
    lines = [
        http.method,
        _canonical_path(http.raw_path),
        _canonical_query(fields),
        *_canonical_headers(http.headers, signed_headers),
        "",
        ";".join(signed_headers),
        payload,
    ]
    return "\n".join(lines).encode("latin-1")


def _canonical_path(raw_path: bytes) -> str:
    if _PLAIN_PATH.fullmatch(raw_path) is not None:
        return raw_path.decode()
    return quote(unquote_to_bytes(raw_path), safe="/") or "/"


def _canonical_query(fields: QueryFields) -> str:
    encoded = sorted((quote(name, safe=""), quote(value, safe="")) for name, value in fields)
    return "&".join(f"{name}={value}" for name, value in encoded)


def _canonical_headers(headers: Headers, signed: Sequence[str]) -> Iterator[str]:
    for name in signed:
        value = headers.get(name)
        yield f"{name}:{_SPACES.sub(' ', value) if '  ' in value else value}"
