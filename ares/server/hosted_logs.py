"""The logs of a storage server: nodes of chains between clients, other servers and the disk (ares/chain/node.py, docs/log.md).

What comes within one turn of the event loop is put out together: one batch for each client and server, and one commit of each log's journal. Requests
of other servers come as those of clients do; what a node asks of another server goes over a connection of this server's own, and is answered there.
A server that keeps everything in memory has no journals: whatever a node takes counts as durable.

Each log has a journal of its own (ares/chain/stored_entries.py), so trimming gives back whole places, the oldest first. Before a place is full
another one is begun, with all that is known but the records: a log is put together again from any such place on.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, get_args

import msgspec

from ares.chain.entries import Entries, MemoryEntries
from ares.chain.facts_of_log import BatchPlace, LogFact, LogStanding, PieceFetched, RecordsTaken
from ares.chain.node import LogNode
from ares.chain.stored_entries import Shelf, StoredEntries
from ares.chain.stretch import Sender, Stretch
from ares.model.configuration import Configuration
from ares.model.errors import StoreDamaged
from ares.model.identity import ConfigurationId, DomainName, ServerId
from ares.model.log_messages import Append, ChainReply, ChainRequest, Committed, Fetched, Forward, LogRecord
from ares.model.messages import AnyMessage, CollectConfig, Hosted, Introduce, ReadConfig, Reason, Refused, WriteConfig
from ares.net.port import Connections, Loop
from ares.store.port import LogJournals, OrderedJournal, Use

TICK_S = 0.05
PLACE_BYTES = 8 * 1024 * 1024
"""Of a log's journal."""

FULL_SHARE = 0.75
"""From this part of PLACE_BYTES on another place is begun."""

LOGS_MAX = 10_000
_NODE_CALLS = 1 << 40
_RECORD_BYTES, _ENTRY_BYTES, _FACT_BYTES = 64, 5, 256
_encode = msgspec.msgpack.Encoder().encode

OF_LOGS: frozenset[type] = frozenset([*get_args(ChainRequest)])
OF_EITHER: frozenset[type] = frozenset([Introduce, ReadConfig, WriteConfig, CollectConfig])
"""Requests about configurations, of objects and of logs."""

_REPLIES: frozenset[type] = frozenset([*get_args(ChainReply), Refused])
_FULL = "its disk is full: it answers reads, and takes changes again when there is space"

log = logging.getLogger(__name__)


class HostedLog:
    """One log: its node and, unless everything is in memory, its journal. ``place``: where facts are appended, ``place_bytes`` of them so far.

    ``known``: how many chains the server heard of. ``standings``: places that begin with all that is known. ``committing``: a commit is under way;
    ``appended``: there is something for the next.
    """

    def __init__(self, make_node: Callable[[Callable[[bytes], Entries]], LogNode], journal: Callable[[], OrderedJournal] | None) -> None:
        self.journal: OrderedJournal | None = None
        self.shelf = Shelf(self)
        self.node = make_node(MemoryEntries if journal is None else partial(StoredEntries, self.shelf))
        self.place = self.place_bytes = self.known = 0
        self.standings: list[int] = []
        self.committing = self.appended = False
        self._open = journal

    def scan(self, mark: BatchPlace) -> Iterator[Sequence[object]]:
        """See :class:`ares.chain.stored_entries.Reader`."""
        return self.journal.scan(mark) if self.journal is not None else iter(())

    def begin(self) -> None:
        """Open the journal, and go on with what it tells. Raises what recovering a journal does."""
        if self._open is None or self.journal is not None:
            return
        self.journal = self._open()
        self.node.restore(self._told(self.journal))
        self.shelf.settle(max(self.journal.places(), default=0))
        self.settle()
        self.place_bytes = self.journal.durable().get(self.place, 0)

    def _told(self, journal: OrderedJournal) -> Iterator[LogFact]:
        for place, facts in journal.recover():
            if place != self.place:
                self.shelf.settle(self.place)
                self.settle()
                self.place = place
            for fact in facts:
                if isinstance(fact, LogStanding):
                    self.standings.append(place)
                    if not self.node.state.chains:
                        self.node.state.begin(fact)
                else:
                    self.shelf.note(fact, place)
                    yield fact
            self.shelf.batch(journal.mark)

    def settle(self) -> None:
        """Records in settled places leave memory; places that nobody needs go."""
        kept = [entries for entries in self.node.state.all_entries() if isinstance(entries, StoredEntries)]
        needed = min([self.place, *(place for entries in kept if (place := entries.place_needed()) is not None)])
        for entries in kept:
            entries.settle()
        begin = max((place for place in self.standings if place <= needed), default=0)
        journal = self.journal
        if journal is not None and (gone := [place for place in journal.places() if place < begin]):
            for place in gone:
                journal.discard(place)
            self.standings = [place for place in self.standings if place >= begin]
            self.shelf.forget_below(begin)

    def has_room(self, bytes: int) -> bool:
        return self.journal is None or self.journal.reserve(bytes + _FACT_BYTES, Use.DATA) is not None

    def append(self, journal: OrderedJournal, facts: Iterable[LogFact]) -> bool:
        """Add facts to the journal; False when the disk has no room for them, which it had when they were asked for."""
        for fact in facts:
            if not self._put(journal, fact):
                return False
            self.shelf.note(fact, self.place)
        if self.place_bytes > FULL_SHARE * PLACE_BYTES and journal.seal(self.place):
            if not self._put(journal, self.node.state.standing()):
                return False
            self.standings.append(self.place)
        return True

    def _put(self, journal: OrderedJournal, fact: LogFact | LogStanding) -> bool:
        bytes = _bytes_of(fact)
        place = journal.reserve(bytes, Use.COMPACTION)
        if place is None:
            return False
        if place != self.place:
            self.shelf.batch(journal.mark)  # what was appended before is encoded by now
            self.place, self.place_bytes = place, 0
        journal.append(fact, bytes)
        self.place_bytes += bytes
        self.appended = True
        return True

    def commit(self, journal: OrderedJournal, done: Callable[[OSError | None], None]) -> None:
        """``done`` is called when everything appended so far is durable."""
        self.committing, self.appended = True, False

        def ended(error: OSError | None, moved: object) -> None:
            self.committing = False
            self.shelf.settle(max(journal.places(), default=0))
            self.settle()
            done(error)

        journal.commit(ended)
        self.shelf.batch(journal.mark)


class Logs:
    """``initial``: c0 of the cluster file. ``respond``: the listener's reply. ``fail``: told that the disk failed. ``links``: to other servers.

    ``journals``: None keeps everything in memory. ``hosted``: what it keeps, by chain; for looking at.
    """

    def __init__(
        self,
        server: ServerId,
        identity: str,
        initial: Configuration,
        respond: Callable[[Sender, Sequence[AnyMessage]], None],
        fail: Callable[[OSError], None],
        loop: Loop,
        links: Connections,
        journals: LogJournals | None = None,
    ) -> None:
        self._server = server
        self._identity = identity
        self._cluster = initial.cluster_id
        self._links = links
        self._respond = respond
        self._fail = fail
        self._loop = loop
        self._journals = journals
        self._logs: list[HostedLog] = []
        self._by_name: dict[DomainName, HostedLog] = {}
        self._by_chain: dict[ConfigurationId, HostedLog] = {}
        self._heard: dict[ServerId, Sender] = {}
        self._dirty: dict[HostedLog, None] = {}
        self._ending = False
        self.hosted: dict[ConfigurationId, Stretch] = {}
        links.open(self.receive)

    def restore(self) -> None:
        """Open every log that is there. Raises what recovering a journal does."""
        for journal in self._journals.there() if self._journals is not None else ():
            self._add(self._made(journal))

    def describe(self) -> list[Hosted]:
        """A description for each chain: entries of its stretch, and of all old ones with the last one."""
        return [hosted for one in self._logs for hosted in one.node.state.describe()]

    @property
    def bytes_on_disk(self) -> int:
        return sum(one.journal.bytes_on_disk for one in self._logs if one.journal is not None)

    # -- what comes -------------------------------------------------------------------------------------------------------

    def takes(self, message: Introduce | ReadConfig | WriteConfig | CollectConfig) -> bool:
        """Whether it is about a log."""
        return message.configuration.dap == "chain" if isinstance(message, Introduce) else message.configuration in self._by_chain

    def handle(self, sender: Sender, message: Any) -> None:
        """A request about a log, of a client or of another server. Answers leave when this turn of the event loop ends, or later."""
        if self._ending:
            return
        if isinstance(message, Introduce):
            self._introduce(sender, message)
            return
        hosted = self._by_chain.get(message.configuration)
        if hosted is None:
            self._respond(sender, [Refused(message.call, Reason.UNKNOWN_CONFIGURATION, "introduce it")])
            return
        if hosted.journal is not None and isinstance(message, Append | Forward) and not hosted.has_room(_room_for(message)):
            if isinstance(message, Append):
                self._respond(sender, [Refused(message.call, Reason.STORAGE, _FULL)])
            return
        if isinstance(message, Forward | Committed):
            self._heard[message.server] = sender
            sender = message.server
        self._hand(hosted, sender, message)

    def receive(self, server: ServerId, messages: Sequence[AnyMessage]) -> None:
        """Answers of another server to what nodes of this one asked."""
        for message in messages:
            number = message.call // _NODE_CALLS
            if number < len(self._logs) and not (isinstance(message, Fetched) and not self._logs[number].has_room(_room_for(message))):
                self._hand(self._logs[number], server, message)

    def tick(self) -> None:
        """Every TICK_S."""
        now = self._loop.time()
        for hosted in self._logs:
            hosted.node.tick(now)
            if hosted.node.has_output:
                self._wake(hosted)

    def _hand(self, hosted: HostedLog, sender: Sender, message: AnyMessage) -> None:
        try:
            hosted.node.handle(sender, message, self._loop.time())
        except StoreDamaged as error:
            log.error("%s cannot be answered: %s; other servers of its chain have it", type(message).__name__, error)
        self._wake(hosted)

    def _introduce(self, sender: Sender, message: Introduce) -> None:
        """A log begins here if one of its chains names this server."""
        name = message.configuration.domain
        foreign = any(chain.cluster_id != self._cluster or chain.domain != name for chain in [message.configuration, *message.earlier])
        if foreign:
            self._respond(sender, [Refused(message.call, Reason.OTHER_CLUSTER, "that chain is of another cluster: is this the right cluster file?")])
            return
        hosted = self._by_name.get(name)
        if hosted is None and len(self._logs) < LOGS_MAX:
            trial = self._made(None)
            trial.node.handle(sender, message, self._loop.time())
            if not trial.node.state.stretches:
                self._put_out(trial)
                return
            hosted = self._made(None if self._journals is None else partial(self._journals.open, name))
            self._add(hosted)
        if hosted is not None:
            self._hand(hosted, sender, message)

    def _made(self, journal: Callable[[], OrderedJournal] | None) -> HostedLog:
        def node(make_entries: Callable[[bytes], Entries]) -> LogNode:
            return LogNode(self._server, self._identity, make_entries, calls_from=len(self._logs) * _NODE_CALLS)

        return HostedLog(node, journal)

    def _add(self, hosted: HostedLog) -> None:
        hosted.begin()
        self._logs.append(hosted)
        self._know(hosted)

    def _know(self, hosted: HostedLog) -> None:
        """Chains of the log that are new: where their servers are."""
        for id, stretch in hosted.node.state.stretches.items():
            self.hosted[id] = stretch
        for chain in hosted.node.state.chains.values():
            self._by_name[chain.domain] = self._by_chain[chain.id] = hosted  # it may be asked for what it fetched of chains that it was not in
            for server in chain.servers:
                self._links.learn(server.id, server.address)

    # -- what leaves ------------------------------------------------------------------------------------------------------

    def _wake(self, hosted: HostedLog) -> None:
        if not self._dirty:
            self._loop.call_soon(self._turn)
        self._dirty[hosted] = None

    def _turn(self) -> None:
        dirty, self._dirty = self._dirty, {}
        for hosted in dirty:
            self._put_out(hosted)

    def _put_out(self, hosted: HostedLog) -> None:
        """Store what is to be stored, and send what may leave."""
        node = hosted.node
        facts, messages = node.take()
        journal = hosted.journal
        if journal is None:
            while facts:
                node.stored(node.told, self._loop.time())
                facts, more = node.take()
                messages += more
        elif facts and not hosted.append(journal, facts):
            self._fail(OSError(0, _FULL))
            return
        if len(node.state.chains) != hosted.known:
            hosted.known = len(node.state.chains)
            self._know(hosted)
        self._send(messages)
        if journal is not None and hosted.appended and not hosted.committing:
            hosted.commit(journal, partial(self._committed, hosted, node.told))

    def _committed(self, hosted: HostedLog, count: int, error: OSError | None = None) -> None:
        if error is not None:
            self._fail(error)
            return
        hosted.node.stored(count, self._loop.time())
        self._wake(hosted)

    def _send(self, messages: Sequence[tuple[Sender, AnyMessage]]) -> None:
        replies: defaultdict[Sender, list[AnyMessage]] = defaultdict(list)
        posts: defaultdict[ServerId, list[AnyMessage]] = defaultdict(list)
        for to, message in messages:
            if not isinstance(to, str):
                replies[to].append(message)
            elif type(message) not in _REPLIES:
                posts[ServerId(to)].append(message)
            elif (sender := self._heard.get(ServerId(to))) is not None:
                replies[sender].append(message)
        for server, batch in posts.items():
            self._links.post(server, batch)
        for sender, batch in replies.items():
            self._respond(sender, batch)

    async def close(self) -> None:
        """Take nothing more. What is not durable was promised to nobody."""
        self._ending = True
        await self._links.close()
        for hosted in self._logs:
            if hosted.journal is not None:
                hosted.journal.close()


def _bytes_of(fact: LogFact | LogStanding) -> int:
    """What a fact takes in a journal at most, about."""
    if isinstance(fact, RecordsTaken | PieceFetched):
        return _FACT_BYTES + _bytes_of_records(fact.records)
    return _FACT_BYTES + len(_encode(fact))


def _bytes_of_records(records: Iterable[LogRecord]) -> int:
    return sum(_RECORD_BYTES + _ENTRY_BYTES * len(record.entries) + record.size for record in records)


def _room_for(message: Append | Forward | Fetched) -> int:
    if isinstance(message, Append):
        return _RECORD_BYTES + sum(_ENTRY_BYTES + len(entry) for entry in message.entries)
    return _bytes_of_records(message.records)
