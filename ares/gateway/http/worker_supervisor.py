"""Several processes of a gateway on one listening socket, watched by a parent.

The parent holds the socket and starts each worker by a fork: a dead worker loses its own
connections alone, and new connections wait in the socket's queue for the other workers. A worker
ends cleanly after its parent, because nothing would start the worker again.

The parent has no threads and no event loop. Signals are blocked, and taken in turn.
"""

import contextlib
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable

WORKER_RESTART_S = 0.5
WORKER_RESTART_S_MAX = 10.0
"""Pause before the next start of a dead worker: doubled with each death, up to the greatest."""

STEADY_S = 60.0
"""Time without a start after which a death begins with the least pause again."""

_END_NUMBERS = (signal.SIGTERM, signal.SIGINT)
_BLOCKED = {*_END_NUMBERS, signal.SIGHUP, signal.SIGCHLD}
_POLL_S = 0.2

_log = logging.getLogger(__name__)


class WorkerLink:
    """A worker's end of the pipes to its parent."""

    def __init__(self, number: int, parent: int, ready: int) -> None:
        self.number = number
        self.parent = parent
        """Descriptor that ends with the parent."""
        self._ready = ready

    def serves(self) -> None:
        """Report service to the parent, which listens at the first start only."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._ready, b"\n")
        os.close(self._ready)


class WorkerSupervisor:
    """The parent of ``count`` workers. ``work`` runs a worker, and returns its exit status."""

    def __init__(self, count: int, work: Callable[[WorkerLink], int]) -> None:
        self._count = count
        self._work = work
        self._pids: dict[int, int] = {}
        """Numbers of workers by their process id."""
        self._due_s: dict[int, float] = {}
        """Times of the next starts of dead workers."""
        self._started_s = 0.0
        self._pause_s = WORKER_RESTART_S
        self._ending = False
        self._alive_read, self._alive_write = os.pipe()

    def run(self) -> int:
        """Run the workers until a signal to end; return the exit status.

        The first worker starts alone; its status is returned after an end before service.
        """
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
        try:
            if (status := self._first()) is not None:
                return status
            for number in range(1, self._count):
                self._start(number)
            while self._pids or not self._ending:
                taken = signal.sigtimedwait(_BLOCKED, self._wait_s())
                if taken is not None:
                    self._take(signal.Signals(taken.si_signo))
                self._start_due()
            return 0
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _first(self) -> int | None:
        """Start the first worker; return None with service, the exit status without."""
        ready = self._start(0)
        with open(ready, "rb", buffering=0) as pipe:
            while not select.select([pipe], [], [], _POLL_S)[0]:
                if signal.sigpending() & set(_END_NUMBERS):
                    return None
            if pipe.read(1):
                return None
        [pid] = self._pids
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status) or 1

    def _start(self, number: int) -> int:
        """Start a worker; return the descriptor for its report of service."""
        ready_read, ready_write = os.pipe()
        pid = os.fork()
        if pid:
            self._started_s = time.monotonic()
            os.close(ready_write)
            self._pids[pid] = number
            return ready_read
        status = 1
        try:
            os.setpgid(0, 0)  # a Ctrl-C of the terminal reaches the parent alone
            os.close(self._alive_write)
            os.close(ready_read)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED)
            status = self._work(WorkerLink(number, self._alive_read, ready_write))
        except Exception:
            _log.exception("a mistake in ares ends this worker")
        finally:
            sys.stdout.flush()
            os._exit(status)

    def _wait_s(self) -> float:
        due_s = min(self._due_s.values(), default=None)
        return 60.0 if due_s is None else max(due_s - time.monotonic(), 0.0)

    def _start_due(self) -> None:
        for number, due_s in list(self._due_s.items()):
            if due_s <= time.monotonic():
                del self._due_s[number]
                os.close(self._start(number))

    def _take(self, number: signal.Signals) -> None:
        """Act on a signal. A second signal to end ends the workers at once."""
        if number is signal.SIGCHLD:
            self._reap()
            return
        if number in _END_NUMBERS:
            self._ending = True
            self._due_s.clear()
            number = signal.SIGTERM
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _reap(self) -> None:
        """Take the ends of workers, and plan their next lives."""
        for pid, number in list(self._pids.items()):
            found, status = os.waitpid(pid, os.WNOHANG)
            if not found:
                continue
            del self._pids[pid]
            if self._ending:
                continue
            now_s = time.monotonic()
            if now_s - self._started_s > STEADY_S:
                self._pause_s = WORKER_RESTART_S
            _log.error(
                "worker %d ended with status %d: it is started again in %g s",
                number,
                os.waitstatus_to_exitcode(status),
                self._pause_s,
            )
            self._due_s[number] = now_s + self._pause_s
            self._pause_s = min(2 * self._pause_s, WORKER_RESTART_S_MAX)
