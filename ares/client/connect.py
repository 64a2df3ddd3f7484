"""The connection of a program to a cluster: :func:`connect`.

This module alone makes clients out of settings, and names the adapters behind their ports.
"""

import logging
import os
import secrets
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NoReturn

from msgspec import structs

from ares.bucket.memory_table import MemoryTable
from ares.bucket.port import RowTable, RowTableFailed
from ares.client.buckets.bucket_domains import INDEX_LOG
from ares.client.domain_directory import ClientParts
from ares.client.domain_locator import DomainLocator, KnownDomains, known_domains_path
from ares.client.local_copy import cache_directory
from ares.client.manager import Manager
from ares.cluster.settings import Settings
from ares.cluster.sites import remote_servers, servers_near
from ares.consensus.port import Consensus
from ares.consensus.remote import RemoteConsensus
from ares.model.configuration import Configuration
from ares.model.errors import BadInput
from ares.model.identity import ClientId
from ares.net.port import Connections
from ares.net.transports import connections
from ares.platform.environment import KEY_VARIABLE, SITE_VARIABLE
from ares.platform.memory import CLIENT_BYTES, keep_freed_memory
from ares.reconfig.view import Switches
from ares.tracing.export import tracer_of
from ares.tracing.operation_log import OperationLog
from ares.tracing.tracer import Tracer
from ares.tracing.variables import tracing_of

log = logging.getLogger(__name__)

USER_SERVICE = "ares-client"
"""Name of the service whose spans a user's client writes."""


class PendingConnection:
    """The result of :func:`connect`: ``async with connect(...) as store``.

    Or ``store = await connect(...)``, and ``await store.close()`` later.
    """

    def __init__(self, settings: Settings, tracer: Tracer | None = None) -> None:
        self._settings = settings
        self._tracer = tracer
        self._manager: Manager | None = None

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"connect() gives no store yet, so there is no {name!r}: use `async with "
            "connect(...) as store`, or `store = await connect(...)`; without asyncio, `with "
            "ares.connect_blocking(...) as store`"
        )

    def __await__(self) -> Generator[Any, None, Manager]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Manager:
        self._manager = manager_of(
            self._settings,
            lambda: connections_of(self._settings),
            consensus_of(self._settings),
            tracer=self._tracer,
        )
        return self._manager

    async def __aexit__(self, *_: object) -> None:
        if self._manager is not None:
            await self._manager.close()


GATEWAY_SERVICE = "ares-gateway"
"""Begin of the names of services whose index of the buckets has a file of its own."""


def manager_of(
    settings: Settings,
    connect: Callable[[], Connections],
    consensus: Consensus,
    switches: Switches | None = None,
    tracer: Tracer | None = None,
    service: str = USER_SERVICE,
) -> Manager:
    """Return a client of this cluster under a new id. Call it on the event loop.

    ``switches``: in place of the cluster file's. ``tracer``: in place of the tracer of the cluster
    file and the environment; ``service`` names that tracer. ``connect``: makes connections. Only
    USER_SERVICE keeps the places of domains in the user's cache, and asks servers near by. Raises
    :class:`BadInput` if operations cannot be logged as the settings ask.
    """
    client, id = settings.client, ClientId(secrets.randbits(64))
    switches = switches or Switches(
        *(client.piggyback, client.gc, client.batch, client.fast_read, client.optimised),
        ahead=client.ahead,
    )
    if tracer is None:
        log = None if client.operation_log is None else OperationLog(client.operation_log, id)
        tracer = tracer_of(tracing_of(settings.tracing, os.environ), service, log, client.site)
    return Manager(
        ClientParts(
            connect,
            consensus,
            settings.initial,
            settings.book(),
            id,
            switches,
            client.timeout_s,
            decided_by(settings),
            tracer,
            remote_servers(settings),
            domain_locator_of(settings, remembers=service == USER_SERVICE),
            client.site,
            settings.limits.value_bytes,
            index_table_of(settings, service),
        )
    )


def index_table_of(settings: Settings, service: str) -> Callable[[], RowTable]:
    """Return a function that opens the rows of the index of buckets, in a file of the user's cache.

    The rows are in memory without a cache, if no file can be had, and for services of servers.
    """
    directory = cache_directory(os.environ)
    if directory is None or not service.startswith((USER_SERVICE, GATEWAY_SERVICE)):
        return MemoryTable
    cluster = settings.initial.cluster_id
    suffix = "" if service == USER_SERVICE else f"-{service}"
    path = directory / f"buckets-{cluster.hex()}{suffix}"

    def open_table() -> RowTable:
        from ares.store.sqlite_table import open_index_table

        try:
            return open_index_table(path, cluster + INDEX_LOG.encode())
        except RowTableFailed as error:
            log.warning("%s. The index of the buckets is in memory", error)
            return MemoryTable()

    return open_table


def domain_locator_of(settings: Settings, remembers: bool = True) -> DomainLocator | None:
    """Return the servers and the memory with which a client looks for domains.

    None in a cluster without sites. ``remembers``: the memory is kept in a file.
    """
    if not any(server.site for server in settings.servers.values()):
        return None
    path = known_domains_path(settings.initial.cluster_id, os.environ) if remembers else None
    return DomainLocator(settings.book(), servers_near(settings), KnownDomains(path))


def decided_by(settings: Settings) -> Callable[[Configuration], bool] | None:
    """Return a function which says whether a configuration was decided for this cluster.

    None if decisions are not certified.
    """
    if settings.security is None:
        return None
    from ares.security.certificates import Verifier

    return Verifier(settings.security.decision_key, settings.initial)


def connections_of(settings: Settings) -> Connections:
    """Return connections for a client of this cluster, with a key if the cluster wants a key.

    Raises :class:`ares.BadInput` if the key cannot be used.
    """
    key = None if settings.security is None else settings.security.client_key(settings.client.key)
    site = settings.client.site or ""
    return connections(key, settings.transport, site, sockets=settings.sockets)


def consensus_of(settings: Settings) -> Consensus:
    """Return the consensus service of this cluster. Call it on the event loop.

    Raises :class:`ares.BadInput` if this machine cannot use the service.
    """
    if settings.etcd is None:
        return RemoteConsensus(connections_of(settings), settings.member_addresses())
    try:
        from ares.consensus.etcd import EtcdConsensus
    except ModuleNotFoundError as error:
        why = f"this cluster's decisions are kept by etcd, and {error.name} is not installed here"
        raise BadInput(f"{settings.path}: etcd: {why}: pip install 'ares-storage[etcd]'") from error
    return EtcdConsensus(settings.etcd, settings.initial.cluster_id)


def connect(
    cluster: str | Path | Settings,
    key: str | Path | None = None,
    *,
    operation_log: str | Path | None = None,
) -> PendingConnection:
    """Connect to the cluster of a cluster file.

    Raises :class:`ares.BadInput` if the file is not a cluster file.

    ``key``: the file with this client's secret key, if the cluster wants a key (default: ARES_KEY,
    else the key named by the cluster file). ``operation_log``: a file that gets a line of JSON for
    each operation (docs/tracing.md); `%p` in the name becomes the process id.

    No message is sent until the first operation. Use a single connection for a whole program:
    operations run side by side. From the connection on, the process keeps up to 256 MiB of freed
    memory for large values (ares/platform/memory.py gives the reason, and how the environment
    prevents this).
    """
    if not isinstance(cluster, str | os.PathLike | Settings):
        raise BadInput(
            f"a cluster is named by the path of its file, not by {type(cluster).__name__}"
        )
    if not isinstance(key, str | os.PathLike | None):
        raise BadInput(f"a key is named by the path of its file, not by {type(key).__name__}")
    if not isinstance(operation_log, str | os.PathLike | None):
        raise BadInput(
            f"a log of operations is named by its path, not by {type(operation_log).__name__}"
        )
    keep_freed_memory(CLIENT_BYTES)
    settings = with_key(cluster if isinstance(cluster, Settings) else settings_of(cluster), key)
    if operation_log is not None:
        settings = structs.replace(
            settings, client=structs.replace(settings.client, operation_log=str(operation_log))
        )
    return PendingConnection(settings)


def settings_of(cluster: str | Path) -> Settings:
    """Return the settings of the cluster file, with the client's key and site from the environment.

    ARES_KEY and ARES_SITE name key and site, if set. Raises :class:`ares.BadInput` if the file is
    not a cluster file.
    """
    settings = with_key(Settings.load(cluster), os.environ.get(KEY_VARIABLE))
    site = os.environ.get(SITE_VARIABLE)
    return (
        settings
        if not site
        else structs.replace(settings, client=structs.replace(settings.client, site=site))
    )


def with_key(settings: Settings, key: str | Path | None) -> Settings:
    """Return the settings with another file for the client's key, if ``key`` is given."""
    return (
        settings
        if not key
        else structs.replace(settings, client=structs.replace(settings.client, key=str(key)))
    )
