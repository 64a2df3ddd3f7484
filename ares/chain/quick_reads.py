"""Reads of committed entries that are there: one request, one answer, and no operation. What meets anything else goes on as the operation that it is.

A positive answer may come from any node at any time (docs/log.md, Read), so nothing has to be found out before or after.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from ares.chain.log_operations import ASK_S, LogOperations, check_position
from ares.model.errors import Uncertain
from ares.model.identity import CallId, ServerId
from ares.model.log_messages import PIECE_BYTES, RANGE_MAX, LogEntries, ReadLog
from ares.operation.effects import Operation
from ares.operation.session import Session

READ_CALLS = 1 << 47
"""Calls of these are from here on, below those of appends (ares/chain/appending.py)."""


Told = Callable[[Any, BaseException | None], None]


class Wish(Struct, eq=False):
    """``upto``: of a range; None: a single entry is wanted. ``done(result, error)`` is called once."""

    first: int
    upto: int | None
    server: ServerId
    asked_at: float
    deadline: float
    from_tail: bool
    done: Told


class QuickReads:
    """Of one client. ``outbox``: requests by server."""

    def __init__(self, operations: LogOperations, session: Session) -> None:
        self.outbox: dict[ServerId, list[ReadLog]] = {}
        self._operations = operations
        self._session = session
        self._calls = READ_CALLS
        self._wishes: dict[int, Wish] = {}

    @property
    def busy(self) -> bool:
        return bool(self._wishes)

    def ask(self, done: Told, now: float, first: int, upto: int | None, timeout_s: float, from_tail: bool) -> None:
        """The entry at ``first``, or pairs of positions and entries below ``upto``. Raises :class:`BadInput` for what is no position."""
        check_position(first)
        if upto is not None and upto <= first:
            return done([], None)
        chain, server = self._operations.whom(first, 0, from_tail)
        self._calls += 1
        self._wishes[self._calls] = Wish(first, upto, server, now, now + timeout_s, from_tail, done)
        count = 1 if upto is None else min(upto - first, RANGE_MAX)
        self.outbox.setdefault(server, []).append(ReadLog(CallId(self._calls), chain.id, first, count, PIECE_BYTES))
        return None

    def receive(self, reply: LogEntries, now: float) -> None:
        wish = self._wishes.pop(reply.call, None)
        if wish is not None and reply.entries:
            wish.done(reply.entries[0] if wish.upto is None else list(enumerate(reply.entries, wish.first)), None)
        elif wish is not None:
            self._go_on(wish, now)

    def refused(self, call: int, now: float) -> None:
        """The server does not know the chain, or the like."""
        wish = self._wishes.pop(call, None)
        if wish is not None:
            self._go_on(wish, now)

    def tick(self, now: float) -> None:
        """The oldest come first."""
        while self._wishes:
            call, wish = next(iter(self._wishes.items()))
            if now < min(wish.asked_at + ASK_S, wish.deadline):
                return
            del self._wishes[call]
            self._session.readiness.suspects.add(wish.server)
            self._go_on(wish, now)

    def _go_on(self, wish: Wish, now: float) -> None:
        operations, first = self._operations, wish.first
        operation: Operation[Any] = operations.read(first, False, wish.from_tail)
        if wish.upto is not None:
            operation = operations.read_range(first, wish.upto, wish.from_tail)
        self._session.start(operation, f"read of {operations.view.domain!r}", now, max(wish.deadline - now, 0.0), wish.done)

    def close(self, error: Callable[[], Uncertain]) -> None:
        """End everything with an error of its own."""
        wishes, self._wishes = self._wishes, {}
        for wish in wishes.values():
            wish.done(None, error())
