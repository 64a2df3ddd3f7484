"""How much memory this process has."""

import resource


def memory_bytes() -> int:
    """Resident memory of this process now."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()
