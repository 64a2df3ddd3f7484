"""Lives of the buckets' index over a log in memory, whose answers come when a test says so."""

import asyncio

import pytest

import ares
from ares.bucket.bucket_session import OPEN_COMMAND
from ares.bucket.command_results import CommandOutcome
from ares.bucket.commands import Command, CreateBucket, EndSession, encode_command
from ares.bucket.fold import BucketFold
from ares.bucket.memory_table import MemoryTable
from ares.client.buckets.bucket_index import BucketIndex
from ares.client.buckets.index_changes import ChangeAttempt

LIMIT_S = 10.0


class HeldLog:
    """A log in memory. ``held``: appends without an answer yet, with their positions."""

    def __init__(self):
        self.entries, self.held = [], []
        self.shown = 0
        self.holds = False
        self._grown = asyncio.Event()

    def append(self, entry, timeout_s=None):
        answer = asyncio.get_running_loop().create_future()
        self.held.append((answer, len(self.entries)))
        self.entries.append(entry)
        if not self.holds:
            self.release()
        return answer

    def release(self):
        """Answer all appends, and show their entries, in one turn of the event loop."""
        for answer, position in self.held:
            if not answer.done():
                answer.set_result(position)
        self.held.clear()
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
