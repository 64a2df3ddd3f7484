"""Records of a log on a disk; the newest are in memory, too (docs/log.md, On a disk).

A log has a journal of its own, in which facts stand in their order, in places (ares/store/port.py).
A shelf knows the places of the records of each source: records taken by a chain, under the id of
the chain, and fetched old records, under PIECES. The index of a shelf has a mark for about every
RECORD_INDEX_BYTES, and for the first records of a source in a place. Records leave memory when
their place is settled: durable, and closed for more records.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter, itemgetter
from typing import Protocol

from ares.model.errors import StoreDamaged
from ares.model.log_messages import LogRecord
from ares.model.numbers import POSITION_MAX
from ares.sharedlog.entries import Entries, MemoryEntries, index_of
from ares.sharedlog.log_facts import (
    PIECES,
    BatchPlace,
    EncodedPiece,
    EncodedTaken,
    FilledGap,
    LogFact,
    PieceFetched,
    RecordsTaken,
    decode_record,
    first_of_encoded,
)

RECORD_INDEX_BYTES = 8 * 1024

Source = bytes


class JournalReader(Protocol):
    """A reader of a journal."""

    def scan(self, mark: BatchPlace, encoded: bool) -> Iterator[Sequence[object]]:
        """Yield the facts of each batch from ``mark`` to the end of the mark's place.

        ``encoded``: with undecoded records (EncodedFact).
        """


_first_of, _place_of, _begin_of, _end_of = (
    itemgetter(0),
    itemgetter(1),
    attrgetter("first"),
    attrgetter("end"),
)


class Marks:
    """The marks of a source: the first position, place, byte and number of batches, in order.

    A mark takes 32 bytes: a log of 10 GiB has a million marks.
    """

    def __init__(self) -> None:
        self._fields = [array("Q") for _ in range(4)]
        self.firsts = self._fields[0]

    def __len__(self) -> int:
        return len(self.firsts)

    def add(self, first: int, mark: BatchPlace) -> None:
        for field, value in zip(self._fields, (first, *mark), strict=True):
            field.append(value)

    def place(self, at: int) -> BatchPlace:
        """Return the place of a mark, by its index."""
        _, places, offsets, sequences = self._fields
        return BatchPlace(places[at], offsets[at], sequences[at])

    def replace(self, place: int, span: range, marks: Sequence[tuple[int, BatchPlace]]) -> None:
        """Put ``marks`` in place of the marks of a span of bytes of a place, if there are any."""
        _, places, offsets, _ = self._fields
        begin, end = bisect_left(places, place), bisect_right(places, place)
        begin, end = (bisect_left(offsets, at, begin, end) for at in (span.start, span.stop))
        if begin < end:
            rows = [(first, *mark) for first, mark in marks]
            for at, field in enumerate(self._fields):
                field[begin:end] = array("Q", [row[at] for row in rows])

    def forget_below(self, place: int) -> None:
        """Forget the marks in earlier places than ``place``."""
        gone = bisect_left(self._fields[1], place)
        for field in self._fields:
            del field[:gone]


class RecordIndex:
    """An index of the records in a log's journal.

    ``noted``: appended facts whose batch is not known yet. ``suspects``: places where a read did
    not find its records.
    """

    def __init__(self, reader: JournalReader) -> None:
        self.suspects: set[int] = set()
        self._reader = reader
        self._index: dict[Source, Marks] = {}
        self._places: dict[Source, list[tuple[int, int]]] = {}
        self._ends: dict[Source, int] = {}
        self._noted: dict[Source, int] = {}
        self._settled = 0

    def note(self, fact: LogFact, place: int) -> None:
        """Note that ``fact`` was appended at ``place``."""
        if not isinstance(fact, RecordsTaken | PieceFetched) or not fact.records:
            return
        source: Source = fact.configuration if isinstance(fact, RecordsTaken) else PIECES
        first = fact.records[0].first
        if first < self._ends.get(source, 0):
            # noted late: the records were collected in the same turn, and are fetched once more
            self.forget(source)
        places = self._places.setdefault(source, [])
        if not places or places[-1][1] != place:
            places.append((first, place))
        self._noted.setdefault(source, first)
        self._ends[source] = fact.records[-1].end

    def batch(self, mark: BatchPlace) -> None:
        """Note that the facts noted last are the batch at ``mark``."""
        for source, first in self._noted.items():
            index = self._index.setdefault(source, Marks())
            last = index.place(-1) if index else None
            if (
                last is None
                or last.place != mark.place
                or mark.offset - last.offset >= RECORD_INDEX_BYTES
            ):
                index.add(first, mark)
        self._noted.clear()

    def settle(self, place: int) -> None:
        """Note that the places up to ``place`` are settled."""
        self._settled = max(self._settled, place)

    def settled_upto(self, source: Source) -> int:
        """Return the end of the records of ``source`` in settled places."""
        places = self._places.get(source, [])
        later = bisect_right(places, self._settled, key=_place_of)
        return places[later][0] if later < len(places) else self._ends.get(source, 0)

    def place_of(self, source: Source, position: int) -> int:
        """Return the place of the record at ``position``."""
        places = self._places[source]
        return places[max(0, bisect_right(places, position, key=_first_of) - 1)][1]

    def forget(self, source: Source) -> None:
        """Forget the records of ``source``, which no reader needs any more."""
        for noted in (self._places, self._index, self._ends, self._noted):
            noted.pop(source, None)

    def forget_below(self, place: int) -> None:
        """Forget earlier places than ``place``, which are gone."""
        for source in list(self._places):
            self._places[source] = [pair for pair in self._places[source] if pair[1] >= place]
            if source in self._index:
                self._index[source].forget_below(place)
            if not self._places[source]:
                self.forget(source)

    def rewrite(self, filled: FilledGap) -> None:
        """Note that a repair fills damaged bytes with other batches."""
        for source, marks in self._index.items():
            found = [(first, mark) for name, first, mark in filled.marks if name == source]
            marks.replace(filled.place, filled.span, found)

    def read(self, source: Source, first: int, upto: int) -> Iterator[LogRecord]:
        """Yield the records of ``source`` with entries in [first, upto), from settled places.

        Raises :class:`StoreDamaged`.
        """
        if upto == first + 1:
            yield self.record(source, first)
            return
        while first < upto:
            begin = first
            for record in self._scanned(source, first):
                if record.end <= first:
                    continue
                if record.first >= upto:
                    return
                if record.first > first and first != begin:
                    break
                yield record
                first = record.end
            if first == begin:
                raise self._lost(source, first)

    def record(self, source: Source, position: int) -> LogRecord:
        """Return the record of ``source`` with ``position``; decode one record of a batch at most.

        Raises :class:`StoreDamaged`.
        """
        mark = self._mark(source, position)
        for facts in self._reader.scan(mark, True) if mark is not None else ():
            last, found = -1, None
            for fact in facts:
                if not isinstance(fact, EncodedTaken | EncodedPiece) or fact.source != source:
                    continue
                if fact.records:
                    begin, before = first_of_encoded(fact.records[0]), last
                    last = first_of_encoded(fact.records[-1])
                    if begin <= position:
                        at = bisect_right(fact.records, position, key=first_of_encoded)
                        found = fact.records[at - 1]
                    elif begin <= before:  # as in _fetched
                        found = None
            record = None if found is None else decode_record(found)
            if record is not None and position < record.end:
                return record
            if last > position:
                break
        raise self._lost(source, position)

    def _lost(self, source: Source, position: int) -> StoreDamaged:
        if (mark := self._mark(source, position)) is not None:
            self.suspects.add(mark.place)
        why = f"position {position} was put down there, and cannot be read"
        return StoreDamaged("of a log", why)

    def _mark(self, source: Source, position: int) -> BatchPlace | None:
        """Return the place from which the record with ``position`` is found."""
        marks = self._index.get(source)
        if not marks:
            return None
        return marks.place(max(0, bisect_right(marks.firsts, position) - 1))

    def _scanned(self, source: Source, first: int) -> Iterator[LogRecord]:
        """Yield the records whose end is beyond ``first``, to the end of the place."""
        mark = self._mark(source, first)
        for facts in self._reader.scan(mark, False) if mark is not None else ():
            for records in _fetched(facts) if source == PIECES else _taken(facts, source):
                yield from records[index_of(records, first) :]


def _taken(facts: Sequence[object], chain: Source) -> list[Sequence[LogRecord]]:
    """Return the records of a batch taken by `chain`."""
    return [
        fact.records
        for fact in facts
        if isinstance(fact, RecordsTaken) and fact.configuration == chain
    ]


def _fetched(facts: Sequence[object]) -> list[Sequence[LogRecord]]:
    """Return the fetched pieces of a batch, without pieces made invalid by a collection.

    After a collection the old records are fetched from the beginning once more. Both fetches can be
    in one batch: a piece which begins before the end of the preceding piece starts the second
    fetch.
    """
    pieces: list[Sequence[LogRecord]] = []
    for fact in facts:
        if isinstance(fact, PieceFetched) and fact.records:
            if pieces and fact.records[0].first < pieces[-1][-1].end:
                pieces.clear()
            pieces.append(fact.records)
    return pieces


class RecordSpan:
    """Records of a source in [first, end). From ``kept`` on the records are in memory."""

    __slots__ = ("end", "first", "kept", "memory", "source")

    def __init__(self, source: Source, first: int) -> None:
        self.source = source
        self.first = self.end = self.kept = first
        self.memory = MemoryEntries()

    def clip(self, first: int, upto: int) -> None:
        """Keep only the records in [first, upto)."""
        self.memory.drop(first)
        self.memory.cut(upto)
        self.first, self.end = max(self.first, first), min(self.end, upto)
        self.kept = min(max(self.kept, self.first), self.end)


class StoredEntries:
    """The :class:`~ares.sharedlog.entries.Entries` on ``shelf``; ``source`` names its records."""

    def __init__(self, shelf: RecordIndex, source: Source) -> None:
        self._shelf = shelf
        self._source = source
        self._spans: list[RecordSpan] = []
        self._last_read: tuple[int, list[LogRecord]] = (-1, [])
        if source == PIECES:
            # after a collection the old records are fetched from their beginning once more
            shelf.forget(source)

    def put(self, record: LogRecord) -> None:
        span = self._spans[-1] if self._spans else None
        if span is None or (span.source, span.end) != (self._source, record.first):
            span = RecordSpan(self._source, record.first)
            self._spans.append(span)
        span.memory.put(record)
        span.end = record.end

    def records(self, first: int, upto: int) -> Sequence[LogRecord]:
        span = self._spans[-1] if self._spans else None
        if first >= upto or span is None or first >= span.kept:
            return span.memory.records(first, upto) if span is not None else ()
        begin, found = self._last_read
        if begin != first or not found or found[-1].end < min(upto, span.end):
            found = list(self._read(first, upto))
        return found[: bisect_left(found, upto, key=_begin_of)]

    def record(self, position: int) -> LogRecord | None:
        span = self._spans[-1] if self._spans else None
        if span is None or position >= span.kept:
            return span.memory.record(position) if span is not None else None
        return next(self._read(position, position + 1), None)

    def reach(self, first: int, upto: int, bytes_max: int) -> int:
        span = self._spans[-1] if self._spans else None
        if span is None or first >= span.kept:
            return span.memory.reach(first, upto, bytes_max) if span is not None else first
        found, size = list[LogRecord](), 0
        for record in self._read(first, upto):
            size += record.bulk
            if found and size > bytes_max:
                break
            found.append(record)
        self._last_read = (first, found)
        return min(found[-1].end, upto) if found else first

    def cut(self, end: int) -> None:
        self._last_read = (-1, [])
        self._spans = [span for span in self._spans if span.first < end]
        if self._spans:
            self._spans[-1].clip(0, end)

    def drop(self, upto: int) -> None:
        self._last_read = (-1, [])
        self._spans = self._spans[self._at(upto) :]
        if self._spans:
            self._spans[0].clip(upto, POSITION_MAX)

    def adopt(self, later: Entries, first: int, upto: int) -> None:
        """Take over records of ``later``, of the same log; ``later`` is not used afterwards."""
        if not isinstance(later, StoredEntries):
            raise TypeError("the records of one log are kept in one way")
        for span in later._spans:
            if span.end > first and span.first < upto:
                span.clip(first, upto)
                self._spans.append(span)

    def settle(self) -> None:
        """Drop from memory the records in settled places."""
        for span in self._spans:
            upto = min(span.end, self._shelf.settled_upto(span.source))
            if upto > span.kept:
                span.kept = upto
                span.memory.drop(upto)

    def place_needed(self, upto: int = 0) -> int | None:
        """Return the first place with records of these entries from ``upto`` on, or None."""
        return min(
            (
                self._shelf.place_of(span.source, max(span.first, upto))
                for span in self._spans
                if span.end > upto
            ),
            default=None,
        )

    def _at(self, position: int) -> int:
        """Return the index of the first span that reaches beyond ``position``."""
        return bisect_right(self._spans, position, key=_end_of)

    def _read(self, first: int, upto: int) -> Iterator[LogRecord]:
        for span in self._spans[self._at(first) :]:
            if span.first >= upto:
                return
            if first < span.kept:
                yield from self._shelf.read(
                    span.source, max(first, span.first), min(upto, span.kept)
                )
            yield from span.memory.records(max(first, span.kept), upto)
