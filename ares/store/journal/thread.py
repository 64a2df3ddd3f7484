"""Where the waiting for a disk is done, and one thread that does it, so that the event loop need not (see also ares/store/journal/inline.py)."""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Protocol

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


def attempt(job: Job) -> OSError | None:
    """Do ``job``; the error that its ``done`` is to be told."""
    try:
        job()
    except OSError as error:
        return error
    except Exception as error:
        return OSError(f"a job for the disk failed: {error!r}")
    return None


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
            error = attempt(job)
            if not self._closed:
                self._loop.call_soon_threadsafe(done, error)
