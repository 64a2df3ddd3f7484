"""The copies of a log's records along a chain: forwards, commits, and the return after a restart.

See docs/log.md, Append, and Taking back. :class:`ares.sharedlog.node.LogNode` is the whole node.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence

from ares.model.errors import StoreDamaged
from ares.model.identity import NO_CALL, CallId, ServerId
from ares.model.log_messages import (
    LOG_PIECE_BYTES,
    RECORDS_MAX,
    Committed,
    Forward,
    GivenBack,
    LogRecord,
    OfChain,
    TakeBack,
)
from ares.model.messages import AnyMessage, CollectConfig, Finalize, ReadConfig, WriteConfig
from ares.model.work import Meter
from ares.sharedlog.chain_segment import SEND_AGAIN_S, ChainSegment, Sender
from ares.sharedlog.entries import Entries, MemoryEntries, first_piece, follow_on
from ares.sharedlog.log_facts import LogFact, LogTrimmed, RecordsTaken
from ares.sharedlog.log_state import LogState, UnknownChain
from ares.sharedlog.node_reads import NodeReads

ASK_BACK_AGAIN_S = 2.0
"""Seconds until a node whose disk had no room asks for its records again."""


class ChainNode(ABC):
    """The part of a node between its neighbours in a chain.

    ``state``: for inspection. ``now``: the time of the last call. ``calls_from``: the node's calls
    are above this number. ``life``: the number of this start of the server. ``forwards_at_once``:
    in chains that commit side by side records leave before they are durable; False where all facts
    become durable in the same turn.
    """

    def __init__(
        self,
        server: ServerId,
        identity: str,
        make_entries: Callable[[bytes], Entries] = MemoryEntries,
        calls_from: int = 0,
        meter: Meter | None = None,
    ) -> None:
        self.server = server
        self.life = 1
        self.forwards_at_once = True
        self.state = LogState(server, identity, make_entries)
        self.now = 0.0
        self.fact_count = self._stored = 0
        self._meter = meter or Meter()
        self._facts: list[LogFact] = []
        self._outbox: list[tuple[Sender, AnyMessage]] = []
        self._waiting: deque[tuple[int, Sender, AnyMessage]] = deque()
        self._taking: tuple[ChainSegment, list[LogRecord]] | None = None
        self._unsynced: deque[tuple[int, ChainSegment, int]] = deque()
        self._trims_unsynced: deque[tuple[int, int]] = deque()
        self._trimmed_durably = 0
        self._calls = calls_from
        self._reads = NodeReads(self.state, self._send, self._next_call)

    @abstractmethod
    def _answer_committed(self, segment: ChainSegment) -> None:
        """Answer all requests that waited for the committed position."""

    @abstractmethod
    def _seal(self, segment: ChainSegment) -> None:
        """Take no further records."""

    def _send(self, to: Sender, message: AnyMessage, after: int = 0) -> None:
        """Send ``message`` when the first ``after`` facts are durable.

        The facts promised by the message are either durable or among the first ``after`` facts.
        """
        self._meter.spent += message.bulk
        if after > self._stored:
            self._waiting.append((self.fact_count, to, message))
        else:
            self._outbox.append((to, message))

    def _record(self, fact: LogFact) -> None:
        self._end_taking()
        self._facts.append(fact)
        self.fact_count += 1
        self.state.apply(fact)

    def _next_call(self) -> CallId:
        self._calls += 1
        return CallId(self._calls)

    def _segment(
        self, request: OfChain | ReadConfig | WriteConfig | CollectConfig | Finalize
    ) -> ChainSegment:
        segment = self.state.segments.get(request.configuration)
        if segment is None:
            raise UnknownChain("introduce it")
        return segment

    def _take_records(self, segment: ChainSegment, records: Sequence[LogRecord]) -> None:
        """Take records, which become durable as one fact with the records taken just before."""
        if (
            self._taking is None
            or self._taking[0] is not segment
            or len(self._taking[1]) + len(records) > RECORDS_MAX
        ):
            self._end_taking()
            self.fact_count += 1
            self._taking = segment, []
        self._taking[1].extend(records)
        for record in records:
            segment.take(record)

    def _end_taking(self) -> None:
        if self._taking is not None:
            segment, records = self._taking
            self._taking = None
            self._facts.append(
                RecordsTaken(segment.configuration.id, tuple(records), segment.committed)
            )
            self._unsynced.append((self.fact_count, segment, segment.length))
            if self.forwards_at_once and segment.side_by_side and not segment.is_tail:
                self._send_on(segment)

    # -- forward, commit (docs/log.md, Append) -----------------------------------------------------

    def forward(self, sender: Sender, request: Forward) -> None:
        """Take new records and other news from the node before.

        Without news, report the own position; after a gap, ask for the missing records.
        """
        segment = self._segment(request)
        if segment.is_head or sender != segment.before or not segment.live:
            return
        if self.state.trimmed < request.trimmed <= segment.durable:
            self._record_trim(request.trimmed)
        if not self._is_of_present_lives(segment, request):
            return
        fresh = first_piece([each for each in request.records if each.first >= segment.length])
        if request.first > segment.length:
            self._report(segment, missing=True)
        elif not self._differs(segment, request.records):
            news = self._take_news(segment, request)
            if fresh and follow_on(segment.length, fresh):
                self._take_records(segment, fresh)
            elif not news:
                self._report(segment)
            if news and (segment.is_tail or not fresh):
                self._send_on(segment)

    def _is_of_present_lives(self, segment: ChainSegment, request: Forward) -> bool:
        """Return whether a forward is from the last known life of the node before, to this life.

        Records of other lives may be records that a node forgot since. A node that is told of
        another life than its own reports its own, unless the node is returning.
        """
        if not segment.side_by_side:
            return True
        if request.life < segment.life_before:
            return False
        segment.life_before = request.life
        if segment.returning:
            return False
        if request.to_life != self.life:
            self._report(segment, missing=request.first > segment.length)
            return False
        return True

    def _differs(self, segment: ChainSegment, records: Sequence[LogRecord]) -> bool:
        """Return whether this node has another record in the place of one of ``records``.

        Only a fault leads to such a record. The shell reports the damage.
        """
        known = [record for record in records if record.end <= segment.length]
        if not known or known[-1].first < max(self.state.trimmed, segment.start):
            return False
        own = self.state.read(segment.entries, known[-1].first, known[-1].end, 1)[0]
        if not own or own[0].seal == known[-1].seal:
            return False
        self.state.damage = StoreDamaged(
            "of a log", f"the node before has another record at position {known[-1].first}"
        )
        return True

    def _take_news(self, segment: ChainSegment, request: Forward) -> bool:
        """Take the position that is durable at all nodes before; return whether it is news."""
        before = segment.ahead, segment.informed
        segment.ahead = max(segment.ahead, request.ahead)
        segment.informed |= request.informed
        return segment.side_by_side and before != (segment.ahead, segment.informed)

    def _send_on(self, segment: ChainSegment) -> None:
        """Send new records and news to the next node; at the tail, commit."""
        if not segment.live:
            return
        if segment.is_tail:
            self._commit(segment, segment.reached)
            self._confirm_trim(segment, self._trimmed_durably)
        elif self._trimmed_durably > segment.trim_confirmed:
            self._forward(segment)
        elif segment.returning:
            return
        elif segment.side_by_side and not segment.life_after:
            if segment.uncommitted and self.now >= segment.resend_at:
                self._forward(segment)
        elif segment.sendable > segment.sent or segment.news != segment.told:
            self._forward(segment)

    def _forward(self, segment: ChainSegment) -> None:
        """Send one message of records and news.

        Further records follow when the message is confirmed, or later. Without new records the
        message asks for the position of the next node.
        """
        first, upto = segment.sent, segment.sendable
        records = tuple(
            self.state.read(segment.entries, first, upto, LOG_PIECE_BYTES)[0][:RECORDS_MAX]
        )
        segment.sent = max(segment.sent, records[-1].end) if records else segment.sent
        segment.resend_at = self.now + SEND_AGAIN_S
        segment.told = segment.news
        ahead, informed = segment.news
        self._send(
            segment.after,
            Forward(
                self._next_call(),
                segment.configuration.id,
                self.server,
                first,
                records,
                self._trimmed_durably,
                ahead,
                informed,
                self.life,
                segment.life_after,
            ),
        )

    def _report(self, segment: ChainSegment, missing: bool = False) -> None:
        trimmed = self._trimmed_behind(segment)
        report = Committed(
            self._next_call(),
            segment.configuration.id,
            self.server,
            segment.committed,
            segment.length if segment.side_by_side else segment.durable,
            trimmed,
            missing,
            self.life,
        )
        self._send(segment.before, report)

    def take_committed(self, sender: Sender, request: Committed) -> None:
        """Take a confirmation of the node behind.

        A sealed node still takes confirmations: a committed position is a fact.
        """
        segment = self._segment(request)
        if segment.is_tail or sender != segment.after:
            return
        if segment.live and (not segment.side_by_side or request.life >= segment.life_after):
            self._confirm(segment, request)
        self._commit(segment, request.committed)
        self._confirm_trim(segment, request.trimmed)

    def _confirm(self, segment: ChainSegment, request: Committed) -> None:
        """Take the position of the next node, and send the records that the node lacks."""
        present = min(request.length, segment.length)
        if segment.side_by_side and request.life > segment.life_after:
            # records sent to an earlier life may be forgotten
            segment.life_after = request.life
            self._begin_after(segment, present)
        segment.confirmed, segment.probing = max(present, request.committed), False
        if segment.returning:
            if request.missing:
                self._ask_back(segment)
            return
        if request.missing:
            segment.sent = present
        if request.missing or segment.sendable > segment.sent or segment.news != segment.told:
            self._forward(segment)

    def _begin_after(self, segment: ChainSegment, present: int) -> None:
        """Begin to send to a next node that has the records below ``present``, and no news."""
        segment.sent = segment.confirmed = present
        segment.told = (segment.start, False)

    def _commit(self, segment: ChainSegment, upto: int) -> None:
        if min(upto, segment.durable) > segment.committed:
            segment.settled(min(upto, segment.durable))
            self._answer_committed(segment)
            if segment.live and not segment.is_head:
                self._report(segment)

    def _tick_chain(self, segment: ChainSegment) -> None:
        """Repeat the messages that the neighbours have not confirmed."""
        if not segment.live:
            return
        if not segment.is_tail and self.now >= segment.resend_at:
            if segment.returning:
                self._ask_back(segment)
            owed = not segment.returning and (segment.probing or segment.uncommitted)
            if owed or segment.trim_confirmed < self._trimmed_durably:
                self._forward(segment)
        if not (segment.informed or segment.returning) and self.now >= segment.report_at:
            segment.report_at = self.now + SEND_AGAIN_S
            self._report(segment, missing=True)

    # -- trims ------------------------------------------------------------------------------------

    def _trimmed_behind(self, segment: ChainSegment) -> int:
        """Return the position that is durably trimmed at this node and at every node behind.

        The position is a lower bound: as far as this node knows.
        """
        return (
            self._trimmed_durably
            if segment.is_tail
            else min(segment.trim_confirmed, self._trimmed_durably)
        )

    def _record_trim(self, upto: int) -> None:
        self._record(LogTrimmed(upto))
        self._trims_unsynced.append((self.fact_count, upto))

    def _confirm_trim(self, segment: ChainSegment, upto: int) -> None:
        if upto > segment.trim_confirmed:
            segment.trim_confirmed = upto
            if segment.is_head:
                self._answer_committed(segment)
            elif segment.live:
                self._report(segment)

    # -- after a restart (docs/log.md, Taking back) ------------------------------------------------

    def _ask_back(self, segment: ChainSegment) -> None:
        segment.resend_at = self.now + SEND_AGAIN_S
        request = TakeBack(
            self._next_call(), segment.configuration.id, self.server, self.life, segment.length
        )
        self._send(segment.after, request)

    def take_back(self, sender: Sender, request: TakeBack) -> None:
        """Give records back to the node before, which restarted.

        From now on no forward of an earlier life of that node is taken. A sealed node says so, and
        names the successor if known. A node that is returning itself gives nothing yet.
        """
        segment = self._segment(request)
        if segment.is_head or sender != segment.before or request.life < segment.life_before:
            return
        if segment.successor is not None:
            named = WriteConfig(NO_CALL, segment.configuration.id, segment.successor)
            self._send(sender, named, segment.pointed)
        if not segment.returning:
            segment.life_before = request.life
            self._report(segment)  # a head whose disk is full is trimmed up to the position
            records: Sequence[LogRecord] = ()
            if segment.live:
                records = self.state.read(
                    segment.entries, request.first, segment.length, LOG_PIECE_BYTES
                )[0][:RECORDS_MAX]
            given = GivenBack(
                self._next_call(),
                segment.configuration.id,
                self.server,
                request.life,
                self.life,
                tuple(records),
                segment.length,
                not segment.live,
            )
            self._reads.outbox_bytes += given.bulk
            self._send(sender, given, segment.pointed)

    def given_back(self, sender: Sender, request: GivenBack) -> None:
        """Take back records from the next node.

        When that node has no further record, this node takes forwards or appends again. When that
        node is sealed, no record can pass: this node is sealed, too.
        """
        segment = self._segment(request)
        if (
            segment.is_tail
            or sender != segment.after
            or not segment.returning
            or request.to_life != self.life
            or request.life < segment.life_after
        ):
            return
        segment.life_after = request.life
        if request.sealed:
            self._seal(segment)
            return
        fresh = first_piece([each for each in request.records if each.first >= segment.length])
        taken = bool(fresh) and follow_on(segment.length, fresh)
        if taken:
            self._take_records(segment, fresh)
        if segment.length >= request.length:
            self._end_taking()
            segment.took_back, segment.probing = True, False
            self._begin_after(segment, request.length)
            if not segment.is_head:
                self._report(segment, missing=True)
            self._send_on(segment)
        elif taken:
            self._ask_back(segment)
        else:
            segment.resend_at = self.now + ASK_BACK_AGAIN_S
