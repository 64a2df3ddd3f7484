"""Memory of this process for tests of bounds."""

import gc
from pathlib import Path


def private_bytes() -> int:
    """Return the resident memory that is this process's own, without garbage and mapped files.

    Pages of libraries and files come and go with other work of the machine.
    """
    gc.collect()
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) * 1024
