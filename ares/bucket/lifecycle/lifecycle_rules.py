"""The rules of a bucket's configuration "lifecycle", by which versions and uploads expire.

A time is milliseconds since 1970, by the clocks of the clients. As with S3, a number of days after
a moment ends at the next midnight in UTC.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from ares.bucket.commands import BUCKET_CONFIGURATION_BYTES_MAX
from ares.bucket.index_records import PART_NUMBER_MAX, Bytes, Milliseconds, ObjectEntry
from ares.bucket.lifecycle.object_tags import OBJECT_TAGS_MAX, decode_tags
from ares.model.identity import KEY_BYTES_MAX

DAY_MS = 86_400_000
LIFECYCLE_RULES_MAX = 1000
DAYS_MAX = 100_000

Days = Annotated[int, Meta(ge=1, le=DAYS_MAX)]
Tag = tuple[str, str]


class LifecycleRule(Struct, frozen=True, array_like=True):
    """A rule. It covers objects with the prefix, all the tags, and a size between the bounds."""

    id: Annotated[str, Meta(max_length=255)] = ""
    enabled: bool = True
    prefix: Annotated[str, Meta(max_length=KEY_BYTES_MAX)] = ""
    tags: Annotated[tuple[Tag, ...], Meta(max_length=OBJECT_TAGS_MAX)] = ()
    size_above: Bytes | None = None
    size_below: Bytes | None = None
    expire_days: Days | None = None
    """Days from the begin of the newest version to the deletion."""

    expire_on_ms: Milliseconds | None = None
    """The time from which newest versions are deleted."""

    expire_markers: bool = False
    """Removal of a deletion below which no version is left."""

    noncurrent_days: Days | None = None
    """Days from the begin of the next newer version to the removal of a version."""

    noncurrent_kept: Annotated[int, Meta(ge=0, le=PART_NUMBER_MAX)] = 0
    """Number of versions, below the newest, that stay for longer."""

    abort_days: Days | None = None
    """Days from the begin of an upload to the end without an object."""

    old_form: bool = False
    """Mark of a rule in S3's older XML, with the prefix outside of a filter."""

    @property
    def has_effect(self) -> bool:
        """Return whether a version or an upload can expire by the rule."""
        days = (self.expire_days, self.expire_on_ms, self.noncurrent_days, self.abort_days)
        return self.expire_markers or any(each is not None for each in days)

    def covers(self, key: str, entry: ObjectEntry) -> bool:
        """Return whether the rule is in force for a version."""
        return (
            self.enabled
            and key.startswith(self.prefix)
            and (self.size_above is None or entry.size > self.size_above)
            and (self.size_below is None or entry.size < self.size_below)
            and (not self.tags or set(self.tags) <= decode_tags(entry.tags).items())
        )


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(
    Annotated[tuple[LifecycleRule, ...], Meta(max_length=LIFECYCLE_RULES_MAX)]
)


def encode_lifecycle(rules: Sequence[LifecycleRule]) -> bytes:
    """Return the configuration with the rules. Raises ValueError with the reason."""
    if any(not rule.has_effect for rule in rules):
        raise ValueError("a rule without an action")
    ids = [rule.id for rule in rules if rule.id]
    if len(set(ids)) < len(ids):
        raise ValueError("two rules with the same id")
    encoded = _encoder.encode(tuple(rules)) if rules else b""
    decode_lifecycle(encoded)
    if len(encoded) > BUCKET_CONFIGURATION_BYTES_MAX:
        raise ValueError(f"rules of more than {BUCKET_CONFIGURATION_BYTES_MAX} bytes")
    return encoded


def decode_lifecycle(encoded: bytes) -> tuple[LifecycleRule, ...]:
    """Return the rules in a configuration. Raises ValueError for other bytes."""
    return _decoder.decode(encoded) if encoded else ()


def end_of_days(begin_ms: int, days: int) -> int:
    """Return the first midnight that is at least ``days`` days after ``begin_ms``."""
    return -(-begin_ms // DAY_MS) * DAY_MS + days * DAY_MS


def expires_ms(
    rules: Sequence[LifecycleRule], key: str, entry: ObjectEntry
) -> tuple[LifecycleRule, int] | None:
    """Return the rule by which the newest version of a key expires first, and the time."""
    found: tuple[LifecycleRule, int] | None = None
    for rule in rules:
        if entry.marker or not rule.covers(key, entry):
            continue
        times = [rule.expire_on_ms]
        if rule.expire_days is not None:
            times.append(end_of_days(entry.ms, rule.expire_days))
        for time_ms in times:
            if time_ms is not None and (found is None or time_ms < found[1]):
                found = rule, time_ms
    return found
