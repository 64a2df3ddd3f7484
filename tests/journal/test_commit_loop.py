"""The commits of a journal: one at a time, for objects and logs alike.

See ares/server/commit_loop.py.
"""

import asyncio
import logging

import pytest

from ares.model.messages import Refused
from ares.server.commit_loop import DISK_FULL_REFUSAL, CommitLoop, FullDisk
from ares.server.hosted_log import PENDING_BYTES_MAX
from ares.store.journal.segment_journal import SegmentJournal
from tests.sharedlog.test_full_log import PLACE_BYTES, FullServer, fill

BROKEN = OSError(5, "the disk broke")


class LoopOwner:
    """An owner of a journal: facts come with :meth:`tell`, and commits end with :meth:`synced`.

    ``course`` has the events in their order.
    """

    def __init__(self):
        self.course, self.later, self.failures = [], [], []
        self.facts = 0
        self.done = None
        self.commits = CommitLoop(self, self, self.failures.append, "commit of a test")
        self.commits.committed = lambda: self.course.append("next")

    def call_soon(self, callback):
        self.later.append(callback)

    def time(self):
        return 0.0

    def add_fact(self):
        self.facts += 1
        self.commits.schedule()

    def step(self):
        """Run one turn of the event loop."""
        later, self.later = self.later, []
        for callback in later:
            callback()

    def synced(self, error=None):
        done, self.done = self.done, None
        done(error, ())

    def end_turn(self):
        self.course.append("turn")
        return self.facts > 0

    def begin_commit(self, done):
        self.course.append(f"commit {self.facts}")
        self.facts, self.done = 0, done

    def end_commit(self, moved):
        self.course.append("replies")
        self.commits.schedule()


def test_the_facts_of_a_turn_share_a_commit_and_the_next_begins_after_the_replies():
    owner = LoopOwner()
    owner.add_fact()
    owner.add_fact()
    owner.step()
    owner.add_fact()
    owner.step()
    assert owner.course == ["turn", "commit 2", "turn"]
    owner.synced()
    assert owner.course[3:] == ["replies"], "the loop may wait for the disk: the replies go first"
    owner.step()
    assert owner.course[4:] == ["turn", "commit 1", "next"]


@pytest.mark.parametrize("where", ["end_turn", "begin_commit", "end_commit", "disk"])
@pytest.mark.parametrize("error", [BROKEN, RuntimeError("a mistake")], ids=["disk", "mistake"])
def test_a_failure_is_told_once_and_ends_all_commits(where, error, monkeypatch):
    owner = LoopOwner()

    def fail(*_):
        raise error

    if where != "disk":
        monkeypatch.setattr(owner, where, fail)
    owner.add_fact()
    owner.step()
    if owner.done is not None:
        owner.synced(BROKEN if where == "disk" else None)
    assert len(owner.failures) == 1
    before = len(owner.course)
    owner.add_fact()
    owner.step()
    owner.commits.fail(BROKEN)
    assert (len(owner.failures), len(owner.course)) == (1, before)


async def test_a_wait_for_all_commits_ends_with_the_last_and_with_a_failure():
    for error in (None, BROKEN):
        owner = LoopOwner()
        await owner.commits.settle()
        owner.add_fact()
        settled = asyncio.create_task(owner.commits.settle())
        await asyncio.sleep(0)
        owner.step()
        await asyncio.sleep(0)
        assert not settled.done()
        owner.synced(error)
        owner.step()
        await settled


@pytest.mark.parametrize("gathered_at", [PENDING_BYTES_MAX, -1], ids=["turn", "message"])
def test_a_log_that_cannot_keep_its_facts_answers_nothing_more(monkeypatch, gathered_at):
    """The node counted the facts: the end of the next commit would have called them durable."""
    monkeypatch.setattr("ares.server.hosted_log.PENDING_BYTES_MAX", gathered_at)
    server = FullServer(8 * PLACE_BYTES, ("s0",))
    server.append(1)
    append = SegmentJournal.append

    def once(*_):
        monkeypatch.setattr(SegmentJournal, "append", append)
        raise RuntimeError("a mistake")

    monkeypatch.setattr(SegmentJournal, "append", once)
    with pytest.raises(AssertionError):
        server.append(2)
    assert len(server.failures) == 1
    with pytest.raises(AssertionError):
        server.append(3)
    assert (server.messages, len(server.failures)) == ([], 1)


def test_a_full_disk_is_told_once_by_a_log_too(caplog):
    server = FullServer(8 * PLACE_BYTES, ("s0",))
    with caplog.at_level(logging.WARNING):
        number, refused = fill(server)
        assert refused == Refused(refused.call, refused.reason, DISK_FULL_REFUSAL)
        server.append(number)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert server.logs.full


def test_space_is_back_when_no_log_was_refused_for_a_while(caplog):
    now = 100.0
    full = FullDisk(lambda: now, "logs", 10.0)
    assert full.is_quiet
    with caplog.at_level(logging.WARNING):
        full.refuse(1)
        now += 9.0
        full.take()
        full.refuse(2)
        assert (full.refuses, full.is_quiet) == (True, False)
        now += 10.0
        full.take()
        full.take()
    assert not full.refuses
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
