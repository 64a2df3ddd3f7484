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


class QuickRead(Struct, eq=False):
    """``upto``: of a range; None: a single entry is wanted. ``until``: how long it is waited for; ``done(result, error)`` is called once."""

    first: int
    upto: int | None
    server: ServerId
    until: float
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
        self._reads: dict[int, QuickRead] = {}

    @property
    def busy(self) -> bool:
        return bool(self._reads)

    def ask(self, done: Told, now: float, first: int, upto: int | None, timeout_s: float, from_tail: bool) -> None:
        """The entry at ``first``, or pairs of positions and entries below ``upto``. Raises :class:`BadInput` for what is no position."""
        check_position(first)
        if upto is not None and upto <= first:
            return done([], None)
        chain, server = self._operations.whom(first, 0, from_tail)
        self._calls += 1
        self._reads[self._calls] = QuickRead(first, upto, server, now + min(ASK_S, timeout_s / 2), now + timeout_s, from_tail, done)
        count = 1 if upto is None else min(upto - first, RANGE_MAX)
        self.outbox.setdefault(server, []).append(ReadLog(CallId(self._calls), chain.id, first, count, PIECE_BYTES))
        return None

    def receive(self, server: ServerId, reply: LogEntries, now: float) -> None:
        self._session.readiness.suspects.discard(server)
        read = self._reads.pop(reply.call, None)
        if read is not None and reply.entries:
            read.done(reply.entries[0] if read.upto is None else list(enumerate(reply.entries, read.first)), None)
        elif read is not None:
            self._go_on(read, now)

    def refused(self, call: int, now: float) -> None:
        """The server does not know the chain, or the like."""
        read = self._reads.pop(call, None)
        if read is not None:
            self._go_on(read, now)

    def tick(self, now: float) -> None:
        for call, read in [(call, read) for call, read in self._reads.items() if read.until <= now]:
            del self._reads[call]
            self._session.readiness.suspects.add(read.server)
            self._go_on(read, now)

    def _go_on(self, read: QuickRead, now: float) -> None:
        operations, first = self._operations, read.first
        operation: Operation[Any] = operations.read(first, False, read.from_tail)
        if read.upto is not None:
            operation = operations.read_range(first, read.upto, read.from_tail)
        self._session.start(operation, f"read of {operations.view.domain!r}", now, max(read.deadline - now, 0.0), read.done)

    def close(self, error: Callable[[], Uncertain]) -> None:
        """End everything with an error of its own."""
        reads, self._reads = self._reads, {}
        for read in reads.values():
            read.done(None, error())
