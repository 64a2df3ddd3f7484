"""The errors of S3 for the errors of ares, and for the outcomes of changes, in one place.

A message to a client names no server of the cluster. The message of a 503 says whether the change
may have been made: all attempts of a client's library carry the same id, so that a repeat is safe
in both cases.
"""

from ares.bucket.bucket_requests import SessionEnded
from ares.bucket.bucket_session import SessionBusy
from ares.bucket.bucket_state import ContentGone
from ares.bucket.command_results import CommandOutcome
from ares.bucket.fold import BrokenIndex, UnknownLevel
from ares.bucket.port import RowTableFailed
from ares.bucket.watching.changes_at import WatchGap
from ares.client.buckets.bucket_errors import (
    BucketNotFound,
    BucketsMissing,
    KeyNotFound,
    is_uncertain,
)
from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.model.errors import AresError, BadInput, Uncertain

POSITION_HEADER = "x-ares-position"
RETRY_HEADERS = {"Retry-After": "1"}

_UNCERTAIN = (
    "The servers did not answer in time. A change may have been made or not, now or within "
    "seconds: send it again with the same amz-sdk-invocation-id, or look at the object first."
)
_UNCHANGED = "The servers cannot answer now. Nothing was changed: send the request again."
_MISSING = "This cluster has no buckets yet: `ares-cli bucket init` makes the domains for them."
_TOO_OLD = "The buckets need a later release of this gateway: upgrade it. Nothing is lost."
_TOO_NESTED = "A part is a copy of copies of parts, more than 64 times: send the bytes again."

OUTCOME_CODES = {
    CommandOutcome.FENCED: S3Code.ServiceUnavailable,
    CommandOutcome.SETTLED: S3Code.ServiceUnavailable,
    CommandOutcome.MALFORMED: S3Code.InternalError,
    CommandOutcome.CONDITION_FAILED: S3Code.PreconditionFailed,
    CommandOutcome.NO_SUCH_KEY: S3Code.NoSuchKey,
    CommandOutcome.NO_SUCH_BUCKET: S3Code.NoSuchBucket,
    CommandOutcome.BUCKET_EXISTS: S3Code.BucketAlreadyOwnedByYou,
    CommandOutcome.BUCKET_NOT_EMPTY: S3Code.BucketNotEmpty,
    CommandOutcome.NO_SUCH_UPLOAD: S3Code.NoSuchUpload,
    CommandOutcome.BAD_PART: S3Code.InvalidPart,
    CommandOutcome.BAD_PART_ORDER: S3Code.InvalidPartOrder,
    CommandOutcome.PART_TOO_SMALL: S3Code.EntityTooSmall,
    CommandOutcome.TOO_NESTED: S3Code.InvalidRequest,
    CommandOutcome.OVER_QUOTA: S3Code.QuotaExceeded,
    CommandOutcome.NO_SUCH_SOURCE: S3Code.NoSuchKey,
    CommandOutcome.BAD_RANGE: S3Code.InvalidRange,
    CommandOutcome.NOT_TAKEN: S3Code.ServiceUnavailable,
    CommandOutcome.BATCH_FAILED: S3Code.OperationAborted,
    CommandOutcome.TOO_LARGE: S3Code.EntityTooLarge,
    CommandOutcome.BUSY: S3Code.SlowDown,
}
"""The code for each outcome of a change that was not made."""


def outcome_error(outcome: CommandOutcome, position: int | None = None) -> S3Error:
    """Return the error for the outcome of a change. ``position``: of the index with the outcome."""
    code = OUTCOME_CODES[outcome]
    headers = {} if position is None else {POSITION_HEADER: str(position)}
    if code.status == 503:
        return S3Error(code, _UNCHANGED, {**headers, **RETRY_HEADERS})
    message = _TOO_NESTED if outcome is CommandOutcome.TOO_NESTED else ""
    return S3Error(code, message, headers)


def s3_error(error: AresError, changing: bool = True) -> S3Error:
    """Return the answer for an error of ares. ``changing``: the request was for a change."""
    uncertain = _UNCERTAIN if changing else _UNCHANGED
    match error:
        case BucketNotFound():
            return S3Error(S3Code.NoSuchBucket)
        case KeyNotFound():
            return S3Error(S3Code.NoSuchKey)
        case WatchGap():
            fields = {"FirstPosition": str(error.first)}
            return S3Error(S3Code.Gone, str(error), {POSITION_HEADER: str(error.first)}, fields)
        case BucketsMissing():
            return S3Error(S3Code.ServiceUnavailable, _MISSING)
        case BadInput():
            return S3Error(S3Code.InvalidArgument, str(error))
        case SessionBusy():
            return S3Error(S3Code.SlowDown, _UNCHANGED, RETRY_HEADERS)
        case SessionEnded() | ContentGone():
            return S3Error(S3Code.ServiceUnavailable, _UNCHANGED, RETRY_HEADERS)
        case UnknownLevel():
            return S3Error(S3Code.ServiceUnavailable, _TOO_OLD)
        case BrokenIndex() | RowTableFailed():
            return S3Error(S3Code.ServiceUnavailable, uncertain, RETRY_HEADERS)
        case Uncertain():
            message = uncertain if is_uncertain(error) else _UNCHANGED
            return S3Error(S3Code.ServiceUnavailable, message, RETRY_HEADERS)
        case _:
            return S3Error(S3Code.InternalError)
