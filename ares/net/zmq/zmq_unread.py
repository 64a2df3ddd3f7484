"""Replies that ZeroMQ has and the kernel has not: what a server's memory holds for clients that do not read.

ZeroMQ counts batches and not their bytes, and tells of one frame at a time when it is done with it (a tracker), which costs too much for every small
reply. A connection is a queue, so a tracker now and then tells of everything before it: large batches have one, and small ones when a client has got
MARK_BYTES of them since its last.
"""

from collections import deque
from collections.abc import Hashable

import zmq

from ares.net.zmq.zmq_sockets import ZERO_COPY_BYTES_MIN

MARK_BYTES = ZERO_COPY_BYTES_MIN


class Debt:
    """What one client has not taken. ``unmarked`` bytes went out since the last tracker, whatever has become of them."""

    __slots__ = ("marked", "marks", "unmarked")

    def __init__(self) -> None:
        self.marks: deque[tuple[zmq.MessageTracker, int]] = deque()
        self.marked = 0
        self.unmarked = 0


class Unread:
    """Bytes by client. ``total`` is that of everything marked; it is right after :meth:`settle`, and never too small.

    Of it, ``leaving`` bytes were for clients that are gone, and have not been freed yet.
    """

    def __init__(self) -> None:
        self._debts: dict[Hashable, Debt] = {}
        self._leaving: deque[tuple[zmq.MessageTracker, int]] = deque()
        self.total = 0
        self.leaving = 0

    def __len__(self) -> int:
        return len(self._debts)

    def __contains__(self, client: Hashable) -> bool:
        return client in self._debts

    def wants_mark(self, client: Hashable, size: int) -> bool:
        """Whether a batch of ``size`` bytes to this client is to be tracked; if not, it is on the books now."""
        debt = self._debts.get(client)
        if debt is None:
            debt = self._debts[client] = Debt()
        if debt.unmarked + size >= MARK_BYTES:
            return True
        debt.unmarked += size
        return False

    def mark(self, client: Hashable, size: int, tracker: zmq.MessageTracker) -> None:
        """A batch of ``size`` bytes, tracked, is with ZeroMQ."""
        debt = self._debts[client]
        behind = debt.unmarked + size
        debt.marks.append((tracker, behind))
        debt.unmarked = 0
        debt.marked += behind
        self.total += behind

    def owed(self, client: Hashable) -> int:
        """What this client has not taken for sure, and what may not have left since."""
        debt = self._debts.get(client)
        return 0 if debt is None else self._settle(debt)

    def settle(self) -> Hashable | None:
        """Bring everything up to date; returns the client that owes most."""
        while self._leaving and self._leaving[0][0].done:
            size = self._leaving.popleft()[1]
            self.leaving -= size
            self.total -= size
        most: tuple[int, Hashable] = (0, None)
        for client, debt in self._debts.items():
            owed = self._settle(debt)
            if owed > most[0]:
                most = (owed, client)
        return most[1]

    def forget(self, client: Hashable) -> None:
        """This client has left, or is being hung up on, and ZeroMQ will free what was for it."""
        debt = self._debts.pop(client, None)
        if debt is not None:
            self._leaving += debt.marks
            self.leaving += debt.marked

    def _settle(self, debt: Debt) -> int:
        while debt.marks and debt.marks[0][0].done:
            size = debt.marks.popleft()[1]
            debt.marked -= size
            self.total -= size
        return debt.marked
