"""The shape of the cluster file: which tables and keys there are, and of which type. What the values mean is checked in settings.py.

Nothing unknown is passed over, because a misspelt key would otherwise be a default that nobody asked for.
"""

import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import msgspec
from msgspec import Struct

from ares.errors import BadInput


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


class ServerTable(Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    address: str
    identity: str
    data: str | None = None
    public_key: str | None = None


class MemberTable(Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    address: str
    raft: str
    data: str | None = None
    public_key: str | None = None


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
    keys: str | None = None
    decision_key: str | None = None
    consensus_password: str | None = None
    client: ClientSettings = ClientSettings()
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
    "server": ServerTable,
    "consensus": MemberTable,
    "etcd": EtcdTable,
    "initial": InitialTable,
}

_TOML_TYPES = {"`object": "`table", "`str": "`string", "`int": "`integer", "`bool": "`boolean", " | null": ""}


def refuse(path: Path, key: str, why: str) -> NoReturn:
    """Raise the :class:`BadInput` of the cluster file at ``path``: its name, the key's path, what was expected."""
    raise BadInput(f"{path}: {key}: {why}")


def decode(text: str, path: Path) -> FileTable:
    """The tables in ``text``, every key known and of its type. Raises :class:`BadInput`."""
    try:
        return msgspec.convert(tomllib.loads(text), FileTable)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path}: expected TOML: {error}") from error
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at ")
        _explain(path, what, place.strip("`").removeprefix("$").removeprefix("."))


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
