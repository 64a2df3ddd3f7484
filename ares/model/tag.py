"""Tags: the totally ordered versions of a value, each given to a single write.

See ARES II section 2, "Tags".
"""

from msgspec import Struct

from ares.model.identity import ClientId, ObjectName
from ares.model.numbers import Word

NUMBER_FLOOR = 2**48
"""Highest number accepted at any time, without asking a clock."""

NUMBERS_PER_S = 2**20
NUMBER_LAST = 2**64 - 1
"""The highest number in messages and journals."""


class Tag(Struct, frozen=True, order=True, array_like=True, gc=False):
    """tau = (ts, wid): ordered by ``number``, ties broken by ``writer``; unique to a write."""

    number: Word
    writer: ClientId

    def __str__(self) -> str:
        return f"{self.number}.{self.writer:016x}"


TAG_ZERO = Tag(0, ClientId(0))
"""t0: the tag of an object before the first write."""


WRITE_ONCE_TAG = Tag(2, ClientId(0))
"""The tag of the only value of a name in a write-once domain (rule R25); no client has this id."""

LOST_TAG = Tag(1, ClientId(0))
"""The mark of a name of a write-once domain whose value a move left behind.

The value, should a server still have it, is above the mark, and replaces the mark.
"""


def number_max(now_s: float) -> int:
    """Return the highest number accepted by a server at ``now_s`` seconds since 1970.

    A number counts the writes of an object, which follow each other: a million a second since 1970
    exceeds any possible count. Under a fixed bound, a client could put an object *at* the bound,
    and no client could ever write the object again. This bound grows, hence a tag at the bound is
    exceeded a microsecond later. Up to NUMBER_FLOOR, nine years of such writes, no clock matters.
    """
    return max(NUMBER_FLOOR, int(now_s * NUMBERS_PER_S))


class TakenNumbers(Struct, gc=False, eq=False):
    """The numbers taken by a client for the tags of an object.

    ``number``: the highest. ``completed``: the highest number of a completed write. ``writers``:
    operations that may still take a number; each is counted from before the first phase until the
    end.
    """

    number: int = 0
    completed: int = 0
    writers: int = 0


class TagSource:
    """The tags of a client; no two operations are given the same tag, in any order of execution.

    A write takes a number above all numbers found by the first phase. Another operation of the same
    client may have taken a number which this phase could not find: the operation is under way, or
    ended after the phase had asked, or failed with the version at a few servers only. Numbers taken
    are therefore remembered until no operation can miss them: no operation on the object is under
    way, and the write with the highest number completed, hence every later first phase finds that
    number. (In the papers a client runs a single operation at a time, and a client whose write
    fails crashes.)
    """

    def __init__(self, client: ClientId) -> None:
        self._client = client
        self._taken: dict[ObjectName, TakenNumbers] = {}

    def begin(self, object: ObjectName) -> TakenNumbers:
        """Begin a writing operation on ``object``, before the first phase.

        The caller calls :meth:`end` in every case.
        """
        taken = self._taken.setdefault(object, TakenNumbers())
        taken.writers += 1
        return taken

    def take(self, taken: TakenNumbers, highest: int) -> Tag:
        """Return a new tag with a number above ``highest``, unique to this call."""
        taken.number = max(highest, taken.number) + 1
        return Tag(taken.number, self._client)

    def end(self, object: ObjectName, taken: TakenNumbers) -> None:
        """End the operation; after a completed write ``taken.completed`` is the write's number."""
        taken.writers -= 1
        if not taken.writers and taken.completed == taken.number:
            del self._taken[object]
