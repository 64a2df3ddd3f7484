"""What one server holds of one log, as a function of its facts (docs/log.md, Terms; Old positions): stretches of its chains, and the old part.

The *old part* is everything below ``base_upto`` that is not trimmed: final, in one piece. A stretch whose successor is known is merged into it as
soon as the old part reaches its start. So a node of a new chain is complete when ``base_upto`` is the start of that chain.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from ares.chain.entries import Entries, MemoryEntries, Rows
from ares.chain.facts_of_log import (
    PIECES,
    ChainPointed,
    ChainSealed,
    ChainsKnown,
    LogFact,
    LogStanding,
    LogTrimmed,
    PieceFetched,
    RecordsTaken,
    StretchStanding,
)
from ares.chain.stretch import Stretch
from ares.model.configuration import (
    SERVERS_MAX,
    Configuration,
    ConflictingSuccessor,
    Status,
    Successor,
    advance,
)
from ares.model.errors import BadInput, StoreDamaged
from ares.model.identity import ConfigurationId, ServerId
from ares.model.log_messages import ANSWER_BYTES_MAX, LogEntries, LogRecord, ReadLog
from ares.model.messages import EARLIER_MAX, Hosted, HostedChain, Reason
from ares.model.work import entries_bulk


class UnknownChain(BadInput):
    """A request about a configuration that was not introduced here, or of which this server is no member."""


class OtherChain(BadInput):
    """A chain in the place of another one, or of another cluster."""


class NotInChain(BadInput):
    """None of the chains that were introduced names this server."""


REASONS = {
    ConflictingSuccessor: Reason.CONFLICTING_SUCCESSOR,
    UnknownChain: Reason.UNKNOWN_CONFIGURATION,
    OtherChain: Reason.OTHER_CLUSTER,
    NotInChain: Reason.NOT_A_MEMBER,
    BadInput: Reason.BAD_REQUEST,
}
"""How a peer is told of an error; the first that fits."""


def check_one_log(chains: Sequence[Configuration]) -> None:
    """Raises :class:`BadInput` for what are not chains of one log, one after the other."""
    for chain in chains:
        chain.check_bounds()
        if chain.dap != "chain" or chain.index < 0 or chain.domain != chains[0].domain:
            raise BadInput("the chains of one log are introduced together, in their order")
    if any(
        other.index != one.index + 1 or other.start < one.start for one, other in pairwise(chains)
    ):
        raise BadInput(
            "the chains of one log are introduced without gaps, and none starts before the one before it"
        )


class HeldLogs(Struct, frozen=True):
    """What a server holds of all its logs. ``entries``: those here; ``committed``: positions known to be; ``sealed``: logs whose last chain is, with
    nothing decided. ``fetching``: logs that fetch old entries; ``to_fetch``: how many, of which ``fetched`` are here.
    """

    logs: int
    entries: int
    committed: int
    sealed: int
    fetching: int
    to_fetch: int
    fetched: int


def held_logs(states: "Iterable[LogState]") -> HeldLogs:
    """Summed up."""
    logs = entries = committed = sealed = fetching = to_fetch = fetched = 0
    for state in states:
        hosted = state.describe()
        if not hosted or hosted[-1].chain is None:
            continue
        last, part = hosted[-1].configuration, hosted[-1].chain
        logs += 1
        entries += sum(each.objects for each in hosted)
        committed += part.committed
        sealed += part.sealed and hosted[-1].successor is None
        if not part.sealed and part.fetched < last.start:
            fetching += 1
            to_fetch += last.start - part.trimmed
            fetched += max(part.fetched - part.trimmed, 0)
    return HeldLogs(logs, entries, committed, sealed, fetching, to_fetch, fetched)


def tells(reply: LogEntries) -> bool:
    """Whether a read is answered by this, be it that the entries are gone or elsewhere."""
    ends = reply.successor is not None and (
        reply.successor.finalized or reply.first >= reply.successor.configuration.start
    )
    return bool(reply.entries or reply.trimmed > reply.first or reply.elsewhere or ends)


class LogState:
    """``stretches``: of the chains that this server is in; ``chains``: all that it knows, by index. ``trimmed``: positions below are gone.

    ``finalized``: the highest index of a chain that is known to be; the first one always is.
    ``damage``: why records that are here could not be read when they were asked for last; the shell says so, and forgets it.
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
        self.stretches: dict[ConfigurationId, Stretch] = {}
        self.chains: dict[int, Configuration] = {}
        self.base_upto = 0
        self.base_rows = Rows()
        self.base = make_entries(PIECES)
        self.damage: StoreDamaged | None = None
        self._make_entries = make_entries

    # -- facts ----------------------------------------------------------------------------------------------------------

    def apply(self, fact: LogFact) -> None:
        match fact:
            case RecordsTaken():
                stretch = self.stretches[fact.configuration]
                for record in fact.records:
                    stretch.take(record)
            case PieceFetched():
                self._extend_base(fact.records)
            case LogTrimmed():
                self._trim(fact.upto)
            case ChainSealed():
                self.stretches[fact.configuration].sealed = True
            case ChainPointed():
                self._point(self.stretches[fact.configuration], fact)
            case ChainsKnown():
                for chain in fact.chains:
                    self._know(chain)
                self.finalized = max(self.finalized, fact.finalized)

    def standing(self) -> LogStanding:
        """All that is known, but the records."""
        told = [
            StretchStanding(
                id,
                each.sealed,
                each.successor,
                each.end,
                each.collected,
                each.merged,
                each.length,
                each.committed,
            )
            for id, each in self.stretches.items()
        ]
        return LogStanding(
            tuple(self.chains.values()), tuple(told), self.trimmed, self.base_upto, self.finalized
        )

    def begin(self, standing: LogStanding) -> None:
        """Before the first fact that is left: what those before it came to. Records that are gone with them are trimmed, or count for nothing."""
        for chain in standing.chains:
            self._know(chain)
        for told in standing.stretches:
            stretch = self.stretches[told.configuration]
            stretch.sealed, stretch.successor, stretch.end = told.sealed, told.successor, told.end
            stretch.collected, stretch.merged = told.collected, told.merged
            stretch.length = stretch.durable = stretch.committed = told.length
        known = [
            told.successor.configuration.index
            for told in standing.stretches
            if told.successor is not None and told.successor.finalized
        ]
        self.trimmed, self.base_upto, self.finalized = (
            standing.trimmed,
            standing.old_upto,
            max([standing.finalized, *known]),
        )

    def pass_by(self, standing: LogStanding) -> None:
        """Among the facts: nothing that they do not tell, but what is committed."""
        for told in standing.stretches:
            stretch = self.stretches[told.configuration]
            if stretch.live and told.committed > stretch.committed:
                stretch.settled(min(told.committed, stretch.length))

    def _know(self, chain: Configuration) -> None:
        self.chains[chain.index] = chain
        if self.is_member(chain) and chain.id not in self.stretches:
            self.stretches[chain.id] = Stretch(chain, self.server, self._make_entries(chain.id))

    def check_introduced(self, chains: Sequence[Configuration]) -> None:
        """Raises what :func:`check_one_log` does, :class:`OtherChain` or :class:`NotInChain`."""
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
        """Whether the chain names this server under its present identity."""
        return any(
            (member.id, member.identity) == (self.server, self.identity) for member in chain.servers
        )

    def _point(self, stretch: Stretch, fact: ChainPointed) -> None:
        """Knowing the successor: the node is sealed, and what it holds at or beyond `end` counts for nothing from then on."""
        chain, own = fact.successor.configuration, stretch.configuration
        stretch.successor, stretch.collected = fact.successor, fact.collected
        if fact.successor.finalized:
            self.finalized = max(self.finalized, chain.index)
        if chain.index == own.index + 1:
            stretch.end = chain.start
        stretch.cut(stretch.start if stretch.end is None else stretch.end)
        stretch.rows.trim(
            self.trimmed
        )  # with a later record of its client a row may have outlived its trim
        if fact.collected:
            stretch.entries, stretch.rows, stretch.merged = (
                self._make_entries(stretch.configuration.id),
                Rows(),
                True,
            )
            if all(other.collected for other in self.stretches.values()):
                self.base, self.base_rows, self.base_upto = (
                    self._make_entries(PIECES),
                    Rows(),
                    self.trimmed,
                )
        self._merge()

    def _extend_base(self, records: Iterable[LogRecord]) -> None:
        for record in records:
            if (
                record.end > self.base_upto
            ):  # a stretch that was merged in between may have brought it
                self.base.put(record)
                self.base_rows.take(record)
                self.base_rows.commit(record)
                self.base_upto = record.end
                self._merge()

    def _merge(self) -> None:
        ended = [
            stretch
            for stretch in self.stretches.values()
            if stretch.end is not None and not stretch.merged
        ]
        for stretch in sorted(ended, key=lambda stretch: stretch.configuration.index):
            if stretch.start <= self.base_upto:
                self.base.adopt(stretch.entries, self.base_upto, stretch.length)
                self.base_rows.adopt(stretch.rows)
                self.base_upto = max(self.base_upto, stretch.length)
                stretch.entries, stretch.rows, stretch.merged = (
                    self._make_entries(stretch.configuration.id),
                    Rows(),
                    True,
                )

    def _trim(self, upto: int) -> None:
        self.trimmed = upto
        for entries, rows in (
            (self.base, self.base_rows),
            *((stretch.entries, stretch.rows) for stretch in self.stretches.values()),
        ):
            entries.drop(upto)
            rows.trim(upto)
        self.base_upto = max(self.base_upto, upto)
        self._merge()

    def all_entries(self) -> list[Entries]:
        """The old part's, then those of each stretch."""
        return [self.base, *(stretch.entries for stretch in self.stretches.values())]

    def describe(self) -> list[Hosted]:
        """For each chain the entries of its stretch that are here; for the last one all that are."""
        told = []
        for stretch in sorted(self.stretches.values(), key=lambda each: each.configuration.index):
            here = (
                0
                if stretch.collected or stretch.merged
                else stretch.length - max(stretch.start, min(self.trimmed, stretch.length))
            )
            part = HostedChain(
                not stretch.live, stretch.length, stretch.committed, self.trimmed, self.base_upto
            )
            told.append(
                Hosted(
                    stretch.configuration, here, 0, stretch.collected, stretch.successor, chain=part
                )
            )
        if told and not told[-1].collected:
            old = max(0, self.base_upto - self.trimmed)
            told[-1] = replace(told[-1], objects=told[-1].objects + old)
        return told

    # -- questions ------------------------------------------------------------------------------------------------------

    def pointed(self, stretch: Stretch, successor: Successor, collect: bool) -> ChainPointed | None:
        """The fact that ``successor`` comes to, or None if it is nothing new.

        Raises :class:`ConflictingSuccessor` for two decisions, and for an immediate successor that begins below what is committed.
        """
        chain, own = successor.configuration, stretch.configuration
        new = advance(own, stretch.successor, successor)
        if chain.dap != "chain" or (
            chain.index == own.index + 1 and stretch.end is None and chain.start < stretch.committed
        ):
            raise ConflictingSuccessor(
                f"{chain.describe()} cannot follow {own.describe()}, which is committed up to {stretch.committed}"
            )
        collected = stretch.collected or (collect and new.finalized)
        return (
            None
            if (new, collected) == (stretch.successor, stretch.collected)
            else ChainPointed(own.id, new, collected)
        )

    def unpointed(self) -> list[tuple[Stretch, Successor]]:
        """Stretches whose successor is among the chains known, and was not told: who hears of c' knows the successor of c."""
        open = [stretch for stretch in self.stretches.values() if stretch.successor is None]
        found = [(stretch, self.chains.get(stretch.configuration.index + 1)) for stretch in open]
        return [
            (stretch, Successor(chain, Status.PENDING))
            for stretch, chain in found
            if chain is not None
        ]

    @property
    def located(self) -> Configuration | None:
        """The chain that may be named to those that look for the log (rule R21), if it is known here."""
        return self.chains.get(self.finalized)

    def chains_for(self, server: Hashable) -> list[Configuration]:
        """The newest chain that names ``server``, last, and those before it, as many as are told together. Nothing if no chain names it."""
        chains = [chain for _, chain in sorted(self.chains.items())]
        newest = max(
            (place for place, chain in enumerate(chains) if server in chain.server_ids),
            default=None,
        )
        return [] if newest is None else chains[max(0, newest - EARLIER_MAX) : newest + 1]

    def chain_of(self, position: int) -> Configuration | None:
        """The chain in whose stretch a position is, as far as this node knows: the last one that starts there or before."""
        holding = [index for index, chain in self.chains.items() if chain.start <= position]
        return self.chains[max(holding)] if holding else None

    def is_final(self, position: int) -> bool:
        """Whether the position is below the start of a chain that is known."""
        return any(chain.start > position for chain in self.chains.values())

    def holders(self, position: int) -> tuple[ServerId, ...]:
        """Who may have a position: the chain in whose stretch it is, and the chains after that one."""
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
        """Where the position is to be found, from where on that holds, and how far what may be shown goes; no further than it when it is not here."""
        if position < self.base_upto:
            return self.base, 0, self.base_upto
        newest = [
            stretch
            for stretch in self.stretches.values()
            if stretch.start <= position and not stretch.merged
        ]
        if not newest:
            return self.base, position, position
        stretch = max(newest, key=lambda stretch: stretch.configuration.index)
        upto = max(
            position,
            stretch.length if uncommitted or stretch.end is not None else stretch.committed,
        )
        return stretch.entries, max(stretch.start, self.base_upto), upto

    def answer(self, stretch: Stretch, request: ReadLog) -> LogEntries:
        """What there is to say to a read in the stretch of a chain."""
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
                if (
                    record.first > at
                ):  # whatever is wrong with what is kept: no entry is shown at a position that is not its own
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
            stretch.committed,
            self.trimmed,
            elsewhere,
            stretch.successor,
        )

    def each(self, positions: Sequence[int], uncommitted: bool = False) -> tuple[bytes | None, ...]:
        """The entry at each position, if it is here and may be shown. Not all, where records of more than ANSWER_BYTES_MAX would be read for it."""
        found, left = list[bytes | None](), ANSWER_BYTES_MAX
        entries, first, held = self.base, 0, 0
        record: LogRecord | None = None
        for position in positions:
            if not first <= position < held:
                entries, first, held = self.held(position, uncommitted)
                if held <= position:  # it is not here: that says nothing about those below
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
        """The one that has the position; None if the disk lost it."""
        try:
            record = entries.record(position)
        except StoreDamaged as damage:
            self.damage = damage
            return None
        return record if record is not None and record.first <= position < record.end else None

    def read(
        self, entries: Entries, first: int, upto: int, bytes_max: int
    ) -> tuple[Sequence[LogRecord], int, bool]:
        """Records from ``first`` on (``reach`` of ares/chain/entries.py), how far they go, and whether the disk lost some: then there are none."""
        try:
            reached = entries.reach(first, upto, bytes_max)
            return entries.records(first, reached), reached, False
        except StoreDamaged as damage:
            self.damage = damage
            return (), first, True

    def final(self, first: int, bytes_max: int, records_max: int) -> Sequence[LogRecord]:
        """Records from ``first`` on that are the same at every node: below a known `end`."""
        if first < self.base_upto:
            entries, upto = self.base, self.base_upto
        else:
            pointed = [
                each
                for each in self.stretches.values()
                if each.end is not None and not each.merged and each.start <= first < each.length
            ]
            if not pointed:
                return ()
            entries, upto = pointed[0].entries, pointed[0].length
        return self.read(entries, first, upto, bytes_max)[0][:records_max]

    def rows_for(self, chain: Configuration) -> tuple[Rows, bool] | None:
        """As :meth:`holds_row`; in the chain of a head itself: the rows below its start, if everything is here."""
        stretch, holds = self.stretches.get(chain.id), self.holds_row(chain)
        if (
            holds is None
            and stretch is not None
            and stretch.live
            and self.base_upto >= stretch.start
        ):
            holds = self.base_rows, True
        return holds

    def holds_row(self, chain: Configuration) -> tuple[Rows, bool] | None:
        """The rows that answer for the stretch of ``chain``, and whether they answer for all below it; None if this node lacks some of it."""
        stretch = self.stretches.get(chain.id)
        end = stretch.end if stretch is not None else None
        if end is not None and self.base_upto >= end:
            return self.base_rows, True
        if stretch is not None and end is not None and not stretch.merged and stretch.length >= end:
            return stretch.rows, False
        return None
