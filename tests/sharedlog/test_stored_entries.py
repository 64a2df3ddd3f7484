"""Records on a disk against a list in memory, through any operations.

Operations put, cut, drop, adopt and settle (docs/log.md, On a disk).
"""

from typing import get_args
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ares.model.errors import StoreDamaged
from ares.model.identity import ClientId
from ares.model.log_messages import LogRecord
from ares.sharedlog import stored_entries
from ares.sharedlog.entries import MemoryEntries
from ares.sharedlog.log_facts import (
    PIECES,
    BatchPlace,
    EncodedFact,
    LogFact,
    LogSnapshot,
    PieceFetched,
    RecordsTaken,
    decode_record,
)
from ares.sharedlog.stored_entries import RecordIndex, StoredEntries

BATCH_BYTES = 40
"""Distance of batches of the journal; an index has a mark for every INDEX_BYTES."""

INDEX_BYTES = 100

sizes = st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=3), min_size=1, max_size=4)


class FewBatches:
    """A journal of places with batches, read from a mark on. A discarded place is gone."""

    def __init__(self):
        self.places = {1: []}
        self.gathered = []
        self.shelf = RecordIndex(self)

    @property
    def place(self):
        return max(self.places)

    def append(self, fact):
        self.gathered.append(fact)
        self.shelf.note(fact, self.place)

    def encode(self):
        if self.gathered:
            batches = self.places[self.place]
            batches.append(self.gathered)
            count = len(batches) - 1
            self.shelf.batch(BatchPlace(self.place, BATCH_BYTES * count, count))
            self.gathered = []

    def begin_place(self):
        self.encode()
        self.places[self.place + 1] = []

    def scan(self, mark, encoded):
        assert mark.place < self.place, "what is read is in places that are full"
        for facts in self.places[mark.place][mark.offset // BATCH_BYTES :]:
            kind = list[EncodedFact if encoded else LogFact]
            yield msgspec.msgpack.decode(msgspec.msgpack.encode(facts), type=kind)


class Kept:
    """The same records twice."""

    def __init__(self, shelf, source):
        self.stored, self.plain = StoredEntries(shelf, source), MemoryEntries()

    def each(self, method, *arguments):
        getattr(self.stored, method)(*arguments)
        getattr(self.plain, method)(*arguments)

    def adopt(self, other, first, upto):
        self.stored.adopt(other.stored, first, upto)
        self.plain.adopt(other.plain, first, upto)

    @property
    def first(self):
        held = self.plain.records(0, 1 << 40)
        return held[0].first if held else None


class OnDisk(RuleBasedStateMachine):
    """A chain's records, and the older part that they become.

    Pieces of the older part are fetched while the chain accepts more records.
    """

    def __init__(self):
        super().__init__()
        self.journal = FewBatches()
        self.count = self.chains = self.trimmed = self.old_upto = 0
        self.old = Kept(self.journal.shelf, PIECES)
        self.begin_chain(0)

    def begin_chain(self, start):
        self.chains += 1
        self.id = b"chain %d" % self.chains
        self.start = self.length = start
        self.new = Kept(self.journal.shelf, self.id)

    def record(self, first, sizes):
        self.count += 1
        return LogRecord(
            first,
            ClientId(self.count),
            1,
            1,
            tuple(b"%04d" % self.count + bytes(size) for size in sizes),
        )

    @rule(batches=sizes)
    def take(self, batches):
        records = []
        for each in batches:
            records.append(self.record(self.length, each))
            self.new.each("put", records[-1])
            self.length = records[-1].end
        self.journal.append(RecordsTaken(self.id, tuple(records)))

    @precondition(lambda self: self.old_upto < self.start)
    @rule(batches=sizes)
    def fetch(self, batches):
        records, position = [], self.old_upto
        for each in batches:
            each = each[: self.start - position]
            if each:
                records.append(self.record(position, each))
                position = records[-1].end
                self.old.each("put", records[-1])
        self.old_upto = position
        self.journal.append(PieceFetched(tuple(records)))

    @rule(end=st.integers(0, 1 << 16))
    def cut_and_go_on(self, end):
        """Cut between records, as at every end; the next chain may have another older part."""
        ends = [self.start] + [record.end for record in self.new.plain.records(0, self.length)]
        end = ends[end % len(ends)]
        self.new.each("cut", end)
        if self.old_upto >= self.start:
            self.old.adopt(self.new, self.old_upto, end)
            self.old_upto = max(self.old_upto, end)
        self.begin_chain(max(end, self.trimmed))

    @rule(share=st.floats(0, 1))
    def trim(self, share):
        upto = max(self.trimmed, int(share * self.length))
        self.trimmed = upto
        self.old.each("drop", upto)
        self.new.each("drop", upto)
        self.old_upto = max(self.old_upto, upto)

    @rule()
    def collect(self):
        """Drop the older part, and fetch it again from its beginning."""
        self.old, self.old_upto = Kept(self.journal.shelf, PIECES), self.trimmed

    @rule()
    def encode(self):
        self.journal.encode()

    @rule()
    def begin_place(self):
        self.journal.begin_place()

    @rule()
    def settle(self):
        self.journal.shelf.settle(self.journal.place - 1)
        self.old.stored.settle()
        self.new.stored.settle()

    @rule()
    def give_back(self):
        needed = [
            place
            for kept in (self.old, self.new)
            if (place := kept.stored.place_needed()) is not None
        ]
        needed = min(needed, default=self.journal.place)
        for place in [place for place in self.journal.places if place < needed]:
            del self.journal.places[place]
        self.journal.shelf.forget_below(needed)

    @rule(first=st.integers(0, 120), count=st.integers(0, 60), bytes_max=st.integers(0, 200))
    def read(self, first, count, bytes_max):
        first = max(first, self.trimmed)  # a log refuses reads of trimmed positions
        for kept in (self.old, self.new):
            reached = kept.plain.reach(first, first + count, bytes_max)
            assert kept.stored.reach(first, first + count, bytes_max) == reached
            assert list(kept.stored.records(first, reached)) == list(
                kept.plain.records(first, reached)
            )
            assert list(kept.stored.records(first, first + count)) == list(
                kept.plain.records(first, first + count)
            )
            for record in kept.plain.records(first, first + count):
                for position in range(max(first, record.first), record.end):
                    assert kept.stored.record(position) == record

    @invariant()
    def everything_is_there(self):
        for kept in (self.old, self.new):
            assert list(kept.stored.records(0, 1 << 40)) == list(kept.plain.records(0, 1 << 40))
            assert (kept.stored.place_needed() is None) == (kept.first is None)

    @invariant()
    def what_is_settled_is_not_in_memory(self):
        for span in [*self.old.stored._spans, *self.new.stored._spans]:
            assert span.first <= span.kept <= span.end
            assert not span.memory.records(span.first, span.kept)


@pytest.fixture(autouse=True)
def small_index():
    with patch.object(stored_entries, "RECORD_INDEX_BYTES", INDEX_BYTES):
        yield


TestOnDisk = OnDisk.TestCase
TestOnDisk.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)


def test_what_the_disk_lost_is_said_and_what_is_behind_it_is_read():
    """Three batches are in the same place, another is in the next; the second is unreadable."""
    journal = FewBatches()
    kept = StoredEntries(journal.shelf, b"chain")
    for first in range(4):
        record = LogRecord(first, ClientId(1), first + 1, 1, (b"%d" % first,))
        kept.put(record)
        if first == 3:
            journal.begin_place()
        journal.append(RecordsTaken(b"chain", (record,)))
        journal.encode()
    journal.begin_place()
    journal.shelf.settle(2)
    kept.settle()
    del journal.places[1][1:]
    assert [record.first for record in kept.records(0, 1)] == [0]
    with pytest.raises(StoreDamaged, match="position 1 was put down there"):
        kept.records(0, 4)
    with pytest.raises(StoreDamaged):
        kept.reach(1, 4, 100)
    assert [record.first for record in kept.records(3, 4)] == [3]


def test_every_fact_has_a_form_with_undecoded_records():
    tags = [
        {kind.__struct_config__.tag: kind.__struct_fields__ for kind in get_args(union)}
        for union in (LogFact | LogSnapshot, EncodedFact)
    ]
    assert tags[0].keys() == tags[1].keys()
    encode, decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(EncodedFact).decode
    record = LogRecord(3, ClientId(1), 1, 1, (b"x",))
    taken, piece = (
        decode(encode(fact)) for fact in (RecordsTaken(b"c", (record,), 3), PieceFetched((record,)))
    )
    assert (taken.source, piece.source) == (b"c", PIECES)
    assert [decode_record(raw) for raw in (*taken.records, *piece.records)] == [record] * 2


def test_a_read_of_one_position_decodes_no_record_before_its_own(monkeypatch):
    decoded = []
    decode = stored_entries.decode_record
    monkeypatch.setattr(
        stored_entries, "decode_record", lambda raw: decoded.append(raw) or decode(raw)
    )
    journal = FewBatches()
    kept = StoredEntries(journal.shelf, b"chain")
    records = [LogRecord(2 * at, ClientId(1), at + 1, 1, (b"a", b"b")) for at in range(1000)]
    for at, each in enumerate(records):
        kept.put(each)
        if at % 250 == 249:
            journal.append(RecordsTaken(b"chain", tuple(records[at - 249 : at + 1])))
            journal.encode()
    journal.begin_place()
    journal.shelf.settle(1)
    kept.settle()
    assert kept.record(777) == records[388]
    assert len(decoded) < 5


def test_old_records_that_are_fetched_again_after_a_collection_are_the_new_ones():
    run = OnDisk()
    run.take([[1]] * 6)
    run.cut_and_go_on(6)
    for pieces in (5, 1):
        run.collect()
        for _ in range(pieces):
            run.fetch([[1]])
            run.begin_place()
            run.settle()
            run.everything_is_there()


def test_of_two_fetches_in_one_batch_the_later_one_is_read():
    """A collection between two fetches of the same records, before the journal wrote a batch."""
    run = OnDisk()
    run.take([[1]])
    run.cut_and_go_on(1)
    run.collect()
    run.fetch([[1]])
    run.collect()
    run.fetch([[2]])
    run.begin_place()
    run.settle()
    run.everything_is_there()
