"""Reads of existing entries without an operation.

A positive answer may come from any node at any time (docs/log.md, Read), hence nothing needs to be
found out before or after. After any other answer the read continues as an operation.
"""

from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple

from msgspec import Struct

from ares.engine.effects import Operation
from ares.engine.session import Session
from ares.model.configuration import Configuration
from ares.model.errors import Uncertain
from ares.model.identity import CallId, ServerId
from ares.model.log_messages import (
    EACH_MAX,
    LOG_PIECE_BYTES,
    RANGE_MAX,
    EachRead,
    LogEntries,
    ReadEach,
    ReadLog,
)
from ares.sharedlog.log_operations import CHAIN_ASK_S, LogOperations, check_position

READ_CALLS = 1 << 47
"""Lower bound of the calls of quick reads, below the calls of ares/sharedlog/appending.py."""


ReadDone = Callable[[Any, BaseException | None], None]


class ReadOptions(NamedTuple):
    """The server to be asked, tail or any node, and the kind of entries."""

    from_tail: bool
    uncommitted: bool = False


class QuickRead(Struct, eq=False):
    """A read under way. ``upto``: the end of a range; None for a single entry.

    ``done(result, error)`` is called once.
    """

    first: int
    upto: int | None
    deadline: float
    manner: ReadOptions
    done: ReadDone


class RangeRequest(Struct, eq=False):
    """A request for a range, or for up to EACH_MAX entries. ``until``: the end of the wait.

    The chain is asked for positions in [``first``, ``upto``).
    """

    call: CallId
    chain: Configuration
    server: ServerId
    until: float
    reads: list[QuickRead]
    first: int
    upto: float

    def message(self) -> ReadLog | ReadEach:
        """Return the message of the request."""
        read, *others = self.reads
        if others:
            return ReadEach(
                self.call,
                self.chain.id,
                tuple([each.first for each in self.reads]),
                read.manner.uncommitted,
            )
        count = 1 if read.upto is None else min(read.upto - read.first, RANGE_MAX)
        return ReadLog(
            self.call, self.chain.id, read.first, count, LOG_PIECE_BYTES, read.manner.uncommitted
        )


class QuickReads:
    """The quick reads of a client.

    Entries asked of the same server before a message is sent share a request.
    """

    def __init__(self, operations: LogOperations, session: Session) -> None:
        self._operations = operations
        self._session = session
        self._calls = READ_CALLS
        self._requests: dict[int, RangeRequest] = {}
        self._unsent: list[RangeRequest] = []
        self._open: dict[ReadOptions, RangeRequest] = {}

    @property
    def busy(self) -> bool:
        return bool(self._requests)

    def ask(
        self,
        done: ReadDone,
        now: float,
        first: int,
        upto: int | None,
        timeout_s: float,
        manner: ReadOptions,
    ) -> None:
        """Read the entry at ``first``, or pairs of positions and entries below ``upto``.

        Raises :class:`BadInput` if ``first`` is no position.
        """
        check_position(first)
        if upto is not None and upto <= first:
            return done([], None)
        read, until = (
            QuickRead(first, upto, now + timeout_s, manner, done),
            now + min(CHAIN_ASK_S, timeout_s / 2),
        )
        of_one = upto is None or upto == first + 1
        together = self._open.get(manner) if of_one else None
        fits = (
            together is not None
            and together.first <= first < together.upto
            and len(together.reads) < EACH_MAX
        )
        if together is not None and fits and together.call in self._requests:
            # else the request ended before it was sent
            together.reads.append(read)
            if until < together.until:
                together.until = until
            return None
        chain, server = self._operations.candidate(first, 0, manner.from_tail)
        active = self._operations.view.sequence.active
        place = active.index(chain)
        ends = active[place + 1].start if place + 1 < len(active) else inf
        self._calls += 1
        request = RangeRequest(
            CallId(self._calls), chain, server, until, [read], chain.start if place else 0, ends
        )
        self._requests[self._calls] = request
        self._unsent.append(request)
        if of_one:
            self._open[manner] = request
        return None

    def take_outbox(self) -> dict[ServerId, list[ReadLog | ReadEach]]:
        """Return the messages to be sent, by server, and empty the outbox."""
        outbox: dict[ServerId, list[ReadLog | ReadEach]] = {}
        for request in self._unsent:
            if request.call in self._requests:
                outbox.setdefault(request.server, []).append(request.message())
        self._unsent.clear()
        self._open.clear()
        return outbox

    def receive(self, server: ServerId, reply: LogEntries | EachRead, now: float) -> None:
        self._session.readiness.suspects.discard(server)
        request = self._requests.pop(reply.call, None)
        if request is None:
            return
        read, entries = request.reads[0], reply.entries
        if isinstance(reply, EachRead) and len(entries) == len(request.reads):
            for read, entry in zip(request.reads, entries, strict=True):
                if entry is None:
                    self._go_on(read, now)
                else:
                    read.done(entry if read.upto is None else [(read.first, entry)], None)
        elif isinstance(reply, LogEntries) and entries and len(request.reads) == 1:
            read.done(
                entries[0] if read.upto is None else list(enumerate(entries, read.first)), None
            )
        else:
            self._all_go_on(request, now)

    def refused(self, call: int, now: float) -> None:
        """Continue the reads of a refused request; the server may not know the chain."""
        request = self._requests.pop(call, None)
        if request is not None:
            self._all_go_on(request, now)

    def tick(self, now: float) -> None:
        for call, request in [
            (call, request) for call, request in self._requests.items() if request.until <= now
        ]:
            del self._requests[call]
            if request not in self._unsent:
                self._session.readiness.suspects.add(request.server)
            self._all_go_on(request, now)

    def _all_go_on(self, request: RangeRequest, now: float) -> None:
        for read in request.reads:
            self._go_on(read, now)

    def _go_on(self, read: QuickRead, now: float) -> None:
        operations, first = self._operations, read.first
        operation: Operation[Any] = operations.read(
            first, read.manner.uncommitted, read.manner.from_tail
        )
        if read.upto is not None:
            operation = operations.read_range(first, read.upto, read.manner.from_tail)
        self._session.start(
            operation,
            f"read of {operations.view.domain!r}",
            now,
            max(read.deadline - now, 0.0),
            read.done,
        )

    def close(self, error: Callable[[], Uncertain]) -> None:
        """End every read with an error of its own."""
        requests, self._requests = self._requests, {}
        for request in requests.values():
            for read in request.reads:
                read.done(None, error())
