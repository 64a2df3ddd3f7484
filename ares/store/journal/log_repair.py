"""The repair of a damaged place of a log, within the file, whose length stays the same.

A log's place is a row of numbered batches, hence damage is a *gap*: the bytes between two intact
batches, and the numbers between theirs. The gap lost facts. Lost records are known by their
positions: the place begins with a standing or follows a place, and every fact behind the gap
continues the records. The records come from another node. The repair writes a single batch with
these records and a filler into the gap, and batches without facts up to the next number
(ares/store/journal/format.py, encode_filled).

Lost facts of other kinds (seals, pointers, chains) are unknown. Therefore a repair is made only if
the facts from a standing to the next standing, the repaired gaps included, lead to exactly the next
standing. A trim is known by the next standing, and a lost standing is the state before it.

A start needs the positions of all records, and the content of records that the node can show or
give away. In the place of further records, such as trimmed records, a repair writes empty entries.
"""

from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from ares.model.errors import StoreDamaged
from ares.model.identity import ClientId, ConfigurationId, ServerId
from ares.model.log_messages import BATCH_ENTRIES_MAX, RECORDS_MAX, LogRecord, seal_of
from ares.model.numbers import POSITION_MAX
from ares.sharedlog.entries import follow_on
from ares.sharedlog.log_facts import (
    PIECES,
    ChainPointed,
    ChainSealed,
    EncodedFact,
    EncodedPiece,
    EncodedTaken,
    LogFact,
    LogSnapshot,
    LogTrimmed,
    LostRecords,
    PieceFetched,
    RecordsTaken,
    decode_record,
    first_of_encoded,
)
from ares.sharedlog.log_state import LogState
from ares.store.journal.disk import Disk
from ares.store.journal.examine import IntactBatches, Pace, SegmentExamination, Windows
from ares.store.journal.format import Damage, Head, decode_log_batch, encode_filled, encode_head
from ares.store.journal.segments import Owner
from ares.store.port import JoinedBatches, NotRepaired, Stored

OTHER_FACTS_LOST = (
    "it lost more than records (a seal, or the successor of a chain): move the log to a chain "
    "without this server, which then drops the place"
)

_POSITION_BYTES = 2
"""Least bytes of an entry in a journal."""


class PlaceFile(NamedTuple):
    """The file of a place, with batches up to byte ``end``."""

    number: int
    path: Path
    head: Head
    end: int


class Gap(NamedTuple):
    """The bytes of a place from ``start`` to ``end``, which lost this number of ``batches``.

    ``sequence``: the number of the first batch. ``salt``: of the place. ``is_first``: the place
    began with this batch.
    """

    place: int
    start: int
    end: int
    sequence: int
    batches: int
    salt: int
    is_first: bool


def survey(
    disk: Disk, place: PlaceFile, following: int, pace: Pace
) -> Generator[Sequence[EncodedFact] | Gap, None, None]:
    """Yield the facts of each intact batch, and the gaps, in order.

    ``following``: the number of the first batch behind the place. Raises OSError, and
    :class:`NotRepaired` for batches of a newer release.
    """
    head = place.head

    def gap(start: int, end: int, sequence: int, upto: int) -> Gap:
        is_first = sequence == head.first
        return Gap(place.number, start, end, sequence, upto - sequence, head.salt, is_first)

    descriptor = disk.open_past_cache(place.path)
    try:
        windows = Windows(disk, descriptor, place.end, pace)
        at, sequence = sum(map(len, encode_head(head))), head.first
        for start, frame in IntactBatches(windows, head, place.end):
            if not sequence <= frame.sequence < following:
                continue  # a copy of another block
            if start > at or frame.sequence > sequence:
                yield gap(at, start, sequence, frame.sequence)
            at, sequence = start + frame.end, frame.sequence + 1
            try:
                facts = decode_log_batch(frame)
            except Damage as damage:
                raise NotRepaired(str(damage)) from damage
            yield facts
        if at < place.end or sequence < following:
            yield gap(at, place.end, sequence, following)
    finally:
        disk.close(descriptor)


class LogReplay:
    """The facts from a standing, ``begin``, to the next standing, ``end``, and the gaps among them.

    ``begin``: None at the beginning of the log. Tell all facts and gaps in order, and call
    :meth:`finish`. All methods raise :class:`NotRepaired`.
    """

    def __init__(
        self, server: str, identity: str, begin: LogSnapshot | None, end: LogSnapshot
    ) -> None:
        self._owner = ServerId(server), identity
        self._begin, self._end = begin, end
        self._lengths = {each.configuration: each.length for each in end.segments}
        self._state = self._begun(begin)
        self._story: list[LogFact | Gap] = []
        self._lost: dict[Gap, list[LogSnapshot | LostRecords | LogTrimmed]] = {}

    @property
    def lost(self) -> tuple[LostRecords, ...]:
        """The lost records, in the order of :meth:`facts_of`."""
        each_gap = self._lost.values()
        return tuple(each for some in each_gap for each in some if isinstance(each, LostRecords))

    @property
    def gaps(self) -> list[Gap]:
        return list(self._lost)

    def pass_gap(self, gap: Gap, stands: bool) -> None:
        """Take note of a gap. ``stands``: its first fact was a standing."""
        if gap.batches < 1:
            raise NotRepaired("its batches do not lie one behind the other")
        self._lost[gap] = [_uncommitted(self._state.standing())] if stands else []
        self._story.append(gap)

    def tell(self, facts: Sequence[EncodedFact]) -> None:
        for fact in facts:
            if isinstance(fact, LogSnapshot):
                continue
            if isinstance(fact, EncodedTaken | EncodedPiece):
                if not fact.records:
                    continue
                first = first_of_encoded(fact.records[0])
                self._reach(fact.source, first)
                plain = _hollow(fact.source, first, decode_record(fact.records[-1]).end)
            else:
                if isinstance(fact, ChainSealed | ChainPointed):  # the chain takes no more records
                    self._reach(fact.configuration, self._lengths.get(fact.configuration, 0))
                plain = fact
            self._apply(self._state, plain)
            self._story.append(plain)

    def finish(self) -> None:
        """Complete what the gaps lost, and check that the facts lead to the next standing."""
        trim = LogTrimmed(self._end.trimmed)
        is_lost = bool(self._lost) and self._state.trimmed < trim.upto
        if is_lost:
            self._state.apply(trim)
        for source, length in (*self._lengths.items(), (PIECES, self._end.old_upto)):
            self._reach(source, length)
        if is_lost:
            self._lost[self.gaps[-1]].append(trim)
        state = self._begun(self._begin)
        for part in self._story:
            for fact in self._hollow_facts(part) if isinstance(part, Gap) else [part]:
                self._apply(state, fact)
        if not self._is_end(state.standing()):
            raise NotRepaired(OTHER_FACTS_LOST)

    def facts_of(self, gap: Gap, found: Iterator[Sequence[LogRecord]]) -> list[Stored]:
        """Return the facts for a gap. ``found``: the records, for each of :attr:`lost`."""
        facts: list[Stored] = []
        for each in self._lost[gap]:
            if isinstance(each, LostRecords):
                facts += _facts(each.source, completed(each, next(found)))
            else:
                facts.append(each)
        return facts

    def _hollow_facts(self, gap: Gap) -> Iterator[LogFact]:
        for each in self._lost[gap]:
            if isinstance(each, LostRecords):
                yield _hollow(each.source, each.first, each.upto)
            elif isinstance(each, LogTrimmed):
                yield each

    def _begun(self, standing: LogSnapshot | None) -> LogState:
        state = LogState(*self._owner)
        if standing is not None:
            try:
                state.begin(standing)
            except StoreDamaged as damage:
                raise NotRepaired(OTHER_FACTS_LOST) from damage
        return state

    def _is_end(self, standing: LogSnapshot) -> bool:
        """Return whether ``standing`` tells the same as the next standing.

        Committed positions do not count: a start needs none.
        """
        return self._begun(standing).standing() == self._begun(self._end).standing()

    def _length(self, state: LogState, source: bytes) -> int:
        if source == PIECES:
            return state.base_upto
        segment = state.segments.get(ConfigurationId(source))
        if segment is None:
            raise NotRepaired(OTHER_FACTS_LOST)
        return segment.length

    def _reach(self, source: bytes, upto: int) -> None:
        """Count the records of ``source`` up to this position as lost by the last gap.

        Old records of an ended segment of this server are not fetched.
        """
        while (first := self._length(self._state, source)) < upto:
            segments = self._state.segments.values() if source == PIECES else ()
            there = [each.start for each in segments if each.end is not None and not each.merged]
            end = min([upto, *there])
            size = self.gaps[-1].end - self.gaps[-1].start if self._lost else 0
            if not 0 < (end - first) * _POSITION_BYTES <= size:
                raise NotRepaired(OTHER_FACTS_LOST)
            self._lost[self.gaps[-1]].append(LostRecords(source, first, end, size))
            self._apply(self._state, _hollow(source, first, end))

    def _apply(self, state: LogState, fact: LogFact) -> None:
        """Apply a fact which continues the facts before it."""
        if isinstance(fact, RecordsTaken | PieceFetched):
            source = PIECES if isinstance(fact, PieceFetched) else fact.configuration
            first, length = fact.records[0].first, self._length(state, source)
            if first > length or (source != PIECES and first < length):
                raise NotRepaired(OTHER_FACTS_LOST)
        try:
            state.apply(fact)
        except StoreDamaged as damage:
            raise NotRepaired(OTHER_FACTS_LOST) from damage


def _uncommitted(standing: LogSnapshot) -> LogSnapshot:
    """Return the standing without committed positions, which a start may know to be lower."""
    states = tuple(replace(each, committed=0) for each in standing.segments)
    return replace(standing, segments=states)


def _hollow(source: bytes, first: int, upto: int) -> LogFact:
    """Return a fact with the positions of records, which are all that a standing depends on."""
    record = LogRecord(first, ClientId(0), 1, 1, (b"",) * (upto - first))
    [fact] = _facts(source, (record,))
    return fact


def _facts(source: bytes, records: tuple[LogRecord, ...]) -> list[LogFact]:
    """Return the facts that bring ``records``, at least one."""
    if source != PIECES:
        return [RecordsTaken(ConfigurationId(source), records)]
    return [
        PieceFetched(records[at : at + RECORDS_MAX]) for at in range(0, len(records), RECORDS_MAX)
    ]


def completed(lost: LostRecords, found: Sequence[LogRecord]) -> tuple[LogRecord, ...]:
    """Return records for all lost positions: the found records, and records with empty entries.

    Raises :class:`NotRepaired` if the found records are not as a head made them, or not in place.
    """
    first, upto = (found[0].first, found[-1].end) if found else (lost.upto, lost.upto)
    if not lost.first <= first <= upto <= lost.upto or not follow_on(first, found):
        raise NotRepaired("another server gave records that do not belong there")
    return (*_empty_records(lost.first, first), *found, *_empty_records(upto, lost.upto))


def _empty_records(first: int, upto: int) -> Iterator[LogRecord]:
    for at in range(first, upto, BATCH_ENTRIES_MAX):
        entries = (b"",) * min(BATCH_ENTRIES_MAX, upto - at)
        record = LogRecord(at, ClientId(0), 1, 1, entries)
        yield replace(record, seal=seal_of(at, record.client, 1, 1, entries))


class PlaceRepair:
    """:class:`ares.store.port.LogRepair` of ``place``.

    ``places``: all places of the journal, in order. ``standings``: places that begin with a
    standing.
    """

    def __init__(
        self,
        disk: Disk,
        owner: Owner,
        places: Sequence[PlaceFile],
        place: int,
        standings: Collection[int],
    ) -> None:
        self._disk = disk
        self._owner = owner
        self._places = places
        self._index = [each.number for each in places].index(place)
        self._standings = standings

    def look(self, pace: Pace) -> Sequence[LostRecords]:
        places, first, last = self._places, self._index, self._index + 1
        while (begin := self._standing(places[first], pace)) is None and first:
            first -= 1
        if begin is None and places[first].number != 1:
            raise NotRepaired("its standing is lost, and no earlier place is left")
        while last < len(places) and (end := self._standing(places[last], pace)) is None:
            last += 1
        if last >= len(places):
            raise NotRepaired("no place behind it has a standing yet")
        assert end is not None
        replay = LogReplay(self._owner.server, self._owner.identity, begin, end)
        for place, following in pairwise(places[first : last + 1]):
            for part in survey(self._disk, place, following.head.first, pace):
                if isinstance(part, Gap):
                    replay.pass_gap(part, part.is_first and place.number in self._standings)
                else:
                    replay.tell(part)
        replay.finish()
        self._replay = replay
        return replay.lost

    def _standing(self, place: PlaceFile, pace: Pace) -> LogSnapshot | None:
        """Return the standing at the beginning of a place, if the place has an intact standing."""
        with closing(survey(self._disk, place, POSITION_MAX, pace)) as parts:
            part = next(parts, None)
        first = None if isinstance(part, Gap) or not part else part[0]
        return first if isinstance(first, LogSnapshot) else None

    def write(self, found: Sequence[Sequence[LogRecord]], pace: Pace) -> Sequence[JoinedBatches]:
        remaining, gaps = iter(found), self._replay.gaps
        place = self._places[self._index]
        writes = {place.number: [(0, b"".join(encode_head(place.head)))]}
        for gap in gaps:
            facts = self._replay.facts_of(gap, remaining)
            data = encode_filled(gap.sequence, gap.batches, gap.salt, facts, gap.end - gap.start)
            if data is None:
                raise NotRepaired("the records found take more room than the lost ones")
            writes.setdefault(gap.place, []).append((gap.start, data))
        for number, pieces in writes.items():
            [file] = [each for each in self._places if each.number == number]
            self._write(file, pieces)
            if not SegmentExamination(self._disk, file.path, file.head, file.end).run(pace).whole:
                raise NotRepaired("the disk does not give back the repaired bytes")
        return [
            JoinedBatches(each.place, range(each.start, each.end), each.sequence) for each in gaps
        ]

    def _write(self, place: PlaceFile, pieces: Sequence[tuple[int, bytes]]) -> None:
        descriptor = self._disk.open(place.path)
        try:
            for offset, data in pieces:
                self._disk.write(descriptor, [data], offset)
            self._disk.sync(descriptor)
        finally:
            self._disk.close(descriptor)
