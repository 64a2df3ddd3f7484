"""The choice between event loop and thread for syncs (ares/store/journal/writer.py).

Both keep the same promises to the submitter of a job.
"""

import asyncio
import errno
import itertools
import time

import pytest

from ares.model.units import KIB
from ares.platform import processor_waits
from ares.platform.processor_waits import ProcessorWaits
from ares.store.journal import writer as journal_writer
from ares.store.journal.disk import Disk
from ares.store.journal.format import ALIGNMENT
from ares.store.journal.segment_journal import RUN_SHARE, SMALL_BATCH_BYTES
from ares.store.journal.segments import SHORT_BYTES_MAX
from ares.store.journal.writer import (
    AWAY_MAX_S,
    JOBS_REMEMBERED,
    LOST_SHARE_MAX,
    QUICK_S,
    InlineWriter,
    WriterThread,
)

from .journal_node import AtOnce, ClosingDisk, Node, log_journal, put

QUICK, SLOW = 0.0003, 2 * JOBS_REMEMBERED * QUICK_S


class Bench:
    """A writer with a thread, a loop and a disk that the test controls.

    The disk takes ``takes`` seconds.
    """

    def __init__(self):
        self.now = self.hindered_s = 0.0
        self.takes = QUICK
        self.thread = AtOnce(waiting=True)
        self.soon = []
        self.done = []
        waits = lambda: self.hindered_s  # noqa: E731
        self.writer = InlineWriter(
            self.thread, lambda *call: self.soon.append(call), lambda: self.now, waits, waits
        )

    def sync(self):
        self.now += self.takes

    def fail(self):
        raise OSError(errno.EIO, "broken")

    def submit(self, job=None, short=True, name=None):
        """Submit a job; return whether the thread got it. No callback may run yet."""
        ended, handed = len(self.done), len(self.thread.jobs)
        self.writer.submit(
            job or self.sync, lambda error: self.done.append(error if name is None else name), short
        )
        assert len(self.done) == ended
        return len(self.thread.jobs) > handed

    def turn(self):
        self.thread.step()
        soon, self.soon = self.soon, []
        for callback, *arguments in soon:
            callback(*arguments)

    def jobs(self, count, takes=QUICK, short=True):
        """Submit jobs sequentially; return, for each, whether the thread got it."""
        self.takes, handed = takes, []
        for _ in range(count):
            handed.append(self.submit(short=short))
            self.turn()
        return handed

    def away_s(self, idle=QUICK_S):
        """Return how long a quick disk is left to the thread, with a job every ``idle`` seconds."""
        begin, self.takes = self.now, QUICK
        while self.submit():
            self.turn()
            self.now += idle
            assert self.now - begin < 10 * AWAY_MAX_S
        self.turn()
        return self.now - begin

    def waited(self, hiccup, nth, total=200.0, idle=0.005):
        """Return the number and the sum of the loop's waits.

        The disk takes ``hiccup`` seconds every ``nth`` time, and is quick otherwise.
        """
        end, number, waits = self.now + total, 0, []
        while self.now < end:
            number += 1
            self.takes = hiccup if number % nth == 0 else QUICK
            if not self.submit() and self.takes == hiccup:
                waits.append(hiccup)
            self.turn()
            self.now += idle
        return len(waits), sum(waits)


@pytest.fixture
def bench():
    return Bench()


@pytest.fixture
def quick(bench):
    bench.jobs(1)
    bench.done.clear()
    return bench


def test_the_loop_waits_for_a_disk_that_was_seen_to_be_quick(bench):
    assert bench.jobs(51) == [True] + [False] * 50
    assert bench.done == [None] * 51


def test_a_slow_disk_is_left_to_the_thread(bench):
    assert all(bench.jobs(1000, 2 * QUICK_S))


def test_a_slow_sync_moves_syncs_to_the_thread_and_a_quick_sync_brings_them_back(
    quick,
):
    assert quick.jobs(3, SLOW) == [False, True, True]
    assert quick.away_s() == pytest.approx(SLOW / LOST_SHARE_MAX, rel=0.1)
    assert quick.jobs(5) == [False] * 5


def test_many_that_are_a_little_slow_do_so_too_and_all_of_them_count(quick):
    handed = quick.jobs(JOBS_REMEMBERED, 2 * QUICK_S)
    assert not handed[0]
    assert handed[-1]
    assert quick.away_s() > 0.9 * JOBS_REMEMBERED * QUICK_S / LOST_SHARE_MAX, (
        "as after one that took as long as all of these"
    )


def test_a_little_slow_now_and_then_is_quick(quick):
    for _ in range(100):
        quick.jobs(10)
        assert quick.jobs(1, 3 * QUICK_S) == [False]


def test_it_does_not_come_back_while_the_disk_is_slow(quick):
    quick.jobs(1, SLOW)
    quick.now += SLOW / LOST_SHARE_MAX
    assert all(quick.jobs(1000, SLOW))
    assert quick.jobs(2) == [True, False]


def test_what_was_quick_before_the_time_was_over_does_not_count(quick):
    quick.jobs(1, SLOW)
    assert quick.jobs(10) == [True] * 10
    quick.now += SLOW / LOST_SHARE_MAX
    assert quick.jobs(3, SLOW) == [True] * 3


def test_a_long_job_does_not_bring_it_back(quick):
    quick.jobs(1, SLOW)
    quick.now += SLOW / LOST_SHARE_MAX
    quick.jobs(3, short=False)
    assert quick.submit()


@pytest.mark.parametrize("nth", [50, 200, 1000])
@pytest.mark.parametrize("hiccup", [2 * JOBS_REMEMBERED * QUICK_S, 0.2])
def test_the_loop_loses_little_of_its_time_to_hiccups(quick, hiccup, nth):
    often, waited = quick.waited(hiccup, nth)
    assert often > 1, "it does come back"
    assert waited <= 200.0 * LOST_SHARE_MAX + hiccup


def test_the_measure_would_show_a_loop_that_comes_back_at_once(quick, monkeypatch):
    monkeypatch.setattr(journal_writer, "AWAY_MAX_S", 0.0)
    assert quick.waited(0.2, 50)[1] > 10 * 200.0 * LOST_SHARE_MAX


def test_the_loop_tries_again_some_day_however_long_it_waited(quick):
    quick.jobs(1, AWAY_MAX_S)
    assert quick.away_s(idle=1.0) == pytest.approx(AWAY_MAX_S, rel=0.01)


def test_a_clock_that_goes_back_makes_up_for_nothing(quick):
    quick.jobs(1, -1.0)
    assert quick.jobs(2, SLOW) == [False, True]


def test_long_jobs_are_the_thread_s_whatever_they_take(quick):
    assert all(quick.jobs(5, short=False))
    quick.jobs(5, SLOW, short=False)
    assert quick.jobs(1) == [False], "they say nothing about a sync"


def test_a_wait_for_a_processor_is_not_the_disk_s(quick):
    def hindered(job):
        def wait():
            job()
            quick.now += SLOW
            quick.hindered_s += SLOW

        return wait

    assert not any(quick.submit(hindered(quick.sync)) or quick.turn() for _ in range(100))
    quick.takes = SLOW
    assert not quick.submit(hindered(quick.sync))
    quick.turn()
    assert quick.submit(), "it was slow besides"
    quick.turn()
    quick.takes, quick.now = QUICK, quick.now + 2 * SLOW / LOST_SHARE_MAX
    assert quick.submit(hindered(quick.sync)), "in the thread"
    quick.turn()
    assert not quick.submit(), "that was quick"


def test_waits_are_looked_at_again_only_after_a_job_that_took_long():
    bench, looks = Bench(), []
    bench.writer = InlineWriter(
        bench.thread,
        lambda *call: bench.soon.append(call),
        lambda: bench.now,
        lambda: looks.append(1) or 0.0,
        lambda: 0.0,
    )
    bench.jobs(101)
    assert len(looks) == 100
    bench.jobs(1, 2 * QUICK_S)
    assert len(looks) == 102


def test_jobs_are_done_in_order(quick):
    order = []
    assert quick.submit(lambda: order.append("long"), short=False, name="long")
    assert quick.submit(lambda: order.append("short"), name="short"), (
        "one is under way in the thread"
    )
    quick.turn()
    assert order == quick.done == ["long", "short"]
    assert not quick.submit(), "none is"


def test_a_job_that_fails_on_the_loop_is_told_as_in_the_thread(quick):
    assert not quick.submit(quick.fail)
    quick.turn()
    assert quick.done[-1].errno == errno.EIO
    assert not quick.submit(lambda: {}["bug"])
    quick.turn()
    assert isinstance(quick.done[-1], OSError)
    assert "KeyError" in str(quick.done[-1])


def test_no_job_reports_after_the_close(quick):
    quick.submit()
    ended = len(quick.done)
    quick.writer.close()
    quick.writer.close()
    quick.turn()
    assert len(quick.done) == ended


# -- the contract of every Background --------------------------------------------------------------


def _inline():
    return InlineWriter(
        WriterThread(), asyncio.get_running_loop().call_soon, lambda: 0.0, lambda: 0.0, lambda: 0.0
    )


@pytest.fixture(params=[WriterThread, _inline], ids=["thread", "inline"])
async def background(request):
    """Yield a writer whose clock stands still: no disk could be quicker."""
    background = request.param()
    yield background
    background.close()


async def run_job(background, job, short=True):
    done = asyncio.get_running_loop().create_future()
    background.submit(job, done.set_result, short)
    assert not done.done()
    return await done


async def test_each_job_is_done_once_and_told_after_it(background):
    done = []
    for number in range(20):
        assert (
            await run_job(background, lambda number=number: done.append(number), number % 5 != 0)
            is None
        )
    assert done == list(range(20))


async def test_what_a_job_raises_is_told(background):
    def broken():
        raise OSError(errno.EIO, "broken")

    for _ in range(20):
        assert (await run_job(background, broken)).errno == errno.EIO
        assert await run_job(background, lambda: None) is None
    assert "ZeroDivisionError" in str(await run_job(background, lambda: 1 / 0))


async def test_jobs_are_finished_when_it_is_closed(background):
    done, heard = [], []
    for number in range(3):
        background.submit(lambda number=number: done.append(number), heard.append, True)
    background.close()
    assert done == [0, 1, 2]
    background.close()


# -- short jobs, and the clock ---------------------------------------------------------------------


class Noting(AtOnce):
    def __init__(self):
        super().__init__()
        self.shorts = []

    def submit(self, job, done, short):
        self.shorts.append(short)
        super().submit(job, done, short)


def test_a_small_write_and_its_sync_are_short_and_nothing_else_is(tmp_path):
    noting = Noting()
    node = Node(log_journal(tmp_path / "j", segment_bytes=1024 * KIB, background=noting))

    def commit(*requests):
        for request in requests:
            assert node.handle(request) is not None
        node.commit()
        return noting.shorts[-1]

    assert not commit(put("a", 1, b"x")), "a segment begins"
    assert commit(put("a", 2, b"x"))
    assert not commit(put("b", 1, bytes(SHORT_BYTES_MAX)))
    assert not all(commit(put("c", number, bytes(8000))) for number in range(1, 30)), (
        "room is taken ahead now and then"
    )
    assert commit(put("a", 3, b"x"))
    [place] = node.journal.durable()
    assert node.journal.seal(place)
    assert not commit(put("a", 4, b"x")), "another begins"
    assert node.compact(place)
    assert not noting.shorts[-1], "a file goes"


class Writes(ClosingDisk):
    """A disk with a record of zeros.

    ``zeros`` has the number of zeros at the end of each write, beyond a frame's padding. With
    ``full``, the disk has no room for them.
    """

    def __init__(self, full=False):
        super().__init__()
        self.full = full
        self.zeros = []

    def write(self, descriptor, buffers, offset):
        self.zeros.append(
            len(buffers[-1]) if len(buffers[-1]) >= ALIGNMENT and not any(buffers[-1]) else 0
        )
        if self.full and self.zeros[-1]:
            raise OSError(errno.ENOSPC, "full")
        super().write(descriptor, buffers, offset)


def test_zeros_are_written_ahead_while_batches_are_small(tmp_path):
    disk, noting = Writes(), Noting()
    node = Node(log_journal(tmp_path / "j", disk, segment_bytes=4096 * KIB, background=noting))

    def commits(count, size):
        """Return the number of zeros written, and of runs filled by the commits."""
        disk.zeros.clear()
        end = node.journal._head.end if node.journal._head is not None else 0
        for _ in range(count):
            assert node.handle(put("a", next(numbers), bytes([1]) * size)) is not None
            node.commit()
            assert not (noting.shorts[-1] and any(disk.zeros[-2:])), "the event loop never does it"
        return sum(disk.zeros), (node.journal._head.end - end) // run

    numbers, run = itertools.count(1), 4096 * KIB // RUN_SHARE
    assert commits(1, 10) == (0, 0), "not after a start"
    zeros, runs = commits(1000, 400)
    assert runs > 10
    assert (runs - 1) * run <= zeros <= runs * run
    commits(1, SMALL_BATCH_BYTES * 3)  # small batches were in this run
    assert commits(10, SMALL_BATCH_BYTES * 3) == (0, 10 * SMALL_BATCH_BYTES * 3 // run)
    node.journal.close()
    assert (
        Node(log_journal(tmp_path / "j", ClosingDisk(), segment_bytes=4096 * KIB)).state
        == node.state
    )


def test_zeros_that_find_no_room_are_left_out(tmp_path):
    disk = Writes(full=True)
    node = Node(log_journal(tmp_path / "j", disk, segment_bytes=4096 * KIB))
    for number in range(1, 400):
        node.handle(put("a", number, bytes([1]) * 400))
        node.commit()
    assert any(disk.zeros)
    assert not any(node.errors)
    node.journal.close()
    assert (
        Node(log_journal(tmp_path / "j", ClosingDisk(), segment_bytes=4096 * KIB)).state
        == node.state
    )


async def test_the_same_is_recovered_with_waits_on_the_loop_and_in_the_thread(tmp_path):
    """The test uses a real disk, with the real clock."""
    loop = asyncio.get_running_loop()
    background = InlineWriter(
        WriterThread(), loop.call_soon, time.perf_counter, ProcessorWaits(), ProcessorWaits()
    )
    node = Node(log_journal(tmp_path / "j", Disk(), background=background))
    for number in range(1, 30):
        done = loop.create_future()
        node.handle(put("a", number, b"x" * number))
        node.journal.commit(lambda error, moved, done=done: done.set_result(error))
        assert await done is None
    node.journal.close()
    assert Node(log_journal(tmp_path / "j", ClosingDisk())).state == node.state


def test_the_waits_of_a_thread_are_what_the_system_says(tmp_path, monkeypatch):
    monkeypatch.setattr(processor_waits, "_OWN_SCHEDSTAT", str(tmp_path / "schedstat"))
    (tmp_path / "schedstat").write_text("1000 2000000 7\n")
    waits = ProcessorWaits()
    assert waits() == pytest.approx(0.002)
    (tmp_path / "schedstat").write_text("1000 5000000 8\n")
    assert waits() == pytest.approx(0.005)


def test_where_the_system_does_not_say_there_are_none(monkeypatch):
    assert ProcessorWaits()() >= 0.0
    monkeypatch.setattr(processor_waits, "_OWN_SCHEDSTAT", "/nonexistent")
    assert ProcessorWaits()() == 0.0
