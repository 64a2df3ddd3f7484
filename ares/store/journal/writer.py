"""The thread that waits for a disk: the event loop for short jobs of a quick disk, else a thread.

A job in another thread, with the news of its end, takes two changes of threads, two of the
interpreter's lock and a wake-up of the loop. Where a sync takes 0.2 ms this is more processor time
than the sync itself, and a busy server commits every few requests. While the loop waits for the
disk, requests gather in the sockets: they are the next commit. The thread waits for a slower disk,
and the loop serves reads in the meantime.
"""

import asyncio
import math
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol

QUICK_S = 0.001
"""Mean time of a disk up to which the event loop waits for the disk."""

JOBS_REMEMBERED = 8
"""Number of last jobs in the mean.

A disk is slow after a single job of eight times QUICK_S, however quick earlier jobs were.
"""

LOST_SHARE_MAX = 0.01
"""Share of time that the event loop may lose to a disk which turns out slow.

The loop stays away 1 / LOST_SHARE_MAX times as long as the wait lasted.
"""

AWAY_MAX_S = 600.0
"""Longest absence of the event loop from a slow disk."""

Clock = Callable[[], float]
Job = Callable[[], None]
Done = Callable[[OSError | None], None]


class Background(Protocol):
    """A worker for jobs in sequence, which calls ``done(error)`` after each.

    ``done`` is called with the job's exception on the submitting thread. An exception other than
    OSError is a fault of this program, and reaches ``done`` as an OSError with this text.
    """

    def submit(self, job: Job, done: Done, short: bool) -> None:
        """Submit a job; ``done`` is not called before this returns.

        ``short``: the job writes little and syncs once; it may run before this returns.
        """

    def close(self) -> None:
        """Finish the jobs, without calling ``done``; idempotent."""


class WriterThread:
    """:class:`Background` for an event loop, with a thread for short and long jobs."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[tuple[Job, Done] | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def submit(self, job: Job, done: Done, short: bool) -> None:
        self._jobs.put((job, done))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (entry := self._jobs.get()) is not None:
            job, done = entry
            error = _attempt(job)
            if not self._closed:
                self._loop.call_soon_threadsafe(done, error)


class InlineWriter:
    """:class:`Background` for an event loop, through ``call_soon``; ``thread`` runs the long jobs.

    The event loop may wait for the disk while ``_quick``: at first, and whenever the disk was slow,
    the thread must see a quick job. ``waits`` and ``waits_aside``: the seconds that the event loop,
    and the thread, ever waited for a processor. Such waits are not the disk's time.
    """

    def __init__(
        self,
        thread: Background,
        call_soon: Callable[..., object],
        clock: Clock,
        waits: Clock,
        waits_aside: Clock,
    ) -> None:
        self._thread = thread
        self._call_soon = call_soon
        self._clock = clock
        self._waits = waits
        self._waits_aside = waits_aside
        self._handed = 0
        self._closed = False
        self._quick = self._quick_aside = False
        self._mean_s = 0.0
        self._back_s = -math.inf

    def submit(self, job: Job, done: Done, short: bool) -> None:
        if short and self._quick and not self._handed:
            waited_s, begin_s = self._waits(), self._clock()
            error = _attempt(job)
            self._note_here(self._took_s(begin_s, waited_s, self._waits))
            self._call_soon(self._finish, done, error)
        else:
            self._handed += 1
            self._thread.submit(
                partial(self._timed, job) if short else job, partial(self._finished, done), short
            )

    def close(self) -> None:
        self._closed = True
        self._thread.close()

    def _took_s(self, begin_s: float, waited_s: float, waits: Clock) -> float:
        """Return the disk's time for a job begun at ``begin_s``.

        Waits for a processor, ``waited_s`` before the job, are read only if they matter: they can
        only reduce the time, and waits between two readings of the clocks count as if they had been
        in the job.
        """
        took_s = self._clock() - begin_s
        return took_s if took_s <= QUICK_S else took_s - (waits() - waited_s)

    def _note_here(self, took_s: float) -> None:
        """Record the event loop's wait; a clock set back must not make up for a slow disk."""
        self._mean_s += (max(0.0, took_s) - self._mean_s) / JOBS_REMEMBERED
        if self._mean_s > QUICK_S:
            lost_s = JOBS_REMEMBERED * self._mean_s
            self._back_s = self._clock() + min(lost_s / LOST_SHARE_MAX, AWAY_MAX_S)
            self._mean_s = 0.0
            self._quick = self._quick_aside = False

    def _timed(self, job: Job) -> None:
        """Run a job in the thread; if the job was quick, the disk was quick.

        The thread may wait for other things as well. The loop runs no job in the meantime.
        """
        waited_s, begin_s = self._waits_aside(), self._clock()
        job()
        self._quick_aside = self._took_s(begin_s, waited_s, self._waits_aside) <= QUICK_S

    def _finished(self, done: Done, error: OSError | None) -> None:
        self._handed -= 1
        self._quick = self._quick_aside and self._clock() >= self._back_s
        self._finish(done, error)

    def _finish(self, done: Done, error: OSError | None) -> None:
        if not self._closed:
            done(error)


def _attempt(job: Job) -> OSError | None:
    """Run ``job`` and return the error for the job's ``done``."""
    try:
        job()
    except OSError as error:
        return error
    except Exception as error:
        return OSError(f"a job for the disk failed: {error!r}")
    return None
