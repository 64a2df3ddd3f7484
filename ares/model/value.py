"""What a register may hold, and what an answer may lack: never None, never an empty value in their place."""

import enum
from typing import Final, Literal


class Mark(enum.Enum):
    TOMBSTONE = "tombstone"
    WITHHELD = "withheld"
    LOST = "lost"


TOMBSTONE: Final = Mark.TOMBSTONE
"""The value of a deleted object, and v0, the value of one that was never written."""

WITHHELD: Final = Mark.WITHHELD
"""No value: the configuration's successor is finalized and has it (paper: the bottom of Alg. 3 and 4)."""

LOST: Final = Mark.LOST
"""The value of an object that a move left behind because it could not be decoded (ares/reconfig/mover.py), until somebody replaces it."""

Value = bytes | Literal[Mark.TOMBSTONE, Mark.LOST]
Answered = bytes | Literal[Mark.TOMBSTONE, Mark.WITHHELD, Mark.LOST]
