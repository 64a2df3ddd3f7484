"""A node's part of one configuration of a log: a prefix of its records, and what it knows of the chain (docs/log.md, Terms)."""

import contextlib
from collections.abc import Hashable
from heapq import heappop, heappush

from msgspec import Struct

from ares.chain.bound_ids import BoundAppend
from ares.chain.entries import Entries, Rows
from ares.model.configuration import Configuration, Successor
from ares.model.errors import StoreDamaged
from ares.model.identity import CallId, ServerId
from ares.model.log_messages import PIECE_BYTES, Appended, LogRecord, ReadLog, Trim

SEND_AGAIN_S = 0.2
"""Until a node repeats what the next one has not confirmed."""

OUTBOX_BYTES_MAX = 4 * 1024 * 1024
"""Of entries and records in answers of a node that have not left. Beyond it reads are told nothing, and ask again."""

DIRTY_S = 1.0
"""How long a dirty read waits for the tail."""

HELD_MAX = 1000
"""Reads that wait at once; one more is answered with what there is."""

CONDITIONAL_MAX, CONDITIONAL_BYTES_MAX = 256, 16 * 1024 * 1024
"""Conditional appends that wait at once; more are dropped, and sent again by their clients."""

WAITING_BYTES_MORE = 512
"""Bytes that an append that waits takes beside its entries, in memory and later in a journal, at most."""

Sender = Hashable
"""Whoever is to be answered: a client as the transport names it, or the id of a server."""


def waiting_bytes(append: BoundAppend) -> int:
    """Return what ``append`` takes while it waits."""
    return WAITING_BYTES_MORE + append.bulk


class Held(Struct, frozen=True):
    """A read that waits for entries, or for the tail's answer."""

    sender: Sender
    request: ReadLog
    until: float


class Stretch:
    """``length``: it has records of [start, length); ``durable``: so far they are stored. ``committed``: what it knows to be at every node.

    ``end``: the start of the immediate successor, once known. ``sent``, ``confirmed``: how far the next node was sent records, and has them.
    ``trim_confirmed``: how far every node behind has trimmed.
    ``probing``: after a restart, until that one says how far it is.
    ``pointed``: the number of the fact that tells seal and successor, 0 if none is due.
    ``conditional_bytes``: what appends that wait for a position take.
    The rest is what waits: ``answers``, by the position after an append; appends ``at`` a position; trims; dirty reads that ask the tail.
    """

    def __init__(self, configuration: Configuration, server: ServerId, entries: Entries) -> None:
        self.configuration = configuration
        self.servers = configuration.server_ids
        self.place = self.servers.index(server)
        self.start = configuration.start
        self.entries = entries
        self.rows = Rows()
        self.length = self.durable = self.committed = self.start
        self.sealed = False
        self.successor: Successor | None = None
        self.end: int | None = None
        self.collected = False
        self.merged = False
        self.pointed = 0
        self.sent = self.confirmed = self.start
        self.trim_confirmed = 0
        self.resend_at = 0.0
        self.probing = False
        self.asked_tail: CallId | None = None
        self.ask_tail_again_at = 0.0
        self.conditional: list[tuple[Sender, BoundAppend]] = []
        self.conditional_bytes = 0
        self.trims: list[tuple[Sender, Trim]] = []
        self.asking: list[Held] = []
        self._answers: dict[int, dict[Sender, Appended]] = {}
        self._ends: list[int] = []

    @property
    def live(self) -> bool:
        """Whether it takes appends and forwards."""
        return not self.sealed and self.successor is None

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

    def take(self, record: LogRecord) -> None:
        """The next record; it is whole, and begins at ``length``."""
        self.entries.put(record)
        self.rows.take(record)
        self.length = record.end

    def cut(self, end: int) -> None:
        """What this node holds at ``end`` or later counts for nothing; what it holds below is committed."""
        if self.length > end:
            self.entries.cut(end)
            self.rows.cut(end)
            self.length = end
        self.durable = self.committed = self.length

    def settled(self, upto: int) -> None:
        """So much is committed. What cannot be read any more leaves rows with more numbers than they need."""
        first, self.committed = self.committed, upto
        with contextlib.suppress(StoreDamaged):
            while (reached := self.entries.reach(first, upto, PIECE_BYTES)) > first:
                for record in self.entries.records(first, reached):
                    self.rows.commit(record)
                first = reached

    def wait_for_position(self, sender: Sender, request: BoundAppend) -> None:
        """Until what is at the position that ``request`` wants is committed, or cut. One of each client."""
        others = [pair for pair in self.conditional if pair[0] != sender]
        earlier = [append for waiting, append in self.conditional if waiting == sender]
        bytes = self.conditional_bytes - sum(map(waiting_bytes, earlier))
        if len(others) < CONDITIONAL_MAX and bytes < CONDITIONAL_BYTES_MAX:
            self.conditional = [*others, (sender, request)]
            self.conditional_bytes = bytes + waiting_bytes(request)

    def take_conditional(self) -> list[tuple[Sender, BoundAppend]]:
        """Return the appends that wait for a position; none waits afterwards."""
        conditional, self.conditional, self.conditional_bytes = self.conditional, [], 0
        return conditional

    def await_commit(self, end: int, sender: Sender, answer: Appended) -> None:
        """``answer`` leaves when the log is committed up to ``end``."""
        if end not in self._answers:
            self._answers[end] = {}
            heappush(self._ends, end)
        self._answers[end][sender] = answer

    def answers_due(self) -> list[tuple[Sender, Appended]]:
        """What may leave now."""
        due: list[tuple[Sender, Appended]] = []
        while self._ends and self._ends[0] <= self.committed:
            due += self._answers.pop(heappop(self._ends)).items()
        return due

    def answers_pending(self) -> list[tuple[Sender, Appended]]:
        """What waits still."""
        return [pair for end in sorted(self._answers) for pair in self._answers[end].items()]

    def forget_answers(self) -> None:
        self._answers.clear()
        self._ends.clear()
