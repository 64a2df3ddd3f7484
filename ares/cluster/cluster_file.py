"""Writing the cluster file: a new cluster on one host, and a fresh start of one whose memory is gone.

What is written is first read back through the same checks as any other cluster file, so `init` cannot produce a file that `up` refuses.
"""

import os
import secrets
import socket
from pathlib import Path
from typing import Literal

from msgspec import Struct

from ares.cluster.home import kept_in, new_identity, prepare
from ares.cluster.new_keys import FIRST_CLIENT, NewKeys
from ares.cluster.security_settings import KEYS_NAME
from ares.cluster.settings import FILE_NAME, Settings, is_loopback
from ares.cluster.starts import record_of
from ares.cluster.tables import FORMAT
from ares.machine.durable_files import make_directory
from ares.machine.named_files import SETTINGS_BYTES_MAX, read_named
from ares.machine.ownership import DIRECTORY_MADE_FOR_ALL, MADE_FOR_ALL
from ares.model.configuration import BACKEND_DEFAULT, DELTA_DEFAULT, Algorithm, Configuration, Server
from ares.model.errors import BadInput, ConfigurationRefused
from ares.model.identity import ServerId
from ares.security.secrets import write_secret

Durability = Literal["memory", "fsync"]

PASSWORD_NAME = "secrets/consensus.password"

_PORTS = range(20_000, 32_000)
"""Below the ports that Linux hands out to outgoing connections: what is free here now is likely to stay so until the cluster starts."""

_HTTP_HOST = "127.0.0.1"
"""Figures are for this machine, until somebody writes another address."""

_HEAD = """\
# A cluster of ares: its servers, its consensus members, and the configuration that it began with. Clients and servers read the same file.
# At http a process says how it is: GET /health, and GET /metrics for Prometheus.
format = {format}
name = "{name}"
{durability}
"""
_DURABILITY = {
    "memory": """\
# The servers keep all data in memory. It survives the crash of a few servers at a time (see [initial]), and is lost when they all stop.
durability = "memory"\
""",
    "fsync": """\
# The servers acknowledge what is on stable storage, in their data directories, and start again with what they had.
durability = "fsync"\
""",
}
_SECURITY = """\
# No keys: whoever reaches the addresses below can read and write everything.
security = "none"
"""
_CURVE = """\
# Everybody has a key, and is known by it. This file holds no secret: hand it out. The secrets are in the directory of keys, and so is clients.toml,
# which says what each client may do; `ares-cli keys` writes that.
security = "curve"
"""
_DECISIONS = """\
# What consensus members sign decisions with; servers take no others.
decision_key = "{key}"
"""
_CLIENT = """
[client]
key = "{key}"
"""
_MEMBERS = """\
# The consensus members' shared secret; the file must be readable by its owner only.
consensus_password = "{password}"
"""
_SERVER = """
[[server]]
id = "{id}"
address = "{address}"
identity = "{identity}"
"""
_PUBLIC_KEY = """\
public_key = "{key}"
"""
_MEMBER = """
[[consensus]]
id = "{id}"
address = "{address}"
raft = "{raft}"
"""
_ETCD = """
# This etcd keeps the decisions; its endpoints are members of one etcd cluster. Clients need this table, servers do not talk to etcd. May follow it:
# prefix = "/ares", what all keys in there begin with; ca = "pem/ca.pem" for TLS, certificate and key for an etcd that asks clients for one;
# user = "ares" and password = "secrets/etcd.password", a file of mode 600.
[etcd]
endpoints = [{endpoints}]
"""
_HTTP = """\
http = "{address}"
"""
_AUTOPILOT = """
# With this table, a server that was silent for after_s seconds is replaced by a spare: one that is up and in fewer configurations. every_s: how often
# servers are looked at. bytes_per_s: how fast data moves for that.
[autopilot]
after_s = 60
every_s = 5
bytes_per_s = 33554432
"""
_INITIAL = """
# {description}.
# Every client starts from this table: never edit it while the cluster holds data, use `ares-cli reconfig`.
[initial]
dap = "{dap}"
servers = [{servers}]
"""


class Plan(Struct, frozen=True):
    """What `init` was asked for. ``base_port`` 0: free ports are chosen; ``k`` None with "ec": the largest that survives one crash.

    ``etcd``: endpoints (``host:port``) of one that keeps the decisions, in place of consensus members. ``spares``: servers that are in no
    configuration in the beginning. ``autopilot``: let them take the places of servers that are gone.
    """

    servers: int = 5
    consensus: int = 3
    dap: Algorithm = "abd"
    k: int | None = None
    delta: int | None = None
    host: str = "127.0.0.1"
    base_port: int = 7400
    security: str | None = None
    allow_no_faults: bool = False
    durability: Durability = "fsync"
    etcd: tuple[str, ...] = ()
    spares: int = 0
    autopilot: bool = False

    @property
    def server_ids(self) -> list[str]:
        """Those of the initial configuration, then the spares."""
        return [f"s{index}" for index in range(self.servers + self.spares)]


def create(directory: Path, plan: Plan) -> Settings:
    """Write the cluster file and the secrets of a new cluster into ``directory``, made if need be, with directories ready for the first starts.

    Raises :class:`BadInput`, with nothing written, for an impossible plan or when there is a cluster already.
    """
    path = directory / FILE_NAME
    password = directory / PASSWORD_NAME
    for existing in (path, password, directory / KEYS_NAME):
        if existing.exists():
            raise BadInput(f"{existing} exists, and init never overwrites a cluster: choose another directory, or remove it yourself")
    _check_who_decides(plan)
    keys = _keys(plan)
    text = _text(plan, keys)
    processes = Settings.parse(text, path).processes()
    for process in processes:
        record = record_of(process.data)
        if (found := kept_in(process.data) or (record if record.exists() else None)) is not None:
            remove = f"remove {found if found == record else process.data} yourself"
            raise BadInput(f"{found} is left of an earlier cluster: choose another directory, or {remove}; nothing was written")
    try:
        make_directory(directory, DIRECTORY_MADE_FOR_ALL)
        if plan.consensus:
            write_secret(password, secrets.token_urlsafe(32))
        if keys is not None:
            keys.write(directory)
        for process in processes:
            prepare(process.data)
        _write_new(path, text, MADE_FOR_ALL)
    except OSError as error:
        raise BadInput(f"no cluster was written into {directory}: {error.strerror} ({error.filename})") from error
    return Settings.load(path)


def renew_identities(settings: Settings) -> Settings:
    """Give every server of the file a new identity, everything else in it kept: what earlier lives of the servers held is nobody's then.

    The directories of all processes must have been removed; they are made ready for first starts.
    """
    text = read_named(settings.path, SETTINGS_BYTES_MAX)[0].decode("utf-8")
    for server in settings.servers.values():
        text = text.replace(server.identity, new_identity())
    new = settings.path.with_name(f"{settings.path.name}.new")
    new.unlink(missing_ok=True)
    _write_new(new, text, settings.path.stat().st_mode & 0o777)
    os.replace(new, settings.path)
    for process in settings.processes():  # last: a first start under the old identities would be none
        prepare(process.data)
    return Settings.load(settings.path)


def largest_k(servers: int) -> int:
    """The most data elements over ``servers`` that survive one crash: floor((n-k)/2) >= 1. Raises :class:`BadInput` if there is no such k."""
    if servers < 3:
        raise BadInput(f"erasure coding over {servers} servers survives no crash whatever k is: use 3 servers or more, or give --k yourself")
    return servers - 2


def _configuration(plan: Plan) -> Configuration:
    members = [Server(ServerId(f"s{index}")) for index in range(plan.servers)]
    try:
        if plan.dap == "ec":
            k = largest_k(plan.servers) if plan.k is None else plan.k
            delta = DELTA_DEFAULT if plan.delta is None else plan.delta
            return Configuration.ec(members, k, delta, BACKEND_DEFAULT, allow_no_faults=plan.allow_no_faults)
        if (plan.k, plan.delta) != (None, None):
            raise BadInput("--k and --delta belong to --dap ec: ABD replicates whole values")
        return Configuration.abd(members, allow_no_faults=plan.allow_no_faults)
    except ConfigurationRefused as error:
        raise BadInput(str(error)) from error


def _check_who_decides(plan: Plan) -> None:
    if plan.etcd and plan.consensus:
        raise BadInput("either consensus members decide or an etcd does: say --etcd or --consensus, not both; nothing was written")
    if plan.etcd and plan.security == "curve":
        why = "servers of a cluster with keys take only decisions that its consensus members have signed, and etcd signs nothing"
        raise BadInput(f"--etcd and --security curve do not go together: {why}; nothing was written")


def _keys(plan: Plan) -> NewKeys | None:
    ids = [*plan.server_ids, *(f"r{index}" for index in range(plan.consensus))]
    return NewKeys(ids, plan.consensus) if plan.security == "curve" else None


def _text(plan: Plan, keys: NewKeys | None) -> str:
    configuration = _configuration(plan)
    if not plan.host.strip():
        raise BadInput("--host: expected the address that everything listens on, and it is empty")
    if plan.security is None and not is_loopback(plan.host):
        why = f"{plan.host} is not a loopback address: without keys anyone who reaches it can read and write"
        raise BadInput(f"{why}. Say --security curve, and everybody gets a key; or, if its network is trusted, say --security none")
    chosen = _free_ports(plan) if plan.base_port == 0 else range(plan.base_port, 1 << 20)
    ports = iter(chosen)
    https = (f"{_HTTP_HOST}:{port}" for port in chosen[len(plan.server_ids) + 2 * plan.consensus :])
    parts = [_HEAD.format(format=FORMAT, name=f"ares-{secrets.token_hex(3)}", durability=_DURABILITY[plan.durability])]
    parts.append(_SECURITY if plan.security == "none" else "" if keys is None else _CURVE)
    parts.append(_DECISIONS.format(key=keys.decision_key) if keys is not None and plan.consensus else "")
    parts.append(_MEMBERS.format(password=PASSWORD_NAME) if plan.consensus else "")
    for id in plan.server_ids:
        parts.append(_SERVER.format(id=id, address=f"{plan.host}:{next(ports)}", identity=new_identity()))
        parts.append(_PUBLIC_KEY.format(key=keys.public_key(id)) if keys is not None else "")
        parts.append(_HTTP.format(address=next(https)))
    for index in range(plan.consensus):
        parts.append(_MEMBER.format(id=f"r{index}", address=f"{plan.host}:{next(ports)}", raft=f"{plan.host}:{next(ports)}"))
        parts.append(_PUBLIC_KEY.format(key=keys.public_key(f"r{index}")) if keys is not None else "")
        parts.append(_HTTP.format(address=next(https)))
    parts.append(_ETCD.format(endpoints=", ".join(f'"{endpoint}"' for endpoint in plan.etcd)) if plan.etcd else "")
    parts.append(_autopilot(plan))
    parts.append(_CLIENT.format(key=f"{KEYS_NAME}/{FIRST_CLIENT}.secret") if keys is not None else "")
    names = ", ".join(f'"{name}"' for name in configuration.server_ids)
    parts.append(_INITIAL.format(description=configuration.describe(), dap=configuration.dap, servers=names))
    if configuration.dap == "ec":
        parts.append(f'k = {configuration.k}\ndelta = {configuration.delta}\nbackend = "{configuration.backend}"\n')
    parts.append("allow_no_faults = true\n" if plan.allow_no_faults else "")
    return "".join(parts)


def _autopilot(plan: Plan) -> str:
    """The table, as a remark unless it was asked for; nothing where nobody could fly it."""
    if plan.autopilot or not plan.consensus:
        return _AUTOPILOT if plan.autopilot else ""
    return "".join(line if line.startswith(("#", "\n")) else f"# {line}" for line in _AUTOPILOT.splitlines(keepends=True))


def _free_ports(plan: Plan) -> list[int]:
    """Neighbours: clusters that are made at the same time want the same port more seldom than if they chose each by chance."""
    first = secrets.randbelow(len(_PORTS))
    wanted = 2 * len(plan.server_ids) + 3 * plan.consensus
    free: list[int] = []
    for port in (*_PORTS[first:], *_PORTS[:first]):
        if len(free) == wanted:
            return free
        if is_free(plan.host, port) and is_free(_HTTP_HOST, port):
            free.append(port)
    raise BadInput(f"fewer than {wanted} ports from {_PORTS.start} to {_PORTS.stop} are free on {plan.host}")


def is_free(host: str, port: int) -> bool:
    """Whether this machine can listen there now: nobody else does, and ``host`` is one of its addresses."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _write_new(path: Path, text: str, mode: int) -> None:
    """Refuses to follow or replace what is there (:class:`FileExistsError`)."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
