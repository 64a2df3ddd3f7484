"""The logs of a storage server: nodes of chains between clients, servers and the disk.

See ares/sharedlog/node.py and docs/log.md. Outputs of a turn of the event loop leave together: a
batch for each client and server, and a commit of each log's journal. Requests of servers come in
like requests of clients; a node's question to another server goes over this server's own
connection, and is answered over it. A server with everything in memory has no journals: all facts
of a node count as durable.
"""

import logging
import math
import resource
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, get_args

from ares.metrics import LogTotals, held_logs
from ares.model.configuration import Configuration
from ares.model.errors import BadInput
from ares.model.identity import ConfigurationId, DomainName, ServerId
from ares.model.log_messages import (
    ChainReply,
    NeighbourMessage,
)
from ares.model.messages import (
    AnyMessage,
    CollectConfig,
    ConfigurationReport,
    Finalize,
    Introduce,
    ReadConfig,
    Reason,
    Refused,
    WriteConfig,
)
from ares.model.work import Meter
from ares.net.port import Connections, Loop
from ares.reconfig.throttle import Throttle
from ares.server.commit_loop import FullDisk
from ares.server.hosted_log import LOG_PLACE_BYTES, HostedLog
from ares.sharedlog.chain_segment import ChainSegment, Sender
from ares.sharedlog.entries import Entries
from ares.sharedlog.node import LogNode
from ares.store.port import OrderedJournal, SharedLogJournals

LOGS_TICK_S = 0.05
LOGS_TICK_WORK = 6 * 1024
LOGS_TICK_WORK_MAX = 4 * 1024 * 1024
"""Work of an idle log's timer (ares/model/work.py), and of all timers without a pause.

With 10,000 idle logs each log has its turn every 0.75 s.
"""

LOGS_MAX = 10_000
FILES_EACH = 3
NEW_LOG_BYTES = 64 * 1024
"""Room needed for a new log: its chains, and their known state."""

_NODE_CALLS = 1 << 40

CHAIN_REPLIES: frozenset[type] = frozenset([*get_args(ChainReply), Refused])
LOG_FULL_S = 10.0
"""Longest time after which the node before a full node sends again."""

_NO_MORE = (
    "it has no room for one more log: its disk is full, or it keeps as many logs as it can "
    "(docs/limits.md)"
)

log = logging.getLogger(__name__)


class LogsParts(NamedTuple):
    """The parts around the logs of a server."""

    server: ServerId
    identity: str
    initial: Configuration
    """c0 of the cluster file."""

    respond: Callable[[Sender, Sequence[AnyMessage]], None]
    """The listener's reply."""

    fail: Callable[[OSError], None]
    """Called when the disk failed."""

    loop: Loop
    links: Connections
    """Connections to other servers."""

    journals: SharedLogJournals | None = None
    """None keeps everything in memory."""

    place_bytes: int = LOG_PLACE_BYTES
    """Bytes of a place in the journals."""

    fetch_bytes_per_s: float = math.inf
    """The rate of all nodes together."""

    meter: Meter | None = None
    """The listener's."""


class RestoredLogs(NamedTuple):
    """The number of restored logs, of ``total``, and the log that is restored now."""

    done: int
    total: int
    present: HostedLog


class HostedLogs:
    """The logs of a server. ``hosted``: the segments by chain, for inspection."""

    def __init__(self, parts: LogsParts) -> None:
        self._server, self._identity = parts.server, parts.identity
        self._cluster = parts.initial.cluster_id
        self._respond, self.fail, self.loop = parts.respond, parts.fail, parts.loop
        self._links, self._journals = parts.links, parts.journals
        self._place_bytes = parts.place_bytes
        self._meter = parts.meter or Meter()
        self._throttle = Throttle(parts.fetch_bytes_per_s)
        self.full_disk = FullDisk(parts.loop.time, "logs", LOG_FULL_S)
        self._logs: list[HostedLog] = []
        self._ticked = 0
        self._by_name: dict[DomainName, HostedLog] = {}
        self._by_chain: dict[ConfigurationId, HostedLog] = {}
        self._heard: dict[ServerId, Sender] = {}
        self._ending = False
        self._life = 1
        self.restoring: RestoredLogs | None = None
        """The present step of :meth:`restore`, for any thread."""

        self.hosted: dict[ConfigurationId, ChainSegment] = {}
        parts.links.open(self.receive)

    def restore(self) -> None:
        """Open every existing log, and begin a life. Raises the errors of a journal's recovery."""
        journals = list(self._journals.there()) if self._journals is not None else []
        for number, journal in enumerate(journals):
            hosted = self._made(journal)
            self.restoring = RestoredLogs(number, len(journals), hosted)
            try:
                hosted.begin()
            except BaseException:
                hosted.close()
                raise
            if hosted.node.state.chains:
                self._add(hosted)
            else:  # the process ended before a chain was known
                hosted.close()
        self.restoring = None
        if self._journals is not None:
            self._life = self._journals.begin_life()
        for node in self.nodes:
            node.life = self._life

    def describe(self) -> list[ConfigurationReport]:
        """Return a description for each chain: the entries of the segment.

        The last chain of a log also counts all old entries.
        """
        return [hosted for one in self._logs for hosted in one.node.state.describe()]

    def held(self) -> LogTotals:
        """Return the totals of all logs."""
        return held_logs([one.node.state for one in self._logs])

    @property
    def full(self) -> bool:
        """Return whether the disk lacked room for a log's entries in the last LOG_FULL_S."""
        return not self.full_disk.is_quiet

    @property
    def bytes_on_disk(self) -> int:
        return sum(journal.bytes_on_disk for _, journal in self.on_disk)

    @property
    def nodes(self) -> list[LogNode]:
        return [one.node for one in self._logs]

    @property
    def on_disk(self) -> list[tuple[HostedLog, OrderedJournal]]:
        """Return the logs with a journal, and their journals."""
        return [(one, one.journal) for one in self._logs if one.journal is not None]

    # -- requests and replies ----------------------------------------------------------------------

    def takes(
        self, message: Introduce | ReadConfig | WriteConfig | CollectConfig | Finalize
    ) -> bool:
        """Return whether the message is about a log."""
        return (
            message.configuration.dap == "chain"
            if isinstance(message, Introduce)
            else message.configuration in self._by_chain
        )

    def located(self, name: DomainName) -> Configuration | None:
        """Return the newest chain of the log that may be named to clients (rule R21)."""
        hosted = self._by_name.get(name)
        return None if hosted is None else hosted.node.state.located

    def handle(self, sender: Sender, message: Any) -> None:
        """Handle a request about a log, of a client or a server.

        Answers leave at the end of this turn of the event loop, or later.
        """
        if self._ending:
            return
        if isinstance(message, Introduce):
            self._introduce(sender, message)
            return
        hosted = self._by_chain.get(message.configuration)
        if hosted is None:
            self._respond(
                sender, [Refused(message.call, Reason.UNKNOWN_CONFIGURATION, "introduce it")]
            )
            return
        if isinstance(message, NeighbourMessage):
            segment = self.hosted.get(message.configuration)
            if segment is not None:  # else the refusal goes to the sender
                if message.server not in segment.servers:
                    return
                self._heard[message.server] = sender
                sender = message.server
        hosted.hand(sender, message)

    def receive(self, server: ServerId, messages: Sequence[AnyMessage]) -> None:
        """Hand the answers of another server to the nodes that asked."""
        for message in messages:
            number = message.call // _NODE_CALLS
            if 0 <= number < len(self._logs):
                self._logs[number].hand(server, message)

    def tick(self) -> None:
        """Let time pass, each LOGS_TICK_S, for logs in turn, until LOGS_TICK_WORK_MAX is spent.

        A log whose timer fails does not keep the timers of the remaining logs from running.
        """
        failed: list[Exception] = []
        begun = self._meter.spent
        for count in range(len(self._logs)):
            if self._meter.spent - begun + count * LOGS_TICK_WORK >= LOGS_TICK_WORK_MAX:
                break
            hosted = self._logs[self._ticked % len(self._logs)]
            self._ticked += 1
            try:
                hosted.do(hosted.node.tick, self.loop.time())
            except Exception as error:
                failed.append(error)
        if failed:
            raise ExceptionGroup("the timers of some logs failed", failed)

    def _introduce(self, sender: Sender, message: Introduce) -> None:
        """Hand a chain to a log, and begin the log if a chain names this server."""
        name = message.configuration.domain
        foreign = any(
            chain.cluster_id != self._cluster or chain.domain != name
            for chain in [message.configuration, *message.earlier]
        )
        if foreign:
            self._respond(
                sender,
                [
                    Refused(
                        message.call,
                        Reason.OTHER_CLUSTER,
                        "that chain is of another cluster: is this the right cluster file?",
                    )
                ],
            )
            return
        hosted = self._by_name.get(name)
        if hosted is None:
            trial = self._made(None)
            trial.node.handle(sender, message, self.loop.time())
            if not trial.node.state.segments:
                trial.commits.turn()
                return
            hosted = self._begun(name)
            if hosted is None:
                self._respond(sender, [Refused(message.call, Reason.STORAGE, _NO_MORE)])
                return
        hosted.hand(sender, message)
        if not hosted.node.state.chains:  # the disk has no room for the introduction
            self._logs.remove(hosted)
            hosted.close()

    def _begun(self, name: DomainName) -> HostedLog | None:
        """Return a new log, or None without room.

        A log on a disk keeps FILES_EACH files open, and clients need files, too.
        """
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if len(self._logs) >= (
            LOGS_MAX if self._journals is None else min(LOGS_MAX, files // (2 * FILES_EACH))
        ):
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
        hosted.close()
        return None

    def _made(self, journal: Callable[[], OrderedJournal] | None) -> HostedLog:
        def made(make_entries: Callable[[bytes], Entries]) -> LogNode:
            node = LogNode(
                self._server,
                self._identity,
                make_entries,
                calls_from=len(self._logs) * _NODE_CALLS,
                throttle=self._throttle,
                meter=self._meter,
            )
            node.life, node.forwards_at_once = self._life, self._journals is not None
            return node

        return HostedLog(self, made, journal, self._place_bytes)

    def _add(self, hosted: HostedLog) -> None:
        self._logs.append(hosted)
        self.know(hosted)

    def know(self, hosted: HostedLog) -> None:
        """Learn the new chains of a log, and the addresses of their servers."""
        state = hosted.node.state
        for chain in islice(state.chains.values(), hosted.known, None):
            if chain.id in state.segments:
                self.hosted[chain.id] = state.segments[chain.id]
            self._by_name[chain.domain] = self._by_chain[chain.id] = (
                hosted  # a server may ask for fetched records of chains without this server
            )
            for server in chain.servers:
                self._links.learn(server.id, server.address)
        hosted.known = len(state.chains)

    # -- output ------------------------------------------------------------------------------------

    def send(self, messages: Sequence[tuple[Sender, AnyMessage]]) -> None:
        """Send a batch to each client and server."""
        replies: defaultdict[Sender, list[AnyMessage]] = defaultdict(list)
        posts: defaultdict[ServerId, list[AnyMessage]] = defaultdict(list)
        for to, message in messages:
            if not isinstance(to, str):
                replies[to].append(message)
            elif type(message) not in CHAIN_REPLIES:
                posts[ServerId(to)].append(message)
            elif (sender := self._heard.get(ServerId(to))) is not None:
                replies[sender].append(message)
        for server, batch in posts.items():
            self._links.post(server, batch)
        for sender, batch in replies.items():
            self._respond(sender, batch)

    async def close(self) -> None:
        """Take no more requests. A fact that is not durable was promised to no process."""
        self._ending = True
        for hosted in self._logs:
            hosted.commits.stop()
        await self._links.close()
        for hosted in self._logs:
            hosted.close()
