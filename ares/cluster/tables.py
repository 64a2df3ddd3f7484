"""The tables of the cluster file: which keys there are, of which type, what is allowed by itself, and how the file is read and written.

What the tables mean together is checked in settings.py. Nothing unknown is passed over: a misspelt key would otherwise be a default that nobody asked
for.
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

from ares.machine.named_files import SETTINGS_BYTES_MAX, NotToml, parse_toml, read_named, refuse
from ares.model.codec import FRAME_BYTES_MAX
from ares.model.errors import BadInput
from ares.model.identity import ServerId
from ares.operation.room import ROOM_BYTES
from ares.security.clients_file import NAME, NAME_EXPECTED
from ares.security.keys import read_secret, shown

MIB = 1024 * 1024
FORMAT = 1
CONNECTIONS_MAX = 1_000_000
BYTES_MIN = FRAME_BYTES_MAX + 64 * MIB
"""Less, and the largest value would be cut off on its way."""

DESCRIPTORS_BESIDE = 256
"""What a process opens besides its clients' connections: its store, its log, its threads, the other consensus members."""

EVERY_S_MIN = 0.1
BEAT_S, BEAT_S_BOUNDS = 0.1, (0.1, 10.0)
_IDENTITY = re.compile(r"[0-9a-f]{32}")
_PREFIX = re.compile(r"[A-Za-z0-9_./-]{1,200}")

TransportName = Literal["native", "libzmq"]
"""Who speaks ZeroMQ's protocol: this project, or libzmq (docs/transport.md)."""

Checks = Iterator[tuple[str, bool, str]]
"""Keys of a table: each with whether its value is allowed, and otherwise what was expected there and what was found."""

Given = Annotated[str, Meta(min_length=1)]
"""A text that is not written as an empty one: that stands for a missing key."""

NO_PATH = Path("\0")
"""An empty text in place of a path, or none at all; no file has this name, and no text of a cluster file a NUL."""

_log = logging.getLogger(__name__)


class Table(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file, and the definition by which it is read and written. Paths in it are relative to the directory of the file."""

    def checks(self) -> Checks:
        """Of its values, whatever the other tables say."""
        yield from ()


class ClientSettings(Table, frozen=True):
    """How a client behaves unless told otherwise: the deadline of one operation in seconds, and what ARES II and CoARES add to ARES.

    ``key``: the path of the file with its secret key. ``operation_log``: of the file that gets a line for each of its operations. ``site``: where it
    is (docs/sites.md). ``under_way_bytes``: size of its operations under way, beyond which others wait (docs/limits.md).
    """

    timeout_s: float = 30.0
    piggyback: bool = True
    gc: bool = True
    batch: bool = True
    fast_read: bool = True
    optimised: bool = True
    under_way_bytes: int = ROOM_BYTES
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
        yield (
            "under_way_bytes",
            MIB <= self.under_way_bytes < 2**63,
            f"expected bytes, at least {MIB}, found {self.under_way_bytes}",
        )


class Limits(Table, frozen=True):
    """What the clients of one process may make it hold (docs/limits.md): the bounds that depend on the number of clients and the memory there is.

    ``connections``: how many at once. ``received_bytes``: what came in from all of them and was not looked at yet. ``unread_bytes``: replies that
    they, all together, have not taken yet.
    """

    connections: int = 4_000
    received_bytes: int = 1024 * MIB
    unread_bytes: int = 512 * MIB

    def checks(self) -> Checks:
        yield (
            "connections",
            1 <= self.connections <= CONNECTIONS_MAX,
            f"expected 1 to {CONNECTIONS_MAX}, found {self.connections}",
        )
        for key, value in (
            ("received_bytes", self.received_bytes),
            ("unread_bytes", self.unread_bytes),
        ):
            yield (
                key,
                value >= BYTES_MIN,
                f"expected at least {BYTES_MIN}, room for the largest value, found {value}",
            )


class AutopilotSettings(Table, frozen=True):
    """Where the table is, servers that are gone are replaced by others (docs/autopilot.md).

    ``after_s``: how long one must have been silent. ``every_s``: how often servers are looked at. ``bytes_per_s``: how fast data moves for that.
    ``log_after_s``: how long a server of a log's chain must have been silent; it is asked four times in that. ``transfer``: how large values travel,
    through the autopilot or from server to server. ``follow_rest_s``: how long a domain that followed its users stays at least;
    ``follow_bytes_per_hour``: how much all that follow may move. ``mirror_every_s``: how often mirrors (docs/sites.md) are brought up to date.
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
        why = f"no fewer than every_s: one look is not enough to replace a server (at least {every_s:g})"
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


class ScrubSettings(Table, frozen=True):
    """How servers with a store verify what is on their disks: every so many hours (0: only when asked to), and how fast (docs/store.md)."""

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


class LogSettings(Table, frozen=True):
    """How fast a server that joins the chain of a log fetches what is older from the others, all its logs together (docs/log.md)."""

    fetch_bytes_per_s: int = 64 * MIB

    def checks(self) -> Checks:
        yield (
            "fetch_bytes_per_s",
            self.fetch_bytes_per_s >= 1,
            f"expected bytes a second, 1 or more, found {self.fetch_bytes_per_s}",
        )


class TracingSettings(Table, frozen=True):
    """What becomes of traces (docs/tracing.md). OpenTelemetry's variables win over these (ares/tracing/variables.py).

    ``exporter``: where spans go: otlp, console, none or file:PATH. ``share`` of the operations is traced, 0 to 1. ``parent``: where a caller has a
    span of its own, that decides. ``keys``: the names of objects and files may be told. ``service``: what spans say they are of.
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
    """Whether there is such a one."""
    return exporter in ("otlp", "console", "none") or (
        exporter.startswith("file:") and len(exporter) > len("file:")
    )


class ServerSettings(Table, frozen=True):
    """A storage server: where it listens (``host:port``), its identity (32 hex characters), its directory.

    ``http``: where it says how it is (ares/server/monitor.py); empty: nowhere. ``site``: where it is (docs/sites.md); empty: that is not said.
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


class MemberSettings(Table, frozen=True):
    """A consensus member: where clients (``address``) and the other members (``raft``) find it, its directory, and ``http`` as a server's."""

    id: ServerId
    address: str
    raft: str
    data: Path = NO_PATH
    public_key: Given = ""
    http: Given = ""

    def checks(self) -> Checks:
        yield _of_name("id", self.id)


class EtcdTable(Table, frozen=True, rename={"password_path": "password"}):
    """How one etcd cluster is reached: members' addresses for clients (``host:port``), and what every key of ares in it begins with.

    With ``ca`` (PEM) connections are TLS; ``certificate`` and ``key`` then identify the client to an etcd that asks for it. ``user`` logs in with the
    password in the file ``password_path``.
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
        usable = bool(_PREFIX.fullmatch(self.prefix) and self.prefix.strip("/"))
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
    """The table as it is used. ``file`` is the cluster file, for errors."""

    file: Path

    def password(self) -> str | None:
        """The user's password, None without a user. Raises :class:`ares.BadInput` when its file is missing, empty or readable by
        others."""
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
        """What the file of ``etcd.key`` holds, None for none. Raises :class:`ares.BadInput` when it cannot be read."""
        if path is None:
            return None
        try:
            return read_named(path, SETTINGS_BYTES_MAX)[0]
        except OSError as error:
            refuse(self.file, f"etcd.{key}", f"{shown(path)} cannot be read: {error.strerror}")


class InitialTable(Table, frozen=True):
    """The configuration that the domain `default` begins with."""

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


class FileTable(Table, frozen=True, kw_only=True):
    """The whole file, in the order in which it is written."""

    format: int
    name: str
    durability: str
    security: str | None = None
    transport: str = "native"
    keys: str | None = None
    decision_key: str | None = None
    consensus_password: str | None = None
    consensus_beat_s: float = BEAT_S
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
        why = "expected either [[consensus]] tables or [etcd], found both: two services would decide apart from each other"
        yield "etcd", etcd is None or not members, why
        low, high = BEAT_S_BOUNDS
        why = f"expected seconds from {low} to {high:g} between two signs of life of the leading consensus member, found {self.consensus_beat_s!r}"
        yield "consensus_beat_s", low <= self.consensus_beat_s <= high, why
        why = "expected only with [[consensus]] tables, and here etcd decides"
        yield "consensus_password", etcd is None or self.consensus_password is None, why
        why = f"expected only with [[consensus]] tables: one of them leads and flies it{'' if etcd is None else ', and etcd runs nothing of ares'}"
        yield "autopilot", self.autopilot is None or bool(members), why

    def tables(self) -> Iterator[tuple[str, Table]]:
        """This table and those in it, each with its key path; tables of an array count from 0, as in ``server[0]``."""
        yield "", self
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, Table):
                yield name, value
            elif isinstance(value, list):
                yield from ((f"{name}[{index}]", table) for index, table in enumerate(value))

    def processes(self) -> list[tuple[str, ServerSettings | MemberSettings]]:
        """Every server and consensus member with its key path."""
        return [
            (key, table)
            for key, table in self.tables()
            if isinstance(table, ServerSettings | MemberSettings)
        ]


def _of_name(key: str, name: str) -> tuple[str, bool, str]:
    return (
        key,
        bool(NAME.fullmatch(name)),
        f"expected {NAME_EXPECTED}, found {name!r}",
    )


def fitting(limits: Limits) -> Limits:
    """``limits`` with as many connections as this process may have descriptors for, after it asked for as many as it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.connections + DESCRIPTORS_BESIDE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return limits
    fewer = max(soft - DESCRIPTORS_BESIDE, soft // 2)
    _log.warning(
        "%d connections of clients instead of %d: this process may open %d files (ulimit -n, LimitNOFILE)",
        fewer,
        limits.connections,
        soft,
    )
    return replace(limits, connections=fewer)


_TABLES = {"": FileTable} | {
    name: kind
    for name, hint in FileTable.__annotations__.items()
    for kind in (hint, *get_args(hint))
    if isinstance(kind, type) and issubclass(kind, Table)
}
"""The tables of a file by their names, in the order in which they are written."""

# -- reading ------------------------------------------------------------------------------------------------------------

_TOML_TYPES = {
    "`object": "`table",
    "`str": "`string",
    "`int": "`integer",
    "`bool": "`boolean",
    " | null": "",
}


def decode(text: str, path: Path) -> FileTable:
    """The tables in ``text``, every key known and of its type, and each value one that is allowed. Raises :class:`BadInput`."""
    try:
        tables = parse_toml(text)
        format = tables.get("format", FORMAT)
        if (
            type(format) is int and format != FORMAT
        ):  # before anything else: in another format other keys are known
            age = "a newer" if format > FORMAT else "another"
            refuse(
                path,
                "format",
                f"expected {FORMAT}, found {format}: the file was written for {age} release of ares; use that one",
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
        f"Expected `str`, got `{ {'list': 'array', 'dict': 'object'}.get(name := type(value).__name__, name) }`"
    )


def _explain(path: Path, what: str, place: str) -> NoReturn:
    """Say in the words of a TOML file what msgspec found at the key path ``place``."""
    inside = f"{place}." if place else ""
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", what):
        names = _TABLES[place.partition("[")[0]].__struct_encode_fields__
        near = difflib.get_close_matches(unknown[1], names, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(names)}"
        refuse(path, f"{inside}{unknown[1]}", f"unknown key; {hint}")
    if missing := re.fullmatch(r"Object missing required field `(.*)`", what):
        refuse(path, f"{inside}{missing[1]}", "expected, but missing")
    for theirs, ours in _TOML_TYPES.items():
        what = what.replace(theirs, ours)
    refuse(path, place, what[:1].lower() + what[1:])


# -- writing ------------------------------------------------------------------------------------------------------------


def written(file: FileTable, remarks: Mapping[str, str]) -> str:
    """The text of a cluster file without what is at its defaults. ``remarks`` has what is to precede a key or a table, be it written or not."""
    parts = [lines(file, remarks)]
    for field in fields(file):
        value = getattr(file, field.name)
        if isinstance(value, list):
            parts += [f"\n[[{field.name}]]\n{lines(table)}" for table in value]
        elif field.name in _TABLES:
            is_written = value not in (None, field.default)
            parts.append(remarks.get(field.name, "\n" if is_written else ""))
            parts.append(f"[{field.name}]\n{lines(value)}" if is_written else "")
    return "".join(parts)


def lines(table: Table, remarks: Mapping[str, str] = MappingProxyType({})) -> str:
    """The keys of a table that are not at their defaults, or else all of them, and their values; nothing of the tables in it."""
    given = [
        (field, getattr(table, field.name)) for field in fields(table) if field.name not in _TABLES
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
