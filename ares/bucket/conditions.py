"""The judgement of a condition: a function of the present entry."""

from blake3 import blake3

from ares.bucket.command_results import CommandOutcome
from ares.bucket.commands import Conditions
from ares.bucket.index_records import ObjectEntry


def judge(conditions: Conditions, entry: ObjectEntry | None) -> CommandOutcome:
    """Return DONE if all conditions hold for the entry, else S3's failure.

    A deletion counts as absent. A condition on an entry is NO_SUCH_KEY without an entry.
    """
    if entry is None or entry.marker:
        needs = (
            conditions.present
            or conditions.etags
            or conditions.version is not None
            or conditions.size is not None
            or conditions.tags is not None
        )
        return CommandOutcome.NO_SUCH_KEY if needs else CommandOutcome.DONE
    modified_after, until = conditions.modified_after_ms, conditions.modified_until_ms
    holds = (
        not conditions.absent
        and (not conditions.etags or entry.etag in conditions.etags)
        and entry.etag not in conditions.etags_out
        and conditions.version in (None, entry.version)
        and conditions.size in (None, entry.size)
        and (modified_after is None or entry.ms > modified_after)
        and (until is None or entry.ms <= until)
        and (conditions.tags is None or conditions.tags == tags_digest(entry))
    )
    return CommandOutcome.DONE if holds else CommandOutcome.CONDITION_FAILED


def tags_digest(entry: ObjectEntry) -> bytes:
    """Return 16 bytes for the tags of a version."""
    return blake3(entry.tags).digest(16)
