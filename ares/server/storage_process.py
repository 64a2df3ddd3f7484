"""A storage server from start to end: recovery, service, and a clean end of the journal."""

import asyncio
import gc
import logging
import math
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from ares import compiled
from ares.metrics import ListenerTraffic
from ares.model.configuration import Configuration
from ares.model.errors import STARTING, StoreFailed
from ares.model.identity import VALUE_BYTES_DEFAULT, ServerId
from ares.model.units import size
from ares.net.port import Connections, Listener
from ares.platform import tasks
from ares.replica.replica import USUAL_PARTS, Replica, ReplicaParts
from ares.security.roles import Admission
from ares.server.hosted_logs import LOGS_TICK_S, HostedLogs, LogsParts, RestoredLogs
from ares.server.scrub import Scrubber, ScrubPlan
from ares.server.storage_server import ServerParts, StorageServer
from ares.store.port import Journal, NoJournal, SharedLogJournals

AHEAD_TICK_S = 10.0
"""Seconds between two looks for copies ahead that are to be dropped."""

log = logging.getLogger(__name__)


def restored(
    server: ServerId,
    identity: str,
    initial: Configuration,
    journal: Journal,
    parts: ReplicaParts = USUAL_PARTS,
) -> Replica:
    """Return the server's state from ``journal``, with the state hidden from the collector.

    To be called once in a process: the garbage collector never looks at the state, nor at any
    object that exists already. Servers of a domain grow alike and look for garbage at the same
    time, hence no quorum hides the look: the look must be short.

    Raises :class:`ares.model.errors.StoreDamaged`, :class:`ares.model.errors.ForeignStore` or
    :class:`ares.BadInput`.
    """
    gc.disable()  # millions of new objects and no garbage: a search would take most of the time
    try:
        replica = recovered(server, identity, initial, journal, parts)
    finally:
        gc.enable()
    gc.freeze()
    return replica


def recovered(
    server: ServerId,
    identity: str,
    initial: Configuration,
    journal: Journal,
    parts: ReplicaParts = USUAL_PARTS,
) -> Replica:
    """Return the server's state from ``journal``, as often as called; see :func:`restored`."""
    replica = Replica(server, identity, initial, journal.keeps, parts)
    replica.begin_restoring()
    for place, facts in journal.recover(replica):
        for fact in facts:
            replica.restore(fact, place)
    replica.restored()
    return replica


class ServingParts(NamedTuple):
    """The parts of a serving process."""

    server: ServerId
    identity: str
    initial: Configuration
    """c0 of the cluster file."""

    listener: Listener
    stop: asyncio.Event
    """Ends the service when set; a failing disk sets it, too."""

    journal: Journal | None = None
    """None keeps everything in memory."""

    admission: Admission | None = None
    """The permissions of clients."""

    serving: Callable[[StorageServer], None] = lambda host: None
    """Called with the host."""

    plan: ScrubPlan | None = None
    """The care for the disk; None: no care."""

    traffic: ListenerTraffic | None = None
    """The listener's counts."""

    links: Connections | None = None
    """Connections to other servers, for logs; None: no logs."""

    log_journals: SharedLogJournals | None = None
    """The journals of logs; None: in memory."""

    fetch_bytes_per_s: float = math.inf
    """The rate for old entries."""

    sites: Iterable[str] = ()
    """The sites of counted clients."""

    published: bool = False
    """Permission for the algorithms as published."""

    value_bytes: int = VALUE_BYTES_DEFAULT
    """Bytes of the largest value taken from clients."""

    entrance: Callable[[Callable[[], str]], AbstractContextManager[object]] = nullcontext
    """Gives clients the result of its argument while the start lasts (ares/net/entrance.py)."""


async def run_server(parts: ServingParts) -> None:
    """Serve until ``stop`` is set, reply to the requests taken, and close the journal.

    Raises the errors of :func:`restored` and ``listener.serve``, and :class:`StoreFailed` when the
    disk fails.
    """
    server, listener, stop = parts.server, parts.listener, parts.stop
    journal = parts.journal or NoJournal()
    failure: list[OSError] = []
    logs: HostedLogs | None = None

    def fail(error: OSError) -> None:
        failure.append(error)
        stop.set()

    try:
        if parts.links is not None:
            logs = _logs(parts, parts.links, fail)
        replica = _restore(parts, journal, logs)
        host = StorageServer(
            replica,
            journal,
            ServerParts(
                listener.reply,
                fail,
                parts.admission,
                throttle=listener,
                traffic=parts.traffic,
                logs=logs,
                sites=parts.sites,
                published=parts.published,
                meter=listener.meter,
            ),
        )
        listener.seen, listener.core = host.users.seen, host.core
        address = await listener.serve(host.handler)
        log.info(
            "serving",
            extra={
                "address": address,
                "identity": parts.identity,
                "bytes_on_disk": journal.bytes_on_disk,
                "core": compiled.CORE_NAME,
            },
        )
        parts.serving(host)
        plan, scrubbing = parts.plan, None
        if plan is not None:
            scrubbing = tasks.keep(lambda: Scrubber(host, journal, plan).run(), "scrub")
        timers = _timers(replica, logs)
        await stop.wait()
        if scrubbing is not None:
            scrubbing.cancel()
            await asyncio.wait([scrubbing])
        await host.finish()
        for timer in timers:
            timer.cancel()
    finally:
        await _close(parts, journal, logs)
    if failure:
        raise StoreFailed(f"of {server}", failure[0].strerror or str(failure[0])) from failure[0]
    log.info("stopped")


def _restore(parts: ServingParts, journal: Journal, logs: HostedLogs | None) -> Replica:
    """Restore the objects and the logs, while clients are told how far this is."""
    with parts.entrance(lambda: start_reason(journal, None if logs is None else logs.restoring)):
        replica = _replica(parts, journal)
        if logs is not None:
            logs.restore()
    return replica


def start_reason(journal: Journal, logs: RestoredLogs | None) -> str:
    """Return how far a start is: with the objects' ``journal``, and with the logs afterwards.

    Callable from any thread.
    """
    if logs is None:
        return STARTING + (_read(journal, "its journal") or "its journal is opened")
    told = f"{logs.done} of its {logs.total} logs are read"
    present = logs.present.journal
    more = "" if present is None else _read(present, "the next")
    return STARTING + (f"{told}, {more}" if more else told)


def _read(journal: Journal, name: str) -> str:
    """Return the read share of a journal, or nothing if its size is not known."""
    total = journal.to_read_bytes
    percent = 100 * journal.read_bytes // total if total else 0
    return f"{percent} % of {name} of {size(total)} is read" if total else ""


async def _close(parts: ServingParts, journal: Journal, logs: HostedLogs | None) -> None:
    """Close listener, journals and connections, also after a failed start."""
    await parts.listener.close()
    journal.close()
    if logs is not None:
        await logs.close()


def _timers(replica: Replica, logs: HostedLogs | None) -> list[asyncio.Task[None]]:
    timers = [tasks.every(AHEAD_TICK_S, replica.ahead.expire, "timer of copies ahead")]
    if logs is not None:
        timers.append(tasks.every(LOGS_TICK_S, logs.tick, "timer of logs"))
    return timers


def _replica(parts: ServingParts, journal: Journal) -> Replica:
    return restored(
        parts.server,
        parts.identity,
        parts.initial,
        journal,
        compiled.replica_parts(time.time, parts.value_bytes),
    )


def _logs(parts: ServingParts, links: Connections, fail: Callable[[OSError], None]) -> HostedLogs:
    return HostedLogs(
        LogsParts(
            parts.server,
            parts.identity,
            parts.initial,
            parts.listener.reply,
            fail,
            asyncio.get_running_loop(),
            links,
            parts.log_journals,
            fetch_bytes_per_s=parts.fetch_bytes_per_s,
            meter=parts.listener.meter,
        )
    )
