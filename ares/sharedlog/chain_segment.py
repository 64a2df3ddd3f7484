"""A node's part of a configuration of a log: a prefix of the records, and the chain's state.

See docs/log.md, Terms.
"""

import contextlib
from collections.abc import Hashable
from heapq import heappop, heappush

from msgspec import Struct

from ares.model.configuration import CHAIN_RULE, Configuration, Successor
from ares.model.errors import StoreDamaged
from ares.model.identity import CallId, ClientId, ServerId
from ares.model.log_messages import (
    LOG_PIECE_BYTES,
    Appended,
    AppendOutcome,
    LogRecord,
    ReadLog,
    Trim,
)
from ares.sharedlog.bound_ids import BoundAppend
from ares.sharedlog.entries import ClientRows, Entries

SEND_AGAIN_S = 0.2
"""Seconds until a node repeats records not confirmed by the next node."""

OUTBOX_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of entries and records in a node's unsent answers.

Beyond this size reads are answered without entries, and ask again.
"""

DIRTY_S = 1.0
"""Longest wait of a dirty read for the tail, in seconds."""

WAITING_REQUESTS_MAX = 1000
"""Most waiting reads; a further read is answered from the present state."""

CONDITIONAL_MAX, CONDITIONAL_BYTES_MAX = 256, 16 * 1024 * 1024
"""Limits of waiting conditional appends; more are dropped, and sent again by clients."""

AWAITED_MAX = 1000
"""Appends awaited at a tail; the oldest is dropped, and answered by the head alone."""

WAITING_BYTES_MORE = 512
"""Most bytes of a waiting append beside the entries, in memory and later in a journal."""

Sender = Hashable
"""The process to be answered: a client as named by the transport, or the id of a server."""


def waiting_bytes(append: BoundAppend) -> int:
    """Return the bytes taken by ``append`` while waiting."""
    return WAITING_BYTES_MORE + append.bulk


class WaitingRead(Struct, frozen=True):
    """A read waiting for entries, or for the tail's answer."""

    sender: Sender
    request: ReadLog
    until: float


class ChainSegment:
    """The state of a node in a chain.

    ``length``: the end of the records; the first is at ``start``. ``durable``: the end of the
    stored records. ``committed``: the end of the records known to be at every node. ``end``: the
    start of the immediate successor, once known. ``sent`` and ``confirmed``: the end of the records
    sent to the next node, and of the records held by the next node. ``trim_confirmed``: the
    position trimmed at every node behind. ``probing``: set after a restart, until the next node
    reports a position. ``introduced``, ``pointed``: the number of the fact of the introduction, and
    of the seal or the successor; 0 if no fact is waited for. ``conditional_bytes``: the bytes of
    appends waiting for a position.

    In a chain that commits side by side: ``ahead``: the end of the records durable at every node
    before. ``informed``: the tail never committed more than ``reached``. ``took_back``: the node
    did not forget records in a crash, or has them back from the next node. ``life_before`` and
    ``life_after``: the known lives of the neighbours. ``told``: the last news told to the next
    node.

    The remaining fields hold waiting requests: ``answers``, by the position after an append;
    appends ``at`` a position; trims; dirty reads with a question to the tail; awaited appends that
    the node does not have, by client and number.
    """

    def __init__(self, configuration: Configuration, server: ServerId, entries: Entries) -> None:
        self.configuration = configuration
        self.servers = configuration.server_ids
        self.place = self.servers.index(server)
        self.start = configuration.start
        self.entries = entries
        self.rows = ClientRows()
        self.length = self.durable = self.committed = self.start
        self.sealed = False
        self.successor: Successor | None = None
        self.end: int | None = None
        self.collected = False
        self.merged = False
        self.introduced = self.pointed = 0
        self.side_by_side = configuration.backend == CHAIN_RULE
        self.ahead = self.start
        self.informed = self.took_back = True
        self.life_before = self.life_after = 0
        self.told = (self.start, True)
        self.sent = self.confirmed = self.start
        self.trim_confirmed = 0
        self.resend_at = self.report_at = 0.0
        self.probing = False
        self.asked_tail: CallId | None = None
        self.ask_tail_again_at = 0.0
        self.conditional: list[tuple[Sender, BoundAppend]] = []
        self.conditional_bytes = 0
        self.trims: list[tuple[Sender, Trim]] = []
        self.asking: list[WaitingRead] = []
        self._awaited: dict[tuple[ClientId, int], tuple[Sender, CallId]] = {}
        self._answers: dict[int, dict[Sender, Appended]] = {}
        self._ends: list[int] = []

    @property
    def live(self) -> bool:
        """Return whether the segment is neither sealed nor followed by another chain."""
        return not self.sealed and self.successor is None

    @property
    def returning(self) -> bool:
        """Return whether records that were forgotten in a crash must be taken back first."""
        return not self.took_back and self.live

    @property
    def reached(self) -> int:
        """Return the end of the records durable here and, by the news told, at all nodes before.

        The tail commits up to this position.
        """
        ahead = self.side_by_side and not self.is_head
        return min(self.durable, self.ahead) if ahead else self.durable

    @property
    def bound(self) -> int:
        """Return a position below which all committed records are: evidence, if not sealed."""
        return self.committed if self.is_tail and self.informed else self.durable

    @property
    def sendable(self) -> int:
        """Return the end of the records that may be sent to the next node.

        A node that would forget the chain in a crash sends none: it would come back as new, and
        take nothing back.
        """
        if not self.side_by_side:
            return self.durable
        known = self.life_after and not self.returning and not self.introduced
        return self.length if known else self.sent

    @property
    def final(self) -> int:
        """Return the end of the records that are the same at every node, for ever."""
        return self.committed if self.end is None else self.length

    @property
    def news(self) -> tuple[int, bool]:
        """Return the part of a forward beside the records."""
        return (self.reached, self.informed) if self.side_by_side else self.told

    @property
    def is_head(self) -> bool:
        return self.place == 0

    @property
    def is_tail(self) -> bool:
        return self.place == len(self.servers) - 1

    @property
    def before(self) -> ServerId:
        return self.servers[self.place - 1]

    @property
    def after(self) -> ServerId:
        return self.servers[self.place + 1]

    @property
    def uncommitted(self) -> bool:
        """Return whether the next node must be asked again about the records.

        The next node may have all of them, while the news of their commit was lost.
        """
        return self.committed < (self.length if self.side_by_side else self.durable)

    def take(self, record: LogRecord) -> None:
        """Take the next record, which is whole and begins at ``length``."""
        self.entries.put(record)
        self.rows.take(record)
        self.length = record.end
        if self._awaited:
            name = record.client, record.number
            if (waiting := self._awaited.pop(name, None)) is not None:
                self.await_commit(record.first, record.end, record.number, *waiting)

    def cut(self, end: int) -> None:
        """Drop the records at ``end`` or later; the records below are committed."""
        if self.length > end:
            self.entries.cut(end)
            self.rows.cut(end)
            self.length = end
        self.durable = self.committed = self.length

    def settled(self, upto: int) -> None:
        """Raise the committed position to ``upto``.

        Unreadable records leave rows with more numbers than the rows need.
        """
        first, self.committed = self.committed, max(self.committed, upto)
        with contextlib.suppress(StoreDamaged):
            while (reached := self.entries.reach(first, upto, LOG_PIECE_BYTES)) > first:
                for record in self.entries.records(first, reached):
                    self.rows.commit(record)
                first = reached

    def wait_for_position(self, sender: Sender, request: BoundAppend) -> None:
        """Make an append wait until the entry at the wanted position is committed, or cut.

        Each client has at most one such append.
        """
        others = [pair for pair in self.conditional if pair[0] != sender]
        earlier = [append for waiting, append in self.conditional if waiting == sender]
        bytes = self.conditional_bytes - sum(map(waiting_bytes, earlier))
        if len(others) < CONDITIONAL_MAX and bytes < CONDITIONAL_BYTES_MAX:
            self.conditional = [*others, (sender, request)]
            self.conditional_bytes = bytes + waiting_bytes(request)

    def take_conditional(self) -> list[tuple[Sender, BoundAppend]]:
        """Return the appends waiting for a position, and clear the list."""
        conditional, self.conditional, self.conditional_bytes = self.conditional, [], 0
        return conditional

    def await_append(self, client: ClientId, number: int, sender: Sender, call: CallId) -> None:
        """Answer ``sender`` when the append is committed."""
        row = self.rows.get(client)
        if row is not None and (place := row.places.get(number)) is not None:
            if len(self._ends) < AWAITED_MAX or place[1] <= self.committed:
                self.await_commit(*place, number, sender, call)
        elif row is None or number > row.last:
            self._awaited[client, number] = sender, call
            if len(self._awaited) > AWAITED_MAX:
                del self._awaited[next(iter(self._awaited))]

    def await_commit(self, first: int, end: int, number: int, sender: Sender, call: CallId) -> None:
        """Answer ``sender`` when the log is committed up to ``end``, the end of the append."""
        if end not in self._answers:
            self._answers[end] = {}
            heappush(self._ends, end)
        self._answers[end][sender] = Appended(call, number, AppendOutcome.DONE, first, None)

    def answers_due(self) -> list[tuple[Sender, Appended]]:
        """Return the answers due now, and remove them."""
        due: list[tuple[Sender, Appended]] = []
        while self._ends and self._ends[0] <= self.committed:
            due += self._answers.pop(heappop(self._ends)).items()
        return due

    def answers_pending(self) -> list[tuple[Sender, Appended]]:
        """Return the answers still waiting."""
        return [pair for end in sorted(self._answers) for pair in self._answers[end].items()]

    def forget_answers(self) -> None:
        self._awaited.clear()
        self._answers.clear()
        self._ends.clear()
