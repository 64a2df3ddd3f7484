"""A server's log over the real journal on the model disk, with random facts.

The module also computes the expected state.
"""

import contextlib
import random
from pathlib import Path

from ares.model.configuration import Status, Successor
from ares.model.identity import ClientId
from ares.model.log_messages import LogRecord, ReadLog
from ares.server.commit_loop import FullDisk
from ares.server.hosted_log import HostedLog
from ares.sharedlog.log_facts import (
    ChainPointed,
    ChainSealed,
    ChainsKnown,
    LogTrimmed,
    PieceFetched,
    RecordsTaken,
)
from ares.sharedlog.log_state import LogState
from ares.sharedlog.node import LogNode
from ares.store.journal.segment_journal import SegmentJournal, reserves_of_log
from ares.store.journal.segments import Owner
from ares.testing.sim.model_disk import ModelDisk, PowerLost

from .chains import call, chain

ME = "s0"
PLACE_BYTES = 4096
OWNER = Owner(b"cluster", ME, ME)
MEMBERS = (("s0", "s1", "s2"), ("s1", "s0"), ("s2", "s1", "s0"), ("s1", "s2", "s3"))


class InTime:
    """The :class:`ares.store.journal.writer.Background` with jobs done by the test."""

    def __init__(self):
        self.jobs = []

    def submit(self, job, done, short):
        self.jobs.append((job, done))

    def step(self):
        job, done = self.jobs.pop(0)
        job()
        done(None)

    def close(self):
        self.jobs.clear()


class AtOnce:
    """An event loop that calls at once, without a clock."""

    def call_soon(self, callback):
        callback()

    def time(self):
        return 0.0


class LogOnDisk:
    """A log on a disk, and its surroundings.

    ``facts`` has all facts of the node; the first ``durable`` are on the disk for certain.
    ``discarded`` counts released places.
    """

    def __init__(self, seed, place_bytes=PLACE_BYTES):
        self.rng = random.Random(seed)
        self.disk = ModelDisk(self.rng)
        self.facts = []
        self.durable = self.discarded = self.standings = 0
        self.numbers, self.lowest = {}, {}
        self.place_bytes = place_bytes
        self.loop = AtOnce()
        self.full_disk = FullDisk(self.loop.time, "logs")
        self.start()

    def fail(self, error):
        raise error

    def know(self, hosted): ...

    def send(self, messages): ...

    def start(self):
        self.background = InTime()
        self.journal = SegmentJournal(
            Path("log"),
            OWNER,
            self.background,
            self.disk,
            self.place_bytes,
            reserves_of_log(self.place_bytes),
        )
        self.hosted = HostedLog(
            self, lambda make: LogNode(ME, ME, make), lambda: self.journal, self.place_bytes
        )
        self.hosted.begin()
        self.hosted.node.stored = self.stored
        discard = self.journal.discard

        def counted(place):
            self.discarded += 1
            discard(place)

        self.journal.discard = counted

    @property
    def state(self):
        return self.hosted.node.state

    def record_fact(self, fact):
        self.hosted.node._record(fact)
        self.facts.append(fact)
        before = len(self.hosted.standings)
        self.hosted.gather()
        self.standings += len(self.hosted.standings) > before
        self.commit()

    def commit(self):
        self.hosted.commits.turn()

    def stored(self, count, now):
        """Learn that the first `count` facts of the node are durable."""
        self.durable = max(self.durable, len(self.facts) - (self.hosted.node.fact_count - count))

    def sync(self):
        while self.background.jobs:
            self.background.step()

    def crash(self):
        """Crash in the middle of work on the disk, and start again.

        Find out which facts are left, and check them.
        """
        for job, _ in self.background.jobs[:1]:
            self.disk.patience = self.rng.randint(0, 12)
            with contextlib.suppress(PowerLost):
                job()
        self.disk.lose_power()
        self.start()
        found = seen(self.state)
        left = [
            count
            for count in range(self.durable, len(self.facts) + 1)
            if seen(plain(self.facts[:count])) == found
        ]
        assert left, "it is no state that the log went through since what is durable"
        del self.facts[left[-1] :]
        self.durable = len(self.facts)

    def check(self):
        assert seen(self.state) == seen(plain(self.facts))

    # -- random events -----------------------------------------------------------------------------

    def anything(self):
        rng = self.rng
        action = rng.choice(
            [self.take] * 8
            + [self.fetch] * 4
            + [self.settle] * 4
            + [self.trim] * 3
            + [self.move, self.seal, self.collect]
        )
        if self.live is None and rng.random() < 0.3:
            action = self.move
        action()
        if rng.random() < 0.5 and self.background.jobs:
            self.background.step()

    def record(self, first):
        rng = self.rng
        client = ClientId(rng.randint(1, 4))
        number = self.numbers[client] = self.numbers.get(client, 0) + 1
        lowest = self.lowest[client] = max(self.lowest.get(client, 1), number - rng.randint(0, 3))
        entries = tuple(
            rng.randbytes(rng.choice([5, 100, 600])) for _ in range(rng.choice([1, 1, 2, 3]))
        )
        return LogRecord(first, client, number, lowest, entries)

    def row(self, first, count):
        records = []
        for _ in range(count):
            records.append(self.record(first))
            first = records[-1].end
        return tuple(records)

    @property
    def live(self):
        return next((segment for segment in self.state.segments.values() if segment.live), None)

    def take(self):
        if self.live is not None:
            self.record_fact(
                RecordsTaken(
                    self.live.configuration.id,
                    self.row(self.live.length, self.rng.choice([1, 1, 3])),
                    self.live.committed,
                )
            )

    def fetch(self):
        starts = [
            each.start for each in self.state.chains.values() if each.start > self.state.base_upto
        ]
        if starts and any(
            segment.start > self.state.base_upto for segment in self.state.segments.values()
        ):
            first, records = self.state.base_upto, []
            for record in self.row(first, 3):
                entries = record.entries[: min(starts) - first]
                if entries:
                    records.append(
                        LogRecord(first, record.client, record.number, record.lowest, entries)
                    )
                    first = records[-1].end
            self.record_fact(PieceFetched(tuple(records)))

    def settle(self):
        """Commit more entries."""
        if self.live is not None:
            ends = [
                record.end
                for record in self.live.entries.records(self.live.committed, self.live.length)
            ]
            self.live.settled(self.rng.choice([self.live.committed, *ends]))

    def trim(self):
        upto = self.live.committed if self.live is not None else self.state.base_upto
        if upto > self.state.trimmed:
            self.record_fact(LogTrimmed(self.rng.randint(self.state.trimmed + 1, upto)))

    def seal(self):
        if self.live is not None and self.rng.random() < 0.3:
            self.record_fact(ChainSealed(self.live.configuration.id))

    def move(self):
        """Point to the next chain, which starts at a possible end of the last.

        This server may lack entries below the end, or hold more.
        """
        last = max(self.state.chains, default=None)
        if last is None:
            self.record_fact(ChainsKnown((chain(0, 0, MEMBERS[0]),)))
            return
        chains, rng = self.state.chains, self.rng
        segment = self.state.segments.get(chains[last].id)
        end = chains[last].start + rng.choice([0, 2, 7])
        if segment is not None:
            ends = [
                record.end for record in segment.entries.records(segment.committed, segment.length)
            ]
            end = rng.choice([segment.committed, segment.length, segment.length + 4, *ends])
        following = chain(last + 1, end, rng.choice(MEMBERS))
        if segment is not None:
            self.record_fact(
                ChainPointed(segment.configuration.id, Successor(following, Status.PENDING), False)
            )
        self.record_fact(ChainsKnown((following,)))

    def collect(self):
        """Collect all chains before the last, if this server can.

        This server must have their entries, or be no member of the last chain.
        """
        last = max(self.state.chains, default=0)
        if not last or (self.live is not None and self.state.base_upto < self.live.start):
            return
        successor = Successor(self.state.chains[last], Status.FINALIZED)
        for segment in list(self.state.segments.values()):
            if segment.configuration.index < last and not segment.collected:
                self.record_fact(ChainPointed(segment.configuration.id, successor, True))


def plain(facts):
    """Return the state after the facts, in memory."""
    state = LogState(ME, ME)
    for fact in facts:
        state.apply(fact)
    return state


def seen(state):
    """Return all state that answers depend on.

    Of rows, only untrimmed and recently answered entries count: a state may know more, and answers
    the same.
    """
    told, durable = {}, {id: segment.durable for id, segment in state.segments.items()}
    for segment in state.segments.values():
        segment.durable = segment.length  # the state of the facts alone does not know the disk
    for id, segment in state.segments.items():
        records = held(segment.entries, state)
        told[id] = (
            segment.sealed,
            segment.successor,
            segment.end,
            segment.collected,
            segment.merged,
            segment.length,
            records,
        )
        told[id, "rows"] = rows_seen(segment.rows, records, state.trimmed)
        for first in range(state.trimmed, segment.length + 2, 3):
            answer = state.answer(segment, ReadLog(call(), id, first, 5, 1500, uncommitted=True))
            told[id, first] = (
                answer.first,
                answer.entries,
                answer.trimmed,
                answer.elsewhere,
                answer.successor,
            )
    for id, segment in state.segments.items():
        segment.durable = durable[id]
    old = held(state.base, state)
    return (
        told,
        state.chains,
        state.trimmed,
        state.base_upto,
        old,
        rows_seen(state.base_rows, old, state.trimmed),
    )


def held(entries, state):
    return list(entries.records(state.trimmed, 1 << 40))


def rows_seen(rows, records, trimmed):
    lowest = {record.client: record.lowest for record in records}
    return {
        client: (
            row.last,
            {
                number: place
                for number, place in row.places.items()
                if number >= lowest.get(client, 0) and place[1] > trimmed
            },
        )
        for client, row in rows._rows.items()
    }
