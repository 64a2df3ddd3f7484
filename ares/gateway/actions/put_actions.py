"""Puts of objects, by PUT and by the form of a browser.

The condition travels in the command, and the answer is the outcome at the command's position. An
error of the body, at its end too, passes through: the object stays as it is.
"""

from collections.abc import Mapping
from urllib.parse import SplitResult, quote, urlencode, urlsplit, urlunsplit

from ares.bucket.commands import PutObject, PutPart
from ares.bucket.lifecycle.object_tags import OBJECT_TAGS_MAX, encode_tags
from ares.client.buckets.bucket_values import encode_metadata
from ares.client.buckets.index_changes import ChangeAnswer
from ares.gateway.actions.gateway_services import (
    GatewayCall,
    HeaderLines,
    check_done,
    told,
)
from ares.gateway.actions.get_actions import checksum_headers
from ares.gateway.actions.version_values import made_headers
from ares.gateway.s3.answer_documents import posted_object, quoted_etag
from ares.gateway.s3.exchange import HttpResponse
from ares.gateway.s3.object_headers import stored_headers
from ares.gateway.s3.request_conditions import write_conditions
from ares.gateway.s3.request_documents import tagging
from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.gateway.s3.s3_tags import header_tags
from ares.gateway.signing.checksums import ChecksumKind, ObjectChecksum, encode_checksum
from ares.model.errors import BadInput


async def put_object(call: GatewayCall) -> HttpResponse:
    """Store the body as a new version of an object."""
    answer, checksum = await _put(call, header_tags(call.request.http.headers))
    return told(answer.index.state, _made(call, answer, checksum))


async def post_object(call: GatewayCall) -> HttpResponse:
    """Store the file of a form; the fields stand for headers, and choose the answer."""
    document = call.header("tagging")
    tags = tagging(document.encode("latin-1"), OBJECT_TAGS_MAX) if document else {}
    answer, checksum = await _put(call, tags)
    lines, etag = _made(call, answer, checksum), answer.result.etag
    location = f"/{call.bucket}/{quote(call.key)}"
    lines.append(("Location", location))
    target = call.header("success_action_redirect") or call.header("redirect")
    if (parts := _redirect(target)) is not None:
        asked = {"bucket": call.bucket, "key": call.key, "etag": quoted_etag(etag)}
        query = "&".join(filter(None, (parts.query, urlencode(asked))))
        lines[-1] = ("Location", urlunsplit(parts._replace(query=query)))
        return told(answer.index.state, lines, status=303)
    if call.header("success_action_status") == "201":
        body = posted_object(location, call.bucket, call.key, etag)
        return told(answer.index.state, lines, body, 201)
    status = 200 if call.header("success_action_status") == "200" else 204
    return told(answer.index.state, lines, status=status)


def _redirect(target: str) -> SplitResult | None:
    """Return the address to send a browser to; None for no address of HTTP."""
    try:
        parts = urlsplit(target)
    except ValueError:
        return None
    plain = target.isascii() and target.isprintable() and " " not in target
    return parts if parts.scheme in ("http", "https") and parts.netloc and plain else None


async def _put(call: GatewayCall, tags: Mapping[str, str]) -> tuple[ChangeAnswer, bytes]:
    """Store the body as an object; return the answer and the checksum."""
    headers = call.request.http.headers
    operation = PutObject(
        *(call.bucket, call.key, b"", "", write_conditions(headers)),
        metadata=checked_metadata(stored_headers(headers)),
        tags=encoded_tags(tags),
    )
    return await stored(call, operation)


async def stored(
    call: GatewayCall, operation: PutObject | PutPart, asked: ObjectChecksum | None = None
) -> tuple[ChangeAnswer, bytes]:
    """Store the body; return the answer, and the encoded checksum of the body.

    ``asked``: the checksum of the upload of a part. Raises :class:`S3Error` unless the change was
    made.
    """
    checksum = b""

    def checksum_of_body() -> bytes:
        nonlocal checksum
        found = None if call.body is None else call.body.checksum
        _check_algorithm(asked, found)
        checksum = encode_checksum(found)
        return checksum

    answer = await call.buckets.put(
        operation,
        b"" if call.body is None else call.body,
        call.timeout_s,
        checksum=checksum_of_body,
        request=call.client_request,
    )
    check_done(answer)
    return answer, checksum


def _check_algorithm(asked: ObjectChecksum | None, found: ObjectChecksum | None) -> None:
    """Raise :class:`S3Error` for a part without the checksum that its upload needs."""
    if asked is None or (found is None and asked.kind is ChecksumKind.FULL_OBJECT):
        return
    if found is None or found.algorithm is not asked.algorithm:
        sent = "null" if found is None else found.algorithm.name
        raise S3Error(
            S3Code.InvalidRequest,
            f"Checksum Type mismatch occurred, expected checksum Type: {asked.algorithm.name}, "
            f"actual checksum Type: {sent}",
        )


def checked_metadata(metadata: Mapping[str, str]) -> bytes:
    """Return the bytes of metadata. Raises :class:`S3Error`."""
    try:
        return encode_metadata(metadata)
    except BadInput as error:
        raise S3Error(S3Code.MetadataTooLarge) from error


def encoded_tags(tags: Mapping[str, str], count_max: int = OBJECT_TAGS_MAX) -> bytes:
    """Return the bytes of tags. Raises :class:`S3Error`."""
    try:
        return encode_tags(tags, count_max)
    except ValueError as error:
        raise S3Error(S3Code.InvalidTag, f"The tags are not valid: {error}.") from error


def _made(call: GatewayCall, answer: ChangeAnswer, checksum: bytes) -> HeaderLines:
    """Return the headers about a version that was made."""
    state, result = answer.index.state, answer.result
    return [
        ("ETag", quoted_etag(result.etag)),
        *made_headers(state, call.bucket, call.key, result),
        *checksum_headers(checksum),
    ]
