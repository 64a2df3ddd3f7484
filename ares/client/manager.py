"""The manager: what a program holds of a cluster. It is the object store of the domain `default`, and opens the others.

Each client has its own manager with its own configuration sequences (ARES II section 4, "Manager").
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import msgspec
from msgspec import Struct

from ares.client.file import File
from ares.client.runner import Runner
from ares.client.store import ObjectStore, checked_prefix
from ares.consensus.port import Consensus
from ares.dap.coding import MakeCoding, coding_for
from ares.fragment.block import genesis_name
from ares.fragment.divide import Sizes
from ares.model.configuration import SERVERS_MAX, Configuration, Server
from ares.model.errors import BadInput, ConfigurationRefused, DomainNotFound, ObjectNotFound, Uncertain
from ares.model.identity import DEFAULT_DOMAIN, DIRECTORY, DOMAIN_BYTES_MAX, FILE_DOMAINS, ClientId, DomainName, ObjectName, ServerId, is_domain_name
from ares.model.messages import ConsensusDescription, Description
from ares.net.port import Connections
from ares.objects.survey import describe_servers
from ares.reconfig.mover import Progress
from ares.reconfig.reconfigure import Reconfigured, agree
from ares.reconfig.view import Switches, View
from ares.tracing.tracer import Tracer

DESCRIBE_S = 1.0


class ClusterStatus(Struct, frozen=True):
    """``servers``: what the reachable ones say; None for silent ones. ``troubles``: why servers and members are silent, where that is known."""

    servers: dict[ServerId, Description | None]
    members: list[ConsensusDescription]
    troubles: dict[ServerId, str]


class Manager(ObjectStore):
    """Use as ``async with``; see :func:`ares.connect`.

    ``book``: the servers of the cluster file. ``initial``: c0. ``decided`` says whether a configuration carries the proof that it was decided, in a
    cluster that asks for one. ``tracer``: decides which operations are traced; it is closed with the manager.
    """

    def __init__(
        self,
        connections: Connections,
        consensus: Consensus,
        initial: Configuration,
        book: Mapping[ServerId, Server],
        client: ClientId,
        switches: Switches,
        timeout_s: float,
        decided: Callable[[Configuration], bool] | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        runner = Runner(client, connections, consensus, tracer)
        self._coding: MakeCoding = coding_for if tracer is None else tracer.coding_for
        runner.learn(list(book.values()))
        self._consensus = consensus
        self._book = dict(book)
        self._client = client
        self._switches = switches
        self._decided = decided
        self._domains: dict[DomainName, ObjectStore] = {DEFAULT_DOMAIN: self}
        super().__init__(runner, View(client, initial, switches, runner.session.readiness, self._coding), timeout_s, self.identified)

    async def __aenter__(self) -> "Manager":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End what is under way with :class:`ares.model.errors.ConnectionClosed`, and close every connection."""
        await self._runner.close()

    async def domain(self, name: str, create: Configuration | None = None, *, timeout_s: float | None = None) -> ObjectStore:
        """The domain ``name``. If it was never created: created with ``create`` if that is given, else :class:`DomainNotFound`."""
        domain = _checked_domain(name)
        found = self._domains.get(domain) or await self._recorded(domain, timeout_s)
        if found is not None:
            return found
        if create is None:
            raise DomainNotFound(name)
        store, _ = await self.create_domain(name, create, timeout_s=timeout_s)
        return store

    async def create_domain(
        self, name: str, configuration: Configuration | None = None, *, timeout_s: float | None = None
    ) -> tuple[ObjectStore, bool]:
        """Decide the first configuration of ``name`` (default: what `default` has now) and record it; whether it became this one.

        Creators that race, and later ones, get the domain as it was created first. Raises :class:`ares.ConsensusUnavailable`.
        """
        domain = _checked_domain(name)
        if domain == DEFAULT_DOMAIN:
            raise BadInput("the domain 'default' is there from the beginning")
        timeout = self._timeout(timeout_s)
        found = await self._recorded(domain, timeout)
        if found is not None:
            return found, False
        wished = await self.current(timeout_s=timeout) if configuration is None else await self.identified(configuration)
        decided = await self._runner.run(agree(wished.at(domain, 0, self.configuration.cluster_id)), f"creation of domain {name!r}", timeout)
        try:
            await self.write_named(_entry(domain), msgspec.msgpack.encode(decided.configuration), timeout)
        except Uncertain as error:
            error.may_have_taken_effect = True
            error.advice = f"what domain {name!r} begins with is decided ({decided.configuration.describe()}), and creating it again completes it"
            raise
        return self._opened(decided.configuration), decided.configuration.same_content(wished)

    def file(self, name: str, *, create: Configuration | None = None, atomic: bool = False, sizes: Sizes | None = None) -> File:
        """The file ``name``, a domain of its own called ``file/NAME``; see :class:`ares.File`.

        ``create`` (default: what `default` has then), ``atomic`` and ``sizes`` (of blocks) apply when the file is first written. Making one takes the
        consensus service; for many small files, keep them together in one domain: ``(await store.domain("photos")).file(name)``.
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

        return File(name, own_domain, atomic, sizes or Sizes())

    async def files(self, prefix: str = "", *, timeout_s: float | None = None) -> Sequence[str]:
        """The names of the files that are domains of their own and start with ``prefix``, in order."""
        checked_prefix(prefix, DIRECTORY + FILE_DOMAINS)
        names: list[str] = []
        async for entry in self.list_named(_entry(DomainName(FILE_DOMAINS + prefix)), timeout_s):
            store = await self.domain(entry.removeprefix(DIRECTORY), timeout_s=timeout_s)
            names.extend(await store.files(timeout_s=timeout_s))
        return names

    async def domains(self, *, timeout_s: float | None = None) -> AsyncIterator[ObjectStore]:
        """Every domain: `default`, then the others by name."""
        yield self
        async for name in self.list_named(DIRECTORY, timeout_s):
            yield await self.domain(name.removeprefix(DIRECTORY), timeout_s=timeout_s)

    async def reconfigure(
        self,
        configuration: Configuration,
        *,
        domain: str = DEFAULT_DOMAIN,
        progress: Callable[[Progress], None] | None = None,
        timeout_s: float | None = None,
        bytes_per_s: float | None = None,
        skip_undecodable: bool = False,
    ) -> Reconfigured:
        """:meth:`ObjectStore.reconfigure`, of any domain."""
        move = super().reconfigure if domain == DEFAULT_DOMAIN else (await self.domain(domain, timeout_s=timeout_s)).reconfigure
        return await move(configuration, progress=progress, timeout_s=timeout_s, bytes_per_s=bytes_per_s, skip_undecodable=skip_undecodable)

    async def status(self) -> ClusterStatus:
        """Ask everybody who they are and what they hold; takes up to two seconds when somebody is silent."""
        described = await self.describe(list(self._book.values()))
        members = await self.describe_members()
        return ClusterStatus({server: described.get(server) for server in self._book}, members, self.troubles)

    async def describe_members(self) -> list[ConsensusDescription]:
        """What the members of the consensus service that answer say of themselves; takes up to a second when one is silent."""
        return await self._consensus.describe(DESCRIBE_S)

    @property
    def troubles(self) -> dict[ServerId, str]:
        """Why servers and members are silent, where that is known."""
        return {**self._consensus.troubles, **self._runner.troubles}

    async def identified(self, configuration: Configuration) -> Configuration:
        """``configuration`` with addresses and with the identities that its servers have *now*.

        Raises :class:`BadInput` for servers nobody knows, :class:`ConfigurationRefused` when one does not answer: it could not take part.
        """
        if not isinstance(configuration, Configuration):
            raise BadInput(f"a configuration is made by Configuration.abd or Configuration.ec; {type(configuration).__name__} is none")
        resolved = configuration.resolved(self._book)
        described = await self.describe(list(resolved.servers), brief=True)
        for server in resolved.servers:
            says = described.get(server.id)
            if says is not None and says.server != server.id:
                raise BadInput(f"at {server.address} answers {says.server}, not {server.id}: is this the right cluster file?")
            if says is not None and says.cluster != self.configuration.cluster_id:
                raise BadInput(f"{server.id} at {server.address} runs with the file of another cluster: is this the right cluster file?")
        if silent := [server.id for server in resolved.servers if server.id not in described]:
            known = ", ".join(f"{server}: {why}" for server, why in self._runner.troubles.items() if server in silent)
            who = f"{', '.join(silent)} does not answer" + (f" ({known})" if known else "")
            raise ConfigurationRefused(f"{who}; a new configuration begins with servers that run. Nothing was changed")
        servers = tuple(msgspec.structs.replace(server, identity=described[server.id].identity) for server in resolved.servers)
        return msgspec.structs.replace(resolved, servers=servers)

    async def describe(self, servers: Sequence[Server], brief: bool = False) -> dict[ServerId, Description]:
        """What each of these servers says of itself; the silent ones are missing. ``brief``: only who they are."""
        described: dict[ServerId, Description] = {}
        for first in range(0, len(servers), SERVERS_MAX):
            some = describe_servers(servers[first : first + SERVERS_MAX], DESCRIBE_S, brief)
            described |= await self._runner.run(some, "describe", 10 * DESCRIBE_S)
        return described

    async def _recorded(self, domain: DomainName, timeout_s: float | None) -> ObjectStore | None:
        """The domain as the directory has it. A client that writes objects can write there: where decisions are certified, the entry must be one."""
        entry = (await self.read_named(_entry(domain), timeout_s)).value
        if not isinstance(entry, bytes):
            return None
        try:
            first = msgspec.msgpack.decode(entry, type=Configuration)
        except msgspec.MsgspecError as error:
            raise ConfigurationRefused(f"the directory entry of domain {domain!r} cannot be read: {error}; its objects are untouched") from error
        if self._decided is not None and not ((first.domain, first.index) == (domain, 0) and self._decided(first)):
            raise ConfigurationRefused(f"the directory entry of domain {domain!r} is not what was decided; its objects are untouched")
        return self._opened(first)

    def _opened(self, first: Configuration) -> ObjectStore:
        if first.domain not in self._domains:
            view = View(self._client, first, self._switches, self._runner.session.readiness, self._coding)
            self._domains[first.domain] = ObjectStore(self._runner, view, self._timeout_s, self.identified)
        return self._domains[first.domain]


def _entry(domain: DomainName) -> ObjectName:
    return ObjectName(DIRECTORY + domain)


def _checked_domain(name: str) -> DomainName:
    if not isinstance(name, str):
        raise BadInput(f"a domain's name is text (str), not {type(name).__name__}")
    if not is_domain_name(name):
        raise BadInput(f"a domain's name has 1 to {DOMAIN_BYTES_MAX} bytes of printable text, not {name!r}")
    return DomainName(name)
