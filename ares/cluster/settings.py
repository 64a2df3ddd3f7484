"""The cluster file: read, checked completely, and turned into one frozen, typed value.

The file is the only description of a cluster that servers, consensus members and clients share, so nothing in it is guessed. Every error is
:class:`BadInput` and names the file, the key and what was expected; nothing was started or sent by then.
"""

import ipaddress
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn, cast, get_args

from msgspec import Struct

from ares.cluster.autopilot_settings import AutopilotSettings, autopilot_settings
from ares.cluster.etcd_settings import EtcdSettings, etcd_settings
from ares.cluster.limits import Limits, check_limits
from ares.cluster.security_settings import SecuritySettings, located, security_settings
from ares.cluster.tables import ClientSettings as ClientSettings
from ares.cluster.tables import FileTable, InitialTable, MemberTable, ScrubSettings, ServerTable, TransportName, decode
from ares.machine.named_files import SETTINGS_BYTES_MAX, read_named, refuse
from ares.model.configuration import BACKEND_DEFAULT, DELTA_DEFAULT, Algorithm, Configuration, Server
from ares.model.errors import BadInput, ConfigurationRefused
from ares.model.identity import DEFAULT_DOMAIN, ServerId
from ares.security.keys import keyed
from ares.security.secrets import read_secret

FILE_NAME = "cluster.toml"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_IDENTITY = re.compile(r"[0-9a-f]{32}")


class ServerSettings(Struct, frozen=True):
    """A storage server: where it listens (``host:port``), its identity (32 hex characters), its directory.

    ``http``: where it says how it is (ares/server/http.py); empty: nowhere.
    """

    id: ServerId
    address: str
    identity: str
    data: Path
    public_key: str = ""
    http: str = ""


class MemberSettings(Struct, frozen=True):
    """A consensus member: where clients (``address``) and the other members (``raft``) find it, its directory, and ``http`` as a server's."""

    id: ServerId
    address: str
    raft: str
    data: Path
    public_key: str = ""
    http: str = ""


class Settings(Struct, frozen=True):
    """A cluster file that passed every check. ``initial`` is c0 of the domain `default`, placed there; ``notes`` are remarks worth showing.

    Decisions are kept by ``members``, or by ``etcd``; by nobody when there are neither. ``security``: None for a cluster without keys. ``durable``:
    servers acknowledge what is on stable storage, and start again with what they had. ``transport``: of all processes, and of clients.
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
    limits: Limits = Limits()
    scrub: ScrubSettings = ScrubSettings()
    autopilot: AutopilotSettings | None = None
    transport: TransportName = "native"

    @staticmethod
    def load(path: Path | str) -> "Settings":
        """The settings in the file at ``path``; :class:`BadInput` if it cannot be read or anything in it is not as it must be."""
        file = Path(path)
        if file.is_dir():
            raise BadInput(f"{file} is a directory; name the cluster file in it, for example {file / FILE_NAME}")
        try:
            text = read_named(file, SETTINGS_BYTES_MAX)[0].decode("utf-8")
        except OSError as error:
            raise BadInput(f"{file}: the cluster file cannot be read: {error.strerror}. `ares-cli init DIR` writes a new one") from error
        except UnicodeDecodeError as error:
            raise BadInput(f"{file}: expected a text file in UTF-8: {error}") from error
        return Settings.parse(text, file)

    @staticmethod
    def parse(text: str, path: Path) -> "Settings":
        """The settings in ``text``; ``path`` says where it stands or will stand: directories in it are relative to that place."""
        return _Checks(path, decode(text, path)).settings()

    def book(self) -> dict[ServerId, Server]:
        """Every server, as configurations name it."""
        return {server.id: Server(server.id, keyed(server.address, server.public_key), server.identity) for server in self.servers.values()}

    def processes(self) -> list[ServerSettings | MemberSettings]:
        """Every process of the cluster: the servers, then the consensus members."""
        return [*self.servers.values(), *self.members.values()]

    def check_secrets(self) -> None:
        """Read every secret that the processes need. Raises :class:`BadInput`, as they would, but before any of them was started."""
        if self.members:
            self.password()
        if self.security is not None:
            self.security.check({process.id: process.public_key for process in self.processes()})

    def member_addresses(self) -> dict[ServerId, str]:
        """Where clients reach the consensus members, as connections learn it."""
        return {member.id: keyed(member.address, member.public_key) for member in self.members.values()}

    def password(self) -> str:
        """The consensus members' shared secret. Raises :class:`BadInput` when its file is missing, empty or readable by others."""
        if self.password_path is None:
            refuse(self.path, "consensus_password", "expected the path of a file, but missing")
        return read_secret(self.path, "consensus_password", self.password_path, "the members' shared secret")


def split_address(address: str) -> tuple[str, int]:
    """Host and port of ``host:port``; ValueError says what is wrong with it."""
    host, _, port = address.rpartition(":")
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", host) or not re.fullmatch(r"[0-9]{1,9}", port):
        raise ValueError(f"expected host:port, found {address!r}")
    if not 1 <= int(port) <= 65535:
        raise ValueError(f"expected a port from 1 to 65535, found {address!r}")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``. Of a name other than localhost that is not known."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Checks:
    """What the values of one file must be, and how they hang together."""

    def __init__(self, path: Path, file: FileTable) -> None:
        self._path = path
        self._file = file

    def settings(self) -> Settings:
        self._check_head()
        self._check_ids()
        self._check_addresses()
        self._check_unique((f"{key}.data", str(self._data(table))) for key, table in self._file.processes())
        file = self._file
        etcd = etcd_settings(self._path, file)
        security = security_settings(self._path, file)
        servers = [ServerSettings(ServerId(it.id), it.address, it.identity, self._data(it), it.public_key or "", it.http or "") for it in file.server]
        members = [MemberSettings(ServerId(it.id), it.address, it.raft, self._data(it), it.public_key or "", it.http or "") for it in file.consensus]
        return Settings(
            path=self._path.absolute(),
            name=file.name,
            servers={server.id: server for server in servers},
            members={member.id: member for member in members},
            initial=self._initial(file.initial, {server.id: Server(server.id, server.address, server.identity) for server in servers}),
            client=located(self._path, file.client),
            password_path=None if file.consensus_password is None else self._path.absolute().parent / file.consensus_password,
            etcd=etcd,
            security=security,
            notes=_notes(len(members), etcd),
            durable=file.durability == "fsync",
            limits=file.limits,
            scrub=file.scrub,
            autopilot=autopilot_settings(self._path, file),
            transport=cast(TransportName, file.transport),
        )

    def _refuse(self, key: str, why: str) -> NoReturn:
        refuse(self._path, key, why)

    def _check_head(self) -> None:
        file = self._file
        if not _NAME.fullmatch(file.name):
            self._refuse("name", f"expected letters, digits, '.', '_' and '-' (at most 64), found {file.name!r}")
        if file.durability not in ("fsync", "memory"):
            self._refuse("durability", f'expected "fsync" or "memory", found {file.durability!r}')
        if file.security not in (None, "none", "curve"):
            self._refuse("security", f'expected "curve", "none" or no such key, found {file.security!r}')
        if file.transport not in get_args(TransportName):
            self._refuse("transport", f'expected "native", "libzmq" or no such key, found {file.transport!r}')
        if not (math.isfinite(file.client.timeout_s) and file.client.timeout_s > 0):
            self._refuse("client.timeout_s", f"expected seconds, more than 0, found {file.client.timeout_s}")
        check_limits(self._path, file.limits)
        if not (math.isfinite(file.scrub.every_h) and file.scrub.every_h >= 0):
            self._refuse("scrub.every_h", f"expected hours, or 0 for never, found {file.scrub.every_h}")
        if file.scrub.bytes_per_s < 1:
            self._refuse("scrub.bytes_per_s", f"expected bytes a second, 1 or more, found {file.scrub.bytes_per_s}")
        if not file.server:
            self._refuse("server", "expected at least one [[server]] table, found none")
        if file.consensus and not file.consensus_password:
            self._refuse("consensus_password", "expected the path of a file with the consensus members' shared secret, but missing")

    def _check_ids(self) -> None:
        for key, table in self._file.processes():
            if not _NAME.fullmatch(table.id):
                self._refuse(f"{key}.id", f"expected letters, digits, '.', '_' and '-' (at most 64), found {table.id!r}")
        self._check_unique((f"{key}.id", table.id) for key, table in self._file.processes())
        for index, server in enumerate(self._file.server):
            if not _IDENTITY.fullmatch(server.identity):
                self._refuse(f"server[{index}].identity", f"expected 32 characters 0-9a-f, found {server.identity!r}")
        self._check_unique((f"server[{index}].identity", server.identity) for index, server in enumerate(self._file.server))

    def _check_addresses(self) -> None:
        places = [(f"{key}.address", table.address) for key, table in self._file.processes()]
        places += [(f"consensus[{index}].raft", member.raft) for index, member in enumerate(self._file.consensus)]
        etcd = self._file.etcd
        endpoints = [] if etcd is None else [(f"etcd.endpoints[{index}]", endpoint) for index, endpoint in enumerate(etcd.endpoints)]
        for key, address in [*places, *endpoints]:
            try:
                host, _ = split_address(address)
            except ValueError as error:
                self._refuse(key, str(error))
            protected = etcd is not None and etcd.ca is not None and (key, address) in endpoints
            if self._file.security is None and not is_loopback(host) and not protected:
                why = f"expected a loopback address, found {address!r}: without keys anyone who reaches it can read and write"
                tls = (key, address) in endpoints
                then = "For an etcd elsewhere use TLS: name its ca" if tls else "`ares-cli init --security curve` makes keys"
                self._refuse(key, f'{why}. {then}; if its network is trusted, write security = "none"')
        everything = [*places, *endpoints, *self._http_addresses()]
        self._check_unique((key, address.replace("localhost:", "127.0.0.1:")) for key, address in everything)

    def _http_addresses(self) -> list[tuple[str, str]]:
        """Checked. Any address may be written there, with keys or without: nothing can be read or changed by it but figures."""
        addresses = [(f"{key}.http", table.http) for key, table in self._file.processes() if table.http is not None]
        for key, address in addresses:
            try:
                split_address(address)
            except ValueError as error:
                self._refuse(key, str(error))
        return addresses

    def _check_unique(self, values: Iterable[tuple[str, str]]) -> None:
        seen: dict[str, str] = {}
        for key, value in values:
            if value in seen:
                self._refuse(key, f"expected one of its own, but {value!r} is also {seen[value]}")
            seen[value] = key

    def _data(self, table: ServerTable | MemberTable) -> Path:
        return self._path.absolute().parent / (table.data or f"data/{table.id}")

    def _initial(self, table: InitialTable, book: Mapping[ServerId, Server]) -> Configuration:
        if table.dap not in ("abd", "ec"):
            self._refuse("initial.dap", f'expected "abd" or "ec", found {table.dap!r}')
        unknown = [name for name in table.servers if name not in book]
        if unknown:
            self._refuse("initial.servers", f"expected ids of [[server]] tables, found {', '.join(map(repr, unknown))}; known: {', '.join(book)}")
        members = tuple(book[ServerId(name)] for name in table.servers)
        parameters = self._parameters(table)
        try:
            configuration = Configuration(cast(Algorithm, table.dap), members, **parameters)
            return configuration.checked_for_faults(table.allow_no_faults).at(DEFAULT_DOMAIN, 0)
        except ConfigurationRefused as error:
            self._refuse("initial", str(error).replace("say --allow-no-faults", "write allow_no_faults = true"))
        except BadInput as error:
            self._refuse("initial", str(error))

    def _parameters(self, table: InitialTable) -> dict[str, Any]:
        given = {key: value for key in ("k", "delta", "backend") if (value := getattr(table, key)) is not None}
        if table.dap == "abd":
            for key in given:
                self._refuse(f"initial.{key}", 'expected only with dap = "ec": ABD replicates whole values')
            return {}
        if table.k is None or not 1 <= table.k < len(table.servers):
            found = "but missing" if table.k is None else f"found {table.k}"
            self._refuse("initial.k", f"expected 1 <= k < {len(table.servers)}, the number of servers, {found}")
        return {"delta": DELTA_DEFAULT, "backend": BACKEND_DEFAULT} | given


def _notes(members: int, etcd: EtcdSettings | None) -> tuple[str, ...]:
    if etcd is not None:
        return (f"decisions are kept by the etcd at {', '.join(etcd.endpoints)}, which is started and stopped elsewhere",)
    if members == 0:
        return ("no consensus members: reads and writes work, creating domains and reconfiguring do not",)
    if members % 2 == 0:
        return (f"{members} consensus members survive no more crashes than {members - 1} would: an odd number is better",)
    return ()
