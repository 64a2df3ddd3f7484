"""Damaged places of a log on the model disk: repaired in place with the records of another node.

A place that cannot be repaired stays as before.
"""

import contextlib
import errno
import tracemalloc
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from ares.model.configuration import Status, Successor
from ares.model.errors import StoreDamaged
from ares.model.identity import ClientId
from ares.model.log_messages import BATCH_ENTRIES_MAX, LogRecord
from ares.sharedlog.log_facts import (
    PIECES,
    ChainPointed,
    ChainSealed,
    ChainsKnown,
    EncodedFact,
    LogSnapshot,
    LogTrimmed,
    PieceFetched,
    RecordsTaken,
)
from ares.sharedlog.log_state import LogState
from ares.store.journal import examine, log_repair
from ares.store.journal.disk import DISK_BLOCK_BYTES
from ares.store.journal.format import decode_batch, decode_head, parse_frame, walk
from ares.store.journal.log_repair import Gap, LogReplay
from ares.store.port import NotRepaired
from ares.testing.sim.model_disk import PowerLost

from .chains import chain, sealed
from .hosted import ME, OWNER, PLACE_BYTES, LogOnDisk, seen

CHUNKS, SEEDS, STEPS = 2, 40, 150
RECORD_FACTS = (RecordsTaken, PieceFetched)
RESTORED_FACTS = (*RECORD_FACTS, LogTrimmed, LogSnapshot)
EXCUSES = (
    "which gap lost which",
    "no earlier place is left",
    "no place behind it has a standing",
    "may have lost an earlier collection",
)
"""The reasons for leaving places that lost records, trims and standings alone."""


def unpaced(size):
    """Read at once."""


class RottenLog(LogOnDisk):
    """A log whose records have seals, and damage to its places."""

    def record_fact(self, fact):
        if isinstance(fact, RECORD_FACTS):
            fact = replace(fact, records=tuple(map(sealed, fact.records)))
        super().record_fact(fact)

    def put(self, fact):
        """Record a fact in a separate batch."""
        self.record_fact(fact)
        self.sync()

    def restart(self):
        self.sync()
        self.start()

    def start(self):
        super().start()
        if self.live is not None:
            self.live.settled(self.live.length)

    def content(self, place):
        return self.disk.files[f"{place:08}.log"]

    def overwrite(self, place, at, data):
        descriptor = self.disk.open(Path(f"{place:08}.log"))
        self.disk.write(descriptor, [data], at)
        self.disk.sync(descriptor)
        self.disk.close(descriptor)

    def frames(self, place):
        """Return the batches of an intact place."""
        view = memoryview(self.content(place))
        head = parse_frame(view, 0, place)
        told = decode_head(head)
        return list(walk(view, head.end, told.salt, told.first))

    def facts_in(self, place, begin, end):
        """Return the facts of the batches that overlap with the bytes."""
        view = memoryview(self.content(place))
        overlapping = [it for it in self.frames(place) if it.start < end and begin < it.end]
        return [fact for frame in overlapping for fact in decode_batch(frame, view).facts]

    def found(self, lost):
        """Return the records that another node gives for lost records."""
        part = self.hosted.node.needed(lost)
        if part is None:
            return None
        wanted = [*range(*part)]
        if not wanted:
            return []
        told = [
            record
            for fact in self.facts
            if isinstance(fact, RECORD_FACTS)
            and (fact.configuration if isinstance(fact, RecordsTaken) else PIECES) == lost.source
            for record in fact.records
        ]
        for begin in reversed(range(len(told))):
            run, at = [], part[0]
            for record in told[begin:]:
                if not record.first <= at < record.end or (run and record.first != at):
                    break
                run.append(record)
                at = record.end
                if at == part[1] and (lost.source == PIECES or run[0].first >= lost.first):
                    return run
        assert lost.source == PIECES, f"no node has {lost}"
        return None

    def begun_repair(self, place):
        return self.journal.repair(place, place in self.hosted.standings)

    def repair(self, place):
        """Repair a place; return the lost records, or None if they are not final."""
        repair = self.begun_repair(place)
        lost = repair.look(unpaced)
        found = [self.found(each) for each in lost]
        if None in found:
            return None
        for filled in repair.fill(found):
            self.hosted.shelf.rewrite(filled)
        repair.write(unpaced)
        self.journal.renew(place)
        assert self.journal.examination(place).run(unpaced).whole
        return lost


def harm(log, place, kind):
    """Damage a place; return the facts that are lost."""
    rng, frames = log.rng, log.frames(place)
    start, end = frames[0].start, frames[-1].end
    at = rng.randrange(len(frames))
    frame = frames[at]
    first, upto = {
        "block": (max(start, frame.start // 512 * 512), min(end, frame.start // 512 * 512 + 512)),
        "body": (frame.start + 40, frame.start + 41),
        "prefix": (frame.start + rng.randrange(40), frame.start + 40),
        "two batches": (frame.start + 41, frames[min(at + 1, len(frames) - 1)].start + 42),
        "all batches": (start, end),
        "all": (0, end),
        "head": (9, 20),
    }[kind]
    lost = log.facts_in(place, first, upto)
    log.overwrite(place, first, bytes([log.content(place)[first] ^ 1]) + bytes(upto - first - 1))
    return lost


KINDS = ("block", "body", "prefix", "two batches", "all batches", "all", "head")


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_repaired_place_is_as_before_and_other_places_stay_as_they_are(chunk):
    outcomes = Counter()
    for seed in range(chunk * SEEDS, (chunk + 1) * SEEDS):
        log = RottenLog(seed)
        for _ in range(STEPS):
            log.anything()
        log.restart()
        for kind in KINDS:
            places = [place for place in sorted(log.journal.places()) if log.frames(place)]
            if places:
                place = log.rng.choice(places)
                outcome, lost_facts = harmed_and_repaired(log, place, kind)
                outcomes.update((each, outcome) for each in {kind, *map(type, lost_facts)})
    assert all(outcomes[kind, "repaired"] for kind in (*KINDS, *RECORD_FACTS, LogTrimmed))
    assert outcomes[ChainPointed, "left"]


def harmed_and_repaired(log, place, kind):
    """Damage a place, and repair the place; return the outcome, and the damaged facts."""
    before, whole = seen(log.state), log.content(place)
    lost_facts = harm(log, place, kind)
    rotten = log.content(place)
    outcome, reason = "repaired", ""
    try:
        outcome = "not final" if log.repair(place) is None else "repaired"
    except NotRepaired as error:
        outcome, reason = "left", str(error)
    if outcome == "left" and all(isinstance(fact, RESTORED_FACTS) for fact in lost_facts):
        assert any(map(reason.count, EXCUSES)), f"{lost_facts} are always repaired: {reason}"
    if outcome != "repaired":
        assert log.content(place) == rotten, "nothing is written"
        log.overwrite(place, 0, whole)
        return outcome, lost_facts
    assert len(log.content(place)) == len(whole)
    assert seen(log.state) == before
    log.start()
    assert seen(log.state) == before
    repaired = log.begun_repair(place)
    assert repaired is None or repaired.look(unpaced) is None
    return outcome, lost_facts


def of(count, seed=1, make=RottenLog):
    """Make a log of ``count`` committed records of an entry, each in a separate batch."""
    log = make(seed)
    log.put(ChainsKnown((chain(),)))
    for number in range(count):
        entries = (100 * (b"%d" % (number % 10)),)
        record = LogRecord(number, ClientId(1), number + 1, number + 1, entries)
        log.put(RecordsTaken(log.live.configuration.id, (record,)))
    log.restart()
    return log


def damage_batch(log, place, *numbers):
    frames = log.frames(place)
    for number in numbers:
        log.overwrite(place, frames[number].start + 30, b"\xff" * 8)


def lost_by(log, place, number):
    damage_batch(log, place, number)
    return log.begun_repair(place).look(unpaced)


def test_a_place_is_repaired_as_often_as_it_is_damaged():
    log = of(200)
    before = seen(log.state)
    for number in (1, 1, 0, 2):
        damage_batch(log, 3, number)
        log.repair(3)
        assert seen(log.state) == before
    log.start()
    assert seen(log.state) == before
    damage_batch(log, 3, 1)
    with pytest.raises(StoreDamaged):
        log.start()


def test_a_standing_that_was_lost_commits_nothing():
    """A start would show records that may still be cut."""
    log = of(200)
    LogOnDisk.start(log)
    committed = log.live.committed
    log.live.settled(log.live.length)
    damage_batch(log, 3, 0)
    log.repair(3)
    LogOnDisk.start(log)
    assert log.live.committed == committed < log.live.length


def test_records_that_may_still_be_cut_are_left():
    log = of(200)
    damage_batch(log, 3, 2)
    log.live.committed = 5
    assert log.repair(3) is None
    log.live.committed = log.live.length
    assert log.repair(3)


def test_the_place_that_is_written_to_is_left():
    log = of(200)
    [place] = log.journal.durable().keys() - log.journal.places().keys()
    damage_batch(log, place, 0)
    with pytest.raises(NotRepaired, match="no place behind it"):
        log.repair(place)


def test_trimmed_records_are_replaced_by_empty_entries():
    """Every node dropped the records, and the place is kept for later records."""
    log = of(200)
    whole = log.content(3)
    [lost] = lost_by(log, 3, 2)
    log.overwrite(3, 0, whole)
    assert log.found(lost)
    log.put(LogTrimmed(lost.upto))
    assert log.found(lost), "the trim is not durable yet"
    log.hosted.node._trimmed_durably = lost.upto
    assert log.found(lost) == []
    assert 3 in log.journal.places()
    before = seen(log.state)
    assert lost_by(log, 3, 2) == [lost]
    log.repair(3)
    log.start()
    assert seen(log.state) == before
    assert log.live.rows.get(ClientId(0)) is None


def test_a_lost_trim_is_known_from_the_next_standing():
    log = of(30)
    for upto in (1, 2, 3):
        log.put(LogTrimmed(upto))
    trims = [place_of(log, fact) for fact in log.facts[-3:]]
    assert len({place for place, _ in trims}) == 1
    fill(log)
    before = seen(log.state)
    damage_batch(log, *trims[-1])
    log.repair(trims[-1][0])
    log.start()
    assert seen(log.state) == before


def place_of(log, fact):
    """Return place and number of the batch with a fact."""
    for place in sorted(log.journal.durable()):
        for number, frame in enumerate(log.frames(place)):
            if fact in decode_batch(frame, memoryview(log.content(place))).facts:
                return place, number
    raise AssertionError(fact)


def fill(log):
    """Append records until further places have begun, and restart."""
    for _ in range(60):
        log.put(RecordsTaken(log.live.configuration.id, log.row(log.live.length, 1)))
    log.restart()


def moved_log():
    """Make a log whose first chain is sealed, and followed by another, in a full place.

    Return the batches of both facts, too.
    """
    log = of(30)
    segment = log.live
    following = chain(1, segment.length)
    facts = [
        ChainSealed(segment.configuration.id),
        ChainPointed(segment.configuration.id, Successor(following, Status.PENDING), False),
    ]
    for fact in (*facts, ChainsKnown((following,))):
        log.put(fact)
    places = [place_of(log, fact) for fact in facts]
    fill(log)
    return log, places


@pytest.mark.parametrize("fact", [0, 1], ids=["seal", "successor"])
def test_a_place_that_lost_other_facts_than_records_is_left(fact):
    log, places = moved_log()
    damage_batch(log, *places[fact])
    with pytest.raises(NotRepaired, match="more than records"):
        log.repair(places[fact][0])


def sealed_log():
    """Make a log whose chain is sealed in a full place; return the batch with the seal, too."""
    log = RottenLog(1)
    log.put(ChainsKnown((chain(0, 0, ("s1", "s2", "s3")), chain(1, 300))))
    id = log.live.configuration.id
    log.put(RecordsTaken(id, log.row(300, 2)))
    log.put(ChainSealed(id))
    where = place_of(log, log.facts[-1])
    for at in range(60):
        log.put(PieceFetched((LogRecord(at, ClientId(1), at + 1, at + 1, (100 * b"x",)),)))
    log.restart()
    return log, where


def test_a_lost_seal_is_noticed():
    log, (place, number) = sealed_log()
    damage_batch(log, place, number)
    with pytest.raises(NotRepaired, match="more than records"):
        log.repair(place)


def test_control_standings_that_are_not_compared(monkeypatch):
    """A start forgets the seal: the node takes appends again."""
    log, (place, number) = sealed_log()
    damage_batch(log, place, number)
    monkeypatch.setattr(LogReplay, "_is_end", lambda replay, standing: True)
    log.repair(place)
    assert log.live is None
    log.start()
    assert log.live is not None


def test_records_that_need_more_room_are_not_written():
    log = of(200)
    [lost] = lost_by(log, 3, 2)
    rotten, [right] = log.content(3), log.found(lost)
    repair = log.begun_repair(3)
    repair.look(unpaced)
    with pytest.raises(NotRepaired, match="more room"):
        repair.fill([[sealed(right, entries=(PLACE_BYTES * b"x",))]])
    repair.fill([[right]])
    assert log.content(3) == rotten
    repair.write(unpaced)
    log.start()


def test_a_crash_during_a_repair_leaves_damage_or_a_repaired_place():
    outcomes = Counter(map(crashed, range(40)))
    assert outcomes["damaged"]
    assert outcomes["repaired"]


def crashed(seed):
    """Lose the power during a repair, and start; return the outcome."""
    log = of(60, seed)
    before, place = seen(log.state), 2
    for frame in log.rng.sample(log.frames(place)[:-1], 3):
        log.overwrite(place, frame.start + 20, b"\xff" * 30)
    log.disk.patience = log.rng.randint(0, 16)
    with contextlib.suppress(PowerLost):
        log.repair(place)
    log.disk.lose_power()
    try:
        log.start()
    except StoreDamaged:
        return "damaged"
    assert seen(log.state) == before
    return "repaired"


def test_a_place_that_is_gone_is_not_repaired():
    log = of(60)
    assert log.begun_repair(99) is None
    repair = log.begun_repair(2)
    log.disk.unlink(Path("00000002.log"))
    with pytest.raises(FileNotFoundError):
        repair.look(unpaced)


def test_more_old_records_than_a_fact_has_are_several_facts(monkeypatch):
    monkeypatch.setattr(log_repair, "RECORDS_MAX", 2)
    log = RottenLog(1)
    log.put(ChainsKnown((chain(0, 0), chain(1, 60))))
    for first in range(0, 60, 2):
        records = [LogRecord(at, ClientId(1), at + 1, at + 1, (b"x",)) for at in (first, first + 1)]
        log.put(PieceFetched(tuple(records)))
    fill(log)
    before = seen(log.state)
    log.overwrite(1, log.frames(1)[2].start, b"\xff" * 700)
    log.repair(1)
    assert seen(log.state) == before
    log.start()
    assert seen(log.state) == before


# -- facts that a second fact of their kind would hide --------------------------------------------


def collected_twice():
    """Make a log whose first chain is collected twice in a place, and fetched anew in between.

    Return the facts: the first collection, pieces below the old part, and the second collection.
    """
    log, first = RottenLog(1, 16 * 1024), chain(0)
    log.put(ChainsKnown((first,)))
    log.put(RecordsTaken(first.id, log.row(0, 5)))
    length = log.live.length
    second, third = chain(1, length, ("s1", "s2", "s3")), chain(2, length + 9)
    log.put(ChainPointed(first.id, Successor(second, Status.PENDING), False))
    log.put(ChainsKnown((second,)))
    place = log.hosted.place
    while log.hosted.place == place:
        log.put(ChainsKnown(()))
    last = LogRecord(length, ClientId(8), 1, 1, (b"z",) * 9)
    facts = [
        ChainPointed(first.id, Successor(second, Status.FINALIZED), True),
        ChainsKnown((third,)),
        PieceFetched(log.facts[1].records),
        PieceFetched((last,)),
        ChainPointed(first.id, Successor(third, Status.FINALIZED), True),
    ]
    for fact in facts:
        log.put(fact)
    batches = [place_of(log, log.facts[at]) for at in range(-len(facts), 0)]
    assert len({place for place, _ in batches}) == 1
    fill(log)
    return log, batches


LOST_COLLECTIONS = {"the collection": (0,), "the collection and the pieces": (0, 2)}


@pytest.mark.parametrize("lost", LOST_COLLECTIONS.values(), ids=LOST_COLLECTIONS)
def test_a_lost_collection_is_noticed(lost):
    """The next standing tells the same: the old part was fetched anew, and reached as far."""
    log, batches = collected_twice()
    place, numbers = batches[0][0], [number for _, number in batches]
    damage_batch(log, place, *[numbers[at] for at in lost])
    with pytest.raises(NotRepaired, match="an earlier collection"):
        log.repair(place)


@pytest.mark.parametrize("lost", LOST_COLLECTIONS.values(), ids=LOST_COLLECTIONS)
def test_control_a_second_collection_that_is_believed(lost, monkeypatch):
    """A start takes the old part for complete, without its records and rows of clients."""
    log, batches = collected_twice()
    rows = set(log.state.base_rows._rows)
    place, numbers = batches[0][0], [number for _, number in batches]
    damage_batch(log, place, *[numbers[at] for at in lost])
    monkeypatch.setattr(LogReplay, "_look_for_collections", lambda replay, fact: None)
    log.repair(place)
    log.start()
    assert log.state.base_upto >= log.live.start
    assert set(log.state.base_rows._rows) < rows


def test_a_collection_for_the_next_chain_is_the_first():
    """The lost batch tells nothing of the collected chain, nor does a batch behind the gap."""
    log = of(20, make=lambda seed: RottenLog(seed, 16 * 1024))
    segment = log.live
    following = chain(1, segment.length)
    log.put(ChainPointed(segment.configuration.id, Successor(following, Status.PENDING), False))
    log.put(ChainsKnown((following,)))
    begun = log.hosted.place
    while log.hosted.place == begun:
        log.put(ChainsKnown(()))
    log.put(ChainsKnown(()))
    log.put(ChainPointed(segment.configuration.id, Successor(following, Status.FINALIZED), True))
    place, number = place_of(log, log.facts[-1])
    assert place > begun
    fill(log)
    before = seen(log.state)
    damage_batch(log, place, number - 1)
    log.repair(place)
    log.start()
    assert seen(log.state) == before


def test_a_first_collection_behind_a_gap_is_believed():
    log = of(20, make=lambda seed: RottenLog(seed, 16 * 1024))
    segment = log.live
    following = chain(1, segment.length)
    for status, is_collected in (
        (Status.PENDING, False),
        (Status.FINALIZED, False),
        (Status.FINALIZED, True),
    ):
        log.put(ChainPointed(segment.configuration.id, Successor(following, status), is_collected))
        if status is Status.PENDING:
            log.put(ChainsKnown((following,)))
    place, _ = place_of(log, log.facts[-1])
    fill(log)
    before = seen(log.state)
    numbers = [at for at in range(len(log.frames(place))) if is_of_records(log, place, at)]
    damage_batch(log, place, numbers[0])
    log.repair(place)
    log.start()
    assert seen(log.state) == before


def is_of_records(log, place, number):
    frame = log.frames(place)[number]
    facts = decode_batch(frame, memoryview(log.content(place))).facts
    return all(isinstance(fact, RecordsTaken) for fact in facts)


# -- several gaps ----------------------------------------------------------------------------------


def mixed_log():
    """Make a log with records of a chain and old records, by turns.

    Return the first batch of place 2 with records of the chain, too.
    """
    log, later = RottenLog(1), chain(1, 300)
    log.put(ChainsKnown((chain(0, 0, ("s1", "s2", "s3")), later)))
    for at in range(60):
        log.put(RecordsTaken(later.id, (small_record(300 + at),)))
        log.put(PieceFetched((small_record(at),)))
    log.restart()
    return log, 1 if is_of_records(log, 2, 1) else 2


def small_record(at):
    return LogRecord(at, ClientId(1), at + 1, at + 1, (50 * b"x",))


def test_two_gaps_with_records_in_between_are_filled():
    log, number = mixed_log()
    before = seen(log.state)
    damage_batch(log, 2, number, number + 4)
    assert len(log.repair(2)) == 2
    assert seen(log.state) == before
    log.start()
    assert seen(log.state) == before


def test_two_gaps_without_records_in_between_are_left():
    """Their records are known, and the gap of each is not."""
    log, number = mixed_log()
    damage_batch(log, 2, number, number + 2)
    with pytest.raises(NotRepaired, match="which gap lost which"):
        log.repair(2)


def test_a_damaged_place_beside_the_place_is_left():
    log = of(200)
    damage_batch(log, 3, 0)
    damage_batch(log, 2, 1)
    for place in (2, 3):
        with pytest.raises(NotRepaired, match="beside it is damaged"):
            log.repair(place)


# -- the writes ------------------------------------------------------------------------------------


def test_gaps_are_filled_and_further_bytes_are_copied():
    """The bytes of other batches stay where they are."""
    log = of(200)
    start, middle = log.frames(3)[0].start, log.frames(3)[1].start
    for first, length in ((0, start + 9), (0, 9), (middle, 90)):
        whole = log.content(3)
        log.overwrite(3, first, b"\xff" * length)
        log.repair(3)
        gap = range(first, log.frames(3)[1 + (first > 0)].start)
        assert {at for at in range(len(whole)) if log.content(3)[at] != whole[at]} <= {*gap}
        assert len(log.content(3)) == len(whole)


def test_a_file_whose_last_block_cannot_be_read_is_repaired(monkeypatch):
    """A disk refuses to write a part of such a block, where the file ends."""
    log = of(200)
    read, end = log.disk.read_into, len(log.content(3))
    bad, old = end // DISK_BLOCK_BYTES * DISK_BLOCK_BYTES, log.disk._names["00000003.log"]

    def failing(descriptor, buffer, offset):
        if log.disk._open[descriptor] is old and offset + len(buffer) > bad:
            raise OSError(errno.EIO, "Input/output error")
        return read(descriptor, buffer, offset)

    monkeypatch.setattr(log.disk, "read_into", failing)
    before = seen(log.state)
    assert log.repair(3)
    assert seen(log.state) == before


def test_a_search_that_gave_up_repairs_nothing(monkeypatch):
    """Behind the point where the search ends there may be intact batches."""
    log = of(200)
    damage_batch(log, 3, 1)
    rotten = log.content(3)
    monkeypatch.setattr(examine, "LOOKED_AT_SHARE", 1)
    with pytest.raises(NotRepaired, match="look like batches"):
        log.repair(3)
    assert log.content(3) == rotten


def test_a_piece_that_begins_below_a_trim_is_repaired():
    log = RottenLog(1)
    log.put(ChainsKnown((chain(0), chain(1, 60))))
    log.put(PieceFetched((small_record(0),)))
    log.put(LogTrimmed(3))
    log.put(PieceFetched((LogRecord(1, ClientId(1), 2, 2, (50 * b"x",) * 4),)))
    for at in range(5, 60):
        log.put(PieceFetched((small_record(at),)))
    log.restart()
    before = seen(log.state)
    damage_batch(log, *place_of(log, log.facts[3]))
    assert log.repair(1)[0].first == 3
    assert seen(log.state) == before
    log.start()
    assert seen(log.state) == before


def test_a_large_gap_has_several_batches_and_a_read_begins_at_its_own(monkeypatch):
    monkeypatch.setattr(log_repair, "FILLED_BATCH_BYTES", 300)
    log = of(200)
    source, frames = log.live.configuration.id, log.frames(3)
    before = seen(log.state)
    log.overwrite(3, frames[0].start, b"\xff" * (frames[-1].end - frames[0].start))
    [lost] = log.repair(3)
    assert seen(log.state) == before
    marks = [log.hosted.shelf._mark(source, at).offset for at in range(lost.first, lost.upto)]
    filled = log.frames(3)
    assert len(filled) == len(frames)
    assert len(set(marks)) > 2
    assert set(marks) <= {frame.start for frame in filled}
    log.start()
    assert seen(log.state) == before


def test_a_replay_keeps_ranges_of_positions():
    """A place of 8 MiB has room for four million empty entries."""
    state, entries, count = LogState(ME, ME), BATCH_ENTRIES_MAX * (b"",), 256
    state.apply(ChainsKnown((chain(),)))
    source = chain().id
    decode = msgspec.msgpack.Decoder(EncodedFact).decode
    known = decode(msgspec.msgpack.encode(ChainsKnown((chain(),))))
    [segment] = state.standing().segments
    ended = replace(segment, length=(count + 1) * len(entries))
    replay = LogReplay(OWNER, None, replace(state.standing(), segments=(ended,)))
    replay.tell([known])
    tracemalloc.start()
    try:
        for number in range(count):
            record = LogRecord(number * len(entries), ClientId(1), number + 1, 1, entries)
            replay.tell([decode(msgspec.msgpack.encode(RecordsTaken(source, (record,))))])
        replay.pass_gap(Gap(0, 8 << 20, 1, 1, []), stands=False)
        replay.finish()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1 << 20
    [lost] = [each for gap in replay._gaps for each in gap.lost]
    assert lost[:3] == (source, count * len(entries), ended.length)
