"""The decision table replicated by Raft, over PySyncObj; the port is in member.py.

ares/consensus/raft/member.py puts the Consensus port over the table. Values handed to Raft cross
the network inside a pickle, and are plain: names, numbers and the bytes of configurations. The
members authenticate each other by a password, without which PySyncObj would load pickles from any
peer. This module closes the gaps of PySyncObj 0.3.17:

- entries and votes are on disk before the message that promises them leaves
  (:meth:`ReplicatedTable.make_durable`);
- a follower cuts its log back whenever the leader repeats itself, which is often, and would lack
  acknowledged entries after a death at this moment; an acknowledgement given to a leader of an
  earlier term counts in a later term; and a vote received twice counts twice
  (:meth:`ReplicatedTable.admitted`);
- a crash between writing the dump and cutting the journal makes PySyncObj forget entries at the
  next start, and PySyncObj takes damaged files for empty files (:func:`_examine`);
- the transport's treatment of connections, of slow peers and of strangers
  (ares/consensus/raft/transport.py).
"""

import asyncio
import contextlib
import logging
import random
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct
from pysyncobj import (
    FAIL_REASON,
    SERIALIZER_STATE,
    SyncObj,
    SyncObjConf,
    SyncObjException,
    replicated,
)
from pysyncobj.journal import FileJournal, MetaStorer
from pysyncobj.monotonic import monotonic

from ares.cluster.addresses import split_address
from ares.cluster.tables import BEAT_S_DEFAULT
from ares.consensus.raft.directory import Dump, Entry, MemberDirectory
from ares.consensus.raft.transport import RaftTransport
from ares.model.decision import Decision, DecisionTable
from ares.model.errors import BadInput
from ares.model.units import DAY_S

COMPACT_AFTER_ENTRIES = 10_000

NOTE_BYTES_MAX = 8 * 1024
"""Longest note that is sent; a longer note from a peer is cut, and hence not understood."""

QUICK_ELECTION_S = 0.6
"""Seconds without a connection to the leader after which a member elects a leader.

The time varies up to twice as long.
"""


class RaftTimes(Struct, frozen=True):
    """Durations that follow from the time between two signs of life of the leader.

    A slow member is late by seconds, even if the leader speaks seldom. Therefore an election takes
    six silent beats if beats are short, and fewer if beats are long.
    """

    election_s: float
    """Silence of the leader after which a member elects a leader; varies up to twice as long."""

    fallback_s: float
    """Time without answers of a majority after which a leader stops to lead."""

    greeting_s: float
    """Silence towards another member after which a member greets it."""

    @classmethod
    def of_beat(cls, beat_s: float) -> "RaftTimes":
        """Return the durations for this beat."""
        short_s = min(beat_s, BEAT_S_DEFAULT)
        return cls(3 * beat_s + 3 * short_s, 10 * beat_s + 10 * short_s, 5 * beat_s + 5 * short_s)


_REASON_OF_FAILURE = {
    FAIL_REASON.SUCCESS: "",
    FAIL_REASON.QUEUE_FULL: "its queue is full",
    FAIL_REASON.MISSING_LEADER: "no leader is elected: is a majority of the members running?",
}

Outcome = tuple[Any, str]
"""The result of a command, and the reason of its failure (empty: no failure)."""

_log = logging.getLogger(__name__)


def crossing(
    loop: asyncio.AbstractEventLoop, outcome: asyncio.Future[Outcome]
) -> Callable[[Any, int], None]:
    """Return a callback that brings PySyncObj's answer from its thread to ``outcome``.

    The callback may come late or after the loop has gone, and must not raise.
    """

    def settle(result: Any, why: str) -> None:
        if not outcome.done():
            outcome.set_result((result, why))

    def callback(result: Any, reason: int) -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(
                settle, result, _REASON_OF_FAILURE.get(reason, "the leader changed")
            )

    return callback


class ReplicatedTable(SyncObj):  # type: ignore[misc]
    """The table, with its replicated commands, which PySyncObj applies in a thread of its own.

    Every member applies them. A further replicated method must be declared with ``ver=1``: methods
    are numbered in journals. Use :meth:`open` to make a table.
    """

    _SyncObj__raftElectionDeadline: float

    def __init__(
        self,
        address: str,
        others: list[str],
        directory: MemberDirectory,
        password: str,
        beat_s: float,
    ) -> None:
        self.times = RaftTimes.of_beat(beat_s)
        self.note: tuple[int, bytes] = (0, b"")
        """This member's note for the other members, and the note's number; 0: no note yet."""

        self.noted: dict[str, tuple[bytes, float]] = {}
        """The last note of each other member, by address, and the time of arrival."""

        self.table: DecisionTable[bytes] = DecisionTable()
        self._directory = directory
        self._durable: tuple[object, ...] = ()
        self._voted_in: dict[str, int] = {}
        self._dumped = SERIALIZER_STATE.NOT_SERIALIZING
        super().__init__(
            address, others, self._settings(address, password, beat_s), transportClass=RaftTransport
        )
        self.addOnTickCallback(self._make_own_entries_durable)
        self.addOnTickCallback(self._elect_soon)

    @classmethod
    def open(
        cls,
        address: str,
        others: list[str],
        directory: MemberDirectory,
        password: str,
        beat_s: float,
    ) -> "ReplicatedTable":
        """Read the directory, bind and join the other members.

        PySyncObj's thread ends with the calling thread. Raises :class:`BadInput` if a file is
        damaged or the address cannot be bound.
        """
        _examine(directory)
        try:
            socket.getaddrinfo(split_address(address)[0], None, socket.AF_INET)
            machine = cls(address, others, directory, password, beat_s)
        except socket.gaierror as error:
            raise BadInput(
                f"a consensus member cannot listen on {address}: {error.strerror}; nothing was "
                "started"
            ) from error
        try:
            machine.waitBinded()
        except SyncObjException as error:
            machine._doDestroy()
            raise BadInput(
                f"a consensus member cannot listen on {address}: in use, or no address of this "
                "machine; nothing was started"
            ) from error
        return machine

    def _settings(self, address: str, password: str, beat_s: float) -> SyncObjConf:
        return SyncObjConf(
            password=password,
            bindAddress=address,
            maxBindRetries=1,
            journalFile=str(self._directory.journal),
            fullDumpFile=str(self._directory.dump),
            serializer=self._write_dump,
            deserializer=self._read_dump,
            serializeChecker=self._dump_state,
            logCompactionMinEntries=COMPACT_AFTER_ENTRIES,
            logCompactionMinTime=DAY_S,
            appendEntriesUseBatch=False,  # answer at once rather than many together
            appendEntriesBatchSizeBytes=2**20,
            commandsWaitLeader=False,
            dynamicMembershipChange=False,
            useFork=False,
            appendEntriesPeriod=beat_s,
            raftMinTimeout=self.times.election_s,
            raftMaxTimeout=2 * self.times.election_s,
            leaderFallbackTimeout=self.times.fallback_s,
            connectionTimeout=3 * self.times.greeting_s,
            connectionRetryTime=0.5,
            dnsCacheTime=60.0,
            dnsFailCacheTime=5.0,
        )

    @replicated  # type: ignore[untyped-decorator]
    def decide(self, domain: str, index: int, content: bytes, proposer: int) -> Decision[bytes]:
        return self.table.decide(domain, index, content, proposer)

    @replicated  # type: ignore[untyped-decorator]
    def tell_finalized(self, domain: str, index: int, content: bytes) -> bytes:
        return self.table.tell_finalized(domain, index, content)

    def beat_soon(self) -> None:
        """Let the members hear of the leader before the next beat, for a newly connected member."""
        self._SyncObj__newAppendEntriesTime = 0.0

    def _elect_soon(self) -> None:
        """Do not wait for beats of a leader that this member has no connection with."""
        leader = self._getLeader()
        if leader is None or not (leader == self.selfNode or self.isNodeConnected(leader)):
            now_s = monotonic()
            if self._SyncObj__raftElectionDeadline > now_s + 2 * QUICK_ELECTION_S:
                wait_s = QUICK_ELECTION_S * (1 + random.random())
                self._SyncObj__raftElectionDeadline = now_s + wait_s

    def make_durable(self, message: dict[str, Any]) -> None:
        """Make durable the votes and entries promised by ``message``, before the message leaves."""
        kind = message["type"]
        if kind in ("request_vote", "response_vote"):
            self._sync(self._directory.sync_votes)
        elif kind == "next_node_idx" and message["success"]:
            self._sync_journal((kind, message["next_node_idx"], self._getTerm()))

    def admitted(self, member: str, message: dict[str, Any]) -> dict[str, Any] | None:
        """Return the part of ``message`` from ``member`` for PySyncObj, or None.

        PySyncObj counts votes without their voters: a member's vote counts once in a term. If the
        last entry of this log is of the sending leader's term, this log is the head of the leader's
        log, and repeated entries need no rewriting.
        """
        if message["type"] == "next_node_idx" and message["sender_term"] != self._getTerm():
            return None
        if message["type"] == "greeting" and isinstance(note := message.get("note"), bytes):
            self.noted[member] = note[: NOTE_BYTES_MAX + 1], time.monotonic()
        if message["type"] == "response_vote":
            if message["term"] != self._getTerm() or self._voted_in.get(member) == message["term"]:
                return None
            self._voted_in[member] = message["term"]
        if message["type"] == "append_entries" and "entries" in message:
            _, index, term = self._SyncObj__raftLog[-1]
            if term == message["term"] and message["prevLogIdx"] < index:
                fresh = [entry for entry in message["entries"] if entry[1] > index]
                return {**message, "prevLogIdx": index, "prevLogTerm": term, "entries": fresh}
        return message

    def _make_own_entries_durable(self) -> None:
        """Make the leader's own entries durable at the end of a tick.

        From the next tick on, a leader counts itself among the members with an entry.
        """
        if self._isLeader():
            self._sync_journal(("leader", self._getRaftLogSize(), self._getTerm()))

    def _sync_journal(self, mark: tuple[object, ...]) -> None:
        if mark != self._durable:
            self._sync(self._directory.sync_journal)
            self._durable = mark

    def _sync(self, sync: Callable[[], None]) -> None:
        """Sync, and stop the member on a failure, before it makes any promise.

        A disk that failed once cannot be trusted at a second try.
        """
        try:
            sync()
        except OSError:
            _log.critical(
                "the disk failed, this consensus member stops: its promises are on disk, but the "
                "promise it was about to make may not be"
            )
            self.destroy()
            raise

    def _write_dump(self, path: str, entries: tuple[Entry, Entry, object]) -> None:
        try:
            self._directory.write_dump(Path(path), Dump(self.table, entries[0], entries[1]))
            self._dumped = SERIALIZER_STATE.SUCCESS
        except OSError:
            _log.exception(
                "the dump of the decisions could not be written; the journal stays as it is"
            )
            self._dumped = SERIALIZER_STATE.FAILED
            raise

    def _dump_state(self) -> int:
        """Return the state of the dump, once every tick.

        PySyncObj cuts the journal on success, hence the dump is made durable first.
        """
        state: int = self._dumped
        if state == SERIALIZER_STATE.SUCCESS:
            self._directory.sync_dump()
        self._dumped = SERIALIZER_STATE.NOT_SERIALIZING
        return state

    def _read_dump(self, path: str) -> tuple[Entry, Entry, None]:
        """Read the dump: at the start, and when the leader sent its dump.

        A leader sends the dump when its journal no longer reaches back far enough.
        """
        self._directory.sync_dump()
        dump = self._directory.read_dump()
        self.table = dump.table
        return dump.last, dump.previous, None


def _examine(directory: MemberDirectory) -> None:
    """Refuse damaged and lost files, make a new member's journal, and cut a journal at its dump.

    The cut is needed after a crash between dump and cut. If the journal does not begin with the
    dump's entries, PySyncObj would throw the whole journal away, and the entries after the dump
    with it.
    """
    if not directory.journal.exists():
        if directory.dump.exists() or directory.votes.exists():
            raise directory.damaged(directory.journal, "it is missing")
        directory.require_new()
        _replace_journal(directory, [])
    directory.begin()
    try:
        journal = FileJournal(str(directory.journal))
    except Exception as error:  # any exception of its parser
        raise directory.damaged(directory.journal, repr(error)) from error
    entries: list[Entry] = journal[:]
    journal._destroy()
    if entries and entries[-1][2] > 0 and not MetaStorer(str(directory.votes)).getMeta():
        raise directory.damaged(directory.votes, "term and vote are missing")
    if directory.dump.exists():
        dump = directory.read_dump()
        if dump.previous in entries[1:]:
            _replace_journal(directory, entries[entries.index(dump.previous) :])
            directory.sync_journal()
    elif entries and entries[0][1] > 1:
        raise directory.damaged(directory.dump, "it is missing")


def _replace_journal(directory: MemberDirectory, entries: list[Entry]) -> None:
    path = directory.path / "journal.new"
    path.unlink(missing_ok=True)
    journal = FileJournal(str(path))
    for entry in entries:
        journal.add(*entry)
    journal._destroy()
    path.replace(directory.journal)
