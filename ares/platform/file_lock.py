"""Locks of files and directories between processes. No lock outlives its process.

Children of a process do not inherit the locks.
"""

import fcntl
import os
from pathlib import Path


def take_lock(path: Path, *, make: bool = False) -> int | None:
    """Return a descriptor with the only lock of a file, held until the descriptor is closed.

    Returns None if another process holds the lock. ``make``: open the file for writes, and make an
    absent file. Raises OSError.
    """
    flags = os.O_RDWR | os.O_CREAT if make else os.O_RDONLY
    try:
        return _locked(os.open(path, flags | os.O_CLOEXEC, 0o600), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None


def lock_directory(path: Path) -> int:
    """Wait for the only lock of a directory; return a descriptor, which holds the lock.

    Raises OSError, at once for a file or a named pipe.
    """
    return _locked(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), fcntl.LOCK_EX)


def _locked(descriptor: int, operation: int) -> int:
    try:
        fcntl.flock(descriptor, operation)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
