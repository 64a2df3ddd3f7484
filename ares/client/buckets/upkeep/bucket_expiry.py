"""The expiry of objects and uploads, by the rules of their buckets.

The live session with the lowest number walks over the buckets with rules, a page at a time. Objects
have times by the clocks of their clients: those of a clock a day behind expire a day early. The
present time is the earliest that a live session tells: a clock ahead, of several, deletes nothing
early.
"""

import asyncio
import logging
import secrets

from ares.bucket.commands import AbortUpload, DeleteObject, ObjectBatch
from ares.bucket.lifecycle.expiry_walk import ExpiryWalk
from ares.bucket.lifecycle.lifecycle_rules import decode_lifecycle
from ares.bucket.row_keys import BUCKET_ROWS, after
from ares.client.buckets.bucket_index import BucketIndex, now_ms
from ares.client.buckets.index_changes import INVOCATION_BYTES
from ares.model.errors import AresError
from ares.platform import tasks

EXPIRY_FIRST_S = 60.0
EXPIRY_PASS_S = 3600.0
"""Seconds before the first pass over the buckets, and between passes."""

EXPIRY_PAUSE_S = 0.05
"""Seconds between pages: other work goes on."""

EXPIRY_ANSWER_S = 30.0
BUCKETS_AT_ONCE = 100

log = logging.getLogger(__name__)


class BucketExpiry:
    """The expiry by a life of the index."""

    def __init__(self, index: BucketIndex) -> None:
        self._index = index

    async def keep_up(self) -> None:
        """Pass over the buckets from time to time, as long as this session is the oldest."""
        await asyncio.sleep(EXPIRY_FIRST_S)
        while True:
            with tasks.supervised("expiry of objects"):
                try:
                    await self.pass_over()
                except AresError as error:
                    log.info("expired objects of buckets stay for now: %s", error)
            await asyncio.sleep(EXPIRY_PASS_S)

    async def pass_over(self) -> None:
        """Delete the objects and end the uploads that have expired in any bucket."""
        first = BUCKET_ROWS
        while self._index.is_oldest:
            table = self._index.state.table
            rows = table.scan(first, after(BUCKET_ROWS), BUCKETS_AT_ONCE)
            for row, _ in rows:
                await self._expire(row[len(BUCKET_ROWS) :].decode())
            if not rows:
                return
            first = rows[-1][0] + b"\0"
            await asyncio.sleep(EXPIRY_PAUSE_S)

    async def _expire(self, bucket: str) -> None:
        """Walk over a bucket until its rules change; rules that cannot be read delete nothing."""

        def configured() -> bytes:
            return self._index.state.configuration(bucket, "lifecycle")

        configuration = configured()
        try:
            rules = decode_lifecycle(configuration)
        except ValueError as error:
            log.warning("the rules of expiry of bucket %s cannot be read: %s", bucket, error)
            return
        walk = ExpiryWalk(bucket, rules)
        while not walk.has_ended and self._index.is_oldest and configured() == configuration:
            changes = walk.take(self._index.state, self._index.earliest_ms(now_ms()))
            await self._change(changes)
            await asyncio.sleep(EXPIRY_PAUSE_S)

    async def _change(self, changes: list[DeleteObject | AbortUpload]) -> None:
        """Give the changes to the log, each with an id: watchers find the result by the id."""
        deletions = tuple(each for each in changes if isinstance(each, DeleteObject))
        given: list[ObjectBatch | AbortUpload] = [ObjectBatch(deletions)] if deletions else []
        given += [each for each in changes if isinstance(each, AbortUpload)]
        for each in given:
            invocation = secrets.token_bytes(INVOCATION_BYTES)
            await self._index.commit(each, invocation, EXPIRY_ANSWER_S)
