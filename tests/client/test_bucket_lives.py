"""Lives of the buckets' index over a log in memory, with answers at the word of a test."""

import asyncio

import pytest

import ares
from ares.bucket.bucket_session import OPEN_COMMAND
from ares.bucket.command_results import CommandOutcome
from ares.bucket.commands import Command, CreateBucket, EndSession, encode_command
from ares.bucket.fold import BucketFold, UnknownLevel
from ares.bucket.memory_table import MemoryTable
from ares.bucket.port import RowTableFailed
from ares.client.buckets.bucket_index import BucketIndex
from ares.client.buckets.index_changes import ChangeAttempt
from ares.model.errors import AppendUncertain

LIMIT_S = 10.0


class HeldLog:
    """A log in memory. ``held``: appends without an answer yet, with their positions.

    ``loses``: the answers of appends are lost, and their entries do not come.
    """

    def __init__(self):
        self.entries, self.held = [], []
        self.shown = 0
        self.holds = self.loses = False
        self._grown = asyncio.Event()

    def append(self, entry, timeout_s=None):
        answer = asyncio.get_running_loop().create_future()
        self.entries.append(entry)
        if self.loses:
            answer.set_exception(AppendUncertain("the answer was lost"))
            return answer
        self.held.append((answer, len(self.entries) - 1))
        if not self.holds:
            self.release()
        return answer

    def release(self):
        """Answer all appends, and show their entries, in one turn of the event loop."""
        for answer, position in self.held:
            if not answer.done():
                answer.set_result(position)
        self.held.clear()
        self.show()

    def show(self):
        self.shown = len(self.entries)
        self._grown.set()

    async def follow(self, position):
        while True:
            while position < self.shown:
                yield position, self.entries[position]
                position += 1
            self._grown.clear()
            await self._grown.wait()

    async def tail(self, timeout_s=None):
        return len(self.entries)


@pytest.fixture
async def log():
    return HeldLog()


@pytest.fixture
async def index(log):
    opened = BucketIndex(log, BucketFold(MemoryTable()))
    await opened.open(LIMIT_S)
    yield opened
    opened.fail(ares.IndexStopped("the test is over"))


async def turns():
    """Let all that can go on go on."""
    for _ in range(20):
        await asyncio.sleep(0)


def creation(index, name="photos"):
    """Begin to create a bucket, and return the answer as a future."""
    attempt = ChangeAttempt(index, b"i" * 16, True, LIMIT_S)
    return asyncio.ensure_future(attempt.give(CreateBucket(name)))


async def test_a_change_that_was_made_is_told_though_the_session_ends_in_the_same_turn(log, index):
    rival = await log.append(encode_command(OPEN_COMMAND))
    log.holds = True
    answer = creation(index)
    await turns()
    ending = EndSession(index.session.number, len(log.entries) - 1)
    log.entries.append(encode_command(Command(rival, 1, 1, 0, ending)))
    log.release()
    assert (await answer).result.outcome is CommandOutcome.DONE
    assert isinstance(index.failure, ares.SessionEnded)


@pytest.mark.parametrize("failure", [RowTableFailed("the disk is full"), UnknownLevel("level 9")])
async def test_a_failure_of_the_fold_leaves_a_change_uncertain(log, index, monkeypatch, failure):
    def failing(entry):
        raise failure

    monkeypatch.setattr(index.fold, "apply", failing)
    with pytest.raises(ares.IndexStopped, match=str(failure)) as told:
        await creation(index)
    assert told.value.may_have_taken_effect
    assert len(log.entries) == 2, "the command is in the log"


# -- opening ---------------------------------------------------------------------------------------


async def test_an_opening_ends_though_the_log_takes_no_session(log):
    log.loses = True
    index = BucketIndex(log, BucketFold(MemoryTable()))
    with pytest.raises(ares.Unavailable, match=r"took no session for 0\.2 s; nothing was changed"):
        await asyncio.wait_for(index.open(0.2), LIMIT_S)
    index.fail(ares.IndexStopped("the test is over"))


async def test_a_client_behind_has_the_log_before_its_session(log):
    """Beats begin after the process has the log: an earlier session would be taken for dead."""
    await log.append(encode_command(OPEN_COMMAND))
    before = len(log.entries)
    log.shown = 0
    index = BucketIndex(log, BucketFold(MemoryTable()))
    opening = asyncio.ensure_future(index.open(LIMIT_S))
    await turns()
    assert len(log.entries) == before
    log.release()
    await opening
    assert index.session.number == before
    index.fail(ares.IndexStopped("the test is over"))


async def test_a_session_that_was_ended_at_its_opening_is_told(log, index):
    log.holds = True
    other = BucketIndex(log, BucketFold(MemoryTable()))
    opening = asyncio.ensure_future(other.open(LIMIT_S))
    await turns()
    number = len(log.entries) - 1
    ending = EndSession(number, number)
    log.entries.append(encode_command(Command(index.session.number, 1, 1, 0, ending)))
    log.show()
    await turns()  # the answer of the append comes late
    log.release()
    with pytest.raises(ares.SessionEnded):
        await opening
