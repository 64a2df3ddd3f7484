"""Locks of files and directories between processes; a lock ends with its process at the latest."""

import fcntl
import os
from pathlib import Path


def take_lock(path: Path, *, make: bool = False, wait: bool = False) -> int | None:
    """Return a descriptor that holds the only lock of a file or directory until it is closed.

    ``make``: open a file for writes, and make an absent file. ``wait``: wait while another process
    has the lock, instead of returning None. Children of this process do not inherit the lock.
    Raises OSError.
    """
    flags = os.O_CLOEXEC | (os.O_RDWR | os.O_CREAT if make else os.O_RDONLY)
    descriptor = os.open(path, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
