"""A walk over a bucket, which finds expired versions and uploads.

The walk looks at one page at a time, and the index goes on between two pages. Each deletion
therefore names its version: a newest version only while it is the newest, an older version only
while a newer one is there. A version with tags is deleted only with these tags, for rules look at
them.
"""

from collections.abc import Iterator, Sequence

from ares.bucket.bucket_listing import ListRequest, list_uploads, list_versions
from ares.bucket.bucket_state import BucketState
from ares.bucket.commands import AbortUpload, Conditions, DeleteObject
from ares.bucket.conditions import tags_digest
from ares.bucket.index_records import ObjectEntry
from ares.bucket.lifecycle.lifecycle_rules import LifecycleRule, end_of_days, expires_ms

EXPIRY_ROWS_MAX = 250
EXPIRY_JUDGEMENTS_MAX = 20_000
"""Rows of a page, and judgements of a row by a rule: a bound of the work in a turn."""


class ExpiryWalk:
    """A walk over the versions of a bucket, and then over the uploads."""

    def __init__(self, bucket: str, rules: Sequence[LifecycleRule]) -> None:
        self._bucket = bucket
        self._rules = [rule for rule in rules if rule.enabled]
        rows = min(EXPIRY_ROWS_MAX, EXPIRY_JUDGEMENTS_MAX // max(len(rules), 1))
        first = ListRequest(bucket, limit=rows) if self._rules else None
        self._versions = self._uploads = first
        self._key = ""
        self._newer: ObjectEntry | None = None
        self._older = 0
        self._lonely: DeleteObject | None = None

    @property
    def has_ended(self) -> bool:
        return self._versions is None and self._uploads is None

    def take(self, state: BucketState, now_ms: int) -> list[DeleteObject | AbortUpload]:
        """Return the changes for a page, by the rules at the time ``now_ms``."""
        if self._versions is not None:
            return list(self._expired_versions(state, self._versions, now_ms))
        if self._uploads is not None:
            return list(self._expired_uploads(state, self._uploads, now_ms))
        return []

    def _expired_versions(
        self, state: BucketState, request: ListRequest, now_ms: int
    ) -> Iterator[DeleteObject]:
        page = list_versions(state, request)
        self._versions = page.following
        for key, entry, *_ in page.results:
            assert entry is not None, "without a delimiter there are versions only"
            if key != self._key:
                yield from self._lonely_deletion()
                self._key, self._newer, self._older = key, None, 0
            if self._newer is None:
                yield from self._newest(key, entry, now_ms)
            else:
                self._lonely = None
                self._older += 1
                yield from self._superseded(key, entry, self._newer.ms, now_ms)
            self._newer = entry
        if self._versions is None:
            yield from self._lonely_deletion()

    def _newest(self, key: str, entry: ObjectEntry, now_ms: int) -> Iterator[DeleteObject]:
        """Yield the deletion of an expired newest version; remember a mark of a deletion."""
        expires = expires_ms(self._rules, key, entry)
        if expires is not None and expires[1] <= now_ms:
            conditions = Conditions(version=entry.version, tags=_same_tags(entry))
            yield DeleteObject(self._bucket, key, conditions=conditions)
        if entry.marker and any(
            rule.covers(key, entry) and _removes_deletion(rule, entry, now_ms)
            for rule in self._rules
        ):
            self._lonely = DeleteObject(self._bucket, key, entry.version)

    def _lonely_deletion(self) -> Iterator[DeleteObject]:
        """Yield the removal of a mark of a deletion, with no version below.

        A version never comes below another: the mark stays alone, or has become an older version.
        """
        if self._lonely is not None:
            yield self._lonely
            self._lonely = None

    def _superseded(
        self, key: str, entry: ObjectEntry, since_ms: int, now_ms: int
    ) -> Iterator[DeleteObject]:
        """Yield the removal of an expired older version, older since ``since_ms``."""
        for rule in self._rules:
            days, kept = rule.noncurrent_days, rule.noncurrent_kept
            if days is None or self._older <= kept or not rule.covers(key, entry):
                continue
            if end_of_days(since_ms, days) <= now_ms:
                conditions = Conditions(tags=_same_tags(entry))
                yield DeleteObject(
                    self._bucket, key, entry.version, conditions=conditions, superseded=True
                )
                return

    def _expired_uploads(
        self, state: BucketState, request: ListRequest, now_ms: int
    ) -> Iterator[AbortUpload]:
        page = list_uploads(state, request)
        self._uploads = page.following
        for listed in page.results:
            assert listed.upload is not None, "without a delimiter there are uploads only"
            assert listed.begun is not None, "an upload has a begin"
            if any(
                rule.abort_days is not None
                and listed.key.startswith(rule.prefix)
                and end_of_days(listed.begun.ms, rule.abort_days) <= now_ms
                for rule in self._rules
            ):
                yield AbortUpload(self._bucket, listed.key, listed.upload)


def _same_tags(entry: ObjectEntry) -> bytes | None:
    return tags_digest(entry) if entry.tags else None


def _removes_deletion(rule: LifecycleRule, entry: ObjectEntry, now_ms: int) -> bool:
    """Return whether the mark of a deletion is removed when no version is left below."""
    days = rule.expire_days
    return rule.expire_markers or (days is not None and end_of_days(entry.ms, days) <= now_ms)
