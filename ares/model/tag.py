"""Tags: the logical versions of a value, totally ordered (ARES II section 2, "Tags"), and how a client gives each tag to one write only."""

from msgspec import Struct

from ares.model.identity import ClientId, ObjectName
from ares.model.numbers import Word

NUMBER_FLOOR = 2**48
"""Numbers up to here are taken whatever the time is: no clock is asked for them."""

NUMBERS_PER_S = 2**20
NUMBER_LAST = 2**64 - 1
"""The highest that messages and journals can carry."""


class Tag(Struct, frozen=True, order=True, array_like=True, gc=False):
    """tau = (ts, wid): ordered by ``number``, ties broken by ``writer``; unique to one write."""

    number: Word
    writer: ClientId

    def __str__(self) -> str:
        return f"{self.number}.{self.writer:016x}"


TAG_ZERO = Tag(0, ClientId(0))
"""t0: the tag of an object that was never written."""


def number_max(now_s: float) -> int:
    """The highest number that a server takes when its clock says ``now_s``, in seconds since 1970.

    A number counts the writes of one object, one after the other: a million a second since 1970 is more than there can have been. With a bound that
    stays where it is, a client could put an object *at* the bound, and nobody could ever write it again. This one grows, so a tag at the bound is
    exceeded a microsecond later. Up to NUMBER_FLOOR, nine years of such writes, no clock matters.
    """
    return max(NUMBER_FLOOR, int(now_s * NUMBERS_PER_S))


class Taken(Struct, gc=False, eq=False):
    """The numbers that one client took for the tags of one object. ``number``: the highest. ``completed``: the highest whose write completed.

    ``writers``: operations that may take another one; each is counted from before its first phase until its end.
    """

    number: int = 0
    completed: int = 0
    writers: int = 0


class TagSource:
    """The tags of one client. No two of its operations are given the same tag, in whatever order they run.

    A write takes a number above all that it found. Another operation of this client may have taken a number that this one could not find: it is under
    way, or ended after this one had asked, or failed with its version at a few servers only. So numbers taken are remembered until nobody can miss
    them: no operation on the object is under way, and the write with the highest number completed, so that every later first phase finds it.
    (The papers have a client do one operation at a time, and a client whose write fails crash.)
    """

    def __init__(self, client: ClientId) -> None:
        self._client = client
        self._taken: dict[ObjectName, Taken] = {}

    def begin(self, object: ObjectName) -> Taken:
        """An operation that will write ``object`` begins; call it before the first phase, and :meth:`end` come what may."""
        taken = self._taken.setdefault(object, Taken())
        taken.writers += 1
        return taken

    def take(self, taken: Taken, highest: int) -> Tag:
        """A tag with a number above ``highest``, which nobody else has or will have."""
        taken.number = max(highest, taken.number) + 1
        return Tag(taken.number, self._client)

    def end(self, object: ObjectName, taken: Taken) -> None:
        """The operation is over; if its write completed, ``taken.completed`` is the number of that."""
        taken.writers -= 1
        if not taken.writers and taken.completed == taken.number:
            del self._taken[object]
