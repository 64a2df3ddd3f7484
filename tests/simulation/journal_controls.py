"""Negative controls of servers with journals: each promises, or forgets, what it must not."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from ares.model.element import is_hollow
from ares.model.messages import GetData, GetTag, ListObjects, PutData, ReadConfig
from ares.operation.effects import Operation
from ares.replica.facts import TagsTrimmed
from ares.replica.hosting import Hosting
from ares.replica.replica import Replica
from ares.replica.unsynced import Unsynced
from ares.server.host import Host
from ares.store.journal import format as journal_format
from ares.store.journal import log as journal_log
from ares.store.journal.log import LogJournal
from ares.store.journal.segments import Anchor, Work
from ares.testing.sim.model_disk import ModelDisk


def replies_before_the_sync() -> Any:
    """No reply waits for the disk."""
    return patch.object(Host, "_waits", lambda *_: False)


def reads_that_show_what_is_not_durable() -> Any:
    """Only replies to those who changed something wait."""
    shown_by = Unsynced.shown_by
    reads = GetTag | GetData | ListObjects | ReadConfig
    return patch.object(
        Unsynced,
        "shown_by",
        lambda self, request: not isinstance(request, reads) and shown_by(self, request),
    )


def syncs_left_out() -> Any:
    """Every third one."""
    sync, counts = ModelDisk.sync, iter(range(1, 1 << 62))
    return patch.object(
        ModelDisk,
        "sync",
        lambda self, descriptor: sync(self, descriptor) if next(counts) % 3 else None,
    )


def compaction_that_forgets_what_was_trimmed() -> Any:
    """The highest dropped tag goes with the place that told it."""
    surviving = Replica.surviving

    def forgetful(self: Replica, fact: Any, place: int) -> Any:
        kept = surviving(self, fact, place)
        return None if isinstance(kept, TagsTrimmed) else kept

    return patch.object(Replica, "surviving", forgetful)


def places_gone_before_their_copies_are_durable() -> Any:
    """A file is removed when a batch is encoded, and not when it is on the disk."""

    class AtOnce(Work):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.discarded = Removed(self._disk)

    class Removed(list[Any]):
        def __init__(self, disk: Any) -> None:
            self._disk = disk

        def append(self, path: Any) -> None:
            self._disk.unlink(path)

    return patch.object(journal_log, "Work", AtOnce)


def torn_elements_taken_for_whole() -> Any:
    """What was not acknowledged is kept with whatever data is there."""
    return patch.object(journal_format, "_whole", lambda batch: True)


def zeros_that_begin_too_early() -> Any:
    """They cover the end of the batch that they are to follow."""
    step = journal_log.WrittenBatch

    def covered(head: Any, offset: int, buffers: Any, end: int, sequence: int, zeros: int) -> Any:
        return step(head, offset, buffers, end - 16 if zeros else end, sequence, zeros)

    return patch.object(journal_log, "WrittenBatch", covered)


def recovery_that_trusts_what_a_failed_sync_left() -> Any:
    """What can be read after a failed sync is synced again, and not written again."""
    kept = journal_format.kept_of_torn

    def trusting(*arguments: Any) -> Any:
        frames, _, end = kept(*arguments)
        return frames, end, end

    return patch.object(journal_log, "kept_of_torn", trusting)


@contextmanager
def recovery_that_shows_what_is_not_durable() -> Iterator[None]:
    """A restart reads what the last process wrote, and answers, without a sync."""
    settle = LogJournal._settle

    def hasty(self: LogJournal, *arguments: Any) -> None:
        with patch.object(ModelDisk, "sync", lambda self, descriptor: None):
            settle(self, *arguments)

    with patch.object(LogJournal, "_settle", hasty):
        yield


def rotten_elements_that_are_answered() -> Any:
    """Elements are not verified before they leave."""
    return patch.object(Hosting, "is_sound", lambda *arguments: True)


def rotten_elements_that_are_forgotten() -> Any:
    """With a place goes what rotted there, its tags too."""

    def is_sound(fact: Any) -> bool:
        return not isinstance(fact, PutData) or not is_hollow(fact.element)

    surviving = Replica.surviving

    def forgetful(self: Replica, fact: Any, place: int) -> Any:
        kept = surviving(self, fact, place)
        return kept if kept is not None and is_sound(kept) else None

    return patch.object(Replica, "surviving", forgetful)


def elements_that_are_not_rebuilt() -> Any:
    """What rotted stays missing."""

    def nothing(*arguments: Any) -> Operation[None]:
        return None
        yield

    return patch("ares.testing.sim.journal_server.rebuild_element", nothing)


def anchors_that_nobody_reads() -> Any:
    """A journal starts with the segments that are there."""
    return patch.object(LogJournal, "_anchored_bytes", lambda self, newest: 0)


def anchors_that_do_not_tell_how_long_a_segment_was() -> Any:
    """A last segment that was cut is taken for one that a crash tore."""
    anchored_bytes = LogJournal._anchored_bytes
    return patch.object(
        LogJournal, "_anchored_bytes", lambda self, newest: anchored_bytes(self, newest) and 0
    )


def anchors_written_at_a_start_only() -> Any:
    """A segment that begins is not told."""
    begin = Work._begin

    def silent(self: Work, step: Any) -> None:
        with patch.object(Anchor, "write", lambda self, number, size: None):
            begin(self, step)

    return patch.object(Work, "_begin", silent)


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
