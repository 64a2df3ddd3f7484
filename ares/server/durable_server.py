"""A durable storage server from its start to its end: what its journal tells, then serving, then a journal that is whole."""

import asyncio
import gc
import logging
import time
from collections.abc import Callable

from ares.model.configuration import Configuration
from ares.model.errors import StoreFailed
from ares.model.identity import ServerId
from ares.net.port import Listener
from ares.replica.hosting import Clock, no_clock
from ares.replica.state import Outlasting
from ares.security.roles import Admission
from ares.server.durable_host import DurableHost
from ares.server.host import Host
from ares.server.scrub import Care, Scrubbing
from ares.store.port import Journal

log = logging.getLogger(__name__)


def restored(server: ServerId, identity: str, initial: Configuration, journal: Journal, clock: Clock = no_clock) -> Outlasting:
    """The server's state as ``journal`` tells it, once in a process.

    Raises :class:`ares.model.errors.StoreDamaged`, :class:`ares.model.errors.ForeignStore` or :class:`ares.BadInput`.
    """
    gc.disable()  # millions of objects come and none goes: looking for garbage among them takes most of the time
    try:
        outlasting = recovered(server, identity, initial, journal, clock)
    finally:
        gc.enable()
    gc.freeze()
    return outlasting


def recovered(server: ServerId, identity: str, initial: Configuration, journal: Journal, clock: Clock = no_clock) -> Outlasting:
    """:func:`restored`, as often as you like."""
    outlasting = Outlasting(server, identity, initial, clock)
    outlasting.begin_restoring()
    for place, facts in journal.recover():
        for fact in facts:
            outlasting.restore(fact, place)
    outlasting.restored()
    return outlasting


async def run_durable_server(
    server: ServerId,
    identity: str,
    initial: Configuration,
    journal: Journal,
    listener: Listener,
    stop: asyncio.Event,
    admission: Admission | None = None,
    serving: Callable[[Host], None] = lambda host: None,
    care: Care | None = None,
) -> None:
    """Serve until ``stop`` is set, and reply to what was taken; the journal is closed then. ``initial``: c0 of the cluster file. ``admission``: what
    each client may ask. ``serving`` is told of the host. ``care``: how it looks after its disk; None: not at all.

    Raises what :func:`restored` and ``listener.serve`` do, and :class:`StoreFailed` when the disk fails.
    """
    failure: list[OSError] = []
    ended = asyncio.Event()

    def fail(error: OSError) -> None:
        failure.append(error)
        ended.set()

    try:
        host = DurableHost(restored(server, identity, initial, journal, time.time), journal, listener.reply, fail, admission, throttle=listener)
        address = await listener.serve(host.handler)
        log.info("serving", extra={"address": address, "identity": identity, "bytes_on_disk": journal.bytes_on_disk})
        serving(host)
        caring = None if care is None else asyncio.create_task(Scrubbing(host, journal, care).run())
        waits = [asyncio.create_task(event.wait()) for event in (stop, ended)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if caring is not None:
            caring.cancel()
            await asyncio.wait([caring])
        await host.finish()
        await listener.close()
    finally:
        journal.close()
    if failure:
        raise StoreFailed(f"of {server}", failure[0].strerror or str(failure[0])) from failure[0]
    log.info("stopped")
