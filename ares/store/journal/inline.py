"""Short jobs for a disk that is quick are done on the event loop itself; a thread does the others.

To hand a job to a thread and to hear of it again takes two changes of threads, two of the interpreter's lock and a wake-up of the loop. Where a sync
takes 0.2 ms that is more processor time than the sync itself, and a busy server commits every few requests. While the loop waits for the disk,
requests gather in its sockets: they are the next commit. A disk that takes longer than that is worth is waited for in the thread, and the loop
serves reads meanwhile.
"""

import math
from collections.abc import Callable
from functools import partial

from ares.store.journal.thread import Background, Done, Job, attempt

QUICK_S = 0.001
"""The event loop waits for a disk that takes no longer than this, in the mean,"""

MEMORY = 8
"""of about so many of the last jobs. So one that takes eight times as long once is slow, however quick it was before."""

SHARE = 0.01
"""Of its time the event loop may lose so much to a disk that turns out slow: for what it lost it stays away so many times longer,"""

AWAY_MAX_S = 600.0
"""but no longer than this."""

Clock = Callable[[], float]


class Quickness:
    """Whether the event loop may wait for the disk: ``there``. At first, and whenever the disk was slow, the thread must see it quick."""

    def __init__(self) -> None:
        self.there = False
        self._mean_s = 0.0
        self._back_s = -math.inf
        self._quick_aside = False

    def note_here(self, begin_s: float, end_s: float) -> None:
        """The event loop waited for the disk. A clock that was set back must not make up for a slow disk."""
        self._mean_s += (max(0.0, end_s - begin_s) - self._mean_s) / MEMORY
        if self._mean_s > QUICK_S:
            lost_s = MEMORY * self._mean_s
            self._back_s = end_s + min(lost_s / SHARE, AWAY_MAX_S)
            self._mean_s = 0.0
            self.there = self._quick_aside = False

    def note_aside(self, took_s: float) -> None:
        """The thread waited, and perhaps for other things as well: if it was quick, the disk was."""
        self._quick_aside = took_s <= QUICK_S

    def look(self, now_s: float) -> None:
        """The thread finished a job; time as in :meth:`note_here`."""
        self.there = self._quick_aside and now_s >= self._back_s


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
            self._quickness.note_here(begin_s, self._clock())
            self._call_soon(self._tell, done, error)
        else:
            self._handed += 1
            self._thread.submit(partial(self._timed, job) if short else job, partial(self._told, done), short)

    def close(self) -> None:
        self._closed = True
        self._thread.close()

    def _timed(self, job: Job) -> None:
        """In the thread. The loop does no job meanwhile, and looks at the note when it is told."""
        begin_s = self._clock_aside()
        job()
        self._quickness.note_aside(self._clock_aside() - begin_s)

    def _told(self, done: Done, error: OSError | None) -> None:
        self._handed -= 1
        self._quickness.look(self._clock())
        self._tell(done, error)

    def _tell(self, done: Done, error: OSError | None) -> None:
        if not self._closed:
            done(error)
