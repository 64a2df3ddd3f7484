"""The memory of this process: its size, and the freed part kept for the next large value."""

import ctypes
import os
import resource
import sys

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_ALLOCATOR_VARIABLES = (
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_MMAP_THRESHOLD_",
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
)

CLIENT_BYTES = 256 * 1024 * 1024
SERVER_BYTES = 32 * 1024 * 1024


def memory_bytes() -> int:
    """Return the resident memory of this process now."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def keep_freed_memory(bytes_max: int) -> None:
    """Keep up to ``bytes_max`` of freed memory at the top of the heap.

    Does nothing without glibc, or where the environment sets up the allocator. By default glibc
    returns the memory of a large value as soon as it is freed, and the kernel clears every page
    again for the next value. For values of tens of MiB this costs more than encoding and sending
    them: on a small virtual machine a 64 MiB write took 0.15 to 0.25 s without and 0.08 s with this
    setting, a read 0.3 s and 0.04 s.
    """
    if not sys.platform.startswith("linux") or any(
        variable in os.environ for variable in _ALLOCATOR_VARIABLES
    ):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, bytes_max)
        mallopt(_M_TRIM_THRESHOLD, bytes_max)


def give_back_freed_memory() -> None:
    """Give freed memory between live memory back to the system, where glibc can.

    Takes about 0.1 ms for a MiB given back.
    """
    if _trim is not None:
        _trim(0)


_trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
