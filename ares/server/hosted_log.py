"""A log of a storage server: its node and its journal (docs/log.md, On a disk).

Without a journal all entries are in memory. With a journal for each log, trimming gives back whole
places, the oldest first. Before a place is full the next is begun, with all known state except the
records: a log can be restored from any such place on.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, cast

import msgspec

from ares.model.errors import AresError
from ares.model.log_messages import (
    Append,
    Fetch,
    Fetched,
    Forward,
    GivenBack,
    LogRecord,
    LookRow,
    NeighbourMessage,
    Seal,
    Trim,
)
from ares.model.messages import AnyMessage, CollectConfig, Finalize, Introduce, WriteConfig
from ares.net.port import Loop
from ares.platform import tasks
from ares.platform.json_logs import is_worth_a_line
from ares.server.commit_loop import DISK_FULL_REFUSAL, CommitDone, CommitLoop, FullDisk
from ares.sharedlog.chain_segment import OUTBOX_BYTES_MAX, Sender
from ares.sharedlog.entries import Entries, MemoryEntries
from ares.sharedlog.log_facts import (
    BatchPlace,
    LogFact,
    LogSnapshot,
    LogTrimmed,
    PieceFetched,
    RecordsTaken,
)
from ares.sharedlog.log_state import LogState
from ares.sharedlog.node import LogNode
from ares.sharedlog.stored_entries import RecordIndex, StoredEntries
from ares.store.port import PLACE_NUMBER_BYTES, OrderedJournal, Use

LOG_PLACE_BYTES = 8 * 1024 * 1024
"""Size of a place in a log's journal."""

LOG_FULL_SHARE = 0.75
"""Share of LOG_PLACE_BYTES from which the next place is begun."""

TRIMMED_FULL_SHARE = 1 / 16
"""The same share after a trim on a full disk: only closed places are given back."""

SEAL_AGAIN_SHARE = 1 / 512
"""Share of LOG_PLACE_BYTES after which a place without a successor tries again to have one."""

DISCARDED_MAX = 32
"""Places given back by a batch, unless more are needed to reach a standing.

The batch names them where hardly any room may be left.
"""

FACT_BYTES = 256
"""Most bytes of a fact in a journal, without records."""

POINTER_FACTS_MAX = 4
"""Most facts of a seal or a pointer: the pointer, its chain, and pointers known by the chain."""

PENDING_BYTES_MAX = 1024 * 1024
"""Bytes given to a node before its facts are gathered."""

_RECORD_BYTES, _ENTRY_BYTES = 64, 5
_encode = msgspec.msgpack.Encoder().encode

log = logging.getLogger(__name__)


class LogSurroundings(Protocol):
    """A hosted log's requirements of the server.

    ``fail``: called when the disk failed.
    """

    loop: Loop
    fail: Callable[[OSError], None]
    full_disk: FullDisk

    def know(self, hosted: "HostedLog") -> None:
        """Learn the new chains of a log."""

    def send(self, messages: Sequence[tuple[Sender, AnyMessage]]) -> None:
        """Send the messages to clients and servers."""


class HostedLog:
    """A log: a node and, unless all data are in memory, a journal with its commits.

    ``place``: the place to which facts are appended, with ``place_bytes`` at present. ``known``:
    the number of chains known to the server. ``standings``: the places that begin with a standing.
    ``stands``: the last place does. ``appended``: the next commit has facts. ``outbox``: messages
    that may leave. ``pending``: bytes given to the node since the last gathering. ``unreadable``:
    reads that met records which cannot be read. Of the commit under way, ``_facts``: the number of
    the node's facts that are durable at its end; ``_needed``: the first place needed by then.
    """

    def __init__(
        self,
        surroundings: LogSurroundings,
        make_node: Callable[[Callable[[bytes], Entries]], LogNode],
        journal: Callable[[], OrderedJournal] | None,
        size: int = LOG_PLACE_BYTES,
    ) -> None:
        self._surroundings = surroundings
        self._loop = surroundings.loop
        self.commits = CommitLoop(self, self._loop, surroundings.fail, "commit of a log")
        self.journal: OrderedJournal | None = None
        self.shelf = RecordIndex(self)
        self.node = make_node(
            MemoryEntries if journal is None else partial(StoredEntries, self.shelf)
        )
        self.place = self.place_bytes = self.known = self.pending = self.unreadable = 0
        self.standings: list[int] = []
        self.stands = True
        self.appended = False
        self._facts = self._needed = 0
        self._seal_from = 0.0
        self.outbox: list[tuple[Sender, AnyMessage]] = []
        self._open = journal
        self._size = size

    def scan(self, mark: BatchPlace, encoded: bool) -> Iterator[Sequence[object]]:
        """Yield batches; see :class:`ares.sharedlog.stored_entries.JournalReader`."""
        return iter(()) if self.journal is None else self.journal.scan(mark, encoded)

    def begin(self) -> None:
        """Open the journal and restore the node. Raises the errors of a journal's recovery."""
        if self._open is None or self.journal is not None:
            return
        self.journal = self._open()
        self.node.restore(self._recovered(self.journal))
        self._settle(max(self.journal.places(), default=0))
        self._give_back(self.journal, self._first_needed())
        self.place_bytes = self.journal.durable().get(self.place, 0)

    def _recovered(self, journal: OrderedJournal) -> Iterator[LogFact]:
        for place, facts in journal.recover():
            before, begins, self.place = self.place, place != self.place, place
            for fact in facts:
                if isinstance(fact, LogSnapshot):
                    self.standings.append(place)
                    self._stand(fact)
                else:
                    self.shelf.note(fact, place)
                    yield fact
            self.shelf.batch(journal.mark)
            if begins:
                self._settle(before)
                self.stands = not before or place in self.standings

    def _stand(self, standing: LogSnapshot) -> None:
        """Begin with a standing, or pass by it if earlier facts were told."""
        state = self.node.state
        if state.chains:
            state.pass_by(standing)
        else:
            state.begin(standing)

    def _kept(self) -> Iterator[StoredEntries]:
        return (
            entries
            for entries in self.node.state.all_entries()
            if isinstance(entries, StoredEntries)
        )

    def _settle(self, place: int) -> None:
        """Drop from memory the records in places up to ``place``."""
        self.shelf.settle(place)
        for entries in self._kept():
            entries.settle()

    def _first_needed(self, upto: int = 0) -> int:
        """Return the first place needed by a start, once all appended facts are durable.

        From this place on a start finds all remaining facts. ``upto``: as if trimmed up to there.
        """
        needed = min(
            [
                self.place,
                *(
                    place
                    for entries in self._kept()
                    if (place := entries.place_needed(upto)) is not None
                ),
            ]
        )
        return max((place for place in self.standings if place <= needed), default=0)

    def _give_back(self, journal: OrderedJournal, begin: int) -> None:
        """Give back the places before ``begin``, some at a time, named in a batch.

        A start needs a standing in the first place that is left, hence all places up to a standing
        go together. Raises OSError.
        """
        gone = sorted(place for place in journal.places() if place < begin)
        if len(gone) > DISCARDED_MAX:
            ends = [place for place in (*self.standings, begin) if gone[0] < place <= begin]
            near = [place for place in ends if place <= gone[DISCARDED_MAX]]
            upto = max(near) if near else min(ends)
            gone = [place for place in gone if place < upto]
        names_bytes = PLACE_NUMBER_BYTES * len(gone)
        if gone and self._reserve(journal, FACT_BYTES + names_bytes, Use.COMPACTION):
            for place in gone:
                journal.discard(place)
            self.appended = True
            self.standings = [place for place in self.standings if place > gone[-1]]
            self.shelf.forget_below(gone[-1] + 1)

    def has_room(self, bytes: int, use: Use = Use.DATA) -> bool:
        return self.journal is None or self._reserve(
            self.journal, bytes + self.pending + FACT_BYTES, use
        )

    def fitting(self, message: Any) -> Any:
        """Return the part of ``message`` for which the disk has room, or None.

        Seals, pointers and trims may use the room left beyond the room for data. Seals, pointers
        and trims that free a place may use the last of it. A known pointer, introduction or trim
        needs no room.
        """
        if isinstance(message, Append | Fetched) and not self.has_room(room_for(message)):
            return None
        while isinstance(message, GivenBack) and not self.has_room(room_for(message)):
            if not message.records:  # a node with all records needs no room to be live again
                break
            some = message.records[: len(message.records) // 2]
            message = msgspec.structs.replace(message, records=some)
        if isinstance(message, Forward) and not self.has_room(room_for(message)):
            return self._without_records(message)
        if isinstance(message, Introduce) and self.node.state.knows(message):
            return message
        if isinstance(message, Trim) and not leaves_trim(self.node.state, message):
            return message
        if isinstance(message, Trim | Introduce):
            bytes = len(_encode(message)) + FACT_BYTES
            if isinstance(message, Introduce):  # each chain is a fact, and a pointer to the next
                bytes = 2 * bytes + 2 * FACT_BYTES * len(message.earlier)
            if not (
                self._has_room_to_trim(message.upto, bytes)
                if isinstance(message, Trim)
                else self.has_room(bytes, Use.POINTERS)
            ):
                return None
            self.pending += bytes
            return message
        if leaves_pointer(self.node.state, message):
            bytes = POINTER_FACTS_MAX * (FACT_BYTES + len(_encode(message)))
            if not self.has_room(bytes, Use.COMPACTION):
                return None
            self.pending += bytes
        return message

    def _has_room_to_trim(self, upto: int, bytes: int) -> bool:
        """Return whether the disk has room for a trim; one that frees a place may take the last."""
        return self.has_room(bytes, Use.POINTERS) or (
            self._first_needed(upto) > self._first_needed() and self.has_room(bytes, Use.COMPACTION)
        )

    def _without_records(self, message: Forward) -> Forward:
        """Return the news of a forward, with the trim if the disk has room for the trim."""
        trimmed = self.node.state.trimmed
        trims = message.trimmed > trimmed and self._has_room_to_trim(message.trimmed, 0)
        if not message.records and (trims or message.trimmed <= trimmed):
            return message
        return msgspec.structs.replace(
            message, records=(), trimmed=message.trimmed if trims else trimmed
        )

    def _reserve(self, journal: OrderedJournal, bytes: int, use: Use) -> bool:
        place = journal.reserve(bytes, use)
        if place is not None and place != self.place:
            self.shelf.batch(journal.mark)  # facts appended before are encoded by now
            self.stands = not self.place
            self.place, self.place_bytes, self._seal_from = place, 0, 0.0
        return place is not None

    # -- messages ----------------------------------------------------------------------------------

    def hand(self, sender: Sender, message: Any) -> None:
        """Hand a message to the node, as far as the disk has room for its facts."""
        lost = isinstance(message, Fetched) and self.node.refetch.awaits(message)
        if self.journal is not None and not lost:  # a repair takes no room
            try:
                fitting = self.fitting(message)
            except OSError as error:
                self.commits.fail(error)
                return
            full_disk = self._surroundings.full_disk
            if fitting is not message:
                refused = full_disk.refuse(message.call)
                if fitting is None:
                    if not isinstance(message, NeighbourMessage | Fetched | LookRow | Fetch):
                        self._surroundings.send([(sender, refused)])
                    return
            if isinstance(fitting, Append | Forward | GivenBack | Fetched):
                facts = 2 if isinstance(fitting, Forward) else 1  # a forward may have a trim
                self.pending += facts * FACT_BYTES + room_for(fitting)
                if full_disk.refuses and fitting is message and room_for(fitting):
                    full_disk.take()
            message = fitting
        self.do(self.node.handle, sender, message, self._loop.time())

    def do(self, action: Callable[..., None], *arguments: Any) -> None:
        """Call ``action`` of the node and handle the effects.

        The node's answers leave at the end of this turn of the event loop.
        """
        node = self.node
        try:
            waiting = node.waiting_bytes if self.journal is not None else 0
            if waiting and not self.has_room(waiting):
                node.forget_waiting()
            action(*arguments)
            if waiting or self.pending > PENDING_BYTES_MAX:
                self.gather()
        except OSError as error:
            self.commits.fail(error)
            return
        if node.state.damage is not None:
            self.unreadable += 1
            if is_worth_a_line(self.unreadable):
                log.error(
                    "records of a log cannot be read: %s (%d times so far)",
                    node.state.damage.why,
                    self.unreadable,
                    extra={"store": str(node.state.damage.path)},
                )
            node.state.damage = None
        if len(node.state.chains) != self.known:
            self._surroundings.know(self)  # at once: the next request may be about the new chain
        if node.outbox_bytes > OUTBOX_BYTES_MAX:
            self.commits.turn()
        elif node.has_output or self.outbox or self.appended:
            self.commits.schedule()

    # -- commits -----------------------------------------------------------------------------------

    def gather(self) -> None:
        """Take the node's output and append the facts.

        Called before a commit begins and when a commit ends: afterwards all known facts are in the
        journal. Raises OSError if the disk has no room for the facts, although room was reserved,
        or if the facts are lost by a mistake: the node has counted them.
        """
        self.pending = 0
        facts, messages = self.node.take()
        self.outbox += messages
        if self.journal is not None:
            try:
                if facts and not self._append(self.journal, facts):
                    raise OSError(0, DISK_FULL_REFUSAL)
            except OSError:
                raise
            except Exception as mistake:
                raise tasks.failures.fatal("facts of a log", mistake) from mistake
            return
        while facts:  # all is durable at once
            self.node.stored(self.node.fact_count, self.node.now)
            facts, messages = self.node.take()
            self.outbox += messages

    def _append(self, journal: OrderedJournal, facts: Sequence[LogFact]) -> bool:
        for fact in facts:
            if not self._put(journal, fact):
                return False
            self.shelf.note(fact, self.place)
        trimmed = self._surroundings.full_disk.refuses and any(
            isinstance(fact, LogTrimmed) for fact in facts
        )
        full = self._size * (TRIMMED_FULL_SHARE if trimmed else LOG_FULL_SHARE)
        if (self.place_bytes > full or not self.stands) and self.place_bytes >= self._seal_from:
            standing = self.node.state.standing()
            # without room for it a later place has a standing
            if journal.seal(self.place, _bytes_of(standing)):
                self.stands = self._put(journal, standing)
                if self.stands:
                    self.standings.append(self.place)
            else:
                self._seal_from = self.place_bytes + self._size * SEAL_AGAIN_SHARE
        return True

    def _put(self, journal: OrderedJournal, fact: LogFact | LogSnapshot) -> bool:
        bytes = _bytes_of(fact)
        if not self._reserve(journal, bytes, Use.COMPACTION):
            return False
        journal.append(fact, bytes)
        self.place_bytes += bytes
        self.appended = True
        return True

    def end_turn(self) -> bool:
        """Append the facts of a turn, as a batch, and send the messages that may leave."""
        self.gather()
        messages, self.outbox = self.outbox, []
        with tasks.supervised("messages of a log"):
            self._surroundings.send(messages)
        return self.appended

    def begin_commit(self, done: CommitDone) -> None:
        """Commit the appended facts."""
        journal = cast(OrderedJournal, self.journal)  # without a journal no fact is appended
        self.appended = False
        self._facts, self._needed = self.node.fact_count, self._first_needed()
        journal.commit(done)
        self.shelf.batch(journal.mark)

    def end_commit(self, moved: object) -> None:
        """Tell the node of the durable facts, and give back the places no longer needed."""
        journal = cast(OrderedJournal, self.journal)
        self.gather()
        self._settle(max(journal.places(), default=0))
        self._give_back(journal, self._needed)
        self.appended = self.appended or journal.has_discarded
        self.do(self.node.stored, self._facts, self._loop.time())

    def close(self) -> None:
        """Close the journal. A fact that is not durable was promised to no process."""
        self.commits.stop()
        if self.journal is not None:
            self.journal.close()


def _bytes_of(fact: LogFact | LogSnapshot) -> int:
    """Return about the most bytes that a fact takes in a journal."""
    if isinstance(fact, RecordsTaken | PieceFetched):
        return FACT_BYTES + _bytes_of_records(fact.records)
    return FACT_BYTES + len(_encode(fact))


def _bytes_of_records(records: Iterable[LogRecord]) -> int:
    return sum(
        _RECORD_BYTES + _ENTRY_BYTES * len(record.entries) + record.size for record in records
    )


def leaves_trim(state: LogState, message: Trim) -> bool:
    """Return whether the trim is a new fact: it is not done, nor beyond the committed position."""
    segment = state.segments.get(message.configuration)
    return (
        segment is not None and segment.live and state.trimmed < message.upto <= segment.committed
    )


def leaves_pointer(state: LogState, message: Any) -> bool:
    """Return whether the message of a client or a server leaves a seal or a pointer in the journal.

    A message with a conflict is refused and leaves none.
    """
    if not isinstance(
        message, Seal | GivenBack | Finalize | WriteConfig | CollectConfig | LookRow | Fetch
    ):
        return False
    segment = state.segments.get(message.configuration)
    if segment is None:
        return False
    if isinstance(message, Seal):
        return segment.live
    if isinstance(message, GivenBack):
        return message.sealed and segment.returning
    if isinstance(message, Finalize):
        return segment.configuration.index > state.finalized
    if message.successor is None:
        return False
    try:
        fact = state.pointed(segment, message.successor, isinstance(message, CollectConfig))
    except AresError:
        return False
    return fact is not None


def room_for(message: Append | Forward | GivenBack | Fetched) -> int:
    """Return the bytes of the facts from a message with data, without FACT_BYTES."""
    if isinstance(message, Append):
        return _RECORD_BYTES + _ENTRY_BYTES * len(message.entries) + sum(map(len, message.entries))
    return _bytes_of_records(message.records)
