"""What is not repeated to whoever reads an error: runs of hexadecimal digits that may be a secret key, typed where something else belongs."""

import re

HIDDEN = "(hidden: it may be a key)"
_LONG_RUN = re.compile(r"[0-9A-Fa-f]{40,}")
"""A key has 64 digits, and one that was cut somewhat fewer; identities, and ids of configurations, have 32."""


def without_long_hex(text: str) -> str:
    """``text`` with each run of 40 or more hexadecimal digits hidden."""
    return _LONG_RUN.sub(HIDDEN, text)
