"""The words of a starting server: bytes read of the bytes to be read, of objects and of logs."""

import pytest

from ares.model.identity import ClientId
from ares.model.log_messages import LogRecord
from ares.model.units import KIB
from ares.server.hosted_logs import RestoredLogs
from ares.server.storage_process import start_reason
from ares.sharedlog.log_facts import ChainsKnown, RecordsTaken
from ares.store.port import NoJournal, Use
from tests.sharedlog.chains import chain
from tests.sharedlog.hosted import LogOnDisk

from .journal_node import log_journal
from .test_journal_contract import put


def written(directory, count):
    """Write a journal with a batch of 10 KiB for each fact."""
    journal = log_journal(directory)
    list(journal.recover())
    for number in range(count):
        assert journal.reserve(11 * KIB, Use.DATA) is not None
        journal.append(put(f"{number}", 1, b"z" * 10 * KIB), 11 * KIB)
        journal.commit(lambda error, moved: None)
    journal.close()


class OneByOne:
    """A join of one batch at a time."""

    def restore_run(self, frames, salt, sequence, place):
        return 0, 0


@pytest.mark.parametrize("joins", [False, True], ids=["facts", "the core"])
def test_the_progress_goes_up_to_all_bytes_of_all_places(tmp_path, joins):
    written(tmp_path / "journal", 30)
    journal, seen, told = log_journal(tmp_path / "journal"), [], []

    class Joined(OneByOne):
        def restore_batch(self, body, place):
            seen.append((journal.read_bytes, journal.to_read_bytes))
            told.append(start_reason(journal, None))
            return joins

    assert start_reason(journal, None) == "starting: its journal is opened"
    list(journal.recover(Joined()))
    assert len(seen) == 30
    assert seen == sorted(set(seen)), "each batch brings it forward"
    [total] = {total for _, total in seen}
    assert seen[-1] == (total, total)
    assert total == sum(journal.durable().values())
    assert told[-1] == f"starting: 100 % of its journal of {total / KIB:.1f} KiB is read"
    assert told[0].startswith("starting: 3 % of its journal of ")
    journal.close()


def test_a_discarded_place_is_not_read_and_does_not_count(tmp_path):
    written(tmp_path / "journal", 30)
    journal = log_journal(tmp_path / "journal")
    list(journal.recover())
    journal.discard(min(journal.places()))
    assert journal.reserve(KIB, Use.DATA) is not None
    journal.append(put("new", 1, b"z"), KIB)
    journal.commit(lambda error, moved: None)
    left = sum(journal.durable().values())
    journal.close()
    journal = log_journal(tmp_path / "journal")
    list(journal.recover())
    assert journal.read_bytes == journal.to_read_bytes == left
    journal.close()


def test_logs_are_counted_and_the_present_one_has_a_share():
    log = LogOnDisk(1)
    log.record_fact(ChainsKnown((chain(),)))
    for number in range(40):
        record = LogRecord(number, ClientId(1), number + 1, number + 1, (b"x" * 1000,))
        log.record_fact(RecordsTaken(log.live.configuration.id, (record,)))
        log.sync()
    log.start()
    restored = RestoredLogs(3, 12, log.hosted)
    total = log.journal.to_read_bytes
    assert start_reason(NoJournal(), restored) == (
        f"starting: 3 of its 12 logs are read, 100 % of the next of {total / KIB:.1f} KiB is read"
    )
    log.hosted.journal = None
    assert start_reason(NoJournal(), restored) == "starting: 3 of its 12 logs are read"
