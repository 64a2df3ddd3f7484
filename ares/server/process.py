"""What the commands `server` and `consensus` run: one process, from the cluster file to a clean end on SIGTERM (ares/server/stopping.py)."""

import asyncio
import contextlib
import gc
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from ares.cluster.cluster_file import is_free
from ares.cluster.home import SCRUBBED_NAME, STORE_NAME, Claim, claim_identity, held, store_identity
from ares.cluster.settings import MemberSettings, ServerSettings, Settings, split_address
from ares.cluster.tables import fitting
from ares.machine import logs
from ares.machine import systemd as service_manager
from ares.machine.loop import run
from ares.machine.memory import SERVER_BYTES, keep_freed_memory
from ares.machine.metrics import Traffic
from ares.machine.trusted_files import let_nobody_else_write
from ares.model.errors import BadInput, DirectoryLost
from ares.model.identity import ServerId
from ares.net.transports import listener_at
from ares.security.lock import Lock
from ares.server.guard import Guard, certifying, guard_of
from ares.server.monitor import Monitor, Subject, WatchedMember, WatchedServer
from ares.server.piloting import piloted
from ares.server.stopping import stop_on_signals

log = logging.getLogger(__name__)


class Life:
    """What one process does beside its work: says that it starts, serves and stops, to systemd and over HTTP, and hears when it is to stop.

    ``listener`` is for the work, ``stop`` is set when it is to end.
    """

    def __init__(self, settings: Settings, own: ServerSettings | MemberSettings, lock: Lock | None) -> None:
        self.stop = asyncio.Event()
        traffic = Traffic() if own.http else None
        self.listener = listener_at(own.address, lock, fitting(settings.limits), traffic, settings.transport)
        self._id = own.id
        self._monitor: Monitor[Any] | None = None
        if traffic is not None:
            self._monitor = Monitor(own.id, own.http, traffic, self.listener)

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Over HTTP, as long as this lasts. Raises :class:`BadInput` if that cannot be."""
        if self._monitor is None:
            yield
            return
        self._monitor.start()
        try:
            yield
        finally:
            self._monitor.close()

    def serving(self, subject: Subject[Any]) -> None:
        """Say READY, the process's id and the address bound: whoever started the process waits for that line."""
        stop_on_signals(self.stop, self._ending)
        try:
            typer.echo(f"READY {self._id} {self.listener.address}")
        except OSError as error:  # a server serves, whatever became of its standard output
            log.warning("READY could not be written to standard output: %s", error)
        if self._monitor is not None:
            self._monitor.watch(subject)
        service_manager.tell(service_manager.READY, f"{self._id} serves")

    def _ending(self) -> None:
        if self._monitor is not None:
            self._monitor.ending()
        service_manager.tell(service_manager.STOPPING, f"{self._id} finishes what it took")


def run_storage_server(file: Path, id: str, forget: bool = False) -> None:
    """Serve as the storage server ``id`` of the cluster file until SIGTERM or SIGINT. Raises :class:`BadInput` and what home.py does.

    ``forget``: begin anew, empty and under a new identity, whatever an earlier run left or did not leave.
    """
    settings = Settings.load(file)
    server = settings.servers.get(ServerId(id))
    if server is None:
        raise BadInput(f"{file} has no [[server]] with id {id!r}; known: {', '.join(settings.servers)}")
    logs.set_up(id)
    let_nobody_else_write()
    guard = guard_of(settings, id, server.public_key)
    with _named(settings, server), held(server.data):
        for address in filter(None, (server.address, server.http)):  # found now, not when the identity is spent
            if not is_free(*split_address(address)):
                raise BadInput(f"{id} cannot listen on {address}: another program does, or it is no address of this machine; nothing was started")
        if settings.durable:
            run(_serve_durably(settings, server, store_identity(server.data, server.identity, forget), guard))
            return
        claim = claim_identity(server.data, server.identity, forget)
        if claim.lost:
            log.warning(
                "an earlier run of this server ended and its memory with it: serving under a new identity; configurations that name the "
                "earlier one count this server as crashed until a reconfiguration",
                extra={"identity": claim.identity},
            )
        run(_serve_objects(settings, server, claim.identity, guard))


def run_consensus_member(file: Path, id: str) -> None:
    """Serve as the consensus member ``id`` of the cluster file until SIGTERM or SIGINT. Raises :class:`BadInput` and :class:`DirectoryLost`."""
    settings = Settings.load(file)
    member = settings.members.get(ServerId(id))
    if member is None:
        raise BadInput(f"{file} has no [[consensus]] with id {id!r}; known: {', '.join(settings.members) or 'none'}")
    logs.set_up(id)
    let_nobody_else_write()
    with _named(settings, member):
        run(_serve_decisions(settings, member, guard_of(settings, id, member.public_key)))


@contextlib.contextmanager
def _named(settings: Settings, own: ServerSettings | MemberSettings) -> Iterator[None]:
    """What is said of a lost directory names the process and its cluster file."""
    try:
        yield
    except DirectoryLost as error:
        raise DirectoryLost(error.directory, [own.id], settings.path, own.id in settings.members, error.record) from None


async def _serve_objects(settings: Settings, server: ServerSettings, identity: str, guard: Guard) -> None:
    from ares.server.host import Host, run_server

    def serving(host: Host) -> None:
        gc.freeze()  # servers of one domain grow alike and look for garbage at the same time, so no quorum hides it: let it be a short look
        life.serving(WatchedServer(host, None))

    keep_freed_memory(SERVER_BYTES)
    life = Life(settings, server, guard.lock)
    with life.told():
        await run_server(server.id, identity, settings.initial, life.listener, life.stop, guard.admission, serving)


async def _serve_durably(settings: Settings, server: ServerSettings, claim: Claim, guard: Guard) -> None:
    from ares.server.durable_server import run_durable_server
    from ares.server.host import Host
    from ares.server.rebuilding import Rebuilding
    from ares.server.scrub import Care, ScrubPlan
    from ares.store.journal.disk import TimedDisk
    from ares.store.journal.log import open_journal
    from ares.store.journal.segments import Owner

    def serving(host: Host) -> None:
        life.serving(WatchedServer(host, disk.syncs))

    if claim.lost:
        log.warning("what an earlier run of this server held is set aside: serving under a new identity", extra={"identity": claim.identity})
    keep_freed_memory(SERVER_BYTES)
    life, disk = Life(settings, server, guard.lock), TimedDisk()
    plan = ScrubPlan(settings.scrub.every_h * 3600.0, settings.scrub.bytes_per_s, server.data / SCRUBBED_NAME)
    with life.told():
        journal = open_journal(server.data / STORE_NAME, Owner(settings.initial.cluster_id, server.id, claim.identity), disk=disk)
        async with contextlib.aclosing(Rebuilding(settings, server)) as rebuilding:
            caring = Care(plan, rebuilding)
            await run_durable_server(server.id, claim.identity, settings.initial, journal, life.listener, life.stop, guard.admission, serving, caring)


async def _serve_decisions(settings: Settings, member: MemberSettings, guard: Guard) -> None:
    from ares.consensus.member_host import ConsensusHost
    from ares.consensus.member_host import run_consensus_member as serve

    def serving(host: ConsensusHost) -> None:
        life.serving(WatchedMember(host))

    raft_addresses = {other.id: other.raft for other in settings.members.values()}
    life, certified, flown = Life(settings, member, guard.lock), certifying(settings), piloted(settings, member)
    with life.told():
        password = settings.password()
        await serve(member.id, raft_addresses, life.listener, member.data, password, life.stop, certified, guard.admission, serving, flown)
