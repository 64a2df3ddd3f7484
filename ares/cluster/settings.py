"""The cluster file: read, checked completely, and turned into one frozen, typed value.

The file is the only description of a cluster shared by servers, consensus members and clients;
hence no part of the file is guessed. Every error is :class:`BadInput` and names the file, the key
and the expected value; at that time no process was started and no message sent.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import asdict, replace

from ares.cluster.addresses import is_loopback, split_address
from ares.cluster.cluster_keys import SecuritySettings, security_settings
from ares.cluster.tables import (
    BEAT_S_DEFAULT,
    NO_PATH,
    AutopilotSettings,
    EtcdSettings,
    EtcdTable,
    FileTable,
    InitialTable,
    Limits,
    LogSettings,
    ScrubSettings,
    TracingSettings,
    TransportName,
    decode,
)
from ares.cluster.tables import ClientSettings as ClientSettings
from ares.cluster.tables import MemberSettings as MemberSettings
from ares.cluster.tables import ServerSettings as ServerSettings
from ares.model.configuration import (
    BACKEND_DEFAULT,
    DELTA_DEFAULT,
    Algorithm,
    Configuration,
    Server,
)
from ares.model.errors import BadInput, ConfigurationRefused
from ares.model.identity import DEFAULT_DOMAIN, VALUE_BYTES_DEFAULT, ServerId
from ares.platform.named_files import SETTINGS_BYTES_MAX, read_named, refuse
from ares.security.keys import keyed, read_secret

FILE_NAME = "cluster.toml"
RUN_NAME = "run"
"""Name of the directory beside the cluster file for the pids and sockets of its processes."""


class Settings(Struct, frozen=True):
    """A cluster file that passed every check.

    ``initial``: c0 of the domain `default`. ``notes``: remarks worth showing. ``beat_s``: seconds
    between two signs of life of the leading consensus member. ``members`` or ``etcd`` keep the
    decisions; without both, the cluster has no consensus service. ``security``: None for a cluster
    without keys. ``durable``: servers acknowledge a write when it is on stable storage, and start
    again with their data. ``transport``: of all processes and clients.
    """

    path: Path
    name: str
    servers: dict[ServerId, ServerSettings]
    members: dict[ServerId, MemberSettings]
    initial: Configuration
    client: ClientSettings
    password_path: Path | None
    etcd: EtcdSettings | None
    security: SecuritySettings | None
    notes: tuple[str, ...]
    durable: bool = False
    beat_s: float = BEAT_S_DEFAULT
    limits: Limits = Limits()
    scrub: ScrubSettings = ScrubSettings()
    logs: LogSettings = LogSettings()
    tracing: TracingSettings = TracingSettings()
    autopilot: AutopilotSettings | None = None
    transport: TransportName = "native"
    local_sockets: bool = True
    """Permission for processes of one host to meet at Unix sockets."""
    published: bool = False
    """Permission for the algorithms as published (ares/testing/published); never with users."""

    @staticmethod
    def load(path: Path | str) -> "Settings":
        """Return the settings in the file at ``path``.

        Raises :class:`BadInput` if the file cannot be read, or if a check fails.
        """
        file = Path(path)
        if file.is_dir():
            raise BadInput(
                f"{file} is a directory; name the cluster file in it, for example "
                f"{file / FILE_NAME}"
            )
        try:
            text = read_named(file, SETTINGS_BYTES_MAX)[0].decode("utf-8")
        except OSError as error:
            raise BadInput(
                f"{file}: the cluster file cannot be read: {error.strerror}. `ares-cli init DIR` "
                "writes a new one"
            ) from error
        except UnicodeDecodeError as error:
            raise BadInput(f"{file}: expected a text file in UTF-8: {error}") from error
        return Settings.parse(text, file)

    @staticmethod
    def parse(text: str, path: Path) -> "Settings":
        """Return the settings in ``text``.

        ``path``: the present or future path of the file; paths in the file are relative to its
        directory.
        """
        return _Checks(path, decode(text, path)).settings()

    def book(self) -> dict[ServerId, Server]:
        """Return every server as configurations name it."""
        return {
            server.id: Server(server.id, keyed(server.address, server.public_key), server.identity)
            for server in self.servers.values()
        }

    @property
    def sockets(self) -> Path | None:
        """Return the directory of the Unix sockets; None: the cluster file wants TCP only."""
        return self.path.resolve().parent / RUN_NAME if self.local_sockets else None

    def processes(self) -> list[ServerSettings | MemberSettings]:
        """Return every process of the cluster: the servers, followed by the consensus members."""
        return [*self.servers.values(), *self.members.values()]

    def check_secrets(self) -> None:
        """Read every secret needed by the processes.

        Raises :class:`BadInput`, as the processes would, but before a process was started.
        """
        if self.members:
            self.password()
        if self.security is not None:
            self.security.check({process.id: process.public_key for process in self.processes()})

    def member_addresses(self) -> dict[ServerId, str]:
        """Return the addresses of the consensus members for clients, as connections learn them."""
        return {
            member.id: keyed(member.address, member.public_key) for member in self.members.values()
        }

    def password(self) -> str:
        """Return the consensus members' shared secret.

        Raises :class:`BadInput` if the secret's file is missing, empty or readable by other users.
        """
        if self.password_path is None:
            refuse(self.path, "consensus_password", "expected the path of a file, but missing")
        return read_secret(
            self.path, "consensus_password", self.password_path, "the members' shared secret"
        )


def _place(address: str, host: str | None) -> str:
    """Return a name of the address that is unique among all hosts.

    Of a process reached at ``host``, a loopback address is an address of that host; other hosts
    have the same loopback address.
    """
    return (
        f"{address} on {host}"
        if host and not is_loopback(host) and is_loopback(split_address(address)[0])
        else address
    )


class _Checks:
    """The checks of a file that concern several values."""

    def __init__(self, path: Path, file: FileTable) -> None:
        self._path = path
        self._file = file
        self._home = path.absolute().parent

    def settings(self) -> Settings:
        file, processes = self._file, self._file.processes()
        self._check_unique((f"{key}.id", table.id) for key, table in processes)
        self._check_unique(
            (f"server[{index}].identity", server.identity)
            for index, server in enumerate(file.server)
        )
        self._check_addresses()
        placed = {
            key: replace(
                table,
                data=self._home / (f"data/{table.id}" if table.data == NO_PATH else table.data),
            )
            for key, table in processes
        }
        self._check_unique((f"{key}.data", str(table.data)) for key, table in placed.items())
        self._check_site()
        security = security_settings(self._path, file)
        paths = {
            name: str(self._home / path)
            for name in ("key", "operation_log")
            if (path := getattr(file.client, name)) is not None
        }
        return Settings(
            path=self._path.absolute(),
            name=file.name,
            servers={
                table.id: table for table in placed.values() if isinstance(table, ServerSettings)
            },
            members={
                table.id: table for table in placed.values() if isinstance(table, MemberSettings)
            },
            initial=self._initial(
                file.initial,
                {
                    server.id: Server(server.id, server.address, server.identity)
                    for server in file.server
                },
            ),
            client=replace(file.client, **paths),
            password_path=None
            if file.consensus_password is None
            else self._home / file.consensus_password,
            etcd=None if file.etcd is None else self._etcd(file.etcd),
            security=security,
            notes=(*_notes(len(file.consensus), file.etcd), *_warnings(file)),
            beat_s=file.beat_s,
            durable=file.durability == "fsync",
            limits=file.limits,
            scrub=file.scrub,
            logs=file.logs,
            tracing=file.tracing or TracingSettings(),
            autopilot=file.autopilot,
            transport=cast(TransportName, file.transport),
            local_sockets=file.local_sockets,
            published=file.published,
        )

    def _check_site(self) -> None:
        site = self._file.client.site
        sites = list(dict.fromkeys(server.site for server in self._file.server if server.site))
        if site is not None and site not in sites:
            refuse(
                self._path,
                "client.site",
                f"expected the site of a [[server]], found {site!r}; known: "
                f"{', '.join(sites) or 'none'}",
            )

    def _etcd(self, table: EtcdTable) -> EtcdSettings:
        """Return the settings of the etcd table, with paths resolved from the file's directory."""
        keys: dict[str, Any] = asdict(table) | {"prefix": table.prefix.rstrip("/")}
        paths = {key: self._home / value for key, value in keys.items() if isinstance(value, Path)}
        return EtcdSettings(file=self._path.absolute(), **(keys | paths))

    def _check_addresses(self) -> None:
        file, processes = self._file, self._file.processes()
        keys = "`ares-cli init --security curve` makes keys"
        tls = "For an etcd elsewhere use TLS: name its ca"
        places = [
            (f"{key}.{name}", getattr(table, name), keys)
            for name in ("address", "raft")
            for key, table in processes
            if hasattr(table, name)
        ]
        if file.etcd is not None:
            needed = tls if file.etcd.ca is None else ""
            places += [
                (f"etcd.endpoints[{index}]", endpoint, needed)
                for index, endpoint in enumerate(file.etcd.endpoints)
            ]
        # an http address gives figures only: no data can be read or changed
        places += [(f"{key}.http", table.http, "") for key, table in processes if table.http]
        for key, address, needed in places:
            try:
                host, _ = split_address(address)
            except BadInput as error:
                refuse(self._path, key, str(error))
            if needed and file.security is None and not is_loopback(host):
                why = (
                    f"expected a loopback address, found {address!r}: without keys every client "
                    "that reaches it can read and write"
                )
                refuse(
                    self._path,
                    key,
                    f'{why}. {needed}; if its network is trusted, write security = "none"',
                )
        hosts = {f"{key}.http": split_address(table.address)[0] for key, table in processes}
        self._check_unique(
            (key, _place(address.replace("localhost:", "127.0.0.1:"), hosts.get(key)))
            for key, address, _ in places
        )

    def _check_unique(self, values: Iterable[tuple[str, str]]) -> None:
        seen: dict[str, str] = {}
        for key, value in values:
            if value in seen:
                refuse(
                    self._path, key, f"expected one of its own, but {value!r} is also {seen[value]}"
                )
            seen[value] = key

    def _initial(self, table: InitialTable, book: Mapping[ServerId, Server]) -> Configuration:
        if unknown := ", ".join(repr(name) for name in table.servers if name not in book):
            refuse(
                self._path,
                "initial.servers",
                f"expected ids of [[server]] tables, found {unknown}; known: {', '.join(book)}",
            )
        members = tuple(book[ServerId(name)] for name in table.servers)
        parameters: dict[str, Any] = (
            {"k": table.k, "delta": DELTA_DEFAULT, "backend": BACKEND_DEFAULT}
            if table.dap == "ec"
            else {}
        )
        parameters |= {
            key: value for key in ("delta", "backend") if (value := getattr(table, key)) is not None
        }
        try:
            configuration = Configuration(cast(Algorithm, table.dap), members, **parameters)
            if configuration.write_once:
                raise BadInput("the domain 'default' cannot be write-once: it has the directory")
            return configuration.checked_for_faults(table.allow_no_faults).at(DEFAULT_DOMAIN, 0)
        except ConfigurationRefused as error:
            refuse(
                self._path,
                "initial",
                str(error).replace("say --allow-no-faults", "write allow_no_faults = true"),
            )
        except BadInput as error:
            refuse(self._path, "initial", str(error))


def _warnings(file: FileTable) -> Iterator[str]:
    if file.transport == "libzmq" and file.limits.value_bytes > VALUE_BYTES_DEFAULT:
        yield (
            "with libzmq a connection without a key can make a process hold "
            f"{file.limits.value_bytes} bytes in the handshake (docs/limits.md)"
        )


def _notes(members: int, etcd: EtcdTable | None) -> tuple[str, ...]:
    if etcd is not None:
        return (
            f"decisions are kept by the etcd at {', '.join(etcd.endpoints)}, which is started "
            "and stopped elsewhere",
        )
    if members == 0:
        return (
            "no consensus members: reads and writes work, creating domains and reconfiguring do "
            "not",
        )
    if members % 2 == 0:
        return (
            f"{members} consensus members survive no more crashes than {members - 1} would: an "
            "odd number is better",
        )
    return ()
