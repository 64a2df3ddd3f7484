"""Room for the bytes under way of a client; operations beyond the room wait, in order.

No I/O and no clock: ``now`` is given. Values, entries and expected replies count, and each
operation counts OPERATION_BYTES for its own objects. An operation keeps its room until the
operation has ended, by a result, an error, the deadline, the caller or the end of the client.
"""

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any

from msgspec import Struct

from ares.model.errors import Unavailable, Uncertain

ROOM_BYTES = 64 * 1024 * 1024
"""Room of the operations on objects of a client, and room of each open log."""

OPERATION_BYTES = 2048
"""Size of the own objects of an append, or of a read of a log."""

UNKNOWN_REPLY_BYTES = 1024 * 1024
"""Size counted for a reply until a reply of the same kind was seen."""

SMALL_REPLY_BYTES = 32 * 1024
"""Largest value whose reads the compiled core counts by number and not by size."""

OPERATIONS_MAX = 2048
"""Most operations on objects under way at once; the compiled core keeps this limit, too."""

OBJECT_OPERATION_BYTES = ROOM_BYTES // OPERATIONS_MAX
"""Size of an operation on objects without the value: its own objects and small messages."""

EXPIRY_LOOK_S = 0.1
"""Time between two looks for operations that waited too long."""


class Waiter(Struct, eq=False):
    """An operation that waits for room; a small object, of which a program may make a million.

    ``done`` is the function that ends the wait: with None when the operation has room, else with an
    error. ``future``, ``start`` and ``arguments`` belong to this function.
    """

    room: "Room"
    size: int
    deadline: float
    label: object
    done: Callable[["Waiter", BaseException | None], None]
    future: Any
    start: Callable[..., object] | None = None
    arguments: tuple[Any, ...] = ()
    entered: bool = False
    ended: bool = False
    """State of the wait: over or not."""

    def give_up(self, _: object) -> None:
        """End the wait of an operation whose future is done, which was cancelled."""
        if not self.ended:
            self.room.give_up(self)


class Room:
    """Room for ``limit`` bytes, and for OPERATIONS_MAX operations on objects.

    Operations enter in the order of their arrival; an operation larger than the room enters alone.
    ``under_way``: the number of operations on objects that were begun. Small operations of the
    compiled core are counted by this number only: to count their bytes as well would take 4 % of
    the time of a write.
    """

    __slots__ = ("_given_up", "_look_at", "_under_way", "limit", "taken", "waiting")

    def __init__(self, under_way: Callable[[], int] = lambda: 0, limit: int = ROOM_BYTES) -> None:
        self.limit = limit
        self._under_way = under_way
        self.taken = 0
        self.waiting: deque[Waiter] = deque()
        self._given_up = 0
        self._look_at = inf

    def fits(self, size: int) -> bool:
        """Return whether `size` bytes have room now, if no operation waits before them."""
        if self._under_way() >= OPERATIONS_MAX:
            return False
        return not self.taken or self.taken + size <= self.limit

    def enter(self, size: int) -> bool:
        """Take room for `size` bytes, and return True.

        Returns False, and takes no room, if the operation has to :meth:`wait`.
        """
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
            if not waiter.ended and not self.fits(waiter.size):
                return
            self.waiting.popleft()
            if waiter.ended:
                self._given_up -= 1
                continue
            self.taken += waiter.size
            waiter.entered = waiter.ended = True
            waiter.done(waiter, None)

    def wait(
        self,
        size: int,
        deadline: float,
        label: object,
        done: Callable[[Waiter, BaseException | None], None],
        *rest: Any,
    ) -> Waiter:
        """Wait for room for `size` bytes behind the waiting operations; see :class:`Waiter`."""
        waiter = Waiter(self, size, deadline, label, done, *rest)
        self.waiting.append(waiter)
        self._look_at = min(self._look_at, deadline)
        return waiter

    def give_up(self, waiter: Waiter) -> None:
        """End the wait of an operation which the caller no longer wants.

        An operation that has room gives the room back.
        """
        if waiter.entered:
            waiter.entered = False
            self.leave(waiter.size)
        elif not waiter.ended:
            waiter.ended = True
            self._given_up += 1
            if 2 * self._given_up > len(self.waiting):
                self.waiting = deque(one for one in self.waiting if not one.ended)
                self._given_up = 0
                self.admit()

    def tick(self, now: float) -> None:
        """Let in the operations that have room, and end the waits after their deadline."""
        self.admit()
        if now < self._look_at:
            return
        late = [one for one in self.waiting if one.deadline <= now]
        for waiter in late:
            story = (
                f"{waiter.label}: it was not sent, for it waited for room behind {self.taken} "
                "bytes under way"
            )
            self._fail(waiter, Unavailable(0, 0, {}, story))
        soonest = min((one.deadline for one in self.waiting if not one.ended), default=inf)
        self._look_at = max(soonest, now + EXPIRY_LOOK_S)

    def close(self, error: Callable[[], Uncertain]) -> None:
        """End every wait with an error of its own."""
        for waiter in list(self.waiting):
            self._fail(waiter, error())

    def _fail(self, waiter: Waiter, error: Uncertain) -> None:
        if not waiter.ended:  # else the operation entered, or was given up
            self.give_up(waiter)
            waiter.done(waiter, error)
