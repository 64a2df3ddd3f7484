"""The errors of buckets: each tells the failure, the data that is safe, and the remedy."""

import shlex
from typing import TYPE_CHECKING

from ares.bucket.command_results import CommandOutcome
from ares.model.errors import AresError, ObjectNotFound, Uncertain

if TYPE_CHECKING:
    from ares.bucket.commands import KeepSnapshot
    from ares.client.buckets.bucket_values import ObjectInfo


class BucketsMissing(AresError):
    """The cluster has no domains for buckets."""

    def __init__(self) -> None:
        super().__init__(
            "this cluster has no buckets yet: `ares-cli bucket init` makes the domains for them. "
            "Nothing was changed"
        )


class BucketsExist(AresError):
    """The domains for buckets were made before. ``domain``: an existing domain."""

    kind = "Conflict"

    def __init__(self, domain: str, described: str) -> None:
        super().__init__(
            f"the domain {domain!r} exists already, with {described}: buckets can be made. "
            "Nothing was changed; `ares-cli reconfig --domain` moves a domain"
        )
        self.domain = domain


class BucketNotFound(AresError, KeyError):
    """No bucket has this name."""

    def __init__(self, bucket: str) -> None:
        super().__init__(bucket)
        self.bucket = bucket

    def __str__(self) -> str:
        return (
            f"there is no bucket {self.bucket!r}; `ares-cli bucket create "
            f"{shlex.quote(self.bucket)}` makes it. Nothing was changed"
        )


class BucketExists(AresError):
    """The name of a new bucket is taken."""

    kind = "Conflict"

    def __init__(self, bucket: str) -> None:
        super().__init__(f"bucket {bucket!r} exists already, and stays as it is")
        self.bucket = bucket


class BucketNotEmpty(AresError):
    """A bucket with objects or uploads is not deleted."""

    kind = "Conflict"

    def __init__(self, bucket: str) -> None:
        super().__init__(
            f"bucket {bucket!r} has objects or uploads, and stays as it is: delete them first"
        )
        self.bucket = bucket


class KeyNotFound(ObjectNotFound):
    """The bucket has no object of this key. ``domain`` is the bucket."""

    text = "there is no object {object!r} in bucket {domain!r}"

    def __str__(self) -> str:
        return self.text.format(object=self.object, domain=self.domain)


class UploadNotFound(AresError, KeyError):
    """No upload of this id is under way: it was completed or aborted, or was never begun."""

    def __init__(self, bucket: str, key: str, upload: str) -> None:
        super().__init__(upload)
        self.bucket, self.key, self.upload = bucket, key, upload

    def __str__(self) -> str:
        return (
            f"no upload {self.upload!r} of {self.key!r} in bucket {self.bucket!r} is under way: it "
            "was completed or aborted, or was never begun. Nothing was changed"
        )


class PreconditionFailed(AresError):
    """A condition of a change did not hold, and the change was not made.

    ``current``: the object in the way of the change; None for an absent object.
    """

    kind = "Conflict"

    def __init__(self, bucket: str, key: str, current: "ObjectInfo | None") -> None:
        there = "it is absent" if current is None else f"it has version {current.version}"
        super().__init__(
            f"the condition on {key!r} of bucket {bucket!r} does not hold: {there}. Nothing was "
            "changed; read it, and decide again"
        )
        self.bucket, self.key, self.current = bucket, key, current


class ChunkLost(AresError):
    """A chunk of an existing object cannot be found."""

    def __init__(self, bucket: str, key: str, chunk: str) -> None:
        super().__init__(
            f"chunk {chunk} of {key!r} in bucket {bucket!r} is not in the domain of blobs, though "
            "the index names it: its servers lost it, or it was deleted by hand. Other objects "
            "are whole; put this one again"
        )
        self.bucket, self.key, self.chunk = bucket, key, chunk


class ChangeUncertain(Uncertain):
    """A change may have been made or not, now or within seconds."""

    may_have_taken_effect = True

    def __init__(self, story: str) -> None:
        super().__init__(
            f"{story}: the change may be made or not, now or within seconds. Nothing "
            "acknowledged is lost; look at the object before you change it again"
        )


class ChangeRefused(AresError):
    """The index refused a change for a reason of size or of a quota."""

    def __init__(self, bucket: str, outcome: CommandOutcome) -> None:
        why = _REASONS.get(outcome, f"the index answered {outcome.name}")
        super().__init__(f"bucket {bucket!r} did not take the change: {why}. Nothing was changed")
        self.bucket, self.outcome = bucket, outcome


class IndexBehind(Uncertain):
    """The log was trimmed beyond the entries that this process has. ``first``: what is left."""

    may_have_taken_effect = True

    def __init__(self, first: int) -> None:
        super().__init__(
            f"this process was behind for long, and the log of the buckets begins at {first} now. "
            "Nothing acknowledged is lost; a change under way may be made or not, and cannot be "
            "asked for any more. Look at the object before you change it again: the next call goes "
            "on from a snapshot"
        )
        self.first = first


class IndexStopped(Uncertain):
    """The index of the buckets stopped in this process; the next call opens the index again."""

    may_have_taken_effect = True

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the index of the buckets stopped in this process: {why}. Nothing acknowledged is "
            "lost; a change under way may be made or not. Try again: the index is opened again"
        )


class RowsDistrusted(IndexStopped):
    """The rows of this process may be wrong. ``snapshot``: the one with different rows, if any."""

    def __init__(self, why: str, snapshot: "KeepSnapshot | None" = None) -> None:
        super().__init__(why)
        self.snapshot = snapshot


def is_uncertain(error: AresError) -> bool:
    """Return whether the error says that a change may have been made."""
    return isinstance(error, Uncertain) and error.may_have_taken_effect


_REASONS = {
    CommandOutcome.OVER_QUOTA: "its quota has no room for the bytes",
    CommandOutcome.BAD_PART: "a named part is missing, or was replaced: list the parts",
    CommandOutcome.BAD_PART_ORDER: "the parts are not named in ascending order",
    CommandOutcome.PART_TOO_SMALL: "each part has 5 MiB or more, except for the last",
    CommandOutcome.TOO_NESTED: "a part is a copy of copies of parts, more than 64 times",
    CommandOutcome.BAD_RANGE: "the range is not inside of the object",
    CommandOutcome.TOO_LARGE: "an object has at most 5 TiB",
    CommandOutcome.BUSY: "too many results of earlier changes are kept: try again in seconds",
    CommandOutcome.SETTLED: "the command came after it was given up",
}
