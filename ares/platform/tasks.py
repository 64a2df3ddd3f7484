"""Background tasks and timers of a process, under supervision.

An exception in a task without an awaiting task is seen when the garbage collector finds the task,
or never, and the task's work just stops. Every task which lives beside its creator therefore begins
in this module: a failure is logged with the traceback and counted (`ares_failed_tasks_total`), and
permanent work goes on. If a task's failure must end the process, the creator awaits the task
instead.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

Result = TypeVar("Result")

RESTART_S = 0.05
RESTART_S_MAX = 5.0
"""Pause before failed work begins again: doubled with each failure, up to the greatest."""

LOG_EVERY_S = 10.0
"""Least time between two reports of a name in the log; failures between them are counted."""

MISTAKE = "a mistake in ares itself: the log of this process has all of it"
ESCAPED = "a callback of the event loop"

_log = logging.getLogger(__name__)


class FailedTasks:
    """The failures of this process since its start, by the name of the task."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._logged_s: dict[str, float] = {}

    @property
    def total(self) -> int:
        """Return the number of failures of all tasks."""
        return self.counts.total()

    def report(self, name: str, error: BaseException | None, why: str = "") -> None:
        """Count a failure of the task `name`, and log it with its traceback."""
        self.counts[name] += 1
        now_s = time.monotonic()
        if now_s - self._logged_s.get(name, -LOG_EVERY_S) >= LOG_EVERY_S:
            self._logged_s[name] = now_s
            shown = why or "the process goes on; this is a mistake in ares, please report it"
            _log.error("%s failed (%d so far): %s", name, self.counts[name], shown, exc_info=error)

    def fatal(self, name: str, error: Exception) -> OSError:
        """Report a failure that must end the process; return it as a disk's failure."""
        self.report(name, error, "the process ends")
        return OSError(0, f"{MISTAKE}: {error!r}")


failures = FailedTasks()


@contextlib.contextmanager
def supervised(name: str) -> Iterator[None]:
    """Report an exception of the body instead of raising it, for a step of lasting work."""
    try:
        yield
    except Exception as error:
        failures.report(name, error)


def begin(work: Coroutine[Any, Any, Result], name: str) -> asyncio.Task[Result]:
    """Start `work` as a task with reported failures; the caller keeps and cancels the task."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    task.add_done_callback(_report_end)
    return task


def keep(make: Callable[[], Coroutine[Any, Any, None]], name: str) -> asyncio.Task[None]:
    """Start the work made by `make`, again after each failure, until the work returns."""
    return begin(_kept(make, name), name)


def every(period_s: float, action: Callable[[], object], name: str) -> asyncio.Task[None]:
    """Start a timer which calls `action` after each period, even after a failed call."""
    return begin(_repeated(period_s, action, name), name)


async def _kept(make: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
    pause_s = RESTART_S
    while True:
        begun_s = time.monotonic()
        with supervised(name):
            await make()
            return
        if time.monotonic() - begun_s > RESTART_S_MAX:
            pause_s = RESTART_S
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, RESTART_S_MAX)


async def _repeated(period_s: float, action: Callable[[], object], name: str) -> None:
    while True:
        await asyncio.sleep(period_s)
        with supervised(name):
            action()


def _report_end(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        failures.report(task.get_name(), error)


def report_thread(ended: threading.ExceptHookArgs) -> None:
    """Report an exception which ended a thread: the hook of threads."""
    name = "a thread" if ended.thread is None else f"the thread {ended.thread.name}"
    failures.report(name, ended.exc_value, "it does not go on")


def report_escaped(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report an exception of a callback of `loop`, as the loop's handler of exceptions."""
    failures.report(ESCAPED, context.get("exception"), context["message"])
