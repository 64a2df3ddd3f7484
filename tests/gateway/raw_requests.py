"""Signed requests for S3, as bytes for a raw connection."""

import hashlib
import time
from urllib.parse import quote, urlencode

from ares.gateway.s3.exchange import Headers, HttpRequest
from ares.gateway.signing.canonical_request import canonical_request, query_fields
from ares.gateway.signing.credential_scope import SIGNING_ALGORITHM, signed_text, signing_key

REGION = "us-east-1"


def signed(key, method, target, body=b"", **headers):
    """Return a request under an access key. ``headers``: with underscores for hyphens."""
    digest = hashlib.sha256(body).hexdigest()
    return signed_head(key, method, target, digest, content_length=str(len(body)), **headers) + body


def signed_head(key, method, target, digest, **headers):
    """Return the head of a request whose body has the SHA-256 ``digest``."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    told = {"host": "s3.example", "x-amz-date": stamp, "x-amz-content-sha256": digest}
    told |= {name.replace("_", "-"): value for name, value in headers.items()}
    raw = tuple((name.encode(), value.encode()) for name, value in told.items())
    path, _, query = target.encode().partition(b"?")
    request = HttpRequest(method, path, query, Headers(raw), False, "", None)
    names = tuple(sorted(told))
    canonical = canonical_request(request, query_fields(query), names, digest)
    scope = f"{stamp[:8]}/{REGION}/s3/aws4_request"
    hashed = hashlib.sha256(canonical).hexdigest()
    text = f"{SIGNING_ALGORITHM}\n{stamp}\n{scope}\n{hashed}"
    signature = signed_text(signing_key(key.secret, stamp[:8], REGION), text)
    told["authorization"] = (
        f"{SIGNING_ALGORITHM} Credential={key.id}/{scope}, SignedHeaders={';'.join(names)}, "
        f"Signature={signature}"
    )
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in told.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def presigned(key, method, target, **fields):
    """Return a request without further headers, signed in the URL with further ``fields``."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    scope = f"{stamp[:8]}/{REGION}/s3/aws4_request"
    asked = {
        "X-Amz-Algorithm": SIGNING_ALGORITHM,
        "X-Amz-Credential": f"{key.id}/{scope}",
        "X-Amz-Date": stamp,
        "X-Amz-Expires": "60",
        "X-Amz-SignedHeaders": "host",
        **{name.replace("_", "-"): value for name, value in fields.items()},
    }
    query = urlencode(asked, quote_via=quote)
    headers = Headers(((b"host", b"s3.example"),))
    request = HttpRequest(method, target.encode(), query.encode(), headers, False, "", None)
    canonical = canonical_request(
        request, query_fields(request.raw_query), ("host",), "UNSIGNED-PAYLOAD"
    )
    hashed = hashlib.sha256(canonical).hexdigest()
    text = f"{SIGNING_ALGORITHM}\n{stamp}\n{scope}\n{hashed}"
    signature = signed_text(signing_key(key.secret, stamp[:8], REGION), text)
    url = f"{target}?{query}&X-Amz-Signature={signature}"
    return f"{method} {url} HTTP/1.1\r\nHost: s3.example\r\nContent-Length: 0\r\n\r\n".encode()
