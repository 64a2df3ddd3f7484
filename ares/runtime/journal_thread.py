"""One thread that does the waiting for a disk, so that the event loop never does."""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Protocol

Done = Callable[[OSError | None], None]


class Background(Protocol):
    """Does jobs one after another. ``done(error)`` follows each, with what it raised, on the thread that submitted it."""

    def submit(self, job: Callable[[], None], done: Done) -> None:
        """``done`` is not called before this returns."""

    def close(self) -> None:
        """Finish the jobs, without telling; idempotent."""


class WriterThread:
    """:class:`Background` for an event loop. An exception other than OSError is our own fault; it reaches ``done`` as an OSError that says so."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[tuple[Callable[[], None], Done] | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], None], done: Done) -> None:
        self._jobs.put((job, done))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (entry := self._jobs.get()) is not None:
            job, done = entry
            error: OSError | None = None
            try:
                job()
            except OSError as raised:
                error = raised
            except Exception as raised:
                error = OSError(f"a job for the disk failed: {raised!r}")
            if not self._closed:
                self._loop.call_soon_threadsafe(done, error)
