"""A clock that stands still while its thread waits for a processor: what it shows of a wait for a disk is the disk's part.

On a busy machine a thread that the disk woke up may wait ten times as long for a processor, wherever it waits. Linux counts that in schedstat.
"""

import contextlib
import os
import time
import weakref

_OWN = "/proc/thread-self/schedstat"
_BYTES_MAX = 64
_TRIES_MAX = 4
_NS = 1e-9


class UnhinderedClock:
    """Seconds for one thread, the first that asks. Where the system does not tell how long a thread waited, it is an ordinary clock.

    Two clocks make it, so it may go back by as little as they differ.
    """

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self._opened = False

    def __call__(self) -> float:
        if not self._opened:
            self._opened = True
            with contextlib.suppress(OSError):
                self._descriptor = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
                weakref.finalize(self, os.close, self._descriptor)
        if self._descriptor is None:
            return time.perf_counter()
        before_ns = _hindered_ns(self._descriptor)
        for _ in range(_TRIES_MAX):
            now_s = time.perf_counter()
            after_ns = _hindered_ns(self._descriptor)
            if after_ns == before_ns:
                break
            before_ns = after_ns  # a wait for a processor between the two readings would be in one of them only: they are taken again
        return now_s - after_ns * _NS


def _hindered_ns(descriptor: int) -> int:
    _, hindered_ns, _ = os.pread(descriptor, _BYTES_MAX, 0).split()
    return int(hindered_ns)
