"""Watches of buckets: a reader of the log, with results from the index of this process.

A watch has a position in the log and no queue of its own. A slow watcher reads the log later, and
gets :class:`ares.WatchGap` when the log was trimmed meanwhile. The next life of the index has the
results of the last one: the watch goes on at its position.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from time import monotonic

from msgspec import Struct

from ares.bucket.bucket_state import BucketState
from ares.bucket.commands import CompleteUpload, CopyObject, DeleteBucket, DeleteObject, PutObject
from ares.bucket.watching.changes_at import ToldChange, WatchGap, changes_at
from ares.client.buckets.bucket_errors import BucketNotFound, IndexBehind
from ares.client.buckets.bucket_index import FOLDED_AT_ONCE, BucketIndex
from ares.client.buckets.bucket_values import shown_version
from ares.client.buckets.buckets import Buckets
from ares.model.errors import BadInput, Trimmed

WATCH_MARK_S = 5.0
"""Seconds without a change after which a mark is told; the sessions' beats move the position."""


class BucketEvent(Struct, frozen=True):
    """A change of an object. ``kind``: "put" (also of a copy), "delete" or "tags".

    ``version``, ``etag``, ``size`` in bytes: of the version that was made, deleted or tagged.
    """

    kind: str
    key: str
    version: str
    etag: str
    size: int


class BucketChange(Struct, frozen=True):
    """The events of a change: all that happened at once, as by a move. Without events: a mark.

    ``position``: ``watch(since=position)`` goes on after this change.
    """

    position: int
    events: tuple[BucketEvent, ...] = ()


async def bucket_changes(
    buckets: Buckets, bucket: str, prefix: str, since: int | None, timeout_s: float
) -> AsyncGenerator[BucketChange, None]:
    """Yield a mark for the begin, and then the changes, in the order of the log."""
    index = await buckets.verified(timeout_s)
    end = index.state.position
    position = end if since is None else since
    if index.state.bucket(bucket) is None:
        raise BucketNotFound(bucket)
    if position > end:
        raise BadInput(f"the position {position} is behind the log's end, which is {end}")
    told_s = monotonic()
    yield BucketChange(position)
    try:
        async with aclosing(buckets.log.follow(position, timeout_s=timeout_s)) as entries:
            async for at, entry in entries:
                state = await _state_with(buckets, at, timeout_s)
                events = _events(changes_at(state, at, entry, bucket), prefix)
                position = at + 1
                if events or monotonic() - told_s >= WATCH_MARK_S:
                    yield BucketChange(position, events)
                    told_s = monotonic()
                elif position % FOLDED_AT_ONCE == 0:
                    await asyncio.sleep(0)
    except Trimmed as trimmed:
        raise WatchGap(position, trimmed.upto) from trimmed


async def _state_with(buckets: Buckets, position: int, timeout_s: float) -> BucketState:
    """Return the index with the entry at ``position``, in this life of the index or the next."""

    async def reach(index: BucketIndex, _: bool) -> BucketState:
        await index.reach(position + 1, timeout_s)
        return index.state

    try:
        return await buckets.in_session(reach, timeout_s)
    except IndexBehind:  # the next life begins at a snapshot
        return await buckets.in_session(reach, timeout_s)


def _events(changes: Sequence[ToldChange], prefix: str) -> tuple[BucketEvent, ...]:
    """Return the events with the prefix. Raises :class:`BucketNotFound` for a deleted bucket."""
    events = []
    for operation, result in changes:
        if isinstance(operation, DeleteBucket):
            raise BucketNotFound(operation.bucket)
        if not operation.key.startswith(prefix):
            continue
        assert result.version is not None, "a change of an object is about a version"
        match operation:
            case PutObject() | CopyObject() | CompleteUpload():
                kind = "put"
            case DeleteObject():
                kind = "delete"
            case _:
                kind = "tags"
        version = shown_version(result.version)
        events.append(BucketEvent(kind, operation.key, version, result.etag, result.size))
    return tuple(events)
