"""The manager: a program's connection to a cluster.

The manager is the object store of the domain `default`, and opens the remaining domains. Each
client has its own manager with its own configuration sequences (ARES II section 4, "Manager").
"""

import contextlib
from collections.abc import Callable, Sequence

from msgspec import Struct

from ares.client.buckets.bucket_domains import make_bucket_domains
from ares.client.buckets.bucket_errors import BucketExists
from ares.client.buckets.bucket_objects import Bucket
from ares.client.buckets.bucket_values import SweepReport
from ares.client.buckets.buckets import Buckets
from ares.client.domain_directory import (
    ClientParts,
    DomainDirectory,
    checked_domain,
    entry_of,
    refuse_mirror,
)
from ares.client.file import File
from ares.client.mirrors import Mirror, fit_for_mirrors, newest_life, remove, states
from ares.client.shared_log import Log
from ares.client.stale_reads import StaleValue, read_stale
from ares.client.store import ObjectStore, checked_prefix
from ares.engine.jobs import OperationLabel
from ares.fragment.block import genesis_name
from ares.fragment.divide import FASTCDC, Sizes
from ares.model.configuration import Configuration
from ares.model.errors import BadInput, DomainNotFound, ObjectNotFound
from ares.model.identity import (
    DEFAULT_DOMAIN,
    DIRECTORY_PREFIX,
    FILE_DOMAINS,
    FOLLOWING_PREFIX,
    DomainName,
    ObjectName,
    ServerId,
)
from ares.model.messages import ConsensusDescription, Description
from ares.reconfig.mover import Progress, Transfer
from ares.reconfig.reconfigure import ReconfigurationResult
from ares.registers.operations import delete


class ClusterStatus(Struct, frozen=True):
    """The state of a cluster. ``servers``: the descriptions of servers; None for a silent server.

    ``troubles``: why servers and members are silent, as far as known. ``over_sockets``: the servers
    reached over Unix sockets of this host.
    """

    servers: dict[ServerId, Description | None]
    members: list[ConsensusDescription]
    troubles: dict[ServerId, str]
    over_sockets: frozenset[ServerId]


class Manager(DomainDirectory):
    """A client of a cluster. Use as ``async with``; see :func:`ares.connect`."""

    def __init__(self, parts: ClientParts) -> None:
        super().__init__(parts)
        self._buckets = Buckets(self, parts.open_index_table)

    async def __aenter__(self) -> "Manager":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all operations, the session with the buckets, and every connection."""
        await self._buckets.close()
        await super().close()

    def file(
        self,
        name: str,
        *,
        create: Configuration | None = None,
        atomic: bool = False,
        sizes: Sizes | None = None,
        chunking: str = FASTCDC,
    ) -> File:
        """Return the file ``name``, which is a domain of its own called ``file/NAME``.

        See :class:`ares.File`. ``create`` (default: the configuration of `default` at that time),
        ``atomic``, ``sizes`` (of blocks) and ``chunking`` ("fastcdc" or "rabin") apply when the
        file is first written. Making a file takes the consensus service. Keep many small files
        together in one domain: ``(await store.domain("photos")).file(name)``.
        """
        genesis_name(name)
        domain = FILE_DOMAINS + name

        async def own_domain(make: bool) -> ObjectStore:
            try:
                return await self.domain(domain)
            except DomainNotFound:
                if not make:
                    raise ObjectNotFound(name, domain) from None
            store, _ = await self.create_domain(domain, create)
            return store

        return File(name, own_domain, atomic, sizes or Sizes(), chunking)

    async def files(self, prefix: str = "", *, timeout_s: float | None = None) -> Sequence[str]:
        """Return the names of files with their own domains that start with ``prefix``, in order."""
        checked_prefix(prefix, DIRECTORY_PREFIX + FILE_DOMAINS)
        names: list[str] = []
        async for entry in self.list_named(entry_of(DomainName(FILE_DOMAINS + prefix)), timeout_s):
            store = await self.domain(entry.removeprefix(DIRECTORY_PREFIX), timeout_s=timeout_s)
            names.extend(await store.files(timeout_s=timeout_s))
        return names

    # -- buckets -----------------------------------------------------------------------------------

    async def create_bucket_domains(
        self, blobs: Configuration | None = None, *, timeout_s: float | None = None
    ) -> dict[str, Configuration]:
        """Make the domains for buckets, once for a cluster, and return their configurations.

        ``blobs``: of the objects' data, ABD or EC (default: as of `default`). Domains that an
        interrupted call left out are made. Raises :class:`ares.BucketsExist` if all are there.
        """
        wished = blobs or await self.current(timeout_s=timeout_s)
        return await make_bucket_domains(self, wished, timeout_s)

    async def bucket(
        self, name: str, create: bool = False, *, timeout_s: float | None = None
    ) -> Bucket:
        """Open the bucket ``name``. With ``create`` it is made if it is absent.

        Raises :class:`ares.BucketNotFound`, and :class:`ares.BucketsMissing` without the domains
        for buckets.
        """
        limit = self._timeout(timeout_s)
        if create:
            with contextlib.suppress(BucketExists):
                await self._buckets.create(name, limit)
        else:
            await self._buckets.info(name, limit)
        return Bucket(name, self._buckets, self._timeout_s)

    async def create_bucket(self, name: str, *, timeout_s: float | None = None) -> Bucket:
        """Make the bucket ``name``. Raises :class:`ares.BucketExists`: one creator wins."""
        await self._buckets.create(name, self._timeout(timeout_s))
        return Bucket(name, self._buckets, self._timeout_s)

    async def delete_bucket(self, name: str, *, timeout_s: float | None = None) -> None:
        """Delete a bucket without objects. Raises :class:`ares.BucketNotEmpty`."""
        await self._buckets.delete(name, self._timeout(timeout_s))

    async def sweep_buckets(self, *, timeout_s: float | None = None) -> SweepReport:
        """Drop the data that no bucket names, and end the sessions of processes that died.

        A process that lives for ten minutes does so by itself. This takes up to 20 seconds if there
        are other sessions, and longer with many objects: ``timeout_s`` bounds a standstill.
        """
        return await self._buckets.sweep(self._timeout(timeout_s))

    async def buckets(self, *, timeout_s: float | None = None) -> list[str]:
        """Return the names of all buckets, in order."""
        return await self._buckets.names(self._timeout(timeout_s))

    # -- mirrors and sites -------------------------------------------------------------------------

    async def read_stale(
        self,
        key: str,
        *,
        domain: str = DEFAULT_DOMAIN,
        max_age_s: float | None = None,
        timeout_s: float | None = None,
    ) -> StaleValue:
        """Return an object's value from the mirror at this client's site, and the greatest age.

        Without a mirror at the site, and before the mirror was first complete: the usual read.
        Raises :class:`ares.MirrorTooOld` if the mirror is older than ``max_age_s``; and
        :class:`ObjectNotFound`.
        """
        return await read_stale(self, key, domain, self._site, max_age_s, self._timeout(timeout_s))

    async def original(self, domain: str, *, timeout_s: float | None = None) -> ObjectStore:
        """Open the domain ``domain``, if it can have mirrors.

        Raises :class:`BadInput` for a log, a file, or a mirror; and :class:`DomainNotFound`.
        """
        return fit_for_mirrors(domain, await self.domain_or_log(domain, timeout_s=timeout_s))

    async def create_mirror(
        self,
        domain: str,
        site: str,
        configuration: Configuration,
        *,
        timeout_s: float | None = None,
    ) -> tuple[Configuration, bool]:
        """Make a mirror of ``domain`` at ``site``, on the servers of ``configuration``.

        Returns the mirror's configuration, and whether this call made the mirror. The mirror is
        empty until the autopilot has copied the domain. Raises the errors of :meth:`original`.
        """
        await self.original(domain, timeout_s=timeout_s)
        if configuration.dap == "chain":
            raise BadInput("a chain is for a log, and a mirror holds objects; nothing was changed")
        name, known = await newest_life(self, domain, site, timeout_s)
        if known is not None:
            return await known.current(timeout_s=timeout_s), False
        return await self._created(name.name, configuration, timeout_s)

    async def remove_mirror(
        self, domain: str, site: str, *, timeout_s: float | None = None
    ) -> None:
        """Remove a mirror; the autopilot empties the mirror.

        Raises :class:`ares.model.errors.MirrorNotFound`.
        """
        await remove(self, domain, site, timeout_s)

    async def mirrors(self, *, timeout_s: float | None = None) -> list[Mirror]:
        """Return all mirrors with their ages."""
        return await states(self, timeout_s)

    async def follow_users(
        self, name: str, follow: bool = True, *, timeout_s: float | None = None
    ) -> None:
        """Let the domain ``name`` follow its users from site to site, or stop it (docs/sites.md).

        An autopilot is needed, and notices the change within seconds. Raises
        :class:`DomainNotFound`, and :class:`BadInput` for `default`, mirrors and logs, which stay
        at their servers.
        """
        refuse_mirror(name)
        domain = checked_domain(name)
        if domain == DEFAULT_DOMAIN:
            raise BadInput(
                "the domain 'default' follows no users: it holds the directory of the other "
                "domains; `ares-cli domain move` moves it. Nothing was changed"
            )
        if isinstance(await self.domain_or_log(name, timeout_s=timeout_s), Log):
            raise BadInput(
                f"{name!r} is a log, and logs follow no users: a move stops appends for a while; "
                "`ares-cli domain move` moves it. Nothing was changed"
            )
        flag = _flag(domain)
        if follow:
            await self.write_named(flag, b"", timeout_s)
            return
        with contextlib.suppress(ObjectNotFound):
            await self._runner.run(
                delete(self._view, flag),
                OperationLabel("delete", flag),
                self._timeout(timeout_s),
                key=(self.name, flag),
            )

    async def following(self, *, timeout_s: float | None = None) -> list[str]:
        """Return the names of the domains that follow their users, in order."""
        return [
            name.removeprefix(FOLLOWING_PREFIX)
            async for name in self.list_named(FOLLOWING_PREFIX, timeout_s)
        ]

    async def reconfigure(  # noqa: PLR0913  # public interface
        self,
        configuration: Configuration,
        *,
        domain: str = DEFAULT_DOMAIN,
        progress: Callable[[Progress], None] | None = None,
        timeout_s: float | None = None,
        bytes_per_s: float | None = None,
        skip_undecodable: bool = False,
        transfer: Transfer = "client",
    ) -> ReconfigurationResult:
        """Move any domain or log, as the method of the domain or log does.

        See :meth:`ObjectStore.reconfigure` and :meth:`ares.Log.reconfigure`.
        """
        found = (
            self
            if domain == DEFAULT_DOMAIN
            else await self.domain_or_log(domain, timeout_s=timeout_s)
        )
        if isinstance(found, Log):
            if bytes_per_s is not None or skip_undecodable or transfer != "client":
                what = "bytes_per_s, skip_undecodable and transfer"
                raise BadInput(
                    f"{domain!r} is a log: {what} are for domains that hold objects; nothing was "
                    "changed"
                )
            return await found.reconfigure(configuration, progress=progress, timeout_s=timeout_s)
        move = super().reconfigure if found is self else found.reconfigure
        return await move(
            configuration,
            progress=progress,
            timeout_s=timeout_s,
            bytes_per_s=bytes_per_s,
            skip_undecodable=skip_undecodable,
            transfer=transfer,
        )

    async def status(self) -> ClusterStatus:
        """Ask all servers and members for identity and contents.

        Takes up to two seconds if a server or member is silent.
        """
        described = await self.describe(list(self._book.values()))
        members = await self.describe_members()
        return ClusterStatus(
            {server: described.get(server) for server in self._book},
            members,
            self.troubles,
            frozenset(self._runner.over_sockets),
        )

    @property
    def troubles(self) -> dict[ServerId, str]:
        """Return why servers and members are silent, as far as known."""
        return {**self._consensus.troubles, **self._runner.troubles}


def buckets_of(manager: Manager) -> Buckets:
    """Return all buckets of the cluster, as gateways use them; not for the blocking interface."""
    return manager._buckets


def _flag(domain: DomainName) -> ObjectName:
    return ObjectName(FOLLOWING_PREFIX + domain)
