"""Buckets, and their configurations: versioning, access control list, CORS, lifecycle."""

from ares.bucket.bucket_listing import ListRequest, list_uploads
from ares.bucket.commands import (
    AbortUpload,
    CreateBucket,
    DeleteBucket,
    SetBucket,
    request_print,
)
from ares.bucket.lifecycle.lifecycle_rules import decode_lifecycle, encode_lifecycle
from ares.gateway.access.canned_acls import ACL_CONFIGURATION, CannedAcl, acl_of, wished_acl
from ares.gateway.actions.gateway_services import GatewayCall, told
from ares.gateway.s3.answer_documents import acl_document, location_document, versioning_document
from ares.gateway.s3.exchange import HttpResponse
from ares.gateway.s3.request_documents import canned_acl, location_constraint, versioning
from ares.gateway.s3.rules.cors_rules import cors_document, decode_cors, encode_cors, parse_cors
from ares.gateway.s3.rules.lifecycle_documents import lifecycle_document, parse_lifecycle
from ares.gateway.s3.s3_errors import S3Code, S3Error

CORS_CONFIGURATION = "cors"
LIFECYCLE_CONFIGURATION = "lifecycle"
REGION_HEADER = "x-amz-bucket-region"


# -- buckets ---------------------------------------------------------------------------------------


async def create_bucket(call: GatewayCall) -> HttpResponse:
    """Create a bucket; one of several creators wins."""
    acl = wished_acl(call.request.http.headers)
    region = location_constraint(await call.document())
    if region not in ("", call.services.region):
        raise S3Error(S3Code.InvalidLocationConstraint)
    answer = await call.change(CreateBucket(call.bucket, call.caller.name))
    if acl is not None and acl.configuration:
        answer = await call.change(_setting(call, ACL_CONFIGURATION, acl.configuration))
    return told(answer.index.state, [("Location", f"/{call.bucket}")])


async def delete_bucket(call: GatewayCall) -> HttpResponse:
    """Delete a bucket without versions; uploads under way end with it, as with S3."""
    operation = DeleteBucket(call.bucket)
    await _end_uploads(call, operation)
    answer = await call.change(operation)
    return told(answer.index.state, status=204)


async def _end_uploads(call: GatewayCall, operation: DeleteBucket) -> None:
    """End a page of the uploads of a bucket without versions; a repeated request ends the next.

    A later attempt at a known deletion ends none: a new bucket may have the name.
    """
    state = (await call.buckets.verified(call.timeout_s)).state
    bucket, request = state.bucket(call.bucket), call.client_request
    if bucket is None or bucket.versions:
        return
    if request and state.invocation(request_print(request.invocation, operation)):
        return
    for listed in list_uploads(state, ListRequest(call.bucket)).results:
        assert listed.upload is not None, "without a delimiter there are uploads only"
        await call.buckets.give(AbortUpload(call.bucket, listed.key, listed.upload), call.timeout_s)


async def head_bucket(call: GatewayCall) -> HttpResponse:
    """Answer whether the bucket exists."""
    return told(await call.verified(), [(REGION_HEADER, call.services.region)])


async def get_bucket_location(call: GatewayCall) -> HttpResponse:
    """Answer with the region of all buckets."""
    state = await call.verified()
    return told(state, body=location_document(call.services.region))


# -- configurations --------------------------------------------------------------------------------


def _setting(call: GatewayCall, name: str, configuration: bytes) -> SetBucket:
    return SetBucket(call.bucket, name=name, configuration=configuration)


async def set_configuration(
    call: GatewayCall, name: str, configuration: bytes, status: int = 200
) -> HttpResponse:
    """Set a configuration of the bucket; empty bytes remove it."""
    answer = await call.change(_setting(call, name, configuration))
    return told(answer.index.state, status=status)


async def get_bucket_versioning(call: GatewayCall) -> HttpResponse:
    """Answer with the versions that the bucket keeps."""
    state = await call.verified()
    return told(state, body=versioning_document(call.bucket_in(state).versioning))


async def put_bucket_versioning(call: GatewayCall) -> HttpResponse:
    """Begin or suspend the keeping of versions."""
    wanted = versioning(await call.document())
    answer = await call.change(SetBucket(call.bucket, versioning=wanted))
    return told(answer.index.state)


async def get_bucket_acl(call: GatewayCall) -> HttpResponse:
    """Answer with the access control list of the bucket."""
    state = await call.verified()
    return told(state, body=acl_document(acl_of(state, call.bucket).value))


async def put_bucket_acl(call: GatewayCall) -> HttpResponse:
    """Make the bucket private, or public for reading."""
    return await set_configuration(call, ACL_CONFIGURATION, (await wanted_acl(call)).configuration)


async def wanted_acl(call: GatewayCall) -> CannedAcl:
    """Return the list of a header or of a document."""
    wished = wished_acl(call.request.http.headers)
    document = await call.document()
    if wished is not None and document:
        raise S3Error(S3Code.UnexpectedContent)
    return CannedAcl(canned_acl(document)) if wished is None else wished


async def get_bucket_cors(call: GatewayCall) -> HttpResponse:
    """Answer with the rules for browsers."""
    state = await call.verified()
    rules = decode_cors(state.configuration(call.bucket, CORS_CONFIGURATION))
    if not rules:
        raise S3Error(S3Code.NoSuchCORSConfiguration)
    return told(state, body=cors_document(rules))


async def put_bucket_cors(call: GatewayCall) -> HttpResponse:
    """Set the rules for browsers."""
    rules = parse_cors(await call.document())
    return await set_configuration(call, CORS_CONFIGURATION, encode_cors(rules))


async def delete_bucket_cors(call: GatewayCall) -> HttpResponse:
    """Remove the rules for browsers."""
    return await set_configuration(call, CORS_CONFIGURATION, b"", 204)


async def get_bucket_lifecycle(call: GatewayCall) -> HttpResponse:
    """Answer with the rules by which objects expire."""
    state = await call.verified()
    rules = decode_lifecycle(state.configuration(call.bucket, LIFECYCLE_CONFIGURATION))
    if not rules:
        raise S3Error(S3Code.NoSuchLifecycleConfiguration)
    return told(state, body=lifecycle_document(rules))


async def put_bucket_lifecycle(call: GatewayCall) -> HttpResponse:
    """Set the rules by which objects expire."""
    rules = parse_lifecycle(await call.document())
    try:
        encoded = encode_lifecycle(rules)
    except ValueError as error:
        raise S3Error(S3Code.InvalidRequest, f"The rules are not valid: {error}.") from error
    return await set_configuration(call, LIFECYCLE_CONFIGURATION, encoded)


async def delete_bucket_lifecycle(call: GatewayCall) -> HttpResponse:
    """Remove the rules by which objects expire."""
    return await set_configuration(call, LIFECYCLE_CONFIGURATION, b"", 204)
