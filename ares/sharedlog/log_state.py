"""The part of a log at a server, as a function of facts: segments of chains, and the old part.

The *old part* is every position below ``base_upto`` that is not trimmed: final, and without gaps. A
segment with a known successor is merged into the old part as soon as the old part reaches the start
of the segment. Hence a node of a new chain is complete when ``base_upto`` is the start of the new
chain. See docs/log.md, Terms, and Old positions.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import pairwise

from msgspec.structs import replace

from ares.model.configuration import (
    SERVERS_MAX,
    Configuration,
    ConflictingSuccessor,
    Status,
    Successor,
    advance,
)
from ares.model.errors import BadInput, StoreDamaged
from ares.model.identity import NO_CALL, ClientId, ConfigurationId, ServerId
from ares.model.log_messages import (
    ANSWER_BYTES_MAX,
    ChainReport,
    LogEntries,
    LogRecord,
    ReadLog,
    RowFound,
    RowPlace,
)
from ares.model.messages import EARLIER_MAX, ConfigurationReport, Introduce, Reason
from ares.model.work import entries_bulk
from ares.sharedlog.chain_segment import ChainSegment
from ares.sharedlog.entries import ClientRows, Entries, MemoryEntries
from ares.sharedlog.log_facts import (
    PIECES,
    ChainPointed,
    ChainSealed,
    ChainSegmentState,
    ChainsKnown,
    LogFact,
    LogSnapshot,
    LogTrimmed,
    PieceFetched,
    RecordsTaken,
)


class UnknownChain(BadInput):
    """A request about an unknown configuration, or a configuration without this server."""


class OtherChain(BadInput):
    """A chain with the index of a different chain, or a chain of another cluster."""


class NotInChain(BadInput):
    """An introduction of chains of which no chain names this server."""


REASON_OF_LOG_ERROR = {
    ConflictingSuccessor: Reason.CONFLICTING_SUCCESSOR,
    UnknownChain: Reason.UNKNOWN_CONFIGURATION,
    OtherChain: Reason.OTHER_CLUSTER,
    NotInChain: Reason.NOT_A_MEMBER,
    BadInput: Reason.BAD_REQUEST,
}
"""The reasons told to a peer, by error; the first match counts."""


def check_one_log(chains: Sequence[Configuration]) -> None:
    """Check for consecutive chains of a single log. Raises :class:`BadInput` for other chains."""
    for chain in chains:
        chain.check_bounds()
        if chain.dap != "chain" or chain.index < 0 or chain.domain != chains[0].domain:
            raise BadInput("the chains of one log are introduced together, in their order")
    if any(
        other.index != one.index + 1 or other.start < one.start for one, other in pairwise(chains)
    ):
        raise BadInput(
            "the chains of one log are introduced without gaps, and none starts before the one "
            "before it"
        )


def is_answer(reply: LogEntries) -> bool:
    """Return whether ``reply`` answers the read: with entries, or as gone or elsewhere."""
    ends = reply.successor is not None and (
        reply.successor.finalized or reply.first >= reply.successor.configuration.start
    )
    return bool(reply.entries or reply.trimmed > reply.first or reply.elsewhere or ends)


class LogState:
    """The part of a log at a server.

    ``segments``: of the chains with this server. ``chains``: all known chains, by index.
    ``trimmed``: positions below are gone. ``finalized``: the highest index of a chain known to be
    finalized; the first chain always is. ``damage``: the reason why records of this server could
    not be read at the last request; the shell reports the damage and clears the field.
    """

    def __init__(
        self,
        server: ServerId,
        identity: str,
        make_entries: Callable[[bytes], Entries] = MemoryEntries,
    ) -> None:
        self.server = server
        self.identity = identity
        self.trimmed = self.finalized = 0
        self.segments: dict[ConfigurationId, ChainSegment] = {}
        self.chains: dict[int, Configuration] = {}
        self.base_upto = 0
        self.base_rows = ClientRows()
        self.base = make_entries(PIECES)
        self.damage: StoreDamaged | None = None
        self._make_entries = make_entries

    # -- facts -------------------------------------------------------------------------------------

    def apply(self, fact: LogFact) -> None:
        match fact:
            case RecordsTaken():
                segment = self._introduced_segment(fact.configuration)
                for record in fact.records:
                    segment.take(record)
                segment.settled(min(fact.committed, segment.length))
            case PieceFetched():
                self._extend_base(fact.records)
            case LogTrimmed():
                self._trim(fact.upto)
            case ChainSealed():
                self._introduced_segment(fact.configuration).sealed = True
            case ChainPointed():
                self._point(self._introduced_segment(fact.configuration), fact)
            case ChainsKnown():
                for chain in fact.chains:
                    self._know(chain)
                self.finalized = max(self.finalized, fact.finalized)

    def standing(self) -> LogSnapshot:
        """Return the result of all facts without the records."""
        states = [
            ChainSegmentState(
                id,
                each.sealed,
                each.successor,
                each.end,
                each.collected,
                each.merged,
                each.length,
                each.committed,
            )
            for id, each in self.segments.items()
        ]
        return LogSnapshot(
            tuple(self.chains.values()), tuple(states), self.trimmed, self.base_upto, self.finalized
        )

    def begin(self, standing: LogSnapshot) -> None:
        """Begin with ``standing``, the result of the facts before the first remaining fact.

        Records forgotten with the earlier facts are trimmed, or count for nothing.
        """
        for chain in standing.chains:
            self._know(chain)
        for state in standing.segments:
            segment = self._introduced_segment(state.configuration)
            segment.sealed, segment.successor, segment.end = (
                state.sealed,
                state.successor,
                state.end,
            )
            segment.collected, segment.merged = state.collected, state.merged
            segment.length = segment.durable = segment.committed = state.length
        known = [
            state.successor.configuration.index
            for state in standing.segments
            if state.successor is not None and state.successor.finalized
        ]
        self.trimmed, self.base_upto, self.finalized = (
            standing.trimmed,
            standing.old_upto,
            max([standing.finalized, *known]),
        )

    def pass_by(self, standing: LogSnapshot) -> None:
        """Take a standing found among the facts: only the committed positions add to the facts."""
        for state in standing.segments:
            segment = self._introduced_segment(state.configuration)
            if segment.live:
                segment.settled(min(state.committed, segment.length))

    def _introduced_segment(self, id: ConfigurationId) -> ChainSegment:
        """Return the segment of a chain that a fact tells of. Raises :class:`StoreDamaged`."""
        segment = self.segments.get(id)
        if segment is None:
            raise StoreDamaged(
                "of a log",
                f"it tells of the chain {id.hex()}, and no earlier record introduces this chain",
            )
        return segment

    def _know(self, chain: Configuration) -> None:
        self.chains[chain.index] = chain
        if self.is_member(chain) and chain.id not in self.segments:
            self.segments[chain.id] = ChainSegment(chain, self.server, self._make_entries(chain.id))

    def check_introduced(self, chains: Sequence[Configuration]) -> None:
        """Check introduced chains.

        Raises the error of :func:`check_one_log`, :class:`OtherChain` or :class:`NotInChain`.
        """
        check_one_log(chains)
        for chain in chains:
            known = self.chains.get(chain.index)
            if (known is not None and known.id != chain.id) or chain.cluster_id != chains[
                -1
            ].cluster_id:
                raise OtherChain(f"index {chain.index} of this log is another chain here")
        if not any(map(self.is_member, chains)):
            raise NotInChain(f"{self.server} is not in {chains[-1].describe()} under this identity")

    def is_member(self, chain: Configuration) -> bool:
        """Return whether the chain names this server under the server's present identity."""
        return any(
            (member.id, member.identity) == (self.server, self.identity) for member in chain.servers
        )

    def _point(self, segment: ChainSegment, fact: ChainPointed) -> None:
        """Enter the successor of a segment.

        From now on the node is sealed, and its records at or beyond `end` count for nothing.
        """
        chain, own = fact.successor.configuration, segment.configuration
        segment.successor, segment.collected = fact.successor, fact.collected
        if fact.successor.finalized:
            self.finalized = max(self.finalized, chain.index)
        if chain.index == own.index + 1:
            segment.end = chain.start
        segment.cut(segment.start if segment.end is None else segment.end)
        # with a later record of its client a row may have outlived its trim
        segment.rows.trim(self.trimmed)
        if fact.collected:
            segment.entries, segment.rows, segment.merged = (
                self._make_entries(segment.configuration.id),
                ClientRows(),
                True,
            )
            if all(other.collected for other in self.segments.values()):
                self.base, self.base_rows, self.base_upto = (
                    self._make_entries(PIECES),
                    ClientRows(),
                    self.trimmed,
                )
        self._merge()

    def _extend_base(self, records: Iterable[LogRecord]) -> None:
        for record in records:
            if record.end > self.base_upto:  # a merged segment may have brought this record
                self.base.put(record)
                self.base_rows.take(record)
                self.base_rows.commit(record)
                self.base_upto = record.end
                self._merge()

    def _merge(self) -> None:
        ended = [
            segment
            for segment in self.segments.values()
            if segment.end is not None and not segment.merged
        ]
        for segment in sorted(ended, key=lambda segment: segment.configuration.index):
            if segment.start <= self.base_upto:
                self.base.adopt(segment.entries, self.base_upto, segment.length)
                self.base_rows.adopt(segment.rows)
                self.base_upto = max(self.base_upto, segment.length)
                segment.entries, segment.rows, segment.merged = (
                    self._make_entries(segment.configuration.id),
                    ClientRows(),
                    True,
                )

    def _trim(self, upto: int) -> None:
        self.trimmed = upto
        for entries, rows in (
            (self.base, self.base_rows),
            *((segment.entries, segment.rows) for segment in self.segments.values()),
        ):
            entries.drop(upto)
            rows.trim(upto)
        self.base_upto = max(self.base_upto, upto)
        self._merge()

    def all_entries(self) -> list[Entries]:
        """Return the entries of the old part, followed by the entries of each segment."""
        return [self.base, *(segment.entries for segment in self.segments.values())]

    def describe(self) -> list[ConfigurationReport]:
        """Return the state of each chain, with the number of entries in the segment.

        The count of the last chain includes the old part.
        """
        reports = []
        for segment in sorted(self.segments.values(), key=lambda each: each.configuration.index):
            here = (
                0
                if segment.collected or segment.merged
                else segment.length - max(segment.start, min(self.trimmed, segment.length))
            )
            part = ChainReport(
                not segment.live,
                segment.length,
                segment.committed,
                self.trimmed,
                self.base_upto,
                segment.returning,
            )
            reports.append(
                ConfigurationReport(
                    segment.configuration, here, 0, segment.collected, segment.successor, chain=part
                )
            )
        if reports and not reports[-1].collected:
            old = max(0, self.base_upto - self.trimmed)
            reports[-1] = replace(reports[-1], objects=reports[-1].objects + old)
        return reports

    # -- questions ---------------------------------------------------------------------------------

    def pointed(
        self, segment: ChainSegment, successor: Successor, collect: bool
    ) -> ChainPointed | None:
        """Return the fact of learning ``successor``, or None if the fact is known.

        Raises :class:`ConflictingSuccessor` for two decisions, and for an immediate successor with
        a start below the committed position.
        """
        chain, own = successor.configuration, segment.configuration
        new = advance(own, segment.successor, successor)
        if chain.dap != "chain" or (
            chain.index == own.index + 1 and segment.end is None and chain.start < segment.committed
        ):
            raise ConflictingSuccessor(
                f"{chain.describe()} cannot follow {own.describe()}, which is committed up to "
                f"{segment.committed}"
            )
        collected = segment.collected or (collect and new.finalized)
        return (
            None
            if (new, collected) == (segment.successor, segment.collected)
            else ChainPointed(own.id, new, collected)
        )

    def knows(self, introduction: Introduce) -> bool:
        """Return whether the introduction leaves no fact."""
        chains = (*introduction.earlier, introduction.configuration)
        return all(chain.index in self.chains for chain in chains)

    def unpointed(self) -> list[tuple[ChainSegment, Successor]]:
        """Return the segments without a successor, where the next chain is known.

        A server which hears of c' knows the successor of c.
        """
        open = [segment for segment in self.segments.values() if segment.successor is None]
        found = [(segment, self.chains.get(segment.configuration.index + 1)) for segment in open]
        return [
            (segment, Successor(chain, Status.PENDING))
            for segment, chain in found
            if chain is not None
        ]

    @property
    def located(self) -> Configuration | None:
        """Return the chain named to clients in search of the log, if this server knows the chain.

        See rule R21.
        """
        return self.chains.get(self.finalized)

    def chains_for(self, server: Hashable) -> list[Configuration]:
        """Return the newest chain of ``server``, last, behind the chains before it.

        At most EARLIER_MAX chains come before. The list is empty if no chain names ``server``.
        """
        chains = [chain for _, chain in sorted(self.chains.items())]
        newest = max(
            (place for place, chain in enumerate(chains) if server in chain.server_ids),
            default=None,
        )
        return [] if newest is None else chains[max(0, newest - EARLIER_MAX) : newest + 1]

    def chain_of(self, position: int) -> Configuration | None:
        """Return the chain in whose segment a position is.

        Among the chains known to this node, the last chain that starts at the position or before.
        """
        holding = [index for index, chain in self.chains.items() if chain.start <= position]
        return self.chains[max(holding)] if holding else None

    def is_final(self, position: int) -> bool:
        """Return whether the position is below the start of a known chain."""
        return any(chain.start > position for chain in self.chains.values())

    def holders(self, position: int) -> tuple[ServerId, ...]:
        """Return the servers that may have a position.

        The servers of the chain in whose segment the position is, and of later chains.
        """
        chain = self.chain_of(position)
        later = [
            each
            for index, each in sorted(self.chains.items())
            if chain is None or index >= chain.index
        ]
        return tuple(
            dict.fromkeys(id for each in later for id in each.server_ids if id != self.server)
        )[: 2 * SERVERS_MAX]

    def held(self, position: int, uncommitted: bool) -> tuple[Entries, int, int]:
        """Return the entries that hold ``position``, their start, and the readable end.

        The end is at most ``position`` if this server does not have the position.
        """
        if position < self.base_upto:
            return self.base, 0, self.base_upto
        newest = [
            segment
            for segment in self.segments.values()
            if segment.start <= position and not segment.merged
        ]
        if not newest:
            return self.base, position, position
        segment = max(newest, key=lambda segment: segment.configuration.index)
        upto = max(
            position,
            segment.durable if uncommitted or segment.end is not None else segment.committed,
        )
        return segment.entries, max(segment.start, self.base_upto), upto

    def answer(self, segment: ChainSegment, request: ReadLog) -> LogEntries:
        """Return the answer to a read in the segment of a chain."""
        first, found, size, damaged = request.first, list[bytes](), 0, False
        bytes_max = min(request.bytes_max, ANSWER_BYTES_MAX)
        position = first
        while (
            first >= self.trimmed and len(found) < request.count and (size < bytes_max or not found)
        ):
            entries, _, held = self.held(position, request.uncommitted)
            records, upto, damaged = self.read(
                entries, position, min(held, first + request.count), bytes_max - size
            )
            at = position
            for record in records:
                if record.first > at:
                    # after any damage to stored records: no entry is shown at a wrong position
                    break
                part = record.entries[max(position - record.first, 0) : upto - record.first]
                found += part
                size += entries_bulk(part)
                at = record.first + len(record.entries)
            upto = min(upto, at)
            if upto <= position:
                damaged = damaged or held > position
                break
            position = upto
        elsewhere: tuple[ServerId, ...] = ()
        if not found and first >= self.trimmed and (damaged or self.is_final(first)):
            elsewhere = self.holders(first)
        return LogEntries(
            request.call,
            first,
            tuple(found),
            segment.committed,
            self.trimmed,
            elsewhere,
            segment.successor,
        )

    def each(self, positions: Sequence[int], uncommitted: bool = False) -> tuple[bytes | None, ...]:
        """Return the entry at each position, or None where the entry is absent or not to be shown.

        After ANSWER_BYTES_MAX of records the remaining entries are None, too.
        """
        found, left = list[bytes | None](), ANSWER_BYTES_MAX
        entries, first, held = self.base, 0, 0
        record: LogRecord | None = None
        for position in positions:
            if not first <= position < held:
                entries, first, held = self.held(position, uncommitted)
                if held <= position:  # a missing position says nothing about lower positions
                    held = first
            if record is None or not record.first <= position < record.end:
                record = None
                if self.trimmed <= position < held and left > 0:
                    record = self._record(entries, position)
                    left -= record.bulk if record is not None else 0
            shown = record if self.trimmed <= position < held else None
            found.append(None if shown is None else shown.entries[position - shown.first])
        return tuple(found)

    def _record(self, entries: Entries, position: int) -> LogRecord | None:
        """Return the record with the position, or None if the disk lost the record."""
        try:
            record = entries.record(position)
        except StoreDamaged as damage:
            self.damage = damage
            return None
        return record if record is not None and record.first <= position < record.end else None

    def read(
        self, entries: Entries, first: int, upto: int, bytes_max: int
    ) -> tuple[Sequence[LogRecord], int, bool]:
        """Return records from ``first`` on, their end, and whether the disk lost records.

        After a loss no records are returned. The end is as in ``reach`` of
        ares/sharedlog/entries.py.
        """
        try:
            reached = entries.reach(first, upto, bytes_max)
            return entries.records(first, reached), reached, False
        except StoreDamaged as damage:
            self.damage = damage
            return (), first, True

    def final(self, first: int, bytes_max: int, records_max: int) -> Sequence[LogRecord]:
        """Return records from ``first`` on that are the same at every node.

        These records are below a known `end`, or committed.
        """
        if first < self.base_upto:
            entries, upto = self.base, self.base_upto
        else:
            holding = [
                each
                for each in self.segments.values()
                if not each.merged and each.start <= first < each.final
            ]
            if not holding:
                return ()
            entries, upto = holding[0].entries, holding[0].final
        return self.read(entries, first, upto, bytes_max)[0][:records_max]

    def row_found(self, chain: Configuration, client: ClientId, since: int) -> RowFound | None:
        """Return a client's row in the segment of ``chain``, and below, if this node has that part.

        None if this node lacks a part of the segment.
        """
        holds = self.rows_for(chain)
        if holds is None:
            return None
        rows, whole = holds
        row = rows.get(client)
        if row is None:
            uncertain = self.may_have_been_trimmed(since, 0 if whole else chain.start)
            return RowFound(NO_CALL, True, 0, (), whole, uncertain, self.trimmed)
        places = tuple(RowPlace(number, *place) for number, place in row.places.items())
        return RowFound(NO_CALL, True, row.last, places, whole, False, self.trimmed)

    def may_have_been_trimmed(self, since: int, first: int) -> bool:
        """Return whether a missing row may have been trimmed.

        The node answers for positions at ``first`` and later.
        """
        return self.trimmed > since and self.trimmed > first

    def rows_for(self, chain: Configuration) -> tuple[ClientRows, bool] | None:
        """Return the rows of :meth:`holds_row`, also for the chain of a head itself.

        For the head's own chain: the rows below its start, if all old entries are here.
        """
        segment, holds = self.segments.get(chain.id), self.holds_row(chain)
        if (
            holds is None
            and segment is not None
            and segment.live
            and self.base_upto >= segment.start
        ):
            holds = self.base_rows, True
        return holds

    def holds_row(self, chain: Configuration) -> tuple[ClientRows, bool] | None:
        """Return the rows for the segment of ``chain``, and whether they answer for all below.

        None if this node lacks a part of the segment.
        """
        segment = self.segments.get(chain.id)
        end = segment.end if segment is not None else None
        if end is not None and self.base_upto >= end:
            return self.base_rows, True
        if segment is not None and end is not None and not segment.merged and segment.length >= end:
            return segment.rows, False
        return None
