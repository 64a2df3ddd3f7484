"""Background tasks and timers under supervision: failures are counted, and work goes on.

Each failure is logged, too.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator

import pytest

from ares.platform import tasks
from ares.platform.loop import run


@contextlib.asynccontextmanager
async def ended(task: asyncio.Task[None]) -> AsyncIterator[None]:
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def tracebacks(caplog: pytest.LogCaptureFixture, name: str) -> list[str]:
    found = [record for record in caplog.records if name in record.getMessage()]
    return [repr(record.exc_info[1]) for record in found if record.exc_info is not None]


def test_a_result_is_returned_without_being_printed():
    """CPython 3.11 prints the result of a runner's task: seconds for a large value."""
    printed = []

    class Result:
        def __repr__(self) -> str:
            printed.append(self)
            return ""

    async def work() -> Result:
        return Result()

    assert isinstance(run(work()), Result)
    assert not printed


async def test_a_failed_task_is_logged_with_its_traceback_and_counted(caplog):
    async def fails() -> None:
        raise ValueError("of this task")

    before = tasks.failures.total
    task = tasks.begin(fails(), "task of a test")
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(0)
    assert tasks.failures.total == before + 1
    assert tracebacks(caplog, "task of a test") == ["ValueError('of this task')"]


async def test_a_cancelled_task_is_no_failure(caplog):
    before = tasks.failures.total
    task = tasks.begin(asyncio.Event().wait(), "cancelled task of a test")
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(0)
    assert tasks.failures.total == before
    assert not tracebacks(caplog, "cancelled task of a test")


async def test_kept_work_begins_again_after_each_failure():
    runs, third = [], asyncio.Event()

    async def work() -> None:
        runs.append(1)
        if len(runs) == 3:
            third.set()
            await asyncio.Event().wait()
        raise KeyError(len(runs))

    before = tasks.failures.total
    async with ended(tasks.keep(work, "kept work of a test")):
        await third.wait()
    assert (len(runs), tasks.failures.total) == (3, before + 2)


async def test_kept_work_that_returns_is_done():
    async def work() -> None:
        pass

    await tasks.keep(work, "short work of a test")


async def test_a_timer_goes_on_after_a_failure_and_logs_one_in_a_while(caplog):
    calls, fifth = [], asyncio.Event()

    def action() -> None:
        calls.append(1)
        if len(calls) == 5:
            fifth.set()
        raise ZeroDivisionError

    before = tasks.failures.total
    async with ended(tasks.every(0.001, action, "timer of a test")):
        await fifth.wait()
    assert tasks.failures.total >= before + 5
    assert tracebacks(caplog, "timer of a test") == ["ZeroDivisionError()"]


def test_an_exception_that_leaves_a_callback_is_counted(caplog):
    async def main() -> None:
        after = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: {}["absent"])
        loop.call_soon(after.set)
        await after.wait()

    before = tasks.failures.counts[tasks.ESCAPED]
    with caplog.at_level(logging.ERROR):
        run(main())
    assert tasks.failures.counts[tasks.ESCAPED] == before + 1


def test_an_exception_that_ends_a_thread_is_counted(caplog, monkeypatch):
    def fails() -> None:
        raise ValueError("of this thread")

    monkeypatch.setattr(threading, "excepthook", tasks.report_thread)
    before = tasks.failures.total
    thread = threading.Thread(target=fails, name="of a test")
    thread.start()
    thread.join()
    assert tasks.failures.total == before + 1
    assert tracebacks(caplog, "thread of a test") == ["ValueError('of this thread')"]


def test_a_failure_that_ends_the_process_says_so_and_names_its_cause(caplog):
    error = tasks.failures.fatal("commit of a test", IndexError("of a commit"))
    assert isinstance(error, OSError)
    assert "IndexError('of a commit')" in str(error.strerror)
    assert "the process ends" in caplog.text
