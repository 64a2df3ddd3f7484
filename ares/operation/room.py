"""Room for the bytes that one client has under way. What does not fit waits, in order. No I/O and no clock: ``now`` is given.

Values, entries and expected replies count, and each operation counts OPERATION_BYTES for its own objects. An operation keeps its room
until it has ended, whatever ended it: a result, an error, its deadline, its caller, the end of the client.
"""

from collections import deque
from collections.abc import Callable
from math import inf

from msgspec import Struct

from ares.model.errors import Unavailable, Uncertain

ROOM_BYTES = 64 * 1024 * 1024
"""Room of a client, unless its cluster file says otherwise."""

OPERATION_BYTES = 2048
"""Size of an operation's own objects."""

UNKNOWN_REPLY_BYTES = 1024 * 1024
"""Size that a reply counts as long as no reply of its kind was seen."""

LOOK_S = 0.1
"""Time between two looks for operations that waited too long."""


class Waiter(Struct, eq=False):
    """An operation that waits for room."""

    size: int
    deadline: float
    label: object
    tell: Callable[[BaseException | None], None] | None
    """Called once: with None when the operation has its room, else with an error. None afterwards."""
    entered: bool = False


class Room:
    """Room for ``limit`` bytes. Operations enter in the order in which they came; one that is larger than the room enters alone.

    Enter and leave are so frequent that callers write them out, see :meth:`enter` and :meth:`leave`.
    """

    __slots__ = ("_given_up", "_look_at", "limit", "taken", "waiting")

    def __init__(self, limit: int = ROOM_BYTES) -> None:
        self.limit = limit
        self.taken = 0
        self.waiting: deque[Waiter] = deque()
        self._given_up = 0
        self._look_at = inf

    def fits(self, size: int) -> bool:
        """Return whether `size` bytes have room now, nobody waiting."""
        return not self.taken or self.taken + size <= self.limit

    def enter(self, size: int) -> bool:
        """Take room for `size` bytes; False, and none is taken, where the operation has to :meth:`wait`."""
        if self.waiting or not self.fits(size):
            return False
        self.taken += size
        return True

    def leave(self, size: int) -> None:
        """Give back room for `size` bytes."""
        self.taken -= size
        if self.waiting:
            self.admit()

    def admit(self) -> None:
        """Let in the operations that now have room, in order."""
        while self.waiting:
            waiter = self.waiting[0]
            tell = waiter.tell
            if tell is not None and not self.fits(waiter.size):
                return
            self.waiting.popleft()
            if tell is None:
                self._given_up -= 1
                continue
            self.taken += waiter.size
            waiter.entered, waiter.tell = True, None
            tell(None)

    def wait(
        self,
        size: int,
        deadline: float,
        label: object,
        tell: Callable[[BaseException | None], None],
    ) -> Waiter:
        """Wait for room for `size` bytes behind the operations that wait already."""
        waiter = Waiter(size, deadline, label, tell)
        self.waiting.append(waiter)
        self._look_at = min(self._look_at, deadline)
        return waiter

    def give_up(self, waiter: Waiter) -> None:
        """End the wait of an operation that its caller does not want any more; it gives back the room that it may have."""
        if waiter.entered:
            waiter.entered = False
            self.leave(waiter.size)
        elif waiter.tell is not None:
            waiter.tell = None
            self._given_up += 1
            if 2 * self._given_up > len(self.waiting):
                self.waiting = deque(one for one in self.waiting if one.tell is not None)
                self._given_up = 0
                self.admit()

    def tick(self, now: float) -> None:
        """End the waits that took too long."""
        if now < self._look_at:
            return
        late = [one for one in self.waiting if one.deadline <= now]
        for waiter in late:
            story = f"{waiter.label}: it was not sent, for it waited for room behind {self.taken} bytes under way"
            self._fail(waiter, Unavailable(0, 0, {}, story))
        soonest = min((one.deadline for one in self.waiting if one.tell is not None), default=inf)
        self._look_at = max(soonest, now + LOOK_S)

    def close(self, error: Callable[[], Uncertain]) -> None:
        """End every wait with an error of its own."""
        for waiter in list(self.waiting):
            self._fail(waiter, error())

    def _fail(self, waiter: Waiter, error: Uncertain) -> None:
        tell = waiter.tell
        if tell is not None:  # else it entered meanwhile, or its caller gave it up
            self.give_up(waiter)
            tell(error)
