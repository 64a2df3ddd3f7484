"""What a process counts of its own work, as plain integers: counting must cost next to nothing, for nobody may ever look.

The pages for Prometheus read these now and then (ares/server/prometheus.py); numbers of one reading may be of slightly different moments.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, get_args

from msgspec import Struct

from ares.chain.log_state import HeldLogs
from ares.model.codec import Outgoing
from ares.model.configuration import SERVERS_MAX
from ares.model.messages import (
    Ack,
    AnyMessage,
    DataReply,
    Description,
    Durations,
    GetData,
    GetTag,
    PutData,
    Reason,
    Refused,
    ServerWork,
    TagReply,
)
from ares.replica.hosting import Hosting

if TYPE_CHECKING:
    from ares._core import Served

BATCH_S = (
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
"""Bounds for what takes the processor."""

DISK_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
"""Bounds for what waits for a disk."""

REPLY_S = (
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
"""Bounds for what a client waits for."""

LAG_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""Bounds for what the event loop is late by."""


class Histogram:
    """How many durations were at most ``bounds[i]`` seconds and more than the bound before; the last count is of those beyond all bounds."""

    __slots__ = ("bounds", "counts", "sum_s")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += times
        self.sum_s += seconds * times

    def told(self) -> Durations:
        return Durations(tuple(self.bounds), tuple(self.counts))


class Traffic:
    """What came to a listener and left it: requests by type, refusals by reason, bytes, and the seconds that a batch, or what of it is
    answered at a stretch, took to be handled.

    A batch of requests that wait for a disk, or for a decision, is handled as soon as they wait. ``reading``, ``writing``: of each tag, value or
    acknowledgement, the seconds from the arrival of its request until it left, or at a stretch with others.
    """

    def __init__(self) -> None:
        self.requests: dict[type, int] = dict.fromkeys(get_args(AnyMessage), 0)
        self.refused: dict[Reason, int] = dict.fromkeys(Reason, 0)
        self.received_bytes = 0
        self.sent_bytes = 0
        self.batches = Histogram(BATCH_S)
        self.reading = Histogram(REPLY_S)
        self.writing = Histogram(REPLY_S)

    def count_batch(self, messages: Sequence[AnyMessage], frames: Sequence[bytes]) -> None:
        """What came."""
        requests = self.requests
        for message in messages:
            requests[type(message)] += 1
        self.received_bytes += len(frames[0]) if len(frames) == 1 else sum(map(len, frames))

    def count_turn(self, replies: Sequence[AnyMessage], seconds: float) -> None:
        """The replies to a batch, or to a part of it, that were given at once, and how long that took."""
        self.batches.add(seconds)
        reads = writes = 0
        for reply in replies:
            kind = type(reply)
            if kind is DataReply or kind is TagReply:
                reads += 1
            elif kind is Ack:
                writes += 1
            elif kind is Refused:
                self.count_replies((reply,))
        self.count_waited(seconds, reads, writes)

    def count_served(self, served: "Served", seconds: float) -> None:
        """What the compiled core did with what came: :meth:`count_batch` and :meth:`count_turn`."""
        requests = self.requests
        requests[GetTag] += served.tags
        requests[GetData] += served.datas
        requests[PutData] += served.puts
        self.received_bytes += served.received_bytes
        self.batches.add(seconds)
        self.count_waited(seconds, served.reads, served.writes)

    def count_waited(self, seconds: float, reads: int, writes: int) -> None:
        """So many tags or values, and acknowledgements, that took as long, for instance since they waited for the disk."""
        if reads:
            self.reading.add(seconds, reads)
        if writes:
            self.writing.add(seconds, writes)

    def count_replies(self, messages: Iterable[Outgoing]) -> None:
        for message in messages:
            if type(message) is Refused:
                self.refused[message.reason] += 1

    def work(self) -> ServerWork:
        """For a description."""
        asked = self.requests
        return ServerWork(
            asked[GetTag],
            asked[GetData],
            asked[PutData],
            self.received_bytes,
            self.sent_bytes,
            self.reading.told(),
            self.writing.told(),
        )


class Autopiloted(Struct):
    """What an autopilot counts. ``absent``: members that do not answer; ``troubled``: domains for which nothing can be done; ``seen`` of ``total``
    objects of the move under way; ``done``: moves completed since the process was started. ``troubled_logs``: logs for which nothing can be done.
    ``follows``: moves of domains to their users.
    """

    absent: int = 0
    troubled: int = 0
    seen: int = 0
    total: int = 0
    done: int = 0
    troubled_logs: int = 0
    follows: int = 0


class Holding(Struct, frozen=True):
    """What a server holds, in all its configurations together. ``withheld``: objects that a finalized successor has, too, and that nobody is given
    any more; ``collected``: configurations whose objects are gone; ``bytes``: of element data. ``moving``: configurations, and ``moving_objects`` of
    theirs, whose successor is pending. ``spare_servers``: how many the configuration in use with the fewest can lose; -1 without any.
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


class Vitals(Struct, frozen=True):
    """How a server is. ``trouble``: why it cannot do all that it is for, in a sentence; empty if it can. ``commits``: None with all in memory.
    ``logs``: None where it keeps none.
    """

    description: Description
    holding: Holding
    trouble: str
    commits: Histogram | None
    logs: HeldLogs | None = None


def holding(hosted: Iterable[Hosting]) -> Holding:
    """Summed up; takes about a microsecond for each configuration."""
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
    return Holding(
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
