"""What the commands `server` and `consensus` run: one process, from the cluster file to a clean end on SIGTERM."""

import asyncio
import logging
import signal
from pathlib import Path

import typer

from ares.cli.guard import Guard, certifying, guard_of
from ares.errors import BadInput
from ares.identity import ServerId
from ares.runtime import logs
from ares.runtime.allocator import SERVER_BYTES, keep_freed_memory
from ares.runtime.batching import Handle
from ares.runtime.cluster_file import is_free
from ares.runtime.home import STORE_NAME, Claim, claim_identity, held, store_identity
from ares.runtime.loop import run
from ares.runtime.settings import MemberSettings, ServerSettings, Settings, split_address
from ares.runtime.zmq_gate import Lock
from ares.runtime.zmq_server import ZmqListener

log = logging.getLogger(__name__)


class AnnouncedListener(ZmqListener):
    """Prints READY, the process's id and the address bound as soon as it serves: whoever started the process waits for that line."""

    def __init__(self, id: str, address: str, lock: Lock | None = None) -> None:
        super().__init__(address, lock)
        self._id = id

    async def serve(self, handle: Handle) -> str:
        address = await super().serve(handle)
        typer.echo(f"READY {self._id} {address}")
        return address


def run_storage_server(file: Path, id: str, forget: bool = False) -> None:
    """Serve as the storage server ``id`` of the cluster file until SIGTERM or SIGINT. Raises :class:`BadInput`.

    ``forget``: begin anew, empty and under a new identity, whatever an earlier run left (servers with a store only; the others always do).
    """
    settings = Settings.load(file)
    server = settings.servers.get(ServerId(id))
    if server is None:
        raise BadInput(f"{file} has no [[server]] with id {id!r}; known: {', '.join(settings.servers)}")
    logs.set_up(id)
    guard = guard_of(settings, id, server.public_key)
    with held(server.data):
        if not is_free(*split_address(server.address)):  # found now, not when the identity is spent
            raise BadInput(f"{id} cannot listen on {server.address}: another program does, or it is no address of this machine; nothing was started")
        if settings.durable:
            run(_serve_durably(settings, server, store_identity(server.data, server.identity, forget), guard))
            return
        claim = claim_identity(server.data, server.identity)
        if claim.lost:
            log.warning(
                "an earlier run of this server ended and its memory with it: serving under a new identity; configurations that name the "
                "earlier one count this server as crashed until a reconfiguration",
                extra={"identity": claim.identity},
            )
        run(_serve_objects(settings, server, claim.identity, guard))


def run_consensus_member(file: Path, id: str) -> None:
    """Serve as the consensus member ``id`` of the cluster file until SIGTERM or SIGINT. Raises :class:`BadInput`."""
    settings = Settings.load(file)
    member = settings.members.get(ServerId(id))
    if member is None:
        raise BadInput(f"{file} has no [[consensus]] with id {id!r}; known: {', '.join(settings.members) or 'none'}")
    logs.set_up(id)
    run(_serve_decisions(settings, member, guard_of(settings, id, member.public_key)))


async def _serve_objects(settings: Settings, server: ServerSettings, identity: str, guard: Guard) -> None:
    from ares.server.host import run_server

    keep_freed_memory(SERVER_BYTES)
    listener = AnnouncedListener(server.id, server.address, guard.lock)
    await run_server(server.id, identity, settings.initial, listener, _stop_on_signals(), guard.admission)


async def _serve_durably(settings: Settings, server: ServerSettings, claim: Claim, guard: Guard) -> None:
    from ares.runtime.journal_log import open_journal
    from ares.runtime.journal_segments import Owner
    from ares.server.durable_server import run_durable_server

    if claim.lost:
        log.warning("what an earlier run of this server held is set aside: serving under a new identity", extra={"identity": claim.identity})
    keep_freed_memory(SERVER_BYTES)
    journal = open_journal(server.data / STORE_NAME, Owner(settings.initial.cluster_id, server.id, claim.identity))
    listener = AnnouncedListener(server.id, server.address, guard.lock)
    await run_durable_server(server.id, claim.identity, settings.initial, journal, listener, _stop_on_signals(), guard.admission)


async def _serve_decisions(settings: Settings, member: MemberSettings, guard: Guard) -> None:
    from ares.runtime.consensus_host import run_consensus_member as serve

    raft_addresses = {other.id: other.raft for other in settings.members.values()}
    listener = AnnouncedListener(member.id, member.address, guard.lock)
    certified, stop = certifying(settings), _stop_on_signals()
    await serve(member.id, raft_addresses, listener, member.data, settings.password(), stop, certified, guard.admission)


def _stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
