"""Where the waiting for a disk is done: short jobs for a quick disk on the event loop itself, all others in one thread.

To hand a job to a thread and to hear of it again takes two changes of threads, two of the interpreter's lock and a wake-up of the loop. Where a sync
takes 0.2 ms that is more processor time than the sync itself, and a busy server commits every few requests. While the loop waits for the disk,
requests gather in its sockets: they are the next commit. A slower disk is waited for in the thread, and the loop serves reads meanwhile.
"""

import asyncio
import math
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol

QUICK_S = 0.001
"""The event loop waits for a disk that takes no longer than this in the mean."""

MEMORY = 8
"""The mean is of about so many of the last jobs: a disk that takes eight times QUICK_S once is slow, however quick it was before."""

SHARE = 0.01
"""The event loop may lose this part of its time to a disk that turns out slow: then it stays away 1 / SHARE times as long as it waited."""

AWAY_MAX_S = 600.0
"""The event loop stays away from a slow disk no longer than this."""

Clock = Callable[[], float]
Job = Callable[[], None]
Done = Callable[[OSError | None], None]


class Background(Protocol):
    """Does jobs one after another. ``done(error)`` follows each, with what it raised, on the thread that submitted it.

    An exception other than OSError is our own fault; it reaches ``done`` as an OSError that says so.
    """

    def submit(self, job: Job, done: Done, short: bool) -> None:
        """``done`` is not called before this returns. ``short``: the job writes little and syncs it, once; it may be done before this returns."""

    def close(self) -> None:
        """Finish the jobs, without telling; idempotent."""


class WriterThread:
    """:class:`Background` for an event loop: short or not, the thread does it."""

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
    """:class:`Background` for an event loop, which is asked to ``call_soon``. ``thread`` does what is not done here.

    The event loop may wait for the disk while that is ``_quick``: at first, and whenever the disk was slow, the thread must see it quick.
    ``waits`` and ``waits_aside``: the seconds that the event loop, and the thread, ever waited for a processor. That is no time of the disk.
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
            self._call_soon(self._tell, done, error)
        else:
            self._handed += 1
            self._thread.submit(
                partial(self._timed, job) if short else job, partial(self._told, done), short
            )

    def close(self) -> None:
        self._closed = True
        self._thread.close()

    def _took_s(self, begin_s: float, waited_s: float, waits: Clock) -> float:
        """How long the disk took for a job that began then. Waits for a processor, ``waited_s`` before it, are looked at if it matters: they can only
        make it less, and those between two readings of the clocks count as if they had been in the job."""
        took_s = self._clock() - begin_s
        return took_s if took_s <= QUICK_S else took_s - (waits() - waited_s)

    def _note_here(self, took_s: float) -> None:
        """The event loop waited for the disk. A clock that was set back must not make up for a slow disk."""
        self._mean_s += (max(0.0, took_s) - self._mean_s) / MEMORY
        if self._mean_s > QUICK_S:
            lost_s = MEMORY * self._mean_s
            self._back_s = self._clock() + min(lost_s / SHARE, AWAY_MAX_S)
            self._mean_s = 0.0
            self._quick = self._quick_aside = False

    def _timed(self, job: Job) -> None:
        """In the thread, which perhaps waits for other things as well: if it was quick, the disk was. The loop does no job meanwhile."""
        waited_s, begin_s = self._waits_aside(), self._clock()
        job()
        self._quick_aside = self._took_s(begin_s, waited_s, self._waits_aside) <= QUICK_S

    def _told(self, done: Done, error: OSError | None) -> None:
        self._handed -= 1
        self._quick = self._quick_aside and self._clock() >= self._back_s
        self._tell(done, error)

    def _tell(self, done: Done, error: OSError | None) -> None:
        if not self._closed:
            done(error)


def _attempt(job: Job) -> OSError | None:
    """Do ``job``; the error that its ``done`` is to be told."""
    try:
        job()
    except OSError as error:
        return error
    except Exception as error:
        return OSError(f"a job for the disk failed: {error!r}")
    return None
