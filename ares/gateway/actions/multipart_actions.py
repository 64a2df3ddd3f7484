"""Multipart uploads: parts in any order and from several processes, and one completion.

The fold judges the parts, the conditions and the upload. The checksum of the object is made of the
checksums of the parts, which the index keeps.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from ares.bucket.bucket_listing import list_parts
from ares.bucket.bucket_state import BucketState
from ares.bucket.commands import AbortUpload, BeginUpload, CompleteUpload, CopyPart, PutPart
from ares.bucket.index_records import (
    OBJECT_BYTES_MAX,
    PART_NUMBER_MAX,
    PartEntry,
    UploadEntry,
    Version,
)
from ares.client.buckets.bucket_uploads import multipart_etag
from ares.client.buckets.bucket_values import parsed_version, shown_version
from ares.gateway.actions.copy_actions import SOURCE_VERSION_HEADER, check_copied, source_of
from ares.gateway.actions.gateway_services import GatewayCall, told
from ares.gateway.actions.get_actions import checksum_headers
from ares.gateway.actions.put_actions import checked_metadata, encoded_tags, stored
from ares.gateway.actions.version_values import checksum_texts, made_headers, made_version
from ares.gateway.s3.answer_documents import (
    MadeVersion,
    begun_upload,
    completed_upload,
    copied_part,
    quoted_etag,
)
from ares.gateway.s3.exchange import Headers, HttpResponse
from ares.gateway.s3.object_headers import stored_headers
from ares.gateway.s3.parsing import copy_source
from ares.gateway.s3.request_conditions import source_conditions, write_conditions
from ares.gateway.s3.request_documents import CompletedPart, completed_parts
from ares.gateway.s3.request_numbers import number_of, source_range
from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.gateway.s3.s3_tags import header_tags
from ares.gateway.signing.checksum_headers import complete_checksum, upload_checksum
from ares.gateway.signing.checksums import (
    ObjectChecksum,
    checksum_of_parts,
    decode_checksum,
    encode_checksum,
)
from ares.model.errors import BadInput

ALGORITHM_HEADER = "x-amz-checksum-algorithm"
KIND_HEADER = "x-amz-checksum-type"
OBJECT_SIZE_HEADER = "x-amz-mp-object-size"


async def create_upload(call: GatewayCall) -> HttpResponse:
    """Begin an upload, with the metadata, the tags and the kind of checksum of the object."""
    headers = call.request.http.headers
    asked = upload_checksum(headers)
    operation = BeginUpload(
        *(call.bucket, call.key),
        metadata=checked_metadata(stored_headers(headers)),
        tags=encoded_tags(header_tags(headers)),
        checksum=encode_checksum(asked),
    )
    answer = await call.change(operation)
    upload = answer.result.version
    assert upload is not None, "a begun upload has an id"
    lines = []
    if asked is not None:
        lines = [(ALGORITHM_HEADER, asked.algorithm.name), (KIND_HEADER, asked.kind.value)]
    body = begun_upload(call.bucket, call.key, shown_version(upload))
    return told(answer.index.state, lines, body)


async def upload_part(call: GatewayCall) -> HttpResponse:
    """Store the body as a part, in place of an earlier part with the number."""
    upload, number = upload_of(call), part_number(call)
    asked = await _asked_of(call, upload)
    if asked is not None and call.body is not None:
        call.body.compute(asked.algorithm)
    operation = PutPart(call.bucket, call.key, upload, number, b"", "")
    answer, checksum = await stored(call, operation, asked)
    lines = [("ETag", quoted_etag(answer.result.etag)), *checksum_headers(checksum)[:1]]
    return told(answer.index.state, lines)


async def _asked_of(call: GatewayCall, upload: Version) -> ObjectChecksum | None:
    """Return the algorithm and the kind of checksum of an upload."""
    index = await call.buckets.index(call.timeout_s)
    entry = index.state.upload(call.bucket, call.key, upload)
    if entry is None:
        state = (await call.look.verified()).state
        entry = state.upload(call.bucket, call.key, upload)
    return None if entry is None else decode_checksum(entry.checksum)


async def upload_part_copy(call: GatewayCall) -> HttpResponse:
    """Make a part of an object, or of a range of an object; no bytes move."""
    headers = call.request.http.headers
    source = copy_source(headers)
    wanted = source_range(call.header("x-amz-copy-source-range"))
    first, length = (0, 0) if wanted is None else (wanted.first, wanted.length)
    operation = CopyPart(
        *(call.bucket, call.key, upload_of(call), part_number(call)),
        source_of(source, source_conditions(headers)),
        first=first,
        length=length,
    )
    answer = await call.answer(operation)
    state, result = answer.index.state, answer.result
    check_copied(state, result, source)
    lines = [(SOURCE_VERSION_HEADER, source.version_id)] if source.version_id else []
    made = state.parts(operation.upload, [operation.part]).get(operation.part)
    checksum = b"" if made is None or made.etag != result.etag else made.checksum
    return told(
        state, lines, copied_part(MadeVersion(result.etag, result.ms, checksum_texts(checksum)))
    )


async def complete_upload(call: GatewayCall) -> HttpResponse:
    """Make the named parts an object, at once, if the conditions hold."""
    headers = call.request.http.headers
    upload, parts = upload_of(call), completed_parts(await call.document())
    named = tuple(part.named for part in parts)
    try:
        etag = multipart_etag(named)
    except BadInput as error:
        raise S3Error(S3Code.InvalidPart) from error
    state = await call.verified()
    begun = state.upload(call.bucket, call.key, upload)
    checksum = b""
    if begun is not None:  # else an earlier attempt may have completed it: the fold knows
        checksum = _judged(headers, begun, parts, _stored_parts(state, upload))
    operation = CompleteUpload(
        *(call.bucket, call.key, upload, named, etag), write_conditions(headers), checksum
    )
    answer = await call.change(operation)
    state, result = answer.index.state, answer.result
    lines = made_headers(state, call.bucket, call.key, result)
    location = f"/{call.bucket}/{quote(call.key)}"
    made = made_version(result, checksum)
    return told(state, lines, completed_upload(location, call.bucket, call.key, made))


def _stored_parts(state: BucketState, upload: Version) -> dict[int, PartEntry]:
    """Return the parts of an upload by their numbers."""
    stored_parts: dict[int, PartEntry] = {}
    last = 0
    while some := list_parts(state, upload, last):
        stored_parts.update(some)
        last = some[-1][0]
    return stored_parts


def _judged(
    headers: Headers,
    begun: UploadEntry,
    parts: Sequence[CompletedPart],
    there: Mapping[int, PartEntry],
) -> bytes:
    """Return the encoded checksum of the object; none if a part has none.

    Raises :class:`S3Error` for a checksum or a size that differs from the parts'. Parts that are
    missing or were replaced are the fold's affair.
    """
    chosen = [there.get(part.named.part) for part in parts]
    if any(
        entry is None or entry.etag != part.named.etag
        for part, entry in zip(parts, chosen, strict=True)
    ):
        return b""
    entries = [entry for entry in chosen if entry is not None]
    told_size = headers.get(OBJECT_SIZE_HEADER) or "0"
    size = number_of(told_size, OBJECT_SIZE_HEADER, 0, OBJECT_BYTES_MAX)
    if OBJECT_SIZE_HEADER in headers and size != sum(entry.size for entry in entries):
        raise S3Error(S3Code.InvalidRequest, "The object's size is not that of its parts.")
    checksums = [decode_checksum(entry.checksum) for entry in entries]
    for part, known in zip(parts, checksums, strict=True):
        if (
            known is not None
            and part.checksums.get(known.algorithm.name, known.value) != known.value
        ):
            raise S3Error(S3Code.InvalidPart, "The checksum of a part is not that of its bytes.")
    asked = decode_checksum(begun.checksum)
    given = complete_checksum(headers, asked)
    if asked is None:
        return b""
    values = [
        (known.value, entry.size)
        for known, entry in zip(checksums, entries, strict=True)
        if known is not None and known.algorithm is asked.algorithm
    ]
    if len(values) < len(entries):
        return b""
    checksum = checksum_of_parts(asked, values)
    if given and given not in (checksum.value, checksum.value.partition("-")[0]):
        raise S3Error(S3Code.BadDigest, "The object's checksum is not that of its parts.")
    return encode_checksum(checksum)


async def abort_upload(call: GatewayCall) -> HttpResponse:
    """End an upload without an object."""
    answer = await call.change(AbortUpload(call.bucket, call.key, upload_of(call)))
    return told(answer.index.state, status=204)


def upload_of(call: GatewayCall) -> Version:
    """Return the id of the upload. Raises :class:`S3Error`: another id names no upload."""
    try:
        return parsed_version(call.query("uploadId"))
    except BadInput as error:
        raise S3Error(S3Code.NoSuchUpload) from error


def part_number(call: GatewayCall) -> int:
    return number_of(call.query("partNumber"), "partNumber", 1, PART_NUMBER_MAX)
