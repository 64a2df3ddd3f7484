"""Tags of objects and of buckets, the access control lists of objects, and attributes."""

from ares.bucket.bucket_listing import PAGE_RESULTS_MAX
from ares.bucket.bucket_state import BucketState
from ares.bucket.command_results import CommandOutcome, CommandResult
from ares.bucket.commands import SetTags
from ares.bucket.index_records import PART_NUMBER_MAX, ObjectEntry
from ares.bucket.lifecycle.object_tags import BUCKET_TAGS_MAX, OBJECT_TAGS_MAX, decode_tags
from ares.gateway.access.canned_acls import acl_of
from ares.gateway.actions.bucket_actions import set_configuration, wanted_acl
from ares.gateway.actions.gateway_services import GatewayCall, HeaderLines, told
from ares.gateway.actions.put_actions import encoded_tags
from ares.gateway.actions.version_values import (
    checksum_texts,
    named_version,
    present_entry,
    version_headers,
)
from ares.gateway.s3.answer_documents import (
    OBJECT_ATTRIBUTES,
    ObjectAttributes,
    PartAttributes,
    PartsPage,
    acl_document,
    attributes_document,
    tagging_document,
)
from ares.gateway.s3.exchange import HttpResponse
from ares.gateway.s3.request_documents import tagging
from ares.gateway.s3.request_numbers import number_of
from ares.gateway.s3.s3_dates import http_date
from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.gateway.signing.checksums import decode_checksum

TAGS_CONFIGURATION = "tags"


# -- tags ------------------------------------------------------------------------------------------


async def get_bucket_tagging(call: GatewayCall) -> HttpResponse:
    """Answer with the tags of the bucket."""
    state = await call.verified()
    tags = decode_tags(state.configuration(call.bucket, TAGS_CONFIGURATION))
    if not tags:
        raise S3Error(S3Code.NoSuchTagSet)
    return told(state, body=tagging_document(tags))


async def put_bucket_tagging(call: GatewayCall) -> HttpResponse:
    """Set the tags of the bucket."""
    tags = tagging(await call.document(), BUCKET_TAGS_MAX)
    return await set_configuration(
        call, TAGS_CONFIGURATION, encoded_tags(tags, BUCKET_TAGS_MAX), 204
    )


async def delete_bucket_tagging(call: GatewayCall) -> HttpResponse:
    """Remove the tags of the bucket."""
    return await set_configuration(call, TAGS_CONFIGURATION, b"", 204)


async def get_object_tagging(call: GatewayCall) -> HttpResponse:
    """Answer with the tags of a version."""
    state, entry = await _entry(call)
    return told(state, _version(call, state, entry), tagging_document(decode_tags(entry.tags)))


async def put_object_tagging(call: GatewayCall) -> HttpResponse:
    """Set the tags of a version, which stays the same version."""
    tags = tagging(await call.document(), OBJECT_TAGS_MAX)
    return await _set_tags(call, encoded_tags(tags), 200)


async def delete_object_tagging(call: GatewayCall) -> HttpResponse:
    """Remove the tags of a version."""
    return await _set_tags(call, b"", 204)


async def _set_tags(call: GatewayCall, tags: bytes, status: int) -> HttpResponse:
    named = named_version(call.query("versionId"))
    answer = await call.change(SetTags(call.bucket, call.key, tags, *named))
    state = answer.index.state
    return told(state, version_headers(state.bucket(call.bucket), answer.result), status=status)


async def _entry(call: GatewayCall) -> tuple[BucketState, ObjectEntry]:
    """Return the verified index, and the named version."""
    state = await call.verified()
    named = named_version(call.query("versionId"))
    return state, present_entry(state, call.bucket, call.key, named)


def _version(call: GatewayCall, state: BucketState, entry: ObjectEntry) -> HeaderLines:
    """Return the headers with the name of a version."""
    result = CommandResult(CommandOutcome.DONE, entry.version, null=entry.null)
    return version_headers(state.bucket(call.bucket), result)


# -- access control lists --------------------------------------------------------------------------


async def get_object_acl(call: GatewayCall) -> HttpResponse:
    """Answer with the list of the object: the list of the bucket."""
    state, _ = await _entry(call)
    return told(state, body=acl_document(acl_of(state, call.bucket).value))


async def put_object_acl(call: GatewayCall) -> HttpResponse:
    """Accept the present list of the object. Raises :class:`S3Error` for a different list."""
    wanted = await wanted_acl(call)
    state, _ = await _entry(call)
    if wanted is not acl_of(state, call.bucket):
        raise S3Error(S3Code.NotImplemented, "An object has the list of its bucket.")
    return told(state)


# -- attributes ------------------------------------------------------------------------------------


async def get_object_attributes(call: GatewayCall) -> HttpResponse:
    """Answer with the attributes of the named version."""
    wanted = {name.strip() for name in call.header("x-amz-object-attributes").split(",")}
    if not wanted <= set(OBJECT_ATTRIBUTES):
        raise S3Error(S3Code.InvalidArgument, "Invalid attribute name specified.")
    state, entry = await _entry(call)
    checksum = decode_checksum(entry.checksum)
    texts = checksum_texts(entry.checksum) if "Checksum" in wanted else {}
    attributes = ObjectAttributes(
        etag=entry.etag if "ETag" in wanted else "",
        checksums=texts,
        checksum_type=checksum.kind.value if checksum is not None and texts else "",
        parts=_parts_page(call, state, entry) if "ObjectParts" in wanted else None,
        storage_class="StorageClass" in wanted,
        size=entry.size if "ObjectSize" in wanted else None,
    )
    lines = [("Last-Modified", http_date(entry.ms)), *_version(call, state, entry)]
    return told(state, lines, attributes_document(attributes))


def _parts_page(call: GatewayCall, state: BucketState, entry: ObjectEntry) -> PartsPage | None:
    """Return a page of the object's parts; None for an object without parts."""
    sizes = state.part_sizes(entry)
    if not sizes:
        return None
    given, marker = call.header("x-amz-max-parts"), call.header("x-amz-part-number-marker")
    limit = number_of(given, "max-parts", 0, PAGE_RESULTS_MAX) if given else PAGE_RESULTS_MAX
    last = number_of(marker, "part-number-marker", 0, PART_NUMBER_MAX) if marker else 0
    numbered = list(enumerate(sizes, 1))[last : last + limit]
    parts = tuple(PartAttributes(number, size) for number, size in numbered)
    return PartsPage(len(sizes), last, limit, last + len(parts) < len(sizes), parts)
