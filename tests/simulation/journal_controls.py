"""Negative controls of servers with journals.

Each control makes a promise too early, or forgets a fact.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from ares.engine.effects import Operation
from ares.model.element import is_hollow
from ares.model.messages import GetData, GetTag, ListObjects, PutData, ReadConfig
from ares.replica.configuration_state import ConfigurationState
from ares.replica.facts import TagsTrimmed
from ares.replica.group_commit import GroupCommit
from ares.replica.replica import Replica
from ares.server.storage_server import StorageServer
from ares.store.journal import format as journal_format
from ares.store.journal import segment_journal as journal_log
from ares.store.journal.segment_journal import SegmentJournal
from ares.store.journal.segments import Anchor, CommitWork
from ares.testing.sim.model_disk import ModelDisk


def replies_before_the_sync() -> Any:
    """Send replies without waiting for the disk."""
    return patch.object(StorageServer, "_waits", lambda *_: False)


def reads_that_show_what_is_not_durable() -> Any:
    """Make only replies to changes wait for the disk."""
    shown_by = GroupCommit.shown_by
    reads = GetTag | GetData | ListObjects | ReadConfig
    return patch.object(
        GroupCommit,
        "shown_by",
        lambda self, request: not isinstance(request, reads) and shown_by(self, request),
    )


def syncs_left_out() -> Any:
    """Leave out every third sync."""
    sync, counts = ModelDisk.sync, iter(range(1, 1 << 62))
    return patch.object(
        ModelDisk,
        "sync",
        lambda self, descriptor: sync(self, descriptor) if next(counts) % 3 else None,
    )


def compaction_that_forgets_what_was_trimmed() -> Any:
    """Forget the highest dropped tag with the place of the record."""
    surviving = Replica.surviving

    def forgetful(self: Replica, fact: Any, place: int) -> Any:
        kept = surviving(self, fact, place)
        return None if isinstance(kept, TagsTrimmed) else kept

    return patch.object(Replica, "surviving", forgetful)


def places_gone_before_their_copies_are_durable() -> Any:
    """Remove a file when a batch is encoded, and not when the batch is on the disk."""

    class AtOnce(CommitWork):
        @property
        def discarded(self) -> list[Any]:
            return []

        @discarded.setter
        def discarded(self, paths: list[Any]) -> None:
            for path in paths:
                self._disk.unlink(path)

    return patch.object(journal_log, "CommitWork", AtOnce)


def torn_elements_taken_for_whole() -> Any:
    """Keep an unacknowledged element with any data on the disk."""
    return patch.object(journal_format, "_whole", lambda batch: True)


def zeros_that_begin_too_early() -> Any:
    """Let the zeros cover the end of the batch before them."""
    step = journal_log.WrittenBatch

    def covered(head: Any, offset: int, buffers: Any, end: int, sequence: int, zeros: int) -> Any:
        return step(head, offset, buffers, end - 16 if zeros else end, sequence, zeros)

    return patch.object(journal_log, "WrittenBatch", covered)


def recovery_that_trusts_what_a_failed_sync_left() -> Any:
    """Sync readable data again after a failed sync, instead of writing the data again."""
    kept = journal_format.kept_of_torn

    def trusting(*arguments: Any) -> Any:
        frames, _, end = kept(*arguments)
        return frames, end, end

    return patch.object(journal_log, "kept_of_torn", trusting)


@contextmanager
def recovery_that_shows_what_is_not_durable() -> Iterator[None]:
    """Make a restart read the last process's data, and answer, without a sync."""
    settle = SegmentJournal._settle

    def hasty(self: SegmentJournal, *arguments: Any) -> None:
        with patch.object(ModelDisk, "sync", lambda self, descriptor: None):
            settle(self, *arguments)

    with patch.object(SegmentJournal, "_settle", hasty):
        yield


def rotten_elements_that_are_answered() -> Any:
    """Send elements without verification."""
    return patch.object(ConfigurationState, "is_sound", lambda *arguments: True)


def rotten_elements_that_are_forgotten() -> Any:
    """Forget a rotten element, tag included, with the place."""

    def is_sound(fact: Any) -> bool:
        return not isinstance(fact, PutData) or not is_hollow(fact.element)

    surviving = Replica.surviving

    def forgetful(self: Replica, fact: Any, place: int) -> Any:
        kept = surviving(self, fact, place)
        return kept if kept is not None and is_sound(kept) else None

    return patch.object(Replica, "surviving", forgetful)


def elements_that_are_not_rebuilt() -> Any:
    """Leave rotten elements missing."""

    def nothing(*arguments: Any) -> Operation[None]:
        return None
        yield

    return patch("ares.testing.sim.journal_server.rebuild_element", nothing)


def anchors_that_nobody_reads() -> Any:
    """Start a journal with the existing segments, without reading the anchor."""
    return patch.object(SegmentJournal, "_anchored_bytes", lambda self, newest: 0)


def anchors_that_do_not_tell_how_long_a_segment_was() -> Any:
    """Take a last segment that was cut for a segment torn by a crash."""
    anchored_bytes = SegmentJournal._anchored_bytes
    return patch.object(
        SegmentJournal, "_anchored_bytes", lambda self, newest: anchored_bytes(self, newest) and 0
    )


def anchors_written_at_a_start_only() -> Any:
    """Leave the begin of a segment out of the anchor."""
    begin = CommitWork._begin

    def silent(self: CommitWork, step: Any) -> None:
        with patch.object(Anchor, "write", lambda self, number, size: None):
            begin(self, step)

    return patch.object(CommitWork, "_begin", silent)


ROT_CONTROLS = (
    rotten_elements_that_are_answered,
    rotten_elements_that_are_forgotten,
    elements_that_are_not_rebuilt,
)

ANCHOR_CONTROLS = (
    anchors_that_nobody_reads,
    anchors_that_do_not_tell_how_long_a_segment_was,
    anchors_written_at_a_start_only,
)

CRASH_CONTROLS = (
    replies_before_the_sync,
    reads_that_show_what_is_not_durable,
    syncs_left_out,
    compaction_that_forgets_what_was_trimmed,
    places_gone_before_their_copies_are_durable,
    torn_elements_taken_for_whole,
    zeros_that_begin_too_early,
    recovery_that_trusts_what_a_failed_sync_left,
    recovery_that_shows_what_is_not_durable,
)

JOURNAL_CONTROLS = {
    **{control.__name__.replace("_", " "): (control, "journal") for control in CRASH_CONTROLS},
    **{control.__name__.replace("_", " "): (control, "rot") for control in ROT_CONTROLS},
    **{control.__name__.replace("_", " "): (control, "gone") for control in ANCHOR_CONTROLS},
}
