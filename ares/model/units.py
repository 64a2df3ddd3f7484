"""Units of bytes and of seconds."""

KIB = 1024
MIB = 1024 * KIB
HOUR_S = 3600
DAY_S = 24 * HOUR_S
