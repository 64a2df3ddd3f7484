"""A thread's waits for a processor, which separate the disk's part of a wait.

On a busy machine a thread woken up by the disk may wait ten times as long for a processor, at any
place. Linux counts this time in schedstat.
"""

import contextlib
import os
import weakref

_OWN_SCHEDSTAT = "/proc/thread-self/schedstat"
_BYTES_MAX = 64
_NS = 1e-9


class ProcessorWaits:
    """The seconds for which the first calling thread ever waited for a processor.

    0 where the system has no such count. A call takes about 2 us.
    """

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self._opened = False

    def __call__(self) -> float:
        if not self._opened:
            self._opened = True
            with contextlib.suppress(OSError):
                self._descriptor = os.open(_OWN_SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC)
                weakref.finalize(self, os.close, self._descriptor)
        if self._descriptor is None:
            return 0.0
        _, waited_ns, _ = os.pread(self._descriptor, _BYTES_MAX, 0).split()
        return int(waited_ns) * _NS
