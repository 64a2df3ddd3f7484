"""Short jobs for a disk that is quick are done on the event loop itself; a thread does the others.

To hand a job to a thread and to hear of it again takes two changes of threads, two of the interpreter's lock and a wake-up of the loop. Where a sync
takes 0.2 ms that is more processor time than the sync itself, and a busy server commits every few requests. While the loop waits for the disk,
requests gather in its sockets: they are the next commit. A disk that takes longer than that is worth is waited for in the thread, and the loop
serves reads meanwhile.
"""

import math
from collections.abc import Callable
from functools import partial

from ares.runtime.journal_thread import Background, Done, Job, attempt

QUICK_S = 0.001
"""The event loop waits for a disk that takes no longer than this, in the mean,"""

SLOW_S = 0.004
"""and does not go on with it after it took as long as this once."""

MEMORY = 8
"""About so many of the last jobs make the mean."""

TRIALS_MIN, TRIALS_MAX = 8, 512
"""Jobs that the thread does before the event loop tries it again: twice as many each time that the disk turns out slow, fewer while it does not."""

Clock = Callable[[], float]


class Quickness:
    """Whether the event loop may wait for the disk: ``there``. At first, and whenever the disk was slow, the thread must see it quick."""

    def __init__(self) -> None:
        self.there = False
        self._mean_s = 0.0
        self._trials = self._left = TRIALS_MIN
        self._least_s = math.inf

    def note_here(self, took_s: float) -> None:
        """The event loop waited so long for the disk."""
        self._mean_s += (took_s - self._mean_s) / MEMORY
        if took_s >= SLOW_S or self._mean_s > QUICK_S:
            self.there = False
            self._mean_s = 0.0
            self._trials = self._left = min(2 * self._trials, TRIALS_MAX)
        elif self._trials > TRIALS_MIN:
            self._trials -= 1

    def note_aside(self, took_s: float) -> None:
        """The thread did, and perhaps for other things as well: the least of some counts."""
        self._left -= 1
        self._least_s = min(self._least_s, took_s)
        if self._left <= 0:
            self.there = self._least_s <= QUICK_S
            self._left, self._least_s = self._trials, math.inf


class InlineWriter:
    """:class:`Background` for an event loop, which is asked to ``call_soon``. ``thread`` does what is not done here.

    ``clock`` and ``clock_aside``: seconds, for the event loop and for the thread.
    """

    def __init__(self, thread: Background, call_soon: Callable[..., object], clock: Clock, clock_aside: Clock) -> None:
        self._thread = thread
        self._call_soon = call_soon
        self._clock = clock
        self._clock_aside = clock_aside
        self._quickness = Quickness()
        self._handed = 0
        self._closed = False

    def submit(self, job: Job, done: Done, short: bool) -> None:
        if short and self._quickness.there and not self._handed:
            begin_s = self._clock()
            error = attempt(job)
            self._quickness.note_here(self._clock() - begin_s)
            self._call_soon(self._tell, done, error)
        else:
            self._handed += 1
            self._thread.submit(partial(self._timed, job) if short else job, partial(self._told, done), short)

    def close(self) -> None:
        self._closed = True
        self._thread.close()

    def _timed(self, job: Job) -> None:
        """In the thread. Nothing is done on the loop meanwhile, so only one of them takes notes."""
        begin_s = self._clock_aside()
        job()
        self._quickness.note_aside(self._clock_aside() - begin_s)

    def _told(self, done: Done, error: OSError | None) -> None:
        self._handed -= 1
        self._tell(done, error)

    def _tell(self, done: Done, error: OSError | None) -> None:
        if not self._closed:
            done(error)
