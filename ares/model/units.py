"""Units of bytes and of seconds."""

KIB = 1024
MIB = 1024 * KIB
HOUR_S = 3600
DAY_S = 24 * HOUR_S


def size(count: int) -> str:
    """Return an amount of bytes for a person."""
    for unit, name in ((1024 * MIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return "1 byte" if count == 1 else f"{count} bytes"
