"""The shape of the cluster file: which tables and keys there are, and of which type. What the values mean is checked in settings.py.

Nothing unknown is passed over, because a misspelt key would otherwise be a default that nobody asked for.
"""

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NoReturn

import msgspec
from msgspec import Struct

from ares.machine.named_files import NotToml, parse_toml, refuse
from ares.model.errors import BadInput

MIB = 1024 * 1024


FORMAT = 1

TransportName = Literal["native", "libzmq"]
"""Who speaks ZeroMQ's protocol: this project, or libzmq (docs/transport.md)."""


class ClientSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How a client behaves unless told otherwise: the deadline of one operation in seconds, and what ARES II and CoARES add to ARES.

    ``key``: the path of the file with its secret key.
    """

    timeout_s: float = 30.0
    piggyback: bool = True
    gc: bool = True
    batch: bool = True
    fast_read: bool = True
    optimised: bool = True
    key: str | None = None


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """What the clients of one process may make it hold (docs/limits.md).

    ``connections``: how many at once. ``received_bytes``: what came in from all of them and was not looked at yet. ``unread_bytes``: replies that
    they, all together, have not taken yet.
    """

    connections: int = 4_000
    received_bytes: int = 1024 * MIB
    unread_bytes: int = 512 * MIB


class AutopilotSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the table is, servers that are gone are replaced by others (docs/autopilot.md).

    ``after_s``: how long one must have been silent. ``every_s``: how often servers are looked at. ``bytes_per_s``: how fast data moves for that.
    """

    after_s: float = 60.0
    every_s: float = 5.0
    bytes_per_s: int = 32 * MIB


class ScrubSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How servers with a store verify what is on their disks: every so many hours (0: only when asked to), and how fast (docs/store.md)."""

    every_h: float = 168.0
    bytes_per_s: int = 8 * MIB


class ServerTable(Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    address: str
    identity: str
    data: str | None = None
    public_key: str | None = None
    http: str | None = None


class MemberTable(Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    address: str
    raft: str
    data: str | None = None
    public_key: str | None = None
    http: str | None = None


class EtcdTable(Struct, frozen=True, forbid_unknown_fields=True):
    endpoints: list[str]
    prefix: str = "/ares"
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    user: str | None = None
    password: str | None = None


class InitialTable(Struct, frozen=True, forbid_unknown_fields=True):
    dap: str
    servers: list[str]
    k: int | None = None
    delta: int | None = None
    backend: str | None = None
    allow_no_faults: bool = False


class FileTable(Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    name: str
    durability: str
    initial: InitialTable
    security: str | None = None
    transport: str = "native"
    keys: str | None = None
    decision_key: str | None = None
    consensus_password: str | None = None
    client: ClientSettings = ClientSettings()
    limits: Limits = Limits()
    scrub: ScrubSettings = ScrubSettings()
    autopilot: AutopilotSettings | None = None
    server: list[ServerTable] = []
    consensus: list[MemberTable] = []
    etcd: EtcdTable | None = None

    def processes(self) -> list[tuple[str, ServerTable | MemberTable]]:
        """Every server and consensus member with its key path; tables of an array count from 0, as in ``server[0]``."""
        servers = [(f"server[{index}]", server) for index, server in enumerate(self.server)]
        return [*servers, *((f"consensus[{index}]", member) for index, member in enumerate(self.consensus))]


_TABLES: Mapping[str, type[Struct]] = {
    "": FileTable,
    "client": ClientSettings,
    "limits": Limits,
    "scrub": ScrubSettings,
    "autopilot": AutopilotSettings,
    "server": ServerTable,
    "consensus": MemberTable,
    "etcd": EtcdTable,
    "initial": InitialTable,
}

_TOML_TYPES = {"`object": "`table", "`str": "`string", "`int": "`integer", "`bool": "`boolean", " | null": ""}


def decode(text: str, path: Path) -> FileTable:
    """The tables in ``text``, every key known and of its type. Raises :class:`BadInput`."""
    try:
        tables = parse_toml(text)
        _check_format(path, tables)
        return msgspec.convert(tables, FileTable)
    except NotToml as error:
        raise BadInput(f"{path}: {error}") from error
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at ")
        _explain(path, what, place.strip("`").removeprefix("$").removeprefix("."))


def _check_format(path: Path, tables: Mapping[str, object]) -> None:
    """Before anything else: in another format other keys are known."""
    format = tables.get("format", FORMAT)
    if type(format) is int and format != FORMAT:
        age = "a newer" if format > FORMAT else "another"
        refuse(path, "format", f"expected {FORMAT}, found {format}: the file was written for {age} release of ares; use that one")


def _explain(path: Path, what: str, place: str) -> NoReturn:
    """Say in the words of a TOML file what msgspec found at the key path ``place``."""
    inside = f"{place}." if place else ""
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", what):
        names = _TABLES[place.partition("[")[0]].__struct_fields__
        near = difflib.get_close_matches(unknown[1], names, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(names)}"
        refuse(path, f"{inside}{unknown[1]}", f"unknown key; {hint}")
    if missing := re.fullmatch(r"Object missing required field `(.*)`", what):
        refuse(path, f"{inside}{missing[1]}", "expected, but missing")
    for theirs, ours in _TOML_TYPES.items():
        what = what.replace(theirs, ours)
    refuse(path, place, what[:1].lower() + what[1:])
