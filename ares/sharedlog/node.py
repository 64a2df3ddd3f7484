"""The part of a server in a log, as a state machine without I/O (docs/log.md).

Messages come in; facts to be stored and messages that may leave come out. The shell hands messages
to ``handle`` and time to ``tick``, and takes both outputs with ``take``. The shell stores the facts
in their order; when the first n facts ever given are durable, the shell calls ``stored(n)``.
Messages given by ``take`` may leave at once: the facts that a message promises or shows are durable
before the node gives the message out, except for the records in forwards and in records given back,
and the length in reports to the node before. In this way many messages share a commit. After a
restart the stored facts go to ``restore``.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from ares.model.configuration import Configuration, Status, Successor
from ares.model.errors import BadInput
from ares.model.identity import NO_CALL, CallId, ConfigurationId, ServerId
from ares.model.log_messages import (
    LOG_PIECE_BYTES,
    RECORDS_MAX,
    ROW_PLACES_MAX,
    Append,
    Appended,
    AppendOutcome,
    AwaitAppend,
    Committed,
    Fetch,
    Fetched,
    Forward,
    GivenBack,
    LogRecord,
    Look,
    LookDone,
    LookRow,
    ReadEach,
    ReadLog,
    RowFound,
    Seal,
    SealDone,
    Stand,
    Stood,
    TakeBack,
    Trim,
    TrimDone,
    seal_of,
)
from ares.model.messages import (
    DETAIL_CHARACTERS_MAX,
    Ack,
    AnyMessage,
    CollectConfig,
    Finalize,
    Introduce,
    ReadConfig,
    Reason,
    Refused,
    WriteConfig,
)
from ares.model.numbers import POSITION_MAX
from ares.model.work import Meter
from ares.reconfig.throttle import Throttle
from ares.sharedlog.bound_ids import BoundAppend, bound_append, bound_id
from ares.sharedlog.chain_node import ChainNode
from ares.sharedlog.chain_segment import WAITING_REQUESTS_MAX, ChainSegment, Sender
from ares.sharedlog.earlier_chains import EarlierLooks, EarlierRow, Fetcher, Refetch
from ares.sharedlog.entries import Entries, MemoryEntries, check_batch
from ares.sharedlog.log_facts import ChainSealed, ChainsKnown, LogFact, LogTrimmed, LostRecords
from ares.sharedlog.log_state import REASON_OF_LOG_ERROR


class LogNode(ChainNode):
    """The node of a log at a server.

    ``fetcher``: fetches old records in pieces of at most LOG_PIECE_BYTES. ``refetch``: fetches
    records that damage lost. ``outbox_bytes``: bytes of entries and records in the next result of
    :meth:`take`. ``throttle``: the rate limit of fetches.
    """

    def __init__(
        self,
        server: ServerId,
        identity: str,
        make_entries: Callable[[bytes], Entries] = MemoryEntries,
        calls_from: int = 0,
        throttle: Throttle | None = None,
        meter: Meter | None = None,
    ) -> None:
        super().__init__(server, identity, make_entries, calls_from, meter)
        self._looks = EarlierLooks(
            self._send, self.state.row_found, self._append_found, self._next_call
        )
        self.fetcher = Fetcher(self.state, self._send, self._next_call, throttle)
        self.refetch = Refetch(self.state, self._send, self._next_call, throttle)
        self._handlers: dict[type, Callable[[Sender, Any], None]] = {
            BoundAppend: self.append,
            AwaitAppend: self.await_append,
            Introduce: self.introduce,
            ReadLog: self.read,
            ReadEach: self.read_each,
            Look: self.look,
            Trim: self.trim,
            Seal: self.seal,
            Stand: self.stand,
            Forward: self.forward,
            Committed: self.take_committed,
            TakeBack: self.take_back,
            GivenBack: self.given_back,
            LookRow: self.look_row,
            Fetch: self.fetch,
            ReadConfig: self.read_config,
            WriteConfig: self.write_config,
            CollectConfig: self.write_config,
            Finalize: self.finalize,
            LookDone: self.tail_seen,
            RowFound: self.row_found,
            Fetched: self.fetched,
            Refused: self.refused,
        }

    # -- the shell's side --------------------------------------------------------------------------

    def handle(self, sender: Sender, message: AnyMessage, now: float) -> None:
        """Handle a message from a client or a server. No message makes this method raise."""
        self.now = now
        if type(message) is Append:
            message = bound_append(sender, message)
        handler = self._handlers.get(type(message))
        if handler is None:
            return
        try:
            handler(sender, message)
        except tuple(REASON_OF_LOG_ERROR) as error:
            self._refuse(
                sender,
                message.call,
                next(
                    reason
                    for kind, reason in REASON_OF_LOG_ERROR.items()
                    if isinstance(error, kind)
                ),
                str(error),
            )

    @property
    def outbox_bytes(self) -> int:
        return self._reads.outbox_bytes

    @property
    def has_output(self) -> bool:
        return bool(self._facts or self._taking or self._outbox)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the waiting appends; the node may take each of them after a reply."""
        segments = self.state.segments.values()
        return self._looks.bytes + sum([segment.conditional_bytes for segment in segments])

    def forget_waiting(self) -> None:
        """Drop all waiting appends. Their clients send them again."""
        for segment in self.state.segments.values():
            segment.take_conditional()
        self._looks.forget()

    def take(self) -> tuple[list[LogFact], list[tuple[Sender, AnyMessage]]]:
        """Return the facts to be stored, in order, and the messages that may leave now."""
        self._end_taking()
        facts, outbox, self._facts, self._outbox, self._reads.outbox_bytes = (
            self._facts,
            self._outbox,
            [],
            [],
            0,
        )
        return facts, outbox

    def stored(self, count: int, now: float) -> None:
        """Take note that the first ``count`` facts of this node's life are durable."""
        self.now, self._stored = now, count
        moved: dict[ConfigurationId, ChainSegment] = {}
        while self._unsynced and self._unsynced[0][0] <= count:
            _, segment, length = self._unsynced.popleft()
            segment.durable = max(segment.durable, min(length, segment.length))
            if segment.introduced <= count:
                segment.introduced = 0
            moved[segment.configuration.id] = segment
        while self._trims_unsynced and self._trims_unsynced[0][0] <= count:
            self._trimmed_durably = self._trims_unsynced.popleft()[1]
            moved |= {id: segment for id, segment in self.state.segments.items() if segment.live}
        for segment in moved.values():
            self._send_on(segment)
        while self._waiting and self._waiting[0][0] <= count:
            self._outbox.append(self._waiting.popleft()[1:])
        self.fetcher.go_on(self.now, self._stored)

    def restore(self, facts: Iterable[LogFact]) -> None:
        """Begin with the durable facts.

        The tail knows the committed position; every earlier node asks the next node. In a chain
        that commits side by side the tail asks the node before, and every earlier node takes back
        the records that it forgot.
        """
        for fact in facts:
            self.state.apply(fact)
            self.fact_count += 1
        self._stored = self.fact_count
        self._trimmed_durably = self.state.trimmed
        for segment in self.state.segments.values():
            segment.durable = segment.sent = segment.length
            segment.informed = segment.is_head or not segment.side_by_side
            segment.took_back = segment.is_tail or not segment.side_by_side
            segment.introduced = 0
            if segment.live and segment.is_tail:
                segment.settled(segment.reached)
            segment.probing = True

    def tick(self, now: float) -> None:
        """Let time pass: repeat unconfirmed messages, and end the waits that are over."""
        self.now = now
        for segment in self.state.segments.values():
            self._tick_chain(segment)
        self._reads.tick(now)
        self._looks.tick(now)
        self.refetch.go_on(now)
        self.fetcher.go_on(self.now, self._stored)

    # -- outputs -----------------------------------------------------------------------------------

    def _refuse(self, to: Sender, call: CallId, reason: Reason, detail: str) -> None:
        self._send(to, Refused(call, reason, detail[:DETAIL_CHARACTERS_MAX]))

    # -- append (docs/log.md, Append; Each append once) --------------------------------------------

    def append(self, sender: Sender, request: BoundAppend) -> None:
        """Handle an append, at the head."""
        segment = self._segment(request)
        check_batch(request.entries)
        if (
            not segment.is_head
            or request.number < request.lowest
            or segment.length > POSITION_MAX - len(request.entries)
        ):
            raise BadInput(
                "an append goes to the head, its number is not below its lowest, and positions "
                "end at 2^63 - 1"
            )
        if request.number - request.lowest >= ROW_PLACES_MAX:
            raise BadInput(
                f"fewer than {ROW_PLACES_MAX} appends of one client are unanswered at a time"
            )
        row = segment.rows.under(request.names)
        if (
            row is not None
            and request.number == row.last + 1
            and request.at is None
            and segment.live
            and segment.took_back
        ):
            self._take(segment, sender, request)  # the general way would come to the same result
            return
        nothing = EarlierRow(
            0,
            {},
            request.since >= segment.start,
            False,
            self.state.trimmed,
            segment.configuration.index - 1,
        )
        self._append_found(segment, sender, request, nothing)

    def _append_found(
        self, segment: ChainSegment, sender: Sender, request: BoundAppend, found: EarlierRow
    ) -> None:
        """Handle an append with the known part of the client's row.

        The known part is the row in the head's own segment, and ``found``, the row in earlier
        chains.
        """
        number, row = request.number, segment.rows.under(request.names)
        place = (row.places.get(number) if row is not None else None) or found.places.get(number)
        if place is not None:
            self._answer_repetition(segment, sender, request, place)
        elif not segment.live:
            self._answer(segment, sender, request, AppendOutcome.SEALED)
        elif segment.returning:
            self._answer(segment, sender, request, AppendOutcome.BEHIND)
        elif row is None and self.state.may_have_been_trimmed(request.since, segment.start):
            self._answer(segment, sender, request, AppendOutcome.UNCERTAIN, segment.committed)
        else:
            last = row.last if row is not None else found.last
            if row is not None and number < row.lowest:
                return None  # a late copy of an append answered long ago
            if number <= last or (row is None and not last):
                if not found.exhausted:
                    chains = [chain for _, chain in sorted(self.state.chains.items())]
                    return self._looks.wait(segment, sender, request, found, chains, self.now)
                if found.uncertain or (number <= last and found.trimmed > request.since):
                    return self._answer(
                        segment, sender, request, AppendOutcome.UNCERTAIN, segment.committed
                    )
            self._append_after(segment, sender, request, last)
        return None

    def _append_after(
        self, segment: ChainSegment, sender: Sender, request: BoundAppend, last: int
    ) -> None:
        """Take an append or refuse it, where ``last`` is the client's highest number in the log."""
        due = self._due(request, last)
        if request.number > due:
            self._answer(segment, sender, request, AppendOutcome.GAP, due)
        elif request.number == due:
            if request.at is None or request.at == segment.length:
                self._take(segment, sender, request)
            elif request.at > segment.length:
                self._answer(segment, sender, request, AppendOutcome.BEHIND)
            elif self._is_taken(segment, request.at):
                self._answer(segment, sender, request, AppendOutcome.TAKEN, segment.committed)
            else:  # the entry at the position may still be cut: wait for the commit or for the cut
                segment.wait_for_position(sender, request)

    def _is_taken(self, segment: ChainSegment, position: int) -> bool:
        """Return whether the position has an entry for ever: an uncommitted entry may be cut."""
        return segment.committed > position

    def _due(self, request: Append, last: int) -> int:
        """Return the only number that the head takes."""
        return max(last + 1, request.lowest)

    def _take(self, segment: ChainSegment, sender: Sender, request: Append) -> None:
        first, client, number, lowest, entries = (
            segment.length,
            request.client,
            request.number,
            request.lowest,
            request.entries,
        )
        record = LogRecord(
            first, client, number, lowest, entries, seal_of(first, client, number, lowest, entries)
        )
        segment.await_commit(first, record.end, number, sender, request.call)
        self._take_records(segment, (record,))

    def _answer_repetition(
        self, segment: ChainSegment, sender: Sender, request: Append, place: tuple[int, int]
    ) -> None:
        first, end = place
        if end <= segment.committed:
            self._answer(segment, sender, request, AppendOutcome.DONE, first)
        else:
            segment.await_commit(first, end, request.number, sender, request.call)
            if not segment.live:
                self._answer(segment, sender, request, AppendOutcome.SEALED)

    def await_append(self, sender: Sender, request: AwaitAppend) -> None:
        """Handle a client's wait for an append, at the tail: the first node that knows the commit.

        A sealed node does not answer, nor does the tail of another chain: the head does.
        """
        segment = self._segment(request)
        if segment.is_tail and segment.live:
            client = bound_id(request.client, request.secret, getattr(sender, "key", ""))
            segment.await_append(client, request.number, sender, request.call)
            for to, answer in segment.answers_due():
                self._send(to, answer)

    def _answer(
        self,
        segment: ChainSegment,
        sender: Sender,
        request: Append,
        outcome: AppendOutcome,
        position: int = 0,
    ) -> None:
        self._send(
            sender,
            Appended(request.call, request.number, outcome, position, segment.successor),
            segment.pointed,
        )

    def _answer_committed(self, segment: ChainSegment) -> None:
        """Answer all requests that waited for the committed position."""
        for sender, answer in segment.answers_due():
            self._send(sender, answer)
        for sender, request in segment.take_conditional():
            self.append(sender, request)
        trims, segment.trims = segment.trims, []
        for sender, trim in trims:
            self.trim(sender, trim)
        self._reads.go_on(segment)

    # -- reads (docs/log.md, Read) -----------------------------------------------------------------

    def read(self, sender: Sender, request: ReadLog) -> None:
        self._reads.read(self._segment(request), sender, request, self.now)

    def read_each(self, sender: Sender, request: ReadEach) -> None:
        self._reads.read_each(self._segment(request), sender, request)

    def look(self, sender: Sender, request: Look) -> None:
        """Answer a look with the durable state."""
        segment = self._segment(request)
        self._send(
            sender,
            LookDone(
                request.call, segment.sealed, segment.bound, segment.committed, segment.successor
            ),
            segment.pointed,
        )

    def tail_seen(self, sender: Sender, reply: LookDone) -> None:
        """Take the tail's position, and continue the reads that waited for the tail."""
        for segment in self.state.segments.values():
            if segment.asked_tail == reply.call and sender == segment.servers[-1]:
                segment.asked_tail = None
                self._commit(segment, reply.committed if segment.end is None else 0)
                self._reads.tail_answered(segment)

    # -- trim (docs/log.md, Trim) ------------------------------------------------------------------

    def trim(self, sender: Sender, request: Trim) -> None:
        """Trim, at the head, at most up to the committed position.

        The answer leaves when every node has the trim durably.
        """
        segment = self._segment(request)
        done = self._trimmed_behind(segment) >= request.upto
        if not segment.is_head:
            raise BadInput("a trim goes to the head")
        if done or not segment.live or request.upto > segment.committed:
            self._send(
                sender,
                TrimDone(request.call, done, segment.committed, segment.successor),
                segment.pointed,
            )
        else:
            segment.trims = [
                *[pair for pair in segment.trims if pair[0] != sender][-WAITING_REQUESTS_MAX:],
                (sender, request),
            ]
            if request.upto > self.state.trimmed:
                self._record_trim(request.upto)

    # -- seal, successor, collection (docs/log.md, Reconfiguration) --------------------------------

    def introduce(self, sender: Sender, request: Introduce) -> None:
        """Take a chain and earlier chains of the same log.

        A server which hears of c' knows the successor of c.
        """
        chains = [*request.earlier, request.configuration]
        self.state.check_introduced(chains)
        for one, other in pairwise(
            [*filter(None, [self.state.chains.get(chains[0].index - 1)]), *chains]
        ):
            if one.id in self.state.segments:
                self._point(self.state.segments[one.id], Successor(other, Status.PENDING))
        new = tuple(chain for chain in chains if chain.index not in self.state.chains)
        if new:
            self._know(new)
        self._point_known()

    def _know(self, chains: tuple[Configuration, ...]) -> None:
        """Take new chains; this server's own forward when the introduction is durable."""
        self._record(ChainsKnown(chains))
        for segment in map(self.state.segments.get, [chain.id for chain in chains]):
            if segment is not None:
                segment.introduced = self.fact_count
                self._unsynced.append((self.fact_count, segment, segment.start))

    def _point_known(self) -> None:
        for segment, successor in self.state.unpointed():
            self._point(segment, successor)

    def _point(self, segment: ChainSegment, successor: Successor, collect: bool = False) -> None:
        """Take the successor of a segment.

        Raises :class:`ConflictingSuccessor`, which the server reports loudly: such a successor
        would lose committed entries.
        """
        fact = self.state.pointed(segment, successor, collect)
        if fact is None:
            return
        successor.configuration.check_bounds()
        self._record(fact)
        segment.pointed = self.fact_count
        if successor.configuration.index not in self.state.chains:
            self._know((successor.configuration,))
        self._answer_committed(segment)
        self._answer_sealed(segment)
        segment.forget_answers()
        self._point_known()

    def _answer_sealed(self, segment: ChainSegment) -> None:
        """Tell the clients of waiting appends to send again, to the next chain.

        The tail is silent: the head answers every append.
        """
        for sender, answer in segment.answers_pending() if segment.is_head else ():
            sealed = Appended(
                answer.call, answer.number, AppendOutcome.SEALED, 0, segment.successor
            )
            self._send(sender, sealed, segment.pointed)

    def seal(self, sender: Sender, request: Seal) -> None:
        """Seal a segment: from now on the segment takes no records.

        Records taken earlier are durable when the seal is durable.
        """
        segment = self._segment(request)
        if segment.live:
            self._seal(segment)
        self._send(
            sender, SealDone(request.call, segment.length, segment.successor), segment.pointed
        )

    def _seal(self, segment: ChainSegment) -> None:
        self._record(ChainSealed(segment.configuration.id))
        segment.pointed = self.fact_count
        self._answer_committed(segment)
        self._answer_sealed(segment)

    def read_config(self, sender: Sender, request: ReadConfig) -> None:
        segment = self._segment(request)
        self._send(sender, Ack(request.call, segment.successor), segment.pointed)

    def write_config(self, sender: Sender, request: WriteConfig | CollectConfig) -> None:
        """Take a successor, or a collection.

        A collection removes the data. The seal and the successor stay for ever.
        """
        segment = self._segment(request)
        self._point(segment, request.successor, isinstance(request, CollectConfig))
        self._send(sender, Ack(request.call, segment.successor), self.fact_count)

    def finalize(self, sender: Sender, request: Finalize) -> None:
        """Take note that the chain may be named to clients from now on (rule R21)."""
        segment = self._segment(request)
        if segment.configuration.index > self.state.finalized:
            self._record(ChainsKnown((), segment.configuration.index))
        self._send(sender, Ack(request.call, segment.successor), self.fact_count)

    def stand(self, sender: Sender, request: Stand) -> None:
        segment, upto = self._segment(request), self.state.base_upto
        self._send(
            sender,
            Stood(request.call, upto >= segment.start, upto, segment.successor),
            self.fact_count,
        )

    # -- from server to server: rows and old records -----------------------------------------------

    def look_row(self, sender: Sender, request: LookRow) -> None:
        """Answer with a client's row. The request carries the successor (R1)."""
        segment = self._segment(request)
        if request.successor is not None:
            self._point(segment, request.successor)
        found = self.state.row_found(segment.configuration, request.client, request.since)
        nothing = RowFound(NO_CALL, False, 0, (), False, False, self.state.trimmed)
        self._send(sender, replace(found or nothing, call=request.call), self.fact_count)

    def row_found(self, sender: Sender, reply: RowFound) -> None:
        self._looks.receive(reply, self.now)

    def fetch(self, sender: Sender, request: Fetch) -> None:
        """Answer with final records from any segment. The request carries the successor (R1)."""
        segment = self.state.segments.get(request.configuration)
        if segment is not None and request.successor is not None:
            self._point(segment, request.successor)
        records = (
            self.state.final(request.first, LOG_PIECE_BYTES, RECORDS_MAX)
            if request.first >= self.state.trimmed
            else ()
        )
        fetched = Fetched(request.call, request.first, tuple(records), self.state.trimmed)
        self._reads.outbox_bytes += fetched.bulk
        self._send(sender, fetched, self.fact_count)

    def fetched(self, sender: Sender, reply: Fetched) -> None:
        if self.refetch.awaits(reply):
            self.refetch.accept(sender, reply, self.now)
            return
        fact = self.fetcher.accept(reply, self.now)
        if isinstance(fact, LogTrimmed):
            self._record_trim(fact.upto)
        elif fact is not None:
            self._record(fact)
            self.fetcher.piece = self.fact_count
        self.fetcher.go_on(self.now, self._stored)

    def needed(self, lost: LostRecords) -> tuple[int, int] | None:
        """Return the lost positions whose records are needed, perhaps an empty range.

        No node shows or gives away records that are trimmed here, cut, or dropped with a collected
        chain. Needed records must be final. None: a record is not final yet, or the fact which
        makes a record unneeded is not durable yet.
        """
        segments = self.state.segments
        if any(each.pointed > self._stored for each in segments.values()):
            return None
        segment = segments.get(ConfigurationId(lost.source))
        first, upto = max(lost.first, self._trimmed_durably), lost.upto
        if segment is not None and segment.successor is not None:
            upto = min(upto, segment.start if segment.end is None else segment.end)
            if segment.collected:  # the old part may have taken some of them over
                upto = min(upto, self.state.base_upto)
        elif segment is not None and upto > segment.committed:
            return None
        return first, max(first, upto)

    def refused(self, sender: Sender, reply: Refused) -> None:
        """Introduce the newest chain of ``sender``, and earlier chains, to ``sender``.

        The refusal says that the server does not know a chain.
        """
        if reply.reason is Reason.UNKNOWN_CONFIGURATION:
            chains = self.state.chains_for(sender)
            if chains:
                self._send(sender, Introduce(NO_CALL, chains[-1], tuple(chains[:-1])))
