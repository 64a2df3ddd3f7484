"""A process's counters of its own work, as plain integers.

Counting must cost next to nothing, because the counters may never be read. The pages for Prometheus
read the counters now and again (ares/server/prometheus.py); numbers of a reading may be of slightly
different moments.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, get_args

from msgspec import Struct

from ares.model.codec import Outgoing
from ares.model.configuration import SERVERS_MAX
from ares.model.messages import (
    READ_REPLIES,
    Ack,
    AnyMessage,
    Description,
    Durations,
    GetData,
    GetTag,
    PutData,
    QueryList,
    Reason,
    Refused,
    ServerWork,
)
from ares.replica.configuration_state import ConfigurationState
from ares.sharedlog.log_state import LogState

if TYPE_CHECKING:
    from ares.compiled import ServedTurn

BATCH_S_BUCKETS = (
    0.00005,
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    1.0,
)
"""Bounds for work of the processor."""

DISK_S_BUCKETS = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    1.0,
    5.0,
)
"""Bounds for waits for a disk."""

REPLY_S_BUCKETS = (
    0.00005,
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
)
"""Bounds for a client's waits."""


class Histogram:
    """A histogram of durations.

    ``counts[i]`` were at most ``bounds[i]`` seconds and more than the bound before; the last count
    is of durations beyond all bounds.
    """

    __slots__ = ("bounds", "counts", "sum_s")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += times
        self.sum_s += seconds * times

    def durations(self) -> Durations:
        return Durations(tuple(self.bounds), tuple(self.counts))


class ListenerTraffic:
    """The traffic of a listener.

    Counted are requests by type, refusals by reason, bytes, and the seconds for handling a batch,
    or the part of a batch answered in a turn. A batch of requests that wait for a disk, or for a
    decision, counts as handled as soon as they wait. ``reading``, ``writing``: for each tag, value
    or acknowledgement, the seconds from the arrival of its request until it left, or in a turn with
    others.
    """

    def __init__(self) -> None:
        self.requests: dict[type, int] = dict.fromkeys(get_args(AnyMessage), 0)
        self.refused: dict[Reason, int] = dict.fromkeys(Reason, 0)
        self.received_bytes = 0
        self.sent_bytes = 0
        self.batches = Histogram(BATCH_S_BUCKETS)
        self.reading = Histogram(REPLY_S_BUCKETS)
        self.writing = Histogram(REPLY_S_BUCKETS)
        self.queueing = Histogram(REPLY_S_BUCKETS)
        """Waits of a request before its turn, by probes (ares/server/queue_probe.py)."""

    def count_batch(self, messages: Sequence[AnyMessage], frames: Sequence[bytes]) -> None:
        """Count an arrived batch."""
        requests = self.requests
        for message in messages:
            requests[type(message)] += 1
        self.received_bytes += len(frames[0]) if len(frames) == 1 else sum(map(len, frames))

    def count_turn(self, replies: Sequence[AnyMessage], seconds: float) -> None:
        """Count the immediate replies to a batch, or to a part of a batch, and their seconds."""
        self.batches.add(seconds)
        reads = writes = 0
        for reply in replies:
            kind = type(reply)
            if kind in READ_REPLIES:
                reads += 1
            elif kind is Ack:
                writes += 1
            elif kind is Refused:
                self.count_replies((reply,))
        self.count_waited(seconds, reads, writes)

    def count_served(self, served: "ServedTurn", seconds: float) -> None:
        """Count the compiled core's work, as :meth:`count_batch` and :meth:`count_turn` do."""
        requests = self.requests
        requests[GetTag] += served.tags
        requests[GetData] += served.datas
        requests[PutData] += served.puts
        self.received_bytes += served.received_bytes
        self.batches.add(seconds)
        self.count_waited(seconds, served.reads, served.writes)

    def count_waited(self, seconds: float, reads: int, writes: int) -> None:
        """Count so many tags or values, and acknowledgements, with the same wait.

        They may have waited for the disk, for instance.
        """
        if reads:
            self.reading.add(seconds, reads)
        if writes:
            self.writing.add(seconds, writes)

    def count_replies(self, messages: Iterable[Outgoing]) -> None:
        for message in messages:
            if type(message) is Refused:
                self.refused[message.reason] += 1

    @property
    def fetches(self) -> int:
        """Return the number of requests for values."""
        return self.requests[GetData] + self.requests[QueryList]

    def work(self, commits: Histogram | None = None) -> ServerWork:
        """Return the counters for a description; ``commits``: durations of group commits."""
        return ServerWork(
            self.requests[GetTag],
            self.fetches,
            self.requests[PutData],
            self.received_bytes,
            self.sent_bytes,
            self.reading.durations(),
            self.writing.durations(),
            self.queueing.durations(),
            None if commits is None else commits.durations(),
        )


class GatewayTraffic:
    """The traffic of a gateway's process: requests by operation and status, and their seconds.

    ``refused``: requests and connections that no operation was found for, by reason. ``cut``:
    answers that ended before their end.
    """

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.refused: Counter[str] = Counter()
        self.cut = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self.reading = Histogram(REPLY_S_BUCKETS)
        self.writing = Histogram(REPLY_S_BUCKETS)
        self.queueing = Histogram(REPLY_S_BUCKETS)
        """Waits of a request before its turn, by probes (ares/server/queue_probe.py)."""

    def count_refused(self, reason: str) -> None:
        self.refused[reason] += 1


class AutopilotCounters(Struct):
    """The counters of an autopilot.

    ``absent``: members that do not answer; ``troubled``: domains beyond its help; ``seen`` of
    ``total`` objects of the move under way; ``done``: moves completed since the process was
    started. ``troubled_logs``: logs beyond its help. ``follows``: moves of domains to their users.
    """

    absent: int = 0
    troubled: int = 0
    seen: int = 0
    total: int = 0
    done: int = 0
    troubled_logs: int = 0
    follows: int = 0


class ServerContents(Struct, frozen=True):
    """A server's contents, in all its configurations together.

    ``withheld``: objects also held by a finalized successor, and not sent to any client any more;
    ``collected``: configurations whose objects are gone; ``bytes``: of element data. ``moving``:
    configurations, and ``moving_objects`` of theirs, with a pending successor. ``spare_servers``:
    servers that the most endangered configuration in use can lose; -1 without any.
    """

    configurations: int
    collected: int
    objects: int
    withheld: int
    elements: int
    bytes: int
    moving: int
    moving_objects: int
    spare_servers: int


class LogTotals(Struct, frozen=True):
    """Totals of all logs at a server.

    ``entries``: entries at this server. ``committed``: positions known to be committed. ``sealed``:
    logs with a sealed last chain and no decided successor. ``returning``: logs of which the server
    takes records back after a restart. ``fetching``: logs that fetch old entries. ``to_fetch``: the
    number of these entries, of which ``fetched`` have arrived.
    """

    logs: int
    entries: int
    committed: int
    sealed: int
    returning: int
    fetching: int
    to_fetch: int
    fetched: int


class Vitals(Struct, frozen=True):
    """The health of a server.

    ``trouble``: a sentence about a limit of its service; empty without trouble. ``commits``: None
    with all data in memory. ``logs``: None for a server without logs. ``ahead_bytes``: of copies
    ahead (rule R24).
    """

    description: Description
    holding: ServerContents
    trouble: str
    commits: Histogram | None
    logs: LogTotals | None = None
    ahead_bytes: int = 0


def holding(hosted: Iterable[ConfigurationState]) -> ServerContents:
    """Return the sums over all configurations; takes about a microsecond for each."""
    configurations = collected = objects = withheld = elements = size = moving = moving_objects = 0
    spare_servers = SERVERS_MAX
    for hosting in hosted:
        held = len(hosting.objects)
        configurations += 1
        collected += hosting.collected
        objects += held
        elements += hosting.elements
        size += hosting.bytes
        if hosting.successor is not None and hosting.successor.finalized:
            withheld += held
            continue
        spare_servers = min(
            spare_servers, hosting.configuration.n - hosting.configuration.quorum_size
        )
        if hosting.successor is not None:
            moving += 1
            moving_objects += held
    return ServerContents(
        configurations,
        collected,
        objects,
        withheld,
        elements,
        size,
        moving,
        moving_objects,
        -1 if spare_servers == SERVERS_MAX else spare_servers,
    )


def held_logs(states: Iterable[LogState]) -> LogTotals:
    """Return the totals of ``states``."""
    logs = entries = committed = sealed = returning = fetching = to_fetch = fetched = 0
    for state in states:
        hosted = state.describe()
        if not hosted or hosted[-1].chain is None:
            continue
        last, part = hosted[-1].configuration, hosted[-1].chain
        logs += 1
        entries += sum(each.objects for each in hosted)
        committed += part.committed
        sealed += part.sealed and hosted[-1].successor is None
        returning += part.returning
        if not part.sealed and part.fetched < last.start:
            fetching += 1
            to_fetch += last.start - part.trimmed
            fetched += max(part.fetched - part.trimmed, 0)
    return LogTotals(logs, entries, committed, sealed, returning, fetching, to_fetch, fetched)
