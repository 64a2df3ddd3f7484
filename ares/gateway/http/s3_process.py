"""The process of a gateway: one client of the cluster, and a listener for S3.

SIGTERM and SIGINT end it cleanly: no connection is taken any more, requests at work finish in
bounded time, the session with the buckets ends. A second signal ends it at once, which is safe as a
crash is. SIGHUP reads the certificate again, and opens the file of the access log again.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from contextlib import ExitStack, closing
from pathlib import Path

from msgspec import Struct

from ares.client.buckets.bucket_errors import BucketNotFound
from ares.client.connect import GATEWAY_SERVICE, connections_of, consensus_of, manager_of
from ares.client.manager import Manager, buckets_of
from ares.cluster.addresses import split_address
from ares.cluster.settings import Settings
from ares.gateway.access.access_keys import AccessKeys
from ares.gateway.access.issued_keys import seal_in_use
from ares.gateway.access.reserved_buckets import KEYS_BUCKET
from ares.gateway.access.sealed_keys import GatewaySeal
from ares.gateway.actions.gateway_services import GatewayServices
from ares.gateway.http.access_log import AccessLog
from ares.gateway.http.gateway_admission import GatewayAdmission
from ares.gateway.http.gateway_app import GatewayApp, GatewayParts
from ares.gateway.http.gateway_limits import GatewayLimits
from ares.gateway.http.gateway_listener import GatewayListener
from ares.gateway.http.gateway_monitor import GatewayMonitor, WatchedGateway
from ares.gateway.http.tls_files import CHECK_TLS_S, TlsFiles
from ares.gateway.http.worker_supervisor import WorkerLink, WorkerSupervisor
from ares.metrics import GatewayTraffic
from ares.model.errors import AresError, BadInput
from ares.platform import json_logs, tasks
from ares.platform import systemd as service_manager
from ares.platform.loop import run
from ares.platform.memory import CLIENT_BYTES, keep_freed_memory
from ares.server.queue_probe import QueueProbe
from ares.tracing.export import tracer_of
from ares.tracing.request_spans import RequestSpans
from ares.tracing.variables import tracing_of

START_S = 60.0
"""Time in which the log of the buckets must answer a starting gateway."""

_END_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_NO_KEY = (
    "no S3 client has an access key yet: `ares-cli bucket key new root --role admin` makes the "
    "first one, and the key of the gateways. Nothing was started"
)

_log = logging.getLogger(__name__)


class GatewayPlan(Struct, frozen=True):
    """A gateway to run. ``http``: the address for health and numbers; empty without.

    ``certificate``, ``key``: files for TLS; None for HTTP without TLS. ``access_log``: a file, or
    ``-`` for standard output; empty without a log.
    """

    settings: Settings
    listen: str
    seal: Path
    region: str
    domains: tuple[str, ...] = ()
    http: str = ""
    processes: int = 1
    certificate: Path | None = None
    key: Path | None = None
    access_log: str = ""
    limits: GatewayLimits = GatewayLimits()


def run_gateway(plan: GatewayPlan) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit status. Raises :class:`ares.BadInput`."""
    json_logs.set_up("gateway")
    for number in _END_SIGNALS:
        signal.signal(number, signal.SIG_DFL)  # nothing is promised before service
    tls = None
    if plan.certificate is not None and plan.key is not None:
        tls = TlsFiles(plan.certificate, plan.key)
    with closing(_listening(plan.listen)) as listening:
        if plan.processes == 1:
            run(GatewayWorker(plan, listening, tls).serve())
            return 0

        def work(link: WorkerLink) -> int:
            json_logs.set_up(f"gateway-{link.number}")
            try:
                run(GatewayWorker(plan, listening, tls, link).serve())
            except AresError as error:
                sys.stderr.write(f"error: {error}\n")
                return 2 if isinstance(error, BadInput) else 1
            return 0

        return WorkerSupervisor(plan.processes, work).run()


def _listening(address: str) -> socket.socket:
    """Return the listening socket. Raises :class:`ares.BadInput` if the address is taken."""
    try:
        return socket.create_server(split_address(address, port_min=0), backlog=socket.SOMAXCONN)
    except OSError as error:
        raise BadInput(
            f"the gateway cannot listen on {address}: {os.strerror(error.errno or 0)}. If another "
            "program has the port, --listen gives another one. Nothing was started"
        ) from error


class GatewayWorker:
    """A process of a gateway. ``link``: to its parent, if it is one of several."""

    def __init__(
        self,
        plan: GatewayPlan,
        listening: socket.socket,
        tls: TlsFiles | None,
        link: WorkerLink | None = None,
    ) -> None:
        self._plan = plan
        self._listening = listening
        self._tls = tls
        self._link = link
        self._number = 0 if link is None else link.number
        self._id = "gateway" if link is None else f"gateway-{link.number}"
        self._traffic = GatewayTraffic()
        self._admission = GatewayAdmission(plan.limits)
        self._access_log: AccessLog | None = None

    async def serve(self) -> None:
        """Serve until a signal, or until the parent is gone. Raises :class:`ares.BadInput`."""
        self._stop = asyncio.Event()
        threading.excepthook = tasks.report_thread
        keep_freed_memory(CLIENT_BYTES)
        settings = self._plan.settings
        tracer = tracer_of(tracing_of(settings.tracing, os.environ), GATEWAY_SERVICE)
        manager = manager_of(
            settings,
            lambda: connections_of(settings),
            consensus_of(settings),
            tracer=tracer,
            service=f"{GATEWAY_SERVICE}-{self._number}",
        )
        with ExitStack() as ends:
            if self._plan.access_log:
                self._access_log = AccessLog(self._plan.access_log, self._id)
                ends.callback(self._access_log.close)
            async with manager:
                monitor = self._monitored(ends)
                seal = await self._seal(manager)
                buckets = buckets_of(manager)
                services = GatewayServices(
                    buckets, settings.client.timeout_s, region=self._plan.region
                )
                parts = GatewayParts(
                    services,
                    AccessKeys(buckets, seal, services.timeout_s),
                    self._admission,
                    self._traffic,
                    RequestSpans(tracer),
                    self._plan.domains,
                    self._access_log,
                )
                listener = GatewayListener(
                    GatewayApp(parts).serve, self._plan.limits, self._traffic, self._tls
                )
                listener.start([self._listening])
                if monitor is not None:
                    monitor.watch(WatchedGateway(buckets, listener, self._admission))
                self._hear_signals()
                self._tell_ready()
                await self._stop.wait()
                if monitor is not None:
                    monitor.ending()
                await listener.close()

    def _monitored(self, ends: ExitStack) -> GatewayMonitor | None:
        """Begin the pages of health and numbers; worker N has the N-th port from the given one."""
        probe = QueueProbe(self._traffic.queueing)
        probe.start()
        ends.callback(probe.close)
        if not self._plan.http:
            return None
        host, port = split_address(self._plan.http)
        monitor = GatewayMonitor(self._id, f"{host}:{port + self._number}", self._traffic)
        monitor.start()
        ends.callback(monitor.close)
        return monitor

    async def _seal(self, manager: Manager) -> GatewaySeal:
        """Return the key of the gateways, once the log of the buckets answers.

        Raises :class:`ares.BadInput` if there is no access key, or the key is another cluster's.
        """
        try:
            keys = await manager.bucket(KEYS_BUCKET, timeout_s=START_S)
        except BucketNotFound:
            raise BadInput(_NO_KEY) from None
        return await seal_in_use(keys, self._plan.settings.path, self._plan.seal)

    def _hear_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _END_SIGNALS:
            loop.add_signal_handler(number, self._end, number)
        loop.add_signal_handler(signal.SIGHUP, self._take_new_files)
        if self._tls is not None:
            self._checking = tasks.every(CHECK_TLS_S, self._tls.reload_if_changed, "look at TLS")
        if self._link is not None:
            loop.add_reader(self._link.parent, self._parent_gone)

    def _take_new_files(self) -> None:
        """Read the certificate again, and begin a new file of the access log after a rotation."""
        if self._tls is not None:
            self._tls.reload()
        if self._access_log is not None:
            self._access_log.reopen()

    def _parent_gone(self) -> None:
        assert self._link is not None
        asyncio.get_running_loop().remove_reader(self._link.parent)
        _log.error("the parent of this worker is gone: it ends, too")
        self._stop.set()

    def _end(self, number: signal.Signals) -> None:
        _log.info("stopping on %s; a second signal ends this process at once", number.name)
        loop = asyncio.get_running_loop()
        for other in _END_SIGNALS:
            loop.remove_signal_handler(other)
            signal.signal(other, signal.SIG_DFL)
        service_manager.notify(
            service_manager.NOTIFY_STOPPING, "the gateway finishes the requests at work"
        )
        self._stop.set()

    def _tell_ready(self) -> None:
        """Write READY, the process's id and the bound address, for which the starter waits."""
        host, port = self._listening.getsockname()
        try:
            sys.stdout.write(f"READY {self._id} {host}:{port}\n")
            sys.stdout.flush()
        except OSError as error:
            _log.warning("READY could not be written to standard output: %s", error)
        if self._link is not None:
            self._link.serves()
        service_manager.notify(service_manager.NOTIFY_READY, f"{self._id} serves")
