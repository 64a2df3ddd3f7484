"""Logs over the real journal, in places so small as to make standings and discards frequent.

A restart finds all facts.
"""

import pytest

from ares.model.errors import StoreDamaged
from ares.model.identity import ClientId
from ares.model.log_messages import LogRecord
from ares.server.hosted_log import DISCARDED_MAX
from ares.sharedlog.log_facts import (
    ChainSealed,
    ChainSegmentState,
    ChainsKnown,
    LogSnapshot,
    LogTrimmed,
    RecordsTaken,
)
from ares.store.journal.segment_journal import UNLINKED_MAX
from ares.testing.sim.run import drawn, run_plan
from tests.simulation.log_disk_controls import standings_before_what_they_tell

from .chains import chain
from .hosted import PLACE_BYTES, LogOnDisk

SEEDS, STEPS = 80, 150


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_restart_finds_what_was_there(seed):
    log = LogOnDisk(seed)
    for _ in range(STEPS):
        log.anything()
        if log.rng.random() < 0.05:
            log.crash()
            log.check()
        elif log.rng.random() < 0.05:
            log.sync()
            log.check()
            log.start()
            log.check()
    assert log.standings > 3
    assert log.discarded > 0


@pytest.mark.parametrize(
    "told",
    [
        RecordsTaken(b"other", ()),
        ChainSealed(b"other"),
        LogSnapshot(
            (), (ChainSegmentState(b"other", False, None, None, False, False, 0, 0),), 0, 0
        ),
    ],
    ids=lambda told: type(told).__name__,
)
@pytest.mark.parametrize("chains", [(), (chain(),)], ids=["at the beginning", "later"])
def test_facts_about_a_chain_that_nothing_introduced_are_damage(told, chains):
    """A start is refused in words (once a KeyError)."""
    log = LogOnDisk(1)
    if chains:
        log.record_fact(ChainsKnown(chains))
    log.hosted._put(log.journal, told)
    log.commit()
    log.sync()
    with pytest.raises(StoreDamaged, match="no earlier record introduces this chain"):
        log.start()


def test_a_control_with_standings_before_what_they_tell_ends_in_a_violation():
    """A start meets a standing of a chain before the chain."""
    with standings_before_what_they_tell():
        violations = (run_plan(drawn(seed, "log")).violation for seed in range(200))
        assert any("no earlier record introduces this chain" in (why or "") for why in violations)


def of(count, bytes):
    """Make a log of `count` records with a single entry each."""
    log = LogOnDisk(1)
    log.record_fact(ChainsKnown((chain(),)))
    for number in range(count):
        record = LogRecord(number, ClientId(1), number + 1, number + 1, (bytes * b"x",))
        log.record_fact(RecordsTaken(log.live.configuration.id, (record,)))
        log.sync()
    return log


@pytest.mark.parametrize("bytes", [100, PLACE_BYTES // 2, PLACE_BYTES])
def test_a_trim_gives_back_its_places_at_once_however_many_and_however_large_its_records(bytes):
    """This needs no appends, and no record is large enough for a place without a standing."""
    log = of(400, bytes)
    before = len(log.journal.places())
    assert before > 40
    log.record_fact(LogTrimmed(400))
    log.sync()
    places = len(log.journal.places())
    assert places <= before // DISCARDED_MAX + 1, (
        "what tells of the places that are gone takes room, too"
    )
    assert sum(name.endswith(".log") for name in log.disk.files) == places + 1
    log.check()
    log.start()
    log.check()
    assert log.state.trimmed == log.state.segments[chain().id].length == 400


def with_large_standings(count):
    """Make a log of ``count`` records whose standings leave no room for a record beside them.

    A standing is in every second place, but once in two places in a row.
    """
    log, others = LogOnDisk(1), ("s1", "s2", "s3")
    log.record_fact(ChainsKnown((*(chain(at, 0, others) for at in range(20)), chain(20))))
    for number in range(count):
        record = LogRecord(number, ClientId(1), number + 1, number + 1, (1000 * b"x",))
        log.record_fact(RecordsTaken(log.live.configuration.id, (record,)))
        log.sync()
        place = log.hosted.place
        while number == 2 and log.hosted.place == place:
            log.record_fact(ChainsKnown(()))
            log.sync()
    return log


def test_many_places_are_given_back_in_parts_up_to_a_standing():
    """A start after a crash behind the first part finds a standing first."""
    first = set()
    for steps in range(6):
        log = with_large_standings(40)
        assert DISCARDED_MAX < len(log.hosted.standings) < len(log.journal.places())
        log.record_fact(LogTrimmed(40))
        for _ in range(steps):
            if log.background.jobs:
                log.background.step()
        log.start()
        assert log.state.trimmed == (40 if steps else 0)
        first.add(min(log.journal.durable()))
    assert len(first) > 2, "the places go in parts"


def with_few_standings(count, monkeypatch):
    """Make a log with ``count`` places in a row without a standing, as after a full disk."""
    log = of(10, PLACE_BYTES // 2)
    with monkeypatch.context() as patch:
        patch.setattr(log.journal, "seal", lambda place, room=0: False)
        for number in range(10, 10 + count):
            record = LogRecord(number, ClientId(1), number + 1, number + 1, (PLACE_BYTES * b"x",))
            log.record_fact(RecordsTaken(log.live.configuration.id, (record,)))
            log.sync()
    assert len(set(log.journal.places()) - set(log.hosted.standings)) >= count
    for _ in range(3):
        log.record_fact(ChainsKnown(()))
        log.sync()
    return log


@pytest.mark.parametrize("count", [DISCARDED_MAX + 8, 8 * DISCARDED_MAX])
def test_places_without_a_standing_are_given_back_together(count, monkeypatch):
    log = with_few_standings(count, monkeypatch)
    log.record_fact(LogTrimmed(10 + count))
    log.sync()
    assert len(log.journal.places()) <= 2
    log.check()
    log.start()
    log.check()
    assert log.state.trimmed == log.live.length == 10 + count


def test_a_commit_removes_few_files_however_many_places_are_given_back(monkeypatch):
    """Later commits remove the rest, without further facts; so does a start."""
    for steps in (None, 3, 5):
        log = with_few_standings(8 * UNLINKED_MAX, monkeypatch)
        log.record_fact(LogTrimmed(10 + 8 * UNLINKED_MAX))
        removed, unlink = [], log.disk.unlink

        def counted(path, removed=removed, unlink=unlink):
            removed[-1] += 1
            unlink(path)

        monkeypatch.setattr(log.disk, "unlink", counted)
        while log.background.jobs and (steps is None or len(removed) < steps):
            removed.append(0)
            log.background.step()
        assert max(removed, default=0) <= UNLINKED_MAX
        monkeypatch.undo()
        log.start()
        log.check()
        assert sum(name.endswith(".log") for name in log.disk.files) <= 3


def test_a_start_while_places_without_a_standing_go_finds_a_standing(monkeypatch):
    first = set()
    for steps in range(6):
        log = with_few_standings(DISCARDED_MAX + 8, monkeypatch)
        log.record_fact(LogTrimmed(50))
        for _ in range(steps):
            if log.background.jobs:
                log.background.step()
        log.start()
        assert log.state.trimmed == (50 if steps else 0)
        assert log.live.length == 50
        first.add(min(log.journal.durable()))
    assert len(first) > 1


def test_memory_keeps_what_is_in_the_newest_places_only():
    """This includes entries of a client's appends after a restart.

    The restart does not know how far other nodes have these entries.
    """
    log = of(400, 100)
    for start in (log.live.settled, lambda length: log.start()):
        start(log.live.length)
        spans = log.live.entries._spans
        assert sum(span.end - span.kept for span in spans) < 20
    log = of(200, 100)
    for upto in range(200):
        log.live.settled(upto)
        record = LogRecord(200 + upto, ClientId(1), 201 + upto, 201 + upto, (b"x",))
        log.record_fact(RecordsTaken(log.live.configuration.id, (record,)))
        log.sync()
    log.start()
    assert log.live.committed > 150
    assert len(log.live.rows.get(ClientId(1)).places) <= log.live.length - log.live.committed + 1
