"""Watches over HTTP: events of a server for browsers and scripts, and MinIO's lines of JSON.

A watch reads the log behind the index, has no queue, and sends the next change when the connection
took the last one. The marks of the watch, every few seconds, keep the connection open.
"""

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from datetime import UTC, datetime
from urllib.parse import quote_plus

import msgspec

from ares.bucket.bucket_state import BucketState
from ares.bucket.watching.changes_at import WatchGap, changes_at
from ares.client.buckets.bucket_errors import BucketNotFound
from ares.client.buckets.bucket_values import checked_text
from ares.client.buckets.bucket_watch import BucketChange, BucketEvent, bucket_changes
from ares.gateway.actions.error_table import RETRY_HEADERS
from ares.gateway.actions.gateway_services import (
    WATCHES_MAX,
    WATCHES_OF_KEY_MAX,
    GatewayCall,
    HeaderLines,
    position_headers,
)
from ares.gateway.s3.exchange import HttpResponse
from ares.gateway.s3.request_numbers import number_of
from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.model.errors import Trimmed
from ares.model.numbers import POSITION_MAX

EVENT_NAMES = {
    "put": "s3:ObjectCreated:Put",
    "delete": "s3:ObjectRemoved:Delete",
    "tags": "s3:ObjectCreated:PutTagging",
}
"""MinIO's name of each kind of event."""

EVENT_FILTERS_MAX = 64

_json = msgspec.json.Encoder()

Lines = Callable[[BucketChange], bytes]
LastLine = Callable[[WatchGap | BucketNotFound], bytes]


async def _body(
    changes: AsyncGenerator[BucketChange, None], lines: Lines, last: LastLine
) -> AsyncGenerator[bytes, None]:
    """Yield the body of the answer to a watch, which ends with the bucket, or at a gap."""
    async with aclosing(changes):
        try:
            async for change in changes:
                yield lines(change)
        except (WatchGap, BucketNotFound) as end:
            yield last(end)


async def watch(call: GatewayCall) -> HttpResponse:
    """Answer with the changes behind ``from`` as server-sent events; the id is the position.

    Each event has a change as JSON, with all that happened at once. A ``mark`` has no change, a
    ``gap`` tells the oldest position that can be told, and ``deleted`` ends with the bucket.
    """
    given = call.header("last-event-id") or call.query("from")
    since = number_of(given, "from", 0, POSITION_MAX) if given else None
    headers = [("Content-Type", "text/event-stream"), ("Cache-Control", "no-cache")]
    return await _opened(call, since, headers, _server_sent, _last_server_sent)


async def listen(call: GatewayCall) -> HttpResponse:
    """Answer with the changes from now on as MinIO's lines of JSON; spaces are marks."""
    names = [name for name in call.query("events").split(",") if name]
    if len(names) > EVENT_FILTERS_MAX or not all(name.startswith("s3:") for name in names):
        raise S3Error(S3Code.InvalidArgument, "A name of events is not valid.")
    suffix = checked_text(call.query("suffix"))

    def lines(change: BucketChange) -> bytes:
        events = [
            event
            for event in change.events
            if event.key.endswith(suffix) and _is_wanted(EVENT_NAMES[event.kind], names)
        ]
        return b"".join(_minio_lines(call, change.position, events)) or b" "

    headers = [("Content-Type", "application/json")]
    return await _opened(call, None, headers, lines, lambda _: b"\n")


async def _opened(
    call: GatewayCall, since: int | None, headers: HeaderLines, lines: Lines, last: LastLine
) -> HttpResponse:
    """Return the answer with a watch, unless the changes behind ``since`` cannot be told."""
    watches, caller = call.services.watches, call.caller.access_key
    own = sum(each == caller for each in watches.values())
    if len(watches) >= WATCHES_MAX or own >= WATCHES_OF_KEY_MAX:
        raise S3Error(S3Code.SlowDown, "There are too many watches at this gateway.", RETRY_HEADERS)
    prefix = checked_text(call.query("prefix"))
    changes = bucket_changes(call.buckets, call.bucket, prefix, since, call.timeout_s)
    body = _body(changes, lines, last)
    watches[body] = caller
    state = await call.verified()
    if since is not None:
        await _check_told(call, state, since)
    return HttpResponse(200, [*headers, *position_headers(state).items()], body)


async def _check_told(call: GatewayCall, state: BucketState, since: int) -> None:
    """Raise the error of a position whose change cannot be told, before the answer begins."""
    if since > state.position:
        raise S3Error(S3Code.InvalidArgument, f"The position {since} is behind the log's end.")
    if since == state.position:
        return
    try:
        entry = await call.buckets.log.read(since, timeout_s=call.timeout_s)
    except Trimmed as trimmed:
        raise WatchGap(since, trimmed.upto) from trimmed
    changes_at(state, since, entry, call.bucket)


def _server_sent(change: BucketChange) -> bytes:
    kind = "change" if change.events else "mark"
    return _server_event(kind, change.position, _json.encode(change))


def _last_server_sent(end: WatchGap | BucketNotFound) -> bytes:
    if isinstance(end, WatchGap):
        return _server_event("gap", None, _json.encode({"since": end.since, "first": end.first}))
    return _server_event("deleted", None, b"{}")


def _server_event(kind: str, position: int | None, encoded: bytes) -> bytes:
    line = b"" if position is None else b"id: %d\n" % position
    return b"%sevent: %s\ndata: %s\n\n" % (line, kind.encode(), encoded)


def _is_wanted(name: str, wanted: list[str]) -> bool:
    """Return whether events of this kind were asked for; a kind has several names at MinIO."""
    kind = name.split(":")[1]
    return not wanted or any(text.split(":")[1] == kind for text in wanted)


def _minio_lines(call: GatewayCall, position: int, events: list[BucketEvent]) -> Iterator[bytes]:
    """Yield a line for each event, in the form of notifications of S3."""
    now = datetime.fromtimestamp(call.services.clock(), UTC)
    for event in events:
        stored = {
            "key": quote_plus(event.key, safe=""),
            "size": event.size,
            "eTag": event.etag,
            "versionId": event.version,
            "sequencer": f"{position:016X}",
        }
        record = {
            "eventVersion": "2.0",
            "eventSource": "ares:s3",
            "awsRegion": call.services.region,
            "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "eventName": EVENT_NAMES[event.kind],
            "s3": {
                "s3SchemaVersion": "1.0",
                "bucket": {"name": call.bucket, "arn": f"arn:aws:s3:::{call.bucket}"},
                "object": stored,
            },
        }
        yield _json.encode({"Records": [record]}) + b"\n"
