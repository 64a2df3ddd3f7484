"""Who waits for the disk, the event loop or the thread (ares/runtime/journal_inline.py), and what both promise whoever submits a job."""

import asyncio
import errno

import pytest

from ares.runtime.journal_disk import Disk
from ares.runtime.journal_inline import SLOW_S, TRIALS_MAX, TRIALS_MIN, InlineWriter
from ares.runtime.journal_segments import SHORT_BYTES_MAX
from ares.runtime.journal_thread import WriterThread
from ares.runtime.unhindered_clock import UnhinderedClock

from .serving import KIB, AtOnce, ClosingDisk, Node, log_journal, put

QUICK, SLOW = 0.0003, 0.005


class Bench:
    """A writer, a thread that does its jobs when the test says so, a loop that calls when it does, and a disk that takes ``takes`` seconds."""

    def __init__(self):
        self.now = 0.0
        self.takes = QUICK
        self.thread = AtOnce(waiting=True)
        self.soon = []
        self.done = []
        self.writer = InlineWriter(self.thread, lambda *call: self.soon.append(call), lambda: self.now, lambda: self.now)

    def sync(self):
        self.now += self.takes

    def fail(self):
        raise OSError(errno.EIO, "broken")

    def submit(self, job=None, short=True, name=None):
        """Whether the thread got it; nobody was told."""
        told, handed = len(self.done), len(self.thread.jobs)
        self.writer.submit(job or self.sync, lambda error: self.done.append(error if name is None else name), short)
        assert len(self.done) == told
        return len(self.thread.jobs) > handed

    def turn(self):
        self.thread.step()
        soon, self.soon = self.soon, []
        for callback, *arguments in soon:
            callback(*arguments)

    def jobs(self, count, takes=QUICK, short=True):
        """Submits so many, one after another; which of them the thread got."""
        self.takes, handed = takes, []
        for _ in range(count):
            handed.append(self.submit(short=short))
            self.turn()
        return handed

    def left_to_thread(self):
        """How many quick jobs it takes until the loop does one again."""
        self.takes, count = QUICK, 0
        while self.submit():
            self.turn()
            count += 1
            assert count <= 2 * TRIALS_MAX
        self.turn()
        return count


@pytest.fixture
def bench():
    return Bench()


@pytest.fixture
def quick(bench):
    bench.jobs(TRIALS_MIN)
    return bench


def test_the_loop_waits_for_a_disk_that_was_seen_to_be_quick(bench):
    assert bench.jobs(TRIALS_MIN + 50) == [True] * TRIALS_MIN + [False] * 50
    assert bench.done == [None] * (TRIALS_MIN + 50)


def test_a_slow_disk_is_left_to_the_thread(bench):
    assert all(bench.jobs(10 * TRIALS_MAX, SLOW))


def test_one_slow_sync_sends_the_next_to_the_thread_and_quick_ones_bring_them_back(quick):
    assert quick.jobs(3, SLOW_S) == [False, True, True]
    assert quick.left_to_thread() == 2 * TRIALS_MIN - 2
    assert quick.jobs(5) == [False] * 5


def test_many_that_are_a_little_slow_do_so_too(quick):
    handed = quick.jobs(30, SLOW_S / 2)
    assert not handed[0]
    assert all(handed[8:])


def test_it_does_not_come_back_while_the_disk_is_slow(quick):
    quick.jobs(1, SLOW)
    assert all(quick.jobs(10 * TRIALS_MAX, SLOW))
    assert quick.left_to_thread() <= 2 * TRIALS_MIN


def test_a_disk_that_is_slow_each_time_that_it_is_tried_is_tried_more_and_more_seldom(quick):
    waits = []
    for _ in range(12):
        quick.jobs(1, SLOW)
        waits.append(quick.left_to_thread())
    assert waits == sorted(waits)
    assert waits[:2] == [2 * TRIALS_MIN, 4 * TRIALS_MIN - 2]
    assert waits[-1] == TRIALS_MAX
    quick.jobs(2 * TRIALS_MAX)
    quick.jobs(1, SLOW)
    assert quick.left_to_thread() < 3 * TRIALS_MIN, "and that is forgotten after it was quick for long"


def test_long_jobs_are_the_thread_s_whatever_they_take(quick):
    assert all(quick.jobs(5, short=False))
    quick.jobs(5, SLOW, short=False)
    assert quick.jobs(1) == [False], "they say nothing about a sync"


def test_jobs_are_done_in_order(quick):
    order = []
    assert quick.submit(lambda: order.append("long"), short=False, name="long")
    assert quick.submit(lambda: order.append("short"), name="short"), "one is under way in the thread"
    quick.turn()
    assert order == quick.done[TRIALS_MIN:] == ["long", "short"]
    assert not quick.submit(), "none is"


def test_a_job_that_fails_on_the_loop_is_told_as_in_the_thread(quick):
    assert not quick.submit(quick.fail)
    quick.turn()
    assert quick.done[-1].errno == errno.EIO
    assert not quick.submit(lambda: {}["bug"])
    quick.turn()
    assert isinstance(quick.done[-1], OSError)
    assert "KeyError" in str(quick.done[-1])


def test_nobody_is_told_after_it_was_closed(quick):
    quick.submit()
    told = len(quick.done)
    quick.writer.close()
    quick.writer.close()
    quick.turn()
    assert len(quick.done) == told


# -- what every Background does -----------------------------------------------------------------------------------------


def _inline():
    return InlineWriter(WriterThread(), asyncio.get_running_loop().call_soon, lambda: 0.0, lambda: 0.0)


@pytest.fixture(params=[WriterThread, _inline], ids=["thread", "inline"])
async def background(request):
    """With a clock that stands still: the disk could not be quicker."""
    background = request.param()
    yield background
    background.close()


async def told(background, job, short=True):
    done = asyncio.get_running_loop().create_future()
    background.submit(job, done.set_result, short)
    assert not done.done()
    return await done


async def test_each_job_is_done_once_and_told_after_it(background):
    done = []
    for number in range(3 * TRIALS_MIN):
        assert await told(background, lambda number=number: done.append(number), number % 5 != 0) is None
    assert done == list(range(3 * TRIALS_MIN))


async def test_what_a_job_raises_is_told(background):
    def broken():
        raise OSError(errno.EIO, "broken")

    for _ in range(2 * TRIALS_MIN):
        assert (await told(background, broken)).errno == errno.EIO
        assert await told(background, lambda: None) is None
    assert "ZeroDivisionError" in str(await told(background, lambda: 1 / 0))


async def test_jobs_are_finished_when_it_is_closed(background):
    done, heard = [], []
    for number in range(3):
        background.submit(lambda number=number: done.append(number), heard.append, True)
    background.close()
    assert done == [0, 1, 2]
    background.close()


# -- what is short, and the clock ---------------------------------------------------------------------------------------


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
    assert not all(commit(put("c", number, bytes(8000))) for number in range(1, 30)), "room is taken ahead now and then"
    assert commit(put("a", 3, b"x"))
    [place] = node.journal.durable()
    assert node.journal.seal(place)
    assert not commit(put("a", 4, b"x")), "another begins"
    assert node.compact(place)
    assert not noting.shorts[-1], "a file goes"


async def test_the_same_is_recovered_whoever_waited(tmp_path):
    """On a real disk, with the real clock."""
    loop = asyncio.get_running_loop()
    background = InlineWriter(WriterThread(), loop.call_soon, UnhinderedClock(), UnhinderedClock())
    node = Node(log_journal(tmp_path / "j", Disk(), background=background))
    for number in range(1, 4 * TRIALS_MIN):
        done = loop.create_future()
        node.handle(put("a", number, b"x" * number))
        node.journal.commit(lambda error, moved, done=done: done.set_result(error))
        assert await done is None
    node.journal.close()
    assert Node(log_journal(tmp_path / "j", ClosingDisk())).state == node.state


def test_the_clock_never_goes_back_and_needs_no_schedstat(monkeypatch):
    clock = UnhinderedClock()
    times = [clock() for _ in range(100)]
    assert times == sorted(times)
    monkeypatch.setattr("ares.runtime.unhindered_clock._OWN", "/nonexistent")
    ordinary = UnhinderedClock()
    assert ordinary() <= ordinary()
