"""A storage server from start to end: recovery, service, and a clean end of the journal."""

import asyncio
import gc
import logging
import math
import time
from collections.abc import Callable, Iterable

from ares.model.configuration import Configuration
from ares.model.errors import StoreFailed
from ares.model.identity import ServerId
from ares.net.port import Connections, Listener
from ares.platform import compiled, tasks
from ares.platform.metrics import ListenerTraffic
from ares.replica.configuration_state import Clock, no_clock
from ares.replica.replica import Replica
from ares.security.roles import Admission
from ares.server.hosted_logs import LOGS_TICK_S, HostedLogs
from ares.server.scrub import Scrubber, ScrubPlan
from ares.server.storage_server import StorageServer
from ares.store.port import Journal, NoJournal, SharedLogJournals

log = logging.getLogger(__name__)


def restored(
    server: ServerId,
    identity: str,
    initial: Configuration,
    journal: Journal,
    clock: Clock = no_clock,
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
        replica = recovered(server, identity, initial, journal, clock)
    finally:
        gc.enable()
    gc.freeze()
    return replica


def recovered(
    server: ServerId,
    identity: str,
    initial: Configuration,
    journal: Journal,
    clock: Clock = no_clock,
) -> Replica:
    """Return the server's state from ``journal``, as often as called; see :func:`restored`."""
    replica = Replica(server, identity, initial, clock, journal.keeps)
    replica.begin_restoring()
    for place, facts in journal.recover():
        for fact in facts:
            replica.restore(fact, place)
    replica.restored()
    return replica


async def run_server(
    server: ServerId,
    identity: str,
    initial: Configuration,
    listener: Listener,
    stop: asyncio.Event,
    journal: Journal | None = None,
    admission: Admission | None = None,
    serving: Callable[[StorageServer], None] = lambda host: None,
    plan: ScrubPlan | None = None,
    traffic: ListenerTraffic | None = None,
    links: Connections | None = None,
    log_journals: SharedLogJournals | None = None,
    fetch_bytes_per_s: float = math.inf,
    sites: Iterable[str] = (),
) -> None:
    """Serve until ``stop`` is set, reply to the requests taken, and close the journal.

    A failing disk sets ``stop``, too. ``initial``: c0 of the cluster file. ``journal``: None keeps
    everything in memory. ``admission``: the permissions of clients. ``serving``: called with the
    host. ``plan``: the care for the disk; None: no care. ``traffic``: the listener's counts.
    ``links``: connections to other servers, for logs; None: no logs. ``log_journals``: the journals
    of logs; None: in memory. ``fetch_bytes_per_s``: the rate for old entries. ``sites``: the sites
    of counted clients.

    Raises the errors of :func:`restored` and ``listener.serve``, and :class:`StoreFailed` when the
    disk fails.
    """
    journal = journal or NoJournal()
    failure: list[OSError] = []
    logs: HostedLogs | None = None

    def fail(error: OSError) -> None:
        failure.append(error)
        stop.set()

    try:
        replica = restored(server, identity, initial, journal, time.time)
        if links is not None:
            loop = asyncio.get_running_loop()
            logs = HostedLogs(
                server,
                identity,
                initial,
                listener.reply,
                fail,
                loop,
                links,
                log_journals,
                fetch_bytes_per_s=fetch_bytes_per_s,
                meter=listener.meter,
            )
            logs.restore()
        host = StorageServer(
            replica,
            journal,
            listener.reply,
            fail,
            admission,
            throttle=listener,
            traffic=traffic,
            logs=logs,
            sites=sites,
            meter=listener.meter,
        )
        listener.seen, listener.core = host.users.seen, host.core
        address = await listener.serve(host.handler)
        log.info(
            "serving",
            extra={
                "address": address,
                "identity": identity,
                "bytes_on_disk": journal.bytes_on_disk,
                "core": compiled.CORE_NAME,
            },
        )
        serving(host)
        scrubbing = None
        if plan is not None:
            scrubbing = tasks.keep(lambda: Scrubber(host, journal, plan).run(), "scrub")
        ticking = None if logs is None else tasks.every(LOGS_TICK_S, logs.tick, "timer of logs")
        await stop.wait()
        if scrubbing is not None:
            scrubbing.cancel()
            await asyncio.wait([scrubbing])
        await host.finish()
        await listener.close()
        if ticking is not None:
            ticking.cancel()
    finally:
        journal.close()
        if logs is not None:
            await logs.close()
    if failure:
        raise StoreFailed(f"of {server}", failure[0].strerror or str(failure[0])) from failure[0]
    log.info("stopped")
