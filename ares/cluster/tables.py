"""The tables of the cluster file: keys, types, allowed values, reading and writing.

settings.py checks the tables together. No unknown key is passed over: otherwise a misspelt key
would become an unwanted default.
"""

import difflib
import logging
import math
import re
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, NoReturn, get_args

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import fields, replace

from ares.model.codec import frame_bytes_max
from ares.model.errors import BadInput
from ares.model.identity import VALUE_BYTES_DEFAULT, VALUE_BYTES_MAX, ServerId
from ares.model.units import MIB
from ares.platform.named_files import SETTINGS_BYTES_MAX, NotToml, parse_toml, read_named, refuse
from ares.security.clients_file import CLIENT_NAME, CLIENT_NAME_EXPECTED
from ares.security.keys import read_secret, shown

CLUSTER_FORMAT = 1
LIMIT_CONNECTIONS_MAX = 1_000_000
LARGEST_AT_ONCE = 4
"""Messages of the largest value for which a process has room by default."""

DESCRIPTORS_BESIDE = 256
"""Files that a process opens in addition to connections of clients.

The store, the log, the threads, the connections to consensus members.
"""

EVERY_S_MIN = 0.1
BEAT_S_DEFAULT, BEAT_S_BOUNDS = 0.1, (0.1, 10.0)
SITES_BEAT_S = 2.5
"""The beat of consensus members at several sites, unless the file has another one."""

_IDENTITY = re.compile(r"[0-9a-f]{32}")
_ETCD_PREFIX = re.compile(r"[A-Za-z0-9_./-]{1,200}")

TransportName = Literal["native", "libzmq"]
"""The implementation of ZeroMQ's protocol: this project's, or libzmq (docs/transport.md)."""

Checks = Iterator[tuple[str, bool, str]]
"""The checks of a table: a key, whether its value is allowed, and the error if it is not.

The error says the expected value and the found value.
"""

Given = Annotated[str, Meta(min_length=1)]
"""A text that is not written if empty: the empty text stands for a missing key."""

NO_PATH = Path("\0")
"""An empty path, or a missing path.

No file has this name, and no text of a cluster file has a NUL.
"""

_log = logging.getLogger(__name__)


class ClusterFileTable(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file: the definition by which the table is read and written.

    Paths in a table are relative to the directory of the file.
    """

    def checks(self) -> Checks:
        """Yield the checks of this table's values, independent of all other tables."""
        yield from ()


class ClientSettings(ClusterFileTable, frozen=True):
    """The default behaviour of a client.

    The deadline of an operation in seconds, and the additions of ARES II and CoARES to ARES.
    ``key``: the path of the client's secret key. ``operation_log``: the path of the file that gets
    a line for each operation. ``site``: the client's site (docs/sites.md).
    """

    timeout_s: float = 30.0
    piggyback: bool = True
    gc: bool = True
    batch: bool = True
    fast_read: bool = True
    optimised: bool = True
    ahead: bool = True
    key: str | None = None
    operation_log: str | None = None
    site: str | None = None

    def checks(self) -> Checks:
        yield _of_name("site", self.site or "none")
        yield (
            "timeout_s",
            0 < self.timeout_s < math.inf,
            f"expected seconds, more than 0, found {self.timeout_s}",
        )


class Limits(ClusterFileTable, frozen=True):
    """Limits of the memory and files used by the clients of a process (docs/limits.md).

    These limits depend on the number of clients and on the memory of the machine. ``connections``:
    connections at once. ``received_bytes``: received bytes, of all clients, which the process has
    not looked at yet. ``unread_bytes``: replies that all clients together have not taken yet.
    ``value_bytes``: bytes of the largest value, for servers and clients.
    """

    connections: int = 4_000
    received_bytes: int = 1024 * MIB
    unread_bytes: int = 512 * MIB
    value_bytes: int = VALUE_BYTES_DEFAULT

    @staticmethod
    def for_values(value_bytes: int, at_once: int = LARGEST_AT_ONCE) -> "Limits":
        """Return limits with room for ``at_once`` messages of the largest value.

        There is room for half as many unread replies. With the default arguments, the defaults.
        """
        limits = Limits(value_bytes=value_bytes)
        if value_bytes == VALUE_BYTES_DEFAULT and at_once == LARGEST_AT_ONCE:
            return limits
        room = at_once * frame_bytes_max(value_bytes)
        return replace(
            limits,
            received_bytes=max(room, limits.bytes_min),
            unread_bytes=max(room // 2, limits.bytes_min),
        )

    @property
    def bytes_min(self) -> int:
        """Smallest limit of bytes: with less, the largest value would be cut off on the way."""
        return frame_bytes_max(self.value_bytes) + 64 * MIB

    def checks(self) -> Checks:
        yield (
            "value_bytes",
            VALUE_BYTES_DEFAULT <= self.value_bytes <= VALUE_BYTES_MAX,
            f"expected {VALUE_BYTES_DEFAULT} to {VALUE_BYTES_MAX}, found {self.value_bytes}",
        )
        yield (
            "connections",
            1 <= self.connections <= LIMIT_CONNECTIONS_MAX,
            f"expected 1 to {LIMIT_CONNECTIONS_MAX}, found {self.connections}",
        )
        for key, value in (
            ("received_bytes", self.received_bytes),
            ("unread_bytes", self.unread_bytes),
        ):
            yield (
                key,
                value >= self.bytes_min,
                f"expected at least {self.bytes_min}, room for the largest value (value_bytes = "
                f"{self.value_bytes}), found {value}",
            )


class AutopilotSettings(ClusterFileTable, frozen=True):
    """The table of the autopilot, which replaces dead servers (docs/autopilot.md).

    ``after_s``: the silence after which a server counts as dead. ``every_s``: the time between two
    looks at servers. ``bytes_per_s``: the rate of data moved for a replacement. ``log_after_s``:
    the silence for a server of a log's chain, which is asked four times during the silence.
    ``transfer``: the way of large values, through the autopilot or from server to server.
    ``follow_rest_s``: the shortest stay of a domain that followed its users.
    ``follow_bytes_per_hour``: the limit of data moved by all domains that follow.
    ``mirror_every_s``: the time between two updates of mirrors (docs/sites.md).
    """

    after_s: float = 60.0
    every_s: float = 5.0
    bytes_per_s: int = 32 * MIB
    log_after_s: float = 1.5
    transfer: Literal["client", "servers"] = "client"
    follow_rest_s: float = 60.0
    follow_bytes_per_hour: int = 10 * 1024 * MIB
    mirror_every_s: float = 10.0

    def checks(self) -> Checks:
        every_s, after_s, log_after_s = self.every_s, self.after_s, self.log_after_s
        yield (
            "every_s",
            EVERY_S_MIN <= every_s < math.inf,
            f"expected seconds (at least {EVERY_S_MIN:g}), found {every_s:g}",
        )
        why = (
            "no fewer than every_s: one look is not enough to replace a server (at least "
            f"{every_s:g})"
        )
        yield (
            "after_s",
            every_s <= after_s < math.inf,
            f"expected seconds, {why}, found {after_s:g}",
        )
        yield (
            "bytes_per_s",
            self.bytes_per_s >= 1,
            f"expected bytes per second, more than 0, found {self.bytes_per_s}",
        )
        low = 4 * EVERY_S_MIN
        yield (
            "log_after_s",
            low <= log_after_s < math.inf,
            f"expected seconds (at least {low:g}), found {log_after_s:g}",
        )
        yield (
            "follow_rest_s",
            0 <= self.follow_rest_s < math.inf,
            f"expected seconds, 0 or more, found {self.follow_rest_s:g}",
        )
        yield (
            "follow_bytes_per_hour",
            self.follow_bytes_per_hour >= 1,
            f"expected bytes an hour, 1 or more, found {self.follow_bytes_per_hour}",
        )
        mirror_s = self.mirror_every_s
        yield (
            "mirror_every_s",
            EVERY_S_MIN <= mirror_s < math.inf,
            f"expected seconds (at least {EVERY_S_MIN:g}), found {mirror_s:g}",
        )


class ScrubSettings(ClusterFileTable, frozen=True):
    """The verification of data on a server's disk: hours between scrubs, and rate (docs/store.md).

    0 hours: a server scrubs only when asked.
    """

    every_h: float = 168.0
    bytes_per_s: int = 8 * MIB

    def checks(self) -> Checks:
        yield (
            "every_h",
            0 <= self.every_h < math.inf,
            f"expected hours, or 0 for never, found {self.every_h}",
        )
        yield (
            "bytes_per_s",
            self.bytes_per_s >= 1,
            f"expected bytes a second, 1 or more, found {self.bytes_per_s}",
        )


class LogSettings(ClusterFileTable, frozen=True):
    """The rate at which a server fetches old entries of logs whose chains it joins (docs/log.md).

    The rate is for all logs of the server together.
    """

    fetch_bytes_per_s: int = 64 * MIB

    def checks(self) -> Checks:
        yield (
            "fetch_bytes_per_s",
            self.fetch_bytes_per_s >= 1,
            f"expected bytes a second, 1 or more, found {self.fetch_bytes_per_s}",
        )


class TracingSettings(ClusterFileTable, frozen=True):
    """The destination of traces (docs/tracing.md).

    OpenTelemetry's variables take precedence over this table (ares/tracing/variables.py).
    ``exporter``: the destination of spans: otlp, console, none or file:PATH. ``share``: the share
    of traced operations, 0 to 1. ``parent``: a caller's own span decides, if present. ``keys``:
    spans may have the names of objects and files. ``service``: the name of the service in spans.
    """

    exporter: str = "none"
    share: float = 1.0
    parent: bool = True
    keys: bool = False
    service: str | None = None

    def checks(self) -> Checks:
        yield (
            "exporter",
            is_exporter(self.exporter),
            f"expected otlp, console, none or file:PATH, found {self.exporter!r}",
        )
        yield (
            "share",
            0 <= self.share <= 1,
            f"expected a share of the operations, 0 to 1, found {self.share:g}",
        )


def is_exporter(exporter: str) -> bool:
    """Return whether an exporter of this name exists."""
    return exporter in ("otlp", "console", "none") or (
        exporter.startswith("file:") and len(exporter) > len("file:")
    )


class ServerSettings(ClusterFileTable, frozen=True):
    """A storage server: its address (``host:port``), identity (32 hex characters) and directory.

    ``http``: the address of its monitor (ares/server/monitor.py); empty: no monitor. ``site``: its
    site (docs/sites.md); empty: unknown.
    """

    id: ServerId
    address: str
    identity: str
    data: Path = NO_PATH
    public_key: Given = ""
    http: Given = ""
    site: Given = ""

    def checks(self) -> Checks:
        yield _of_name("id", self.id)
        yield _of_name("site", self.site or "none")
        yield (
            "identity",
            bool(_IDENTITY.fullmatch(self.identity)),
            f"expected 32 characters 0-9a-f, found {self.identity!r}",
        )


class MemberSettings(ClusterFileTable, frozen=True):
    """A consensus member: its addresses for clients and members, its directory, its monitor.

    ``address``: for clients. ``raft``: for members. ``http`` and ``site``: as of a server.
    """

    id: ServerId
    address: str
    raft: str
    data: Path = NO_PATH
    public_key: Given = ""
    http: Given = ""
    site: Given = ""

    def checks(self) -> Checks:
        yield _of_name("id", self.id)
        yield _of_name("site", self.site or "none")


class EtcdTable(ClusterFileTable, frozen=True, rename={"password_path": "password"}):
    """The way to an etcd cluster: its members' addresses for clients, and the prefix of all keys.

    Addresses are ``host:port``. With ``ca`` (PEM) connections are TLS; ``certificate`` and ``key``
    identify the client to an etcd that asks for them. ``user`` logs in with the password in the
    file ``password_path``.
    """

    endpoints: tuple[str, ...]
    prefix: str = "/ares"
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    user: str | None = None
    password_path: Path | None = None

    def checks(self) -> Checks:
        yield (
            "endpoints",
            bool(self.endpoints),
            "expected the host:port of at least one member of an etcd cluster, found none",
        )
        usable = bool(_ETCD_PREFIX.fullmatch(self.prefix) and self.prefix.strip("/"))
        yield (
            "prefix",
            usable,
            f"expected letters, digits, '/', '.', '_' and '-' (at most 200), found {self.prefix!r}",
        )
        given = msgspec.to_builtins(self, enc_hook=str)
        for name in ("ca", "certificate", "key", "password"):
            yield name, given[name] != str(NO_PATH), "expected the path of a file, found ''"
        for one, other in (
            ("certificate", "key"),
            ("key", "certificate"),
            ("certificate", "ca"),
            ("user", "password"),
            ("password", "user"),
        ):
            yield (
                other,
                given[one] is None or given[other] is not None,
                f"expected together with {one}, but missing",
            )


class EtcdSettings(EtcdTable, frozen=True, kw_only=True):
    """The table of etcd with resolved paths. ``file`` is the cluster file, for errors."""

    file: Path

    def password(self) -> str | None:
        """Return the user's password, or None without a user.

        Raises :class:`ares.BadInput` if the password's file is missing, empty or readable by other
        users.
        """
        if self.password_path is None:
            return None
        return read_secret(
            self.file,
            "etcd.password",
            self.password_path,
            "the password of the etcd user",
            anybodys=True,
        )

    def pem(self, key: str, path: Path | None) -> bytes | None:
        """Return the content of the file of ``etcd.key``, or None without a file.

        Raises :class:`ares.BadInput` if the file cannot be read.
        """
        if path is None:
            return None
        try:
            return read_named(path, SETTINGS_BYTES_MAX)[0]
        except OSError as error:
            refuse(self.file, f"etcd.{key}", f"{shown(path)} cannot be read: {error.strerror}")


class InitialTable(ClusterFileTable, frozen=True):
    """The first configuration of the domain `default`."""

    dap: str
    servers: list[str]
    k: int | None = None
    delta: int | None = None
    backend: str | None = None
    allow_no_faults: bool = False

    def checks(self) -> Checks:
        is_ec, members = self.dap == "ec", len(self.servers)
        yield "dap", is_ec or self.dap == "abd", f'expected "abd" or "ec", found {self.dap!r}'
        for key in ("k", "delta", "backend"):
            yield (
                key,
                is_ec or getattr(self, key) is None,
                'expected only with dap = "ec": ABD replicates whole values',
            )
        found = "but missing" if self.k is None else f"found {self.k}"
        yield (
            "k",
            not is_ec or (self.k is not None and 1 <= self.k < members),
            f"expected 1 <= k < {members}, the number of servers, {found}",
        )


class FileTable(ClusterFileTable, frozen=True, kw_only=True):
    """The whole file, in the order of writing."""

    format: int
    name: str
    durability: str
    security: str | None = None
    transport: str = "native"
    local_sockets: bool = True
    published: bool = False
    keys: str | None = None
    decision_key: str | None = None
    consensus_password: str | None = None
    consensus_beat_s: float | None = None
    server: list[ServerSettings] = []
    consensus: list[MemberSettings] = []
    etcd: EtcdTable | None = None
    limits: Limits = Limits()
    scrub: ScrubSettings = ScrubSettings()
    logs: LogSettings = LogSettings()
    tracing: TracingSettings | None = None
    autopilot: AutopilotSettings | None = None
    client: ClientSettings = ClientSettings()
    initial: InitialTable

    def checks(self) -> Checks:
        members, etcd, transports = self.consensus, self.etcd, get_args(TransportName)
        yield _of_name("name", self.name)
        yield (
            "durability",
            self.durability in ("fsync", "memory"),
            f'expected "fsync" or "memory", found {self.durability!r}',
        )
        yield (
            "security",
            self.security in (None, "none", "curve"),
            f'expected "curve", "none" or no such key, found {self.security!r}',
        )
        yield (
            "transport",
            self.transport in transports,
            f'expected "native", "libzmq" or no such key, found {self.transport!r}',
        )
        yield "server", bool(self.server), "expected at least one [[server]] table, found none"
        why = "expected the path of a file with the consensus members' shared secret, but missing"
        yield "consensus_password", bool(self.consensus_password) or not members, why
        why = (
            "expected either [[consensus]] tables or [etcd], found both: two services would "
            "decide apart from each other"
        )
        yield "etcd", etcd is None or not members, why
        low, high = BEAT_S_BOUNDS
        why = (
            f"expected seconds from {low} to {high:g} between two signs of life of the leading "
            f"consensus member, found {self.consensus_beat_s!r}"
        )
        yield "consensus_beat_s", low <= self.beat_s <= high, why
        why = "expected only with [[consensus]] tables, and here etcd decides"
        yield "consensus_password", etcd is None or self.consensus_password is None, why
        why = (
            "expected only with [[consensus]] tables: one of them leads and flies "
            f"it{'' if etcd is None else ', and etcd runs nothing of ares'}"
        )
        yield "autopilot", self.autopilot is None or bool(members), why

    @property
    def beat_s(self) -> float:
        """Seconds between two signs of life of the leading consensus member."""
        if self.consensus_beat_s is not None:
            return self.consensus_beat_s
        return (
            SITES_BEAT_S if len({member.site for member in self.consensus}) > 1 else BEAT_S_DEFAULT
        )

    def tables(self) -> Iterator[tuple[str, ClusterFileTable]]:
        """Yield this table and the tables in it, each with a key path.

        Tables of an array count from 0, as in ``server[0]``.
        """
        yield "", self
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, ClusterFileTable):
                yield name, value
            elif isinstance(value, list):
                yield from ((f"{name}[{index}]", table) for index, table in enumerate(value))

    def processes(self) -> list[tuple[str, ServerSettings | MemberSettings]]:
        """Return every server and consensus member with its key path."""
        return [
            (key, table)
            for key, table in self.tables()
            if isinstance(table, ServerSettings | MemberSettings)
        ]


def _of_name(key: str, name: str) -> tuple[str, bool, str]:
    return (
        key,
        bool(CLIENT_NAME.fullmatch(name)),
        f"expected {CLIENT_NAME_EXPECTED}, found {name!r}",
    )


def fitting(limits: Limits) -> Limits:
    """Return ``limits`` with as many connections as this process has descriptors for.

    The process first asks for as many descriptors as it may have.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.connections + DESCRIPTORS_BESIDE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return limits
    fewer = max(soft - DESCRIPTORS_BESIDE, soft // 2)
    _log.warning(
        "%d connections of clients instead of %d: this process may open %d files (ulimit -n, "
        "LimitNOFILE)",
        fewer,
        limits.connections,
        soft,
    )
    return replace(limits, connections=fewer)


_TABLE_KINDS = {"": FileTable} | {
    name: kind
    for name, hint in FileTable.__annotations__.items()
    for kind in (hint, *get_args(hint))
    if isinstance(kind, type) and issubclass(kind, ClusterFileTable)
}
"""The tables of a file by name, in the order of writing."""

# -- reading -----------------------------------------------------------------------------------

_TOML_TYPES = {
    "`object": "`table",
    "`str": "`string",
    "`int": "`integer",
    "`bool": "`boolean",
    " | null": "",
}


def decode(text: str, path: Path) -> FileTable:
    """Return the tables in ``text``, where each key is known and each value is allowed.

    Raises :class:`BadInput`.
    """
    try:
        tables = parse_toml(text)
        format = tables.get("format", CLUSTER_FORMAT)
        if type(format) is int and format != CLUSTER_FORMAT:
            # checked first, because another format has other keys
            age = "a newer" if format > CLUSTER_FORMAT else "another"
            refuse(
                path,
                "format",
                f"expected {CLUSTER_FORMAT}, found {format}: the file was written for {age} "
                "release of ares; use that one",
            )
        file = msgspec.convert(tables, FileTable, dec_hook=_path)
    except NotToml as error:
        raise BadInput(f"{path}: {error}") from error
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at ")
        _explain(path, what, place.strip("`").removeprefix("$").removeprefix("."))
    for key, table in file.tables():
        for name, allowed, why in table.checks():
            if not allowed:
                refuse(path, f"{key}.{name}".removeprefix("."), why)
    return file


def _path(kind: type, value: object) -> Path:
    if isinstance(value, str):
        return Path(value) if value else NO_PATH
    raise ValueError(
        "Expected `str`, got "
        f"`{ {'list': 'array', 'dict': 'object'}.get(name := type(value).__name__, name) }`"
    )


def _explain(path: Path, what: str, place: str) -> NoReturn:
    """Refuse the file in the words of TOML for msgspec's error at the key path ``place``."""
    inside = f"{place}." if place else ""
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", what):
        names = _TABLE_KINDS[place.partition("[")[0]].__struct_encode_fields__
        near = difflib.get_close_matches(unknown[1], names, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(names)}"
        refuse(path, f"{inside}{unknown[1]}", f"unknown key; {hint}")
    if missing := re.fullmatch(r"Object missing required field `(.*)`", what):
        refuse(path, f"{inside}{missing[1]}", "expected, but missing")
    for theirs, ours in _TOML_TYPES.items():
        what = what.replace(theirs, ours)
    refuse(path, place, what[:1].lower() + what[1:])


# -- writing -----------------------------------------------------------------------------------


def written(file: FileTable, remarks: Mapping[str, str]) -> str:
    """Return the text of a cluster file, without values at their defaults.

    ``remarks``: texts to precede a key or a table, even if the table is not written.
    """
    parts = [lines(file, remarks)]
    for field in fields(file):
        value = getattr(file, field.name)
        if isinstance(value, list):
            parts += [f"\n[[{field.name}]]\n{lines(table)}" for table in value]
        elif field.name in _TABLE_KINDS:
            is_written = value not in (None, field.default)
            parts.append(remarks.get(field.name, "\n" if is_written else ""))
            parts.append(f"[{field.name}]\n{lines(value)}" if is_written else "")
    return "".join(parts)


def lines(table: ClusterFileTable, remarks: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the keys of a table that differ from their defaults, with values.

    If no key differs, all keys. Tables in the table are left out.
    """
    given = [
        (field, getattr(table, field.name))
        for field in fields(table)
        if field.name not in _TABLE_KINDS
    ]
    shown = [
        (field.encode_name, value) for field, value in given if value not in (None, field.default)
    ]
    shown = shown or [(field.encode_name, value) for field, value in given if value is not None]
    return "".join(f"{remarks.get(name, '')}{name} = {_toml(value)}\n" for name, value in shown)


def _toml(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return (
        f"{value:g}"
        if isinstance(value, float)
        else msgspec.json.encode(value, enc_hook=str).decode()
    )
