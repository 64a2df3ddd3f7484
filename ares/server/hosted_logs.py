"""The logs of a storage server: nodes of chains between clients, other servers and the disk (ares/chain/node.py, docs/log.md).

What comes within one turn of the event loop is put out together: one batch for each client and server, and one commit of each log's journal. Requests
of other servers come as those of clients do; what a node asks of another server goes over a connection of this server's own, and is answered there.
A server that keeps everything in memory has no journals: whatever a node takes counts as durable.

Each log has a journal of its own (ares/chain/stored_entries.py), so trimming gives back whole places, the oldest first. Before a place is full
another one is begun, with all that is known but the records: a log is put together again from any such place on.
"""

import logging
import math
import resource
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, get_args

import msgspec

from ares.chain.entries import Entries, MemoryEntries
from ares.chain.facts_of_log import BatchPlace, LogFact, LogStanding, PieceFetched, RecordsTaken
from ares.chain.log_state import HeldLogs, held_logs
from ares.chain.node import LogNode
from ares.chain.stored_entries import Shelf, StoredEntries
from ares.chain.stretch import OUTBOX_BYTES_MAX, Sender, Stretch
from ares.model.configuration import Configuration
from ares.model.errors import BadInput
from ares.model.identity import ConfigurationId, DomainName, ServerId
from ares.model.log_messages import Append, ChainReply, ChainRequest, Committed, Fetched, Forward, LogRecord, Trim
from ares.model.messages import AnyMessage, CollectConfig, Hosted, Introduce, ReadConfig, Reason, Refused, WriteConfig
from ares.net.port import Connections, Loop
from ares.reconfig.throttle import Throttle
from ares.store.port import LogJournals, OrderedJournal, Use

TICK_S = 0.05
PLACE_BYTES = 8 * 1024 * 1024
"""Of a log's journal."""

FULL_SHARE = 0.75
"""From this part of PLACE_BYTES on another place is begun."""

DISCARDED_MAX = 32
"""Places that one batch gives back: it tells them where next to no room may be left."""

PENDING_BYTES_MAX = 1024 * 1024
"""What a node is given before its facts are gathered."""

LOGS_MAX = 10_000
FILES_EACH = 3
NEW_LOG_BYTES = 64 * 1024
"""What a log that is new finds room for: chains, and what is known of them."""

_NODE_CALLS = 1 << 40
_RECORD_BYTES, _ENTRY_BYTES, _FACT_BYTES = 64, 5, 256
_encode = msgspec.msgpack.Encoder().encode

OF_LOGS: frozenset[type] = frozenset([*get_args(ChainRequest)])
OF_EITHER: frozenset[type] = frozenset([Introduce, ReadConfig, WriteConfig, CollectConfig])
"""Requests about configurations, of objects and of logs."""

_REPLIES: frozenset[type] = frozenset([*get_args(ChainReply), Refused])
_NO_MORE = "it has no room for one more log: its disk is full, or it keeps as many logs as it can (docs/limits.md)"
_FULL = "its disk is full: it answers reads, and takes changes again when there is space"

log = logging.getLogger(__name__)


class HostedLog:
    """One log: its node and, unless everything is in memory, its journal. ``place``: where facts are appended, ``place_bytes`` of them so far.

    ``known``: how many chains the server heard of. ``standings``: places that begin with all that is known; ``stands``: the last one does.
    ``committing``: a commit is under way; ``appended``: there is something for the next. ``outbox``: messages that may leave.
    ``pending``: bytes of what the node was given since facts were gathered.
    """

    def __init__(
        self, make_node: Callable[[Callable[[bytes], Entries]], LogNode], journal: Callable[[], OrderedJournal] | None, size: int = PLACE_BYTES
    ) -> None:
        self.journal: OrderedJournal | None = None
        self.shelf = Shelf(self)
        self.node = make_node(MemoryEntries if journal is None else partial(StoredEntries, self.shelf))
        self.place = self.place_bytes = self.known = self.pending = 0
        self.standings: list[int] = []
        self.stands = True
        self.committing = self.appended = False
        self.outbox: list[tuple[Sender, AnyMessage]] = []
        self._open = journal
        self._size = size

    def scan(self, mark: BatchPlace) -> Iterator[Sequence[object]]:
        """See :class:`ares.chain.stored_entries.Reader`."""
        return self.journal.scan(mark) if self.journal is not None else iter(())

    def begin(self) -> None:
        """Open the journal, and go on with what it tells. Raises what recovering a journal does."""
        if self._open is None or self.journal is not None:
            return
        self.journal = self._open()
        self.node.restore(self._told(self.journal))
        self._settle(max(self.journal.places(), default=0))
        self._give_back(self.journal, self._first_needed())
        self.place_bytes = self.journal.durable().get(self.place, 0)

    def _told(self, journal: OrderedJournal) -> Iterator[LogFact]:
        for place, facts in journal.recover():
            before, begins, self.place = self.place, place != self.place, place
            for fact in facts:
                if isinstance(fact, LogStanding):
                    self.standings.append(place)
                    self._stand(fact)
                else:
                    self.shelf.note(fact, place)
                    yield fact
            self.shelf.batch(journal.mark)
            if begins:
                self._settle(before)
                self.stands = not before or place in self.standings

    def _stand(self, standing: LogStanding) -> None:
        """Where nothing was told before, it says what that came to."""
        state = self.node.state
        if state.chains:
            state.pass_by(standing)
        else:
            state.begin(standing)

    def _kept(self) -> Iterator[StoredEntries]:
        return (entries for entries in self.node.state.all_entries() if isinstance(entries, StoredEntries))

    def _settle(self, place: int) -> None:
        """Records in places up to this one leave memory."""
        self.shelf.settle(place)
        for entries in self._kept():
            entries.settle()

    def _first_needed(self) -> int:
        """The place that a start may begin with, once what is appended now is durable: from there on it finds all that is left."""
        needed = min([self.place, *(place for entries in self._kept() if (place := entries.place_needed()) is not None)])
        return max((place for place in self.standings if place <= needed), default=0)

    def _give_back(self, journal: OrderedJournal, begin: int) -> None:
        """Earlier places go, some at a time: a batch tells which. Raises OSError."""
        gone = [place for place in journal.places() if place < begin][:DISCARDED_MAX]
        if gone and self._reserve(journal, _FACT_BYTES, Use.COMPACTION):
            for place in gone:
                journal.discard(place)
            self.appended = True
            self.standings = [place for place in self.standings if place > gone[-1]]
            self.shelf.forget_below(gone[-1] + 1)

    def has_room(self, bytes: int, use: Use = Use.DATA) -> bool:
        return self.journal is None or self._reserve(self.journal, bytes + self.pending + _FACT_BYTES, use)

    def _reserve(self, journal: OrderedJournal, bytes: int, use: Use) -> bool:
        place = journal.reserve(bytes, use)
        if place is not None and place != self.place:
            self.shelf.batch(journal.mark)  # what was appended before is encoded by now
            self.stands = not self.place
            self.place, self.place_bytes = place, 0
        return place is not None

    def gather(self) -> bool:
        """Take what the node gives out, and append the facts; False when the disk has no room for them, which it had when they were asked for.

        Before a commit begins, and when one ends: then all that the node knows is in the journal.
        """
        self.pending = 0
        facts, messages = self.node.take()
        self.outbox += messages
        if self.journal is None:
            return self._remember(facts)
        return not facts or self._append(self.journal, facts)

    def _remember(self, facts: list[LogFact]) -> bool:
        while facts:
            self.node.stored(self.node.told, self.node.now)
            facts, messages = self.node.take()
            self.outbox += messages
        return True

    def _append(self, journal: OrderedJournal, facts: Iterable[LogFact]) -> bool:
        for fact in facts:
            if not self._put(journal, fact):
                return False
            self.shelf.note(fact, self.place)
        if (self.place_bytes > FULL_SHARE * self._size or not self.stands) and journal.seal(self.place):
            self.stands = self._put(journal, self.node.state.standing())  # without room for it a later place has one
            if self.stands:
                self.standings.append(self.place)
        return True

    def _put(self, journal: OrderedJournal, fact: LogFact | LogStanding) -> bool:
        bytes = _bytes_of(fact)
        if not self._reserve(journal, bytes, Use.COMPACTION):
            return False
        journal.append(fact, bytes)
        self.place_bytes += bytes
        self.appended = True
        return True

    def commit(self, journal: OrderedJournal, done: Callable[[OSError | None], None]) -> None:
        """``done`` is called when everything appended so far is durable."""
        self.committing, self.appended = True, False
        begin = self._first_needed()

        def ended(error: OSError | None, moved: object) -> None:
            self.committing = False
            if error is None:
                try:
                    if not self.gather():
                        raise OSError(0, _FULL)
                    self._settle(max(journal.places(), default=0))
                    self._give_back(journal, begin)
                except OSError as failed:
                    error = failed
            done(error)

        journal.commit(ended)
        self.shelf.batch(journal.mark)


class Logs:
    """``initial``: c0 of the cluster file. ``respond``: the listener's reply. ``fail``: told that the disk failed. ``links``: to other servers.

    ``journals``: None keeps everything in memory; else their places have ``place_bytes``. ``fetch_bytes_per_s``: of all nodes together.
    ``hosted``: what it keeps, by chain; for looking at.
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
        place_bytes: int = PLACE_BYTES,
        fetch_bytes_per_s: float = math.inf,
    ) -> None:
        self._server = server
        self._identity = identity
        self._cluster = initial.cluster_id
        self._links = links
        self._throttle = Throttle(fetch_bytes_per_s)
        self._respond = respond
        self._fail = fail
        self._loop = loop
        self._journals = journals
        self._place_bytes = place_bytes
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
            hosted = self._made(journal)
            hosted.begin()
            if hosted.node.state.chains:
                self._add(hosted)
            elif hosted.journal is not None:  # the process ended before it knew anything
                hosted.journal.close()

    def describe(self) -> list[Hosted]:
        """A description for each chain: entries of its stretch, and of all old ones with the last one."""
        return [hosted for one in self._logs for hosted in one.node.state.describe()]

    def held(self) -> HeldLogs:
        """Summed up."""
        return held_logs([one.node.state for one in self._logs])

    @property
    def bytes_on_disk(self) -> int:
        return sum(journal.bytes_on_disk for journal in self.journals)

    @property
    def nodes(self) -> list[LogNode]:
        return [one.node for one in self._logs]

    @property
    def journals(self) -> list[OrderedJournal]:
        return [one.journal for one in self._logs if one.journal is not None]

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
        if isinstance(message, Forward | Committed):
            stretch = self.hosted.get(message.configuration)
            if stretch is not None:  # else the refusal goes to whoever sent it
                if message.server not in stretch.servers:
                    return
                self._heard[message.server] = sender
                sender = message.server
        self._hand(hosted, sender, message)

    def receive(self, server: ServerId, messages: Sequence[AnyMessage]) -> None:
        """Answers of another server to what nodes of this one asked."""
        for message in messages:
            number = message.call // _NODE_CALLS
            if 0 <= number < len(self._logs):
                self._hand(self._logs[number], server, message)

    def tick(self) -> None:
        """Every TICK_S."""
        for hosted in self._logs:
            self._do(hosted, hosted.node.tick, self._loop.time())

    def _hand(self, hosted: HostedLog, sender: Sender, message: Any) -> None:
        if hosted.journal is None:
            self._do(hosted, hosted.node.handle, sender, message, self._loop.time())
            return
        try:
            fitting = _fitting(hosted, message)
        except OSError as error:
            self._fail(error)
            return
        if fitting is not None:
            if isinstance(fitting, Append | Forward | Fetched):
                hosted.pending += _room_for(fitting)
            self._do(hosted, hosted.node.handle, sender, fitting, self._loop.time())
        elif isinstance(message, Append | Trim | Introduce):
            self._respond(sender, [Refused(message.call, Reason.STORAGE, _FULL)])

    def _do(self, hosted: HostedLog, action: Callable[..., None], *arguments: Any) -> None:
        """Something that the node is told, and what comes of it. It puts its answers out when this turn of the event loop ends."""
        node = hosted.node
        try:
            waiting = node.waiting if hosted.journal is not None else ()
            if waiting and not hosted.has_room(sum(_FACT_BYTES + _room_for(append) for append in waiting)):
                node.forget_waiting()
            action(*arguments)
            if (waiting or hosted.pending > PENDING_BYTES_MAX) and not hosted.gather():
                raise OSError(0, _FULL)
        except OSError as error:
            self._fail(error)
            return
        if node.state.damage is not None:
            log.error("records of a log cannot be read: %s", node.state.damage.why, extra={"store": str(node.state.damage.path)})
            node.state.damage = None
        if len(node.state.chains) != hosted.known:
            self._know(hosted)  # at once: the next request may be about it
        if node.outbox_bytes > OUTBOX_BYTES_MAX:
            self._put_out(hosted)
        elif node.has_output or hosted.outbox or hosted.appended:
            self._wake(hosted)

    def _introduce(self, sender: Sender, message: Introduce) -> None:
        """A log begins here if one of its chains names this server."""
        name = message.configuration.domain
        foreign = any(chain.cluster_id != self._cluster or chain.domain != name for chain in [message.configuration, *message.earlier])
        if foreign:
            self._respond(sender, [Refused(message.call, Reason.OTHER_CLUSTER, "that chain is of another cluster: is this the right cluster file?")])
            return
        hosted = self._by_name.get(name)
        if hosted is None:
            trial = self._made(None)
            trial.node.handle(sender, message, self._loop.time())
            if not trial.node.state.stretches:
                self._put_out(trial)
                return
            hosted = self._begun(name)
        if hosted is not None:
            self._hand(hosted, sender, message)
        else:
            self._respond(sender, [Refused(message.call, Reason.STORAGE, _NO_MORE)])

    def _begun(self, name: DomainName) -> HostedLog | None:
        """A log that is new here, if there is room for it: one on a disk keeps FILES_EACH files open, and clients need some, too."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if len(self._logs) >= (LOGS_MAX if self._journals is None else min(LOGS_MAX, files // (2 * FILES_EACH))):
            return None
        hosted = self._made(None if self._journals is None else partial(self._journals.open, name))
        try:
            hosted.begin()
            room = hosted.has_room(NEW_LOG_BYTES)
        except (OSError, BadInput) as error:
            log.error("log %r cannot begin here: %s", name, error)
            room = False
        if room:
            self._add(hosted)
            return hosted
        if hosted.journal is not None:
            hosted.journal.close()
        return None

    def _made(self, journal: Callable[[], OrderedJournal] | None) -> HostedLog:
        def node(make_entries: Callable[[bytes], Entries]) -> LogNode:
            return LogNode(self._server, self._identity, make_entries, 0.0, len(self._logs) * _NODE_CALLS, self._throttle)

        return HostedLog(node, journal, self._place_bytes)

    def _add(self, hosted: HostedLog) -> None:
        self._logs.append(hosted)
        self._know(hosted)

    def _know(self, hosted: HostedLog) -> None:
        """Chains of the log that are new: where their servers are."""
        state = hosted.node.state
        for chain in islice(state.chains.values(), hosted.known, None):
            if chain.id in state.stretches:
                self.hosted[chain.id] = state.stretches[chain.id]
            self._by_name[chain.domain] = self._by_chain[chain.id] = hosted  # it may be asked for what it fetched of chains that it was not in
            for server in chain.servers:
                self._links.learn(server.id, server.address)
        hosted.known = len(state.chains)

    # -- what leaves ------------------------------------------------------------------------------------------------------

    def _wake(self, hosted: HostedLog) -> None:
        if not self._dirty:
            self._loop.call_soon(self._turn)
        self._dirty[hosted] = None

    def _turn(self) -> None:
        dirty, self._dirty = self._dirty, {}
        for hosted in dirty if not self._ending else ():  # journals are closed at the end
            self._put_out(hosted)

    def _put_out(self, hosted: HostedLog) -> None:
        """Send what may leave, and store what is to be stored: what came within one turn of the event loop is one fact."""
        node, journal = hosted.node, hosted.journal
        if not hosted.gather():
            self._fail(OSError(0, _FULL))
            return
        messages, hosted.outbox = hosted.outbox, []
        self._send(messages)
        if journal is not None and hosted.appended and not hosted.committing:
            hosted.commit(journal, partial(self._committed, hosted, node.told))

    def _committed(self, hosted: HostedLog, count: int, error: OSError | None = None) -> None:
        if error is not None:
            self._fail(error)
            return
        self._do(hosted, hosted.node.stored, count, self._loop.time())

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


def _fitting(hosted: HostedLog, message: Any) -> Any:
    """What of ``message`` the disk has room for; None if nothing. Seals and pointers may use what is left, and trims, which go on down the chain."""
    if isinstance(message, Append | Forward | Fetched) and not hosted.has_room(_room_for(message)):
        trims = isinstance(message, Forward) and message.trimmed > hosted.node.state.trimmed and hosted.has_room(0, Use.POINTERS)
        return msgspec.structs.replace(message, records=()) if trims else None
    if isinstance(message, Trim | Introduce):
        return message if hosted.has_room(len(_encode(message)), Use.POINTERS) else None
    return message


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
