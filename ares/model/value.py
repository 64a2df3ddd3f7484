"""The values of a register, and the marks of an answer without bytes.

A mark is never None, nor an empty value.
"""

import enum
from typing import Final, Literal


class NoBytes(enum.Enum):
    """A value without bytes."""

    TOMBSTONE = "tombstone"
    WITHHELD = "withheld"
    LOST = "lost"


TOMBSTONE: Final = NoBytes.TOMBSTONE
"""The value of a deleted object, and v0, the value of an object that was never written."""

WITHHELD: Final = NoBytes.WITHHELD
"""No value: the configuration's successor is finalized and has it (paper: Alg. 3 and 4, bottom)."""

LOST: Final = NoBytes.LOST
"""The value of an undecodable object left behind by a move, until a write replaces the value.

See ares/reconfig/mover.py.
"""

Value = bytes | Literal[NoBytes.TOMBSTONE, NoBytes.LOST]
Answered = bytes | Literal[NoBytes.TOMBSTONE, NoBytes.WITHHELD, NoBytes.LOST]
