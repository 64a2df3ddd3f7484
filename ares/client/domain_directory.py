"""The directory of domains: how a client finds, creates and opens domains and logs.

The domain `default` holds the directory: an object for each further domain, with its first
configuration.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from ares.bucket.memory_table import MemoryTable
from ares.bucket.port import RowTable
from ares.client.domain_locator import DomainLocator
from ares.client.runner import Runner
from ares.client.shared_log import Log, Reads
from ares.client.store import ObjectStore
from ares.compiled import fast_path
from ares.consensus.port import Consensus
from ares.dap.coding import MakeCoding, coding_for
from ares.engine.effects import Announce, Operation
from ares.engine.session import Session
from ares.model.configuration import SERVERS_MAX, Configuration, Server
from ares.model.errors import BadInput, ConfigurationRefused, DomainNotFound, LogNotFound, Uncertain
from ares.model.identity import (
    DEFAULT_DOMAIN,
    DIRECTORY_PREFIX,
    DOMAIN_BYTES_MAX,
    FILE_DOMAINS,
    MIRROR_DOMAINS,
    VALUE_BYTES_DEFAULT,
    ClientId,
    DomainName,
    ObjectName,
    ServerId,
    is_domain_name,
)
from ares.model.log_messages import SECRET_BYTES
from ares.model.messages import ConsensusDescription, Description
from ares.net.port import Connections, FramedConnections
from ares.reconfig.locating import LOCATE_S, locate
from ares.reconfig.reconfigure import agree
from ares.reconfig.view import Switches, View
from ares.registers.survey import describe_servers
from ares.sharedlog.log_reconfiguration import check_chain, refuse_early_servers
from ares.sharedlog.log_session import LogSession
from ares.tracing.tracer import Tracer

DESCRIBE_S = 1.0
TRUST_S = 10.0
"""Age of the last answer of a log after which a client asks for the tail before it appends."""


class ClientParts(NamedTuple):
    """The parts of a client of a cluster."""

    connect: Callable[[], Connections]
    """Makes connections; each log has connections of its own."""

    consensus: Consensus
    initial: Configuration
    """c0."""

    book: Mapping[ServerId, Server]
    """The servers of the cluster file."""

    client: ClientId
    switches: Switches
    timeout_s: float
    decided: Callable[[Configuration], bool] | None = None
    """Says whether a configuration carries the proof of its decision, in a cluster that asks for
    proofs.
    """

    tracer: Tracer | None = None
    """Selects the traced operations; closed with the client."""

    remote: frozenset[ServerId] = frozenset()
    """Servers at other sites, which are asked when the servers at this site do not suffice."""

    locator: DomainLocator | None = None
    """The places of domains, known to nearby servers and to this machine."""

    site: str | None = None
    """The site of this client."""

    value_bytes: int = VALUE_BYTES_DEFAULT
    """Bytes of the largest value that the cluster takes."""

    open_index_table: Callable[[], RowTable] = MemoryTable
    """Opens the rows of the index of buckets, in any thread."""


class DomainDirectory(ObjectStore):
    """The domain `default` of a cluster, which opens the other domains."""

    def __init__(self, parts: ClientParts) -> None:
        self._locator = parts.locator or DomainLocator()
        self._client, self._switches, self._tracer = parts.client, parts.switches, parts.tracer
        self._connect, self._consensus = parts.connect, parts.consensus
        self._decided, self._remote, self._site = parts.decided, parts.remote, parts.site
        self._book = dict(parts.book)
        self._coding: MakeCoding = coding_for if parts.tracer is None else parts.tracer.coding_for
        connections = parts.connect()
        framed = isinstance(connections, FramedConnections)
        session = Session(int(parts.client), fast_path=fast_path() if framed else None)
        runner = Runner(parts.client, connections, parts.consensus, parts.tracer, session)
        runner.look_near = self._look_near
        runner.value_bytes = parts.value_bytes
        runner.session.readiness.remote = parts.remote
        runner.learn(list(parts.book.values()))
        self._logs: dict[DomainName, tuple[Runner, LogSession]] = {}
        self._domains: dict[DomainName, ObjectStore] = {DEFAULT_DOMAIN: self}
        super().__init__(
            runner,
            View(
                parts.client,
                parts.initial,
                parts.switches,
                runner.session.readiness,
                self._coding,
            ),
            parts.timeout_s,
            self.identified,
        )

    async def close(self) -> None:
        """End all operations and close every connection.

        The operations end with :class:`ares.model.errors.ConnectionClosed`.
        """
        used = [store.configuration for store in self._domains.values()] + [
            log.view.sequence.last_finalized for _, log in self._logs.values()
        ]
        await asyncio.to_thread(self._locator.remember, used)
        for runner, _ in self._logs.values():
            await runner.stop()
        await self._runner.close()

    async def domain(
        self, name: str, create: Configuration | None = None, *, timeout_s: float | None = None
    ) -> ObjectStore:
        """Open the domain ``name``.

        If the domain was never created, create it with ``create``, or raise :class:`DomainNotFound`
        without ``create``. Raises :class:`BadInput` for a log, and for the name of a mirror.
        """
        refuse_mirror(name)
        if create is None:
            return _objects(await self.domain_or_log(name, timeout_s=timeout_s))
        domain = checked_domain(name)
        known = self._domains.get(domain)
        return (
            known
            if known is not None
            else (await self.create_domain(name, create, timeout_s=timeout_s))[0]
        )

    async def log(
        self,
        name: str,
        create: Configuration | None = None,
        *,
        reads: Reads = "craq",
        timeout_s: float | None = None,
    ) -> Log:
        """Open the log ``name``.

        If the log was never created, create it with ``create``, a chain, or raise
        :class:`LogNotFound` without ``create``. ``reads``: the servers that answer reads, unless a
        call says otherwise. Raises :class:`BadInput` for a domain of objects.
        """
        if create is None:
            try:
                return _log(await self.domain_or_log(name, reads=reads, timeout_s=timeout_s))
            except DomainNotFound:
                raise LogNotFound(name) from None
        return (await self.create_log(name, create, reads=reads, timeout_s=timeout_s))[0]

    async def domain_or_log(
        self, name: str, *, reads: Reads = "craq", timeout_s: float | None = None
    ) -> "ObjectStore | Log":
        """Open the domain or the log of this name. Raises :class:`DomainNotFound`."""
        domain = checked_domain(name)
        if domain in self._domains:
            return self._domains[domain]
        known = self._logs.get(domain)
        first = (
            known[1].view.sequence.last_finalized
            if known is not None
            else await self._found(domain, timeout_s)
        )
        if first is None:
            raise DomainNotFound(name)
        return self._opened(first, reads)

    async def create_domain(
        self,
        name: str,
        configuration: Configuration | None = None,
        *,
        timeout_s: float | None = None,
    ) -> tuple[ObjectStore, bool]:
        """Decide and record the first configuration of ``name``.

        Returns the domain, and whether the wished configuration was decided now. The default
        configuration is the present configuration of `default`. Of several creators, all get the
        domain of the first creator. Raises :class:`ares.ConsensusUnavailable`.
        """
        if isinstance(configuration, Configuration) and configuration.dap == "chain":
            raise BadInput(
                f"a chain makes a log: store.log({name!r}, create=...), or `ares-cli log "
                "create`; nothing was changed"
            )
        refuse_mirror(name)
        first, created = await self._created(name, configuration, timeout_s)
        return _objects(self._opened(first)), created

    async def create_log(
        self,
        name: str,
        configuration: Configuration,
        *,
        reads: Reads = "craq",
        timeout_s: float | None = None,
    ) -> tuple[Log, bool]:
        """Create a log, as :meth:`create_domain` creates a domain."""
        if isinstance(configuration, Configuration):
            check_chain(configuration)
        refuse_mirror(name)
        if isinstance(name, str) and name.startswith(FILE_DOMAINS):
            raise BadInput(
                f"names that begin with {FILE_DOMAINS} are names of files, and no log is called "
                f"{name!r}; nothing was changed"
            )
        first, created = await self._created(name, configuration, timeout_s)
        return _log(self._opened(first, reads)), created

    async def _created(
        self, name: str, configuration: Configuration | None, timeout_s: float | None
    ) -> tuple[Configuration, bool]:
        """Return the domain's first configuration, and whether this call's wish was decided."""
        domain = checked_domain(name)
        if domain == DEFAULT_DOMAIN:
            raise BadInput("the domain 'default' is there from the beginning, and holds objects")
        timeout = self._timeout(timeout_s)
        found = await self._found(domain, timeout)
        if found is not None:
            return found, False
        wished = (
            await self.current(timeout_s=timeout)
            if configuration is None
            else await self.identified(configuration)
        )
        first = await self._runner.run(
            _begin(wished.at(domain, 0, self.configuration.cluster_id)),
            f"creation of domain {name!r}",
            timeout,
        )
        try:
            await self.write_named(entry_of(domain), msgspec.msgpack.encode(first), timeout)
        except Uncertain as error:
            error.may_have_taken_effect = True
            error.advice = (
                f"the first configuration of domain {name!r} is decided ({first.describe()}), "
                "and creating it again completes it"
            )
            raise
        return first, first.same_content(wished)

    async def domains(
        self, *, timeout_s: float | None = None
    ) -> "AsyncIterator[ObjectStore | Log]":
        """Yield every domain except mirrors: `default`, then the other domains and logs by name.

        Logs are :class:`ares.Log`.
        """
        yield self
        async for name in self.list_named(DIRECTORY_PREFIX, timeout_s):
            if not name.startswith(DIRECTORY_PREFIX + MIRROR_DOMAINS):
                yield await self.domain_or_log(
                    name.removeprefix(DIRECTORY_PREFIX), timeout_s=timeout_s
                )

    async def is_near(self, domain: DomainName) -> bool:
        """Return whether nearby servers, or the domain's last servers, know the domain."""
        return await self._look_near(domain) is not None

    async def identified(self, configuration: Configuration) -> Configuration:
        """Return ``configuration`` with addresses and with the *present* identities of the servers.

        Raises :class:`BadInput` for unknown servers, and :class:`ConfigurationRefused` if a server
        does not answer: a silent server could not take part.
        """
        if not isinstance(configuration, Configuration):
            raise BadInput(
                "a configuration is made by Configuration.abd, Configuration.ec or "
                f"Configuration.chain; {type(configuration).__name__} is none"
            )
        resolved = configuration.resolved(self._book)
        described = await self.describe(list(resolved.servers), brief=True)
        for server in resolved.servers:
            description = described.get(server.id)
            if description is not None and description.server != server.id:
                raise BadInput(
                    f"at {server.address} answers {description.server}, not {server.id}: is this "
                    "the right cluster file?"
                )
            if description is not None and description.cluster != self.configuration.cluster_id:
                raise BadInput(
                    f"{server.id} at {server.address} runs with the file of another cluster: is "
                    "this the right cluster file?"
                )
        if silent := [server.id for server in resolved.servers if server.id not in described]:
            known = ", ".join(
                f"{server}: {why}"
                for server, why in self._runner.troubles.items()
                if server in silent
            )
            verb = "does" if len(silent) == 1 else "do"
            subject = f"{', '.join(silent)} {verb} not answer" + (f" ({known})" if known else "")
            raise ConfigurationRefused(
                f"{subject}; a new configuration begins with servers that run. Nothing was changed"
            )
        if resolved.dap == "chain":
            refuse_early_servers(described)
        if resolved.write_once and (
            early := [server for server in described if not described[server].write_once]
        ):
            raise ConfigurationRefused(
                f"{', '.join(early)} runs an earlier release, which knows no write-once domains. "
                "Install this release there first. Nothing was changed"
            )
        servers = tuple(
            msgspec.structs.replace(server, identity=described[server.id].identity)
            for server in resolved.servers
        )
        return msgspec.structs.replace(resolved, servers=servers)

    async def describe(
        self,
        servers: Sequence[Server],
        brief: bool = False,
        patience_s: float | None = None,
        usage_of: tuple[DomainName, ...] = (),
    ) -> dict[ServerId, Description]:
        """Return the descriptions of ``servers``, without the servers silent for ``patience_s``.

        ``patience_s`` is DESCRIBE_S by default. ``brief``: identities only. ``usage_of``: domains
        whose users the servers name, too.
        """
        described: dict[ServerId, Description] = {}
        for first in range(0, len(servers), SERVERS_MAX):
            some = describe_servers(
                servers[first : first + SERVERS_MAX], patience_s or DESCRIBE_S, brief, usage_of
            )
            described |= await self._runner.run(some, "describe", 10 * DESCRIBE_S)
        return described

    async def describe_members(self) -> list[ConsensusDescription]:
        """Return the descriptions of the consensus members that answer.

        Takes up to a second if a member is silent.
        """
        return await self._consensus.describe(DESCRIBE_S)

    async def _found(self, domain: DomainName, timeout_s: float | None) -> Configuration | None:
        """Return a finalized configuration of the domain, from which to begin.

        Nearby servers name the configuration, or else the directory has it.
        """
        named = await self._look_near(domain)
        return await self._recorded(domain, timeout_s) if named is None else named

    async def _look_near(self, domain: DomainName) -> Configuration | None:
        """Return the domain's configuration as named by nearby servers, or by its last servers.

        None if the servers name no configuration that can be believed.
        """
        for servers in self._locator.of(domain):
            named = await self._runner.run(
                locate(domain, servers), f"where domain {domain!r} is", 2 * LOCATE_S
            )
            if (
                named is not None
                and named.domain == domain
                and named.cluster_id == self.configuration.cluster_id
                and self._is_decided(named)
            ):
                return named
        return None

    def _is_decided(self, configuration: Configuration) -> bool:
        return self._decided is None or self._decided(configuration)

    async def _recorded(self, domain: DomainName, timeout_s: float | None) -> Configuration | None:
        """Return the first configuration of a domain from the directory.

        A client which writes objects can write to the directory: where decisions are certified, the
        entry must be a decision.
        """
        entry = (await self.read_named(entry_of(domain), timeout_s)).value
        if not isinstance(entry, bytes):
            return None
        try:
            first = msgspec.msgpack.decode(entry, type=Configuration)
        except msgspec.MsgspecError as error:
            raise ConfigurationRefused(
                f"the directory entry of domain {domain!r} cannot be read: {error}; its objects "
                "are untouched"
            ) from error
        if self._decided is not None and not (
            (first.domain, first.index) == (domain, 0) and self._decided(first)
        ):
            raise ConfigurationRefused(
                f"the directory entry of domain {domain!r} differs from the decision; its "
                "objects are untouched"
            )
        return first

    def _opened(self, first: Configuration, reads: Reads = "craq") -> "ObjectStore | Log":
        if first.dap == "chain":
            return self._opened_log(first, reads)
        if first.domain not in self._domains:
            view = View(
                self._client, first, self._switches, self._runner.session.readiness, self._coding
            )
            self._domains[first.domain] = ObjectStore(
                self._runner, view, self._timeout_s, self.identified
            )
        return self._domains[first.domain]

    def _opened_log(self, first: Configuration, reads: Reads) -> Log:
        """Open a log with a session shared by all users of the log, which orders appends."""
        runner, session = self._logs.get(first.domain, (None, None))
        if runner is None or session is None or runner.closed:
            session = LogSession(
                first,
                lambda: ClientId(secrets.randbits(64)),
                secrets.randbits(16),
                trust_s=TRUST_S,
                secret=secrets.token_bytes(SECRET_BYTES),
            )
            runner = Runner(
                session.view.client,
                self._connect(),
                self._consensus,
                self._tracer,
                session.session,
                session,
            )
            runner.learn(list(self._book.values()))
            runner.look_near = self._look_near
            session.session.readiness.remote = self._remote
            self._logs[first.domain] = runner, session
        return Log(runner, session, self._timeout_s, self.identified, reads)


def _begin(first: Configuration) -> Operation[Configuration]:
    """Decide the first configuration of a domain.

    The consensus service is told that a log's first chain is finalized: the service decides a chain
    only behind a chain.
    """
    decided = yield from agree(first, check_chain if first.dap == "chain" else coding_for)
    if decided.configuration.dap == "chain":
        yield Announce(decided.configuration)
    return decided.configuration


def _objects(found: "ObjectStore | Log") -> ObjectStore:
    if isinstance(found, Log):
        raise BadInput(
            f"{found.name!r} is a log, which holds no objects: use `await "
            f"store.log({found.name!r})`, or `ares-cli log`; nothing was changed"
        )
    return found


def _log(found: "ObjectStore | Log") -> Log:
    if not isinstance(found, Log):
        raise BadInput(
            f"{found.name!r} is no log but a domain that holds objects: use `await "
            f"store.domain({found.name!r})`, or --domain; nothing was changed"
        )
    return found


def entry_of(domain: DomainName) -> ObjectName:
    return ObjectName(DIRECTORY_PREFIX + domain)


def checked_domain(name: str) -> DomainName:
    if not isinstance(name, str):
        raise BadInput(f"a domain's name is text (str), not {type(name).__name__}")
    if not is_domain_name(name):
        raise BadInput(
            f"a domain's name has 1 to {DOMAIN_BYTES_MAX} bytes of printable text, not {name!r}"
        )
    return DomainName(name)


def refuse_mirror(name: object) -> None:
    """Refuse a mirror's name with :class:`BadInput`: only mirror functions use mirrors."""
    if isinstance(name, str) and name.startswith(MIRROR_DOMAINS):
        raise BadInput(
            f"names that begin with {MIRROR_DOMAINS} are names of mirrors, and {name!r} is not "
            "opened: `ares-cli domain mirror` makes mirrors, and `ares-cli read --stale-ok`, or "
            "read_stale, reads them; nothing was changed"
        )
