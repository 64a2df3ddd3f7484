"""The repair of a damaged place of a log, in a new file of the same length.

A log's place is a row of numbered batches, hence damage is a *gap*: the bytes between two intact
batches, and the numbers between theirs. The gap lost facts. Lost records are known by their
positions: the place begins with a standing or follows a place, and every fact behind the gap
continues the records. The records come from another node. The repair fills the gap with the same
number of batches: with these records, and a filler (ares/store/journal/format.py, encode_filled).

The repair writes the filled gaps and the intact batches into a new file, which takes the name of
the old file when it is durable and reads as written. After a failed sync Linux shows the intended
bytes and takes them for written: in the old file, damage would look repaired until the memory of
the machine is lost. A new file that failed is removed, and the place is damaged as before.

Lost facts of other kinds (seals, pointers, chains) are unknown. Therefore a repair is made only if
the facts from a standing to the next standing, the repaired gaps included, lead to exactly the next
standing. A second collection of a chain leads there without the first, which had more effects:
after a gap a collection that may be the second is refused. A trim is known by the next standing,
and a lost standing is the state before it.

A start needs the positions of all records, and the content of records that the node can show or
give away. In the place of further records, such as trimmed records, a repair writes empty entries.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from ares.model.errors import StoreDamaged
from ares.model.identity import ClientId, ConfigurationId, ServerId
from ares.model.log_messages import BATCH_ENTRIES_MAX, RECORDS_MAX, LogRecord, seal_of
from ares.model.numbers import POSITION_MAX
from ares.sharedlog.entries import Entries
from ares.sharedlog.log_facts import (
    PIECES,
    BatchPlace,
    ChainPointed,
    ChainSealed,
    EncodedFact,
    EncodedPiece,
    EncodedTaken,
    FilledGap,
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
from ares.store.journal.disk import NO_ROOM_ERRORS, Disk
from ares.store.journal.examine import IntactBatches, Pace, SegmentExamination, Windows
from ares.store.journal.format import (
    Buffer,
    Damage,
    Head,
    decode_log_batch,
    encode_filled,
    encode_head,
)
from ares.store.journal.segments import NEW_SEGMENT_SUFFIX, Owner
from ares.store.port import NotRepaired, Stored

_REMEDY = "move the log to a chain without this server, which then drops the place"
OTHER_FACTS_LOST = f"it lost more than records (a seal, or the successor of a chain): {_REMEDY}"

FILLED_BATCH_BYTES = 64 * 1024
"""Bytes of records in a batch of a repaired gap, as far as the gap has numbers."""

_POSITION_BYTES = 2
"""Least bytes of an entry in a journal."""

_EMPTY_ENTRIES = (b"",) * BATCH_ENTRIES_MAX


class PlaceFile(NamedTuple):
    """The file of a place, with batches up to byte ``end``."""

    number: int
    path: Path
    head: Head
    end: int


class Gap(NamedTuple):
    """The bytes of a place from ``start`` to ``end``, which lost this number of ``batches``.

    ``sequence``: the number of the first batch. A damaged head is a gap from byte 0, without
    batches. ``lost``: the facts which fill the gap.
    """

    start: int
    end: int
    sequence: int
    batches: int
    lost: list[LogSnapshot | LostRecords | LogTrimmed]


def survey(
    disk: Disk, place: PlaceFile, following: int, pace: Pace
) -> Generator[Sequence[EncodedFact] | Gap, None, None]:
    """Yield the facts of each intact batch, and the gaps, in order.

    ``following``: the number of the first batch behind the place. Raises OSError, Damage and
    :class:`NotRepaired`.
    """
    head, sequence = b"".join(encode_head(place.head)), place.head.first
    descriptor = disk.open_past_cache(place.path)
    try:
        windows, at = Windows(disk, descriptor, place.end, pace), 0
        with suppress(OSError):
            at = len(head) if windows.read(0, len(head)) == head else 0
        if not at:
            yield Gap(0, len(head), sequence, 0, [])
            at = len(head)
        batches = IntactBatches(windows, place.head, place.end)
        for start, frame in batches:
            if not sequence <= frame.sequence < following:
                continue  # a copy of another block
            if start > at or frame.sequence > sequence:
                yield Gap(at, start, sequence, frame.sequence - sequence, [])
            at, sequence = start + frame.end, frame.sequence + 1
            yield decode_log_batch(frame)
        if batches.gave_up:
            raise NotRepaired("too many of its bytes look like batches")
        if at < place.end or sequence < following:
            yield Gap(at, place.end, sequence, following - sequence, [])
    finally:
        disk.close(descriptor)


class HeldPositions(NamedTuple):
    """Consecutive records of ``source`` in [first, upto), of which a replay needs no more."""

    source: bytes
    first: int
    upto: int


class NoEntries:
    """The :class:`~ares.sharedlog.entries.Entries` of a replay, which keeps no record."""

    def __init__(self, source: bytes = b"") -> None: ...

    def put(self, record: LogRecord) -> None: ...

    def records(self, first: int, upto: int) -> Sequence[LogRecord]:
        return ()

    def reach(self, first: int, upto: int, bytes_max: int) -> int:
        return first

    def record(self, position: int) -> LogRecord | None:
        return None

    def cut(self, end: int) -> None: ...

    def drop(self, upto: int) -> None: ...

    def adopt(self, later: Entries, first: int, upto: int) -> None: ...


class LogReplay:
    """The facts from a standing, ``begin``, to the next standing, ``end``, and the gaps among them.

    ``begin``: None at the beginning of the log. Tell all facts and gaps in order, and call
    :meth:`finish`, which completes the gaps. All methods raise :class:`NotRepaired`, and
    :class:`StoreDamaged` for an unknown chain. A standing depends on the positions of records
    alone: a replay keeps these, as ranges.
    """

    def __init__(self, owner: Owner, begin: LogSnapshot | None, end: LogSnapshot) -> None:
        self._owner = owner
        self._begin, self._end = begin, end
        self._lengths = {each.configuration: each.length for each in end.segments}
        self._state = self._begun(begin)
        self._story: list[LogFact | HeldPositions | Gap] = []
        self._gaps: list[Gap] = []
        self._told: dict[bytes, int] = {}
        """The number of gaps before the last records of each source."""

        self._uncollected: set[ConfigurationId] = set()
        """The chains whose collection may be lost."""

    def pass_gap(self, gap: Gap, stands: bool) -> None:
        """Take note of a gap. ``stands``: its first fact was a standing."""
        if gap.batches < 1:
            raise NotRepaired("its batches do not lie one behind the other")
        if stands:
            gap.lost.append(_uncommitted(self._state.standing()))
        segments = self._state.segments.items()
        self._uncollected = {id for id, each in segments if not each.collected}
        self._gaps.append(gap)
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
                upto = decode_record(fact.records[-1]).end
                self._uncollected.discard(ConfigurationId(fact.source))
                self._hold(HeldPositions(fact.source, first, upto))
            else:
                if isinstance(fact, ChainSealed | ChainPointed):  # the chain takes no more records
                    self._reach(fact.configuration, self._lengths.get(fact.configuration, 0))
                self._look_for_collections(fact)
                self._state.apply(fact)
                self._story.append(fact)

    def _hold(self, held: HeldPositions) -> None:
        """Add records to the story, and to the last part of the story if they continue it."""
        _put(self._state, held)
        last = self._story[-1] if self._story else None
        if isinstance(last, HeldPositions) and (last.source, last.upto) == held[:2]:
            self._story[-1] = last._replace(upto=held.upto)
        else:
            self._story.append(held)

    def _look_for_collections(self, fact: LogFact) -> None:
        """Refuse a collection that may be the second of its chain, because a gap lost the first.

        The first may have dropped the old part, which the next standing does not tell. Further
        facts of the chain show that the chain was not collected before. So does the successor: a
        second collection is a fact only with a later successor than the next chain.
        """
        if not isinstance(fact, ChainSealed | ChainPointed):
            return
        source = fact.configuration
        if isinstance(fact, ChainPointed) and fact.collected and source in self._uncollected:
            own = self._state.segments[source].configuration
            if fact.successor.configuration.index > own.index + 1:
                raise NotRepaired(f"it may have lost an earlier collection of a chain: {_REMEDY}")
        self._uncollected.discard(source)

    def finish(self) -> None:
        """Complete the gaps, and check that the facts lead to the next standing."""
        trim = LogTrimmed(self._end.trimmed)
        is_lost = bool(self._gaps) and self._state.trimmed < trim.upto
        if is_lost:
            self._state.apply(trim)
        for source, length in (*self._lengths.items(), (PIECES, self._end.old_upto)):
            self._reach(source, length)
        if is_lost:
            self._gaps[-1].lost.append(trim)
        state = self._begun(self._begin)
        for part in self._story:
            for each in part.lost if isinstance(part, Gap) else [part]:
                if isinstance(each, LostRecords):
                    _put(state, HeldPositions(*each[:3]))
                elif isinstance(each, HeldPositions):
                    _put(state, each)
                elif not isinstance(each, LogSnapshot):
                    state.apply(each)
        if not self._is_end(state.standing()):
            raise NotRepaired(OTHER_FACTS_LOST)

    def _begun(self, standing: LogSnapshot | None) -> LogState:
        state = LogState(ServerId(self._owner.server), self._owner.identity, NoEntries)
        if standing is not None:
            state.begin(standing)
        return state

    def _is_end(self, standing: LogSnapshot) -> bool:
        """Return whether ``standing`` tells the same as the next standing.

        Committed positions do not count: a start needs none.
        """
        return self._begun(standing).standing() == self._begun(self._end).standing()

    def _reach(self, source: bytes, upto: int) -> None:
        """Count the records of ``source`` up to this position as lost by the last gap.

        Old records of an ended segment of this server are not fetched.
        """
        gaps = len(self._gaps) - self._told.get(source, 0)
        self._told[source] = len(self._gaps)
        while (first := _length(self._state, source)) < upto:
            if gaps > 1:
                raise NotRepaired("two gaps lost records, and which gap lost which is unknown")
            segments = self._state.segments.values() if source == PIECES else ()
            there = [each.start for each in segments if each.end is not None and not each.merged]
            end = min([upto, *there])
            size = self._gaps[-1].end - self._gaps[-1].start if gaps else 0
            if not 0 < (end - first) * _POSITION_BYTES <= size:
                raise NotRepaired(OTHER_FACTS_LOST)
            self._gaps[-1].lost.append(LostRecords(source, first, end, size))
            _put(self._state, HeldPositions(source, first, end))


def _put(state: LogState, held: HeldPositions) -> None:
    """Apply records which continue the records before them."""
    length = _length(state, held.source)
    if held.first > length or (held.source != PIECES and held.first < length):
        raise NotRepaired(OTHER_FACTS_LOST)
    for record in _empty_records(held.first, held.upto):
        state.apply(_fact(held.source, [record]))


def _length(state: LogState, source: bytes) -> int:
    """Return the end of the records of a source. Raises :class:`NotRepaired`."""
    if source == PIECES:
        return state.base_upto
    segment = state.segments.get(ConfigurationId(source))
    if segment is None:
        raise NotRepaired(OTHER_FACTS_LOST)
    return segment.length


def _uncommitted(standing: LogSnapshot) -> LogSnapshot:
    """Return the standing without committed positions, which a start may know to be lower."""
    states = tuple(replace(each, committed=0) for each in standing.segments)
    return replace(standing, segments=states)


def _fact(source: bytes, records: Sequence[LogRecord]) -> RecordsTaken | PieceFetched:
    if source == PIECES:
        return PieceFetched(tuple(records))
    return RecordsTaken(ConfigurationId(source), tuple(records))


def _source(fact: RecordsTaken | PieceFetched) -> bytes:
    return PIECES if isinstance(fact, PieceFetched) else fact.configuration


def _facts(
    lost: LogSnapshot | LostRecords | LogTrimmed, records: Sequence[LogRecord], bytes_max: int
) -> Iterator[Stored]:
    """Yield the lost facts: the facts with ``records`` have about ``bytes_max`` each at most."""
    if not isinstance(lost, LostRecords):
        yield lost
        return
    begin = size = 0
    for at, record in enumerate(records):
        bytes = record.size + len(record.entries)
        if at > begin and (size + bytes > bytes_max or at - begin == RECORDS_MAX):
            yield _fact(lost.source, records[begin:at])
            begin, size = at, 0
        size += bytes
    yield _fact(lost.source, records[begin:])


def _completed(lost: LostRecords, found: Sequence[LogRecord]) -> Iterator[LogRecord]:
    """Yield records for all lost positions: the found records, and records with empty entries."""
    first, upto = (found[0].first, found[-1].end) if found else (lost.upto, lost.upto)
    yield from map(_sealed, _empty_records(lost.first, first))
    yield from found
    yield from map(_sealed, _empty_records(upto, lost.upto))


def _empty_records(first: int, upto: int) -> Iterator[LogRecord]:
    """Yield records with empty entries, which share their memory."""
    for at in range(first, upto, BATCH_ENTRIES_MAX):
        yield LogRecord(at, ClientId(0), 1, 1, _EMPTY_ENTRIES[: upto - at])


def _sealed(record: LogRecord) -> LogRecord:
    """Return the record with its seal."""
    named = (record.first, record.client, record.number, record.lowest)
    return replace(record, seal=seal_of(*named, record.entries))


class PlaceRepair:
    """:class:`ares.store.port.LogRepair` of a place.

    ``places``: all places of the journal, in order. ``index``: of the damaged place. ``stands``:
    the place begins with a standing. ``replaced``: the file of the place is a new one.
    """

    replaced = False

    def __init__(
        self, disk: Disk, owner: Owner, places: Sequence[PlaceFile], index: int, stands: bool
    ) -> None:
        self._disk = disk
        self._owner = owner
        self._places = places
        self._place, self._index, self._stands = places[index], index, stands
        self._gaps: list[Gap] = []
        self._writes: dict[int, list[Buffer]] = {}

    def look(self, pace: Pace) -> Sequence[LostRecords] | None:
        self._gaps = []
        try:
            self._replay(pace)
        except StoreDamaged as error:
            raise NotRepaired(OTHER_FACTS_LOST) from error
        except Damage as damage:
            raise NotRepaired(str(damage)) from damage
        lost = [each for gap in self._gaps for each in gap.lost if isinstance(each, LostRecords)]
        return lost if self._gaps else None

    def _replay(self, pace: Pace) -> None:
        """Find and complete the gaps."""
        places, first, last = self._places, self._index, self._index + 1
        while (begin := self._standing(places[first], pace)) is None and first:
            first -= 1
        if begin is None and places[first].number != 1:
            raise NotRepaired("its standing is lost, and no earlier place is left")
        end: LogSnapshot | None = None
        while last < len(places) and (end := self._standing(places[last], pace)) is None:
            last += 1
        if end is None:
            raise NotRepaired("no place behind it has a standing yet")
        replay = LogReplay(self._owner, begin, end)
        for place, following in pairwise(places[first : last + 1]):
            for part in survey(self._disk, place, following.head.first, pace):
                if not isinstance(part, Gap):
                    replay.tell(part)
                    continue
                if place is not self._place:
                    raise NotRepaired(f"place {place.number} beside it is damaged, too")
                self._gaps.append(part)
                if part.start:
                    is_first = part.sequence == place.head.first
                    replay.pass_gap(part, is_first and self._stands)
        replay.finish()

    def _standing(self, place: PlaceFile, pace: Pace) -> LogSnapshot | None:
        """Return the standing at the beginning of a place, if the place has an intact standing."""
        with closing(survey(self._disk, place, POSITION_MAX, pace)) as parts:
            part = next((each for each in parts if not isinstance(each, Gap) or each.start), None)
        first = None if isinstance(part, Gap) or not part else part[0]
        return first if isinstance(first, LogSnapshot) else None

    def fill(self, found: Sequence[Sequence[LogRecord]]) -> Sequence[FilledGap]:
        remaining, filled, end = iter(found), list[FilledGap](), -1
        self._writes = {}
        for gap in self._gaps:
            if gap.start != end:  # a damaged head and the gap behind are a single write
                written = self._writes[gap.start] = []
            end = gap.end
            if gap.start:
                batches, marks = self._batches(gap, remaining)
                written += batches
                filled.append(FilledGap(self._place.number, range(gap.start, end), marks))
            else:
                written += encode_head(self._place.head)
        return filled

    def _batches(
        self, gap: Gap, found: Iterator[Sequence[LogRecord]]
    ) -> tuple[list[Buffer], list[tuple[bytes, int, BatchPlace]]]:
        """Return the batches that fill a gap, and the marks of their records."""
        head, size = self._place.head, gap.end - gap.start
        parts = [
            (each, tuple(_completed(each, next(found))) if isinstance(each, LostRecords) else ())
            for each in gap.lost
        ]
        for bytes_max in (max(FILLED_BATCH_BYTES, size // gap.batches), size):
            facts = [fact for each, records in parts for fact in _facts(each, records, bytes_max)]
            last = gap.batches - 1
            groups = [*(facts[at : at + 1] for at in range(last)), facts[last:]]
            batches = encode_filled(gap.sequence, head.salt, groups, size)
            if batches is not None:
                break
        else:
            raise NotRepaired("the records found take more room than the lost ones")
        marks, at = [], gap.start
        for number, (data, group) in enumerate(zip(batches, groups, strict=True), gap.sequence):
            mark = BatchPlace(self._place.number, at, number)
            for fact in group:
                if isinstance(fact, RecordsTaken | PieceFetched):
                    marks.append((_source(fact), fact.records[0].first, mark))
            at += len(data)
        return [*batches], marks

    def write(self, pace: Pace) -> None:
        new = self._place.path.with_suffix(NEW_SEGMENT_SUFFIX)
        try:
            self._write_copy(new, pace)
            examination = SegmentExamination(self._disk, new, self._place.head, self._place.end)
            if not examination.run(pace).whole:
                raise NotRepaired("the disk does not give back the repaired bytes")
        except OSError as error:
            self._disk.unlink(new)
            if error.errno in NO_ROOM_ERRORS:
                raise NotRepaired("the disk has no room for another copy of it") from error
            raise
        except BaseException:
            self._disk.unlink(new)
            raise
        if self._place.path.name not in self._disk.names(new.parent):  # given back meanwhile
            self._disk.unlink(new)
            return
        try:
            self._disk.rename(new, self._place.path)
        except OSError:
            self._disk.unlink(new)
            raise
        self.replaced = True
        self._disk.sync_directory(new.parent)

    def _write_copy(self, new: Path, pace: Pace) -> None:
        """Write the repaired place into the file ``new``, durably."""
        source = self._disk.open_past_cache(self._place.path)
        try:
            descriptor = self._disk.create(new, self._place.end)
            try:
                self._disk.allocate(descriptor, 0, self._place.end)
                windows = Windows(self._disk, source, self._place.end, pace)
                at = 0
                for offset, buffers in sorted(self._writes.items()):
                    self._copy(windows, descriptor, range(at, offset))
                    self._disk.write(descriptor, buffers, offset)
                    at = offset + sum(map(len, buffers))
                self._copy(windows, descriptor, range(at, self._place.end))
                self._disk.sync(descriptor)
            finally:
                self._disk.close(descriptor)
        finally:
            self._disk.close(source)

    def _copy(self, windows: Windows, descriptor: int, span: range) -> None:
        """Copy intact bytes from the damaged file, a window at a time."""
        at = span.start
        while at < span.stop and (piece := windows.view(at, span.stop - at)):
            self._disk.write(descriptor, [piece], at)
            at += len(piece)
