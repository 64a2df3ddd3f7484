"""The process of the commands `server` and `consensus`, from the start to a clean end.

SIGTERM and SIGINT end a process cleanly, and the second signal at once. A clean end takes no more
requests, finishes the requests taken (requests handled, commits on the disk, replies sent) and
exits with status 0. An end at once is like a crash, and safe: acknowledged writes outlast the
process if the cluster file says so. Before serving, a process has promised no client anything, and
the first signal ends the process at once, too.

Modules needed by some processes are imported by these alone.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ares import compiled
from ares.cluster.addresses import split_address
from ares.cluster.home import (
    SCRUBBED_NAME,
    STORE_NAME,
    IdentityClaim,
    claim_identity,
    held,
    store_identity,
)
from ares.cluster.new_cluster import is_free
from ares.cluster.settings import MemberSettings, ServerSettings, Settings
from ares.cluster.sites import at_site, labels_of, sites_of
from ares.cluster.tables import fitting
from ares.consensus.port import Consensus, Notes
from ares.metrics import ListenerTraffic
from ares.model.configuration import Configuration
from ares.model.errors import AresError, BadInput, DirectoryLost
from ares.model.identity import ClientId, ObjectName, ServerId
from ares.model.messages import DETAIL_CHARACTERS_MAX, Element, PullElement, Role
from ares.model.tag import Tag
from ares.net.native import ZmtpListener
from ares.net.transports import connections, listener_at
from ares.platform import json_logs, tasks
from ares.platform import systemd as service_manager
from ares.platform.loop import run
from ares.platform.memory import CLIENT_BYTES, SERVER_BYTES, keep_freed_memory
from ares.platform.release import version
from ares.platform.trusted_files import restrict_writes_to_user
from ares.security.certificates import Signer, Verifier
from ares.security.clients_file import AuthorisedClient, AuthorisedClients, Lock
from ares.security.roles import Admission
from ares.server.element_puller import PULLED_BYTES_AT_ONCE, ElementPuller
from ares.server.monitor import Monitor, Subject, WatchedMember, WatchedServer
from ares.server.queue_probe import QueueProbe
from ares.tracing.export import tracer_of
from ares.tracing.variables import tracing_of

if TYPE_CHECKING:
    from ares.autopilot.pilot import Autopilot
    from ares.client.runner import Runner
    from ares.net.port import Connections
    from ares.security.keys import SecretKey
    from ares.server.storage_server import StorageServer

REPAIR_TIMEOUT_S, REPAIR_BYTES_PER_S_MIN = 60.0, 10e6
_STOPPING = (signal.SIGTERM, signal.SIGINT)

_STORE_LOST = "the data of an earlier run of this server is set aside: serving under a new identity"
_MEMORY_LOST = (
    "the memory of an earlier run of this server is lost: serving under a new identity; "
    "configurations that name the earlier one count this server as crashed until a reconfiguration"
)

log = logging.getLogger(__name__)

# -- keys --------------------------------------------------------------------------------------


class Guard(Struct, frozen=True):
    """The protection of a process in a cluster with keys.

    ``lock``: for the listener; ``admission``: for the requests of clients. Both are None in a
    cluster without keys.
    """

    lock: Lock | None = None
    admission: Admission | None = None


def guard_of(settings: Settings, id: str, public_key: str) -> Guard:
    """Return the guard of the server or consensus member ``id``.

    Raises :class:`ares.BadInput` if the secret or the list of clients cannot be used.
    """
    security = settings.security
    if security is None:
        return Guard()
    key = security.process_key(id, public_key)
    clients = AuthorisedClients(security.clients_path, extra=processes_as_clients(settings))
    return Guard(
        Lock(key, clients), Admission(clients, Verifier(security.decision_key, settings.initial))
    )


def processes_as_clients(settings: Settings) -> dict[str, AuthorisedClient]:
    """Return the cluster's own processes as clients, by key.

    Servers read from each other to repair damaged elements, and consensus members may reconfigure
    (autopilot). The writer of the cluster file names these processes, by public key; an attacker in
    a server can therefore read the elements of all servers, and no more.
    """
    servers = [
        AuthorisedClient(server.id, server.public_key, Role.READ, server.id)
        for server in settings.servers.values()
    ]
    members = [
        AuthorisedClient(member.id, member.public_key, Role.RECONFIGURE)
        for member in settings.members.values()
    ]
    return {client.key: client for client in [*servers, *members]}


def certifying(settings: Settings) -> Callable[[Consensus], Consensus] | None:
    """Return a function that puts certificates on a member's decisions.

    Raises :class:`ares.BadInput` if the key for certificates cannot be used.
    """
    security = settings.security
    if security is None:
        return None
    from ares.consensus.certified import CertifiedConsensus

    signer, verifier = (
        Signer(security.signing_key()),
        Verifier(security.decision_key, settings.initial),
    )
    return lambda consensus: CertifiedConsensus(consensus, settings.initial, signer, verifier)


# -- clients inside processes ------------------------------------------------------------------


def _own_connections(settings: Settings, key: "SecretKey | None") -> "Connections":
    """Return connections of a server under its ``key``, with the server's own bound of frames."""
    value_bytes = settings.limits.value_bytes
    sockets = settings.sockets
    return connections(key, settings.transport, value_bytes=value_bytes, sockets=sockets)


def _repair_timeout_s(length: int) -> float:
    return REPAIR_TIMEOUT_S + length / REPAIR_BYTES_PER_S_MIN


class ElementClient:
    """The client through which ``server`` asks other servers for elements.

    The elements are for a repair of the server's own element, or for bringing. The client connects
    at the first question. Close it at the end.
    """

    def __init__(self, settings: Settings, server: ServerSettings) -> None:
        self._settings = settings
        self._server = server
        self._runner: Runner | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def rebuilt(
        self, configuration: Configuration, object: ObjectName, tag: Tag, length: int
    ) -> Element | None:
        """Return a rebuilt element; see :data:`ares.server.scrub.Pull`."""
        from ares.registers.repair import rebuild_element

        runner = self._connected()
        rebuilt = rebuild_element(
            configuration, object, tag, length, self._server.id, runner.session.readiness.suspects
        )
        return await runner.run(rebuilt, f"repair of {object!r}", _repair_timeout_s(length))

    def fetch(
        self,
        request: PullElement,
        target: Configuration,
        done: Callable[[Element | None, str], None],
    ) -> None:
        """Fetch an element; see :data:`ares.server.element_puller.Fetch`.

        Without certificates, which prove the origin of a configuration, only servers of the cluster
        file are asked.
        """
        strangers = [
            server for server in request.source.server_ids if server not in self._settings.servers
        ]
        if strangers and self._settings.security is None:
            done(
                None,
                f"its cluster file knows nothing of {', '.join(strangers)[:DETAIL_CHARACTERS_MAX]}",
            )
            return
        task = tasks.begin(self._fetch(request, target, done), "bringing of an element")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fetch(
        self,
        request: PullElement,
        target: Configuration,
        done: Callable[[Element | None, str], None],
    ) -> None:
        from ares.registers.repair import bring_element

        element, why = None, "too few of these servers have it (any more)"
        try:
            runner = self._connected()
            brought = bring_element(
                request, target, self._server.id, runner.session.readiness.suspects
            )
            timeout_s = _repair_timeout_s(request.length)
            element = await runner.run(brought, f"bringing of {request.object!r}", timeout_s)
        except AresError as error:
            why = str(error)[:DETAIL_CHARACTERS_MAX]
        except Exception as error:  # the mover needs an answer to any peer's message
            why = f"a mistake in ares: {error!r}"[:DETAIL_CHARACTERS_MAX]
            log.exception("a version could not be brought here")
        done(element, why)

    def _connected(self) -> "Runner":
        from ares.client.runner import Runner
        from ares.consensus.local import LocalConsensus

        settings, server = self._settings, self._server
        if self._runner is None:
            key = (
                None
                if settings.security is None
                else settings.security.process_key(server.id, server.public_key)
            )
            # a damaged element is asked for in its own configuration, not in later ones
            no_consensus = LocalConsensus()
            tracer = tracer_of(tracing_of(settings.tracing, os.environ), "ares-repair")
            self._runner = Runner(
                ClientId(secrets.randbits(64)),
                _own_connections(settings, key),
                no_consensus,
                tracer,
            )
            self._runner.learn(list(settings.book().values()))
        return self._runner

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._runner is not None:
            await self._runner.close()


def piloted(
    settings: Settings, member: MemberSettings
) -> "Callable[[Consensus, Callable[[], bool], Notes], Autopilot] | None":
    """Return a function that makes the autopilot of ``member`` on the event loop.

    None if the cluster file has no autopilot. The autopilot decides through the member itself. With
    keys, the autopilot is a client of the servers under the member's key. Raises
    :class:`ares.BadInput` if the member's secret cannot be used.
    """
    asked = settings.autopilot
    if asked is None:
        return None
    from ares.autopilot.lookout import Lookout
    from ares.autopilot.pilot import Autopilot
    from ares.client.connect import manager_of
    from ares.reconfig.view import Switches

    keep_freed_memory(CLIENT_BYTES)
    key = (
        None
        if settings.security is None
        else settings.security.process_key(member.id, member.public_key)
    )

    site = member.site if member.site in sites_of(settings) else None
    own = replace(settings, client=replace(settings.client, site=site))

    def make(consensus: Consensus, leads: Callable[[], bool], notes: Notes) -> Autopilot:
        manager = manager_of(
            own,
            lambda: connections(key, settings.transport, sockets=settings.sockets),
            consensus,
            Switches(ahead=settings.client.ahead),
            service="ares-autopilot",
        )
        lookout = Lookout(manager, settings.book(), labels_of(settings), member.site)
        return Autopilot(lookout, leads, asked, placed=partial(at_site, settings), notes=notes)

    return make


# -- a process ---------------------------------------------------------------------------------


class ProcessLifecycle:
    """The frame of a process: it reports start, service and end, and hears the signal to stop.

    Reports go to systemd and over HTTP. ``listener``: for the work. ``traffic``: the counts of the
    work. ``stop``: set when the process is to end.
    """

    def __init__(
        self, settings: Settings, own: ServerSettings | MemberSettings, lock: Lock | None
    ) -> None:
        threading.excepthook = tasks.report_thread
        self.stop = asyncio.Event()
        self.traffic = ListenerTraffic()
        limits, transport = fitting(settings.limits), settings.transport
        self.listener = listener_at(
            own.address, lock, limits, self.traffic, transport, settings.sockets
        )
        self._id = own.id
        log.info("starting", extra={"version": version(), "core": compiled.CORE_NAME})
        self._probe = QueueProbe(self.traffic.queueing)
        self._monitor: Monitor | None = None
        if own.http:
            self._monitor = Monitor(
                own.id, own.http, self.traffic, self.listener, getattr(own, "site", "")
            )

    def entrance(self, reason: Callable[[], str]) -> contextlib.AbstractContextManager[object]:
        """Give ``reason()`` over HTTP, and to clients while a start lasts.

        libzmq's listener has no such entrance for clients.
        """
        if self._monitor is not None:
            self._monitor.starting(reason)
        if isinstance(self.listener, ZmtpListener):
            return self.listener.giving_reason(reason)
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def probed(self) -> Iterator[None]:
        """Probe the event loop, and answer over HTTP, while the block runs.

        Raises:
            BadInput: The address for HTTP cannot be used.
        """
        with contextlib.ExitStack() as ends:
            if self._monitor is not None:
                self._monitor.start()
                ends.callback(self._monitor.close)
            self._probe.start()
            ends.callback(self._probe.close)
            yield

    def serving(self, subject: Subject) -> None:
        """Write READY, the process's id and the bound address, for which the starter waits."""
        loop = asyncio.get_running_loop()
        for number in _STOPPING:
            loop.add_signal_handler(number, self._end, number)
        try:
            sys.stdout.write(f"READY {self._id} {self.listener.address}\n")
            sys.stdout.flush()
        except OSError as error:  # a server serves, even without a standard output
            log.warning("READY could not be written to standard output: %s", error)
        if self._monitor is not None:
            self._monitor.watch(subject)
        service_manager.notify(service_manager.NOTIFY_READY, f"{self._id} serves")

    def _end(self, number: signal.Signals) -> None:
        log.info("stopping on %s; a second signal ends this process at once", number.name)
        loop = asyncio.get_running_loop()
        for other in _STOPPING:
            loop.remove_signal_handler(other)
            signal.signal(other, signal.SIG_DFL)
        if self._monitor is not None:
            self._monitor.ending()
        service_manager.notify(
            service_manager.NOTIFY_STOPPING,
            f"{self._id} finishes the requests that it has accepted",
        )
        self.stop.set()


def run_storage_server(file: Path, id: str, forget: bool = False) -> None:
    """Serve as the storage server ``id`` of the cluster file until SIGTERM or SIGINT.

    ``forget``: begin empty and under a new identity, even if an earlier run left a store. Raises
    :class:`BadInput` and the errors of home.py.
    """
    settings = Settings.load(file)
    server = settings.servers.get(ServerId(id))
    if server is None:
        raise BadInput(
            f"{file} has no [[server]] with id {id!r}; known: {', '.join(settings.servers)}"
        )
    json_logs.set_up(id)
    restrict_writes_to_user()
    guard = guard_of(settings, id, server.public_key)
    with _named(settings, server), held(server.data):
        for address in filter(None, (server.address, server.http)):
            # found now, before the identity is claimed
            if not is_free(*split_address(address)):
                raise BadInput(
                    f"{id} cannot listen on {address}: another program does, or it is no address "
                    "of this machine; nothing was started"
                )
        claim = (store_identity if settings.durable else claim_identity)(
            server.data, server.identity, forget
        )
        if claim.lost:
            log.warning(
                _STORE_LOST if settings.durable else _MEMORY_LOST,
                extra={"identity": claim.identity},
            )
        run(_serve_objects(settings, server, claim, guard))


def run_consensus_member(file: Path, id: str) -> None:
    """Serve as the consensus member ``id`` of the cluster file until SIGTERM or SIGINT.

    Raises :class:`BadInput` and :class:`DirectoryLost`.
    """
    settings = Settings.load(file)
    member = settings.members.get(ServerId(id))
    if member is None:
        raise BadInput(
            f"{file} has no [[consensus]] with id {id!r}; known: "
            f"{', '.join(settings.members) or 'none'}"
        )
    json_logs.set_up(id)
    restrict_writes_to_user()
    with _named(settings, member):
        run(_serve_decisions(settings, member, guard_of(settings, id, member.public_key)))


@contextlib.contextmanager
def _named(settings: Settings, own: ServerSettings | MemberSettings) -> Iterator[None]:
    """Add the process and the cluster file to the error of a lost directory."""
    try:
        yield
    except DirectoryLost as error:
        raise DirectoryLost(
            error.directory, [own.id], settings.path, own.id in settings.members, error.record
        ) from None


async def _serve_objects(
    settings: Settings, server: ServerSettings, claim: IdentityClaim, guard: Guard
) -> None:
    from ares.server.scrub import ScrubPlan
    from ares.server.storage_process import ServingParts, run_server
    from ares.store.journal.disk import TimedDisk

    tracer = tracer_of(tracing_of(settings.tracing, os.environ), "ares-server", site=server.site)

    def serving(host: "StorageServer") -> None:
        if tracer is not None:
            host.traced = partial(tracer.served, server.id, _address_attributes(server))
        bringing = ElementPuller(
            host.replica,
            host.put_for,
            life.listener.reply,
            asking.fetch,
            lambda: host.gathered_bytes > PULLED_BYTES_AT_ONCE,
        )
        host.bring, host.commits.committed = bringing.answer, bringing.begin
        life.serving(WatchedServer(host, disk.syncs))

    keep_freed_memory(SERVER_BYTES)
    life, disk = ProcessLifecycle(settings, server, guard.lock), TimedDisk()
    with life.probed(), contextlib.nullcontext() if tracer is None else contextlib.closing(tracer):
        journal, plan, log_journals = None, None, None
        async with contextlib.aclosing(ElementClient(settings, server)) as asking:
            if settings.durable:
                from ares.server.hosted_log import LOG_PLACE_BYTES
                from ares.store.journal.log_directory import LogDirectories
                from ares.store.journal.segment_journal import open_journal
                from ares.store.journal.segments import Owner

                owner = Owner(settings.initial.cluster_id, server.id, claim.identity)
                store = server.data / STORE_NAME
                journal = open_journal(store, owner, disk=disk)
                log_journals = LogDirectories(store, owner, disk, LOG_PLACE_BYTES)
                plan = ScrubPlan(
                    settings.scrub.every_h * 3600.0,
                    settings.scrub.bytes_per_s,
                    server.data / SCRUBBED_NAME,
                    asking.rebuilt,
                )
            parts = ServingParts(
                server.id,
                claim.identity,
                settings.initial,
                life.listener,
                life.stop,
                journal,
                guard.admission,
                serving,
                plan,
                life.traffic,
                _links(settings, server),
                log_journals,
                settings.logs.fetch_bytes_per_s,
                sites_of(settings),
                settings.published,
                settings.limits.value_bytes,
                life.entrance,
            )
            await run_server(parts)


def _links(settings: Settings, server: ServerSettings) -> "Connections":
    """Return connections of this server to all servers of the cluster file."""
    security = settings.security
    key = None if security is None else security.process_key(server.id, server.public_key)
    links = _own_connections(settings, key)
    for known in settings.book().values():
        links.learn(known.id, known.address)
    return links


def _address_attributes(server: ServerSettings) -> dict[str, str | int]:
    host, port = split_address(server.address)
    return {"server.address": host, "server.port": port}


async def _serve_decisions(settings: Settings, member: MemberSettings, guard: Guard) -> None:
    from ares.consensus.member_host import ConsensusHost, MemberParts
    from ares.consensus.member_host import run_consensus_member as serve
    from ares.consensus.raft.member import RaftMember

    def serving(host: ConsensusHost) -> None:
        life.serving(WatchedMember(host))

    raft_addresses = {other.id: other.raft for other in settings.members.values()}
    life = ProcessLifecycle(settings, member, guard.lock)
    parts = MemberParts(
        life.listener,
        life.stop,
        certifying(settings),
        guard.admission,
        serving,
        piloted(settings, member),
    )
    with life.probed():
        raft = RaftMember(
            member.id, raft_addresses, member.data, settings.password(), settings.beat_s
        )
        await serve(raft, parts)
