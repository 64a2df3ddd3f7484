"""The identity of the run of the machine's kernel.

Written data outlast a killed process in the memory of the kernel. Without fsync they may be lost or
torn when the kernel ends, so a file of this run needs no check and a file of another run does.
"""

from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Return a text that differs after each start of the kernel; empty on systems without it."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
