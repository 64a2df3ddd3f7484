"""A clock that stands still while its thread waits for a processor: what it shows of a wait for a disk is the disk's part.

On a busy machine a thread that the disk woke up may wait ten times as long for a processor, wherever it waits. Linux counts that in schedstat.
"""

import contextlib
import os
import time
import weakref

_OWN = "/proc/thread-self/schedstat"
_BYTES_MAX = 64
_NS = 1e-9


class UnhinderedClock:
    """Seconds for one thread, the first that asks. Where the system does not tell how long a thread waited, it is an ordinary clock."""

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
        _, hindered_ns, _ = os.pread(self._descriptor, _BYTES_MAX, 0).split()
        return time.perf_counter() - int(hindered_ns) * _NS
